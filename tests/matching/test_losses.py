"""The identities behind the objective [RMM, Sec. 3; THEORY §3]."""

import pytest
import torch

from carre.manifolds import FiniteSet
from carre.matching import (
    carre_du_champ_loss,
    conditional_carre_du_champ,
    denoising_loss,
    frobenius_loss,
    metric_matching_loss,
    perturb,
)
from carre.metric import LowRankMetric


def normal(rng, *shape):
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("ridge", [0.0, 0.4])
@pytest.mark.parametrize("draws", [1, 5])
@pytest.mark.parametrize("batch", [6, 4])
def test_low_rank_loss_is_the_dense_loss_without_its_constant(rng, ridge, draws, batch):
    """With λ the prediction contains λI. Batches of 6 ≠ D and of 4 = D, where a wrong broadcast would hide."""
    metric = LowRankMetric(normal(rng, batch, 3, 4), ridge)
    displacement = normal(rng, batch, draws, 4)
    target = displacement.mT @ displacement / draws
    constant = target.square().sum((1, 2))
    dense = frobenius_loss(metric.dense(), displacement)
    torch.testing.assert_close(metric_matching_loss(metric, displacement) + constant, dense)


def test_the_papers_loss_is_a_quarter_of_ours(rng):
    """‖MMᵀ‖² − ‖MΔ‖²/σ² with Γ = MᵀM, M = F/√2 [RMM, Eq. 12] is L/4 (THEORY §3.1)."""
    factor, noise, sigma = normal(rng, 6, 3, 4), normal(rng, 6, 4), 0.3
    m, delta = factor / 2**0.5, sigma * noise
    gram = m @ m.mT
    paper = gram.square().sum((1, 2)) - torch.einsum("brd,bd->br", m, delta).square().sum(1) / sigma**2
    torch.testing.assert_close(metric_matching_loss(LowRankMetric(factor), noise[:, None]) / 4, paper)


@pytest.fixture
def dataset(rng):
    return FiniteSet(normal(rng, 7, 3))


def joint_expectation(dataset, sigma, points, conditional):
    """E over x of p(x | y)·loss(x, y) at given y: what a conditional loss averages to."""
    atoms = dataset.samples
    posterior = torch.softmax(-torch.cdist(points, atoms).square() / (2 * sigma**2), 1)
    values = torch.stack([conditional(atom.expand_as(points)) for atom in atoms], 1)
    return (posterior * values).sum(1)


def test_conditional_and_marginal_matrix_losses_differ_by_a_constant(rng, dataset):
    """Theorem 3.1 for the matrix loss, exactly, on a finite dataset: at each y the difference does not depend on θ."""
    sigma, points = 0.8, normal(rng, 5, 3)
    exact = dataset.posterior(points, sigma)

    def difference(factor):
        metric = LowRankMetric(factor)
        conditional = joint_expectation(
            dataset,
            sigma,
            points,
            lambda x: metric_matching_loss(metric, ((x - exact.mean) / sigma)[:, None]),
        )
        marginal = (metric.dense() - exact.metric.dense()).square().sum((1, 2))
        return conditional - marginal

    torch.testing.assert_close(difference(normal(rng, 5, 2, 3)), difference(normal(rng, 5, 2, 3)))


def test_conditional_and_marginal_scalar_losses_differ_by_a_constant(rng, dataset):
    """Theorem 3.1 as printed, for functions f and h [RMM, Thm. 3.1]."""
    sigma, points = 0.8, normal(rng, 5, 3)

    def f(x):
        return x[:, 0].sin()

    def h(x):
        return x[:, 1] * x[:, 2]

    def conditional(x):
        return conditional_carre_du_champ(f, h, x, points, torch.full((5,), sigma, dtype=torch.float64))

    marginal_target = joint_expectation(dataset, sigma, points, conditional)

    def difference(prediction):
        loss = joint_expectation(dataset, sigma, points, lambda x: carre_du_champ_loss(prediction, conditional(x)))
        return loss - (prediction - marginal_target).square()

    torch.testing.assert_close(difference(normal(rng, 5)), difference(normal(rng, 5)))


