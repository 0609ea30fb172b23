"""Noise of the samples (THEORY §11): how much there is, and a geometry that is that of the clean data."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import carre
from carre.fields import ExactField, NeuralField
from carre.fields.neural import LEAST_SCALE, observed_scale
from carre.manifolds import Box, CliffordTorus, Sphere, TorusOfRevolution
from carre.matching import perturb, predictive_loss
from carre.metric import AffineFrame, LowRankMetric
from carre.toolkit import calibration_error, check, estimate_noise, local_dimension, predictive_score
from carre.training import Objective

TAU, SIGMA = 0.3, 0.4
SCALE = math.hypot(TAU, SIGMA)


def noisy(manifold, n, noise, rng):
    clean = manifold.sample(n, generator=rng)
    return clean + noise * torch.randn(clean.shape, generator=rng, dtype=clean.dtype)


def curve(n, rng):
    """A closed curve that fills its linear hull of 16 dimensions."""
    angle = 2 * torch.pi * torch.rand(n, 1, generator=rng, dtype=torch.float64) * torch.arange(1, 9)
    return torch.cat([angle.cos(), angle.sin()], 1) / torch.arange(1, 9).repeat(2)


SHAPES = {
    "sphere": lambda rng: Sphere(2).embed(10, generator=rng),
    "torus": lambda rng: TorusOfRevolution(1.0, 0.4).embed(15, generator=rng),
    "high": lambda rng: Sphere(5).embed(16, generator=rng),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_it_is_found_where_there_is_some(shape, noise, rng):
    found = estimate_noise(noisy(SHAPES[shape](rng), 3000, noise, rng))
    assert found.value == pytest.approx(noise, rel=0.05)
    assert found.standard_error < 0.1 * noise
    assert "vary alike" in found.reason


@pytest.mark.parametrize("shape", SHAPES)
def test_none_is_claimed_of_clean_data(shape, rng):
    found = estimate_noise(SHAPES[shape](rng).sample(3000, generator=rng))
    assert found.value == 0.0
    assert found.standard_error == 0.0


def test_the_hull_need_not_be_smaller_than_the_space(rng):
    samples = curve(3000, rng)
    assert estimate_noise(samples).value == 0.0
    noise = 0.05 * torch.randn(samples.shape, generator=rng, dtype=torch.float64)
    assert estimate_noise(samples + noise).value == pytest.approx(0.05, rel=0.05)


def box(n, rng, dim, ambient):
    return Box([0.0] * dim, [1.0] * dim).embed(ambient, generator=rng).sample(n, generator=rng)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (lambda rng: torch.randn(2000, 10, generator=rng), "no direction stands out"),
        (lambda rng: box(2000, rng, 10, 10), "no direction stands out"),
        (lambda rng: box(2000, rng, 3, 3), "in 4 to 512 dimensions"),
        (lambda rng: torch.randn(2000, 8, generator=rng) * torch.logspace(0, -2, 8), "not the same in all directions"),
        (
            lambda rng: noisy(SHAPES["sphere"](rng), 2000, torch.linspace(0.02, 0.1, 10), rng),
            "not the same in all directions",
        ),
        (lambda rng: CliffordTorus([1.0, 1.0]).sample(400, generator=rng), "it may be curvature"),
        (lambda rng: torch.randn(50, 3, generator=rng), "fewer than 80 samples"),
        (lambda rng: torch.randn(100, 600, generator=rng), "in 4 to 512 dimensions"),
        (lambda rng: torch.randn(100, 1, generator=rng), "in 4 to 512 dimensions"),
        (lambda rng: torch.ones(100, 4), "too few neighbors"),
    ],
    ids=[
        "cloud",
        "cube",
        "low codimension",
        "ellipsoid",
        "unequal noise",
        "large",
        "few",
        "many columns",
        "one",
        "same",
    ],
)
def test_nothing_is_claimed_that_cannot_be_told(samples, reason, rng):
    found = estimate_noise(samples(rng))
    assert (found.value, found.n_directions) == (0.0, None)
    assert reason in found.reason


class Observed(nn.Module):
    """What a model learns that is told the noise: the mean of noisy samples at σ, and the factor of clean data at s."""

    def __init__(self, manifold, noise):
        super().__init__()
        self.manifold, self.noise = manifold, noise

    def forward(self, points, bandwidth):
        clean = self.manifold.posterior(points, (bandwidth.square() + self.noise**2).sqrt())
        share = bandwidth.square() / (bandwidth.square() + self.noise**2)
        return points + share[:, None] * (clean.mean - points), clean.metric.factor


@pytest.fixture
def field():
    return NeuralField(Observed(Sphere(2), TAU), AffineFrame(torch.zeros(3).double(), 1.0), noise=TAU)


def test_a_field_with_noise_is_that_of_the_clean_data(field, rng):
    points, exact = Sphere(2).noisy(SCALE).sample(50, generator=rng), ExactField(Sphere(2))
    for scale in (SCALE, LEAST_SCALE * TAU, 2.0):
        torch.testing.assert_close(field.metric(points, scale).dense(), exact.metric(points, scale).dense())
        torch.testing.assert_close(field.denoise(points, scale), exact.denoise(points, scale))


def test_the_model_inside_is_that_of_the_noisy_data(field, rng):
    points = Sphere(2).noisy(SCALE).sample(50, generator=rng)
    expected = ExactField(Sphere(2).noisy(TAU)).denoise(points, SIGMA)
    torch.testing.assert_close(field.observed.denoise(points, SIGMA), expected)
    assert (field.noise, field.observed.noise) == (TAU, 0.0)


def test_within_the_noise_the_mean_is_continued_and_the_metric_stays(field, rng):
    points, least = Sphere(2).sample(20, generator=rng), LEAST_SCALE * TAU
    torch.testing.assert_close(field.metric(points, 0.01).dense(), field.metric(points, least).dense())
    near, far = field.denoise(points, least), field.denoise(points, 2**0.5 * least)
    torch.testing.assert_close(field.denoise(points, least / 2**0.5), 1.5 * near - 0.5 * far)
    mixed = field.denoise(points, torch.full((20,), least).double() * torch.linspace(0.5, 2, 20))
    assert torch.isfinite(mixed).all()


def test_derivatives_in_the_scale_exist(field):
    points = torch.tensor([[0.0, 0.0, 1.0]]).double()
    scale = torch.tensor([0.5]).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: field.denoise(points, s), scale)


def test_scales_are_converted_both_ways():
    sigma, stretch = observed_scale(torch.tensor([SCALE, 0.01]), TAU)
    assert sigma[0] == pytest.approx(SIGMA, rel=1e-6)
    assert stretch[0] == pytest.approx(SCALE**2 / SIGMA**2)
    assert sigma[1] == pytest.approx(0.5**0.5 * TAU)
    same, one = observed_scale(torch.tensor([0.01]), 0.0)
    assert (float(same), float(one)) == (pytest.approx(0.01), 1.0)


def test_dimension_is_counted_without_the_noise(rng):
    """At σ = 1.5τ noise has eigenvalue 0.31, right between: the clean spectrum has none."""
    sphere = Sphere(2).embed(20, generator=rng)
    clean = NeuralField(Observed(sphere, 0.1), AffineFrame(torch.zeros(20).double(), 1.0), noise=0.1)
    points = sphere.noisy(0.1).sample(100, generator=rng)
    assert (local_dimension(clean, points, math.hypot(0.1, 0.15)) == 2).all()


def test_calibration_and_score_know_of_the_noise(field, rng):
    """Noisy held-out samples: a field that is told the noise is right about them, and one that is not is wrong."""
    held_out = Sphere(2).noisy(TAU).sample(4000, generator=rng)
    untold = ExactField(Sphere(2))
    assert calibration_error(field, held_out, SCALE, generator=rng) < 0.1
    assert calibration_error(untold, held_out, SCALE, generator=rng) > 0.2
    exact = ExactField(Sphere(2).noisy(TAU))
    right = predictive_score(exact, held_out, SIGMA, generator=torch.Generator().manual_seed(1))
    told = predictive_score(field, held_out, SCALE, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(told, right)


def test_points_are_checked_against_a_kernel_that_sees_the_noise(rng):
    sphere, tau = Sphere(2).embed(6, generator=rng), 0.1
    field = NeuralField(Observed(sphere, tau), AffineFrame(torch.zeros(6).double(), 1.0), noise=tau)
    samples = sphere.noisy(tau).sample(5000, generator=rng)
    found = check(field, samples[:200], 0.3, samples=samples)
    told = found.disagreement[np.isfinite(found.disagreement)]
    assert len(told) > 100
    assert np.mean(np.asarray(found.agrees)) > 0.97
    assert np.median(told) < 0.3
    untold = check(ExactField(sphere), samples[:200], 0.3, samples=samples)
    assert np.nanmedian(untold.disagreement) > 1.3 * np.median(told)


def test_the_loss_with_noise_is_least_for_the_clean_metric(rng):
    """Of samples N(0, diag(1, 0)) + noise: at σ the clean metric at s is diag(1/(1 + s²), 0)."""
    samples = torch.randn(200_000, 2, generator=rng) * torch.tensor([1.0, 0.0])
    samples = samples + TAU * torch.randn(samples.shape, generator=rng)
    batch = perturb(samples, torch.full((len(samples),), SIGMA), generator=rng)
    variance = torch.tensor([1 + TAU**2, TAU**2])
    mean = batch.points * variance / (variance + SIGMA**2)
    right = torch.tensor([[(1 / (1 + SCALE**2)) ** 0.5, 0.0]])

    def losses(factor):
        _, loss = Objective(noise=TAU).losses(mean, factor.expand(len(samples), 1, 2), batch)
        metric, floor = Objective(noise=TAU).above_floor(factor.expand(len(samples), 1, 2), batch.bandwidth)
        residual = (batch.mean_target - mean) / SIGMA
        return float(loss.mean()), float(
            predictive_loss(metric, residual, batch.displacement[:, 0], floor=floor).mean()
        )

    best = losses(right)
    for other in (0.9 * right, 1.1 * right, right + torch.tensor([[0.0, 0.15]])):
        assert all(np.array(losses(other)) > best)


def test_a_floor_is_a_ridge_at_every_point(rng):
    factor, floor = torch.randn(5, 2, 4, generator=rng).double(), torch.full((5,), 0.3).double()
    residual, noise = (torch.randn(5, 4, generator=rng).double() for _ in range(2))
    found = predictive_loss(LowRankMetric(factor), residual, noise, floor=floor)
    torch.testing.assert_close(found, predictive_loss(LowRankMetric(factor, 0.3), residual, noise))


@pytest.mark.parametrize("settings", [{"ridge": 0.1}, {"centered": False}])
def test_noise_needs_a_mean_and_no_ridge(settings):
    with pytest.raises(ValueError, match=r"noise must be 0 with a ridge"):
        Objective(noise=0.1, **settings)


QUICK = {"max_steps": 20, "width": 16, "n_blocks": 1, "batch_size": 32, "random_state": 0, "verbose": False}


def test_the_hull_of_a_fit_is_that_of_the_clean_data(rng, tmp_path):
    sphere = Sphere(2).embed(10, generator=rng)
    samples = noisy(sphere, 1500, 0.05, rng).numpy()
    geometry = carre.fit(samples, **QUICK)
    assert geometry.noise == pytest.approx(0.05, rel=0.05)
    assert geometry.hull_dim == 3
    assert geometry.bandwidth_range[0] == pytest.approx(LEAST_SCALE * geometry.noise)
    assert min(geometry.history.bandwidths) > geometry.bandwidth_range[0]
    assert 0.0 < geometry.score(samples[:200]) < 10.0
    carre.save(geometry, tmp_path / "model")
    again = carre.load(tmp_path / "model")
    assert again.noise_estimate == geometry.noise_estimate
    np.testing.assert_allclose(again.denoise(samples[:5]), geometry.denoise(samples[:5]), atol=1e-6)
    assert "in every direction" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    for kind, answer in (("denoiser", geometry.denoise), ("metric", lambda x, s: geometry.metric(x, s).factor)):
        program = carre.export(geometry, kind=kind).module()
        points = torch.tensor(samples[:4], dtype=torch.float32)
        torch.testing.assert_close(
            program(points, torch.full((4,), 0.3)), torch.as_tensor(answer(points, 0.3)), atol=1e-5, rtol=1e-4
        )


def test_what_is_given_is_taken(rng):
    samples = noisy(Sphere(2).embed(10, generator=rng), 400, 0.05, rng).numpy()
    assert carre.fit(samples, noise=0.0, **QUICK).noise == 0.0
    given = carre.fit(samples, noise=0.1, **QUICK)
    assert (given.noise, given.noise_estimate.reason) == (0.1, "it was given")
    # Asked for everything at once, it is at the denoised points that directions are counted, too.
    np.testing.assert_array_equal(given.at(samples).dimension, given.dimension(samples))
    within = carre.fit(samples, bandwidth=0.03, **QUICK)
    assert within.noise == 0.0
    assert "scales within it were asked for" in within.noise_estimate.reason


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": "some"}, r"noise must be 'auto', or a standard deviation of at least 0; got 'some'"),
        ({"noise": -0.1}, r"noise must be 'auto'"),
        ({"noise": math.inf}, r"noise must be 'auto'"),
        ({"noise": True}, r"noise must be 'auto'"),
        ({"noise": 0.1, "ridge": 0.1}, r"ridge must be 0 where noise is given"),
        ({"noise": 0.1, "method": "uncentered"}, r"noise must be 'auto' or 0 with method='uncentered'"),
        ({"noise": 0.1, "bandwidth": 0.1}, r"bandwidth must be at least 0.122"),
        ({"noise": 0.1, "bandwidth_range": (0.05, 0.5)}, r"bandwidth_range must start at 0.122 or above"),
    ],
)
def test_what_makes_no_sense_is_named(settings, message, rng):
    with pytest.raises(ValueError, match=message):
        carre.fit(torch.randn(100, 3, generator=rng).numpy(), **QUICK, **settings)


def test_noise_leaves_no_direction_where_there_is_none(rng):
    line = torch.randn(500, 1, generator=rng).double() * torch.tensor([[3.0, 4.0, 0.0, 0.0]])
    frame = AffineFrame.of(line + 0.1 * torch.randn(500, 4, generator=rng).double(), noise=0.1)
    assert frame.hull_dim == 1
    points = torch.randn(3, 4, generator=rng).double()
    torch.testing.assert_close(frame.project(frame.project(points)), frame.project(points))


def test_the_turns_of_a_helix_are_no_noise(rng):
    """A helicoid wound around a circle, in R³: from afar it is as thick everywhere, as noise would make it."""
    around, turn = (2 * torch.pi * torch.rand(2500, generator=rng, dtype=torch.float64) for _ in range(2))
    thick = 2 + turn.cos()
    helix = torch.stack([around.cos() * thick, around.sin() * thick, turn.sin() + 0.3 * around], 1)
    assert estimate_noise(helix, generator=rng).value == 0.0
    assert "4 to 512 dimensions, not in 3" in estimate_noise(helix).reason


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tail", ["t", "cauchy", "lognormal"])
def test_heavy_tails_are_no_noise(tail, seed):
    """A cloud of all dimensions whose tails are heavy: at its sparse points the direction to the middle stands out."""
    rng = np.random.default_rng(seed)
    cloud = {
        "t": lambda: rng.standard_t(2, size=(2000, 6)),
        "cauchy": lambda: rng.standard_cauchy(size=(2000, 8)).clip(-50, 50),
        "lognormal": lambda: np.exp(rng.normal(size=(2000, 8))),
    }
    assert estimate_noise(cloud[tail]()).value == 0.0
