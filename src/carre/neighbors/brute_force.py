"""Exact search by products, on a CPU or a GPU."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.neighbors.memory import full_precision, working_memory
from carre.neighbors.protocol import Index, Neighbors
from carre.neighbors.refinement import Refinement, merge_found

# Blocks of samples are padded to a multiple of the largest group, by points at infinity.
_LARGEST_GROUP = 64
_SMALLEST_GROUP = 4
# Enough rows for a product to run at full speed; the rest of the memory goes into the width of the block.
_ROWS = {"cuda": 512, "cpu": 64}


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

    def __init__(self, samples: Any, *, memory: int | None = None) -> None:
        super().__init__(samples, memory=memory)
        self._refinement = Refinement(self.samples)
        padded = -(-self.n_samples // _LARGEST_GROUP) * _LARGEST_GROUP
        self._encoded = self.samples.new_zeros((padded, self.dim), dtype=torch.float32)
        for start in range(0, self.n_samples, 2**20):
            rows = self._refinement.encode(self.samples[start : start + 2**20])
            self._encoded[start : start + len(rows)] = rows
        self._norms = self._encoded.square().sum(1)
        self._norms[self.n_samples :] = torch.inf

    @property
    def name(self) -> str:
        """The name of the method, for reports."""
        return "torch"

    def _search(self, queries: Float[Tensor, "q dim"], n_neighbors: int) -> Neighbors:
        found, worst = self._pass(queries, n_neighbors, torch.float32)
        if self._refinement.n_candidates(n_neighbors) == self.n_samples:
            return found
        doubtful = ~self._refinement.is_certain(queries, found, worst)
        if not bool(doubtful.any()):
            return found
        return merge_found(found, self.search_wide(queries[doubtful], n_neighbors), doubtful)

    def search_wide(self, queries: Float[Tensor, "q dim"], n_neighbors: int) -> Neighbors:
        """Search with products in float64, for queries that float32 cannot decide; if need be, by differences."""
        found, worst = self._pass(queries, n_neighbors, torch.float64)
        doubtful = ~self._refinement.is_certain(queries, found, worst, torch.float64)
        if found.indices.shape[1] == self.n_samples or not bool(doubtful.any()):
            return found
        return merge_found(found, self._by_differences(queries[doubtful], n_neighbors), doubtful)

    def _by_differences(self, queries: Float[Tensor, "q dim"], n_neighbors: int) -> Neighbors:
        """Search without products: slow, and right however far apart or close together the samples are."""
        memory = working_memory(queries.device, self.memory)
        cells = max(1, memory // (self.dim * queries.element_size()))
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

    def _pass(
        self, queries: Float[Tensor, "q dim"], n_neighbors: int, dtype: torch.dtype
    ) -> tuple[Neighbors, Float[Tensor, " q"]]:
        """Find the neighbors, and the largest computed |x|² − 2xᵀy among the candidates of each query."""
        memory = working_memory(queries.device, self.memory)
        cells = max(1, memory // dtype.itemsize)
        rows = min(len(queries), _ROWS.get(queries.device.type, _ROWS["cpu"]))
        groups = max(1, min(len(self._encoded), cells // rows) // _LARGEST_GROUP)
        width = groups * _LARGEST_GROUP
        rows = max(1, min(len(queries), cells // width))
        buffer = torch.empty(rows * width, dtype=dtype, device=queries.device)
        found, worst = [], []
        for part in torch.split(queries, rows):
            n_candidates = self._refinement.n_candidates(n_neighbors)
            values, candidates = self._candidates(part, n_candidates, buffer, width)
            found.append(self._refinement.refine(part, candidates, n_neighbors, memory))
            worst.append(values.amax(1))
        indices = torch.cat([part.indices for part in found])
        return Neighbors(indices, torch.cat([part.squared_distances for part in found])), torch.cat(worst)

    def _candidates(
        self, queries: Float[Tensor, "q dim"], n_candidates: int, buffer: Float[Tensor, " cells"], width: int
    ) -> tuple[Float[Tensor, "q c"], Int[Tensor, "q c"]]:
        """Find the smallest |x|² − 2xᵀy over all samples, one block of them at a time."""
        encoded = self._refinement.encode(queries, buffer.dtype)
        values = encoded.new_empty((len(queries), 0))
        indices = torch.empty((len(queries), 0), dtype=torch.long, device=encoded.device)
        for start in range(0, len(self._encoded), width):
            samples, norms = self._block(start, width, buffer.dtype)
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

    def _block(
        self, start: int, width: int, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "width dim"], Float[Tensor, " width"]]:
        """Return encoded samples and their squared norms."""
        block, norms = self._encoded[start : start + width], self._norms[start : start + width]
        if dtype == torch.float32:
            return block, norms
        wide, wide_norms = block.to(dtype), norms.to(dtype)
        encoded = self._refinement.encode(self.samples[start : start + width], dtype)
        wide[: len(encoded)], wide_norms[: len(encoded)] = encoded, encoded.square().sum(1)
        return wide, wide_norms


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
