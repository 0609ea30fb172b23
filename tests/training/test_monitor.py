"""Evaluations on held-out samples: bounded in memory and time, whatever the dimension."""

import pytest
import torch

from carre.matching import LogUniform
from carre.networks import UNetSettings, build_image_model
from carre.training import Objective
from carre.training.monitor import HeldOut, LinearDenoiser

RANGE = LogUniform(0.1, 1.0)


def evaluate(model, samples, objective):
    monitor = HeldOut(samples[:20], samples, RANGE, generator=torch.Generator().manual_seed(0), n_levels=2, n_pairs=50)
    found, values = monitor.evaluate(model, objective, step=3, seconds=1.0)
    assert values.shape[:2] == (2, 50)
    assert float(values[..., 0].mean()) == pytest.approx(found.loss)
    return found


@pytest.mark.parametrize(
    "objective",
    [Objective(), Objective(train_mean=False, centered=False), Objective(function=lambda x: x)],
    ids=["joint", "uncentered", "function"],
)
def test_an_evaluation_is_the_same_in_small_parts_as_in_one(objective, monkeypatch, rng):
    """With memory for seven images, the last part is smaller."""
    torch.manual_seed(0)
    settings = UNetSettings(4, (1,), 1, ())
    model = build_image_model((1, 4, 4), 2, spread=1.0, settings=settings, with_mean=objective.centered).double()
    samples = torch.randn(60, 16, generator=rng, dtype=torch.float64)
    sizes = []
    model.factor.trunk.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    whole = evaluate(model, samples, objective)
    numbers = model.factor.trunk.numbers_per_point
    monkeypatch.setattr("carre.backend.memory.working_memory", lambda device: 7 * 8 * numbers)
    parts = evaluate(model, samples, objective)
    assert sizes == [50, 50] + 2 * (7 * [7] + [1])
    assert len(whole.gain) == (2 if objective.centered and objective.function is None else 0)
    for name in ("mean_loss", "metric_loss", "predictive_loss", "gain"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-10, nan_ok=True)


@pytest.mark.parametrize(
    ("dim", "n_rows"),
    [(3, 4096), (784, 6272), (1000, 6272), (4096, 6272), (4097, 4096), (12_288, 4096), (200_000, 4096)],
)
def test_the_linear_denoiser_decomposes_a_bounded_matrix(dim, n_rows, monkeypatch):
    """On the meta device, which keeps shapes and no numbers."""
    shapes = []
    real = torch.linalg.svd
    monkeypatch.setattr(
        torch.linalg, "svd", lambda *args, **options: shapes.append(args[0].shape) or real(*args, **options)
    )
    LinearDenoiser(torch.empty(100_000, dim, device="meta"))
    assert shapes == [(n_rows, dim)]


def test_few_samples_make_the_linear_denoiser_weaker_not_stronger(rng):
    """What the gain is measured against: with fewer samples than columns its error is above that of the best one."""
    deviations = 1 / torch.arange(1, 101, dtype=torch.float64)
    samples = deviations * torch.randn(4096, 100, generator=rng, dtype=torch.float64)
    clean = deviations * torch.randn(2000, 100, generator=rng, dtype=torch.float64)
    sigma = torch.full((2000,), 0.1, dtype=torch.float64)
    noisy = clean + 0.1 * torch.randn(clean.shape, generator=rng, dtype=torch.float64)
    few, many = (
        (LinearDenoiser(part)(noisy, sigma) - clean).square().sum(1).mean() for part in (samples[:50], samples)
    )
    best = (deviations**2 * 0.01 / (deviations**2 + 0.01)).sum()
    assert many == pytest.approx(float(best), rel=0.05)
    assert few > 1.1 * best
