"""Divergence, Hessian and Laplacian, against eigenfunctions of spheres and a flat Gaussian."""

import math

import pytest
import torch

from carre.fields import ExactField, KernelField, ScoreField
from carre.manifolds import CliffordTorus, Gaussian, Product, Sphere, TorusOfRevolution, Union
from carre.toolkit.calculus import divergence, hessian, laplacian
from tests.toolkit.test_calculus import HARMONICS


def tangential_gradient(function):
    """Return the part of ∂f along spheres around the origin, as a vector field."""

    def vectors(y):
        (slope,) = torch.autograd.grad(function(y).sum(), y, create_graph=True)
        outward = y / y.norm(dim=1, keepdim=True)
        return slope - (slope * outward).sum(1, keepdim=True) * outward

    return vectors


@pytest.mark.parametrize("sigma", [0.1, 0.2])
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("dim", [2, 5])
def test_harmonics_are_eigenfunctions_of_the_laplacian(rng, dim, degree, sigma):
    """Δf = −l(l + d − 1)f, exactly at any σ, also in a larger space."""
    sphere = Sphere(dim).embed(dim + 4, generator=rng, shift=1.0)
    points = sphere.sample(5, generator=rng)
    function = lambda y: HARMONICS[degree]((y - sphere.shift) @ sphere.basis)  # noqa: E731
    found = laplacian(ExactField(sphere), function, points, sigma)
    torch.testing.assert_close(found, -degree * (degree + dim - 1) * function(points), rtol=1e-8, atol=1e-8)


def test_on_a_sphere_of_radius_r_eigenvalues_shrink_by_its_square(rng):
    sphere = Sphere(2, 1.3)
    points = sphere.sample(5, generator=rng)
    found = laplacian(ExactField(sphere), HARMONICS[2], points, 0.1)
    torch.testing.assert_close(found, -6 / 1.3**2 * HARMONICS[2](points))


def test_the_laplacian_of_a_product_is_the_sum(rng):
    """On a flat torus e^{ikθ}e^{ilφ} has the eigenvalue −(k²/R² + l²/r²)."""
    torus = CliffordTorus([1.0, 0.5])
    points = torus.sample(5, generator=rng)
    function = lambda y: (y[:, 0] ** 2 - y[:, 1] ** 2) * y[:, 2]  # noqa: E731
    torch.testing.assert_close(laplacian(ExactField(torus), function, points, 0.1), -(4 + 4) * function(points))


def test_the_laplacian_is_the_trace_of_the_hessian_and_the_divergence_of_the_gradient(rng):
    torus = TorusOfRevolution()
    field, points = ExactField(torus), torus.sample(8, generator=rng)
    function = lambda y: torch.sin(y[:, 0]) * y[:, 2] + y[:, 1] ** 2  # noqa: E731

    def slope(y):
        a, b, c = y.unbind(1)
        return torch.stack([a.cos() * c, 2 * b, a.sin()], 1)

    found = laplacian(field, function, points, 0.1)
    torch.testing.assert_close(hessian(field, function, points, 0.1)[0].diagonal(dim1=1, dim2=2).sum(1), found)
    torch.testing.assert_close(divergence(field, slope, points, 0.1), found)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_divergence_of_the_intrinsic_gradient_is_the_laplacian(rng, degree):
    """A tangent field needs no help of curvature; the Euclidean gradient, with its normal part, gives the same."""
    field, points = ExactField(Sphere(2)), Sphere(2).sample(5, generator=rng)
    found = divergence(field, tangential_gradient(HARMONICS[degree]), points, 0.2)
    torch.testing.assert_close(found, -degree * (degree + 1) * HARMONICS[degree](points), rtol=1e-8, atol=1e-8)


