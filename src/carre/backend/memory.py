"""How much is computed at a time, and how far that is: memory for temporary results, work in parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from carre.boundary import ArgumentError

# Beyond this, larger blocks are not faster: a GPU is busy, a CPU has left its caches.
_LARGEST = {"cuda": 4 * 2**30, "cpu": 2**27}
_LEAST = 2**24
_SHARE = 4
_UNKNOWN = 2**30

Progress: TypeAlias = Callable[[float], None]
"""Told the fraction of the work that is done, between 0 and 1."""


def working_memory(device: torch.device, memory: int | None = None) -> int:
    """Return how many bytes temporary results may take: ``memory``, or a share of what is free on the device.

    Example:
        >>> working_memory(torch.device("cpu"), 1000)
        1000
        >>> working_memory(torch.device("cpu")) >= 2**24
        True
    """
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


def check_room(n_bytes: int, device: torch.device, *, name: str, what: str, remedy: str) -> None:
    """Refuse what does not fit into memory, before it is computed.

    Example:
        >>> room = {"name": "X", "what": "the answer", "remedy": "Ask for less"}
        >>> check_room(2**60, torch.device("cpu"), **room)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: X must leave room in memory for the answer, 1,152,921,504.6 GB; ...
    """
    if n_bytes <= _LARGEST["cpu"]:
        return
    free = available_memory(device) if device.type == "cuda" else _room_of_process()
    if n_bytes > free:
        must = f"leave room in memory for {what}, {n_bytes / 1e9:,.1f} GB"
        raise ArgumentError(name, must, got=f"{free / 1e9:,.1f} GB that are free", remedy=remedy)


def check_room_for_all(first: Sequence[Tensor], done: int, count: int) -> None:
    """Refuse to go on where the answers to all do not fit into memory, as the first of them show."""
    # Held in parts, and then in one.
    n_bytes = 2 * sum(part.numel() * part.element_size() for part in first) * count // done
    what, remedy = f"the answer at all {count:,}", "Ask at fewer of them at a time"
    check_room(n_bytes, first[0].device, name="points", what=what, remedy=remedy)


def _room_of_process() -> int:
    """Return the bytes that this process may still take: files that are kept in memory give way, a limit does not."""
    free = available_memory(torch.device("cpu"))
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = max(free, 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415  (not on Windows)

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        free = free if limit == resource.RLIM_INFINITY else min(free, max(0, limit - taken))
    return free


def resident_memory() -> int:
    """Ask how many bytes this process holds in memory; 0 where the system does not say.

    Example:
        >>> resident_memory() >= 0
        True
    """
    with suppress(OSError, ValueError, AttributeError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def checked_memory(memory: int | None) -> int | None:
    """Check a bound on the memory of temporary results.

    Example:
        >>> checked_memory(-1)
        Traceback (most recent call last):
        ValueError: memory must be a positive number of bytes, or None to share what is free; got -1
    """
    if memory is not None and not memory > 0:
        raise ValueError(f"memory must be a positive number of bytes, or None to share what is free; got {memory}")
    return memory


def in_parts(
    function: Callable[..., Any],
    *batches: Tensor,
    numbers_per_item: int,
    at_most: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Apply a function to parts of batches of equal length, and concatenate what it returns.

    Args:
        function: From one part of every batch to a tensor, or a tuple of tensors, with one item per item.
        batches: Tensors of the same length.
        numbers_per_item: Floating-point numbers that the function keeps per item, about: it sizes the parts.
        at_most: The most items of a part, whatever memory allows; None for no such bound.
        progress: Told after every part how far the work is.

    Example:
        >>> in_parts(lambda x: 2 * x, torch.arange(3.0), numbers_per_item=1)
        tensor([0., 2., 4.])
    """
    first = batches[0]
    if len(first) == 1:
        result = function(*batches)
        if progress is not None:
            progress(1.0)
        return result
    size = max(1, working_memory(first.device) // (first.element_size() * max(1, numbers_per_item)))
    size = size if at_most is None else max(1, min(size, at_most))
    results, done = [], 0
    for part in zip(*(torch.split(batch, size) for batch in batches), strict=True):
        results.append(function(*part))
        done += len(part[0])
        if len(results) == 1 and done < len(first):
            check_room_for_all(results[0] if isinstance(results[0], tuple) else results, done, len(first))
        if progress is not None:
            progress(done / len(first))
    if isinstance(results[0], tuple):
        return tuple(torch.cat(column) for column in zip(*results, strict=True))
    return torch.cat(results)


def points_at_once(network: nn.Module | None, points: Tensor, *, largest: int) -> int:
    """Return how many points to evaluate at once: a U-Net holds hundreds of thousands of numbers for each.

    Args:
        network: What will be evaluated. Parts of it that hold much say so by an attribute ``numbers_per_point``; they
            are evaluated one after the other.
        points: The points, for their device and dtype.
        largest: The answer where memory is no concern: without such a part, or with small ones.

    Example:
        >>> points_at_once(nn.Linear(3, 3), torch.zeros(5, 3), largest=1000)
        1000
    """
    parts = network.modules() if network is not None else ()
    numbers = max((int(getattr(part, "numbers_per_point", 0)) for part in parts), default=0)
    if numbers == 0:
        return largest
    return max(1, min(largest, working_memory(points.device) // (points.element_size() * numbers)))
