"""Shortest ways over samples: where geodesics start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from carre.backend import Progress, in_parts, working_memory
from carre.boundary import ArgumentError
from carre.fields import Bandwidth, DataField, MetricField
from carre.metric import Metric
from carre.neighbors import NeighborIndex, build_index
from carre.neighbors.index import checked_count
from carre.toolkit.landing import land, lengths
from carre.toolkit.path import evenly_spaced, stay
from carre.toolkit.question import Question, accepted, ask, bare, samples_of
from carre.toolkit.tangent import TANGENT_ABOVE, straightening_step

# Eigenvalues far above the ridge count as tangent, also the 0.36 across an edge of the data; those far below as normal.
_RIDGE = 0.05
# An edge at more than 30° to the tangent space is doubted, and taken only where there is no other way.
_LARGEST_SINE = 0.5
_HEAVY = 1.01
_DOUBT = 100.0
_N_NEIGHBORS = 12
_STRAIGHTENINGS = 2
# Bridges from a component to the nearest samples beside it; parts of fewer samples than the largest hundred stay apart.
_BRIDGES, _MOST_COMPONENTS = 4, 100
# Between two parts of the data the metric is larger along the way than 1, its value along the data.
_LARGEST_ALONG, _ALONG = 1.5, [k / 10 for k in range(1, 10)]
# The tangent directions of all samples take no more; of images only the leading ones are kept.
_MOST_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class SampleGraph:
    """Samples on the data, joined to their nearest neighbors; edges that leave the data count a hundredfold.

    Build it with `sample_graph`; give it to a `Geodesic` and its relatives in place of the samples where it serves
    more than once.

    Attributes:
        question: The field, the samples, and σ.
        n_neighbors: To how many samples each is joined.
        index: The samples, moved onto the data, ready to be searched.
        weights: The lengths of the edges, a symmetric sparse matrix of SciPy.
        bases: Tangent directions at the samples, by which ways over them are straightened.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> samples = Sphere(1).sample(100, generator=torch.Generator().manual_seed(0))
        >>> graph = sample_graph(ExactField(Sphere(1)), samples, 0.1)
        >>> nodes, is_joined = graph.curves(samples[:1], samples[1:2], 20)
        >>> nodes.shape, is_joined
        (torch.Size([1, 20, 2]), tensor([True]))
    """

    question: Question
    n_neighbors: int
    index: NeighborIndex
    weights: Any
    bases: Float[Tensor, "n dim d"]

    @property
    def bandwidth(self) -> float:
        """The median of σ."""
        return float(self.question.bandwidth.median())

    @torch.no_grad()
    def curves(
        self, start: Float[Tensor, "p dim"], end: Float[Tensor, "p dim"], n_nodes: int
    ) -> tuple[Float[Tensor, "p nodes dim"], Bool[Tensor, " p"]]:
        """Find the shortest ways between pairs of points, straightened and evenly spaced, and whether there is one.

        Where there is none, the curve is the straight line.
        """
        routes, weights = self.routes(*unique_pairs(start, end))

        def part(first: Tensor, last: Tensor, route: Tensor) -> Tensor:
            return self.along(first, last, route, n_nodes)

        numbers = 4 * (routes.shape[1] + n_nodes) * start.shape[1]
        return in_parts(part, start, end, routes, numbers_per_item=numbers), weights.isfinite()

    def routes(
        self, starts: Float[Tensor, "s dim"], ends: Float[Tensor, "e dim"], i: Int[Tensor, " p"], j: Int[Tensor, " p"]
    ) -> tuple[Int[Tensor, "p longest"], Float[Tensor, " p"]]:
        """Find the samples on the shortest way of every pair, behind some −1, and its weight: ∞ where there is none."""
        # Pairs as near as the nearest samples, and along the data, are joined by an edge of their own.
        reach = self.index.search(starts, self.n_neighbors).squared_distances[:, -1].sqrt().to(starts)[i]
        chords = self.question.compute(lambda i, j: lengths(starts[i] - ends[j]), i, j)
        direct = chords <= reach
        rows = direct.nonzero()[:, 0]
        if len(rows) > 0:
            direct[rows] = self._lengths(starts[i[rows]], ends, j[rows, None])[:, 0] <= reach[rows]
        found, weights = self._routes(starts, ends, i.cpu().numpy(), j.cpu().numpy())
        routes = torch.as_tensor(found, device=i.device).long().masked_fill(direct[:, None], -1)
        return routes, torch.where(direct, chords, torch.from_numpy(weights).to(chords))

    def along(
        self, start: Float[Tensor, "p dim"], end: Float[Tensor, "p dim"], route: Int[Tensor, "p longest"], n_nodes: int
    ) -> Float[Tensor, "p nodes dim"]:
        """Draw the polygons over samples, evenly spaced, and straighten them by the tangent spaces of the samples.

        A shortest way over samples zigzags. One step of Newton's method takes out what would be zigzag on flat data;
        what is left is of second order in how far the way was from straight. A way that would leave the samples by
        more than its longest edge stays as it was: there may be a gap.
        """
        is_sample, corners = route >= 0, self._corners(start, end, route)
        nodes = evenly_spaced(corners, n_nodes)
        if route.shape[1] == 0 or n_nodes < 3:
            return nodes
        reached = lengths(corners.diff(dim=1)).cumsum(1)
        halfway = ((reached[:, 1:-1] + reached[:, :-2]) / 2).contiguous()
        moments = torch.linspace(0, 1, n_nodes, dtype=start.dtype, device=start.device)[1:-1]
        nearest = torch.searchsorted(halfway, (moments * reached[:, -1:]).contiguous())
        # In front of the first sample there is none.
        nearest = torch.maximum(nearest, is_sample.byte().argmax(1)[:, None])
        bases = self.bases.to(start)[route.gather(1, nearest).clamp_min(0)] * is_sample.any(1)[:, None, None, None]
        straight = nodes
        for _ in range(_STRAIGHTENINGS):
            move, share = straightening_step(straight, bases)
            inner = straight[:, 1:-1] + move / share.clamp_min(1.0)[:, None, None]
            straight = torch.cat([nodes[:, :1], inner, nodes[:, -1:]], 1)
        found = self.index.search(straight[:, 1:-1].flatten(0, 1), 1).squared_distances
        away = found.reshape(len(nodes), -1).amax(1).sqrt().to(nodes)
        stays = away <= lengths(corners.diff(dim=1)).amax(1)
        return torch.where(stays[:, None, None], straight, nodes)

    def _corners(self, start: Tensor, end: Tensor, route: Tensor) -> Float[Tensor, "p corners dim"]:
        known = self.index.samples.to(start)[route.clamp_min(0)]
        inner = torch.where((route >= 0)[..., None], known, start[:, None])
        return torch.cat([start[:, None], inner, end[:, None]], 1)

    def doubtful(
        self, start: Tensor, end: Tensor, route: Int[Tensor, "p longest"], weights: Float[Tensor, " p"]
    ) -> Bool[Tensor, " p"]:
        """Say on which ways there is an edge that may leave the data: they weigh more than they are long."""
        return weights > _HEAVY * lengths(self._corners(start, end, route).diff(dim=1)).sum(-1)

    def _routes(self, starts: Tensor, ends: Tensor, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the shortest ways by Dijkstra's algorithm, once for every start."""
        from scipy.sparse.csgraph import dijkstra  # noqa: PLC0415  (slow to import)

        graph, n_samples = self._with_ends(starts, ends), self.index.n_samples
        size = max(1, working_memory(torch.device("cpu")) // (12 * graph.shape[0]))
        routes, weights = np.full((len(i), 0), -1, dtype=np.int32), np.empty(len(i))
        for first in range(0, len(starts), size):
            sources = np.arange(first, min(first + size, len(starts)))
            reached, before = dijkstra(graph, indices=n_samples + sources, return_predecessors=True)
            pairs = np.flatnonzero((i >= first) & (i <= sources[-1]))
            rows, target = i[pairs] - first, j[pairs] + n_samples + len(starts)
            weights[pairs], at = reached[rows, target], before[rows, target]
            columns: list[np.ndarray] = []
            # From all ends back to their starts at once.
            while (is_sample := (at >= 0) & (at < n_samples)).any():
                columns.append(np.where(is_sample, at, -1))
                at = np.where(is_sample, before[rows, np.where(is_sample, at, 0)], -1)
            routes = np.pad(routes, ((0, 0), (max(0, len(columns) - routes.shape[1]), 0)), constant_values=-1)
            if columns:
                routes[pairs, -len(columns) :] = np.stack(columns[::-1], 1)
        return routes, weights

    def _lengths(
        self, points: Float[Tensor, "n dim"], others: Float[Tensor, "m dim"], chosen: Int[Tensor, "n k"]
    ) -> Float[Tensor, "n k"]:
        """Measure the edges from each point to those that are chosen for it, asked at both of their ends."""
        k, field = chosen.shape[1], self.question.field

        def part(x: Tensor, near: Tensor) -> Tensor:
            there, sigma = others[near], x.new_full((len(x) * k,), self.bandwidth)
            back = there.flatten(0, 1)
            forward = _edge_lengths(field.metric(x, sigma[: len(x)]), x, there)
            backward = _edge_lengths(field.metric(back, sigma), back, x.repeat_interleave(k, 0)[:, None])
            return torch.maximum(forward, backward.reshape(forward.shape))

        found: Tensor = self.question.compute(part, points, chosen, points_per_item=1 + k)
        return found

    def _with_ends(self, starts: Float[Tensor, "s dim"], ends: Float[Tensor, "e dim"]) -> Any:
        """Add vertices for starts, with edges to the nearest samples, and for ends, with edges from them."""
        from scipy.sparse import coo_array  # noqa: PLC0415  (slow to import)

        points = torch.cat([starts, ends])
        sigma = points.new_full((len(points),), self.bandwidth)
        landed = self.question.compute(partial(land, self.question.field), points, sigma)
        found = self.index.search(landed, self.n_neighbors).indices
        edges = self._lengths(landed, self.index.samples.to(points), found)
        total = self.index.n_samples + len(points)
        vertices = np.repeat(np.arange(self.index.n_samples, total), self.n_neighbors)
        samples, is_start = found.flatten().cpu().numpy(), vertices < self.index.n_samples + len(starts)
        inner = self.weights.tocoo()
        rows = np.concatenate([inner.row, np.where(is_start, vertices, samples)])
        columns = np.concatenate([inner.col, np.where(is_start, samples, vertices)])
        data = np.concatenate([inner.data, edges.flatten().double().cpu().numpy()])
        return coo_array((data, (rows, columns)), shape=(total, total)).tocsr()


@torch.no_grad()
def sample_graph(
    field: MetricField | DataField,
    samples: Any,
    bandwidth: Bandwidth | None = None,
    *,
    n_neighbors: int = _N_NEIGHBORS,
    progress: Progress | None = None,
) -> SampleGraph:
    """Join samples to their nearest neighbors, once for many geodesics.

    The samples are moved onto the data first. An edge counts its Euclidean length, and a hundred times that where it
    is at more than 30° to the tangent space: such an edge is a short circuit between sheets, or samples are sparse.

    Args:
        field: The field; its denoiser is needed.
        samples: Samples of the data, thousands rather than millions.
        bandwidth: σ, one number or one per sample; None takes the default of a `carre.Geometry`.
        n_neighbors: To how many samples each is joined.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> circle = Sphere(1).sample(100, generator=torch.Generator().manual_seed(0))
        >>> sample_graph(ExactField(Sphere(1)), circle, 0.1, n_neighbors=5).weights.shape
        (100, 100)
    """
    question = ask(field, samples, bandwidth, name="samples", task="graph of samples").detached()
    return _joined(question, n_neighbors, progress)


def graph_for(question: Question, samples: Any) -> SampleGraph | None:
    """Return the graph that curves start from: given, made of samples, or kept by the field, which has one for each σ.

    At the median scale of the question. None, where no samples are known, for straight lines.
    """
    sigma = question.bandwidth
    if samples is None:
        is_one = bool((sigma == sigma[0]).all())
        samples = samples_of(question.asked, float(sigma[0]) if is_one else None)
    elif not isinstance(samples, SampleGraph):
        samples = accepted(question.asked, samples, name="samples").tensor.detach()
    if samples is None:
        return None
    if isinstance(samples, SampleGraph):
        if samples.index.dim != question.field.dim:
            got = f"a graph in dimension {samples.index.dim}"
            raise ArgumentError("samples", f"have {question.field.dim} columns", got=got)
        return samples
    points = samples.to(question.points)
    asked = replace(question, points=points, bandwidth=sigma.median().expand(len(points)))
    return _joined(asked, min(_N_NEIGHBORS, len(points) - 1))


def unique_pairs(start: Float[Tensor, "p dim"], end: Float[Tensor, "p dim"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the different starts and ends of pairs, and which of them each pair has."""
    starts, i = torch.unique(start, dim=0, return_inverse=True)
    ends, j = torch.unique(end, dim=0, return_inverse=True)
    return starts, ends, i, j


def _joined(question: Question, n_neighbors: int, progress: Progress | None = None) -> SampleGraph:
    """Land the samples that a question is about, and measure the edges between neighbors."""
    from scipy.sparse import coo_array  # noqa: PLC0415  (slow to import)

    count, field, sigma = len(question.points), question.field, question.bandwidth
    if count < 2:
        raise ArgumentError("samples", "be at least 2, to be joined", got=count)
    n_neighbors = checked_count(n_neighbors, count - 1)
    landed = question.compute(partial(land, field), question.points, sigma)
    index = build_index(landed)
    # One more, since a sample is its own nearest neighbor; edges to itself are never taken.
    found = index.search(landed, n_neighbors + 1).indices

    width = max(1, min(field.dim, _MOST_BYTES // (count * field.dim * landed.element_size())))

    def part(x: Tensor, s: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        metric = field.metric(x, s)
        spectrum = metric.spectrum()
        bases = spectrum.vectors * (spectrum.values > TANGENT_ABOVE)[:, None]
        bases = nn.functional.pad(bases, (0, max(0, width - bases.shape[-1])))
        return _edge_lengths(metric, x, landed[near]), bases[..., :width]

    numbers = (64 + 4 * n_neighbors) * field.dim
    edges, bases = question.compute(part, landed, sigma, found, numbers=numbers, progress=progress)
    edges = edges.flatten()
    here = torch.arange(count, device=found.device).repeat_interleave(n_neighbors + 1)
    there = found.flatten()
    # Where only one of two samples is among the nearest of the other, the edge is also asked at its other end.
    one_way = ~torch.isin(here * count + there, there * count + here)
    if bool(one_way.any()):
        backward = question.compute(
            lambda i, j: _edge_lengths(field.metric(landed[j], sigma[j]), landed[j], landed[i, None])[:, 0],
            here[one_way],
            there[one_way],
        )
        edges[one_way] = torch.maximum(edges[one_way], backward)
    ends = (here.cpu().numpy(), there.cpu().numpy())
    weights = coo_array((edges.double().cpu().numpy(), ends), shape=(count, count)).tocsr()
    # The bare field is asked for ways, without progress bars within those of curves.
    directions = bases[..., : int(max(1, bases.any(1).sum(-1).max()))].clone()
    asked = replace(question, asked=bare(question.asked))
    return SampleGraph(asked, n_neighbors, index, _bridged(question, landed, weights.maximum(weights.T)), directions)


def _bridged(question: Question, landed: Float[Tensor, "n dim"], weights: Any) -> Any:
    """Join components that the nearest neighbors leave apart by their shortest edges, where these stay on the data.

    Of uneven samples the nearest neighbors are often among themselves. Between parts of the data an edge is a jump, or
    the metric is large along it.
    """
    from scipy.sparse import coo_array  # noqa: PLC0415  (slow to import)
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    while True:
        labels = connected_components(weights, directed=False)[1]
        found: list[Tensor] = []
        for label in np.bincount(labels).argsort()[::-1][1:_MOST_COMPONENTS]:
            inside, outside = (torch.from_numpy(np.flatnonzero(x)) for x in (labels == label, labels != label))
            near = build_index(landed[outside]).search(landed[inside], 1)
            best = near.squared_distances[:, 0].argsort()[:_BRIDGES].cpu()
            found.append(torch.stack([inside[best], outside[near.indices[:, 0].cpu()[best]]]))
        if not found:
            return weights
        i, j = torch.cat(found, 1).to(landed.device)
        ends = torch.stack([landed[i], landed[j]], 1)
        stays = question.compute(partial(_lead_on, question.field), ends, question.bandwidth[i], points_per_item=16)
        if not bool(stays.any()):
            return weights
        chords, pairs = lengths(ends[:, 1] - ends[:, 0])[stays], (i[stays].cpu().numpy(), j[stays].cpu().numpy())
        more = coo_array((chords.double().cpu().numpy(), pairs), shape=weights.shape).tocsr()
        weights = weights.maximum(more).maximum(more.T)


def _lead_on(field: MetricField, ends: Float[Tensor, "n 2 dim"], bandwidth: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Say along which edges the data go on."""
    ways = ends[:, 1] - ends[:, 0]
    along = torch.stack(
        [field.metric(torch.lerp(ends[:, 0], ends[:, 1], share), bandwidth).quadratic_form(ways) for share in _ALONG]
    )
    return stay(field, ends, bandwidth) & (along.amax(0) <= _LARGEST_ALONG * ways.square().sum(-1))


def _edge_lengths(
    metric: Metric, points: Float[Tensor, "n dim"], others: Float[Tensor, "n k dim"]
) -> Float[Tensor, "n k"]:
    """Compute |d| for edges along the data, a hundredfold for edges that leave them.

    λdᵀ(G + λI)⁻¹d/|d|² is the squared sine of the angle between d and the tangent space, while λ is far from the
    eigenvalues of G. Asked at the point and not halfway: between two sheets G is largest across them.
    """
    edges = others - points[:, None]
    across = _RIDGE * metric.with_ridge(_RIDGE).solve(edges)
    squared = edges.square().sum(-1)
    doubtful = (edges * across).sum(-1) > _LARGEST_SINE**2 * squared
    # A length of zero would be no edge at all.
    return squared.sqrt().clamp_min(torch.finfo(squared.dtype).eps) * torch.where(doubtful, _DOUBT, 1.0)
