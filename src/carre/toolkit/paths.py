"""Paths between points: one verb, and the methods that it knows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend import Progress
from carre.boundary import ArgumentError, as_bandwidth, checked_integer
from carre.fields import Bandwidth, DataField, MetricField
from carre.toolkit.geodesic import EnergyGeodesic, Geodesic
from carre.toolkit.landing import land, lengths, pull
from carre.toolkit.path import Path, checked_nodes, draw_curves, evenly_spaced, examine, leaving, rows_of
from carre.toolkit.question import Pairs, ask_pairs, check_number

# The flow stands still where it moves by less than this share of the way that is left (per unit of time).
_STANDSTILL = 1e-3
# In units of σ: nearer to its end than this, a field does not know where it is.
_RESOLVED = 0.5


@runtime_checkable
class PathMethod(Protocol):
    """A way to draw curves between points: a record of its options that can draw. Your own serves as well.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> @dataclass(frozen=True)
        ... class OverThePole:
        ...     default_nodes = 3
        ...     def draw(self, pairs, n_nodes, progress=None):
        ...         pole = torch.zeros_like(pairs.start)
        ...         pole[:, -1] = 1.0
        ...         return Path.through(torch.stack([pairs.start, pole, pairs.end], 1)).resample(n_nodes)
        >>> path(ExactField(Sphere(1)), [[1.0, 0.0]], [[-1.0, 0.0]], 0.1, method=OverThePole()).numpy()
        array([[[ 1.,  0.],
                [ 0.,  1.],
                [-1.,  0.]]])
    """

    @property
    def default_nodes(self) -> int:
        """Nodes of every curve where the caller does not say how many."""
        ...

    def draw(self, pairs: Pairs, n_nodes: int, progress: Progress | None = None) -> Path:
        """Draw curves between pairs of points that were checked, ends included; tell how far the work is."""
        ...


@torch.no_grad()
def path(
    field: MetricField | DataField,
    start: Any,
    end: Any,
    bandwidth: Bandwidth | None = None,
    *,
    method: str | PathMethod = "geodesic",
    n_nodes: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Draw curves between pairs of points, along the data.

    Args:
        field: The field.
        start: Where curves start, shape (n, D), or one point for all.
        end: Where they end, as many points, or one for all.
        bandwidth: σ, one number or one per pair; None takes the default of a `carre.Geometry`.
        method: "geodesic", the shortest curve on the data (`Geodesic`); "flow", the paper's flow towards the end
            (`Flow`); "thread", for images and other data that are rough at small scales (`Thread`); "straight", for
            comparison (`Straight`); "energy", the curve of least energy in the metric (`EnergyGeodesic`). Or one of
            these records, with other options than the defaults; or your own (`PathMethod`).
        n_nodes: Nodes of every curve, ends included, at equal distances; None takes 17 for threads, 33 for others.
        progress: Told how far the work is.

    Returns:
        The curves: tensors on the device of ``start``. They know whether they arrived, and stay on the data.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> sphere, start, end = ExactField(Sphere(2)), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]
        >>> path(sphere, start, end, 0.1).length()
        tensor([1.5708], dtype=torch.float64)
        >>> path(sphere, start, end, 0.1, method=Flow(step=0.2), n_nodes=9)
        Path(paths=1, nodes=9, dim=3, arrived=1, connected=1)
    """
    chosen: Any = PATH_METHODS[method]() if isinstance(method, str) and method in PATH_METHODS else method
    if isinstance(chosen, type) or not isinstance(chosen, PathMethod):
        names = ", ".join(map(repr, PATH_METHODS))
        raise ArgumentError("method", f"be one of {names}, or a record like Flow(step=0.2)", got=repr(method))
    count = checked_nodes(chosen.default_nodes if n_nodes is None else n_nodes)
    pairs = ask_pairs(field, start, end, bandwidth)
    drawn = chosen.draw(pairs, count, progress).to(pairs.given.tensor.device).in_units(pairs.given.units)
    return replace(drawn, columns=pairs.columns)


@dataclass(frozen=True)
class Straight:
    """The straight line, through the ambient space.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> line = path(ExactField(Sphere(2)), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.05, method=Straight())
        >>> line.connected, line.reasons[0]
        (tensor([False]), "leaves the data, by up to 5.9σ. Use method='geodesic'")
    """

    default_nodes: ClassVar[int] = 33

    def draw(self, pairs: Pairs, n_nodes: int, progress: Progress | None = None) -> Path:
        """Draw the lines, and ask the field whether they stay on the data."""

        def part(a: Tensor, b: Tensor, s: Tensor) -> tuple[Tensor, ...]:
            nodes = evenly_spaced(torch.stack([a, b], 1), n_nodes)
            return nodes, torch.ones_like(s, dtype=torch.bool), *examine(pairs.field, nodes, s)

        ends = pairs.start, pairs.end, pairs.bandwidth
        return draw_curves(pairs, part, self._reason, *ends, n_nodes=n_nodes, progress=progress)

    def _reason(self, arrived: bool, connected: bool, strayed: float) -> str:
        return "" if connected else f"{leaving(strayed)}. Use method='geodesic'"


