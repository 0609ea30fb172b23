"""Work that the transformations of torch.func must not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor


def outside(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """Evaluate a function as a constant, on plain tensors.

    Inside a transformation (jvp, jacrev, jacfwd) tensors are wrapped: other libraries cannot read them, and what is
    made of them must not be kept for later.

    Example:
        >>> def largest(point):
        ...     return outside(lambda y: torch.from_numpy(y.numpy()).argmax()[None], point) * point
        >>> torch.func.jvp(largest, (torch.tensor([1.0, 3.0]),), (torch.ones(2),))[1]
        tensor([1., 1.])
    """
    result: Tensor = _Outside.apply(points.detach(), function)  # type: ignore[no-untyped-call]
    return result


@contextmanager
def untransformed() -> Iterator[None]:
    """Make things that are kept for later calls: neither wrapped by a transformation, nor inference tensors."""
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        yield


class _Outside(torch.autograd.Function):
    """A function without derivatives; torch.func hands it plain tensors."""

    @staticmethod
    def forward(points: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(points)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[None, None]:
        return None, None

    @staticmethod
    def jvp(ctx: Any, *_: Tensor) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], points: Tensor, function: Any) -> NoReturn:
        raise NotImplementedError("points must not be mapped over by torch.vmap; give them as one batch")
