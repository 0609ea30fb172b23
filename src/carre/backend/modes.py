"""Modes that PyTorch computes in: exact products, out of sight of its transformations, formulas fused on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional
from torch.overrides import TorchFunctionMode

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


class _SpelledOut(TorchFunctionMode):
    """Compute by elementary operations what has no forward derivative, or one whose own derivative is wrong.

    Arguments are named as torch names them.
    """

    def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        formula = _FORMULAS.get(called, called)
        return formula(*args, **(kwargs or {}))


def _attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Tensor:
    mixed: Tensor = torch._scaled_dot_product_attention_math(query, key, value, *args, **options)[0]
    return mixed


def _heads(*args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
    # With weights it is spelled out.
    mixed, weights = functional.multi_head_attention_forward(*args, **{**options, "need_weights": True})
    return mixed, weights if options.get("need_weights", True) else None


def _group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    normed = _layer_norm(input.reshape(len(input), num_groups, -1), (-1,), eps=eps).reshape(input.shape)
    shape = (1, -1, *[1] * (input.ndim - 2))
    normed = normed if weight is None else normed * weight.reshape(shape)
    return normed if bias is None else normed + bias.reshape(shape)


def _layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    over = tuple(range(-len(normalized_shape), 0))
    variance, mean = torch.var_mean(input, over, correction=0, keepdim=True)
    normed = (input - mean) * (variance + eps).rsqrt()
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


_FORMULAS: dict[Any, Callable[..., Any]] = {
    functional.scaled_dot_product_attention: _attention,
    functional.multi_head_attention_forward: _heads,
    functional.group_norm: _group_norm,
    functional.layer_norm: _layer_norm,
}


def is_transformed(tensor: Tensor) -> bool:
    """Say whether a tensor is differentiated forward, or wrapped by a transformation of `torch.func`."""
    is_wrapped: bool = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return is_wrapped or forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def differentiable(points: Tensor) -> AbstractContextManager[object]:
    """Let somebody's network be differentiated forward, if its points are: attention and norms of torch's are not.

    Attention as one operation has no forward derivative; that of a group norm fails on channels that do not lie in one
    piece, as after attention, and that of a layer norm takes the deviation for a constant when it is differentiated.

    Example:
        >>> def attend(y):
        ...     with differentiable(y):
        ...         return torch.nn.functional.scaled_dot_product_attention(y, y, y)
        >>> y = torch.eye(2)[None]
        >>> torch.func.jvp(attend, (y,), (torch.ones_like(y),))[1].round(decimals=2)
        tensor([[[1., 1.],
                 [1., 1.]]])
    """
    return _SpelledOut() if is_transformed(points) else nullcontext()


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
