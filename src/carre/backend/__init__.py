"""One-pass GPU kernels (Triton) of formulas that are defined elsewhere.

At a batch of a thousand, a training step is hundreds of kernels of a few microseconds each, so that their
number is what it costs; at sixteen thousand it is the bytes that they move. Fusing helps both. The formulas stay
where they belong, plain and differentiable in any way; they ask `are_fused` whether to take the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec

import torch
from torch import Tensor

_fused: ContextVar[bool] = ContextVar("fused", default=False)


def are_available(device: torch.device) -> bool:
    """Say whether a device can run these kernels: a GPU, with Triton installed."""
    return device.type == "cuda" and find_spec("triton") is not None


def are_fused(*tensors: Tensor) -> bool:
    """Say whether a formula of these tensors should run as one kernel now. The kernels compute in float32."""
    return _fused.get() and all(tensor.dtype != torch.float64 for tensor in tensors)


@contextmanager
def fused_kernels(device: torch.device) -> Iterator[None]:
    """Let formulas run as one kernel each, where the device can.

    For a training step and for plain evaluation, which need first derivatives at most; the kernels refuse to be
    differentiated twice, or transformed by `torch.func`.
    """
    available = are_available(device)
    token = _fused.set(available)
    try:
        # Triton launches on the current GPU, whichever the tensors are on.
        with torch.cuda.device(device) if available else nullcontext():
            yield
    finally:
        _fused.reset(token)
