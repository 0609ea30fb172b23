"""The metric is the Jacobian of the denoiser, and is taught by it (THEORY §1, §10)."""

import pytest
import torch
from torch import nn

from carre.manifolds import FiniteSet, Gaussian, Sphere
from carre.matching import (
    JacobianProbe,
    LogUniform,
    backward_probe,
    denoise_along,
    metric_matching_loss,
    probe_loss,
    vectors_in_range,
)
from carre.metric import LowRankMetric
from carre.networks import UNetSettings, build_image_model, build_model
from carre.training import Objective, TrainingConfig
from carre.training._steps import Stepper


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
    points, vectors = normal(rng, 7, 4).requires_grad_(), normal(rng, 7, 4)
    posterior = manifold.posterior(points, 0.6)
    expected = posterior.metric.apply(vectors).detach()
    drawn, backward = backward_probe(posterior.mean, points, generator=rng)
    torch.testing.assert_close(backward, posterior.metric.apply(drawn).detach(), atol=1e-9, rtol=0)
    sigma = points.new_full((7,), 0.6)
    mean, forward = denoise_along(lambda y, s: manifold.posterior(y, s).mean, points.detach(), sigma, vectors)
    torch.testing.assert_close(forward, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(mean, posterior.mean.detach())
    assert not forward.requires_grad
    assert not backward.requires_grad


@pytest.mark.parametrize("kind", ["gated", "plain", "unet"])
def test_networks_give_mean_and_product_in_one_pass_and_gradients_of_the_mean_alone(kind):
    torch.manual_seed(0)
    if kind == "unet":
        settings = UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1)
        model, dim = build_image_model((1, 8, 8), 3, spread=1.0, settings=settings).double(), 64
    else:
        model, dim = build_model(5, 4, width=16, n_blocks=2, spread=1.0, block=kind).double(), 5
    for weights in model.parameters():
        nn.init.normal_(weights, std=0.3)
    y, s, v = torch.randn(6, dim).double(), 0.1 + torch.rand(6).double(), torch.randn(6, dim).double()
    with torch.no_grad():
        jacobian = torch.func.vmap(torch.func.jacrev(lambda p, t: model.mean(p[None], t[None])[0]))(y, s)
    mean, products = denoise_along(model.mean, y, s, v)
    torch.testing.assert_close(products, (jacobian @ v[..., None])[..., 0])
    weights = list(model.mean.parameters())
    found = torch.autograd.grad(mean.square().sum(), weights)
    expected = torch.autograd.grad(model.mean(y, s).square().sum(), weights)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert not products.requires_grad


def test_a_mean_without_a_derivative_gives_no_products(rng):
    points = normal(rng, 3, 2)
    for denoiser in (lambda y, s: torch.zeros(3, 2), lambda y, s: torch.tensor(y.detach().tolist())):
        assert denoise_along(denoiser, points, points.new_ones(3), points)[1] is None
    assert backward_probe(torch.zeros(3, 2), points.requires_grad_())[1] is None


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
    posterior = Sphere(3).posterior(normal(rng, 5, 4), 0.5)
    factor = posterior.metric.factor.detach().requires_grad_()
    vectors = vectors_in_range(factor, 0.3, generator=rng)
    probe = JacobianProbe(vectors, posterior.metric.apply(vectors).detach())
    (gradient,) = torch.autograd.grad(probe_loss(LowRankMetric(factor), probe).sum(), factor)
    assert gradient.abs().max() < 1e-12


def test_vectors_have_the_covariance_of_the_metric_and_the_rest(rng):
    """E vvᵀ = G + α²I, with α² = 0.25 for a projector, and 0.25 + 1 − ‖G‖²/tr G for what is none."""
    n = 200_000
    projector = torch.linalg.qr(normal(rng, 3, 2))[0].mT
    for factor, squared in ((projector, 0.25), (0.8 * projector, 0.25 + 1 - 0.64)):
        vectors = vectors_in_range(factor.expand(n, -1, -1), 0.5, generator=rng)
        expected = factor.mT @ factor + squared * torch.eye(3, dtype=torch.float64)
        products = vectors[:, :, None] * vectors[:, None, :]
        assert ((products.mean(0) - expected).abs() < 5 * products.std(0) / n**0.5).all()


def _taught(jacobian, start, in_range, rng):
    """Minimize the loss of probes over the factor of a fixed metric, by gradient descent on many vectors."""
    factor = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([factor], lr=0.02)
    for step in range(600):
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - step / 600)
        many = factor.expand(256, -1, -1)
        vectors = vectors_in_range(many, 0.0, generator=rng) if in_range else normal(rng, 256, 4)
        loss = probe_loss(LowRankMetric(many), JacobianProbe(vectors, vectors @ jacobian.mT)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return LowRankMetric(factor.detach())


def test_in_its_range_the_metric_is_taught_by_the_good_half_of_the_jacobian(rng):
    """J with a true range that reacts to normal directions: everywhere ½(J + Jᵀ) is learned, in the range P itself."""
    projector = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    jacobian = projector.clone()
    jacobian[:2, 2:] = 0.3 * normal(rng, 2, 2)
    truth = torch.eye(4, dtype=torch.float64)[None, :, :2]
    start = torch.eye(4, dtype=torch.float64)[None, :2] + 0.1 * normal(rng, 1, 2, 4)
    errors = []
    for in_range in (True, False):
        basis = _taught(jacobian, start, in_range, rng).tangent_basis(2)
        errors.append(float((truth @ truth.mT - basis @ basis.mT).norm()))
    assert errors[0] < 0.01
    assert errors[1] > 0.1


def test_the_expected_error_is_the_frobenius_distance_to_the_jacobian(rng):
    """E‖(G − J)v‖² = ‖G − J‖²_F for v ~ N(0, I)."""
    metric, jacobian, n = LowRankMetric(normal(rng, 1, 2, 3)), normal(rng, 3, 3), 200_000
    many = LowRankMetric(metric.factor.expand(n, -1, -1))
    vectors = normal(rng, n, 3)
    products = vectors @ jacobian.mT
    error = (many.apply(vectors) - products).square().sum(1)
    expected = (metric.dense()[0] - jacobian).square().sum()
    assert abs(error.mean() - expected) < 4 * error.std() / n**0.5


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_objective_teaches_a_loop_of_ones_own_as_training_does(is_ours, rng):
    """Two losses of one batch: those of a step of the library, with the same draws."""
    torch.manual_seed(0)
    model = build_model(3, 2, width=8, n_blocks=1, spread=1.0)
    nn.init.normal_(model.mean.trunk.head.weight, std=0.3)
    own = model if is_ours else Twin(model)
    samples = torch.randn(50, 3, generator=rng)
    config = TrainingConfig(batch_size=16, n_references=0)
    stepper = Stepper(own, samples, LogUniform(0.1, 1.0), Objective(), config, torch.Generator().manual_seed(1))
    batch = stepper.batch()
    state = stepper.generator.get_state()
    mean, factor, probe = stepper.outputs(batch)
    stepper.generator.set_state(state)
    taught = sum(Objective()(own, batch, generator=stepper.generator)).mean()
    torch.testing.assert_close(taught, stepper.loss(mean, factor, batch, probe))
    assert abs(taught - stepper.loss(mean, factor, batch, None)) > 1e-3
    assert own.training


class Twin(nn.Module):
    """A network of somebody's own: nothing is known of it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, points, bandwidth):
        return self.inner(points, bandwidth)
