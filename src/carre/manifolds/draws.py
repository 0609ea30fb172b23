"""Random numbers from a generator, on its device."""

from __future__ import annotations

import torch
from torch import Tensor


def standard_normal(*shape: int, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
    """Draw standard normal numbers."""
    device = None if generator is None else generator.device
    return torch.randn(shape, generator=generator, dtype=dtype, device=device)


def standard_uniform(*shape: int, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
    """Draw numbers uniform on [0, 1)."""
    device = None if generator is None else generator.device
    return torch.rand(shape, generator=generator, dtype=dtype, device=device)
