"""Samples lie on their manifold, tangent bases are tangent to it, and uniform means uniform."""

import math

import pytest
import torch

from carre.manifolds import Curve, Manifold, Noisy, SpecialOrthogonal3, Sphere, SwissRoll, TorusOfRevolution, Union

from .oracles import TANGENTS

every_manifold = pytest.mark.parametrize("manifold", TANGENTS.values(), ids=TANGENTS.keys())


@every_manifold
def test_samples_lie_on_the_manifold(manifold: Manifold, rng):
    points = manifold.sample(50, generator=rng)
    assert points.shape == (50, manifold.ambient_dim)
    assert points.dtype == torch.float64
    assert float(manifold.distance(points).max()) < 1e-10
    assert manifold.sample(3, generator=rng, dtype=torch.float32).dtype == torch.float32


@every_manifold
def test_samples_are_reproducible(manifold: Manifold):
    first, second = (manifold.sample(5, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)


@every_manifold
def test_tangent_projector_is_a_projector_of_the_local_dimension(manifold: Manifold, rng):
    points = manifold.sample(20, generator=rng)
    projector = manifold.tangent_projector(points)
    torch.testing.assert_close(projector @ projector, projector)
    torch.testing.assert_close(projector, projector.mT)
    trace = projector.diagonal(dim1=1, dim2=2).sum(-1)
    torch.testing.assert_close(trace, manifold.local_dimension(points).double())


@every_manifold
def test_tangent_basis_is_orthonormal_and_spans_the_projector(manifold: Manifold, rng):
    if isinstance(manifold, Union):
        pytest.skip("its parts may differ in dimension")
    points = manifold.sample(20, generator=rng)
    basis = manifold.tangent_basis(points)
    identity = torch.eye(manifold.dimension, dtype=torch.float64).expand(20, -1, -1)
    torch.testing.assert_close(basis.mT @ basis, identity)
    torch.testing.assert_close(basis @ basis.mT, manifold.tangent_projector(points))


@every_manifold
def test_tangent_steps_leave_the_manifold_at_second_order(manifold: Manifold, rng):
    """A step of length h along a tangent ends at a distance of κh²/2, κ ≤ 10 here; a wrong one at O(h)."""
    step = 1e-5
    points = manifold.sample(20, generator=rng)
    directions = torch.randn(20, manifold.ambient_dim, 1, generator=rng, dtype=torch.float64)
    tangents = (manifold.tangent_projector(points) @ directions).squeeze(-1)
    tangents = tangents / tangents.norm(dim=-1, keepdim=True)
    assert float(manifold.distance(points + step * tangents).max()) < 5 * step**2 + 1e-14


def test_torus_is_sampled_uniformly_in_area(rng):
    """E ρ = R + r²/2R for the distance ρ to the axis, whose deviation is below r; four standard errors."""
    points = TorusOfRevolution(2.0, 0.7).sample(20_000, generator=rng)
    mean = float(points[:, :2].norm(dim=-1).mean())
    assert mean == pytest.approx(2 + 0.7**2 / 4, abs=4 * 0.7 / math.sqrt(20_000))


def test_swiss_roll_is_sampled_uniformly_in_area(rng):
    """The arc length ½(t√(1+t²) + asinh t) is uniform: its share has mean ½ and second moment ⅓."""
    points = SwissRoll().sample(20_000, generator=rng)
    t = torch.cat([points[:, [0, 2]].norm(dim=-1), torch.tensor([1.5, 4.5]).double() * math.pi])
    arc = t * (1 + t.square()).sqrt() + t.asinh()
    share = (arc[:-2] - arc[-2]) / (arc[-1] - arc[-2])
    assert float(share.mean()) == pytest.approx(1 / 2, abs=4 * math.sqrt(1 / 12 / 20_000))
    assert float(share.square().mean()) == pytest.approx(1 / 3, abs=4 * 0.3 / math.sqrt(20_000))
    assert float((points[:, 1] / 21).mean()) == pytest.approx(1 / 2, abs=4 * math.sqrt(1 / 12 / 20_000))


def test_rotations_are_uniform_and_proper(rng):
    """The trace of a uniform rotation has mean 0 and variance 1."""
    rotations = SpecialOrthogonal3().sample(20_000, generator=rng).reshape(-1, 3, 3)
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones(20_000).double())
    trace = rotations.diagonal(dim1=1, dim2=2).sum(-1)
    assert float(trace.mean()) == pytest.approx(0.0, abs=4 / math.sqrt(20_000))
    assert float(trace.square().mean()) == pytest.approx(1.0, abs=4 * 1.5 / math.sqrt(20_000))


def test_distance_to_the_rotations_sees_reflections():
    reflection = torch.diag(torch.tensor([1.0, 1.0, -1.0])).double().reshape(1, 9)
    assert float(SpecialOrthogonal3().distance(reflection)) == pytest.approx(2.0)


def test_noise_has_its_level_and_leaves_the_geometry(rng):
    """The radial displacement of noise τ on a sphere has variance τ² up to O(τ⁴)."""
    noisy = Sphere(2).noisy(0.05)
    assert isinstance(noisy, Noisy)
    distances = noisy.distance(noisy.sample(20_000, generator=rng))
    assert float(distances.square().mean().sqrt()) == pytest.approx(0.05, rel=0.03)
    points = Sphere(2).sample(3, generator=rng)
    torch.testing.assert_close(noisy.tangent_projector(points), Sphere(2).tangent_projector(points))


def test_the_distance_from_a_curve_is_right_far_out_on_the_outer_side_of_its_bend():
    """Whole Gauss–Newton steps diverge there: the parabola has radius of curvature ½ at its vertex."""
    parabola = Curve(lambda t: torch.stack([t, t**2], dim=-1), -1.0, 1.0, n_nodes=256)
    points = torch.tensor([[0.0, -1.0], [0.0, -5.0], [0.3, -3.0]], dtype=torch.float64)
    fine = torch.linspace(-1, 1, 400_001, dtype=torch.float64)
    direct = torch.cdist(points, torch.stack([fine, fine**2], dim=-1)).amin(1)
    torch.testing.assert_close(parabola.distance(points), direct, rtol=0, atol=1e-7)
