"""Derivatives of functions and fields, and what is said where there are none."""

import pytest
import torch

from carre.fields import ExactField, KernelField, ScoreField, SteinField
from carre.manifolds import Sphere, TorusOfRevolution
from carre.toolkit.derivatives import directional, euclidean_gradient, metric_derivative


class Cube(torch.autograd.Function):
    """y³, with a backward derivative only."""

    @staticmethod
    def forward(ctx, y):
        ctx.save_for_backward(y)
        return y**3

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return 3 * y**2 * gradient


def test_values_and_slopes_are_those_of_the_function(rng):
    points = torch.randn(6, 3, generator=rng, dtype=torch.float64)
    values, slope = euclidean_gradient(lambda y: y[:, 0] * y[:, 1] ** 2, points)
    x, y, _ = points.unbind(1)
    torch.testing.assert_close(values, x * y**2)
    torch.testing.assert_close(slope, torch.stack([y**2, 2 * x * y, 0 * x], 1))
    assert not points.requires_grad
    assert not slope.requires_grad


def test_one_column_counts_as_one_value(rng):
    points = torch.randn(4, 3, generator=rng)
    assert euclidean_gradient(lambda y: y.sum(1, keepdim=True), points)[0].shape == (4,)


def test_slopes_can_be_differentiated_again(rng):
    points = torch.randn(4, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    slope = euclidean_gradient(lambda y: (y**3).sum(1), points)[1]
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), points)[0], 6 * points)


def test_it_works_where_gradients_are_switched_off():
    with torch.no_grad():
        assert euclidean_gradient(lambda y: y.sum(1), torch.ones(2, 3))[1].tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda y: y.numpy().sum(1), "requires grad"),
        (lambda y: y.detach().numpy().sum(1), "function must return a torch tensor; got ndarray. Write it with torch"),
        (lambda y: y.detach().sum(1), "function must be differentiable in its points. Write it with torch"),
        (lambda y: torch.zeros(len(y)), "function must be differentiable in its points"),
        (lambda y: 0 * torch.ones(len(y), requires_grad=True), "function must depend on its points"),
        (lambda y: y, r"to one value each, shape \(5,\); got \(5, 3\)"),
        (lambda y: y.sum(), r"to one value each, shape \(5,\); got \(\)"),
        (lambda y: (y[:, 0] - y[:, 0]).sqrt(), "function must have finite derivatives at the points"),
    ],
    ids=["NumPy", "detached NumPy", "detached", "constant", "of something else", "a vector", "one number", "infinite"],
)
def test_what_cannot_be_differentiated_is_named_with_the_remedy(function, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        euclidean_gradient(function, torch.ones(5, 3))


def test_directional_derivatives_do_without_forward_mode(rng):
    points = torch.randn(4, 3, generator=rng, dtype=torch.float64)
    directions = torch.randn(4, 3, generator=rng, dtype=torch.float64)
    for cube in (lambda y: y**3, Cube.apply):
        value, slope = directional(cube, points, directions)
        torch.testing.assert_close(value, points**3)
        torch.testing.assert_close(slope, 3 * points**2 * directions)


def denoiser(points, bandwidth):
    """The exact denoiser of the unit circle, in operations that torch knows."""
    radius = points.norm(dim=1, keepdim=True)
    concentration = radius / bandwidth[:, None] ** 2
    ratio = torch.special.i1e(concentration) / torch.special.i0e(concentration)
    return ratio * points / radius


@pytest.mark.parametrize(
    "field",
    [
        ExactField(Sphere(1)),
        KernelField(Sphere(1).sample(400, generator=torch.Generator().manual_seed(1))),
        KernelField(Sphere(1).sample(400, generator=torch.Generator().manual_seed(1)), n_neighbors=100),
        ScoreField(denoiser, 2),
        SteinField(denoiser, 2),
    ],
    ids=["exact", "kernel", "nearest", "score", "complement"],
)
def test_the_derivative_of_the_metric_is_its_difference_quotient(rng, field):
    """Central differences are off by O(h²) = 1e-8, times third derivatives of order σ⁻³ = 1e2."""
    points = Sphere(1).sample(5, generator=rng)
    direction = torch.randn(5, 2, generator=rng, dtype=torch.float64)
    sigma, step = torch.full((5,), 0.2).double(), 1e-4
    vectors = torch.eye(2).double().expand(5, 2, 2)
    change = metric_derivative(field, points, sigma, direction, vectors)
    above, below = (field.metric(points + sign * step * direction, sigma).dense() for sign in (1, -1))
    torch.testing.assert_close(change, (above - below).mT / (2 * step), atol=1e-5, rtol=0)


def test_the_derivative_of_the_metric_of_a_torus_is_its_difference_quotient(rng):
    torus = TorusOfRevolution()
    field, points = ExactField(torus), torus.sample(3, generator=rng)
    direction = torch.randn(3, 3, generator=rng, dtype=torch.float64)
    sigma, step = torch.full((3,), 0.2).double(), 1e-4
    change = metric_derivative(field, points, sigma, direction, torch.eye(3).double().expand(3, 3, 3))
    above, below = (field.metric(points + sign * step * direction, sigma).dense() for sign in (1, -1))
    torch.testing.assert_close(change, (above - below) / (2 * step), atol=1e-5, rtol=0)
