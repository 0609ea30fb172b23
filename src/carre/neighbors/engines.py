"""Search by other libraries, on the CPU: faiss and scikit-learn. Both are imported when first needed."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.neighbors.brute_force import TorchIndex
from carre.neighbors.memory import working_memory
from carre.neighbors.protocol import Index, Neighbors
from carre.neighbors.refinement import Refinement, merge_found

FAISS_KINDS = ("exact", "hnsw", "ivf")
# faiss wants this many samples per list to place the lists well, and says so on standard error otherwise.
_SAMPLES_PER_LIST = 39


class FaissIndex(Index):
    """Nearest neighbors by faiss: exact, or approximate and faster for many samples.

    faiss works in float32. Samples are centered and scaled for it, and the distances of what it finds are
    computed again from differences, in the dtype of the samples. Queries that it cannot answer (fewer
    neighbors found than asked for, or an exact search that rounding may have misled) are searched
    exactly by `TorchIndex`.

    Args:
        samples: The samples.
        kind: "exact", "hnsw" (a navigable graph) or "ivf" (lists around centroids).
        n_links: Links per sample of the graph.
        construction_effort: Candidates considered per link while the graph is built.
        search_effort: Candidates kept while the graph is searched; at least twice the number of neighbors.
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
        n_links: int = 32,
        construction_effort: int = 80,
        search_effort: int = 128,
        n_lists: int | None = None,
        n_probes: int | None = None,
        memory: int | None = None,
    ) -> None:
        super().__init__(samples, memory=memory)
        if kind not in FAISS_KINDS:
            raise ValueError(f"kind must be one of {', '.join(FAISS_KINDS)}; got {kind!r}")
        self.kind, self.search_effort = kind, search_effort
        self._refinement = Refinement(self.samples)
        largest = max(1, self.n_samples // _SAMPLES_PER_LIST)
        self.n_lists = min(largest, n_lists or math.ceil(4 * math.sqrt(self.n_samples)))
        self.n_probes = min(self.n_lists, n_probes or max(16, self.n_lists // 16))
        self._engine = self._build(import_faiss(), n_links, construction_effort)
        self._fallback: TorchIndex | None = None

    @property
    def name(self) -> str:
        """The name of the method, for reports."""
        return "faiss" if self.kind == "exact" else self.kind

    def recall(self, queries: Tensor, n_neighbors: int) -> float:
        """Measure the share of true neighbors that are found."""
        return measure_recall(self, queries, n_neighbors)

    def _build(self, faiss: ModuleType, n_links: int, construction_effort: int) -> Any:
        if self.kind == "hnsw":
            engine = faiss.IndexHNSWFlat(self.dim, n_links)
            engine.hnsw.efConstruction = construction_effort
        elif self.kind == "ivf":
            engine = faiss.IndexIVFFlat(faiss.IndexFlatL2(self.dim), self.dim, self.n_lists)
        else:
            engine = faiss.IndexFlatL2(self.dim)
        encoded = _as_array(self._refinement.encode(self.samples))
        engine.train(encoded)
        engine.add(encoded)
        return engine

    def _search(self, queries: Float[Tensor, "q dim"], n_neighbors: int) -> Neighbors:
        n_candidates = self._refinement.n_candidates(n_neighbors)
        encoded = self._refinement.encode(queries)
        squares, labels = self._engine.search(
            _as_array(encoded), n_candidates, params=self._parameters(import_faiss(), n_candidates)
        )
        candidates = torch.from_numpy(labels).to(queries.device)
        missing = (candidates < 0).any(1)
        memory = working_memory(queries.device, self.memory)
        found = self._refinement.refine(queries, candidates.clamp_min(0), n_neighbors, memory)
        doubtful = missing | self._doubtful(queries, found, torch.from_numpy(squares).to(queries.device), encoded)
        if not bool(doubtful.any()):
            return found
        if self._fallback is None:
            self._fallback = TorchIndex(self.samples, memory=self.memory)
        return merge_found(found, self._fallback.search_wide(queries[doubtful], n_neighbors), doubtful)

    def _doubtful(
        self, queries: Float[Tensor, "q dim"], found: Neighbors, squares: Tensor, encoded: Tensor
    ) -> Bool[Tensor, " q"]:
        """Say where an exact search may have been misled by rounding. An approximate one promises nothing."""
        if self.kind != "exact" or squares.shape[1] == self.n_samples:
            return torch.zeros(len(queries), dtype=torch.bool, device=queries.device)
        worst = squares[:, -1].double() - encoded.double().square().sum(1)
        return ~self._refinement.is_certain(queries, found, worst)

    def _parameters(self, faiss: ModuleType, n_candidates: int) -> Any:
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=max(self.search_effort, 2 * n_candidates))
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

    def __init__(self, samples: Any, *, memory: int | None = None) -> None:
        super().__init__(samples, memory=memory)
        from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

        self._refinement = Refinement(self.samples)
        # In float64: products of float32 would lose neighbors that differences keep.
        encoded = _as_array(self._refinement.encode(self.samples, torch.float64))
        self._engine = NearestNeighbors(algorithm="brute").fit(encoded)

    @property
    def name(self) -> str:
        """The name of the method, for reports."""
        return "sklearn"

    def _search(self, queries: Float[Tensor, "q dim"], n_neighbors: int) -> Neighbors:
        encoded = _as_array(self._refinement.encode(queries, torch.float64))
        n_candidates = self._refinement.n_candidates(n_neighbors)
        labels = self._engine.kneighbors(encoded, n_candidates, return_distance=False)
        candidates: Int[Tensor, "q c"] = torch.from_numpy(labels.astype(np.int64)).to(queries.device)
        return self._refinement.refine(queries, candidates, n_neighbors, working_memory(queries.device, self.memory))


def measure_recall(index: Any, queries: Tensor, n_neighbors: int) -> float:
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
    try:
        import faiss  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("faiss must be installed for this index; run: pip install 'carre[knn]'") from error
    module: ModuleType = faiss
    return module


def _as_array(encoded: Tensor) -> np.ndarray:
    array: np.ndarray = encoded.cpu().contiguous().numpy()
    return array
