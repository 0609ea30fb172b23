"""The stored results of the toolkit's experiment are what its pages quote, and what the project promises."""

import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments/toolkit"
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def results():
    return json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(FOLDER))
    try:
        import tables  # noqa: PLC0415
    finally:
        sys.path.remove(str(FOLDER))
    return tables


def test_tables_are_those_of_the_results(results, tables):
    assert tables.tables(results) + "\n" == (FOLDER / "tables.md").read_text(encoding="utf-8")


def test_the_readme_quotes_the_tables():
    known = set((FOLDER / "tables.md").read_text(encoding="utf-8").splitlines())
    quoted = [line for line in (FOLDER / "README.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(quoted) > 30
    assert [line for line in quoted if line not in known] == []


def test_gradients_and_geodesics_of_fitted_fields_are_as_promised(results):
    sphere, roll = sorted(results["fitted"], key=lambda row: "length_error" in row)
    assert sphere["gradient_degrees"] < 5
    assert sphere["geodesic_length_error"] < 0.05
    assert roll["farthest_in_half_gaps"] < 0.5
    assert roll["connected"] == 1


def test_dimension_is_better_than_the_best_of_scikit_dimension(results, tables):
    ours = tables.mean([abs(row["value"] - row["dimension"]) for row in results["dimension"]])
    assert len(results["dimension"]) == len(results["baselines"]) == 18
    for method in tables.BASELINES:
        assert ours < tables.mean([abs(row[method] - row["dimension"]) for row in results["baselines"]])


def test_outliers_and_noise_change_the_dimension_by_less_than_a_tenth(results):
    clean = {row["name"]: row["mean"] for row in results["dimension"]}
    assert len(results["spoiled"]) == 8
    assert all(abs(row["mean"] / clean[row["name"]] - 1) < 0.1 for row in results["spoiled"])


def test_the_chosen_scale_is_nearly_the_best(results):
    assert len(results["scale"]) == 10
    assert all(row["regret"] <= 1.5 for row in results["scale"])
