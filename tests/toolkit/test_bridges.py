"""What other libraries are given: the contracts, and the numbers behind them."""

import numpy as np
import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import Sphere
from carre.toolkit.bridges import DiffusionCarreDuChamp, MetricTensor
from carre.toolkit.calculus import gradient_of_values

N = 600


@pytest.fixture(scope="module")
def circle():
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, N)
    samples = np.stack([np.cos(angle), np.sin(angle)], 1)
    return angle, samples, DiffusionCarreDuChamp(ExactField(Sphere(1)), samples, 0.05)


def kernel_covariance(samples, f, h, bandwidth):
    """A stand-in for the estimate of DiffusionGeometry: Cov(f, h)/2ρ with the kernel exp(−d²/4ρ)."""
    squares = np.square(samples[:, None] - samples[None]).sum(-1)
    kernel = np.exp(-squares / (4 * bandwidth))
    kernel /= kernel.sum(1, keepdims=True)
    f, h = (g.reshape(len(g), -1) for g in (f, h))
    centered = [g[None] - (kernel @ g)[:, None] for g in (f, h)]
    return np.einsum("pk,pki,pkj->pij", kernel, *centered) / (2 * bandwidth)


class MarkovTriple:
    """A stand-in for the class that takes the function: it asks for these products, and contracts them."""

    def __init__(self, function_basis, carre_du_champ, immersion_coords):
        n, n_basis = function_basis.shape
        dim = immersion_coords.shape[1]
        self.coords = carre_du_champ(immersion_coords, immersion_coords)
        self.mixed = carre_du_champ(immersion_coords, function_basis)
        self.hessian = carre_du_champ(immersion_coords, self.mixed)
        assert self.coords.shape == (n, dim, dim)
        assert self.mixed.shape == (n, dim, n_basis)
        assert self.hessian.shape == (n, dim, dim, n_basis)


def test_of_two_coordinates_it_is_the_tangent_projector(circle):
    _, samples, carre_du_champ = circle
    projector = np.eye(2) - samples[:, :, None] * samples[:, None]
    # The normal coordinate changes by t²/2 with t ~ σ: its slope is off by σ/√n_eff, n_eff = N·2σ√π/2π = 17.
    found = carre_du_champ(samples, samples)
    assert np.abs(found - projector).mean() < 0.05 / 17**0.5
    np.testing.assert_allclose(np.trace(found, axis1=1, axis2=2).mean(), 1, atol=1e-3)


def test_it_has_the_normalization_of_the_kernel_that_it_replaces(circle):
    """σ² = 2ρ: with enough samples Cov/2ρ of the coordinates has trace 1 on a curve, not ½."""
    _, samples, carre_du_champ = circle
    theirs = kernel_covariance(samples, samples, samples, bandwidth=0.2**2 / 2)
    assert np.trace(theirs, axis1=1, axis2=2).mean() == pytest.approx(1, abs=0.05)
    assert np.trace(carre_du_champ(samples, samples), axis1=1, axis2=2).mean() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_of_harmonics_it_is_the_product_of_their_derivatives(circle, order):
    """The fit averages slopes over t ~ σ: f‴σ²/2·f′ is lost, of relative size k²σ²; noise f″σ/√n_eff is added."""
    angle, _, carre_du_champ = circle
    f, h = np.cos(order * angle), np.sin(order * angle)
    expected = -(order**2) * np.sin(order * angle) * np.cos(order * angle)
    error = np.abs(carre_du_champ(f, h) - expected).mean()
    assert error < order**2 * (order**2 * 0.05**2 + 2 * order * 0.05 / 17**0.5)


def test_it_is_bilinear_symmetric_and_positive(circle):
    _, _, carre_du_champ = circle
    rng = np.random.default_rng(1)
    f, h, k = rng.standard_normal((3, N))
    np.testing.assert_allclose(carre_du_champ(2 * f + k, h), 2 * carre_du_champ(f, h) + carre_du_champ(k, h), atol=1e-9)
    np.testing.assert_allclose(carre_du_champ(f, h), carre_du_champ(h, f), atol=1e-9)
    assert (carre_du_champ(f, f) >= 0).all()
    np.testing.assert_allclose(carre_du_champ(np.ones(N), f), 0, atol=1e-9)


def test_shapes_follow_the_contract(circle):
    angle, samples, carre_du_champ = circle
    triple = MarkovTriple(np.stack([np.cos(k * angle) for k in range(4)], 1), carre_du_champ, samples)
    assert triple.coords.dtype == np.float64
    assert carre_du_champ(angle, angle).shape == (N,)
    assert carre_du_champ(angle, samples).shape == (N, 2)
    np.testing.assert_array_equal(carre_du_champ(samples, angle), carre_du_champ(angle, samples))


