"""Curves from one digit to another: the raw flow, and the same completed by a straight leg to its given end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from settings import Method
from torch import Tensor

from carre.fields import MetricField, SteinField
from carre.toolkit import Flow, Path, Thread, path
from carre.toolkit.landing import land, pull

# A flow ends at this share of the initial distance from its goal, or where it moves by less than the other share of
# what is left per unit of time. Those are the rules of `Flow`, which also stops at half a σ.
_TOLERANCE, _STANDSTILL = 0.01, 1e-3
_RESOLVED = 0.5
# Points of a trajectory that are kept; more would fill the memory.
_KEPT = 512


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves between pairs of points.

    Attributes:
        raw: What the method made, nodes at equal distances, shape (pairs, nodes, D). It may stop short of the end.
        nodes: The same with a straight leg to the given end, again at equal distances: every method joins every pair,
            and one that stops early pays for the jump.
        left: Distance of the raw curve's end from the given one, as a share of the initial distance.
        length: Length of the completed curve, in chords.
    """

    raw: Tensor
    nodes: Tensor
    left: Tensor
    length: Tensor

    @classmethod
    def of(cls, trace: Tensor, start: Tensor, end: Tensor, n_nodes: int, left: Tensor | None = None) -> Curves:
        """Complete and resample raw curves; ``left`` is measured at their last point unless it is given."""
        chord = torch.linalg.vector_norm(end - start, dim=-1)
        if left is None:
            left = torch.linalg.vector_norm(end - trace[:, -1], dim=-1) / chord
        whole = Path.through(torch.cat([trace, end[:, None]], 1))
        raw = Path.through(trace).resample(n_nodes).nodes
        return cls(raw, whole.resample(n_nodes).nodes, left, whole.polygon_length() / chord)


def join(field: MetricField, start: Tensor, end: Tensor, method: Method, n_nodes: int) -> Curves:
    """Make curves by a method."""
    if method.metric == "stein":
        field = SteinField(field, strength=method.strength)
    sigma = start.new_full((len(start),), method.bandwidth)
    if method.kind == "lerp":
        return Curves.of(torch.stack([start, end], 1), start, end, n_nodes)
    if method.kind == "flow":
        return Curves.of(trajectory(field, start, end, method), start, end, n_nodes)
    if method.kind == "thread":
        # Its ends are given, and stay; whether it gets from one to the other along the data is what ``connected`` says.
        thread = Thread(method.finest, method.slope, method.landing, max_sweeps=method.max_steps)
        return Curves.of(path(field, start, end, sigma, method=thread, n_nodes=n_nodes).nodes, start, end, n_nodes)
    if method.kind == "geodesic":
        drawn = path(field, start, end, sigma, n_nodes=n_nodes)
        return Curves.of(drawn.nodes, start, end, n_nodes, torch.where(drawn.connected, 0.0, 1.0))
    if method.kind != "interpolate":
        raise ValueError(f"kind must be 'lerp', 'flow', 'thread', 'interpolate' or 'geodesic'; got {method.kind!r}")
    flow = Flow(method.step, method.ridge, method.landing, method.max_steps, _TOLERANCE)
    drawn = path(field, start, end, sigma, method=flow, n_nodes=n_nodes)
    goal = end if method.landing == 0 else land(field, end, sigma)
    chord, whole = (torch.linalg.vector_norm(x - start, dim=-1) for x in (end, goal))
    # Where it has arrived, the last node is the given end. The flow itself was at most this far away.
    most = torch.maximum(_TOLERANCE * whole, _RESOLVED * sigma) + torch.linalg.vector_norm(goal - end, dim=-1)
    stopped = torch.linalg.vector_norm(drawn.nodes[:, -1] - end, dim=-1)
    return Curves.of(drawn.nodes, start, end, n_nodes, torch.where(drawn.arrived, most, stopped) / chord)


@torch.no_grad()
def trajectory(field: MetricField, start: Tensor, end: Tensor, method: Method) -> Tensor:
    """Follow the flow of `carre.toolkit.Flow`, and return where it went, shape (pairs, points, D).

    Nothing is done about the end: `Flow` replaces the last point by it from half a σ on, which would leave
    nothing to measure.
    """
    sigma = start.new_full((len(start),), method.bandwidth)
    landing_sigma = sigma if method.landing_bandwidth is None else torch.full_like(sigma, method.landing_bandwidth)
    goal = end if method.landing == 0 else land(field, end, landing_sigma)
    whole = torch.linalg.vector_norm(goal - start, dim=-1)
    x, trace, moving = start, [start], whole > 0
    stride = -(-method.max_steps // _KEPT)
    for taken in range(1, method.max_steps + 1):
        rows = moving.nonzero()[:, 0]
        if len(rows) == 0:
            break
        moved = _move(field, x[rows], goal[rows], sigma[rows], landing_sigma[rows], method)
        # A flow that blows up stays where it was, and stops.
        moved = torch.where(torch.isfinite(moved).all(-1, keepdim=True), moved, x[rows])
        speed = torch.linalg.vector_norm(moved - x[rows], dim=-1) / method.step
        left = torch.linalg.vector_norm(moved - goal[rows], dim=-1)
        x = x.index_copy(0, rows, moved)
        moving = moving.index_copy(0, rows, (left > _TOLERANCE * whole[rows]) & (speed > _STANDSTILL * left))
        if taken % stride == 0:
            trace.append(x)
    return torch.stack([*trace, x], 1)


def _move(field: MetricField, x: Tensor, goal: Tensor, sigma: Tensor, landing_sigma: Tensor, method: Method) -> Tensor:
    """Take one step towards the goal, and one back onto the data."""
    way = x - goal
    if method.metric == "none":
        x = x - method.step * way
        return x + method.landing * pull(field, x, landing_sigma)
    x = x - method.step * ((1 - method.ridge) * field.metric(x, sigma).apply(way) + method.ridge * way)
    if method.landing == 0:
        return x
    back = pull(field, x, landing_sigma)
    return x + method.landing * (back - field.metric(x, landing_sigma).apply(back))
