"""The tables of the comparison on a sphere are those of its results, and its README quotes them."""

import json
from pathlib import Path

import pytest

from experiments.sphere.tables import sphere_tables

FOLDER = Path(__file__).parents[2] / "experiments/sphere"


@pytest.mark.parametrize("where", ["gpu", "uneven", "cpu"])
def test_tables_are_those_of_the_results(where):
    results = json.loads((FOLDER / where / "results.json").read_text(encoding="utf-8"))
    assert sphere_tables(results) + "\n" == (FOLDER / where / "tables.md").read_text(encoding="utf-8")


def test_the_readme_quotes_the_tables():
    known = {
        line
        for where in ("gpu", "uneven", "cpu")
        for line in (FOLDER / where / "tables.md").read_text("utf-8").splitlines()
    }
    quoted = [line for line in (FOLDER / "README.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(quoted) > 15
    assert [line for line in quoted if line not in known] == []


@pytest.mark.parametrize(
    ("size", "target"), [(8192, 0.055), (65_536, 0.045), (524_288, 0.03), (2_097_152, 0.025), (8_388_608, 0.025)]
)
def test_what_was_measured_on_a_gpu_is_what_the_project_promises(size, target):
    """It guards the stored results: a rerun that is worse must not go unnoticed."""
    results = json.loads((FOLDER / "gpu/results.json").read_text(encoding="utf-8"))
    row = next(row for row in results["rows"] if (row["n"], row["method"]) == (size, "learned"))
    assert row["tangent_error"] <= target
    assert row["label_free_tangent_error"] <= target
    assert row["fit_seconds"] <= 30
    assert rate(results, size, "learned") >= promised_speed(size) * rate(results, size, "kernel, as in the paper")


def rate(results: dict, size: int, method: str) -> float:
    return next(row for row in results["rows"] if (row["n"], row["method"]) == (size, method))["metric_per_second"]


def promised_speed(size: int) -> float:
    return {2_097_152: 300, 8_388_608: 1000}.get(size, 1)
