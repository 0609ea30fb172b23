"""What one evaluation of each field costs on images, in time and in memory [RMM, Table 1]."""

from __future__ import annotations

import gc
import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import torch
from torch import Tensor, nn

from carre.backend.memory import available_memory
from carre.backend.modes import full_precision
from carre.boundary import is_integer
from carre.fields import NeuralField, ScoreField, SteinField
from carre.metric import AffineFrame
from carre.networks import MetricModel, UNetSettings, build_image_model
from experiments.measures.speed import Throughput, hardware, peak_memory, throughput, wait

PRECISIONS = ("float32", "tf32", "bfloat16")
MATCHING, STEIN = "metric matching", "Stein score"
AT_ONCE, IN_CHUNKS = "full Jacobian, all products at once", "full Jacobian, in chunks"
DECOMPOSED, RANDOMIZED = "full Jacobian with its eigenvalues", "randomized Jacobian"
MEASURED, EXTRAPOLATED, OUT_OF_MEMORY, FAILED = "measured", "extrapolated", "out of memory", "failed"

# Products that the time of all of them is predicted from: enough to keep a GPU busy, few enough for a second.
_MOST_PILOTS, _PILOT_NUMBERS, _PILOT_REPEATS = 256, 2**21, 3
_LARGEST_DECOMPOSED = 4096
_MEMORY_WORDS = ("out of memory", "ALLOC_FAILED", "can't allocate", "not enough memory")


@dataclass(frozen=True)
class CostShape:
    """Images of one shape, and the networks for them.

    Attributes:
        name: What tables call them.
        sample_shape: Channels, height and width.
        rank: Rows of the learned factor, and of the randomized Jacobian.
        network: The sizes of each U-Net.
        batch: How many images at once are useful, beside one.

    Example:
        >>> CostShape("digits", (1, 28, 28), 100, UNetSettings.of_paper("mnist"), 64).dim
        784
    """

    name: str
    sample_shape: tuple[int, int, int]
    rank: int
    network: UNetSettings
    batch: int

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= self.dim:
            raise ValueError(f"rank must lie between 1 and the number of coordinates, {self.dim}; got {self.rank}")
        if self.batch < 2:
            raise ValueError(f"batch must be at least 2, a single image is measured anyway; got {self.batch}")

    @property
    def dim(self) -> int:
        """The number of coordinates D."""
        return math.prod(self.sample_shape)


_PAPER = (
    CostShape("MNIST, 1×28×28", (1, 28, 28), 100, UNetSettings.of_paper("mnist"), 64),
    CostShape("CIFAR-10, 3×32×32", (3, 32, 32), 100, UNetSettings.of_paper("cifar10"), 64),
    CostShape("3×64×64", (3, 64, 64), 128, UNetSettings.of_paper("celeba"), 16),
    CostShape("3×256×256", (3, 256, 256), 256, UNetSettings.of_paper("ffhq"), 2),
)
_TINY = (
    CostShape("1×8×8", (1, 8, 8), 5, UNetSettings(8, (1, 2), 1, (1,)), 4),
    CostShape("3×8×8", (3, 8, 8), 6, UNetSettings(8, (1,), 1, ()), 2),
)