def test_a_field_without_boundary_has_no_divergence_on_the_whole():
    """∫ div V = 0 over a closed curve, exactly by the trapezoid rule for trigonometric polynomials."""
    angle = torch.arange(32, dtype=torch.float64) * (2 * math.pi / 32)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    vectors = lambda y: torch.stack([y[:, 0] * y[:, 1], 2 + y[:, 0] ** 3], 1)  # noqa: E731
    found = divergence(ExactField(Sphere(1)), vectors, circle, 0.1)
    assert found.abs().max() > 1
    assert found.mean().abs() < 1e-10


def test_rotations_have_no_divergence_and_normal_fields_have_no_tangential_part(rng):
    field, points = ExactField(Sphere(2)), Sphere(2).sample(5, generator=rng)
    turn = torch.tensor([[0.0, 1.0, 2.0], [-1.0, 0.0, 3.0], [-2.0, -3.0, 0.0]], dtype=torch.float64)
    assert divergence(field, lambda y: y @ turn, points, 0.2).abs().max() < 1e-10
    assert divergence(field, lambda y: y * y[:, :1], points, 0.2).abs().max() < 1e-10


@pytest.mark.parametrize("dim", [1, 3])
def test_the_hessian_of_a_linear_function_on_the_sphere_is_minus_itself(rng, dim):
    """Hess f = −f·I/R² for the restriction of a linear function."""
    sphere = Sphere(dim, 2.0).embed(6, generator=rng)
    points = sphere.sample(5, generator=rng)
    direction = torch.randn(6, generator=rng, dtype=torch.float64)
    matrix, basis = hessian(ExactField(sphere), lambda y: y @ direction, points, 0.2)
    truth = -(points @ direction)[:, None, None] * torch.eye(dim).double() / 4
    torch.testing.assert_close(matrix, truth)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(dim).double().expand(5, dim, dim))


def test_the_hessian_is_the_second_derivative_along_geodesics(rng):
    """Along the great circle γ(t) = x cos t + u sin t; second differences are off by O(h²) = 1e-6."""
    field, points = ExactField(Sphere(2)), Sphere(2).sample(5, generator=rng)
    function = lambda y: torch.exp(y[:, 0]) * y[:, 1]  # noqa: E731
    matrix, basis = hessian(field, function, points, 0.1)
    step = 1e-3
    for i in range(2):
        ahead, behind = (points * math.cos(step) + sign * math.sin(step) * basis[..., i] for sign in (1, -1))
        second = (function(ahead) + function(behind) - 2 * function(points)) / step**2
        torch.testing.assert_close(matrix[:, i, i], second, atol=1e-5, rtol=0)


def test_every_point_of_a_union_has_its_own_hessian(rng):
    circle, ball = Sphere(1).embed(6, generator=rng), Sphere(3).embed(6, generator=rng, shift=5.0)
    union = Union([circle, ball])
    points = torch.cat([circle.sample(2, generator=rng), ball.sample(2, generator=rng)])
    matrix, basis = hessian(ExactField(union), lambda y: (y**2).sum(1), points, 0.2)
    assert matrix.shape == (4, 3, 3)
    assert basis.shape == (4, 6, 3)
    assert not matrix[:2, 1:].any()
    # |y − c|² is constant on a sphere around c: only 2⟨c, y⟩ is left, of Hessian −2⟨c, y − c⟩ I.
    centers = torch.stack([circle.shift] * 2 + [ball.shift] * 2)
    truth = -2 * ((points - centers) * centers).sum(1)
    torch.testing.assert_close(matrix[:, 0, 0], truth)
    torch.testing.assert_close(matrix[2, 1, 1], truth[2])


def test_the_generator_adds_twice_the_slope_of_the_log_density():
    """For N(0, v) on a line, f'' + 2⟨−x/(v + σ²), f'⟩: p is blurred by σ."""
    line = Gaussian(torch.zeros(2).double(), torch.diag(torch.tensor([3.0, 0.0])).double())
    points = torch.tensor([[1.5, 0.0], [-2.0, 0.0]], dtype=torch.float64)
    found = laplacian(ExactField(line), lambda y: y[:, 0] ** 2, points, 0.5, weighted=True)
    torch.testing.assert_close(found, 2 - 4 * points[:, 0] ** 2 / 3.25)


