"""What the denoiser teaches the metric: for the exact posterior mean, G = Cov[X | Y=y]/σ² = ∂m/∂y [THEORY §1, §10].

The outer products that `metric_matching_loss` regresses on have a variance of d(d+1) at the optimum; products with the
Jacobian J of the denoiser have none. A learned J is not symmetric. It maps into the data, so that its range is
accurate, but how little it reacts to directions across the data is learned late and badly. Vectors in the range of the
metric, multiplied forward, see the good half alone: that the off-diagonal block of G is right follows from GP = JP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from carre.backend.modes import constant_tangents, forward_mode


@dataclass(frozen=True, eq=False)
class JacobianProbe:
    """A vector at each point, and what the Jacobian of the denoiser makes of it.

    Attributes:
        vectors: v.
        products: Jv with J = ∂m̂/∂y. No gradient flows into them.
        weight: What the error at the probe counts, beside that of the displacements.

    Example:
        >>> JacobianProbe(torch.ones(4, 2), torch.ones(4, 2)).weight
        1.0
    """

    vectors: Float[Tensor, "batch dim"]
    products: Float[Tensor, "batch dim"]
    weight: float = 1.0


def vectors_in_range(
    factor: Float[Tensor, "batch rank dim"], floor: float, *, generator: torch.Generator | None = None
) -> Float[Tensor, "batch dim"]:
    """Draw v = Fᵀξ + αη with ξ, η ~ N(0, I): covariance G + α²I, as a constant.

    Where G is a projector, α is the floor: mostly its range is taught, and a little of the rest keeps what lies across
    the data small. Where it is none, α² is larger by 1 − ‖G‖²_F/tr G, since there is no good half then.

    Args:
        factor: F.
        floor: The least α.
        generator: Source of randomness.

    Example:
        >>> plane = torch.eye(3)[None, :2].expand(1000, -1, -1)
        >>> bool((vectors_in_range(plane, 0.0)[:, 2] == 0).all())
        True
    """
    n, rank, dim = factor.shape
    with torch.no_grad():
        rows = factor.detach().float() if factor.dtype == torch.bfloat16 else factor.detach()
        squares = rows.square().sum((1, 2)).clamp_min(torch.finfo(rows.dtype).tiny)
        typical = (rows @ rows.mT).square().sum((1, 2)) / squares
        deviation = (float(floor) ** 2 + (1 - typical).clamp_min(0)).sqrt()
        noise = torch.randn((n, rank + dim), generator=generator, device=rows.device, dtype=rows.dtype)
        along, everywhere = torch.split(noise, [rank, dim], 1)
        vectors = torch.einsum("nrd,nr->nd", rows, along)
        return torch.addcmul(vectors, deviation[:, None], everywhere)


def denoise_along(
    denoiser: Callable[[Tensor, Tensor], Tensor],
    points: Float[Tensor, "batch dim"],
    bandwidth: Float[Tensor, " batch"],
    vectors: Float[Tensor, "batch dim"],
) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch dim"] | None]:
    """Compute m̂(y) and Jv in one pass; None where the mean carries no derivative in the points (constant, detached).

    The mean has a graph, if it is wanted; the products have none.

    Example:
        >>> mean, products = denoise_along(lambda y, s: y.square(), torch.ones(1, 2), torch.ones(1), torch.ones(1, 2))
        >>> mean, products
        (tensor([[1., 1.]]), tensor([[2., 2.]]))
    """
    with forward_mode, forward_ad.dual_level(), constant_tangents():
        dual = forward_ad.make_dual(points, vectors.to(points.dtype))  # type: ignore[no-untyped-call]
        mean, products = forward_ad.unpack_dual(denoiser(dual, bandwidth))  # type: ignore[no-untyped-call]
        return mean, None if products is None else products.detach()


def backward_probe(
    mean: Float[Tensor, "batch dim"],
    points: Float[Tensor, "batch dim"],
    *,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch dim"] | None]:
    """Draw v ~ N(0, I), and compute Jᵀv by one backward pass: for a denoiser that has no forward derivatives.

    E‖(G − J)v‖² = ‖G − J‖²_F is the same for J and Jᵀ: it takes half of the bad half.

    Args:
        mean: m̂(y), computed from the points; its graph is kept.
        points: y, which must require gradients.
        generator: Source of randomness.

    Returns:
        v, and Jᵀv; None for it where the mean carries no derivative in the points.

    Example:
        >>> points = torch.ones(4, 2, requires_grad=True)
        >>> vectors, products = backward_probe(points / 2, points)
        >>> bool(torch.allclose(products, vectors / 2))
        True
    """
    vectors = torch.randn(points.shape, generator=generator, device=points.device, dtype=points.dtype)
    if not mean.requires_grad:
        return vectors, None
    (products,) = torch.autograd.grad(mean, points, vectors.to(mean.dtype), retain_graph=True, allow_unused=True)
    return vectors, None if products is None else products.detach().to(vectors.dtype)
