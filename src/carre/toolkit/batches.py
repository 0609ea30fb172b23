"""Long batches in parts of bounded memory, with a word on how far they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from carre.neighbors.memory import working_memory

Progress: TypeAlias = Callable[[float], None]
"""Told the fraction of the work that is done, between 0 and 1."""


def in_parts(
    function: Callable[..., Any],
    *batches: Tensor,
    numbers_per_item: int,
    progress: Progress | None = None,
) -> Any:
    """Apply a function to parts of batches of equal length, and concatenate what it returns.

    Args:
        function: From one part of every batch to a tensor, or a tuple of tensors, with one item per item.
        batches: Tensors of the same length.
        numbers_per_item: Floating-point numbers that the function keeps per item, about: it sizes the parts.
        progress: Told after every part how far the work is.

    Example:
        >>> in_parts(lambda x: 2 * x, torch.arange(3.0), numbers_per_item=1)
        tensor([0., 2., 4.])
    """
    first = batches[0]
    size = max(1, working_memory(first.device) // (first.element_size() * max(1, numbers_per_item)))
    results, done = [], 0
    for part in zip(*(torch.split(batch, size) for batch in batches), strict=True):
        results.append(function(*part))
        done += len(part[0])
        if progress is not None:
            progress(done / len(first))
    if isinstance(results[0], tuple):
        return tuple(torch.cat(column) for column in zip(*results, strict=True))
    return torch.cat(results)
