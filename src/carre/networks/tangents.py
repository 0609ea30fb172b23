"""Forward derivatives of the parts of a network, where torch's own compute with zeros.

Torch gives weights, which have no tangent, one of zeros: it convolves with them once more, and every product with
them takes a detour through Python. Along a direction in the points alone, half of that is not needed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def split_dual(tensor: Tensor, *constants: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return a tensor's value and its tangent; None where it has none, or where torch had better do the derivative.

    That is where it is differentiated backward as well, or where one of the constants has a tangent, too.

    Args:
        tensor: What depends on the points.
        constants: What else takes part.

    Example:
        >>> split_dual(torch.ones(2))
        (tensor([1., 1.]), None)
        >>> with forward_ad.dual_level():
        ...     split_dual(forward_ad.make_dual(torch.ones(2), torch.zeros(2)))
        (tensor([1., 1.]), tensor([0., 0.]))
    """
    value, tangent = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    others = [constant for constant in constants if constant is not None]
    is_backward = torch.is_grad_enabled() and any(part.requires_grad for part in (value, *others))
    if tangent is None or is_backward or any(forward_ad.unpack_dual(c).tangent is not None for c in others):  # type: ignore[no-untyped-call]
        return tensor, None
    return value, tangent


def join_dual(value: Tensor, tangent: Tensor) -> Tensor:
    """Return the tensor of this value and this tangent.

    Example:
        >>> with forward_ad.dual_level():
        ...     split_dual(join_dual(torch.ones(2), torch.zeros(2)))[1]
        tensor([0., 0.])
    """
    dual: Tensor = forward_ad.make_dual(value, tangent)  # type: ignore[no-untyped-call]
    return dual
