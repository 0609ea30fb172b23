"""The page on limits says what was measured, and what was measured keeps within the formulas."""

import json

import pytest

from experiments.limits.table import TABLES, machine_note
from experiments.measures.pages import fill
from tests.docs.pages import DOCS

FOLDER = DOCS.parent / "experiments" / "limits"


@pytest.fixture(scope="module")
def results():
    return json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [DOCS / "limits.md", FOLDER / "README.md"], ids=["docs", "experiment"])
def test_the_tables_are_those_of_the_results(page, results):
    text = page.read_text(encoding="utf-8")
    for name, write in TABLES.items():
        assert fill(text, name, write(results)) == text
    assert text.count("| `path` |") == len(results["cases"])


def test_peak_memory_keeps_within_the_formula(results):
    rows = [row for case in results["cases"] for row in case["queries"]]
    measured = [row for row in rows if row["peak_megabytes"] is not None]
    assert len(measured) >= 20
    beyond = [row for row in measured if row["peak_megabytes"] > row["bound_megabytes"]]
    assert beyond == []


def test_the_page_says_whether_the_machine_was_shared(results):
    for shared in (True, False):
        note = machine_note(results | {"machine": results["machine"] | {"shared": shared}})
        assert ("Other work ran on the machine" in " ".join(note)) == shared
