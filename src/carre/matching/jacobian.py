"""The metric is the Jacobian of the denoiser: a second target, without noise [THEORY §1, §3.10]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class JacobianProbe:
    """A random vector at each point, and what the Jacobian of the denoiser makes of it.

    Attributes:
        vectors: v ~ N(0, I).
        products: Jᵀv with J = ∂m̂/∂y. No gradient flows into them.
        weight: What the error at the probe counts, beside that of the displacements.

    Example:
        >>> points = torch.ones(4, 2, requires_grad=True)
        >>> probe = probe_jacobian(points * torch.tensor([1.0, 0.0]), points)  # the projector on an axis
        >>> bool((probe.products == probe.vectors * torch.tensor([1.0, 0.0])).all())
        True
    """

    vectors: Float[Tensor, "batch dim"]
    products: Float[Tensor, "batch dim"]
    weight: float = 1.0


def probe_jacobian(
    mean: Float[Tensor, "batch dim"],
    points: Float[Tensor, "batch dim"],
    *,
    weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> JacobianProbe | None:
    """Multiply random vectors by the Jacobian of a denoiser, by one backward pass through it.

    For the exact posterior mean, G = Cov[X | Y=y]/σ² = ∂m/∂y, so that E‖(G − J)v‖² = ‖G − J‖²_F says how far a
    metric is from the denoiser's own. The outer products that `metric_matching_loss` regresses on have a
    variance of d(d+1) at the optimum; this target has none.

    Args:
        mean: m̂(y), computed from the points; its graph is kept.
        points: y, which must require gradients.
        weight: Of the probe.
        generator: Source of randomness.

    Returns:
        The probe; None where the mean carries no derivative in the points (detached, or constant).

    Example:
        >>> points = torch.ones(4, 2, requires_grad=True)
        >>> probe = probe_jacobian(points / 2, points)
        >>> bool(torch.allclose(probe.products, probe.vectors / 2))
        True
        >>> probe_jacobian(torch.zeros(4, 2), points) is None  # a constant
        True
    """
    if not mean.requires_grad:
        return None
    vectors = torch.randn(points.shape, generator=generator, device=points.device, dtype=points.dtype)
    (products,) = torch.autograd.grad(mean, points, vectors.to(mean.dtype), retain_graph=True, allow_unused=True)
    return None if products is None else JacobianProbe(vectors, products.detach().to(vectors.dtype), weight)
