"""What training converges to."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from carre.manifolds import FiniteSet, Sphere
from carre.matching import LogUniform, metric_matching_loss
from carre.metric import LowRankMetric
from carre.networks import FilmMLP, build_model
from carre.training import Objective, TrainingConfig, train


@pytest.mark.slow
def test_the_minimizer_on_a_finite_dataset_is_the_exact_kernel_sum():
    """A small network trained on five points, against the closed form at the noisy points it saw."""
    generator = torch.Generator().manual_seed(0)
    atoms = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.2], [0.1, -1.2], [0.9, 0.9]])
    torch.manual_seed(0)
    model = build_model(2, 2, width=64, n_blocks=2, spread=1.0)
    config = TrainingConfig(max_steps=1100, batch_size=128, n_references=8, weight_decay=0.0, learning_rate=3e-3)
    config = replace(config, until_done=False, polish=0.0)
    train(model, atoms, atoms, LogUniform(0.3, 1.0), Objective(), config)
    for sigma in (0.4, 0.7):
        points = atoms.repeat(40, 1) + sigma * torch.randn(200, 2, generator=generator)
        exact = FiniteSet(atoms.double()).posterior(points.double(), sigma)
        with torch.no_grad():
            mean, factor = model(points, torch.full((200,), sigma))
        assert (mean - exact.mean).norm(dim=1).mean() / exact.mean.norm(dim=1).mean() < 0.05
        error = (LowRankMetric(factor).dense() - exact.metric.dense()).norm(dim=(1, 2)).mean()
        assert error / exact.metric.dense().norm(dim=(1, 2)).mean() < 0.1


def regress_projector(rank: int) -> torch.Tensor:
    """Fit a factor of the given rank to the exact tangent projector of S²; return λ₂ over the sphere."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network: nn.Module = FilmMLP(3, 3 * rank, width=64, n_blocks=2, head_deviation=0.125)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 600)
    sphere = Sphere(2)
    for _ in range(600):
        points = sphere.sample(256, generator=generator, dtype=torch.float32)
        metric = LowRankMetric(network(points, torch.ones(256)).reshape(256, rank, 3))
        basis = sphere.tangent_basis(points)
        # T = ½ Σ (√2 u)(√2 u)ᵀ = UUᵀ: the projector as a mean of two outer products.
        loss = metric_matching_loss(metric, 2**0.5 * basis.mT).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    points = sphere.sample(20_000, generator=generator, dtype=torch.float32)
    with torch.no_grad():
        return LowRankMetric(network(points, torch.ones(20_000)).reshape(-1, rank, 3)).eigenvalues()[:, 1]


@pytest.mark.slow
def test_rank_three_suffices_on_the_sphere_and_rank_two_fails_somewhere():
    """r ≥ 2d−1 is enough; with r = 2 a continuous factor must degenerate at a point (hairy ball)."""
    assert regress_projector(3).min() > 0.9
    assert regress_projector(2).min() < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("method", ["joint", "two-stage", "uncentered"])
def test_each_way_to_train_has_its_own_minimizer_on_gaussian_data(method):
    """N(0, diag): G = Σ/(Σ+σ²) centered, G + (m−y)(m−y)ᵀ/σ² uncentered; at y = 0 both are the same."""
    generator = torch.Generator().manual_seed(0)
    deviations = torch.tensor([1.5, 0.7, 0.05])
    samples = deviations * torch.randn(4000, 3, generator=generator)
    shrink = deviations.square() / (deviations.square() + 0.5**2)

    class Wiener(nn.Module):
        def forward(self, points, bandwidth):
            variances = deviations.square()
            return variances / (variances + bandwidth.square()[:, None]) * points

    torch.manual_seed(0)
    model = build_model(
        3,
        3,
        width=32,
        n_blocks=1,
        spread=1.0,
        mean=Wiener() if method == "two-stage" else None,
        with_mean=method != "uncentered",
    )
    objective = Objective(train_mean=method == "joint", centered=method != "uncentered")
    config = TrainingConfig(max_steps=300, batch_size=512, n_references=512, learning_rate=5e-3)
    history = train(model, samples, samples[:200], LogUniform(0.3, 0.8), objective, config)
    with torch.no_grad():
        _, factor = model(torch.zeros(1, 3), torch.tensor([0.5]))
    expected = torch.diag(shrink)
    assert (LowRankMetric(factor).dense()[0] - expected).norm() / expected.norm() < 0.1
    assert len(history.gain) == (0 if method == "uncentered" else 8)
    if method == "joint":
        assert abs(history.gain).max() < 0.1, "flat data leave a linear denoiser nothing to be gained on"
