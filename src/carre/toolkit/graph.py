"""Shortest ways over samples: where geodesics start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.backend import Progress, in_parts, working_memory
from carre.boundary import ArgumentError
from carre.fields import Bandwidth, DataField, MetricField
from carre.neighbors import NeighborIndex, build_index
from carre.neighbors.index import checked_count
from carre.toolkit.landing import land
from carre.toolkit.path import evenly_spaced
from carre.toolkit.question import Question, accepted, ask, bare, samples_of

# Eigenvalues far above the ridge count as tangent, also the 0.36 across an edge of the data; those far below as normal.
_RIDGE = 0.05
# An edge at more than 30° to the tangent space is doubted, and taken only where there is no other way.
_LARGEST_SINE = 0.5
_DOUBT = 100.0
_N_NEIGHBORS = 12


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

    @property
    def bandwidth(self) -> float:
        """The median of σ."""
        return float(self.question.bandwidth.median())

    @torch.no_grad()
    def curves(
        self, start: Float[Tensor, "p dim"], end: Float[Tensor, "p dim"], n_nodes: int
    ) -> tuple[Float[Tensor, "p nodes dim"], Bool[Tensor, " p"]]:
        """Find the shortest ways between pairs of points, as evenly spaced polygons, and whether there is one.

        Where there is none, the polygon is the straight line.
        """
        # Pairs as near as the nearest samples, and along the data, are joined by an edge of their own.
        reach = self.index.search(start, self.n_neighbors).squared_distances[:, -1].sqrt().to(start)
        near = self._lengths(start, end, torch.arange(len(end), device=end.device)[:, None])[:, 0] <= reach
        routes = self._routes(start, end)
        pairs = zip(near.tolist(), routes, strict=True)
        direct = [[] if is_near or route is None else route for is_near, route in pairs]
        longest = max(map(len, direct))
        # Routes are padded by their ends: resampling does not see segments without length.
        padded = torch.tensor([route + [-1] * (longest - len(route)) for route in direct], device=start.device)
        samples = self.index.samples.to(start)

        def part(first: Tensor, last: Tensor, route: Tensor) -> Tensor:
            middle = torch.where((route >= 0)[..., None], samples[route.long().clamp_min(0)], last[:, None])
            return evenly_spaced(torch.cat([first[:, None], middle, last[:, None]], 1), n_nodes)

        nodes = in_parts(part, start, end, padded, numbers_per_item=4 * (longest + n_nodes) * start.shape[1])
        return nodes, near | torch.tensor([route is not None for route in routes], device=start.device)

    def _routes(self, start: Float[Tensor, "p dim"], end: Float[Tensor, "p dim"]) -> list[list[int] | None]:
        """Find the samples on the shortest way of every pair; None where there is none."""
        from scipy.sparse.csgraph import dijkstra  # noqa: PLC0415  (slow to import)

        starts, start_of = torch.unique(start, dim=0, return_inverse=True)
        ends, end_of = torch.unique(end, dim=0, return_inverse=True)
        graph, n_samples = self._with_ends(starts, ends), self.index.n_samples
        source, target = start_of.cpu().numpy(), end_of.cpu().numpy() + n_samples + len(starts)
        routes: list[list[int] | None] = [None] * len(start)
        size = max(1, working_memory(torch.device("cpu")) // (12 * graph.shape[0]))
        for first in range(0, len(starts), size):
            sources = n_samples + np.arange(first, min(first + size, len(starts)))
            _, before = dijkstra(graph, indices=sources, return_predecessors=True)
            for pair in np.flatnonzero((source >= first) & (source < first + size)):
                routes[pair] = _route(before[source[pair] - first], int(target[pair]))
        return routes

    def _lengths(
        self, points: Float[Tensor, "n dim"], others: Float[Tensor, "m dim"], chosen: Int[Tensor, "n k"]
    ) -> Float[Tensor, "n k"]:
        """Measure the edges from each point to those that are chosen for it, asked at both of their ends."""
        k, field = chosen.shape[1], self.question.field

        def part(x: Tensor, near: Tensor) -> Tensor:
            there, sigma = others[near], x.new_full((len(x) * k,), self.bandwidth)
            forward = _edge_lengths(field, x, sigma[: len(x)], there)
            backward = _edge_lengths(field, there.flatten(0, 1), sigma, x.repeat_interleave(k, 0)[:, None])
            return torch.maximum(forward, backward.reshape(forward.shape))

        lengths: Tensor = self.question.compute(part, points, chosen, points_per_item=1 + k)
        return lengths

    def _with_ends(self, starts: Float[Tensor, "s dim"], ends: Float[Tensor, "e dim"]) -> Any:
        """Add vertices for starts, with edges to the nearest samples, and for ends, with edges from them."""
        from scipy.sparse import coo_array  # noqa: PLC0415  (slow to import)

        points = torch.cat([starts, ends])
        sigma = points.new_full((len(points),), self.bandwidth)
        landed = self.question.compute(partial(land, self.question.field), points, sigma)
        found = self.index.search(landed, self.n_neighbors).indices
        lengths = self._lengths(landed, self.index.samples.to(points), found)
        total = self.index.n_samples + len(points)
        vertices = np.repeat(np.arange(self.index.n_samples, total), self.n_neighbors)
        samples, is_start = found.flatten().cpu().numpy(), vertices < self.index.n_samples + len(starts)
        inner = self.weights.tocoo()
        rows = np.concatenate([inner.row, np.where(is_start, vertices, samples)])
        columns = np.concatenate([inner.col, np.where(is_start, samples, vertices)])
        data = np.concatenate([inner.data, lengths.flatten().double().cpu().numpy()])
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

    def part(x: Tensor, s: Tensor, near: Tensor) -> Tensor:
        return _edge_lengths(field, x, s, landed[near])

    numbers = (64 + 4 * n_neighbors) * field.dim
    lengths = question.compute(part, landed, sigma, found, numbers=numbers, progress=progress).flatten()
    here = torch.arange(count, device=found.device).repeat_interleave(n_neighbors + 1)
    there = found.flatten()
    # Where only one of two samples is among the nearest of the other, the edge is also asked at its other end.
    one_way = ~torch.isin(here * count + there, there * count + here)
    if bool(one_way.any()):
        backward = question.compute(
            lambda i, j: _edge_lengths(field, landed[j], sigma[j], landed[i, None])[:, 0], here[one_way], there[one_way]
        )
        lengths[one_way] = torch.maximum(lengths[one_way], backward)
    ends = (here.cpu().numpy(), there.cpu().numpy())
    weights = coo_array((lengths.double().cpu().numpy(), ends), shape=(count, count)).tocsr()
    # The bare field is asked for ways, without progress bars within those of curves.
    return SampleGraph(replace(question, asked=bare(question.asked)), n_neighbors, index, weights.maximum(weights.T))


def _edge_lengths(
    field: MetricField, points: Tensor, bandwidth: Tensor, others: Float[Tensor, "n k dim"]
) -> Float[Tensor, "n k"]:
    """Compute |d| for edges along the data, a hundredfold for edges that leave them.

    λdᵀ(G + λI)⁻¹d/|d|² is the squared sine of the angle between d and the tangent space, while λ is far from the
    eigenvalues of G. Asked at the point and not halfway: between two sheets G is largest across them.
    """
    edges = others - points[:, None]
    across = _RIDGE * field.metric(points, bandwidth).with_ridge(_RIDGE).solve(edges)
    squared = edges.square().sum(-1)
    doubtful = (edges * across).sum(-1) > _LARGEST_SINE**2 * squared
    # A length of zero would be no edge at all.
    return squared.sqrt().clamp_min(torch.finfo(squared.dtype).eps) * torch.where(doubtful, _DOUBT, 1.0)


def _route(before: np.ndarray, vertex: int) -> list[int] | None:
    """Follow predecessors from an end to its start: the samples between, or None where the end was not reached."""
    route, vertex = [], int(before[vertex])
    if vertex < 0:
        return None
    while before[vertex] >= 0:
        route.append(vertex)
        vertex = int(before[vertex])
    return route[::-1]
