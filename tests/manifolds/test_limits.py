"""The small-bandwidth limits, with the order they are reached in measured."""

import math

import pytest
import torch

from carre.manifolds import CliffordTorus, Manifold, Sphere, TorusOfRevolution, Union

from .oracles import SMOOTH


@pytest.mark.parametrize(
    "manifold",
    [Sphere(2, 1.3), Sphere(4).embed(9), CliffordTorus([1.0, 0.7]), TorusOfRevolution(n_nodes=512)],
    ids=["sphere", "embedded_sphere", "clifford_torus", "torus"],
)
def test_metric_tends_to_the_tangent_projector_with_order_two(manifold: Manifold, rng):
    points = manifold.sample(6, generator=rng)
    projector = manifold.tangent_projector(points)
    sigmas = [0.08, 0.04, 0.02]
    errors = [float((manifold.posterior(points, s).metric.dense() - projector).norm()) for s in sigmas]
    slopes = [math.log2(errors[i] / errors[i + 1]) for i in range(2)]
    assert slopes == pytest.approx([2.0, 2.0], abs=0.1)


def test_trace_of_the_metric_reveals_the_scalar_curvature_of_the_torus():
    """2(d − tr G)/σ² = Scal + O(σ²) for a uniform density, with curvature of both signs."""
    torus, sigma = TorusOfRevolution(2.0, 0.7), 0.05
    v = torch.tensor([0.0, 1.0, 2.0, math.pi], dtype=torch.float64)
    points = torus._place(0.3 + v, v)
    curvature = 2 * (2 - torus.posterior(points, sigma).metric.trace()) / sigma**2
    torch.testing.assert_close(curvature, torus.scalar_curvature(points), rtol=0, atol=0.02)


@pytest.mark.parametrize("dim", [2, 8])
def test_sphere_has_the_expansion_of_its_eigenvalues(dim: int):
    """Tangent 1 − dσ²/2R², normal dσ²/2R², up to (dσ²)²; stable down to κ = 1e8."""
    for sigma in (0.02, 1e-4):
        point = torch.zeros(1, dim + 1, dtype=torch.float64)
        point[0, 0] = 1.0
        diagonal = Sphere(dim).posterior(point, sigma).metric.dense()[0].diagonal()
        small = dim * sigma**2 / 2
        assert float(diagonal[0]) == pytest.approx(small, rel=4 * small + 1e-7)
        assert float(diagonal[1]) == pytest.approx(1 - small, abs=4 * small**2 + 1e-14)


def test_off_the_sphere_the_metric_is_the_derivative_of_the_projection():
    """σ → 0 at fixed y: G → Dπ(y), tangent eigenvalues R/|y|, above 1 on the concave side."""
    for norm in (0.5, 2.0):
        points = torch.tensor([[0.0, 0.0, norm]], dtype=torch.float64)
        diagonal = Sphere(2).posterior(points, 0.01).metric.dense()[0].diagonal()
        expected = torch.tensor([1 / norm, 1 / norm, 0.0], dtype=torch.float64)
        torch.testing.assert_close(diagonal, expected, rtol=0, atol=1e-3)


def test_density_on_the_manifold_follows_from_the_evidence():
    """log p_M = log p_σ + ½(D − d) log 2πσ² + O(σ²), here 1/4π."""
    point = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    log_evidence = Sphere(2).posterior(point, 0.01).log_evidence
    density = torch.exp(log_evidence + 0.5 * math.log(2 * math.pi * 1e-4))
    assert float(density) == pytest.approx(1 / (4 * math.pi), rel=1e-3)


def test_union_knows_its_parts(rng):
    """Deep in one component G is that component's, and its trace the local dimension."""
    union, sigma = SMOOTH["union"], 0.03
    points = union.sample(40, generator=rng)
    labels, purity = union.component(points), union.purity(points, sigma)
    assert set(labels.tolist()) == {0, 1}
    dimension = union.local_dimension(points)
    torch.testing.assert_close(dimension, torch.where(labels == 0, 1, 3))
    torch.testing.assert_close(union.responsibilities(points, sigma).sum(-1), torch.ones(40).double())
    projector = union.tangent_projector(points)
    torch.testing.assert_close(projector.diagonal(dim1=1, dim2=2).sum(-1), dimension.double())
    pure = purity > 1 - 1e-9
    assert int(pure.sum()) >= 30
    metric = union.posterior(points[pure], sigma).metric.dense()
    torch.testing.assert_close(metric, projector[pure], rtol=0, atol=4 * sigma**2)


def test_union_of_one_dimension_has_a_tangent_basis(rng):
    left, right = (Sphere(2).embed(4, generator=rng, shift=3.0) for _ in range(2))
    union = Union([left, right])
    assert union.dimension == 2
    points = torch.cat([left.sample(3, generator=rng), right.sample(2, generator=rng)])
    assert union.component(points).tolist() == [0, 0, 0, 1, 1]
    expected = torch.cat([left.tangent_basis(points[:3]), right.tangent_basis(points[3:])])
    torch.testing.assert_close(union.tangent_basis(points), expected)
