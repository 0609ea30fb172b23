"""Search by other libraries, on the CPU (faiss and scikit-learn, imported when first needed), and which to use."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from carre.boundary import ArgumentError
from carre.files import needed
from carre.neighbors.index import Index, NeighborIndex, Neighbors, Queries, TorchIndex, corrected

FAISS_KINDS = ("exact", "hnsw", "ivf")
# faiss wants this many samples per list to place the lists well, and says so on standard error otherwise.
_SAMPLES_PER_LIST = 39
# Of a graph: links per sample, and candidates considered per link while it is built, and kept while it is searched.
_LINKS, _CONSTRUCTION_EFFORT, _SEARCH_EFFORT = 32, 80, 128


class FaissIndex(Index):
    """Nearest neighbors by faiss: exact, or approximate and faster for many samples.

    faiss works in float32. Samples are centered and scaled for it, and the distances of what it finds are
    computed again from differences, in the dtype of the samples. Queries that it cannot answer (fewer
    neighbors found than asked for, or an exact search that rounding may have misled) are searched
    exactly by `TorchIndex`.

    Args:
        samples: The samples.
        kind: "exact", "hnsw" (a navigable graph) or "ivf" (lists around centroids).
        n_lists: Lists; 4√n by default.
        n_probes: Lists that are looked into; a sixteenth of them by default, and at least 16.
        memory: Bytes that temporary results of the refinement may take; by default a share of what is free.

    Example:
        >>> index = FaissIndex(torch.arange(10.0)[:, None])  # doctest: +SKIP
        >>> index.search(torch.tensor([[4.1]]), 2).indices  # doctest: +SKIP
        tensor([[4, 5]])
    """

    def __init__(
        self,
        samples: Any,
        kind: str = "exact",
        *,
        n_lists: int | None = None,
        n_probes: int | None = None,
        memory: int | None = None,
    ) -> None:
        super().__init__(samples, memory=memory)
        if kind not in FAISS_KINDS:
            raise ArgumentError("kind", f"be one of {', '.join(FAISS_KINDS)}", got=repr(kind))
        self.kind = kind
        self.name = "faiss" if kind == "exact" else kind
        largest = max(1, self.n_samples // _SAMPLES_PER_LIST)
        self.n_lists = min(largest, n_lists or math.ceil(4 * math.sqrt(self.n_samples)))
        self.n_probes = min(self.n_lists, n_probes or max(16, self.n_lists // 16))
        self._engine = self._build(import_faiss())

    def _build(self, faiss: ModuleType) -> Any:
        if self.kind == "hnsw":
            engine = faiss.IndexHNSWFlat(self.dim, _LINKS)
            engine.hnsw.efConstruction = _CONSTRUCTION_EFFORT
        elif self.kind == "ivf":
            engine = faiss.IndexIVFFlat(faiss.IndexFlatL2(self.dim), self.dim, self.n_lists)
        else:
            engine = faiss.IndexFlatL2(self.dim)
        encoded = _as_array(self._encode(self.samples))
        engine.train(encoded)
        engine.add(encoded)
        return engine

    @cached_property
    def _fallback(self) -> TorchIndex:
        return TorchIndex(self.samples, memory=self.memory)

    def _search(self, queries: Queries, n_neighbors: int) -> Neighbors:
        n_candidates = self._n_candidates(n_neighbors)
        encoded = self._encode(queries)
        parameters = self._parameters(import_faiss(), n_candidates)
        squares, labels = self._engine.search(_as_array(encoded), n_candidates, params=parameters)
        candidates = torch.from_numpy(labels).to(queries.device)
        found = self._refine(queries, candidates.clamp_min(0), n_neighbors)
        doubtful = (candidates < 0).any(1)
        # An exact search may have been misled by rounding; an approximate one promises nothing.
        if self.kind == "exact" and n_candidates < self.n_samples:
            worst = torch.from_numpy(squares[:, -1]).to(queries.device).double() - encoded.double().square().sum(1)
            doubtful |= self._doubtful(queries, found, worst, torch.float32)
        return corrected(found, queries, doubtful, lambda some: self._fallback.search_wide(some, n_neighbors))

    def _parameters(self, faiss: ModuleType, n_candidates: int) -> Any:
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=max(_SEARCH_EFFORT, 2 * n_candidates))
        if self.kind == "ivf":
            return faiss.SearchParametersIVF(nprobe=self.n_probes)
        return None


class SklearnIndex(Index):
    """Exact nearest neighbors by scikit-learn's brute force.

    Args:
        samples: The samples.
        memory: Bytes that temporary results of the refinement may take; by default a share of what is free.

    Example:
        >>> index = SklearnIndex(torch.tensor([[0.0], [1.0], [5.0]]))
        >>> index.search(torch.tensor([[4.0]]), 2).indices
        tensor([[2, 1]])
    """

    name = "sklearn"

    def __init__(self, samples: Any, *, memory: int | None = None) -> None:
        super().__init__(samples, memory=memory)
        from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

        # In float64: products of float32 would lose neighbors that differences keep.
        encoded = _as_array(self._encode(self.samples, torch.float64))
        self._engine = NearestNeighbors(algorithm="brute").fit(encoded)

    def _search(self, queries: Queries, n_neighbors: int) -> Neighbors:
        encoded = _as_array(self._encode(queries, torch.float64))
        n_candidates = self._n_candidates(n_neighbors)
        labels = self._engine.kneighbors(encoded, n_candidates, return_distance=False)
        candidates: Int[Tensor, "q c"] = torch.from_numpy(labels.astype(np.int64)).to(queries.device)
        return self._refine(queries, candidates, n_neighbors)


_BUILDERS: dict[str, Callable[..., Index]] = {
    "auto": TorchIndex,
    "torch": TorchIndex,
    "faiss": FaissIndex,
    "hnsw": partial(FaissIndex, kind="hnsw"),
    "ivf": partial(FaissIndex, kind="ivf"),
    "sklearn": SklearnIndex,
}
KINDS = tuple(_BUILDERS)


def build_index(samples: Any, kind: str = "auto", *, memory: int | None = None) -> Index:
    """Build an index over samples.

    Args:
        samples: The samples.
        kind: "torch" (exact, where the samples are), "faiss" (exact), "hnsw", "ivf" (approximate, for millions of
            samples on a CPU), "sklearn" (exact), or "auto": torch, the fastest exact search that was
            measured, on a CPU as on a GPU.
        memory: Bytes that temporary results may take; by default a share of what is free.

    Example:
        >>> build_index(torch.zeros(5, 2), "torch")
        TorchIndex(n_samples=5, dim=2, name='torch')
    """
    return _BUILDERS[checked_kind(kind)](samples, memory=memory)


def checked_kind(kind: str) -> str:
    """Check the name of an index, and that what it needs is installed."""
    if kind not in KINDS:
        raise ArgumentError("index", f"be one of {', '.join(KINDS)}, or a NeighborIndex", got=repr(kind))
    if kind in ("faiss", "hnsw", "ivf"):
        import_faiss()
    return kind


def measure_recall(index: NeighborIndex, queries: Tensor, n_neighbors: int) -> float:
    """Measure which share of the true neighbors an index finds. Ties count as found.

    Example:
        >>> samples = torch.arange(10.0)[:, None]
        >>> measure_recall(TorchIndex(samples), samples, 3)
        1.0
    """
    found = index.search(queries, n_neighbors).squared_distances
    truth = TorchIndex(index.samples).search(queries, n_neighbors).squared_distances
    return float((found <= truth[:, -1:] * (1 + 1e-6)).float().mean())


def import_faiss() -> ModuleType:
    """Import faiss, or say how to install it."""
    module: ModuleType = needed("faiss", "faiss must be installed for this index", "knn")
    return module


def _as_array(encoded: Tensor) -> np.ndarray:
    array: np.ndarray = encoded.cpu().contiguous().numpy()
    return array
