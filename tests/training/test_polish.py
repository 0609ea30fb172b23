"""The polish: the factor alone, taught by a denoiser that is done, from clean points to noisy ones [THEORY §3.11]."""

import copy

import pytest
import torch
from torch import nn

from carre.manifolds import Sphere
from carre.matching import LogUniform
from carre.metric import AffineFrame, projector_distance
from carre.networks import FrozenDenoiser, build_model
from carre.training import Objective, TrainingConfig, train
from carre.training._steps import Polisher
from carre.training.loop import _Run

RANGE = LogUniform(0.02, 20.0)


def sphere(n=500):
    """S² with unit variance in every coordinate."""
    return 3**0.5 * Sphere(2).sample(n, generator=torch.Generator().manual_seed(0), dtype=torch.float32)


def polisher(model, samples, bandwidths=RANGE, **settings):
    config = TrainingConfig(**{"polish_batch": 4000, **settings})
    return Polisher(model, samples, bandwidths, Objective(), config, torch.Generator().manual_seed(0))


def small_model():
    torch.manual_seed(0)
    return build_model(3, 4, width=16, n_blocks=1, spread=1.0)


def test_points_are_clean_to_noisy_and_clean_only_at_small_scales():
    samples = torch.ones(5, 3)
    batch = polisher(small_model(), samples).batch()
    share = (batch.points - 1).norm(dim=1) / (batch.bandwidth * 3**0.5)
    small, large = batch.bandwidth < 0.1, batch.bandwidth > 5
    assert (share[small] < 0.02).float().mean() == pytest.approx(0.3, abs=0.05)
    assert share[small].max() > 1
    # Coordinates have mean square 1: at σ = 5 and more the least share of the noise is 25/26.
    assert share[large].square().mean() == pytest.approx(1.0, abs=0.1)
    assert (share[large] < 0.02).float().mean() < 0.005


def test_what_is_clean_is_measured_by_the_energy_of_a_coordinate():
    """Of data with a mean square of 0.01, σ = 0.3 leaves a tenth at most: hardly anything is clean there."""
    batch = polisher(small_model(), torch.full((5, 3), 0.1), LogUniform(0.29, 0.31)).batch()
    share = (batch.points - 0.1).norm(dim=1) / (batch.bandwidth * 3**0.5)
    assert share.square().mean() == pytest.approx(0.9, abs=0.06)


def test_the_mean_stands_still_and_the_factor_moves():
    model = small_model()
    nn.init.normal_(model.mean.trunk.head.weight, std=0.3)
    before = copy.deepcopy(model.state_dict())
    taught = polisher(model, sphere(), polish_batch=64)
    for _ in range(3):
        taught.step(1e-3)
    moved = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"factor"}


@pytest.mark.slow
def test_an_exact_denoiser_teaches_the_exact_tangents_from_nothing():
    """Oracle: the posterior mean of S². The factor has seen no displacement at all."""
    exact = Sphere(2, 3**0.5)
    mean = FrozenDenoiser(lambda y, s: exact.posterior(y, s).mean, AffineFrame(torch.zeros(3), 1.0))
    torch.manual_seed(0)
    model = build_model(3, 4, width=48, n_blocks=2, spread=1.0, mean=mean)
    taught = polisher(model, sphere(2000), LogUniform(0.1, 0.5), polish_batch=128)
    for step in range(250):
        taught.step(4e-3 * (1 - step / 250))
    points = sphere(200)
    with torch.no_grad():
        factor = taught.average().factor(points, torch.full((200,), 0.3))
    basis = torch.linalg.svd(factor, full_matrices=False)[2][:, :2].mT
    assert projector_distance(basis, exact.tangent_basis(points)).mean() < 0.08
    found = factor.mT @ factor
    truth = exact.posterior(points.double(), 0.3).metric.dense()
    assert ((found - truth).norm(dim=(1, 2)) / truth.norm(dim=(1, 2))).mean() < 0.08


@pytest.mark.parametrize("rate", [0.3, 3.0, 1e30], ids=["spoiled", "astray", "at once"])
def test_a_polish_begins_with_the_best_weights_and_is_dropped_where_it_does_harm(monkeypatch, rate):
    starts = []
    real = _Run._polish

    def spy(self):
        real(self)
        starts.append(copy.deepcopy(self.task.model.state_dict()))
        assert all(torch.equal(value, self.best[name]) for name, value in starts[-1].items())

    monkeypatch.setattr(_Run, "_polish", spy)
    # A rate at which the factor is spoiled, or not finite any more, of the polish only.
    monkeypatch.setattr("carre.training.loop.Schedule.polish_rate", lambda self, spent: rate)
    samples, model = sphere(), small_model()
    config = TrainingConfig(max_steps=500, batch_size=32, polish_batch=32, n_references=0, evaluations=3)
    history = train(model, samples, samples[:50], LogUniform(0.1, 1.0), Objective(), config)
    assert len(starts) == 1
    assert history.stop_reason == "budget spent"
    assert history.evaluations[history.kept].step <= 350
    assert all(torch.equal(value, starts[0][name]) for name, value in model.state_dict().items())