def test_scalar_carre_du_champ_of_coordinates_is_half_the_uncentered_metric(rng, dataset):
    """Γ_σ(x_i, x_j) = ½[G + (m−y)(m−y)ᵀ/σ²]_ij: the one place where the paper's factor ½ enters."""
    sigma, points = 0.8, normal(rng, 5, 3)
    exact = dataset.posterior(points, sigma)
    offset = (exact.mean - points) / sigma
    uncentered = exact.metric.dense() + offset[:, :, None] * offset[:, None, :]
    target = joint_expectation(
        dataset,
        sigma,
        points,
        lambda x: conditional_carre_du_champ(
            lambda u: u[:, 0], lambda u: u[:, 2], x, points, torch.full((5,), sigma, dtype=torch.float64)
        ),
    )
    torch.testing.assert_close(target, uncentered[:, 0, 2] / 2)


def test_denoising_loss_is_least_at_the_posterior_mean(rng, dataset):
    sigma, points = 0.8, normal(rng, 5, 3)
    mean = dataset.posterior(points, sigma).mean.requires_grad_()
    loss = joint_expectation(dataset, sigma, points, lambda x: denoising_loss(mean, x)).sum()
    (gradient,) = torch.autograd.grad(loss, mean)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)


def test_a_wrong_mean_inflates_the_target_by_its_squared_error(rng, dataset):
    """E[δδᵀ | y] = G + (m − m̂)(m − m̂)ᵀ/σ² (THEORY §3.4)."""
    sigma, points = 0.8, normal(rng, 5, 3)
    exact, wrong = dataset.posterior(points, sigma), normal(rng, 5, 3)
    target = torch.zeros(5, 3, 3, dtype=torch.float64)
    for i in range(3):
        for j in range(3):
            target[:, i, j] = joint_expectation(
                dataset, sigma, points, lambda x, i=i, j=j: ((x - wrong)[:, i] * (x - wrong)[:, j]) / sigma**2
            )
    error = (exact.mean - wrong) / sigma
    torch.testing.assert_close(target, exact.metric.dense() + error[:, :, None] * error[:, None, :])


def test_centering_stops_the_gradient(rng):
    """Without the stop the loss is unbounded below in m̂ (THEORY §3.5)."""
    batch = perturb(normal(rng, 4, 3), torch.full((4,), 0.5, dtype=torch.float64), generator=rng)
    mean = normal(rng, 4, 3).requires_grad_()
    assert not batch.centered(mean).displacement.requires_grad


def test_displacements_are_measured_in_units_of_the_bandwidth(rng):
    samples, sigma = normal(rng, 4, 3), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    batch = perturb(samples, sigma, generator=rng)
    torch.testing.assert_close(batch.displacement[:, 0], (samples - batch.points) / sigma[:, None])
    mean = normal(rng, 4, 3)
    torch.testing.assert_close(batch.centered(mean).displacement[:, 0], (samples - mean) / sigma[:, None])
    torch.testing.assert_close(batch.mean_target, samples)


def test_rank_r_minimizer_is_the_best_rank_r_approximation(rng):
    """Eckart and Young, with Tikhonov: FᵀF → top-r of (A − λI)₊ (THEORY §3.2, §3.3)."""
    deltas = torch.tensor([[[2.0, 0.0, 0.0], [0.0, 1.5, 0.0], [0.0, 0.0, 1.0]]], dtype=torch.float64)
    for ridge in (0.0, 0.2):
        factor = (0.1 * normal(rng, 1, 2, 3)).requires_grad_()
        optimizer = torch.optim.LBFGS(
            [factor], max_iter=500, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
        )

        def closure(factor=factor, optimizer=optimizer, ridge=ridge):
            optimizer.zero_grad()
            loss = metric_matching_loss(LowRankMetric(factor, ridge), deltas).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        target = torch.tensor([4.0, 2.25, 1.0], dtype=torch.float64) / 3
        expected = torch.diag(torch.cat([(target[:2] - ridge).clamp_min(0), torch.zeros(1, dtype=torch.float64)]))
        torch.testing.assert_close((factor.mT @ factor)[0].detach(), expected, atol=1e-6, rtol=0)
