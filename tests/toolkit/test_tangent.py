"""Tangent spaces, against those of known manifolds."""

import numpy as np
import pytest
import torch

from carre.fields import ExactField, KernelField
from carre.manifolds import Box, Sphere, TorusOfRevolution, Union
from carre.metric import LowRankMetric, projector_distance
from carre.toolkit.tangent import project, tangent_angles, tangent_basis, tangent_frame


def circle_and_ball(rng):
    """Dimensions 1 and 3 in one space, far apart."""
    circle, ball = Sphere(1).embed(8, generator=rng), Sphere(3).embed(8, generator=rng, shift=5.0)
    points = torch.cat([circle.sample(4, generator=rng), ball.sample(4, generator=rng)])
    return ExactField(Union([circle, ball])), points


def test_bases_of_a_sphere_are_orthonormal_and_span_the_tangent_spaces(rng):
    sphere = Sphere(2).embed(10, generator=rng)
    points = sphere.sample(20, generator=rng)
    basis = tangent_basis(ExactField(sphere), points, 2, 0.1)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(2).double().expand(20, 2, 2))
    assert projector_distance(basis, sphere.tangent_basis(points)).max() < 1e-10


def test_where_curvature_varies_bases_tilt_by_the_square_of_sigma(rng):
    """∂m has the normal part ½σ²∇H⃗, of which halving σ leaves a quarter."""
    torus = TorusOfRevolution()
    points = torus.sample(20, generator=rng)
    coarse, fine = (
        projector_distance(tangent_basis(ExactField(torus), points, 2, sigma), torus.tangent_basis(points)).max()
        for sigma in (0.1, 0.05)
    )
    assert coarse < 0.1**2
    assert coarse / fine == pytest.approx(4, rel=0.05)


def test_projecting_twice_is_projecting_once_and_leaves_tangents_alone(rng):
    manifold = Sphere(3).embed(7, generator=rng)
    field, points = ExactField(manifold), manifold.sample(10, generator=rng)
    vectors = torch.randn(10, 7, generator=rng, dtype=torch.float64)
    once = project(field, points, vectors, 0.2)
    torch.testing.assert_close(project(field, points, once, 0.2), once)
    torch.testing.assert_close(once, (manifold.tangent_projector(points) @ vectors[..., None])[..., 0])


def test_each_point_of_a_union_gets_its_own_dimension(rng):
    field, points = circle_and_ball(rng)
    frame = tangent_frame(field.metric(points, 0.2))
    assert frame.present.sum(1).tolist() == [1] * 4 + [3] * 4
    torch.testing.assert_close(frame.basis.square().sum((1, 2)), torch.tensor([1.0] * 4 + [3.0] * 4).double())
    vectors = torch.randn(8, 8, generator=rng, dtype=torch.float64)
    truth = (field.manifold.tangent_projector(points) @ vectors[..., None])[..., 0]
    torch.testing.assert_close(project(field, points, vectors, 0.2), truth)


def test_a_frame_splits_the_whole_spectrum(rng):
    """Tangents and normals are orthogonal, and G = Σ λ uuᵀ + Σ λ nnᵀ."""
    field, points = circle_and_ball(rng)
    metric = field.metric(points, 0.2)
    frame = tangent_frame(metric)
    tangent = (frame.basis * frame.values[:, None]) @ frame.basis.mT
    normal = (frame.normals * frame.normal_values[:, None]) @ frame.normals.mT
    torch.testing.assert_close(tangent + normal, metric.dense())
    assert (frame.basis.mT @ frame.normals).abs().max() < 1e-12


def test_edges_and_corners_keep_their_directions():
    square = ExactField(Box([-1.0, -1.0], [1.0, 1.0]))
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(project(square, points, torch.ones_like(points), 0.1), torch.ones_like(points))


@pytest.mark.parametrize("dimension", [2.0, [1, 2], "two"])
def test_a_dimension_is_one_integer(unchecked, dimension):
    with pytest.raises(ValueError, match="dimension must be an integer or None; got"):
        tangent_frame(LowRankMetric(torch.eye(3)[None]), dimension)


@pytest.mark.filterwarnings("ignore:1 of 1 points have no tangent direction")
def test_without_directions_above_one_half_everything_projects_to_zero():
    pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    assert not project(ExactField(Sphere(2)), pole, torch.ones_like(pole), 2.0).any()


def test_angles_between_tangent_planes_of_the_sphere_are_zero_and_the_distance(rng):
    """Transport along the great circle turns one direction by θ and leaves the others as they are."""
    angle = torch.tensor([0.3, 1.2], dtype=torch.float64)
    start = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64).expand(2, 3)
    end = torch.stack([angle.sin(), 0 * angle, angle.cos()], 1)
    angles = tangent_angles(ExactField(Sphere(2)), start, end, 0.1, dimension=2)
    torch.testing.assert_close(angles[:, 1], angle)
    assert angles[:, 0].abs().max() < 1e-7  # acos of 1 − eps


def test_arrays_come_back_as_arrays_and_nothing_is_modified(rng):
    samples = Sphere(1).sample(300, generator=rng).numpy()
    points, vectors = samples[:5].copy(), np.ones((5, 2))
    projected = project(KernelField(samples), points, vectors, 0.2)
    assert isinstance(projected, np.ndarray)
    assert projected.dtype == np.float64
    np.testing.assert_array_equal(points, samples[:5])
    np.testing.assert_array_equal(vectors, np.ones((5, 2)))


def test_float32_stays_float32_and_is_as_right_as_it_can_be(rng):
    manifold = Sphere(2).embed(10, generator=rng)
    points = manifold.sample(10, generator=rng)
    basis = tangent_basis(ExactField(manifold), points.float(), 2, 0.1)
    assert basis.dtype == torch.float32
    assert projector_distance(basis.double(), manifold.tangent_basis(points)).max() < 1e-4


def test_more_directions_than_the_rank_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"dimension must lie between 1 and 2 .*got 3. Fit with a larger rank"):
        tangent_frame(LowRankMetric(torch.eye(5)[None, :2]), 3)


def test_vectors_must_be_as_many_as_points():
    field = ExactField(Sphere(1))
    with pytest.raises(ValueError, match="vectors must be as many as the points, 2; got 1"):
        project(field, torch.eye(2).double(), torch.ones(1, 2), 0.1)
    with pytest.raises(ValueError, match="others must have 2 columns"):
        tangent_angles(field, torch.eye(2).double(), torch.ones(2, 3), 0.1, dimension=1)
