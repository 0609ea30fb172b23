"""Targets averaged over a reference set: the same expectation, with less noise [THEORY §3.8]."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.matching.perturbation import Perturbation, perturb


def perturb_among(
    references: Float[Tensor, "n dim"],
    source: Int[Tensor, " batch"],
    bandwidth: Float[Tensor, " batch"],
    *,
    n_draws: int,
    generator: torch.Generator | None = None,
) -> Perturbation:
    """Add noise to some of the references, then redraw which of them each noisy point came from.

    Given y, its source is x_j with probability w_j ∝ exp(−|x_j − y|²/2σ²). The mean target is Σ w_j x_j
    and the displacements are ``n_draws`` draws from w: both unbiased whatever the size of the set, as
    long as the true source belongs to it (Rao–Blackwell; THEORY, App. A3). Where no other sample is
    near, w is one-hot and this is plain `perturb`.

    Args:
        references: The whole dataset, or independent draws from it.
        source: Which references to perturb.
        bandwidth: σ, one per source.
        n_draws: Displacements per noisy point.
        generator: Source of randomness.

    Example:
        >>> pair = torch.tensor([[-1.0], [1.0]])
        >>> batch = perturb_among(pair, torch.tensor([0, 1]), torch.tensor([1.0, 1.0]), n_draws=3)
        >>> bool(torch.allclose(batch.mean_target, batch.points.tanh(), atol=1e-5))  # tanh(y/σ²)
        True
    """
    points = perturb(references[source], bandwidth, generator=generator).points
    weights = source_posterior(points, references, bandwidth)
    # Inverse transform sampling: it can be captured in a CUDA graph, unlike torch.multinomial.
    cumulative = weights.cumsum(1)
    levels = 1 - torch.rand((len(points), n_draws), generator=generator, device=points.device, dtype=points.dtype)
    drawn = torch.searchsorted(cumulative, levels * cumulative[:, -1:]).clamp(max=len(references) - 1)
    displacement = (references[drawn] - points[:, None, :]) / bandwidth[:, None, None]
    # In full precision also where products of float32 are rounded to TF32 (see below).
    wide = _product_dtype(points)
    mean_target = (weights.to(wide) @ references.to(wide)).to(points.dtype)
    return Perturbation(points, bandwidth, displacement, mean_target)


def source_posterior(
    points: Float[Tensor, "batch dim"], references: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " batch"]
) -> Float[Tensor, "batch n"]:
    """Compute P(X = x_j | Y = y) for a uniform prior on the references."""
    # −|x − y|²/2σ² up to a constant in x, as one product [y/σ², 1/σ²]·[x, −|x|²/2]. Centered first: far from the
    # origin the squares would cancel to nothing in float32.
    wide, center = _product_dtype(points), references.mean(0)
    x, y = (references - center).to(wide), (points - center).to(wide)
    precision = bandwidth.to(wide).square().reciprocal()[:, None]
    left = torch.cat([y * precision, precision], 1)
    right = torch.cat([x, -0.5 * x.square().sum(1, keepdim=True)], 1)
    return torch.softmax(left @ right.mT, 1).to(points.dtype)


def _product_dtype(points: Tensor) -> torch.dtype:
    """Return float64 on a GPU: TF32, if it is switched on, keeps 10 bits where the exponents need 20."""
    return torch.float64 if points.is_cuda else points.dtype
