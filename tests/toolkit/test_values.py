"""Gradients of what is known at samples only, against functions that are known everywhere."""

import math

import numpy as np
import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import Box, Gaussian, Sphere, Union
from carre.toolkit.calculus import gradient, gradient_of_values


def plane(dim, ambient=5):
    variances = torch.zeros(ambient).double()
    variances[:dim] = 1
    return Gaussian(torch.zeros(ambient).double(), torch.diag(variances))


def relative_error(found, truth):
    return float((found - truth).norm() / truth.norm())


@pytest.mark.parametrize("sigma", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("dim", [1, 3])
def test_linear_quantities_on_flat_data_are_recovered_exactly_at_any_scale(rng, dim, sigma):
    """However few samples, however uneven: a line through points on a line is that line."""
    samples = plane(dim).sample(40, generator=rng)
    slope = torch.randn(5, generator=rng, dtype=torch.float64)
    found = gradient_of_values(
        ExactField(plane(dim)), samples, samples @ slope + 7, plane(dim).sample(6, generator=rng), sigma, dimension=dim
    )
    truth = torch.zeros(6, 5).double()
    truth[:, :dim] = slope[:dim]
    torch.testing.assert_close(found, truth, atol=1e-6, rtol=0)


def test_at_an_edge_one_sided_neighbors_make_no_bias(rng):
    square = Box([0.0, 0.0], [1.0, 1.0])
    samples = square.sample(500, generator=rng)
    corner = torch.tensor([[0.0, 0.0], [1.0, 0.5]], dtype=torch.float64)
    found = gradient_of_values(ExactField(square), samples, 3 * samples[:, 0] - samples[:, 1], corner, 0.1, dimension=2)
    torch.testing.assert_close(found, torch.tensor([[3.0, -1.0]] * 2).double())


@pytest.mark.parametrize(("sigma", "tolerance"), [(0.1, 0.04), (0.2, 0.1)])
def test_on_a_sphere_the_error_is_that_of_a_local_fit(rng, sigma, tolerance):
    """Within the reach of the weights x₁x₂ bends: an error of order σ², measured 0.03 and 0.07."""
    sphere = Sphere(2).embed(8, generator=rng)
    field, samples, points = ExactField(sphere), sphere.sample(4000, generator=rng), sphere.sample(50, generator=rng)

    def function(y):
        inner = y @ sphere.basis
        return inner[:, 0] * inner[:, 1]

    truth = gradient(field, function, points, sigma)
    found = gradient_of_values(field, samples, function(samples), points, sigma)
    assert relative_error(found, truth) < tolerance
    assert (found - torch.einsum("nij,nj->ni", sphere.tangent_projector(points), found)).abs().max() < 1e-10


def test_noise_of_the_values_is_averaged_out_and_more_so_at_a_larger_scale(rng):
    """On a surface with n p samples per area a slope has variance τ²/(8π n p σ⁴) in each of two directions."""
    samples, points = Sphere(2).sample(4000, generator=rng), Sphere(2).sample(50, generator=rng)
    values = samples[:, 0] + 0.05 * torch.randn(4000, generator=rng, dtype=torch.float64)
    field = ExactField(Sphere(2))
    fine, coarse = (
        relative_error(
            gradient_of_values(field, samples, values, points, sigma), gradient(field, lambda y: y[:, 0], points, sigma)
        )
        for sigma in (0.1, 0.2)
    )
    expected = (2 * 0.05**2 / (8 * math.pi * 4000 / (4 * math.pi) * 0.1**4)) ** 0.5 / (2 / 3) ** 0.5
    assert fine == pytest.approx(expected, rel=0.25)
    assert coarse < 0.5 * fine


def test_several_quantities_at_once_are_those_one_by_one(rng):
    samples, points = Sphere(2).sample(300, generator=rng), Sphere(2).sample(4, generator=rng)
    field = ExactField(Sphere(2))
    values = torch.stack([samples[:, 0], samples[:, 1] ** 2], 1)
    both = gradient_of_values(field, samples, values, points, 0.2)
    assert both.shape == (4, 2, 3)
    for k in range(2):
        torch.testing.assert_close(both[:, k], gradient_of_values(field, samples, values[:, k], points, 0.2))


def test_each_point_of_a_union_gets_a_slope_along_its_own_part(rng):
    circle, ball = Sphere(1).embed(6, generator=rng), Sphere(3).embed(6, generator=rng, shift=5.0)
    union = Union([circle, ball])
    samples = union.sample(4000, generator=rng)
    points = torch.cat([circle.sample(3, generator=rng), ball.sample(3, generator=rng)])
    slope = torch.randn(6, generator=rng, dtype=torch.float64)
    found = gradient_of_values(ExactField(union), samples, samples @ slope, points, 0.1)
    assert relative_error(found, union.tangent_projector(points) @ slope) < 0.03


def test_directions_that_no_neighbor_shows_have_slope_zero():
    """All samples on the first axis, two dimensions asked for; and all of them at one place."""
    line = torch.linspace(-1, 1, 50).double()[:, None] * torch.eye(3).double()[:1]
    field, origin = ExactField(plane(2, ambient=3)), torch.zeros(1, 3).double()
    assert gradient_of_values(field, line, 2 * line[:, 0], origin, 0.5).allclose(2 * torch.eye(3).double()[:1])
    assert not gradient_of_values(field, 0 * line, line[:, 0], origin, 0.5).any()


def test_arrays_integers_and_float32_are_welcome(rng):
    samples = Sphere(1).sample(200, generator=rng)
    field, labels = ExactField(Sphere(1)), (samples[:, 0] > 0).long()
    truth = gradient_of_values(field, samples, labels.double(), samples[:5], 0.2)
    array = gradient_of_values(field, samples.numpy(), labels.numpy(), samples[:5].numpy(), 0.2)
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array, truth)
    single = gradient_of_values(field, samples.float(), labels, samples[:5].float(), 0.2)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), truth, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"values": torch.full((50,), torch.nan)},
            "values must be finite; got 50 cells .* is NaN. Leave those samples out",
        ),
        ({"values": torch.zeros(49)}, r"values must have one row per sample, shape \(50, ...\); got \(49,\)"),
        ({"values": torch.zeros(50, 2, 2)}, r"got \(50, 2, 2\)"),
        ({"values": np.array(["a"] * 50)}, "values must be numeric; got text, such as 'a'"),
        ({"samples": torch.zeros(2, 3), "values": torch.zeros(2)}, "samples must be more than the dimension of the"),
        ({"samples": torch.zeros(50, 4)}, "samples must have 3 columns"),
        ({"n_neighbors": 2}, "n_neighbors must be at least 3, to fit a slope in 2 dimensions; got 2"),
        ({"n_neighbors": 51}, "n_neighbors must be at most 50"),
        ({"dimension": 4}, "dimension must lie between 1 and 3"),
    ],
    ids=["NaN", "too few", "axes", "words", "few samples", "columns", "neighbors", "many neighbors", "dimension"],
)
def test_bad_arguments_are_named(rng, changes, message):
    samples = Sphere(2).sample(50, generator=rng)
    arguments = {"samples": samples, "values": samples[:, 0], "points": samples[:3], "bandwidth": 0.2} | changes
    with pytest.raises(ValueError, match=message):
        gradient_of_values(ExactField(Sphere(2)), **arguments)
