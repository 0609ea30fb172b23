"""Shortest ways over samples: where geodesics start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.neighbors import NeighborIndex, build_index
from carre.neighbors.memory import working_memory
from carre.neighbors.protocol import checked_count
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.landing import land
from carre.toolkit.path import Path

# Eigenvalues far above the ridge count as tangent, also the 0.36 across an edge of the data; those far below as normal.
_RIDGE = 0.05
# An edge at more than 30° to the tangent space is doubted, and taken only where there is no other way.
_LARGEST_SINE = 0.5
_DOUBT = 100.0


@dataclass(frozen=True, eq=False)
class SampleGraph:
    """Samples on the data, joined to their nearest neighbors; edges that leave the data count a hundredfold.

    Build it with `sample_graph`; give it to `geodesic` and its relatives in place of the samples where it serves more
    than once.

    Attributes:
        field: The field.
        bandwidth: σ.
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

    field: MetricField
    bandwidth: float
    n_neighbors: int
    index: NeighborIndex
    weights: Any

    @torch.no_grad()
    def curves(
        self, start: Float[Tensor, "p dim"], end: Float[Tensor, "p dim"], n_nodes: int
    ) -> tuple[Float[Tensor, "p nodes dim"], Bool[Tensor, " p"]]:
        """Find the shortest ways between pairs of points, as polygons with equally spaced nodes.

        Returns:
            The nodes, and whether there is a way; where there is none, the polygon is the straight line.
        """
        near, routes = self._are_neighbors(start, end), self._routes(start, end)
        pairs = zip(near.tolist(), routes, strict=True)
        direct = [[] if is_near or route is None else route for is_near, route in pairs]
        longest = max(map(len, direct))
        # Routes are padded by their ends: resampling does not see segments without length.
        padded = torch.tensor([route + [-1] * (longest - len(route)) for route in direct], device=start.device)
        samples = self.index.samples.to(start)

        def part(first: Tensor, last: Tensor, route: Tensor) -> Tensor:
            middle = torch.where((route >= 0)[..., None], samples[route.long().clamp_min(0)], last[:, None])
            return Path.through(torch.cat([first[:, None], middle, last[:, None]], 1)).resample(n_nodes).nodes

        nodes = in_parts(part, start, end, padded, numbers_per_item=4 * (longest + n_nodes) * self.field.dim)
        return nodes, near | torch.tensor([route is not None for route in routes], device=start.device)

    def _are_neighbors(self, start: Float[Tensor, "p dim"], end: Float[Tensor, "p dim"]) -> Bool[Tensor, " p"]:
        """Tell which pairs are joined by an edge of their own: as near as the nearest samples, and along the data."""
        reach = self.index.search(start, self.n_neighbors).squared_distances[:, -1].sqrt().to(start)
        return self._lengths(start, end, torch.arange(len(end), device=end.device)[:, None])[:, 0] <= reach

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
        k = chosen.shape[1]

        def part(x: Tensor, near: Tensor) -> Tensor:
            there, sigma = others[near], x.new_full((len(x) * k,), self.bandwidth)
            forward = _edge_lengths(self.field, x, sigma[: len(x)], there)
            backward = _edge_lengths(self.field, there.flatten(0, 1), sigma, x.repeat_interleave(k, 0)[:, None])
            return torch.maximum(forward, backward.reshape(forward.shape))

        lengths: Tensor = in_parts(part, points, chosen, numbers_per_item=64 * (1 + k) * self.field.dim)
        return lengths

    def _with_ends(self, starts: Float[Tensor, "s dim"], ends: Float[Tensor, "e dim"]) -> Any:
        """Add vertices for starts, with edges to the nearest samples, and for ends, with edges from them."""
        from scipy.sparse import coo_array  # noqa: PLC0415  (slow to import)

        points = torch.cat([starts, ends])
        sigma = as_bandwidth(self.bandwidth, points)
        landed = in_parts(lambda x, s: land(self.field, x, s), points, sigma, numbers_per_item=16 * self.field.dim)
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
    field: MetricField, samples: Any, bandwidth: Bandwidth, *, n_neighbors: int = 12, progress: Progress | None = None
) -> SampleGraph:
    """Join samples to their nearest neighbors, once for many geodesics.

    The samples are moved onto the data first. An edge counts its Euclidean length, and a hundred times that where it
    is at more than 30° to the tangent space: such an edge is a short circuit between sheets, or samples are sparse.

    Args:
        field: The field.
        samples: Samples of the data, thousands rather than millions.
        bandwidth: σ.
        n_neighbors: To how many samples each is joined.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> circle = Sphere(1).sample(100, generator=torch.Generator().manual_seed(0))
        >>> sample_graph(ExactField(Sphere(1)), circle, 0.1, n_neighbors=5).weights.shape
        (100, 100)
    """
    from scipy.sparse import coo_array  # noqa: PLC0415  (slow to import)

    tensor = as_points(samples, dim=field.dim, name="samples").tensor.detach()
    if len(tensor) < 2:
        raise ValueError(f"samples must be at least 2, to be joined; got {len(tensor)}")
    n_neighbors = checked_count(n_neighbors, len(tensor) - 1)
    sigma = as_bandwidth(bandwidth, tensor)
    landed = in_parts(lambda x, s: land(field, x, s), tensor, sigma, numbers_per_item=16 * field.dim)
    index = build_index(landed)
    # One more, since a sample is its own nearest neighbor; edges to itself are never taken.
    found = index.search(landed, n_neighbors + 1).indices
    lengths = in_parts(
        lambda x, s, near: _edge_lengths(field, x, s, landed[near]),
        landed,
        sigma,
        found,
        numbers_per_item=(64 + 4 * n_neighbors) * field.dim,
        progress=progress,
    )
    here = torch.arange(len(tensor), device=found.device).repeat_interleave(n_neighbors + 1)
    lengths, there = lengths.flatten(), found.flatten()
    # Where only one of two samples is among the nearest of the other, the edge is also asked at its other end.
    one_way = ~torch.isin(here * len(tensor) + there, there * len(tensor) + here)
    if bool(one_way.any()):
        lengths[one_way] = torch.maximum(
            lengths[one_way],
            in_parts(
                lambda i, j: _edge_lengths(field, landed[j], sigma[j], landed[i, None])[:, 0],
                here[one_way],
                there[one_way],
                numbers_per_item=64 * field.dim,
            ),
        )
    ends = (here.cpu().numpy(), there.cpu().numpy())
    weights = coo_array((lengths.double().cpu().numpy(), ends), shape=(len(tensor), len(tensor))).tocsr()
    return SampleGraph(field, float(sigma.median()), n_neighbors, index, weights.maximum(weights.T))


