"""The page and the card say what was measured."""

import json
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "experiments/mnist"


@pytest.fixture(scope="module")
def results():
    return json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))


def test_stored_tables_are_those_of_the_stored_results(mnist, results):
    assert mnist.summary.tables(results) == (FOLDER / "tables.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("told", "method"),
    [
        ("LERP", "LERP"),
        ("Stein, as published (σ 0.7, λ σ²)", "Stein, as published"),
        ("learned, the paper's recipe (σ 7)", "learned, the paper's recipe"),
        ("learned, flow with landing (σ 2, landing at σ 1)", "learned, flow with landing"),
        ("the same without a metric", "no metric, flow with landing"),
        ("learned, thread (σ 2, α 0.3, slope 1)", "learned"),
        ("learned, thread at σ 1", "learned, σ = 1"),
        ("learned, thread at σ 4", "learned, σ = 4"),
        ("thread in the Stein metric", "Stein, as a thread"),
        ("thread without a metric", "no metric, as a thread"),
    ],
)
def test_the_page_says_what_was_measured(mnist, results, told, method):
    page = (FOLDER / "README.md").read_text(encoding="utf-8").replace("**", "")
    (row,) = mnist.summary.path_rows({told: results["paths"]["methods"][method]}, "inner")
    assert "| " + " | ".join(row) + " |" in page
    chosen = results["search"]["chosen"]["learned"]
    assert (chosen["bandwidth"], chosen["landing"], chosen["slope"]) == (2.0, 0.3, 1.0)


def test_the_card_of_the_model_that_ships_says_what_was_measured(mnist, results):
    page = FOLDER.parents[1] / "src/carre/pretrained/mnist/README.md"
    assert mnist.summary.card(results) in page.read_text(encoding="utf-8")


def test_ninety_seven_percent_are_ninety_seven_percent(mnist, strokes):
    """1,455 of 1,500, which float32 would make a little more or less."""
    right = torch.ones(100, 17)
    right[:45, 5] = 0

    class Judge(mnist.paths.Judge):
        def distances(self, points):
            return torch.ones(points.shape[:-1])

        def verdict(self, points, labels):
            return right, right

    nodes = torch.zeros(100, 17, 2)
    curves = mnist.flow.Curves(nodes, nodes, torch.zeros(100), torch.ones(100))
    found = mnist.paths.measure(curves, torch.zeros(100), Judge(None, None))
    assert found["inner"]["right"] == mnist.paths.KEPT


def test_the_digit_one_has_the_lowest_dimension_at_every_scale(results):
    for row in [results["spectra"]["default"], *results["spectra"]["scales"]]:
        for how in ("count", "trace"):
            assert min(row[f"{how}_by_class"], key=row[f"{how}_by_class"].get) == "1"
