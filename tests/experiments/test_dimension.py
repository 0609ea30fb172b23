"""Datasets of known dimension, what is measured on them, and the tables of it."""

import json
from pathlib import Path

import pytest
import torch

from experiments.dimension.datasets import SUITES, suite
from experiments.dimension.run import main
from experiments.dimension.table import calibration, tables

FOLDER = Path(__file__).parents[2] / "experiments" / "dimension"
OURS = [one for name in SUITES if name not in ("benchmark", "iddiff") for one in suite(name)]
BENT = {one.name: one for one in OURS if one.tangents is not None and one.noise == 0.0 and one.n == 1500}


def test_the_suites_are_as_large_as_they_should_be():
    sizes = {name: len(list(suite(name))) for name in SUITES}
    assert sizes == {"noisy": 24, "calibration": 72, "benchmark": 48, "denoising": 5, "iddiff": 9}


@pytest.mark.parametrize("name", BENT)
def test_tangents_are_orthonormal_and_steps_to_neighbors_lie_along_them(name):
    """Of 40,000 clean points the nearest is so near that what is left across the data is small."""
    shape = BENT[name]
    points = shape.clean(40_000, torch.Generator().manual_seed(0)).double()
    bases = shape.tangents(points[:40])
    assert bases.shape == (40, points.shape[1], shape.dimension)
    gram = bases.mT @ bases
    torch.testing.assert_close(gram, torch.eye(shape.dimension, dtype=gram.dtype).expand_as(gram), atol=1e-8, rtol=0)
    steps = points[torch.cdist(points[:40], points).topk(2, largest=False).indices[:, 1]] - points[:40]
    across = steps - torch.einsum("nDd,nEd,nE->nD", bases, bases, steps)
    assert float((across.norm(dim=1) / steps.norm(dim=1)).median()) < 0.25


@pytest.mark.parametrize("one", OURS, ids=lambda one: f"{one.suite} {one.name} {one.n}")
def test_samples_are_the_clean_ones_with_their_noise_and_another_seed_draws_others(one):
    samples, clean = one.draw(1)
    assert samples.shape == clean.shape
    assert len(samples) == one.n
    assert float((samples - clean).std()) == pytest.approx(one.noise, rel=0.1)
    assert not torch.equal(one.draw(2)[1], clean)


@pytest.mark.parametrize("one", suite("iddiff"), ids=lambda one: one.name)
def test_pictures_have_the_dimension_that_they_are_made_with(one):
    """The squares span their number, and a sphere one more; a curve and blobs of any width span more."""
    samples = one.clean(300, torch.Generator().manual_seed(0))
    assert torch.isfinite(samples).all()
    values = torch.linalg.svdvals(samples)
    n_linear = int((values > 1e-9 * values[0]).sum())
    if one.name.startswith("squares"):
        assert n_linear == one.dimension
    elif one.name.startswith("S"):
        assert n_linear == one.dimension + 1
    else:
        assert n_linear > one.dimension


def row(**changes):
    made = {"suite": "calibration", "name": "circle", "n": 300, "seed": 1, "dimension": 1, "ambient": 6, "noise": 0.0}
    made |= {"value": 1, "interval": [1, 1], "verdict": "clear", "valid": 1.0, "found_noise": 0.0}
    return made | {"error": 0.02, "best_error": 0.01, "pca_error": 0.03} | changes


def test_the_table_counts_what_is_right():
    rows = [
        row(),
        row(seed=2, value=2, interval=[1, 2], verdict="depends on the scale"),
        row(seed=3, value=2, interval=[2, 2]),
    ]
    text = calibration(rows)
    assert "The interval holds the dimension in 66.7%" in text
    assert "| clear | 2 | 50.0% | 50.0% |" in text
    assert "| depends on the scale | 1 | 0.0% | 100.0% |" in text
    assert text.count("(wrong)") == 2
    assert "error is 2.00 times the one at the best σ of that fit in the median" in text
    assert "below that of local PCA with the best k by labels in 3 of 3" in text


def test_the_tables_are_those_of_the_results():
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    assert (FOLDER / "tables.md").read_text(encoding="utf-8") == tables(results)


@pytest.mark.slow
def test_a_dataset_is_measured_from_the_command_line_and_not_again(tmp_path, capsys):
    options = [
        "--suite",
        "calibration",
        "--match",
        "circle in R⁶",
        "--sizes",
        "300",
        "--steps",
        "60",
        "--out",
        str(tmp_path),
    ]
    (found,) = main(options)["rows"]
    assert found["dimension"] == 1
    assert found["best_error"] <= found["error"] <= 2**0.5
    assert "circle in R⁶ n=300 seed 1" in capsys.readouterr().out
    assert main(options)["rows"] == [found]
    assert capsys.readouterr().out == ""
    assert "| circle in R⁶ | 300 | 1 |" in (tmp_path / "tables.md").read_text()
