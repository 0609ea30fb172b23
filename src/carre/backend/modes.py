"""Modes that PyTorch computes in: exact products, out of sight of its transformations, formulas fused on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, NoReturn

import torch
from torch import Tensor

_fused: ContextVar[bool] = ContextVar("fused", default=False)
_constant_tangents: ContextVar[bool] = ContextVar("constant_tangents", default=False)


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute products of float32 in float32, never TF32; restore the caller's choice.

    Example:
        >>> with full_precision():
        ...     torch.get_float32_matmul_precision()
        'highest'
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def are_available(device: torch.device) -> bool:
    """Say whether a device can run fused operations: a GPU, with Triton installed.

    Example:
        >>> are_available(torch.device("cpu"))
        False
    """
    return device.type == "cuda" and find_spec("triton") is not None


def are_fused(*tensors: Tensor) -> bool:
    """Say whether a formula of these tensors should run as one operation now. Fused operations compute in float32.

    Example:
        >>> are_fused(torch.ones(3))
        False
    """
    return _fused.get() and all(tensor.dtype != torch.float64 for tensor in tensors)


@contextmanager
def fused_operations(device: torch.device) -> Iterator[None]:
    """Let formulas run as one operation each, where the device can.

    For a training step and for plain evaluation, which need first derivatives at most; fused operations refuse to be
    differentiated twice, or transformed by `torch.func`.

    Example:
        >>> with fused_operations(torch.device("cpu")):
        ...     are_fused(torch.ones(3))
        False
    """
    available = are_available(device)
    token = _fused.set(available)
    try:
        # Triton launches on the current GPU, whichever the tensors are on.
        with torch.cuda.device(device) if available else nullcontext():
            yield
    finally:
        _fused.reset(token)


@contextmanager
def constant_tangents() -> Iterator[None]:
    """Take what forward differentiation finds for constants: nobody differentiates it again, backward.

    Values are still differentiated. A network's own operations then compute both in one pass, without a graph of the
    derivative, and fused where values are.

    Example:
        >>> with constant_tangents():
        ...     are_tangents_constant()
        True
    """
    token = _constant_tangents.set(True)
    try:
        yield
    finally:
        _constant_tangents.reset(token)


def are_tangents_constant() -> bool:
    """Say whether a forward derivative that is computed now is never differentiated itself.

    Example:
        >>> are_tangents_constant()
        False
    """
    return _constant_tangents.get()


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


# To be held while differentiating forward: PyTorch counts the levels of that for all threads together.
forward_mode = threading.RLock()


@contextmanager
def with_gradients() -> Iterator[None]:
    """Record operations to differentiate them, also where the caller has switched that off."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def untransformed() -> Iterator[None]:
    """Make things that are kept for later calls: neither wrapped by a transformation, nor inference tensors.

    Example:
        >>> with torch.inference_mode(), untransformed():
        ...     torch.ones(2).is_inference()
        False
    """
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
