"""One cell of the table of costs: a method, at one shape, batch and precision."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from carre.evaluation import Throughput, peak_memory, throughput
from carre.fields import NeuralField, ScoreField, SteinField
from carre.neighbors.memory import available_memory, full_precision

PRECISIONS = ("float32", "tf32", "bfloat16")
MATCHING, STEIN = "metric matching", "Stein score"
AT_ONCE, IN_CHUNKS = "full Jacobian, all products at once", "full Jacobian, in chunks"
DECOMPOSED, RANDOMIZED = "full Jacobian with its eigenvalues", "randomized Jacobian"
MEASURED, EXTRAPOLATED, OUT_OF_MEMORY, FAILED = "measured", "extrapolated", "out of memory", "failed"

# Products that the time of all of them is predicted from: enough to keep a GPU busy, few enough for a second.
_MOST_PILOTS, _PILOT_NUMBERS, _PILOT_REPEATS = 256, 2**21, 3
_LARGEST_DECOMPOSED = 4096
_MEMORY_WORDS = ("out of memory", "ALLOC_FAILED", "can't allocate", "not enough memory")


class Pilot:
    """Some products with a Jacobian at one point, which the cost of many is predicted from; measured once."""

    def __init__(self, function: Callable[[Tensor], object], count: int) -> None:
        self.function, self.count = function, count
        self._measured: tuple[Throughput, int | None] | None = None

    def measure(self, point: Tensor, repeats: int, seconds: float) -> tuple[Throughput, int | None]:
        """Return their time and their memory."""
        if self._measured is None:
            timed = throughput(self.function, point, repeats=repeats, warmup=1, seconds=seconds)
            self._measured = timed, peak_memory(self.function, point, warmup=False)
        return self._measured


@dataclass(frozen=True)
class Method:
    """A function of points, and what is known of its cost.

    Attributes:
        name: What the table calls it.
        function: From points to the result.
        result_numbers: Numbers in the result, per point.
        is_batched: Whether it is also measured for several points at once.
        n_products: Products with the Jacobian, per point.
        pilot: Some of them.
        is_at_once: Whether all of them are held at once, so that memory grows with their number.
    """

    name: str
    function: Callable[[Tensor], object]
    result_numbers: int
    is_batched: bool = True
    n_products: int = 0
    pilot: Pilot | None = None
    is_at_once: bool = False


def methods(field: NeuralField, rank: int, bandwidth: float) -> list[Method]:
    """List what is compared, on the two networks of one field."""
    dim = field.dim
    # A field cuts its points by the working memory; all products at once is what it says.
    whole = NeuralField(field.model, field.frame, mixed_precision=field.mixed_precision, chunk=dim)
    at_once, in_chunks = (ScoreField(source, mode="forward", chunk=c) for source, c in ((whole, dim), (field, None)))
    randomized = ScoreField(field, rank=rank, mode="forward")
    n_probes = min(dim, rank + randomized.oversampling)
    n_pilots = max(1, min(dim, _MOST_PILOTS, _PILOT_NUMBERS // dim))
    stein = SteinField(field)

    def products(score: ScoreField, count: int) -> Callable[[Tensor], Tensor]:
        return lambda y: score.apply_jacobian(y, bandwidth, _axes(y, count))

    some, some_at_once = (Pilot(products(score, n_pilots), n_pilots) for score in (in_chunks, at_once))
    found = [
        Method(MATCHING, lambda y: field.metric(y, bandwidth).factor, rank * dim),
        Method(STEIN, lambda y: stein.metric(y, bandwidth), dim),
        Method(
            RANDOMIZED,
            lambda y: randomized.metric(y, bandwidth).factor,
            rank * dim,
            n_products=(2 + randomized.power_iterations) * n_probes if n_probes < dim else dim,
            pilot=some,
        ),
        Method(AT_ONCE, products(at_once, dim), dim**2, False, dim, some_at_once, is_at_once=True),
        Method(IN_CHUNKS, products(in_chunks, dim), dim**2, False, dim, some),
    ]
    if dim <= _LARGEST_DECOMPOSED:
        found.append(Method(DECOMPOSED, lambda y: in_chunks.metric(y, bandwidth).factor, dim**2, False, dim, some))
    return found


def measure_cell(method: Method, points: Tensor, repeats: int, seconds: float, limit: float) -> dict[str, Any]:
    """Measure the time and memory of one method; say so where it needs too much of either.

    Args:
        method: The method.
        points: Where, on the device to be measured.
        repeats: Timed calls.
        seconds: How long calls are repeated; a slower method is called once.
        limit: The longest call. Beyond it, time is extrapolated from some products, and memory is what those took
            together with the result: a lower bound.
    """
    cell: dict[str, Any] = {"method": method.name, "batch": len(points), "status": MEASURED, "extrapolated": False}
    cell |= {"seconds": None, "spread": None, "repeats": 0, "peak_bytes": None, "n_products": method.n_products}
    cell |= {"result_bytes": points.element_size() * len(points) * method.result_numbers, "estimated_bytes": None}
    try:
        for part in _measurements(method, points, repeats, seconds, limit, cell["result_bytes"]):
            cell |= part
    except RuntimeError as error:
        lacks_memory = isinstance(error, torch.OutOfMemoryError) or any(w in str(error) for w in _MEMORY_WORDS)
        cell |= {"status": OUT_OF_MEMORY if lacks_memory else FAILED, "message": str(error).split("\n")[0][:200]}
    # The error held what was computed until here.
    gc.collect()
    if points.is_cuda:
        torch.cuda.empty_cache()
    return cell


def _measurements(
    method: Method, points: Tensor, repeats: int, seconds: float, limit: float, result_bytes: int
) -> Iterator[dict[str, Any]]:
    """Yield what is known of a cell, the most certain last."""
    predicted = 0.0
    if method.pilot is not None:
        timed, held = method.pilot.measure(points[:1], min(_PILOT_REPEATS, repeats), seconds)
        factor = len(points) * method.n_products / method.pilot.count
        predicted = factor * timed.seconds_per_batch
        needed = None if held is None else int(factor * held) if method.is_at_once else held + result_bytes
        yield {"predicted_seconds": predicted, "n_pilots": method.pilot.count, "estimated_bytes": needed}
        # What cannot fit fails at once, and is better tried than guessed.
        fails_soon = method.is_at_once and needed is not None and needed > available_memory(points.device)
        if predicted > limit and not fails_soon:
            yield {"status": EXTRAPOLATED, "extrapolated": True, "seconds": predicted, "peak_bytes": needed}
            yield {"spread": timed.spread, "repeats": timed.repeats}
            return
    if predicted > seconds:
        yield _measure_once(method, points)
        return
    timed = throughput(method.function, points, repeats=repeats, warmup=3, seconds=seconds)
    yield {"seconds": timed.seconds_per_batch, "spread": timed.spread, "repeats": timed.repeats}
    yield {"peak_bytes": peak_memory(method.function, points, warmup=False)}


def _measure_once(method: Method, points: Tensor) -> dict[str, Any]:
    """Measure time and memory in the same call."""
    times = []

    def timed(y: Tensor) -> None:
        _wait(y)
        start = time.perf_counter()
        method.function(y)
        _wait(y)
        times.append(time.perf_counter() - start)

    peak = peak_memory(timed, points, warmup=False)
    return {"seconds": times[0], "repeats": 1, "peak_bytes": peak}


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Let convolutions in float32 use TF32, as is torch's default, or not; matrix products never do."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = name != "float32"
    try:
        with full_precision():
            yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _axes(points: Tensor, count: int) -> Tensor:
    """Return the first axes, at every point."""
    axes = torch.eye(count, points.shape[1], dtype=points.dtype, device=points.device)
    return axes.expand(len(points), -1, -1)


def _wait(points: Tensor) -> None:
    if points.is_cuda:
        torch.cuda.synchronize(points.device)
