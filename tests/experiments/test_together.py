"""What was measured of several processes, and the tables that are written from it."""

import json
from pathlib import Path

import pytest

from experiments.measures.pages import fill
from experiments.together.table import TABLES

FOLDER = Path(__file__).parents[2] / "experiments" / "together"


@pytest.fixture(scope="module")
def results():
    return json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))


def test_the_tables_are_those_of_the_results(results):
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, write in TABLES.items():
        assert fill(text, name, write(results)) == text


def test_steps_and_errors_of_two_processes_are_those_of_one(results):
    assert results["difference"] < 1e-12
    one, two = (results[name]["errors"] for name in ("one", "two"))
    assert max(two) < 1.2 * max(one)


def test_every_fit_that_was_killed_ended_and_went_on(results):
    kills = results["kills"]
    assert len(kills) >= 10
    assert not any(kill["hung"] for kill in kills)
    assert all(kill["resumed"] and kill["left_beside"] == [] for kill in kills)
    # Before the program is loaded there is nobody to say anything.
    assert all(kill["sentence"] or not kill["had_checkpoint"] for kill in kills)
