"""The score-Jacobian metric: closed forms, the randomized range finder, and traces."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from carre.fields import ExactField, ScoreField
from carre.manifolds import FiniteSet, Gaussian, Sphere, SubspaceGaussian
from carre.metric import LowRankMetric
from experiments.measures import peak_memory
from experiments.measures.accuracy import oracle_errors, tangent_errors
from tests.fields.conformance import FieldConformance


class TestScoreField(FieldConformance):
    @pytest.fixture
    def make_field(self):
        return lambda samples: ScoreField(ExactField(FiniteSet(samples)))

    def test_its_derivative_is_that_of_the_exact_metric(self, field, samples, points):
        check_derivative(field, ExactField(FiniteSet(samples)), points)


class TestRandomizedScoreField(FieldConformance):
    """Three probes in four dimensions: an approximation, whose probes do not turn with the data."""

    equivariant_construction = False

    @pytest.fixture
    def make_field(self):
        return lambda samples: ScoreField(ExactField(FiniteSet(samples)), rank=2, oversampling=1)

    def test_its_derivative_is_that_of_the_exact_metric(self, samples, points, rng):
        """Where five probes span the four dimensions of data in R⁶, also as these turn out of the span."""
        lift = torch.linalg.qr(torch.randn(6, 4, generator=rng, dtype=torch.float64))[0]
        exact = ExactField(FiniteSet(samples @ lift.mT))
        check_derivative(ScoreField(exact, rank=4, oversampling=1), exact, points @ lift.mT)
        sphere = ExactField(Sphere(2).embed(8, generator=rng))
        off = sphere.manifold.sample(3, generator=rng) + 0.1
        check_derivative(ScoreField(sphere, rank=3, oversampling=2), sphere, off)


def check_derivative(field, exact, points):
    """Backward and forward derivatives of ⟨W, G⟩ against those of the oracle."""
    weight = torch.randn(points.shape[1], points.shape[1], generator=torch.Generator().manual_seed(1)).double()

    def value(source, y):
        return (weight * source.metric(y, 0.4).dense()).sum((-2, -1))

    gradients = []
    for source in (field, exact):
        y = points.clone().requires_grad_()
        gradients.append(torch.autograd.grad(value(source, y).sum(), y)[0])
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-7, rtol=1e-7)
    direction = torch.ones_like(points)
    _, forward = torch.func.jvp(lambda y: value(field, y), (points,), (direction,))
    torch.testing.assert_close(forward, (gradients[1] * direction).sum(-1), atol=1e-7, rtol=1e-7)


def linear(matrix):
    return lambda points, bandwidth: points @ matrix.to(points).mT


def noisy_projector(rng, dim=64, d=8, noise=0.02):
    """A tangent projector with errors in every entry, as a learned Jacobian has, and its manifold (THEORY §5)."""
    basis = torch.linalg.qr(torch.randn(dim, d, generator=rng, dtype=torch.float64))[0]
    error = noise * torch.randn(dim, dim, generator=rng, dtype=torch.float64)
    return basis @ basis.mT + error, SubspaceGaussian(basis, torch.ones(d, dtype=torch.float64))


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("sigma", [0.05, 0.5])
def test_the_full_jacobian_is_the_closed_form_on_a_sphere(rng, mode, sigma):
    sphere = Sphere(2, 1.5).embed(6, generator=rng, shift=1.0)
    points = sphere.sample(5, generator=rng) + 0.1 * torch.randn(5, 6, generator=rng, dtype=torch.float64)
    field = ScoreField(ExactField(sphere), mode=mode, chunk=4)
    assert oracle_errors(field, sphere, points, sigma).max() < 1e-8


def test_the_full_jacobian_is_the_closed_form_on_a_gaussian(rng):
    root = torch.randn(4, 4, generator=rng, dtype=torch.float64)
    gaussian = Gaussian(torch.ones(4, dtype=torch.float64), root @ root.mT)
    points = torch.randn(5, 4, generator=rng, dtype=torch.float64)
    assert oracle_errors(ScoreField(ExactField(gaussian)), gaussian, points, 0.7).max() < 1e-8


@pytest.mark.slow
def test_the_randomized_metric_tends_to_the_exact_one_and_is_exact_from_its_rank_on(rng):
    """S⁸ in R⁶⁴ at σ = 0.25: G has rank 9, eight eigenvalues near 0.8 and one near 0.2."""
    sphere = Sphere(8).embed(64, generator=rng)
    points = sphere.sample(10, generator=rng)
    errors = []
    for rank in (2, 4, 6, 8, 9, 16):
        field = ScoreField(ExactField(sphere), rank=rank)
        assert field.metric(points, 0.25).rank == rank
        errors.append(float(oracle_errors(field, sphere, points, 0.25).mean()))
    assert all(later < earlier for earlier, later in pairwise(errors[:5]))
    assert errors[0] > 0.5
    assert max(errors[4:]) < 1e-8


def test_too_few_probes_miss_directions_and_two_more_than_the_dimension_find_them(rng):
    """D = 64, d = 8, no power iteration: q = 8 is too few while G has a ninth eigenvalue, q = 10 is exact."""
    sphere = Sphere(8).embed(64, generator=rng)
    points = sphere.sample(10, generator=rng)

    def error(oversampling):
        field = ScoreField(ExactField(sphere), rank=8, oversampling=oversampling, power_iterations=0)
        return float(tangent_errors(field, sphere, points, 0.25).mean())

    assert error(0) > 0.03
    assert error(2) < 1e-8


def test_a_noisy_jacobian_needs_the_power_iteration_and_the_oversampling(rng):
    """THEORY §5: full eigendecomposition .58; range finder with q = 16 1.98, with a power iteration .95; q = 32 .74."""
    jacobian, manifold = noisy_projector(rng)
    points = torch.zeros(1, 64, dtype=torch.float64)

    def error(**options):
        return float(tangent_errors(ScoreField(linear(jacobian), 64, **options), manifold, points, 0.1))

    full = error()
    plain = error(rank=8, power_iterations=0)
    powered = error(rank=8)
    wide = error(rank=8, oversampling=24)
    assert full < wide < powered < 0.6 * plain
    assert wide < 1.5 * full
    assert error(rank=64) == pytest.approx(full)


def test_an_asymmetric_jacobian_is_symmetrized_and_negative_eigenvalues_are_clipped(rng):
    matrix = torch.randn(5, 5, generator=rng, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    expected = (vectors * values.clamp_min(0)) @ vectors.mT
    point = torch.zeros(1, 5, dtype=torch.float64)
    for options in ({}, {"rank": 5}, {"mode": "reverse"}):
        metric = ScoreField(linear(matrix), 5, **options).metric(point, 0.1)
        torch.testing.assert_close(metric.dense()[0], expected)


def test_the_randomized_metric_never_holds_a_full_jacobian(rng):
    """D = 20,000: one Jacobian would take 3.2 GB, the answer takes 5 MB."""
    dim, d = 20_000, 4
    basis = torch.linalg.qr(torch.randn(dim, d, generator=rng, dtype=torch.float64))[0]
    sizes = []

    def denoiser(points, bandwidth):
        sizes.append(points.numel())
        return (points @ basis) @ basis.mT

    points = torch.randn(8, dim, generator=rng, dtype=torch.float64)
    field = ScoreField(denoiser, dim, rank=4, chunk=16)
    metric = field.metric(points, 0.1)
    assert max(sizes) <= 16 * dim
    peak = peak_memory(lambda y: field.metric(y, 0.1), points)
    assert peak is None or peak < 200e6
    vectors = torch.randn(8, dim, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(metric.apply(vectors), (vectors @ basis) @ basis.mT)
    assert metric.factor.shape == (8, 4, dim)


def test_a_full_jacobian_that_would_not_fit_is_refused_with_a_remedy():
    field = ScoreField(lambda points, bandwidth: points, 20_000)
    point = torch.zeros(1, 20_000)
    with pytest.raises(ValueError, match=r"rank must be given beyond 4096 dimensions.*Try rank=64"):
        field.metric(point, 0.1)
    with pytest.raises(ValueError, match="n_probes must be given beyond 4096 dimensions"):
        field.trace(point, 0.1)
    assert field.trace(point, 0.1, n_probes=2).value.item() == pytest.approx(20_000)


def test_hutchinsons_probes_are_unbiased_with_the_variance_of_the_off_diagonal(rng):
    """Rademacher probes have variance 2‖G − diag G‖²_F each (THEORY §5)."""
    root = torch.randn(6, 6, generator=rng, dtype=torch.float64)
    gaussian = Gaussian(torch.zeros(6, dtype=torch.float64), root @ root.mT)
    field, n_probes, n = ScoreField(ExactField(gaussian)), 20, 2000
    points = torch.zeros(n, 6, dtype=torch.float64)
    dense = gaussian.posterior(points[:1], 1.0).metric.dense()[0]
    variance = 2 * float((dense - dense.diagonal().diag()).square().sum()) / n_probes
    estimate = field.trace(points, 1.0, n_probes=n_probes, generator=rng)
    assert abs(float(estimate.value.mean()) - float(dense.trace())) < 4 * (variance / n) ** 0.5
    assert float(estimate.value.var()) == pytest.approx(variance, rel=5 * (2 / n) ** 0.5)
    assert float(estimate.error.square().mean()) == pytest.approx(variance, rel=0.1)


def test_the_exact_trace_is_that_of_the_oracle_without_error(rng):
    sphere = Sphere(2).embed(5, generator=rng)
    points = sphere.sample(7, generator=rng)
    estimate = ScoreField(ExactField(sphere), chunk=3).trace(points, 0.3)
    torch.testing.assert_close(estimate.value, sphere.posterior(points, 0.3).metric.trace())
    assert (estimate.error == 0).all()


def test_flipd_is_the_uncentered_trace_of_the_oracle(rng):
    """tr 2Γ = tr G + |m − y|²/σ² = D + d log p_σ/d log σ (THEORY §1)."""
    sphere = Sphere(2).embed(5, generator=rng)
    points = sphere.sample(7, generator=rng) + 0.1 * torch.randn(7, 5, generator=rng, dtype=torch.float64)
    estimate = ScoreField(ExactField(sphere)).flipd(points, 0.3)
    log_sigma = torch.full((7,), 0.3, dtype=torch.float64).log().requires_grad_()
    evidence = sphere.posterior(points, log_sigma.exp()).log_evidence.sum()
    torch.testing.assert_close(estimate.value, 5 + torch.autograd.grad(evidence, log_sigma)[0])


def test_all_axes_give_the_jacobian_as_it_is(rng):
    matrix = torch.randn(3, 3, generator=rng, dtype=torch.float64)
    points = torch.randn(2, 3, generator=rng, dtype=torch.float64)
    axes = torch.eye(3, dtype=torch.float64).expand(2, -1, -1)
    for mode, expected in (("forward", matrix.mT), ("reverse", matrix)):
        field = ScoreField(lambda y, s: y @ matrix.mT, 3, mode=mode, chunk=2)
        torch.testing.assert_close(field.apply_jacobian(points, 0.3, axes), expected.expand(2, -1, -1))


def test_vectors_of_another_shape_are_refused():
    field = ScoreField(lambda y, s: y, 3)
    with pytest.raises(ValueError, match=r"vectors must have shape \(2, q, 3\), q for each point; got \(2, 3\)"):
        field.apply_jacobian(torch.zeros(2, 3), 0.3, torch.zeros(2, 3))


@pytest.mark.usefixtures("unchecked")
def test_vectors_that_are_no_numbers_of_torch_are_refused():
    """It is they that are wrong then, not the denoiser."""
    field = ScoreField(lambda y, s: y, 3)
    with pytest.raises(ValueError, match=r"vectors must have shape .*; got ndarray. Give a tensor"):
        field.apply_jacobian(torch.zeros(2, 3), 0.3, np.zeros((2, 1, 3)))
    with pytest.raises(ValueError, match="vectors must be finite"):
        field.apply_jacobian(torch.zeros(2, 3), 0.3, torch.full((2, 1, 3), torch.nan))


def test_each_point_has_its_own_bandwidth_and_vectors(rng):
    """m = σy has the product σv, whatever the chunks."""
    points, vectors = torch.ones(3, 2, dtype=torch.float64), torch.randn(3, 4, 2, generator=rng, dtype=torch.float64)
    sigma = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    for chunk in (1, 5, 100):
        found = ScoreField(lambda y, s: s[:, None] * y, 2, chunk=chunk).apply_jacobian(points, sigma, vectors)
        torch.testing.assert_close(found, sigma[:, None, None] * vectors)


def test_the_score_is_the_gradient_of_the_evidence(rng):
    sphere = Sphere(2).embed(5, generator=rng)
    points = sphere.sample(7, generator=rng).requires_grad_()
    (expected,) = torch.autograd.grad(sphere.posterior(points, 0.3).log_evidence.sum(), points)
    torch.testing.assert_close(ScoreField(ExactField(sphere)).score(points.detach(), 0.3), expected)


def test_probes_depend_on_the_seed_alone(rng):
    jacobian, _ = noisy_projector(rng)
    point = torch.zeros(1, 64, dtype=torch.float64)
    first, same, other = (ScoreField(linear(jacobian), 64, rank=4, seed=seed).metric(point, 0.1) for seed in (0, 0, 1))
    assert torch.equal(first.factor, same.factor)
    assert not torch.allclose(first.dense(), other.dense())
    assert isinstance(first, LowRankMetric)


@pytest.mark.parametrize(
    ("denoiser", "dim", "options", "message"),
    [
        (3, 4, {}, "denoiser must be a function .* got int"),
        (lambda y, s: y, None, {}, "dim must be the number of coordinates"),
        (lambda y, s: y, 0, {}, "dim must be the number of coordinates"),
        (ExactField(Sphere(2)), 4, {}, "dim must be that of the field, 3; got 4"),
        (lambda y, s: y, 4, {"rank": 5}, "rank must lie between 1 and dim, 4, or be None for all; got 5"),
        (lambda y, s: y, 4, {"rank": 0}, "rank must lie between 1 and dim"),
        (lambda y, s: y, 4, {"oversampling": -1}, "oversampling must be at least 0; got -1"),
        (lambda y, s: y, 4, {"power_iterations": -1}, "power_iterations must be at least 0; got -1"),
        (lambda y, s: y, 4, {"mode": "sideways"}, "mode must be one of auto, forward, reverse; got 'sideways'"),
        (lambda y, s: y, 4, {"chunk": 0}, "chunk must be at least 1; got 0"),
    ],
)
def test_bad_settings_are_named(denoiser, dim, options, message):
    with pytest.raises(ValueError, match=message):
        ScoreField(denoiser, dim, **options)


def test_a_trace_from_one_probe_is_refused():
    with pytest.raises(ValueError, match="n_probes must be at least 2"):
        ScoreField(ExactField(Sphere(2))).trace(torch.ones(1, 3), 0.1, n_probes=1)


def test_a_count_from_one_probe_is_refused():
    with pytest.raises(ValueError, match="n_probes must be at least 2"):
        ScoreField(ExactField(Sphere(2))).count(torch.ones(1, 3), 0.1, n_probes=1)


def test_the_count_is_the_dimension_of_the_oracle_whatever_its_rank(rng):
    """S³⁰ in R⁴⁰: 30 eigenvalues of 0.96, one of 0.04. Lanczos knows three kinds after three steps: chance is left."""
    sphere = Sphere(30).embed(40, generator=rng)
    points, field = sphere.sample(60, generator=rng), ScoreField(ExactField(sphere))
    exact = field.count(points, 0.05)
    assert exact.value.tolist() == [30.0] * 60
    assert exact.error.tolist() == [0.0] * 60
    found = field.count(points, 0.05, n_probes=4, n_steps=4, generator=rng)
    expected = (2 * 30 * (1 - 30 / 40) / 4) ** 0.5
    assert found.value.std() == pytest.approx(expected, rel=0.4)
    assert found.error.mean() == pytest.approx(expected, rel=0.3)
    assert abs(found.value.mean() - 30) < 3 * expected / 60**0.5


@pytest.mark.parametrize("n_probes", [None, 2])
def test_the_threshold_of_a_count_is_that_of_singular_values_and_not_of_their_squares(n_probes):
    """All are 0.6, so that every probe sees 0.36 alone, which lies between ½² and ½."""
    field, points = ScoreField(lambda points, bandwidth: 0.6 * points, 7), torch.zeros(3, 7, dtype=torch.float64)
    for threshold, count in ((0.5, 7.0), (0.59, 7.0), (0.61, 0.0)):
        found = field.count(points, 0.1, threshold=threshold, n_probes=n_probes).value
        assert found.tolist() == pytest.approx([count] * 3)


def test_the_count_hears_the_range_of_a_learned_jacobian(rng):
    """Rank 3 by its range, with a bad right block that would spoil eigenvalues of its symmetric part."""
    turn = torch.linalg.qr(torch.randn(10, 10, generator=rng, dtype=torch.float64))[0]
    tangent, normal = turn[:, :3], turn[:, 3:]
    jacobian = tangent @ tangent.mT + 3 * tangent @ torch.randn(3, 7, generator=rng, dtype=torch.float64) @ normal.mT
    field = ScoreField(lambda points, bandwidth: points @ jacobian.mT, 10)
    points = torch.zeros(200, 10, dtype=torch.float64)
    assert field.count(points[:1], 0.1).value.tolist() == [3.0]
    assert (torch.linalg.eigvalsh((jacobian + jacobian.mT) / 2) > 0.5).sum() == 3
    assert (torch.linalg.eigvalsh((jacobian + jacobian.mT) / 2) < -0.5).sum() > 0
    found = field.count(points, 0.1, n_probes=8, generator=rng)
    assert abs(found.value.mean() - 3) < 3 * found.value.std() / 200**0.5
    assert field.count(points[:1], 0.1, threshold=1e3).value.tolist() == [0.0]


@pytest.mark.gpu
def test_points_on_a_gpu_are_answered_there_with_the_same_probes(rng):
    sphere = Sphere(8).embed(64, generator=rng)
    points = sphere.sample(10, generator=rng)
    field = ScoreField(ExactField(sphere), rank=12)
    on_gpu = field.metric(points.cuda(), 0.25)
    assert on_gpu.factor.is_cuda
    torch.testing.assert_close(on_gpu.dense().cpu(), field.metric(points, 0.25).dense(), atol=1e-8, rtol=0)
