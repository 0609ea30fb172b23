"""The classical carré du champ in the sphere benchmark: tuned, then timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.benchmarks.settings import SphereSettings
from carre.evaluation import Tuned, grid_search, peak_memory, tangent_errors, throughput
from carre.fields import KernelField
from carre.manifolds import Manifold
from carre.metric import batched_eigh
from carre.neighbors import NeighborIndex, Neighbors, build_index, measure_recall

_N_RECALL = 100


class _Remembering:
    """An index that searches once for the largest k, and answers every smaller k from that."""

    def __init__(self, index: NeighborIndex, most: int) -> None:
        self.index, self.most = index, most
        self.samples, self.n_samples, self.dim, self.name = index.samples, index.n_samples, index.dim, index.name
        self._seen: list[tuple[Tensor, Neighbors]] = []

    def search(self, queries: Tensor, n_neighbors: int) -> Neighbors:
        """Return the nearest samples of each query."""
        for known, found in self._seen:
            if known.shape == queries.shape and torch.equal(known, queries):
                return Neighbors(found.indices[:, :n_neighbors], found.squared_distances[:, :n_neighbors])
        self._seen.append((queries, self.index.search(queries, self.most)))
        return self.search(queries, n_neighbors)


def kernel_rows(
    samples: Float[Tensor, "n dim"],
    manifold: Manifold,
    validation: Float[Tensor, "v dim"],
    test: Float[Tensor, "t dim"],
    settings: SphereSettings,
) -> Iterator[dict[str, Any]]:
    """Tune and measure the kernel with every search, as in the paper (uncentered) and centered."""
    for engine in settings.engines:
        start = time.perf_counter()
        index = build_index(samples, engine)
        seconds = time.perf_counter() - start
        shared = {"engine": engine, "build_seconds": seconds}
        counts = sorted({min(k, len(samples)) for k in settings.n_neighbors})
        if engine in ("hnsw", "ivf"):
            shared["recall"] = measure_recall(index, test[:_N_RECALL], counts[-1])
        for centered in (False, True):
            row = _tuned_row(samples, manifold, validation, test, settings, index, counts, centered)
            yield {"method": f"kernel, {'centered' if centered else 'as in the paper'}", **shared, **row}


def _tuned_row(
    samples: Tensor,
    manifold: Manifold,
    validation: Tensor,
    test: Tensor,
    settings: SphereSettings,
    index: NeighborIndex,
    counts: list[int],
    centered: bool,
) -> dict[str, Any]:
    """Search σ and k on the validation points; measure error and speed at the best."""
    d, remembering = settings.dimension, _Remembering(index, counts[-1])

    def error(bandwidth: float, n_neighbors: int, points: Tensor = validation) -> float:
        # Only the d leading directions are wanted: the rest would cost a decomposition of D×D matrices.
        field = KernelField(samples, n_neighbors=n_neighbors, centered=centered, index=remembering, rank=d)
        return float(tangent_errors(field, manifold, points, bandwidth, chunk=len(points)).mean())

    tuned: Tuned = grid_search(error, bandwidth=settings.bandwidths, n_neighbors=counts)
    sigma, k = tuned.bandwidth, int(tuned.setting["n_neighbors"])
    field = KernelField(samples, n_neighbors=k, centered=centered, index=index)
    leading = KernelField(samples, n_neighbors=k, centered=centered, index=index, rank=d)
    points = repeated(test, settings.n_timed)

    def dense_pipeline(y: Tensor) -> Tensor:
        return batched_eigh(field.metric(y, sigma).dense())[1][..., -d:]

    def timed(function: Any) -> float:
        return throughput(function, points, repeats=3, warmup=1, seconds=3.0).points_per_second

    metric = lambda y: field.weighted_displacements(y, sigma)  # noqa: E731
    row = {
        "bandwidth": sigma,
        "n_neighbors": k,
        "at_end": list(tuned.at_end),
        "validation_curve": tuned.curve.tolist(),
        "tangent_error": error(sigma, k, test),
        "effective_neighbors": float(field.effective_neighbors(test, sigma).median()),
        "metric_per_second": timed(metric),
        "tangent_per_second": timed(lambda y: leading.metric(y, sigma).tangent_basis(d)),
        "points_per_call": len(points),
    }
    if centered:
        return row
    # Centering changes neither the memory nor the time of what the paper does: D×D matrices, decomposed.
    part = points[: max(1, settings.n_timed // 4)]
    dense = throughput(dense_pipeline, part, repeats=1, warmup=1, seconds=4.0).points_per_second
    return row | {"dense_tangent_per_second": dense, "peak_bytes": peak_memory(metric, points)}


def repeated(points: Float[Tensor, "n dim"], count: int) -> Float[Tensor, "count dim"]:
    """Repeat points until there are enough of them to be timed."""
    return points.repeat(-(-count // len(points)), 1)[:count]
