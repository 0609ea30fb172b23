"""The scripts of the stability experiment compute what they say."""

import json

import numpy as np
import pytest
import torch

from carre.data import ImageDataset
from carre.fields import KernelField
from carre.metric import LowRankMetric
from experiments.stability import recipe, truth


def gaussian(n, deviations, seed=0):
    return torch.tensor(deviations) * torch.randn(n, len(deviations), generator=torch.Generator().manual_seed(seed))


def test_an_exact_sum_is_the_kernel_field():
    samples = gaussian(300, [1.0] * 5)
    exact = truth.Truth(samples[:3], samples, 0.7)
    own = KernelField(samples).metric(samples[:3], 0.7)
    for factor, other, covariance in zip(exact.factor, own.factor, exact.covariances, strict=True):
        assert torch.allclose(factor.mT @ factor, other.mT @ other, atol=1e-5)
        assert torch.allclose(covariance, other.mT @ other, atol=1e-5)


def test_distances_are_those_of_the_matrices():
    samples = gaussian(300, [1.0] * 5)
    exact = truth.Truth(samples[:3], samples, 0.7)
    other = truth.Kept(torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(1)))
    dense = [factor.mT @ factor - kernel for factor, kernel in zip(other.factor, exact.covariances, strict=True)]
    sizes = [float(torch.linalg.matrix_norm(kernel)) for kernel in exact.covariances]
    expected = [float(torch.linalg.matrix_norm(d)) / size for d, size in zip(dense, sizes, strict=True)]
    assert exact.distances(other).tolist() == pytest.approx(expected, rel=1e-4)
    assert float(exact.distances(exact).max()) < 1e-3


def test_filling_adds_noise_as_the_posterior_forgets():
    """(I − S)σ: all of it without variance, half of it with the variance σ², none with much more."""
    samples = gaussian(50_000, [10.0, 1.0, 0.0])
    filled = truth.Filler(samples)(samples, 1.0) - samples
    assert filled.std(0).tolist() == pytest.approx([1 / 101, 0.5, 1.0], rel=0.05)


def test_for_gaussian_data_the_constant_metric_is_right_and_no_place_is_special():
    samples = gaussian(20_000, [2.0, 1.0, 0.2])
    found = truth.measure_places(1.0, samples[:8], samples, truth.Filler(samples))
    assert found["constant S"]["distance"] < 0.1
    assert found["exact kernel, filled"]["distance"] < 0.15
    assert found["neighbors"]["clean"]["least"] <= found["neighbors"]["clean"]["median"]
    doubled = torch.cat([samples, samples + torch.tensor([9.0, 0.0, 0.0])])
    assert truth.measure_places(1.0, samples[:8], doubled, truth.Filler(doubled))["constant S"]["distance"] > 0.1


@pytest.mark.slow
def test_every_metric_is_asked_at_its_place(monkeypatch):
    """A field that is I at the clean images and 4I elsewhere."""
    images = gaussian(4, [1.0] * 4, seed=1).reshape(4, 1, 2, 2)
    clean = images.flatten(1)

    class Field:
        dim = 4

        def metric(self, points, bandwidth):
            size = 1.0 if any(torch.equal(points[0], known) for known in clean) else 2.0
            return LowRankMetric(size * torch.eye(4).expand(len(points), 4, 4))

        def denoise(self, points, bandwidth):
            return points / 2

    monkeypatch.setattr(truth, "_RANK", 4)
    samples = gaussian(500, [1.0] * 4)
    filler = truth.Filler(samples)
    found = truth.measure_at(1.0, Field(), images, samples, lambda x: x.flatten(1), filler)["metrics"]
    assert found[truth.OURS]["leading"][0] == pytest.approx(1.0)
    assert found[f"{truth.OURS}, filled"]["leading"][0] == pytest.approx(4.0)
    assert found[truth.JACOBIAN]["leading"][0] == pytest.approx(0.5, rel=1e-3)
    assert found[truth.KERNEL]["distance"] < 1e-3
    # These features are the images: they move as far as the images do.
    assert found[truth.OURS]["shift"] == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0, 16.0], rel=1e-4)


def test_networks_need_a_model(tmp_path, capsys):
    with pytest.raises(SystemExit):
        truth.main(["--data", str(tmp_path), "--out", str(tmp_path)])
    assert "--model and --inception are needed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_four_recipes_are_compared(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 255, (60, 1, 8, 8), dtype=np.uint8)
    monkeypatch.setattr(recipe, "load_mnist", lambda folder, split: ImageDataset(pixels))
    monkeypatch.setattr(recipe, "_N_HELD_OUT", 10)
    monkeypatch.setitem(recipe.SETTINGS, "mnist", recipe.Setting(2, 2, 3, (0.2, 5.0), (0.5, 2.0), steps=2))
    recipe.main(["mnist", "--data", str(tmp_path), "--out", str(tmp_path)])
    found = json.loads((tmp_path / "recipe.json").read_text(encoding="utf-8"))["mnist"]
    losses = [[row[sigma]["predictive_loss"] for sigma in ("0.5", "2")] for row in found["recipes"].values()]
    assert len(losses) == len({tuple(row) for row in losses}) == 4
    assert np.isfinite(losses).all()
    lines = (tmp_path / "recipe.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "| mnist, 1×4×4: predictive loss | σ = 0.5 | σ = 2 |"
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in recipe.RECIPES]
