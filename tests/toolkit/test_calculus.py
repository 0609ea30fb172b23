"""Gradients and the carré du champ, against spheres, where harmonics have closed forms."""

import math

import numpy as np
import pytest
import torch

from carre.fields import ExactField, KernelField
from carre.manifolds import Gaussian, Sphere, Union
from carre.metric import ComplementMetric, LowRankMetric
from carre.toolkit.calculus import carre_du_champ, gradient

HARMONICS = {
    1: lambda y: y[:, 0],
    2: lambda y: y[:, 0] * y[:, 1],
    3: lambda y: y[:, 0] ** 3 - 3 * y[:, 0] * y[:, 1] ** 2,
}


class Constant:
    """The same metric everywhere."""

    def __init__(self, metric):
        self.value, self.dim = metric, metric.dim

    def metric(self, points, bandwidth):
        return self.value[torch.zeros(len(points), dtype=torch.long)]

    def denoise(self, points, bandwidth):
        return points


def polynomials(y):
    """Five functions of three coordinates."""
    a, b, c = y.unbind(1)
    return torch.stack([a, a * b, torch.sin(c), a**3, b + c**2], 1)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("dim", [2, 5])
def test_gradients_of_harmonics_are_euclidean_ones_without_the_radial_part(rng, dim, degree):
    """For f homogeneous of degree l, ∇f = ∂f − l f(x) x on the unit sphere (Euler)."""
    points, function = Sphere(dim).sample(10, generator=rng), HARMONICS[degree]
    slope = torch.func.vmap(torch.func.grad(lambda x: function(x[None])[0]))(points)
    truth = slope - degree * function(points)[:, None] * points
    torch.testing.assert_close(gradient(ExactField(Sphere(dim)), function, points, 0.2), truth)


def test_gradients_turn_with_the_embedding(rng):
    sphere = Sphere(2).embed(9, generator=rng, shift=2.0)
    points = sphere.sample(10, generator=rng)
    inner = (points - sphere.shift) @ sphere.basis
    found = gradient(ExactField(sphere), lambda y: HARMONICS[2]((y - sphere.shift) @ sphere.basis), points, 0.1)
    torch.testing.assert_close(found, gradient(ExactField(Sphere(2)), HARMONICS[2], inner, 0.1) @ sphere.basis.mT)


def test_gradients_use_the_dimension_at_each_point(rng):
    circle, ball = Sphere(1).embed(6, generator=rng), Sphere(3).embed(6, generator=rng, shift=5.0)
    points = torch.cat([circle.sample(3, generator=rng), ball.sample(3, generator=rng)])
    union = Union([circle, ball])
    truth = union.tangent_projector(points).sum(-1)
    torch.testing.assert_close(gradient(ExactField(union), lambda y: y.sum(1), points, 0.2), truth)


def test_gradients_answer_in_the_callers_kind(rng):
    points = Sphere(2).sample(5, generator=rng)
    field = ExactField(Sphere(2))
    exact = gradient(field, HARMONICS[3], points, 0.1)
    array = gradient(field, HARMONICS[3], points.numpy(), 0.1)
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array, exact)
    single = gradient(field, HARMONICS[3], points.float(), 0.1)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, atol=1e-5, rtol=0)


def test_the_carre_du_champ_of_the_coordinates_is_half_the_metric(rng):
    """The paper's Γ = G/2, whether by products with rows of F (D outputs, rank 2) or with outputs (rank D)."""
    points = torch.randn(4, 5, generator=rng, dtype=torch.float64)
    for factor in (torch.randn(2, 5, generator=rng).double(), torch.randn(7, 5, generator=rng).double()):
        metric = LowRankMetric(factor[None])
        found = carre_du_champ(Constant(metric), lambda y: 1 * y, None, points, 0.3)
        torch.testing.assert_close(found, metric.dense().expand(4, 5, 5) / 2)


@pytest.mark.parametrize("ridge", [0.0, 0.4])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_both_ways_through_the_jacobian_give_the_dense_product(rng, rank, ridge):
    points = torch.randn(4, 3, generator=rng, dtype=torch.float64)
    metric = LowRankMetric(torch.randn(1, rank, 3, generator=rng, dtype=torch.float64), ridge)
    left = torch.func.vmap(torch.func.jacrev(lambda x: polynomials(x[None])[0]))(points)
    right = 2 * points[:, None, :]
    found = carre_du_champ(Constant(metric), polynomials, lambda y: (y**2).sum(1, keepdim=True), points, 0.3)
    torch.testing.assert_close(found, 0.5 * left @ metric.dense() @ right.mT)


