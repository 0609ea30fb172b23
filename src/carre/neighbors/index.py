"""What a neighbor search takes and returns, and the exact one, by products, on a CPU or a GPU."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.backend.memory import checked_memory, working_memory
from carre.backend.modes import full_precision
from carre.boundary import ArgumentError, as_points, checked_integer

# Blocks of samples are padded to a multiple of the largest group, by points at infinity.
_LARGEST_GROUP = 64
_SMALLEST_GROUP = 4
# Enough rows for a product to run at full speed; the rest of the memory goes into the width of the block.
_ROWS = {"cuda": 512, "cpu": 64}

_N_SCALE = 2**16
# Outliers may be this many times as far as others before they are allowed to make the unit larger: squares in float32
# end at 1e38.
_LEAST_SHARE = 1e-15
_FEWEST_SPARES = 16
_SPARE_SHARE = 8

Queries: TypeAlias = Float[Tensor, "q dim"]


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest samples of every query, nearest first.

    Attributes:
        indices: Which samples.
        squared_distances: Their squared distances, ascending, in the dtype of the samples.

    Example:
        >>> found = Neighbors(torch.tensor([[2, 0]]), torch.tensor([[0.0, 1.0]]))
        >>> found.indices.shape
        torch.Size([1, 2])
    """

    indices: Int[Tensor, "queries k"]
    squared_distances: Float[Tensor, "queries k"]

    def to(self, device: torch.device) -> Neighbors:
        """Move to a device."""
        return Neighbors(self.indices.to(device), self.squared_distances.to(device))


@runtime_checkable
class NeighborIndex(Protocol):
    """Samples that can be asked for those nearest to a query.

    Attributes:
        samples: The samples.
        n_samples: The number of samples.
        dim: The number of coordinates.
        name: The name of the method, for reports.

    Example:
        >>> from carre.neighbors import build_index
        >>> index = build_index([[0.0], [1.0], [5.0]])
        >>> isinstance(index, NeighborIndex), index.n_samples, index.dim
        (True, 3, 1)
        >>> index.search(torch.tensor([[4.0]]), 2).indices
        tensor([[2, 1]])
    """

    samples: Float[Tensor, "n dim"]
    n_samples: int
    dim: int
    name: str

    def search(self, queries: Tensor, n_neighbors: int) -> Neighbors:
        """Find the ``n_neighbors`` samples nearest to every query. The answer is on the queries' device."""
        ...