def test_the_generator_is_what_blurring_and_denoising_does_to_a_function():
    """2(E[f(X) | Y=x] − f(x))/σ² → Δf + 2⟨∇log p, ∇f⟩, on a circle of uneven samples; the error is O(σ²)."""
    angle = torch.arange(4000, dtype=torch.float64) * (2 * math.pi / 4000)
    angle = angle + 0.3 * angle.sin()
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    points, function = circle[::500], lambda y: y[:, 0] * y[:, 1] + y[:, 1]
    errors = []
    for sigma in (0.1, 0.05):
        weights = torch.softmax(-torch.cdist(points, circle).square() / (2 * sigma**2), 1)
        walk = 2 * (weights @ function(circle) - function(points)) / sigma**2
        generator = laplacian(KernelField(circle), function, points, sigma, weighted=True)
        errors.append((walk - generator).abs().max())
    assert errors[0] < 0.2
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.2)


def test_a_linear_function_on_flat_data_has_nothing_of_second_order(rng):
    """Its gradient is constant, and autograd has nothing to differentiate."""
    plane = Gaussian(torch.zeros(3).double(), torch.diag(torch.tensor([1.0, 1.0, 0.0])).double())
    points = plane.sample(4, generator=rng)
    assert laplacian(ExactField(plane), lambda y: y[:, 0], points, 0.1).abs().max() < 1e-10
    assert hessian(ExactField(plane), lambda y: y.sum(1), points, 0.1)[0].abs().max() < 1e-10


def test_other_fields_and_float32_go_through(rng):
    """A kernel field's gap is exact on even samples; float32 loses half its digits in two derivatives."""
    angle = torch.arange(2000, dtype=torch.float64) * (2 * math.pi / 2000)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    points = circle[::250]
    truth = -4 * HARMONICS[2](points)

    def denoiser(y, s):
        radius = y.norm(dim=1, keepdim=True)
        concentration = radius / s[:, None] ** 2
        return torch.special.i1e(concentration) / torch.special.i0e(concentration) * y / radius

    for field in (KernelField(circle), ScoreField(denoiser, 2)):
        torch.testing.assert_close(laplacian(field, HARMONICS[2], points, 0.2), truth, atol=1e-6, rtol=0)
        single = laplacian(field, HARMONICS[2], points.float(), 0.2)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), truth, atol=1e-2, rtol=0)


def test_results_are_not_tied_to_the_parameters_of_a_function(rng):
    field = ExactField(Product([Sphere(1), Sphere(1)]))
    points = field.manifold.sample(3, generator=rng)
    parameter = torch.ones((), dtype=torch.float64, requires_grad=True)
    function = lambda y: parameter * y[:, 0] * y[:, 2]  # noqa: E731
    assert not laplacian(field, function, points, 0.1).requires_grad
    assert not hessian(field, function, points, 0.1)[0].requires_grad
    assert not divergence(field, lambda y: parameter * y, points, 0.1).requires_grad


def test_bad_arguments_are_named():
    field, points = ExactField(Sphere(2)), torch.eye(3).double()
    with pytest.raises(ValueError, match=r"vector_field must return one vector per point, shape \(3, 3\); got \(3,\)"):
        divergence(field, lambda y: y[:, 0], points, 0.1)
    with pytest.raises(ValueError, match="vector_field must be differentiable in its points"):
        divergence(field, lambda y: y.detach(), points, 0.1)
    with pytest.raises(ValueError, match="function must return a torch tensor; got float"):
        laplacian(field, lambda y: 1.0, points, 0.1)
    with pytest.raises(ValueError, match="function must map points"):
        hessian(field, lambda y: y, points, 0.1)
    with pytest.raises(ValueError, match="dimension must lie between 1 and 3"):
        hessian(field, HARMONICS[1], points, 0.1, dimension=7)
