"""Curvature from derivatives of the metric, against manifolds whose curvature is known (THEORY §4.3)."""

import math

import numpy as np
import pytest
import torch

from carre import toolkit
from carre.fields import ExactField, KernelField, ScoreField
from carre.manifolds import CliffordTorus, Gaussian, Product, Sphere, TorusOfRevolution, Union
from carre.metric import LowRankMetric
from carre.toolkit.curvature import (
    second_fundamental_form,
    sectional_curvature,
)


class Ridged:
    """A field with a ridge under its metric, as a fit with ``ridge`` has."""

    def __init__(self, field, ridge):
        self.field, self.ridge, self.dim = field, ridge, field.dim

    def metric(self, points, bandwidth):
        return LowRankMetric(self.field.metric(points, bandwidth).factor, self.ridge)

    def denoise(self, points, bandwidth):
        return self.field.denoise(points, bandwidth)


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.3])
@pytest.mark.parametrize(("dim", "radius"), [(2, 1.0), (2, 2.0), (3, 1.0), (5, 1.0)])
def test_a_sphere_has_scalar_curvature_d_times_d_minus_one_over_the_squared_radius(rng, dim, radius, sigma):
    """Exact at any σ, on any sphere, in any space: division by the gap takes care of σ."""
    sphere = Sphere(dim, radius).embed(10, generator=rng, shift=1.0)
    curvature = toolkit.curvature(ExactField(sphere), sphere.sample(5, generator=rng), sigma).scalar
    torch.testing.assert_close(curvature, torch.full((5,), dim * (dim - 1) / radius**2).double(), rtol=1e-8, atol=0)


@pytest.mark.parametrize(("sigma", "tolerance"), [(0.05, 0.005), (0.1, 0.02)])
def test_a_torus_is_curved_outwards_and_saddle_shaped_inwards(sigma, tolerance):
    """The error is O(σ²): 0.0045 at σ = 0.05 and 0.018 at 0.1, of values between −2.2 and 1.06."""
    torus = TorusOfRevolution()
    angle = torch.tensor([0.0, math.pi / 3, 2 * math.pi / 3, math.pi], dtype=torch.float64)
    radius = 2.0 + 0.7 * angle.cos()
    points = torch.stack([radius * 0.6, radius * 0.8, 0.7 * angle.sin()], 1)
    curvature, truth = toolkit.curvature(ExactField(torus), points, sigma).scalar, torus.scalar_curvature(points)
    torch.testing.assert_close(curvature, truth, atol=tolerance, rtol=0)
    assert (curvature.sign() == truth.sign()).all()


@pytest.mark.parametrize(
    ("manifold", "curvature"),
    [
        (CliffordTorus([1.0, 0.5]), 0.0),
        (Product([Sphere(2), Sphere(1, 0.7)]), 2.0),
        (Product([Sphere(2), Sphere(2, 2.0)]), 2.5),
        (Gaussian(torch.zeros(4).double(), torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0])).double()), 0.0),
    ],
    ids=["Clifford", "S2 x S1", "S2 x S2", "plane"],
)
def test_scalar_curvatures_of_products_add(rng, manifold, curvature):
    points = manifold.sample(5, generator=rng)
    found = toolkit.curvature(ExactField(manifold), points, 0.1).scalar
    torch.testing.assert_close(found, torch.full((5,), curvature).double(), atol=1e-8, rtol=0)


def test_the_mean_curvature_of_a_sphere_is_minus_d_over_the_radius_along_the_normal(rng):
    sphere = Sphere(4, 1.5)
    points = sphere.sample(5, generator=rng)
    torch.testing.assert_close(toolkit.curvature(ExactField(sphere), points, 0.2).mean, -4 / 1.5**2 * points)


def test_the_form_of_a_sphere_is_the_metric_times_the_inward_normal(rng):
    """II(u, w) = −⟨u, w⟩ x/R²: symmetric, normal to the sphere, the same in every direction."""
    sphere = Sphere(3, 2.0)
    points = sphere.sample(4, generator=rng)
    form, basis = second_fundamental_form(ExactField(sphere), points, 0.3)
    truth = -torch.eye(3).double()[None, :, :, None] * points[:, None, None, :] / 4
    torch.testing.assert_close(form, truth)
    assert basis.shape == (4, 4, 3)


def test_ricci_and_sectional_curvature_tell_the_directions_of_a_product_apart(rng):
    """On S² × S¹ the plane of the sphere has curvature 1; every plane that holds the circle's direction has none."""
    manifold = Product([Sphere(2), Sphere(1)])
    field, points = ExactField(manifold), manifold.sample(5, generator=rng)
    found = toolkit.curvature(field, points, 0.1)
    ambient = found.basis @ found.ricci @ found.basis.mT
    of_sphere = manifold.tangent_projector(points)
    of_sphere[:, 3:] = 0
    torch.testing.assert_close(ambient, of_sphere)
    a, b, around = manifold.tangent_basis(points).unbind(-1)
    ones = torch.ones(5).double()
    torch.testing.assert_close(sectional_curvature(field, points, a, a + 2 * b, 0.1), ones)
    assert sectional_curvature(field, points, a, around, 0.1).abs().max() < 1e-10
    torch.testing.assert_close(sectional_curvature(field, points, a, b + around, 0.1), ones / 2)


