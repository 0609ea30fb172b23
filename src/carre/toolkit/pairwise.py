"""Distances along the data, between all pairs of two sets of points."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.backend import Progress
from carre.backend.memory import check_room
from carre.boundary import ArgumentError
from carre.fields import Bandwidth, DataField, MetricField
from carre.toolkit.geodesic import Geodesic, foot_points, land_inner, warn_of_moving
from carre.toolkit.graph import SampleGraph, graph_for
from carre.toolkit.landing import lengths
from carre.toolkit.path import arcs, checked_nodes, stay
from carre.toolkit.question import accepted, ask

# A distance, which pair it is of, whether it was found, and the samples on its way.
_BYTES_PER_PAIR = 400
# The nodes of a curve whose length alone is asked for: as few as follow it, by at most so many radians from chord to
# chord. At half a radian a length is right to 1e-4 or so.
_NODES, _MOST_TURNING = (9, 17, 33), 0.5
# More pairs go over the samples, unless geodesics are asked for; some are drawn beside, to see how far off that is.
_FEW, _N_COMPARED, _LARGEST_DEVIATION = 1000, 32, 0.02
# Of those, pairs with hardly a sample between them whose way bends are drawn, the most bent ones.
_FEW_BETWEEN, _MOST_NEAR, _NEAR_SWEEPS = 3, 64, 20


@torch.no_grad()
def distances(
    field: MetricField | DataField,
    points: Any,
    others: Any = None,
    bandwidth: Bandwidth | None = None,
    *,
    method: str | None = None,
    samples: Any = None,
    n_nodes: int | None = None,
    dimension: int | None = None,
    max_sweeps: int = 200,
    tolerance: float = 1e-4,
    progress: Progress | None = None,
) -> Any:
    """Compute the geodesic distances between all pairs of two sets of points, shape (n, m).

    Points off the data count as their foot points: the way onto the data adds nothing.

    Args:
        field: The field; its denoiser is needed.
        points: Points on the data, shape (n, D).
        others: Other points, shape (m, D); None takes the distances among ``points``, each pair once.
        bandwidth: σ, one number; None takes the default of a `carre.Geometry`.
        method: "geodesic", the ``length`` of the `path` between each pair; "graph", that of the shortest way over the
            samples, straightened by their tangent spaces: the field is asked at samples and points, not for each pair.
            None draws geodesics for up to 1,000 pairs, or without samples, and goes over the graph for more: it then
            draws those near pairs, with hardly a sample between them, whose ways bend most, compares 32 pairs with
            their geodesics, and warns where these differ by more than 2 % in the mean.
        samples: Samples of the data, or a `sample_graph` of them; see `Geodesic`.
        n_nodes: Nodes of every curve; None takes 9, 17 or 33 for each pair, by how much its way turns.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ along each curve.
        max_sweeps: Sweeps at most.
        tolerance: Relative change of the energy at rest; half of it is left of the length.
        progress: Told how far the work is.

    Returns:
        The distances; infinity where no connected curve was found. Warns where curves were still shortening.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> axes = torch.eye(3, dtype=torch.float64)
        >>> distances(ExactField(Sphere(2)), axes[:1], axes[1:], 0.1)
        tensor([[1.5708, 1.5708]], dtype=torch.float64)
    """
    geodesic = Geodesic(samples, dimension, max_sweeps, tolerance)
    counts = _NODES if n_nodes is None else (checked_nodes(n_nodes),)
    question = ask(field, points, bandwidth, task="distances").detached()
    sigma = question.bandwidth[:1]
    if bool((question.bandwidth != sigma).any()):
        raise ArgumentError("bandwidth", "be one number for all pairs", got=bandwidth)
    goals = question.given if others is None else accepted(field, others, name="others")
    placed = question.points if others is None else goals.tensor.detach().to(question.points)
    n_pairs = len(question.points) * len(placed)
    remedy = "Ask for the distances to fewer others at a time"
    check_room(_BYTES_PER_PAIR * n_pairs, placed.device, name="points", what=f"{n_pairs:,} distances", remedy=remedy)
    if method not in (None, "geodesic", "graph"):
        raise ArgumentError("method", "be 'geodesic' or 'graph', or None", got=repr(method))
    first = second = foot_points(question, question.points, question.bandwidth, dimension)
    if others is not None:
        second = foot_points(question, placed, sigma.expand(len(placed)), dimension)
    graph = graph_for(question, samples)
    if method == "graph" and graph is None:
        raise ArgumentError("samples", "be given, to go over them by method='graph'", got="None")
    found = first.new_zeros(len(first), len(second))
    rows, columns = torch.ones_like(found).triu(1 if others is None else -len(first)).nonzero().T
    if len(rows) == 0:
        return question.given.restore_between(found, goals)
    routes, weights = rows.new_empty((len(rows), 0)), first.new_zeros(len(rows))
    if graph is not None:
        routes, weights = graph.routes(first, second, rows, columns)
    over_samples = method == "graph" or (method is None and graph is not None and len(rows) > _FEW)
    ways = _Ways(question.field, graph, geodesic, counts, over_samples)

    def part(i: Tensor, j: Tensor, route: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return ways.lengths(first[i], second[j], sigma.expand(len(i)), route, weight)

    numbers = 64 * counts[-1] * question.field.dim
    found[rows, columns], is_moving = question.compute(
        part, rows, columns, routes, weights, numbers=numbers, points_per_item=4 * counts[-1], progress=progress
    )
    warn_of_moving(is_moving, max_sweeps)
    if over_samples and method is None:
        drawn = replace(ways, over_samples=False)

        def shortest(some: Tensor, drawn: _Ways = drawn) -> Tensor:
            i, j = rows[some], columns[some]
            return drawn.lengths(first[i], second[j], sigma.expand(len(i)), routes[some], weights[some])[0]

        # Near pairs have no samples between them that a way could take: they are drawn.
        bends = found[rows, columns] / lengths(first[rows] - second[columns])
        is_near = ((routes >= 0).sum(1) <= _FEW_BETWEEN) & bends.isfinite() & (bends > 1 + _LARGEST_DEVIATION)
        near = torch.where(is_near, bends, 0.0).topk(min(_MOST_NEAR, len(rows))).indices
        near = near[is_near[near]]
        if len(near) > 0:
            few = replace(drawn, geodesic=replace(geodesic, max_sweeps=min(max_sweeps, _NEAR_SWEEPS)))
            found[rows[near], columns[near]] = torch.minimum(found[rows[near], columns[near]], shortest(near, few))
        some = torch.linspace(0, len(rows) - 1, _N_COMPARED, device=rows.device).long()
        _warn_of_deviation(found[rows[some], columns[some]], shortest(some))
    return question.given.restore_between(torch.maximum(found, found.mT) if others is None else found, goals)


def _warn_of_deviation(found: Float[Tensor, " p"], shortest: Float[Tensor, " p"]) -> None:
    known = found.isfinite() & shortest.isfinite() & (shortest > 0)
    off = float((found[known] / shortest[known] - 1).abs().mean()) if bool(known.any()) else 0.0
    if off > _LARGEST_DEVIATION:
        warnings.warn(
            f"distances are lengths of ways over samples, which differ from geodesics by {off:.1%} in the mean of "
            f"{int(known.sum())} pairs that were compared. method='geodesic' takes longer, and is exact; "
            "method='graph' is without this comparison",
            UserWarning,
            stacklevel=4,
        )


@dataclass(frozen=True, eq=False)
class _Ways:
    """Ways between pairs of points, with as many nodes as each needs: over samples, or shortened on the data."""

    field: MetricField
    graph: SampleGraph | None
    geodesic: Geodesic
    counts: tuple[int, ...]
    over_samples: bool

    def lengths(
        self, start: Tensor, end: Tensor, sigma: Tensor, route: Tensor, weight: Tensor
    ) -> tuple[Float[Tensor, " p"], Bool[Tensor, " p"]]:
        """Compute the lengths, infinite where nothing connects, and say which curves are still shortening."""
        # Landing rounds otherwise in another company.
        is_same = lengths(start - end) < math.sqrt(torch.finfo(start.dtype).eps) * sigma
        reached, is_moving = torch.where(is_same, 0.0, torch.inf).to(start), torch.zeros_like(is_same)
        is_left = weight.isfinite() & ~is_same
        for count in self.counts:
            rows = is_left.nonzero()[:, 0]
            if len(rows) == 0:
                break
            way = (start[rows], end[rows]), sigma[rows], route[rows]
            nodes = self.geodesic.first_curves(self.field, self.graph, *way, count)
            length, turning = arcs(nodes)
            # Where a way turns by more from chord to chord, it is drawn again with more nodes.
            fits = (turning < _MOST_TURNING) | (count == self.counts[-1])
            is_left[rows[fits]] = False
            rows, nodes = rows[fits], nodes[fits]
            reached[rows] = length[fits]
            if self.over_samples and self.graph is not None:
                # Only where an edge may leave the data the field is asked whether the way does.
                doubtful = self.graph.doubtful(start[rows], end[rows], route[rows], weight[rows])
                rows, nodes = rows[doubtful], nodes[doubtful]
            if len(rows) > 0:
                nodes, arrived = land_inner(self.field, nodes, sigma[rows]), torch.ones_like(is_same[rows])
                if not self.over_samples:
                    sweeps = self.geodesic.max_sweeps
                    nodes, arrived = self.geodesic.shorten(self.field, nodes, sigma[rows], sweeps, for_length=True)
                connected = stay(self.field, nodes, sigma[rows])
                reached[rows] = torch.where(connected, arcs(nodes)[0], torch.inf)
                is_moving[rows] = connected & ~arrived
        return reached, is_moving