@dataclass(frozen=True)
class CostSettings:
    """What is measured, and how long that may take.

    Attributes:
        shapes: The images; the paper's by default, with its networks and ranks.
        precisions: Of ``"float32"`` (no TF32 anywhere), ``"tf32"`` (torch's default: TF32 in convolutions, not in
            matrix products), ``"bfloat16"`` (`NeuralField.with_mixed_precision`).
        repeats: Timed calls of a field.
        seconds: How long the calls of one field are repeated; a slower one is called once.
        limit: The longest call, in seconds. What would take longer is extrapolated from some of its products.
        bandwidth: σ; it does not matter.
        seed: Of the weights and the points, whose values do not matter either.

    Example:
        >>> [shape.rank for shape in CostSettings().shapes]
        [100, 100, 128, 256]
    """

    shapes: tuple[CostShape, ...] = _PAPER
    precisions: tuple[str, ...] = PRECISIONS
    repeats: int = 20
    seconds: float = 1.0
    limit: float = 8.0
    bandwidth: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        shapes, precisions = (value if isinstance(value, tuple) else () for value in (self.shapes, self.precisions))
        if not shapes or not all(isinstance(shape, CostShape) for shape in shapes):
            raise ValueError(f"shapes must name at least one shape, in a tuple of CostShape; got {self.shapes!r}")
        if not precisions or not set(precisions) <= set(PRECISIONS):
            got = ", ".join(map(str, precisions)) or repr(self.precisions)
            raise ValueError(f"precisions must be among {', '.join(PRECISIONS)}, in a tuple; got {got}")
        if not is_integer(self.repeats) or self.repeats < 1:
            raise ValueError(f"repeats must be at least 1, a whole number; got {self.repeats!r}")
        for name in ("seconds", "limit", "bandwidth"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive, a finite number; got {value!r}")


QUICK_COST = CostSettings(_TINY, ("float32", "bfloat16"), repeats=3, seconds=0.05, limit=1.0)
"""Tiny networks, for a look on any machine within seconds."""


def measure_cost(
    settings: CostSettings,
    *,
    device: str = "cpu",
    report: Callable[[str], None] | None = None,
    save: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Time every field on images of several shapes, and measure its memory beyond the weights.

    Metric matching is one forward pass of the factor network. The baselines share one mean network of the same size:
    the Stein score is one pass of it; the Jacobian takes D products with its derivative, all at once or in chunks, as
    it is or with the eigenvalues that a metric needs; the randomized one takes a multiple of the rank. The weights
    are random, none of them zero: time does not depend on them.

    A cell that runs out of memory, or fails, is recorded as that, and the others follow.

    Args:
        settings: Shapes, precisions, limits.
        device: Where everything runs.
        report: Told in a line what was measured, as it goes.
        save: Given the results so far after every cell, so that an interrupted run is not lost.

    Returns:
        The hardware and versions, the networks' sizes, a row for every cell, and ratios to metric matching.

    Example:
        >>> from experiments.stability.tables import cost_tables
        >>> results = measure_cost(QUICK_COST, report=print)  # doctest: +SKIP
        >>> print(cost_tables(results))  # doctest: +SKIP
    """
    where = torch.device(device)
    results: dict[str, Any] = {
        "hardware": hardware(where),
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "settings": asdict(settings),
        "shapes": [],
        "rows": [],
        "ratios": [],
    }
    tell = report or (lambda line: None)
    for shape in settings.shapes:
        model = _random_model(shape, settings.seed)
        results["shapes"].append(_describe(shape, model))
        for name in settings.precisions:
            for cell in _cells(shape, model, name, settings, where):
                results["rows"].append(cell)
                results["ratios"] = cost_ratios(results["rows"])
                tell(_line(cell))
                if save is not None:
                    save(results)
    return results


def _cells(shape: CostShape, model: MetricModel, name: str, settings: CostSettings, device: torch.device) -> Any:
    """Measure every method on one shape in one precision, one after the other."""
    field = NeuralField(model, AffineFrame(torch.zeros(shape.dim), 1.0), mixed_precision=name == "bfloat16")
    generator = torch.Generator().manual_seed(settings.seed)
    points = torch.randn(shape.batch, shape.dim, generator=generator).to(device)
    for method in methods(field, shape.rank, settings.bandwidth):
        for batch in (1, shape.batch) if method.is_batched else (1,):
            with torch.no_grad(), precision(name):
                cell = measure_cell(method, points[:batch], settings.repeats, settings.seconds, settings.limit)
            yield {"shape": shape.name, "precision": name, **cell}


def _random_model(shape: CostShape, seed: int) -> MetricModel:
    """Build both networks. What starts at zero is made random: products of zeros draw less power, and run faster."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_image_model(shape.sample_shape, shape.rank, spread=1.0, settings=shape.network)
        for weights in model.parameters():
            if weights.ndim > 1 and not bool(weights.any()):
                nn.init.normal_(weights, std=weights[0].numel() ** -0.5)
    return model


def _describe(shape: CostShape, model: MetricModel) -> dict[str, Any]:
    """Record the sizes of the networks, and of the answers."""
    described: dict[str, Any] = {"name": shape.name, "dim": shape.dim, "rank": shape.rank, "batch": shape.batch}
    for name, network in (("factor", model.factor), ("mean", model.mean)):
        assert network is not None
        described[f"{name}_parameters"] = sum(p.numel() for p in network.parameters())
        described[f"{name}_bytes"] = sum(p.numel() * p.element_size() for p in network.parameters())
    return described | {"answer_bytes": 4 * shape.rank * shape.dim, "jacobian_bytes": 4 * shape.dim**2}


def cost_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Divide what the Jacobians cost by what metric matching does, one image at a time, in the same precision.

    Args:
        rows: The cells that were measured.

    Example:
        >>> shared = {"shape": "tiny", "precision": "float32", "batch": 1, "extrapolated": False}
        >>> ours = {"method": MATCHING, "seconds": 0.005, "peak_bytes": 10**6, **shared}
        >>> theirs = {"method": AT_ONCE, "seconds": 0.5, "peak_bytes": 10**9, **shared}
        >>> [(row["times_slower"], row["times_larger"]) for row in cost_ratios([ours, theirs])]
        [(100.0, 1000.0)]
    """
    ours = {(row["shape"], row["precision"]): row for row in rows if row["method"] == MATCHING and row["batch"] == 1}
    ratios = []
    for row in rows:
        base = ours.get((row["shape"], row["precision"]))
        if base is None or row["batch"] != 1 or row["method"] not in (AT_ONCE, IN_CHUNKS, DECOMPOSED, RANDOMIZED):
            continue
        # Without a time of ours there is no multiple of it; a failure is told in the table, and is not one of memory.
        if base.get("seconds") is None or row.get("status") == FAILED:
            continue
        memory = row.get("peak_bytes") or row.get("estimated_bytes")
        ratios.append(
            {name: row[name] for name in ("shape", "precision", "method")}
            | {"times_slower": _quotient(row.get("seconds"), base.get("seconds"))}
            | {"times_larger": _quotient(memory, base.get("peak_bytes")), "extrapolated": row["extrapolated"]}
        )
    return ratios


def _quotient(above: float | int | None, below: float | int | None) -> float | None:
    return above / below if above and below else None


def _line(cell: dict[str, Any]) -> str:
    """Say in a line what was measured."""
    where = f"{cell['shape']}, {cell['precision']}, batch {cell['batch']}: {cell['method']}"
    if cell["seconds"] is None:
        return f"{where}: {cell['status']}"
    memory = "" if cell["peak_bytes"] is None else f", {cell['peak_bytes'] / 1e6:,.1f} MB"
    return f"{where}: {1e3 * cell['seconds']:,.2f} ms{memory}" + (" (extrapolated)" if cell["extrapolated"] else "")


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
        wait(y.device)
        start = time.perf_counter()
        method.function(y)
        wait(y.device)
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