def test_the_scalar_curvature_of_a_surface_is_twice_its_sectional_curvature(rng):
    torus = TorusOfRevolution()
    field, points = ExactField(torus), torus.sample(5, generator=rng)
    across, around = torus.tangent_basis(points).unbind(-1)
    gauss = sectional_curvature(field, points, across, around, 0.1)
    torch.testing.assert_close(2 * gauss, toolkit.curvature(field, points, 0.1).scalar)


def test_vectors_that_span_no_plane_have_no_curvature():
    pole, east, north = torch.eye(3, dtype=torch.float64)[:, None]
    field, slanted = ExactField(Sphere(2)), 0.3 * east + 0.7 * north
    for left, right in ((east, pole), (slanted, 1.7 * slanted), (slanted, slanted + pole)):
        assert sectional_curvature(field, pole, left, right, 0.1).isnan().all()


def test_every_point_of_a_union_has_the_curvature_of_its_part(rng):
    circle, ball = Sphere(1).embed(8, generator=rng), Sphere(3).embed(8, generator=rng, shift=5.0)
    points = torch.cat([circle.sample(3, generator=rng), ball.sample(3, generator=rng)])
    field = ExactField(Union([circle, ball]))
    curvature = toolkit.curvature(field, points, 0.2).scalar
    torch.testing.assert_close(curvature, torch.tensor([0.0] * 3 + [6.0] * 3).double(), atol=1e-6, rtol=0)
    form, basis = second_fundamental_form(field, points, 0.2)
    assert form.shape == (6, 3, 3, 8)
    assert not basis[:3, :, 1:].any()
    assert not form[:3, 1:].any()
    torch.testing.assert_close(form[:3, 0, 0].norm(dim=1), torch.ones(3).double())


def test_a_ridge_changes_no_curvature(rng):
    sphere = Sphere(2).embed(5, generator=rng)
    field, points = ExactField(sphere), sphere.sample(5, generator=rng)
    torch.testing.assert_close(
        toolkit.curvature(Ridged(field, 0.3), points, 0.2, dimension=2).scalar,
        toolkit.curvature(field, points, 0.2).scalar,
    )


def test_a_kernel_field_of_many_samples_sees_the_curvature_of_a_circle(rng):
    """The mean curvature of 2000 even samples, at σ = 0.2: the kernel sum is the integral."""
    angle = torch.arange(2000, dtype=torch.float64) * (2 * math.pi / 2000)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    found = toolkit.curvature(KernelField(circle), circle[::400], 0.2).mean
    torch.testing.assert_close(found, -circle[::400], atol=1e-6, rtol=0)


def test_a_score_field_differentiates_its_denoiser_twice(rng):
    """Of the exact denoiser of the sphere S², A(κ)y/|y| with A = coth κ − 1/κ."""

    def denoiser(y, s):
        radius = y.norm(dim=1, keepdim=True)
        kappa = radius / s[:, None] ** 2
        return (1 / torch.tanh(kappa) - 1 / kappa) * y / radius

    points = Sphere(2).sample(4, generator=rng)
    for rank in (None, 3):
        found = toolkit.curvature(ScoreField(denoiser, 3, rank=rank), points, 0.3, dimension=2).scalar
        torch.testing.assert_close(found, torch.full((4,), 2.0).double(), rtol=1e-6, atol=0)


def test_float32_and_arrays_are_welcome(rng):
    sphere = Sphere(2).embed(6, generator=rng)
    points = sphere.sample(5, generator=rng)
    single = toolkit.curvature(ExactField(sphere), points.float(), 0.1).scalar
    assert single.dtype == torch.float32
    torch.testing.assert_close(single, torch.full((5,), 2.0), rtol=1e-2, atol=0)
    array = toolkit.curvature(ExactField(sphere), points.numpy(), 0.1).scalar
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array, 2.0)


def test_bad_arguments_are_named():
    field, pole = ExactField(Sphere(2)), torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match="dimension must lie between 1 and 3"):
        toolkit.curvature(field, pole, 0.1, dimension=4)
    with pytest.raises(ValueError, match="points must be finite"):
        toolkit.curvature(field, pole * torch.nan, 0.1)
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        toolkit.curvature(field, pole, -0.1)
    with pytest.raises(ValueError, match="left must be as many as the points, 1; got 3"):
        sectional_curvature(field, pole, torch.eye(3), pole, 0.1)
