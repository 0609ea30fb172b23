"""What second-order score matching learns, and with how much more noise (THEORY §3.13)."""

import torch

from carre.manifolds import FiniteSet

SIGMA = 0.7


def posterior_moments(rng):
    """A point between atoms, with the exact law of the noise z = (y − x)/σ given it."""
    atoms = torch.randn(12, 4, generator=rng, dtype=torch.float64)
    y = 1.5 * torch.randn(1, 4, generator=rng, dtype=torch.float64)
    z = (y - atoms) / SIGMA
    weights = (-z.square().sum(1) / 2).softmax(0)
    return FiniteSet(atoms), y, z, weights


def test_the_second_order_score_is_the_metric_in_other_units(rng):
    """G = I + σ²∇²log p, by derivatives of the log density alone; and E[zzᵀ] = G + σ²ssᵀ is what is regressed on."""
    manifold, y, z, weights = posterior_moments(rng)
    hessian = torch.autograd.functional.hessian(lambda p: manifold.posterior(p[None], SIGMA).log_evidence[0], y[0])
    metric = manifold.posterior(y, SIGMA).metric.dense()[0]
    torch.testing.assert_close(metric, torch.eye(4, dtype=torch.float64) + SIGMA**2 * hessian)
    score = -(weights @ z) / SIGMA
    second_moment = torch.einsum("n,ni,nj->ij", weights, z, z)
    torch.testing.assert_close(second_moment, metric + SIGMA**2 * torch.outer(score, score))


def test_its_target_has_the_noise_of_the_centered_one_and_more(rng):
    """With δ = z − h, h = E[z | y]: E‖zzᵀ − hhᵀ − G‖² = E‖δδᵀ − G‖² + 2|h|² tr G + 2hᵀGh + 4E|δ|²⟨h, δ⟩."""
    manifold, y, z, weights = posterior_moments(rng)
    metric, h = manifold.posterior(y, SIGMA).metric.dense()[0], weights @ z
    delta = z - h

    def noise(targets):
        torch.testing.assert_close(torch.einsum("n,nij->ij", weights, targets), metric)
        return float(weights @ (targets - metric).square().sum((1, 2)))

    centered = noise(torch.einsum("ni,nj->nij", delta, delta))
    second_order = noise(torch.einsum("ni,nj->nij", z, z) - torch.outer(h, h))
    skew = weights @ (delta.square().sum(1) * (delta @ h))
    more = 2 * h.square().sum() * metric.trace() + 2 * h @ metric @ h + 4 * skew
    assert abs(second_order - centered - float(more)) < 1e-10
    assert second_order > 2 * centered
