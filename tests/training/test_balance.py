"""Every scale counts the same."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from carre.fitting import FitSettings, carry_out, make_plan
from carre.matching import LogUniform, metric_matching_loss, perturb
from carre.metric import LowRankMetric
from carre.networks import UNetSettings, build_model
from carre.training import BalancedScales, DataScale, ImageScale, Objective, TrainingConfig
from carre.training.checkpoint import compare, fingerprint
from carre.training.loop import Stepper

VARIANCES = torch.tensor([9.0, 1.0, 0.1])


def gaussian(n, seed=0):
    return VARIANCES.sqrt() * torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sigma", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("rank", [1, 2])
def test_the_best_loss_is_minus_the_rank_at_every_scale(sigma, rank):
    """For Gaussian data the posterior is known: G has the eigenvalues λ/(λ + σ²)."""
    samples = gaussian(200_000)
    bandwidth = torch.full((len(samples),), sigma)
    batch = perturb(samples, bandwidth, generator=torch.Generator().manual_seed(1))
    shrinkage = VARIANCES / (VARIANCES + sigma**2)
    factor = torch.diag(shrinkage.sqrt())[:rank].expand(len(samples), rank, 3)
    loss = metric_matching_loss(LowRankMetric(factor), batch.centered(shrinkage * batch.points).displacement)
    weighted = BalancedScales(VARIANCES[:rank])(bandwidth) * loss
    assert float(weighted.mean()) == pytest.approx(-rank, rel=0.02)


def test_equal_variances_give_the_weight_of_theory():
    sigma = torch.tensor([0.1, 1.0, 10.0])
    envelope = 4.0 / (4.0 + sigma.square())
    assert torch.allclose(BalancedScales(torch.full((5,), 4.0))(sigma), envelope**-2)


@pytest.mark.parametrize("n", [500, 2])
def test_variances_are_measured_from_samples_or_from_their_products(n):
    """With fewer samples than dimensions the n × n matrix of products serves: the values are the same."""
    samples = gaussian(n)
    expected = torch.linalg.eigvalsh(samples.mT @ samples / n).flip(0)[:2]
    assert torch.allclose(BalancedScales.of(samples, 2).variances, expected, rtol=1e-4)


@pytest.mark.parametrize("dim", [7, 300])
def test_directions_without_variance_do_not_count(dim):
    """Also where rounding gives them some: a hull of three dimensions, turned, in many."""
    turned = torch.linalg.qr(torch.randn(dim, 3, generator=torch.Generator().manual_seed(0)))[0]
    balance = BalancedScales.of(gaussian(400) @ turned.mT, 100)
    assert len(balance.variances) == 3
    assert balance(torch.tensor([1e-3])).item() == pytest.approx(1.0, abs=1e-3)
    assert torch.isfinite(balance(torch.tensor([1e3]))).all()


def test_without_any_variance_all_scales_weigh_one():
    balance = BalancedScales.of(torch.zeros(5, 4), 2)
    assert balance(torch.tensor([0.1, 10.0])).tolist() == [1.0, 1.0]


def test_steps_are_weighted():
    """A weight changes which way a step goes: the same start, batch and rate."""

    def stepped(balance):
        torch.manual_seed(0)
        model = build_model(3, 2, width=8, n_blocks=1, spread=1.0)
        config = TrainingConfig(batch_size=32, n_references=0)
        generator = torch.Generator().manual_seed(0)
        Stepper(model, gaussian(50), LogUniform(0.1, 10.0), Objective(balance=balance), config, generator).step(1e-3)
        return torch.cat([value.flatten() for value in model.factor.parameters()])

    plain, weighted = stepped(None), stepped(BalancedScales(VARIANCES))
    assert torch.isfinite(weighted).all()
    assert not torch.allclose(plain, weighted)


def test_only_the_metric_loss_is_weighted():
    samples, balance = gaussian(50), BalancedScales(VARIANCES)
    batch = perturb(samples, torch.linspace(0.1, 5, 50), generator=torch.Generator().manual_seed(1))
    model = build_model(3, 2, width=8, n_blocks=1, spread=1.0)
    plain, weighted = (
        objective(model, batch, generator=torch.Generator().manual_seed(0))
        for objective in (Objective(), Objective(balance=balance))
    )
    assert torch.equal(plain[0], weighted[0])
    assert torch.allclose(balance(batch.bandwidth) * plain[1], weighted[1])


def test_a_run_with_other_weights_is_another_run():
    def facts(balance):
        objective = Objective(balance=balance)
        written = fingerprint(torch.nn.Linear(2, 3), LogUniform(0.1, 1.0), objective, TrainingConfig(), "cpu")
        return json.loads(json.dumps(written))

    one, rounded, other = (facts(BalancedScales(VARIANCES * factor)) for factor in (1.0, 1 + 1e-7, 1.1))
    assert not compare(one, rounded)
    assert list(compare(one, other)) == ["weights_of_scales"]
    assert list(compare(facts(None), one)) == ["weights_of_scales"]


@pytest.mark.parametrize(
    ("shape", "method", "balanced"),
    [((1, 4, 4), "joint", True), ((1, 4, 4), "uncentered", False), (None, "joint", False)],
)
def test_fits_of_images_are_balanced(monkeypatch, shape, method, balanced):
    """Uncentered, the noise off the data rules the loss; tables keep the recipe they were measured with."""

    class SeenError(Exception):
        pass

    def see(model, samples, held_out, bandwidths, objective, config, **others):
        error = SeenError()
        error.objective, error.samples, error.config = objective, samples, config
        raise error

    monkeypatch.setattr(sys.modules[carry_out.__module__], "train", see)
    samples = torch.randn(100, 16, generator=torch.Generator().manual_seed(0))
    network = UNetSettings(channels=4, multipliers=(1,), n_blocks=1, attention=()) if shape else None
    settings = FitSettings(method=method, rank=5, network=network)
    plan = make_plan(samples, settings, seed=0, device=torch.device("cpu"), sample_shape=shape)
    with pytest.raises(SeenError) as seen:
        carry_out(plan)
    assert seen.value.config.n_references == (2048 if shape else 0)
    balance = seen.value.objective.balance
    assert (balance is not None) == balanced
    if balance is not None:
        assert torch.allclose(balance.variances, BalancedScales.of(seen.value.samples, 5).variances)


def test_reference_sets_of_images_are_bounded():
    """Copies of the set are made in every step: at 256 × 256 × 3 pixels they would be gigabytes."""
    facts = SimpleNamespace(spread=1.0, neighbor_distance=0.5, n_samples=1000)
    images, tables = ImageScale(**vars(facts), dimension=12.0), DataScale(**vars(facts), dimension=12.0)
    assert images.n_references(784) == images.n_references(3072) == 2048
    assert images.n_references(3 * 256 * 256) == 0
    assert tables.n_references(784) == 0
