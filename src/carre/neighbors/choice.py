"""Which search to use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from carre.boundary import as_points
from carre.neighbors.brute_force import TorchIndex
from carre.neighbors.engines import FaissIndex, SklearnIndex, import_faiss
from carre.neighbors.protocol import Index

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
        >>> import torch
        >>> build_index(torch.zeros(5, 2), "torch")
        TorchIndex(n_samples=5, dim=2, name='torch')
    """
    kind = checked_kind(kind)
    samples = as_points(samples, name="samples").tensor
    return _BUILDERS[kind](samples, memory=memory)


def checked_kind(kind: str) -> str:
    """Check the name of an index, and that what it needs is installed."""
    if kind not in KINDS:
        raise ValueError(f"index must be one of {', '.join(KINDS)}, or a NeighborIndex; got {kind!r}")
    if kind in ("faiss", "hnsw", "ivf"):
        import_faiss()
    return kind
