"""Interpolation between points: straight, or flowing along the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.endpoints import as_endpoints
from carre.toolkit.landing import land, pull
from carre.toolkit.path import Path, checked_integer, checked_nodes, examine

# The flow stands still where it moves by less than this share of the way that is left (per unit of time).
_STANDSTILL = 1e-3
# In units of σ: nearer to its end than this, a field does not know where it is.
_RESOLVED = 0.5


@torch.no_grad()
def lerp(
    start: Any,
    end: Any,
    n_nodes: int = 33,
    *,
    field: MetricField | None = None,
    bandwidth: Bandwidth | None = None,
) -> Path:
    """Interpolate linearly, through the ambient space.

    Whether the lines stay on the data is known only where a field is given with its bandwidth.

    Args:
        start: Where paths start, shape (n, D), or one point for all.
        end: Where they end, as many points, or one for all.
        n_nodes: Nodes of every path, ends included.
        field: The field that is asked whether the lines stay on the data, or None.
        bandwidth: σ of the field, one number or one per pair.

    Example:
        >>> lerp([[0.0, 0.0]], [[1.0, 2.0]], 3).numpy()
        array([[[0. , 0. ],
                [0.5, 1. ],
                [1. , 2. ]]])
    """
    if (field is None) != (bandwidth is None):
        missing, given = ("field", "bandwidth") if field is None else ("bandwidth", "field")
        raise ValueError(f"{missing} must be given together with {given}, or neither; got None")
    ends = as_endpoints(field, start, end, 1.0 if bandwidth is None else bandwidth, names=("start", "end"))
    path = Path.through(torch.stack([ends.start, ends.end], 1)).resample(n_nodes)
    if field is None:
        return replace(path, reasons=("not examined: give a field and a bandwidth",) * len(path))

    def part(nodes: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        return examine(field, nodes, s)

    connected, strayed = in_parts(part, path.nodes, ends.bandwidth, numbers_per_item=64 * path.n_nodes * field.dim)
    flags = zip(connected.tolist(), strayed.tolist(), strict=True)
    reasons = tuple("" if on else f"leaves the data, by up to {far:.1f}σ. Use geodesic" for on, far in flags)
    return Path(path.nodes, path.arrived, connected, strayed, reasons)


@torch.no_grad()
def interpolate(
    field: MetricField,
    start: Any,
    end: Any,
    bandwidth: Bandwidth,
    *,
    step: float = 0.1,
    ridge: float = 0.0,
    landing: float = 0.5,
    max_steps: int = 500,
    tolerance: float = 0.01,
    n_nodes: int = 33,
    progress: Progress | None = None,
) -> Path:
    """Flow from each start towards its end along the data [RMM, Sec. 4.4].

    x ← x − η[(1−δ)G(x) + δI](x − b), then x ← x + α(I − G)(m(x) − x), where b is the end, landed, and the denoiser m
    is freed of its bias [THEORY §4.6]. The flow walks straight ahead as far as the data allow, and stops where they
    run across the way, P(x − b) = 0: on a Swiss roll, between sheets. It is not a geodesic; for the shortest curve
    use `geodesic`.

    Args:
        field: The field.
        start: Where paths start, shape (n, D), or one point for all.
        end: Where they should end, as many points, or one for all.
        bandwidth: σ, one number or one per pair.
        step: η, below 2.
        ridge: δ in [0, 1]: a share of motion straight through the ambient space.
        landing: α in [0, 1]: the share of the way back onto the data that follows each step; 0 needs no denoiser.
        max_steps: Steps at most.
        tolerance: A path has arrived at this share of the initial distance from its end, or at half a σ.
        n_nodes: Nodes of every path, at equal distances.
        progress: Told how far the work is.

    Returns:
        The paths. Those that ``arrived`` end exactly at their ends; the others where they stopped, for a reason
        that ``reasons`` tells.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> path = interpolate(ExactField(Sphere(2)), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1)
        >>> path
        Path(paths=1, nodes=33, dim=3, arrived=1, connected=1)
    """
    _check_options(step, ridge, landing, tolerance)
    max_steps, n_nodes = checked_integer(max_steps, name="max_steps", least=1), checked_nodes(n_nodes)
    ends = as_endpoints(field, start, end, bandwidth, names=("start", "end"))

    def part(x: Tensor, b: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        # An end that lies off the data can be approached as far as the data go.
        goal = b if landing == 0 else land(field, b, s)
        whole = torch.linalg.vector_norm(goal - x, dim=-1)
        trace = [x]
        arrived, stuck = whole == 0, torch.zeros_like(whole, dtype=torch.bool)
        for _ in range(max_steps):
            rows = (~(arrived | stuck)).nonzero()[:, 0]
            if len(rows) == 0:
                break
            moved = _flow(field, x[rows], goal[rows], s[rows], step, ridge, landing)
            speed = torch.linalg.vector_norm(moved - x[rows], dim=-1) / step
            x = x.index_copy(0, rows, moved)
            left = torch.linalg.vector_norm(goal - x, dim=-1)
            arrived = left <= torch.maximum(tolerance * whole, _RESOLVED * s)
            stuck[rows] = speed <= _STANDSTILL * left[rows]
            trace.append(x)
        trace.append(torch.where(arrived[:, None], b, x))
        nodes = Path.through(torch.stack(trace, 1)).resample(n_nodes).nodes
        connected, strayed = examine(field, nodes, s)
        left = torch.linalg.vector_norm(goal - x, dim=-1) / whole.clamp_min(torch.finfo(x.dtype).tiny)
        return nodes, arrived, connected, strayed, stuck & ~arrived, left

    numbers = (max_steps + 64 + 8 * n_nodes) * field.dim
    nodes, arrived, connected, strayed, stuck, left = in_parts(
        part, ends.start, ends.end, ends.bandwidth, numbers_per_item=numbers, progress=progress
    )
    flags = zip(arrived.tolist(), connected.tolist(), stuck.tolist(), left.tolist(), strict=True)
    return Path(nodes, arrived, connected, strayed, tuple(_reason(*flag, max_steps) for flag in flags))


def _flow(
    field: MetricField, points: Tensor, ends: Tensor, sigma: Tensor, step: float, ridge: float, landing: float
) -> Tensor:
    """Take one step towards the ends, and one back onto the data."""
    way = points - ends
    points = points - step * ((1 - ridge) * field.metric(points, sigma).apply(way) + ridge * way)
    if landing == 0:
        return points
    back = pull(field, points, sigma)
    # At an edge the denoiser also pulls along the data, away from the edge; that part is not wanted.
    return points + landing * (back - field.metric(points, sigma).apply(back))


def _reason(arrived: bool, connected: bool, stuck: bool, left: float, max_steps: int) -> str:
    if arrived:
        return "" if connected else "arrived, but leaves the data on the way: between nodes there is a gap"
    if stuck:
        return (
            f"stuck at {left:.0%} of the initial distance: the data run across the straight way to the end. "
            "Use geodesic, with samples where sheets are close"
        )
    return f"still at {left:.0%} of the initial distance after max_steps={max_steps}. Increase step or max_steps"


def _check_options(step: float, ridge: float, landing: float, tolerance: float) -> None:
    if not 0 < step < 2:
        raise ValueError(f"step must lie between 0 and 2, where the flow is stable; got {step}")
    for name, value in (("ridge", ridge), ("landing", landing)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must lie between 0 and 1; got {value}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1; got {tolerance}")
