"""How much memory temporary results may take, and how exact the products in them are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Beyond this, larger blocks are not faster: a GPU is busy, a CPU has left its caches.
_LARGEST = {"cuda": 4 * 2**30, "cpu": 2**27}
_LEAST = 2**24
_SHARE = 4
_UNKNOWN = 2**30


def working_memory(device: torch.device, memory: int | None = None) -> int:
    """Return how many bytes temporary results may take: ``memory``, or a share of what is free on the device."""
    if memory is not None:
        return memory
    largest = _LARGEST.get(device.type, _LARGEST["cpu"])
    return max(_LEAST, min(largest, available_memory(device) // _SHARE))


def available_memory(device: torch.device) -> int:
    """Ask how many bytes are free on a device.

    Example:
        >>> available_memory(torch.device("cpu")) > 0
        True
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        # Not every system can say.
        return _UNKNOWN


def checked_memory(memory: int | None) -> int | None:
    """Check a bound on the memory of temporary results."""
    if memory is not None and not memory > 0:
        raise ValueError(f"memory must be a positive number of bytes, or None to share what is free; got {memory}")
    return memory


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute products of float32 in float32, never TF32; restore the caller's choice."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
