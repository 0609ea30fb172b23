"""Products with the Jacobian of a function of points, forward where it can be, backward where not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

MODES = ("auto", "forward", "reverse")


def jacobian_product(
    function: Callable[[Tensor], Tensor],
    points: Float[Tensor, "n dim"],
    vectors: Float[Tensor, "n dim"],
    *,
    mode: str = "auto",
) -> Float[Tensor, "n dim"]:
    """Compute Jv at every point, or Jᵀv in reverse mode.

    Differentiable in the points. The function treats its points one by one, so that one product serves them all.

    Args:
        function: From points to points.
        points: Where.
        vectors: One per point.
        mode: "forward", "reverse", or "auto": forward, unless the function has no forward derivative or the product
            is itself differentiated in forward mode.

    Example:
        >>> jacobian_product(lambda y: y**2, torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]]))
        tensor([[2., 6.]])
    """
    # Forward over forward mode loses derivatives of custom functions (pytorch/pytorch#197867); over reverse not.
    within_forward = forward_ad.unpack_dual(points).tangent is not None  # type: ignore[no-untyped-call]
    if mode == "reverse" or (mode == "auto" and within_forward):
        return _reverse_product(function, points, vectors)
    try:
        return _forward_product(function, points, vectors)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        # What has no forward derivative raises this; an error of another kind comes again.
        if mode == "forward":
            raise
        return _reverse_product(function, points, vectors)


def _forward_product(function: Callable[[Tensor], Tensor], points: Tensor, vectors: Tensor) -> Tensor:
    """Compute Jv. An output that does not depend on the points is an error, not a zero."""
    product: Tensor = torch.func.jvp(function, (points,), (vectors,), strict=True)[1]
    return product


def _reverse_product(function: Callable[[Tensor], Tensor], points: Tensor, vectors: Tensor) -> Tensor:
    """Compute Jᵀv, by a shift of zero that asks for the gradient in place of the points."""
    create_graph = torch.is_grad_enabled() and points.requires_grad
    with torch.enable_grad():
        shift = torch.zeros_like(points, requires_grad=True)
        mean = function(points + shift)
        if not mean.requires_grad:
            raise ValueError(
                "denoiser must be differentiable in its points; its output does not depend on them. "
                "Remove torch.no_grad, detach or NumPy from it"
            )
        return torch.autograd.grad(mean, shift, vectors, create_graph=create_graph)[0]
