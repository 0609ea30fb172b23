"""How many points per second, and how much memory."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from carre.boundary import as_points


@dataclass(frozen=True)
class Throughput:
    """How fast a function of points is.

    Attributes:
        points_per_second: The batch over the median time.
        seconds_per_batch: The median time of a call.
        spread: The interquartile range of the times, as a share of the median. Above 0.2 the machine was busy.
        batch: Points per call.
        repeats: How many calls were timed.
        device: Where the points were.

    Example:
        >>> speed = Throughput(2e6, 0.5, 0.01, batch=1_000_000, repeats=20, device="cpu")
        >>> speed.points_per_second * speed.seconds_per_batch == speed.batch
        True
    """

    points_per_second: float
    seconds_per_batch: float
    spread: float
    batch: int
    repeats: int
    device: str


def throughput(
    function: Callable[[Tensor], object],
    points: Tensor,
    *,
    batch: int | None = None,
    repeats: int = 20,
    warmup: int = 3,
    seconds: float = 10.0,
) -> Throughput:
    """Time a function of points: the median of repeated calls after a warm-up.

    Times are wall-clock times from an idle device to an idle device, so they contain what the function does
    on the host. Calls take the points batch after batch, and begin again when all were used.

    Args:
        function: Anything of points, such as ``lambda y: field.metric(y, sigma).factor``.
        points: Where to evaluate it, on the device to be timed.
        batch: Points per call; all of them by default.
        repeats: Calls to time.
        warmup: Calls before the first that is timed.
        seconds: No call starts after this time, except one that is timed.

    Example:
        >>> measured = throughput(lambda y: y @ y.mT, torch.ones(64, 8), batch=32, repeats=5)
        >>> measured.batch, measured.repeats, measured.device
        (32, 5, 'cpu')
    """
    given = as_points(points).tensor
    batch = len(given) if batch is None else batch
    if not 1 <= batch <= len(given):
        raise ValueError(f"batch must lie between 1 and the number of points, {len(given)}; got {batch}")
    if repeats < 1 or warmup < 0:
        raise ValueError(f"repeats must be at least 1 and warmup at least 0; got {repeats} and {warmup}")
    if not seconds > 0:
        raise ValueError(f"seconds must be positive; got {seconds}")
    batches = [part for part in torch.split(given, batch) if len(part) == batch]
    deadline = time.perf_counter() + seconds
    for k in range(warmup):
        if time.perf_counter() < deadline:
            _time(function, batches[k % len(batches)])
    times: list[float] = []
    while len(times) < repeats and (not times or time.perf_counter() < deadline):
        times.append(_time(function, batches[len(times) % len(batches)]))
    low, median, high = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    return Throughput(batch / median, median, (high - low) / median, batch, len(times), str(given.device))


def peak_memory(function: Callable[[Tensor], object], points: Tensor, *, warmup: bool = True) -> int | None:
    """Measure the memory that a call needs at its peak, in bytes, beyond what was held before.

    The result of the call is part of it, the points are not. The function is called twice, the first time so
    that libraries and workspaces are loaded. What it raises, such as `torch.OutOfMemoryError`, is passed on; the next
    measurement begins anew.

    On a GPU this is exact for tensors (`torch.cuda.max_memory_allocated`). On a CPU it is the kernel's own
    record of resident memory, which counts every library and every thread, pages that were written only, and
    is right to about 1 MB; Linux resets that record for it. None where neither is to be had.

    Args:
        function: Anything of points.
        points: Where to evaluate it, on the device to be measured.
        warmup: Whether to call it once before. Not needed where it was called before, and is slow.

    Example:
        >>> peak = peak_memory(lambda y: torch.ones(2**22), torch.ones(1, 1))
        >>> peak is None or 15e6 < peak < 19e6
        True
    """
    given = as_points(points).tensor
    if warmup:
        function(given)
    if given.device.type == "cuda":
        wait(given.device)
        before = torch.cuda.memory_allocated(given.device)
        torch.cuda.reset_peak_memory_stats(given.device)
        function(given)
        wait(given.device)
        return torch.cuda.max_memory_allocated(given.device) - before
    if given.device.type != "cpu" or not _reset_resident_peak():
        return None
    resident = _process_status("VmRSS")
    function(given)
    return max(0, _process_status("VmHWM") - resident)


def wait(device: str | torch.device) -> None:
    """Wait until a device is idle; a CPU is when a call returns."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def hardware(device: str | torch.device) -> str:
    """Name what is measured on, so that results of another machine are told apart."""
    where = torch.device(device)
    return torch.cuda.get_device_name(where) if where.type == "cuda" else f"{torch.get_num_threads()} CPU threads"


def _time(function: Callable[[Tensor], object], points: Tensor) -> float:
    """Time one call in seconds, from an idle device to an idle device."""
    wait(points.device)
    start = time.perf_counter()
    function(points)
    wait(points.device)
    return time.perf_counter() - start


def _reset_resident_peak() -> bool:
    """Let the kernel's record of peak resident memory start anew; False where that is not possible."""
    try:
        # Freed blocks that malloc keeps for later would hide what the next call allocates.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):
        return False
    return True


def _process_status(key: str) -> int:
    """Read a size of this process from /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))