class Index(ABC):
    """What all indices share: the checks of a search, coordinates in which single precision serves, and exact order.

    |x|² − 2xᵀy loses all digits of a small distance far from the origin [THEORY §6.3], so searches are done on
    centered samples of unit scale, for a few more candidates than asked for; the distances of these are then computed
    from differences, in the dtype of the samples. The samples are kept, not copied.
    """

    name: str

    def __init__(self, samples: Any, *, memory: int | None = None) -> None:
        self.samples: Tensor = as_points(samples, name="samples").tensor.detach()
        self.n_samples, self.dim = self.samples.shape
        self.memory = checked_memory(memory)
        # Medians, of some of the samples: a single fill value of 1e14 would leave a mean no digits for the rest.
        some = self.samples[:: max(1, self.n_samples // _N_SCALE)]
        self._center = some.median(0).values
        distances = torch.linalg.vector_norm(some - self._center, dim=1)
        scale = max(float(distances.median()), _LEAST_SHARE * float(distances.max()))
        self._scale = scale if 0.0 < scale < math.inf else 1.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_samples={self.n_samples}, dim={self.dim}, name={self.name!r})"

    @torch.no_grad()
    def search(self, queries: Tensor, n_neighbors: int) -> Neighbors:
        """Find the ``n_neighbors`` samples nearest to every query. The answer is on the queries' device."""
        points = as_points(queries, dim=self.dim, name="queries").tensor
        if isinstance(n_neighbors, bool):
            raise ArgumentError("n_neighbors", "be an integer", got=n_neighbors)
        n_neighbors = checked_count(n_neighbors, self.n_samples)
        return self._search(points.to(self.samples), n_neighbors).to(points.device)

    @abstractmethod
    def _search(self, queries: Queries, n_neighbors: int) -> Neighbors: ...

    def _encode(self, points: Float[Tensor, "m dim"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "m dim"]:
        """Center points, divide them by the scale of the samples, and round."""
        wide = points.to(torch.promote_types(points.dtype, dtype))
        return ((wide - self._center) / self._scale).to(dtype)

    def _n_candidates(self, n_neighbors: int) -> int:
        """Return how many candidates to look for, so that rounding loses none at the boundary."""
        return min(n_neighbors + n_neighbors // _SPARE_SHARE + _FEWEST_SPARES, self.n_samples)

    def _refine(self, queries: Queries, candidates: Int[Tensor, "q c"], n_neighbors: int) -> Neighbors:
        """Order candidates by their exact distances and keep the nearest."""
        memory = working_memory(queries.device, self.memory)
        size = max(1, memory // (2 * candidates.shape[1] * self.dim * queries.element_size()))
        indices, distances = [], []
        for y, chosen in zip(torch.split(queries, size), torch.split(candidates, size), strict=True):
            squares = (self.samples[chosen] - y[:, None, :]).square_().sum(-1)
            nearest = squares.topk(n_neighbors, largest=False)
            indices.append(chosen.gather(1, nearest.indices))
            distances.append(nearest.values)
        return Neighbors(torch.cat(indices), torch.cat(distances))

    def _doubtful(
        self, queries: Queries, found: Neighbors, worst: Float[Tensor, " q"], dtype: torch.dtype
    ) -> Bool[Tensor, " q"]:
        """Say for which queries rounding may have hidden a neighbor.

        ``worst`` is the largest |x|² − 2xᵀy among a query's candidates, computed in encoded coordinates in ``dtype``.
        In float64, a neighbor that is nearer by less than a millionth counts as a tie: samples on a grid have many.
        """
        norms = torch.linalg.vector_norm(self._encode(queries, torch.float64), dim=1)
        reach = (worst.double() + norms.square()).clamp_min(0)
        error = (2 + math.sqrt(self.dim)) * torch.finfo(dtype).eps * (norms + reach.sqrt()).square()
        furthest = found.squared_distances[:, -1].double() / self._scale**2
        certain: Tensor = reach - error > furthest
        if dtype == torch.float64:
            certain |= error < 1e-6 * furthest
        return ~certain


class TorchIndex(Index):
    """Exact nearest neighbors by brute force, wherever the samples are.

    Distances come from products |x|² − 2xᵀy in float32 of centered samples, block by block; those of the
    nearest candidates are then computed from differences, in the dtype of the samples. A query for
    which rounding might have hidden a neighbor is searched again in float64. Memory beyond one copy of the
    samples in float32 is bounded.

    Args:
        samples: The samples; they stay on their device.
        memory: Bytes that temporary results may take; by default a share of what is free.

    Example:
        >>> index = TorchIndex(torch.tensor([[0.0], [1.0], [5.0]]))
        >>> index.search(torch.tensor([[4.0]]), 2).indices
        tensor([[2, 1]])
    """

    name = "torch"

    def __init__(self, samples: Any, *, memory: int | None = None) -> None:
        super().__init__(samples, memory=memory)
        padded = -(-self.n_samples // _LARGEST_GROUP) * _LARGEST_GROUP
        self._encoded = self.samples.new_zeros((padded, self.dim), dtype=torch.float32)
        for start in range(0, self.n_samples, 2**20):
            rows = self._encode(self.samples[start : start + 2**20])
            self._encoded[start : start + len(rows)] = rows
        self._norms = self._encoded.square().sum(1)
        self._norms[self.n_samples :] = torch.inf

    def _search(self, queries: Queries, n_neighbors: int) -> Neighbors:
        return self._by_products(queries, n_neighbors, torch.float32, self.search_wide)

    def search_wide(self, queries: Queries, n_neighbors: int) -> Neighbors:
        """Search with products in float64, for queries that float32 cannot decide; if need be, by differences."""
        return self._by_products(queries, n_neighbors, torch.float64, self._by_differences)

    def _by_differences(self, queries: Queries, n_neighbors: int) -> Neighbors:
        """Search without products: slow, and right however far apart or close together the samples are."""
        cells = max(1, working_memory(queries.device, self.memory) // (self.dim * queries.element_size()))
        values = queries.new_empty((len(queries), 0))
        indices = torch.empty((len(queries), 0), dtype=torch.long, device=queries.device)
        width = max(1, cells // len(queries))
        for start in range(0, self.n_samples, width):
            block = self.samples[start : start + width]
            squares = torch.stack([(block - query).square().sum(1) for query in queries])
            values = torch.cat([values, squares], 1)
            columns = torch.arange(start, start + len(block), device=queries.device).expand(len(queries), -1)
            indices = torch.cat([indices, columns], 1)
            values, kept = values.topk(min(n_neighbors, values.shape[1]), largest=False)
            indices = indices.gather(1, kept)
        return Neighbors(indices, values)

    def _by_products(
        self, queries: Queries, n_neighbors: int, dtype: torch.dtype, otherwise: Callable[..., Neighbors]
    ) -> Neighbors:
        """Search by |x|² − 2xᵀy, some queries at a time, and otherwise where the precision cannot decide."""
        cells = max(1, working_memory(queries.device, self.memory) // dtype.itemsize)
        rows = min(len(queries), _ROWS.get(queries.device.type, _ROWS["cpu"]))
        width = max(1, min(len(self._encoded), cells // rows) // _LARGEST_GROUP) * _LARGEST_GROUP
        rows = max(1, min(len(queries), cells // width))
        buffer = torch.empty(rows * width, dtype=dtype, device=queries.device)
        n_candidates = self._n_candidates(n_neighbors)
        indices, distances, worst = [], [], []
        for part in torch.split(queries, rows):
            values, candidates = self._candidates(part, n_candidates, buffer, width)
            nearest = self._refine(part, candidates, n_neighbors)
            indices.append(nearest.indices)
            distances.append(nearest.squared_distances)
            worst.append(values.amax(1))
        found = Neighbors(torch.cat(indices), torch.cat(distances))
        if n_candidates == self.n_samples:
            return found
        doubtful = self._doubtful(queries, found, torch.cat(worst), dtype)
        return corrected(found, queries, doubtful, partial(otherwise, n_neighbors=n_neighbors))

    def _candidates(
        self, queries: Queries, n_candidates: int, buffer: Float[Tensor, " cells"], width: int
    ) -> tuple[Float[Tensor, "q c"], Int[Tensor, "q c"]]:
        """Find the smallest |x|² − 2xᵀy over all samples, one block of them at a time."""
        encoded = self._encode(queries, buffer.dtype)
        values = encoded.new_empty((len(queries), 0))
        indices = torch.empty((len(queries), 0), dtype=torch.long, device=encoded.device)
        for start in range(0, len(self._encoded), width):
            rows = slice(start, start + width)
            samples, norms = self._encoded[rows], self._norms[rows]
            if buffer.dtype != torch.float32:
                samples = self._encode(self.samples[rows], buffer.dtype)
                norms = samples.square().sum(1)
            distances = buffer[: len(queries) * len(samples)].view(len(queries), len(samples))
            with full_precision():
                torch.addmm(norms, encoded, samples.mT, alpha=-2, out=distances)
            block_values, block_indices = smallest(distances, min(n_candidates, len(samples)))
            values = torch.cat([values, block_values], 1)
            indices = torch.cat([indices, block_indices + start], 1)
            if values.shape[1] > n_candidates:
                values, kept = values.topk(n_candidates, largest=False, sorted=False)
                indices = indices.gather(1, kept)
        # Where everything overflowed, a point at infinity may have been taken.
        return values, indices.clamp_(max=self.n_samples - 1)


def smallest(values: Float[Tensor, "rows n"], count: int) -> tuple[Float[Tensor, "rows c"], Int[Tensor, "rows c"]]:
    """Find the ``count`` smallest of every row, in no order, reading the row once.

    Columns are dealt into groups. One of the smallest can only lie in a group whose minimum is itself
    among the ``count`` smallest minima, so that a short selection of groups and another of their
    members replace the selection from the whole row, which is several times slower.

    Example:
        >>> smallest(torch.tensor([[3.0, 1.0, 2.0]]), 1)[1]
        tensor([[1]])
    """
    rows, n = values.shape
    size = _LARGEST_GROUP
    while size >= _SMALLEST_GROUP and (n % size or count * size * size > n):
        size //= 2
    if size < _SMALLEST_GROUP:
        selected = values.topk(count, largest=False, sorted=False)
        return selected.values, selected.indices
    groups = values.view(rows, size, n // size)
    chosen = groups.amin(1).topk(count, largest=False, sorted=False).indices
    members = groups.gather(2, chosen[:, None, :].expand(-1, size, -1)).flatten(1)
    selected = members.topk(count, largest=False, sorted=False)
    column = chosen.gather(1, selected.indices % count)
    return selected.values, column + (selected.indices // count) * (n // size)


def corrected(
    found: Neighbors, queries: Queries, doubtful: Bool[Tensor, " q"], search: Callable[[Tensor], Neighbors]
) -> Neighbors:
    """Search again, in another way, for the queries whose answer is doubtful."""
    if not bool(doubtful.any()):
        return found
    better = search(queries[doubtful])
    indices, distances = found.indices.clone(), found.squared_distances.clone()
    indices[doubtful], distances[doubtful] = better.indices, better.squared_distances
    return Neighbors(indices, distances)


def checked_count(n_neighbors: Any, largest: int, *, least: int = 1, reason: str = "") -> int:
    """Check that a number of neighbors is an integer between ``least`` and ``largest``."""
    count = checked_integer(n_neighbors, name="n_neighbors", least=least, reason=reason)
    if count > largest:
        must = f"be at most {largest}, the number of samples to choose from"
        raise ArgumentError("n_neighbors", must, got=count, remedy="Lower n_neighbors or give more samples")
    return count
