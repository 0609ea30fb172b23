"""How much can be afforded: what one question costs here, and so at how many points to ask it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

# Points that are timed: few, and more of them where few take hardly any time.
_FEW, _MORE, _NO_TIME = 8, 256, 0.5
_TRIES = 3


def seconds_per_point(geometry: Any, points: Tensor, bandwidth: float) -> float:
    """Time the local dimension and the eigenvalues at some points; the fastest of a few tries counts."""

    def once(count: int) -> float:
        begun = time.perf_counter()
        geometry.dimension(points[:count], bandwidth)
        geometry.eigenvalues(points[:count], bandwidth)
        return time.perf_counter() - begun

    few, more = min(_FEW, len(points)), min(_MORE, len(points))
    seconds = min(once(few) for _ in range(_TRIES))
    return seconds / few if seconds > _NO_TIME else min(once(more) for _ in range(_TRIES)) / more


def affordable(most: int, seconds: float, each: float, *, least: int = 1) -> int:
    """Return how many questions fit into a time: all, or a round number, the same at slightly different speeds.

    Example:
        >>> affordable(10_000, 10.0, 0.003), affordable(100, 10.0, 0.003), affordable(100, 0.1, 1.0, least=20)
        (3000, 100, 20)
    """
    count = int(seconds / max(each, 1e-9))
    if count >= most:
        return most
    power = 10 ** (len(str(max(count, 1))) - 1)
    rounded = next((step * power for step in (8, 6, 5, 4, 3, 2, 1) if step * power <= count), 1)
    return min(most, max(least, rounded))


def scattered(n: int, count: int, *, seed: int = 0) -> Tensor:
    """Choose so many of n points by chance, the same ones every time, in ascending order."""
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:count]
    return chosen.sort().values


def parts_within(seconds: float, order: Tensor, size: int) -> Iterator[Tensor]:
    """Yield parts of an order until the time is over; at least one."""
    begun = time.perf_counter()
    for part in torch.split(order, size):
        yield part
        if time.perf_counter() - begun > seconds:
            return


def scaled_progress(progress: Callable[[float], None] | None, start: float, end: float) -> Callable[[float], None]:
    """Report a part of the work as a part of the whole."""

    def report(fraction: float) -> None:
        if progress is not None:
            progress(start + (end - start) * fraction)

    return report
