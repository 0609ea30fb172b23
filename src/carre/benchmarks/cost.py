"""What one evaluation of each field costs on images, in time and in memory [RMM, Table 1]."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import torch
from torch import nn

from carre.benchmarks.cost_cells import (
    AT_ONCE,
    DECOMPOSED,
    FAILED,
    IN_CHUNKS,
    MATCHING,
    PRECISIONS,
    RANDOMIZED,
    measure_cell,
    methods,
    precision,
)
from carre.boundary import is_integer
from carre.fields import NeuralField
from carre.metric import AffineFrame
from carre.networks import MetricModel, UNetSettings, build_image_model
from carre.networks.convolution import Convolution


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
        >>> from carre.benchmarks import QUICK_COST, cost_tables
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
        for module in model.modules():
            if isinstance(module, Convolution) and not bool(module.weight.any()):
                nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
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


def hardware(device: str | torch.device) -> str:
    """Name what is measured on, so that rows of another machine are told apart."""
    where = torch.device(device)
    return torch.cuda.get_device_name(where) if where.type == "cuda" else f"{torch.get_num_threads()} CPU threads"


def _line(cell: dict[str, Any]) -> str:
    """Say in a line what was measured."""
    where = f"{cell['shape']}, {cell['precision']}, batch {cell['batch']}: {cell['method']}"
    if cell["seconds"] is None:
        return f"{where}: {cell['status']}"
    memory = "" if cell["peak_bytes"] is None else f", {cell['peak_bytes'] / 1e6:,.1f} MB"
    return f"{where}: {1e3 * cell['seconds']:,.2f} ms{memory}" + (" (extrapolated)" if cell["extrapolated"] else "")
