"""What a neighbor search takes and returns."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import as_points
from carre.neighbors.memory import checked_memory


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

    Example:
        >>> from carre.neighbors import build_index
        >>> index = build_index([[0.0], [1.0], [5.0]])
        >>> isinstance(index, NeighborIndex), index.n_samples, index.dim
        (True, 3, 1)
        >>> index.search(torch.tensor([[4.0]]), 2).indices
        tensor([[2, 1]])
    """

    @property
    def samples(self) -> Float[Tensor, "n dim"]:
        """The samples."""
        ...

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        ...

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        ...

    @property
    def name(self) -> str:
        """The name of the method, for reports."""
        ...

    def search(self, queries: Tensor, n_neighbors: int) -> Neighbors:
        """Find the ``n_neighbors`` samples nearest to every query. The answer is on the queries' device."""
        ...


class Index(ABC):
    """What all indices share: the samples, and the checks of a search.

    Args:
        samples: The samples. They are kept, not copied, on their device and in their dtype.
        memory: Bytes that temporary results may take; by default a share of what is free.
    """

    def __init__(self, samples: Any, *, memory: int | None = None) -> None:
        self.samples: Tensor = as_points(samples, name="samples").tensor.detach()
        self.memory = checked_memory(memory)

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return self.samples.shape[0]

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        return self.samples.shape[1]

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the method, for reports."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_samples={self.n_samples}, dim={self.dim}, name={self.name!r})"

    @torch.no_grad()
    def search(self, queries: Tensor, n_neighbors: int) -> Neighbors:
        """Find the ``n_neighbors`` samples nearest to every query. The answer is on the queries' device."""
        points = as_points(queries, dim=self.dim, name="queries").tensor
        n_neighbors = checked_count(n_neighbors, self.n_samples)
        return self._search(points.to(self.samples), n_neighbors).to(points.device)

    @abstractmethod
    def _search(self, queries: Float[Tensor, "q dim"], n_neighbors: int) -> Neighbors: ...


def checked_count(n_neighbors: Any, largest: int, *, least: int = 1, reason: str = "") -> int:
    """Check that a number of neighbors is an integer between ``least`` and ``largest``."""
    try:
        count = operator.index(n_neighbors)
    except TypeError as error:
        raise ValueError(f"n_neighbors must be an integer; got {n_neighbors!r}") from error
    if count < least:
        raise ValueError(f"n_neighbors must be at least {least}{reason}; got {count}")
    if count > largest:
        raise ValueError(
            f"n_neighbors must be at most {largest}, the number of samples to choose from; got {count}. "
            "Lower n_neighbors or give more samples"
        )
    return count
