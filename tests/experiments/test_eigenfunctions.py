"""The stored results of the experiment are what its page quotes, and what the project promises."""

import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments/eigenfunctions"
RESULTS = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))


def test_the_table_is_that_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "table", raising=False)
    import table  # noqa: PLC0415

    assert table.table(RESULTS) in (FOLDER / "README.md").read_text(encoding="utf-8")
    monkeypatch.delitem(sys.modules, "table")


@pytest.mark.parametrize("kind", ["rows", "fits"])
def test_four_thousand_points_of_the_sphere_are_within_three_percent(kind):
    found = [row for row in RESULTS[kind] if row["shape"] == "S² in R¹⁰"]
    assert len(found) == 3
    assert all(row["exact" if kind == "rows" else "fitted"]["largest"] < 0.03 for row in found)


def test_every_shape_is_nearer_than_diffusion_maps_at_their_best():
    assert len(RESULTS["rows"]) == 30
    assert [row["shape"] for row in RESULTS["rows"] if row["exact"]["largest"] > row["diffusion maps"]["largest"]] == []
