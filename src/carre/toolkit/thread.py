"""Threads: curves between given points that are drawn tight along the data, fine at their ends and coarse between."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth
from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.endpoints import as_endpoints
from carre.toolkit.path import Path, checked_integer, checked_nodes, examine


@torch.no_grad()
def thread(
    field: MetricField,
    start: Any,
    end: Any,
    bandwidth: Bandwidth,
    *,
    finest: Bandwidth | None = None,
    slope: float = 0.3,
    landing: float = 0.3,
    max_sweeps: int = 40,
    tolerance: float = 0.01,
    n_nodes: int = 17,
    progress: Progress | None = None,
) -> Path:
    """Draw a thread from each start to its end through the data.

    From the straight line, all nodes at once: x ← x + G(x)(x̄ − x) + α(m(x) − x), with x̄ the middle of a node's
    neighbors and m the denoiser; then nodes are spaced evenly again. The first term draws the thread tight, along the
    data only; the second holds it among them. Every node has its own σ: ``finest`` at the ends, growing by ``slope``
    times the distance from the nearer one up to ``bandwidth``. So the given ends, details and all, are joined by what
    the data have in common at the coarser scale. That is for data that are rough at small scales, like images: the
    flow of `interpolate` loses its way to such an end, and a `geodesic` has to follow the roughness. On smooth data it
    is the geodesic, inside of it by the bias of the denoiser, ½σ²|H|.

    Args:
        field: The field; its denoiser is needed.
        start: Where threads start, shape (n, D), or one point for all.
        end: Where they end, as many points, or one for all.
        bandwidth: σ of the middle, one number or one per pair.
        finest: σ at the ends, at most the other; None takes the same everywhere.
        slope: How fast σ grows with the distance from the ends.
        landing: α in (0, 1]. More keeps threads nearer to the middle of the data, and makes them longer.
        max_sweeps: Sweeps at most: a budget, after which rough threads still move a little.
        tolerance: A thread is at rest when no node moves by more than this share of the bandwidth in a sweep.
        n_nodes: Nodes of every thread, ends included.
        progress: Told how far the work is.

    Returns:
        The threads. They start and end where they should; ``arrived`` says whether they came to rest.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> path = thread(ExactField(Sphere(2)), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1)
        >>> path
        Path(paths=1, nodes=17, dim=3, arrived=1, connected=1)
    """
    _check_options(slope, landing, tolerance)
    max_sweeps, n_nodes = checked_integer(max_sweeps, name="max_sweeps", least=1), checked_nodes(n_nodes)
    ends = as_endpoints(field, start, end, bandwidth, names=("start", "end"))
    fine = ends.bandwidth if finest is None else _checked_finest(finest, ends.start)
    if bool((fine > ends.bandwidth).any()):
        raise ValueError(f"finest must be at most the bandwidth, {bandwidth}; got {finest}")

    def part(a: Tensor, b: Tensor, coarse: Tensor, fine: Tensor) -> tuple[Tensor, ...]:
        nodes = Path.through(torch.stack([a, b], 1)).resample(n_nodes).nodes
        moving = (
            torch.ones_like(coarse, dtype=torch.bool) if n_nodes > 2 else torch.zeros_like(coarse, dtype=torch.bool)
        )
        for _ in range(max_sweeps):
            rows = moving.nonzero()[:, 0]
            if len(rows) == 0:
                break
            swept = _sweep(field, nodes[rows], coarse[rows], fine[rows], slope, landing)
            moved = torch.linalg.vector_norm(swept - nodes[rows], dim=-1).amax(1)
            nodes = nodes.index_copy(0, rows, swept)
            moving = moving.index_copy(0, rows, moved > tolerance * coarse[rows])
        connected, strayed = examine(field, nodes, coarse)
        return nodes, ~moving, connected, strayed

    nodes, arrived, connected, strayed = in_parts(
        part, ends.start, ends.end, ends.bandwidth, fine, numbers_per_item=64 * n_nodes * field.dim, progress=progress
    )
    flags = zip(arrived.tolist(), connected.tolist(), strayed.tolist(), strict=True)
    return Path(nodes, arrived, connected, strayed, tuple(_reason(*flag, max_sweeps) for flag in flags))


def _sweep(
    field: MetricField,
    nodes: Float[Tensor, "paths nodes dim"],
    coarse: Float[Tensor, " paths"],
    fine: Float[Tensor, " paths"],
    slope: float,
    landing: float,
) -> Float[Tensor, "paths nodes dim"]:
    """Draw the inner nodes tight and onto the data, all at once, and space them evenly."""
    inner = nodes[:, 1:-1]
    from_ends = torch.minimum(*(torch.linalg.vector_norm(inner - nodes[:, [end]], dim=-1) for end in (0, -1)))
    sigma = torch.minimum(torch.maximum(slope * from_ends, fine[:, None]), coarse[:, None]).flatten()
    points, middles = inner.flatten(0, 1), (0.5 * (nodes[:, :-2] + nodes[:, 2:])).flatten(0, 1)
    tension = field.metric(points, sigma).apply(middles - points)
    pulled = points + tension + landing * (field.denoise(points, sigma) - points)
    moved = torch.cat([nodes[:, :1], pulled.reshape(inner.shape), nodes[:, -1:]], 1)
    return Path.through(moved).resample(nodes.shape[1]).nodes


def _reason(arrived: bool, connected: bool, strayed: float, max_sweeps: int) -> str:
    if not connected:
        return f"leaves the data, by up to {strayed:.1f}σ: they may be in pieces, or σ too small to see across"
    return "" if arrived else f"still moving after max_sweeps={max_sweeps}. Increase it"


def _checked_finest(finest: Any, points: Float[Tensor, "paths dim"]) -> Float[Tensor, " paths"]:
    try:
        return as_bandwidth(finest, points)
    except ValueError as error:
        raise ValueError(str(error).replace("bandwidth", "finest", 1)) from error


def _check_options(slope: Any, landing: Any, tolerance: Any) -> None:
    numbers = {"slope": slope, "landing": landing, "tolerance": tolerance}
    for name, value in numbers.items():
        if not (isinstance(value, Real) and 0 < float(value) < math.inf):
            raise ValueError(f"{name} must be a positive number; got {value!r}")
    if landing > 1:
        raise ValueError(f"landing must be at most 1; got {landing}")
