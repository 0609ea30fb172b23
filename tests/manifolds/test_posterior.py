"""Laws that every exact posterior obeys, whatever the manifold [THEORY §1]."""

import pytest
import torch

from carre.manifolds import Manifold, Sphere, TorusOfRevolution

from .oracles import POSTERIORS, SMOOTH, jacobian, noisy_points

every_posterior = pytest.mark.parametrize("manifold", POSTERIORS.values(), ids=POSTERIORS.keys())
every_bandwidth = pytest.mark.parametrize("sigma", [0.07, 0.4, 3.0])


@every_bandwidth
@every_posterior
def test_metric_is_the_jacobian_of_the_posterior_mean(manifold: Manifold, sigma: float, rng):
    points = noisy_points(manifold, 3, sigma, rng).requires_grad_()
    posterior = manifold.posterior(points, sigma)
    metric = posterior.metric.dense().detach()
    torch.testing.assert_close(jacobian(posterior.mean, points), metric, rtol=1e-6, atol=1e-6)


@every_bandwidth
@every_posterior
def test_score_is_tweedies(manifold: Manifold, sigma: float, rng):
    """∇log p_σ = (m − y)/σ²; with lengths measured in σ the error is 1e-6."""
    points = noisy_points(manifold, 3, sigma, rng).requires_grad_()
    posterior = manifold.posterior(points, sigma)
    score = torch.autograd.grad(posterior.log_evidence.sum(), points)[0]
    expected = (posterior.mean - points).detach() / sigma
    torch.testing.assert_close(sigma * score, expected, rtol=1e-6, atol=1e-6)


@every_posterior
def test_factor_is_differentiable_everywhere(manifold: Manifold, rng):
    """The derivative of FᵀF agrees with central differences, O(h²) + rounding/h, also at the origin."""
    sigma, step = 0.5, 1e-4
    points = torch.cat([torch.zeros(1, manifold.ambient_dim), noisy_points(manifold, 2, sigma, rng)])
    points.requires_grad_()
    exact = jacobian(manifold.posterior(points, sigma).metric.dense(), points)
    for axis in range(2 if manifold.ambient_dim > 1 else 1):
        shift = torch.zeros(manifold.ambient_dim, dtype=torch.float64)
        shift[axis] = step
        ahead, behind = (manifold.posterior(points + sign * shift, sigma).metric.dense() for sign in (1, -1))
        torch.testing.assert_close(exact[..., axis], (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("manifold", [Sphere(2), TorusOfRevolution(n_nodes=64)], ids=["sphere", "torus"])
def test_posterior_composes_with_function_transforms(manifold: Manifold, rng):
    points = manifold.sample(3, generator=rng)

    def factor(point: torch.Tensor) -> torch.Tensor:
        return manifold.posterior(point.unsqueeze(0), 0.5).metric.factor[0]

    reverse = torch.func.vmap(torch.func.jacrev(factor))(points)
    forward = torch.func.vmap(torch.func.jacfwd(factor))(points)
    torch.testing.assert_close(reverse, forward)
    assert torch.func.vmap(torch.func.hessian(factor))(points).isfinite().all()


@every_posterior
def test_bandwidth_per_point_equals_a_loop_over_numbers(manifold: Manifold, rng):
    """With as many points as dimensions too, where a wrong broadcast would go unnoticed."""
    for n in (manifold.ambient_dim, manifold.ambient_dim + 2):
        points = manifold.sample(n, generator=rng)
        sigmas = torch.linspace(0.2, 2.0, n, dtype=torch.float64)
        batched = manifold.posterior(points, sigmas)
        for i in range(n):
            single = manifold.posterior(points[i : i + 1], float(sigmas[i]))
            torch.testing.assert_close(batched.log_evidence[i], single.log_evidence[0])
            torch.testing.assert_close(batched.mean[i], single.mean[0])
            torch.testing.assert_close(batched.metric.dense()[i], single.metric.dense()[0])


@every_posterior
def test_posterior_keeps_the_precision_of_the_points(manifold: Manifold, rng):
    points = manifold.sample(4, generator=rng)
    single, double = manifold.posterior(points.float(), 0.5), manifold.posterior(points, 0.5)
    assert {single.mean.dtype, single.log_evidence.dtype, single.metric.factor.dtype} == {torch.float32}
    torch.testing.assert_close(single.mean.double(), double.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(single.metric.dense().double(), double.metric.dense(), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["sphere", "box", "union", "torus", "cylinder"])
def test_posterior_is_equivariant_under_rigid_motions(name: str, rng):
    """Data Bx + t and query By + t: the mean moves along, G' = BGBᵀ."""
    manifold, sigma = SMOOTH[name], 0.3
    moved = manifold.embed(manifold.ambient_dim + 2, generator=rng, shift=2.0)
    points = noisy_points(manifold, 4, sigma, rng)
    there = moved.shift + points @ moved.basis.mT
    expected, posterior = manifold.posterior(points, sigma), moved.posterior(there, sigma)
    torch.testing.assert_close(posterior.mean, moved.shift + expected.mean @ moved.basis.mT)
    torch.testing.assert_close(
        posterior.metric.dense(), moved.basis @ expected.metric.dense() @ moved.basis.mT, rtol=0, atol=1e-12
    )


def test_posterior_is_equivariant_under_scaling(rng):
    points = noisy_points(Sphere(3), 4, 0.3, rng)
    small, large = Sphere(3).posterior(points, 0.3), Sphere(3, 5.0).posterior(5 * points, 1.5)
    torch.testing.assert_close(large.metric.dense(), small.metric.dense(), rtol=0, atol=1e-12)
    torch.testing.assert_close(large.mean, 5 * small.mean)