def as_graph(
    field: MetricField, samples: Any, bandwidth: Float[Tensor, " p"], like: Float[Tensor, "n dim"]
) -> SampleGraph:
    """Accept a graph, or build one from samples at the median scale of the pairs."""
    if isinstance(samples, SampleGraph):
        if samples.index.dim != field.dim:
            raise ValueError(f"samples must have {field.dim} columns; got a graph in dimension {samples.index.dim}")
        return samples
    tensor = as_points(samples, dim=field.dim, name="samples").tensor.to(like)
    return sample_graph(field, tensor, float(bandwidth.median()), n_neighbors=min(12, len(tensor) - 1))


def _edge_lengths(
    field: MetricField,
    points: Float[Tensor, "n dim"],
    bandwidth: Float[Tensor, " n"],
    others: Float[Tensor, "n k dim"],
) -> Float[Tensor, "n k"]:
    """Compute |d| for edges along the data, a hundredfold for edges that leave them.

    λdᵀ(G + λI)⁻¹d/|d|² is the squared sine of the angle between d and the tangent space, while λ is far from the
    eigenvalues of G. Asked at the point and not halfway: between two sheets G is largest across them.
    """
    edges = others - points[:, None]
    factor = field.metric(points, bandwidth).factor
    inner = torch.einsum("nrd,nkd->nrk", factor, edges)
    small = factor @ factor.mT + _RIDGE * torch.eye(factor.shape[1]).to(factor)
    explained = (inner * torch.linalg.solve(small, inner)).sum(1)
    squared = edges.square().sum(-1)
    doubtful = squared - explained > _LARGEST_SINE**2 * squared
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
