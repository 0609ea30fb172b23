"""Closed forms against each other and against quadrature."""

import math

import pytest
import torch
from scipy.special import ive
from torch import Tensor

from carre.manifolds import (
    ClosedCurve,
    Curve,
    FiniteSet,
    Gaussian,
    Interval,
    Posterior,
    Sphere,
    SubspaceGaussian,
    TorusOfRevolution,
    Union,
)
from carre.manifolds.sphere import bessel_ratio, log_normalizer
from carre.metric.spectrum import symmetric_square_root

from .oracles import SMOOTH, noisy_points


def assert_same(left: Posterior, right: Posterior, tolerance: float) -> None:
    torch.testing.assert_close(left.log_evidence, right.log_evidence, rtol=0, atol=tolerance)
    torch.testing.assert_close(left.mean, right.mean, rtol=0, atol=tolerance)
    torch.testing.assert_close(left.metric.dense(), right.metric.dense(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dim", [2, 3, 4, 5, 9, 17, 33, 65, 129])
def test_bessel_ratio_and_normalizer_equal_scipys_where_those_do_not_underflow(dim: int):
    kappa = torch.logspace(-1, 6, 60, dtype=torch.float64)
    upper, lower = (torch.from_numpy(ive(order, kappa.numpy())) for order in (dim / 2, dim / 2 - 1))
    safe = (upper > 1e-280) & (lower > 1e-280)
    ratio, _ = bessel_ratio(dim, kappa.square())
    torch.testing.assert_close((kappa * ratio)[safe], (upper / lower)[safe], rtol=1e-12, atol=0)
    log = math.lgamma(dim / 2) + (dim / 2 - 1) * torch.log(2 / kappa) + lower.log() + kappa
    torch.testing.assert_close(log_normalizer(dim, kappa.square())[safe], log[safe], rtol=1e-12, atol=1e-12)


def test_bessel_ratio_in_space_is_the_langevin_function():
    """A = coth κ − 1/κ and A′ = 1/κ² − 1/sinh² κ, which cancels below κ = 1."""
    kappa = torch.linspace(1.0, 300.0, 50, dtype=torch.float64)
    ratio, tilt = bessel_ratio(3, kappa.square())
    torch.testing.assert_close(kappa * ratio, 1 / kappa.tanh() - 1 / kappa, rtol=1e-14, atol=0)
    slope = ratio * (1 + kappa.square() * tilt)
    torch.testing.assert_close(slope, kappa**-2 - kappa.sinh() ** -2, rtol=1e-11, atol=0)


@pytest.mark.parametrize("dim", [2, 9, 129])
def test_bessel_ratio_has_its_limits_at_zero_and_infinity(dim: int):
    """h → 1/p and tilt → −2/(p(p + 2)); at large κ, κ²A′ → (p − 1)/2 up to O(p/κ) and rounding."""
    zero, huge = torch.zeros(1, dtype=torch.float64), torch.full((1,), 1e7, dtype=torch.float64)
    ratio, tilt = bessel_ratio(dim, zero)
    assert float(ratio) == pytest.approx(1 / dim, rel=1e-15)
    assert float(tilt) == pytest.approx(-2 / (dim * (dim + 2)), rel=1e-13)
    assert float(log_normalizer(dim, zero)) == pytest.approx(0.0, abs=1e-14)
    ratio, tilt = bessel_ratio(dim, huge.square())
    slope = ratio * (1 + huge.square() * tilt)
    assert float(slope * huge.square()) == pytest.approx((dim - 1) / 2, rel=dim * 1e-7 + 1e-8)


@pytest.mark.parametrize("dim", [2, 5])
def test_bessel_ratio_is_smooth_across_the_switch_to_the_series(dim: int):
    switch = 15 * dim**2 / 4 + 60
    kappa = switch * torch.tensor([1 - 1e-9, 1 + 1e-9], dtype=torch.float64)
    ratio, tilt = bessel_ratio(dim, kappa.square())
    torch.testing.assert_close(ratio[0], ratio[1], rtol=1e-8, atol=0)
    torch.testing.assert_close(tilt[0], tilt[1], rtol=1e-8, atol=0)


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_bessel_functions_pass_gradient_checks_of_second_order(dim: int):
    squared = torch.tensor([0.0, 0.5, 40.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: bessel_ratio(dim, s), squared, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda s: log_normalizer(dim, s), squared)
    assert torch.autograd.gradgradcheck(lambda s: bessel_ratio(dim, s)[1], squared)


def test_symmetric_square_root_is_smooth_where_eigenvalues_coincide():
    matrices = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 1.0, 0.3]))]).double().requires_grad_()

    def root(matrices: Tensor) -> Tensor:
        return symmetric_square_root(0.5 * (matrices + matrices.mT))

    torch.testing.assert_close(root(matrices) @ root(matrices), matrices)
    assert torch.autograd.gradcheck(root, matrices, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(root, matrices)


def _circle(t: Tensor) -> Tensor:
    return 1.5 * torch.stack([t.cos(), t.sin()], dim=-1)


@pytest.mark.parametrize("sigma", [0.1, 0.7, 4.0])
def test_circle_equals_its_quadrature(sigma: float, rng):
    points = noisy_points(Sphere(1, 1.5), 6, sigma, rng)
    quadrature = ClosedCurve(_circle, n_nodes=512)
    assert_same(Sphere(1, 1.5).posterior(points, sigma), quadrature.posterior(points, sigma), 1e-11)


@pytest.mark.parametrize("sigma", [0.1, 0.7, 4.0])
def test_interval_equals_its_quadrature_inside_and_outside(sigma: float):
    points = torch.linspace(-1.0, 4.0, 9, dtype=torch.float64).unsqueeze(-1)
    quadrature = Curve(lambda t: t.unsqueeze(-1), 0.5, 2.0, n_nodes=512)
    assert_same(Interval(0.5, 2.0).posterior(points, sigma), quadrature.posterior(points, sigma), 1e-9)


def test_torus_equals_its_quadrature_over_both_angles(rng):
    u, v = (2 * math.pi * torch.arange(n, dtype=torch.float64) / n for n in (160, 60))
    radius = 2 + 0.7 * v.cos()
    x, y = radius * u.cos().unsqueeze(-1), radius * u.sin().unsqueeze(-1)
    nodes = torch.stack([x, y, (0.7 * v.sin()).expand_as(x)], dim=-1).reshape(-1, 3)
    quadrature = FiniteSet(nodes, radius.expand_as(x).flatten())
    torus = TorusOfRevolution(2.0, 0.7, n_nodes=64)
    points = noisy_points(torus, 5, 0.3, rng)
    assert_same(torus.posterior(points, 0.3), quadrature.posterior(points, 0.3), 1e-9)


def test_gaussian_equals_the_dense_formula(rng):
    """K = Σ(Σ + σ²I)⁻¹, m = μ + K(y − μ), p_σ = N(μ, Σ + σ²I)."""
    gaussian, sigma = SMOOTH["gaussian"], 0.6
    covariance = gaussian.basis @ gaussian.variances.diag() @ gaussian.basis.mT
    total = covariance + sigma**2 * torch.eye(3).double()
    points = noisy_points(gaussian, 5, sigma, rng)
    gain = covariance @ torch.linalg.inv(total)
    posterior = gaussian.posterior(points, sigma)
    evidence = torch.distributions.MultivariateNormal(gaussian.mean, total).log_prob(points)
    torch.testing.assert_close(posterior.mean, gaussian.mean + (points - gaussian.mean) @ gain.mT)
    torch.testing.assert_close(posterior.metric.dense(), gain.expand(5, 3, 3))
    torch.testing.assert_close(posterior.log_evidence, evidence)


def test_singular_covariance_is_a_subspace_gaussian(rng):
    plane = SMOOTH["subspace_gaussian"]
    assert isinstance(plane, SubspaceGaussian)
    covariance = plane.basis @ plane.variances.diag() @ plane.basis.mT
    gaussian = Gaussian(plane.mean, covariance)
    assert gaussian.dimension == plane.dimension == 2
    points = noisy_points(plane, 4, 0.3, rng)
    assert_same(gaussian.posterior(points, 0.3), plane.posterior(points, 0.3), 1e-10)


def test_noisy_gaussian_is_a_gaussian_of_larger_covariance(rng):
    gaussian = SMOOTH["gaussian"]
    covariance = gaussian.basis @ gaussian.variances.diag() @ gaussian.basis.mT
    wider = Gaussian(gaussian.mean, covariance + 0.4**2 * torch.eye(3).double())
    points = noisy_points(gaussian, 5, 0.3, rng)
    assert_same(gaussian.noisy(0.4).posterior(points, 0.3), wider.posterior(points, 0.3), 1e-12)


def test_noisy_sphere_equals_monte_carlo(rng):
    """Monte Carlo over n_eff ≈ 1e4 atoms: a tolerance of 5/√n_eff."""
    noisy, sigma = Sphere(2).noisy(0.3), 0.6
    points = noisy_points(noisy, 2, sigma, rng)
    atoms = FiniteSet(noisy.sample(100_000, generator=rng))
    tolerance = 5 / math.sqrt(float(atoms.effective_neighbors(points, sigma).min()))
    assert_same(noisy.posterior(points, sigma), atoms.posterior(points, sigma), tolerance)
    assert tolerance < 0.1


def test_union_of_finite_sets_is_the_finite_set_of_all(rng):
    first, second = (torch.randn(n, 3, generator=rng, dtype=torch.float64) for n in (4, 6))
    union = Union([FiniteSet(first), FiniteSet(second)], [1.0, 3.0])
    weights = torch.cat([torch.full((4,), 0.25 / 4), torch.full((6,), 0.75 / 6)]).double()
    together = FiniteSet(torch.cat([first, second]), weights)
    points = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    assert_same(union.posterior(points, 0.5), together.posterior(points, 0.5), 1e-7)


def test_two_atoms_stretch_the_metric_between_them():
    """Atoms ±a and y = 0: G = a²/σ² along them, so eigenvalues above 1 are right [THEORY §1]."""
    atoms = FiniteSet(torch.tensor([[3.0, 0.0], [-3.0, 0.0]], dtype=torch.float64))
    metric = atoms.posterior(torch.zeros(1, 2, dtype=torch.float64), 1.0).metric.dense()
    torch.testing.assert_close(metric[0], torch.diag(torch.tensor([9.0, 0.0]).double()), rtol=0, atol=1e-12)
    count = atoms.effective_neighbors(torch.zeros(1, 2, dtype=torch.float64), 1.0)
    torch.testing.assert_close(count, torch.tensor([2.0], dtype=torch.float64))


def test_edge_of_an_interval_has_the_half_line_eigenvalues():
    """The table of THEORY §1 (boundary), at y = zσ from the edge."""
    points = 0.01 * torch.tensor([[-1.0], [0.0], [0.5], [1.0], [2.0], [3.0]], dtype=torch.float64)
    values = Interval(0.0, 1.0).posterior(points, 0.01).metric.dense().flatten()
    expected = torch.tensor([0.199, 1 - 2 / math.pi, 0.486, 0.630, 0.887, 0.987], dtype=torch.float64)
    torch.testing.assert_close(values, expected, rtol=0, atol=6e-4)


@pytest.mark.parametrize("name", ["circle", "box", "gaussian_mixture"])
def test_evidence_integrates_to_one(name: str):
    """The trapezoid rule on a grid of step σ/2 that holds all of p_σ up to 1e-7."""
    sigma = 0.5
    axis = torch.arange(-7.0, 9.0, sigma / 2, dtype=torch.float64)
    evidence = SMOOTH[name].posterior(torch.cartesian_prod(axis, axis), sigma).log_evidence.exp()
    assert float(evidence.sum() * (sigma / 2) ** 2) == pytest.approx(1.0, abs=1e-6)