def test_a_metric_of_another_kind_gives_the_dense_product(rng):
    """All directions but a part of one; of two maps, of a map and a function, and of a function with itself."""
    points = torch.randn(4, 3, generator=rng, dtype=torch.float64)
    field = Constant(ComplementMetric(torch.tensor([[[0.3, 0.5, 0.1]]], dtype=torch.float64), ridge=0.2))
    left = torch.func.vmap(torch.func.jacrev(lambda x: polynomials(x[None])[0]))(points)
    right = 2 * points[:, None, :]
    dense, square = 0.5 * field.value.dense(), lambda y: (y**2).sum(1)
    torch.testing.assert_close(carre_du_champ(field, polynomials, None, points, 0.3), left @ dense @ left.mT)
    mixed = (left @ dense @ right.mT)[..., 0]
    torch.testing.assert_close(carre_du_champ(field, polynomials, square, points, 0.3), mixed)
    torch.testing.assert_close(carre_du_champ(field, square, polynomials, points, 0.3), mixed)
    torch.testing.assert_close(carre_du_champ(field, square, None, points, 0.3), (right @ dense @ right.mT)[:, 0, 0])


def test_every_map_to_several_functions_adds_an_axis(rng):
    field, points = ExactField(Sphere(2)), Sphere(2).sample(4, generator=rng)
    scalar = HARMONICS[2]
    both = carre_du_champ(field, polynomials, None, points, 0.2)
    assert both.shape == (4, 5, 5)
    torch.testing.assert_close(both, both.mT)
    mixed = carre_du_champ(field, scalar, polynomials, points, 0.2)
    torch.testing.assert_close(mixed, both[:, 1])  # the second of the five is x₁x₂
    torch.testing.assert_close(carre_du_champ(field, polynomials, scalar, points, 0.2), mixed)
    torch.testing.assert_close(carre_du_champ(field, scalar, None, points, 0.2), both[:, 1, 1])
    column = carre_du_champ(field, lambda y: scalar(y)[:, None], polynomials, points, 0.2)
    torch.testing.assert_close(column, mixed[:, None])


def test_the_carre_du_champ_tends_to_half_the_product_of_gradients(rng):
    """On a sphere G has the eigenvalue g along it, and across it O(σ²)."""
    field, points = ExactField(Sphere(2)), Sphere(2).sample(10, generator=rng)
    sigma = 0.01
    inner = (gradient(field, HARMONICS[1], points, sigma) * gradient(field, HARMONICS[3], points, sigma)).sum(1)
    found = carre_du_champ(field, HARMONICS[1], HARMONICS[3], points, sigma)
    torch.testing.assert_close(found, inner / 2, atol=10 * sigma**2, rtol=0)


def test_the_product_rule_holds(rng):
    """Γ(f, gh) = gΓ(f, h) + hΓ(f, g), at any σ and any point."""
    field = ExactField(Sphere(2))
    points = torch.randn(6, 3, generator=rng, dtype=torch.float64)
    f, g, h = HARMONICS[3], lambda y: torch.sin(y[:, 2]), HARMONICS[2]
    product = carre_du_champ(field, f, lambda y: g(y) * h(y), points, 0.5)
    parts = [
        g(points) * carre_du_champ(field, f, h, points, 0.5),
        h(points) * carre_du_champ(field, f, g, points, 0.5),
    ]
    torch.testing.assert_close(product, parts[0] + parts[1])


def test_for_affine_functions_the_chain_rule_is_the_definition(rng):
    """Γ(f, h) = Cov[f(X), h(X) | Y=y]/2σ², with X | Y Gaussian for Gaussian data."""
    covariance = torch.diag(torch.tensor([2.0, 0.5, 0.0], dtype=torch.float64))
    field, sigma = ExactField(Gaussian(torch.zeros(3).double(), covariance)), 0.7
    a, b = torch.randn(2, 3, generator=rng, dtype=torch.float64)
    posterior = covariance @ torch.linalg.inv(covariance + sigma**2 * torch.eye(3)) * sigma**2
    points = torch.randn(4, 3, generator=rng, dtype=torch.float64)
    found = carre_du_champ(field, lambda y: y @ a + 1, lambda y: y @ b - 2, points, sigma)
    torch.testing.assert_close(found, (a @ posterior @ b / (2 * sigma**2)).expand(4))