@dataclass(frozen=True)
class Flow:
    """The paper's flow from each start towards its end along the data [RMM, Sec. 4.4].

    x ← x − η[(1−δ)G(x) + δI](x − b), then x ← x + α(I − G)(m(x) − x), where b is the end, landed, and the denoiser m
    is freed of its bias [THEORY §4.6]. The flow walks straight ahead as far as the data allow, and stops where they
    run across the way, P(x − b) = 0: on a Swiss roll, between sheets. It is not a geodesic. Paths that ``arrived`` end
    exactly at their ends; the others where they stopped, for a reason that ``reasons`` tells.

    Attributes:
        step: η, below 2.
        shortcut: δ in [0, 1]: a share of motion straight through the ambient space.
        landing: α in [0, 1]: the share of the way back onto the data that follows each step; 0 needs no denoiser.
        max_steps: Steps at most.
        tolerance: A path has arrived at this share of the initial distance from its end, or at half a σ.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> path(ExactField(Sphere(2)), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1, method=Flow(step=0.2))
        Path(paths=1, nodes=33, dim=3, arrived=1, connected=1)
    """

    step: float = 0.1
    shortcut: float = 0.0
    landing: float = 0.5
    max_steps: int = 500
    tolerance: float = 0.01

    default_nodes: ClassVar[int] = 33

    def __post_init__(self) -> None:
        check_number(self.step, "lie between 0 and 2, where the flow is stable", lambda x: 0 < x < 2, name="step")
        for name in ("shortcut", "landing"):
            check_number(getattr(self, name), "lie between 0 and 1", lambda x: 0 <= x <= 1, name=name)
        check_number(self.tolerance, "lie between 0 and 1", lambda x: 0 < x < 1, name="tolerance")
        checked_integer(self.max_steps, name="max_steps", least=1)

    def draw(self, pairs: Pairs, n_nodes: int, progress: Progress | None = None) -> Path:
        """Follow the flow from all starts at once."""
        field = pairs.field

        def part(x: Tensor, b: Tensor, s: Tensor) -> tuple[Tensor, ...]:
            # An end that lies off the data can be approached as far as the data go.
            goal = b if self.landing == 0 else land(field, b, s)
            trace, arrived, stuck = self._follow(field, x, goal, s)
            share = lengths(goal - trace[-1]) / lengths(goal - x).clamp_min(torch.finfo(x.dtype).tiny)
            trace.append(torch.where(arrived[:, None], b, trace[-1]))
            nodes = evenly_spaced(torch.stack(trace, 1), n_nodes)
            return nodes, arrived, *examine(field, nodes, s), stuck, share

        ends = pairs.start, pairs.end, pairs.bandwidth
        numbers = (self.max_steps + 64 + 8 * n_nodes) * field.dim
        return draw_curves(pairs, part, self._reason, *ends, n_nodes=n_nodes, progress=progress, numbers=numbers)

    def _follow(
        self, field: MetricField, points: Float[Tensor, "p dim"], goal: Float[Tensor, "p dim"], sigma: Tensor
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Take steps until all have arrived, or are stuck; return all points, and which did which."""
        trace, whole = [points], lengths(goal - points)
        arrived, stuck = whole == 0, torch.zeros_like(whole, dtype=torch.bool)
        going = ~arrived
        for rows in rows_of(going, self.max_steps):
            before = trace[-1][rows]
            moved = self._move(field, before, goal[rows], sigma[rows])
            trace.append(trace[-1].index_copy(0, rows, moved))
            left = lengths(goal - trace[-1])
            arrived = left <= torch.maximum(self.tolerance * whole, _RESOLVED * sigma)
            stuck[rows] = lengths(moved - before) / self.step <= _STANDSTILL * left[rows]
            going.copy_(~(arrived | stuck))
        return trace, arrived, stuck

    def _move(
        self, field: MetricField, points: Float[Tensor, "p dim"], goal: Float[Tensor, "p dim"], sigma: Tensor
    ) -> Float[Tensor, "p dim"]:
        """Take one step towards the goal, and one back onto the data."""
        way, share = points - goal, self.shortcut
        points = points - self.step * ((1 - share) * field.metric(points, sigma).apply(way) + share * way)
        if self.landing == 0:
            return points
        back = pull(field, points, sigma)
        # At an edge the denoiser also pulls along the data, away from the edge; that part is not wanted.
        return points + self.landing * (back - field.metric(points, sigma).apply(back))

    def _reason(self, arrived: bool, connected: bool, strayed: float, stuck: bool, left: float) -> str:
        if arrived:
            return "" if connected else "arrived, but leaves the data on the way: between nodes there is a gap"
        if not math.isfinite(left):
            return leaving(left)
        if stuck:
            return (
                f"stuck at {left:.0%} of the initial distance: the data run across the straight way to the end. "
                "Use method='geodesic', with samples where sheets are close"
            )
        return f"still at {left:.0%} of the initial distance after max_steps={self.max_steps}. Increase it, or step"


@dataclass(frozen=True)
class Thread:
    """A thread from each start to its end, drawn tight along the data, fine at its ends and coarse between.

    From the straight line, all nodes at once: x ← x + G(x)(x̄ − x) + α(m(x) − x), with x̄ the middle of a node's
    neighbors and m the denoiser; then nodes are spaced evenly again. The first term draws the thread tight, along the
    data only; the second holds it among them. Every node has its own σ: ``finest`` at the ends, growing by ``slope``
    times the distance from the nearer one up to the bandwidth. So the given ends, details and all, are joined by what
    the data have in common at the coarser scale. That is for data that are rough at small scales, like images: a
    `Flow` loses its way to such an end, and a `Geodesic` has to follow the roughness. On smooth data it is the
    geodesic, inside of it by the bias of the denoiser, ½σ²|H|. Threads start and end where they should; ``arrived``
    says whether they came to rest.

    Attributes:
        finest: σ at the ends, one number or one per pair, at most the bandwidth. None takes the smallest σ that a
            `carre.Geometry` was trained on; of other fields the bandwidth, the same everywhere.
        slope: How fast σ grows with the distance from the ends.
        landing: α in (0, 1]. More keeps threads nearer to the middle of the data, and makes them longer.
        max_sweeps: Sweeps at most: a budget, after which rough threads still move a little.
        tolerance: A thread is at rest when no node moves by more than this share of the bandwidth in a sweep.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> path(ExactField(Sphere(2)), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1, method=Thread(finest=0.05))
        Path(paths=1, nodes=17, dim=3, arrived=1, connected=1)
    """

    finest: Bandwidth | None = None
    slope: float = 0.3
    landing: float = 0.3
    max_sweeps: int = 40
    tolerance: float = 0.01

    default_nodes: ClassVar[int] = 17

    def __post_init__(self) -> None:
        for name in ("slope", "landing", "tolerance"):
            check_number(getattr(self, name), "be a positive number", lambda x: 0 < x < math.inf, name=name)
        check_number(self.landing, "be at most 1", lambda x: x <= 1, name="landing")
        checked_integer(self.max_sweeps, name="max_sweeps", least=1)

    def draw(self, pairs: Pairs, n_nodes: int, progress: Progress | None = None) -> Path:
        """Draw all threads at once, until they are at rest."""

        def part(a: Tensor, b: Tensor, fine: Tensor, coarse: Tensor) -> tuple[Tensor, ...]:
            nodes = evenly_spaced(torch.stack([a, b], 1), n_nodes)
            moving = torch.full_like(coarse, n_nodes > 2, dtype=torch.bool)
            for rows in rows_of(moving, self.max_sweeps):
                swept = self._sweep(pairs.field, nodes[rows], coarse[rows], fine[rows])
                moving[rows] = lengths(swept - nodes[rows]).amax(1) > self.tolerance * coarse[rows]
                nodes[rows] = swept
            return nodes, ~moving, *examine(pairs.field, nodes, coarse)

        ends = pairs.start, pairs.end, self._finest_of(pairs), pairs.bandwidth
        return draw_curves(pairs, part, self._reason, *ends, n_nodes=n_nodes, progress=progress)

    def _finest_of(self, pairs: Pairs) -> Float[Tensor, " pairs"]:
        if self.finest is None:
            smallest = pairs.asked.bandwidth_range[0] if isinstance(pairs.asked, DataField) else math.inf
            return pairs.bandwidth.clamp_max(smallest)
        fine = as_bandwidth(self.finest, pairs.start, name="finest")
        if bool((fine > pairs.bandwidth).any()):
            raise ArgumentError("finest", f"be at most the bandwidth, {pairs.bandwidth.min():g}", got=self.finest)
        return fine

    def _sweep(
        self, field: MetricField, nodes: Float[Tensor, "p nodes dim"], coarse: Tensor, fine: Tensor
    ) -> Float[Tensor, "p nodes dim"]:
        """Draw the inner nodes tight and onto the data, all at once, and space them evenly."""
        inner = nodes[:, 1:-1]
        from_ends = torch.minimum(lengths(inner - nodes[:, :1]), lengths(inner - nodes[:, -1:]))
        sigma = torch.minimum(torch.maximum(self.slope * from_ends, fine[:, None]), coarse[:, None]).flatten()
        points, middles = inner.flatten(0, 1), (0.5 * (nodes[:, :-2] + nodes[:, 2:])).flatten(0, 1)
        tension = field.metric(points, sigma).apply(middles - points)
        pulled = points + tension + self.landing * (field.denoise(points, sigma) - points)
        return evenly_spaced(torch.cat([nodes[:, :1], pulled.reshape(inner.shape), nodes[:, -1:]], 1), nodes.shape[1])

    def _reason(self, arrived: bool, connected: bool, strayed: float) -> str:
        if not connected:
            return f"{leaving(strayed)}: they may be in pieces, or σ too small to see across"
        return "" if arrived else f"still moving after max_sweeps={self.max_sweeps}. Increase it"


PATH_METHODS: dict[str, Callable[[], PathMethod]] = {
    "geodesic": Geodesic,
    "flow": Flow,
    "thread": Thread,
    "straight": Straight,
    "energy": EnergyGeodesic,
}
"""The methods that `path` knows by their names."""