def test_on_a_sphere_it_agrees_with_the_gradients_of_values(rng):
    sphere = Sphere(2).embed(5, generator=rng)
    samples = sphere.sample(400, generator=rng)
    values = np.stack([samples[:, 0].numpy() ** 2, samples[:, 1].numpy()], 1)
    field = ExactField(sphere)
    gradients = gradient_of_values(field, samples, values, samples, 0.2).numpy()
    found = DiffusionCarreDuChamp(field, samples, 0.2, scale=0.5)(values, values)
    np.testing.assert_allclose(found, 0.5 * np.einsum("nid,njd->nij", gradients, gradients), atol=1e-10)


def test_wrong_lengths_get_a_sentence(circle):
    _, samples, carre_du_champ = circle
    with pytest.raises(ValueError, match=r"h must have one row per sample, shape \(600, ...\); got \(5,\)"):
        carre_du_champ(samples, np.ones(5))
    with pytest.raises(ValueError, match="scale must be positive"):
        DiffusionCarreDuChamp(ExactField(Sphere(1)), samples, 0.05, scale=0.0)


def test_a_tangent_step_costs_its_length_and_a_normal_one_much_more(rng):
    sphere, sigma, ridge = Sphere(2).embed(5, generator=rng), 0.01, 1e-2
    points = sphere.sample(10, generator=rng)
    tensor = MetricTensor(ExactField(sphere), sigma, ridge=ridge)(points)
    basis = sphere.tangent_basis(points)
    torch.testing.assert_close(
        basis.mT @ tensor @ basis, torch.eye(2).double().expand(10, -1, -1), rtol=0, atol=3 * sigma**2
    )
    across = torch.linalg.eigvalsh(tensor)[:, 2:]
    assert (across > 0.9 * (1 + 1 / ridge)).all()
    assert (across <= (1 + 1 / ridge) * (1 + 1e-9)).all()


def test_the_cometric_is_the_inverse(rng):
    sphere = Sphere(2).embed(5, generator=rng)
    metric, points = MetricTensor(ExactField(sphere), 0.1), sphere.sample(10, generator=rng)
    product = metric(points) @ metric.cometric(points)
    torch.testing.assert_close(product, torch.eye(5).double().expand(10, -1, -1))


def test_the_metric_tensor_is_differentiable_in_the_points(rng):
    sphere = Sphere(2).embed(4, generator=rng)
    metric = MetricTensor(ExactField(sphere), 0.2, ridge=0.1)
    points = sphere.sample(2, generator=rng).requires_grad_()
    assert torch.autograd.gradcheck(metric, (points,))


def test_energies_minimized_in_the_metric_tensor_stay_near_the_data():
    """What a geodesic library does with it: minimize the energy of a curve; the way round, not through."""
    metric = MetricTensor(ExactField(Sphere(1)), 0.1, ridge=0.01)
    angle = torch.linspace(0, 2.5, 17, dtype=torch.float64)
    ends = torch.stack([angle.cos(), angle.sin()], 1)[[0, -1]]
    nodes = (0.8 * torch.stack([angle.cos(), angle.sin()], 1))[1:-1].clone().requires_grad_()
    optimizer = torch.optim.LBFGS([nodes], max_iter=60, line_search_fn="strong_wolfe")

    def curve_energy():
        curve = torch.cat([ends[:1], nodes, ends[1:]])
        steps, middles = curve.diff(dim=0), (curve[1:] + curve[:-1]) / 2
        return torch.einsum("ni,nij,nj->", steps, metric(middles, return_deriv=False), steps)

    def closure():
        optimizer.zero_grad()
        energy = curve_energy()
        energy.backward()
        return energy

    optimizer.step(closure)
    # Paths sag by (3/16)λθ² + dσ²/2, and are shorter by as much [THEORY §4.7].
    length = (16 * curve_energy().detach()).sqrt()
    assert float(length) == pytest.approx(2.5, abs=2.5 * (3 / 16 * 0.01 * 2.5**2 + 0.1**2))
    assert nodes.detach().norm(dim=1).min() > 0.95


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: MetricTensor(ExactField(Sphere(1)), 0.1, ridge=0.0), "ridge must be positive"),
        (lambda: MetricTensor(ExactField(Sphere(1)), 0.1)(torch.zeros(1, 2), return_deriv=True), "jacrev"),
    ],
)
def test_what_cannot_be_done_gets_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("values", "message"),
    [(["a"] * N, "f must be numeric"), ([np.nan] * N, "f must be finite"), ([1.0], "f must have one row per")],
    ids=["words", "NaN", "too few"],
)
def test_values_must_be_numbers(circle, values, message):
    with pytest.raises(ValueError, match=message):
        circle[2](np.array(values), circle[1])