def test_a_users_network_is_left_alone(rng):
    """No gradient reaches its parameters, and no graph ties the result to them."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6)).double()
    field = KernelField(Sphere(2).sample(100, generator=rng), rank=2)
    points = Sphere(2).sample(3, generator=rng)
    for function in (network, lambda y: network(y)[:, 0]):
        assert not carre_du_champ(field, function, None, points, 0.5).requires_grad
    assert not gradient(field, lambda y: network(y)[:, 0], points, 0.5).requires_grad
    assert all(p.grad is None for p in network.parameters())


def test_long_batches_are_told_of_and_give_the_same(rng, monkeypatch):
    field, points = ExactField(Sphere(2)), Sphere(2).sample(50, generator=rng)
    whole = carre_du_champ(field, polynomials, None, points, 0.2), gradient(field, HARMONICS[2], points, 0.2)
    monkeypatch.setattr("carre.backend.memory.working_memory", lambda device: 20_000)
    told = []
    bandwidth = torch.full((50,), 0.2).double()
    parts = (
        carre_du_champ(field, polynomials, None, points, bandwidth, progress=told.append),
        gradient(field, HARMONICS[2], points, bandwidth, progress=told.append),
    )
    torch.testing.assert_close(parts, whole)
    assert len(told) > 4
    assert told[-1] == 1.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda y: y.detach().numpy(), "left must return a torch tensor; got ndarray. Write it with torch operations"),
        (lambda y: y.detach(), "left must be differentiable in its points, and depend on them. Write it with torch"),
        (lambda y: y.sum(), r"to shape \(\d+,\), or \(\d+, k\) for k functions; got \(\)"),
        (lambda y: y[:, :0], r"for k functions; got \(\d+, 0\)"),
        (lambda y: torch.linalg.vector_norm(y - y, dim=1).sqrt(), "left must have finite derivatives"),
    ],
    ids=["NumPy", "detached", "one number", "nothing", "infinite"],
)
def test_maps_that_cannot_be_differentiated_are_named(function, message):
    with pytest.raises(ValueError, match=message):
        carre_du_champ(ExactField(Sphere(2)), function, None, torch.eye(3).double(), 0.1)


def test_bad_arguments_are_named():
    field, points = ExactField(Sphere(2)), torch.eye(3).double()
    with pytest.raises(ValueError, match="function must return a torch tensor"):
        gradient(field, lambda y: np.ones(3), points, 0.1)
    with pytest.raises(ValueError, match=r"function must be differentiable in its points.*use gradient_of_values"):
        gradient(field, lambda y: y.detach()[:, 0], points, 0.1)
    with pytest.raises(ValueError, match="right must return a torch tensor"):
        carre_du_champ(field, HARMONICS[1], lambda y: 3.0, points, 0.1)
    with pytest.raises(ValueError, match="dimension must lie between 1 and 3"):
        gradient(field, HARMONICS[1], points, 0.1, dimension=4)
    with pytest.raises(ValueError, match="points must be finite"):
        gradient(field, HARMONICS[1], math.nan * points, 0.1)


def test_a_wide_map_without_finite_derivatives_is_refused():
    """More outputs than the metric has rows: its Jacobian is multiplied forward."""
    field = Constant(LowRankMetric(torch.eye(3, dtype=torch.float64)[None, :1]))
    origin = torch.zeros(1, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="left must have finite derivatives at the points"):
        carre_du_champ(field, lambda y: y.sqrt(), None, origin, 0.1)


def test_what_is_no_function_is_refused(unchecked):
    field = ExactField(Sphere(1))
    with pytest.raises(ValueError, match="function must be a function of 1 argument; got 'f'"):
        gradient(field, "f", [[1.0, 0.0]], 0.1)
    with pytest.raises(ValueError, match=r"right must be a function of 1 argument or None; got 0\.5"):
        carre_du_champ(field, HARMONICS[1], 0.5, [[1.0, 0.0]], 0.1)
