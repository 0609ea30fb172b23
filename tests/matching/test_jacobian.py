"""The metric is the Jacobian of the denoiser (THEORY §1, §3.10)."""

import pytest
import torch

from carre.manifolds import FiniteSet, Gaussian, Sphere
from carre.matching import JacobianProbe, metric_matching_loss, probe_jacobian
from carre.metric import LowRankMetric


def normal(rng, *shape):
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("name", ["sphere", "gaussian", "finite"])
def test_products_of_an_exact_denoiser_are_those_of_the_exact_metric(rng, name):
    square = normal(rng, 4, 4)
    manifold = {
        "sphere": Sphere(3),
        "gaussian": Gaussian(normal(rng, 4), square @ square.mT),
        "finite": FiniteSet(normal(rng, 30, 4)),
    }[name]
    points = normal(rng, 7, 4).requires_grad_()
    posterior = manifold.posterior(points, 0.6)
    probe = probe_jacobian(posterior.mean, points, generator=rng)
    torch.testing.assert_close(probe.products, posterior.metric.apply(probe.vectors).detach(), atol=1e-9, rtol=0)
    assert not probe.products.requires_grad


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_probe_adds_the_squared_error_of_the_product_without_its_constant(rng, ridge):
    """Batches of 6 ≠ D and of 4 = D, where a wrong broadcast would hide."""
    for batch in (6, 4):
        metric = LowRankMetric(normal(rng, batch, 3, 4), ridge)
        displacement, jacobian, vectors = normal(rng, batch, 2, 4), normal(rng, batch, 4, 4), normal(rng, batch, 4)
        products = (jacobian @ vectors[..., None])[..., 0]
        error = ((metric.dense() - jacobian) @ vectors[..., None])[..., 0].square().sum(1)
        added = metric_matching_loss(
            metric, displacement, JacobianProbe(vectors, products, 3.0)
        ) - metric_matching_loss(metric, displacement)
        torch.testing.assert_close(added, 3 * (error - products.square().sum(1)))


def test_at_the_true_metric_the_probe_has_no_gradient_at_all(rng):
    """The outer products of displacements have a variance of d(d+1) there, the probe none."""
    points = normal(rng, 5, 4).requires_grad_()
    posterior = Sphere(3).posterior(points, 0.5)
    probe = probe_jacobian(posterior.mean, points, generator=rng)
    factor = posterior.metric.factor.detach().requires_grad_()
    nothing = torch.zeros(5, 1, 4, dtype=torch.float64)
    loss = metric_matching_loss(LowRankMetric(factor), nothing, probe) - LowRankMetric(factor).squared_norm()
    (gradient,) = torch.autograd.grad(loss.sum(), factor)
    assert gradient.abs().max() < 1e-12


def test_the_expected_error_is_the_frobenius_distance_to_the_jacobian(rng):
    """E‖(G − J)v‖² = ‖G − J‖²_F for v ~ N(0, I)."""
    metric, jacobian, n = LowRankMetric(normal(rng, 1, 2, 3)), normal(rng, 3, 3), 200_000
    many = LowRankMetric(metric.factor.expand(n, -1, -1))
    vectors = normal(rng, n, 3)
    products = vectors @ jacobian.mT
    error = (many.apply(vectors) - products).square().sum(1)
    expected = (metric.dense()[0] - jacobian).square().sum()
    assert abs(error.mean() - expected) < 4 * error.std() / n**0.5
