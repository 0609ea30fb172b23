"""Accuracy and speed on a sphere, as the samples grow [RMM, Sec. 5.1, Fig. 2 and 7]."""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import carre
from carre.fields import KernelField, MetricField, NeuralField, ScoreField
from carre.manifolds import Embedded, Manifold, Sphere
from carre.metric import batched_eigh
from carre.neighbors import NeighborIndex, Neighbors, build_index, measure_recall
from experiments.measures.accuracy import best_bandwidth, eigenvalue_profile, grid_search, oracle_errors, tangent_errors
from experiments.measures.speed import hardware, peak_memory, throughput
from experiments.sphere.settings import SphereSettings
from experiments.sphere.step import measure_product_rate, measure_step

# What a step is timed at: batch and width, without and with the Jacobian of the denoiser as a second target.
_STEPS = ((1024, 512), (16_384, 512), (16_384, 1024))
_CPU_STEPS = ((256, 128),)
_N_RECALL = 100


def run_sphere(
    settings: SphereSettings,
    *,
    device: str = "cpu",
    report: Callable[[str], None] | None = None,
    save: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Compare all methods at all sizes; return what results.json holds.

    Args:
        settings: Sizes, grids and methods.
        device: Where everything runs.
        report: Told in a line what was measured, as it goes.
        save: Given the results so far after every method, so that an interrupted run is not lost.

    Example:
        >>> from dataclasses import replace
        >>> from experiments.sphere.settings import QUICK
        >>> from experiments.sphere.tables import sphere_tables
        >>> results = run_sphere(replace(QUICK, sizes=(1000,)), report=print)  # doctest: +SKIP
        >>> print(sphere_tables(results))  # doctest: +SKIP
    """
    tell = report or (lambda line: None)
    manifold = Sphere(settings.dimension).embed(
        settings.ambient_dim, generator=torch.Generator().manual_seed(settings.seed)
    )
    _warm_up(settings, device)
    results: dict[str, Any] = {
        "hardware": hardware(device),
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "settings": {**vars(settings), "fit": dict(settings.fit)},
        "rows": [],
        "eigenvalues": {},
        "training_step": _training_steps(settings, device, tell),
    }
    for size in settings.sizes:
        for part in _measure_size(size, manifold, settings, device):
            if "rows" in part:
                tell(_line(part["rows"][0]))
                results["rows"] += part["rows"]
            results["eigenvalues"] |= part.get("eigenvalues", {})
            if save is not None:
                save(results)
        if device != "cpu":
            torch.cuda.empty_cache()
    return results


@torch.no_grad()
def _measure_size(size: int, manifold: Embedded, settings: SphereSettings, device: str) -> Iterator[dict[str, Any]]:
    """Measure all methods on one dataset, one after the other."""
    generator = torch.Generator(device).manual_seed(settings.seed + size)
    samples, validation, test = (
        _draw(manifold, n, settings.unevenness, generator) for n in (size, settings.n_validation, settings.n_test)
    )
    learned, field = _learned_row(samples, manifold, validation, test, settings, device, reduce=False)
    rows = [learned]
    yield {"rows": [{"n": size, **learned}]}
    if settings.with_hull and size == min(settings.sizes):
        hull, _ = _learned_row(samples, manifold, validation, test, settings, device, reduce=True)
        yield {"rows": [{"n": size, **hull}]}
    for rank in (None, settings.rank) if settings.with_score else ():
        grid = learned["validation_curve"]["bandwidths"]
        yield {"rows": [{"n": size, **_score_row(field, manifold, validation, test, settings, grid, rank)}]}
    for row in kernel_rows(samples, manifold, validation, test, settings):
        rows.append(row)
        yield {"rows": [{"n": size, **row}]}
    if size == settings.profile_size:
        yield {"eigenvalues": _profiles(field, samples, test, rows, settings)}


def _learned_row(
    samples: Float[Tensor, "n dim"],
    manifold: Manifold,
    validation: Tensor,
    test: Tensor,
    settings: SphereSettings,
    device: str,
    *,
    reduce: bool,
) -> tuple[dict[str, Any], NeuralField]:
    """Fit with the defaults; measure at the label-free scale and at the best of the grid.

    In the linear hull, which a fit finds by default (``reduce``), a rotated sphere is easier than it looks: the
    fair comparison is the one in all D coordinates.
    """
    given: dict[str, Any] = {"reduce": reduce, **settings.fit}
    given |= {"rank": settings.rank, "device": device, "random_state": settings.seed, "verbose": False}
    start = time.perf_counter()
    with torch.enable_grad():
        geometry = carre.fit(samples, **given)
    seconds = time.perf_counter() - start
    exact: NeuralField = geometry.field
    field = exact.with_mixed_precision() if device != "cpu" else exact
    low, high = geometry.bandwidth_range
    tuned = best_bandwidth(field, manifold, validation, [s for s in settings.bandwidths if low <= s <= high])
    sigma, d = tuned.bandwidth, settings.dimension
    points = _repeated(test, settings.n_timed_learned)
    metric = lambda y: field.metric(y, sigma).factor  # noqa: E731

    def timed(function: Callable[[Tensor], object]) -> float:
        return throughput(function, points, repeats=5, warmup=2, seconds=5.0).points_per_second

    speed = throughput(metric, points, repeats=7, warmup=2, seconds=5.0)
    row = {
        "method": "learned, in the linear hull" if reduce else "learned",
        "bandwidth": sigma,
        "at_end": list(tuned.at_end),
        "validation_curve": {"bandwidths": list(tuned.grids["bandwidth"]), "errors": tuned.curve.tolist()},
        "tangent_error": _mean_error(field, manifold, test, sigma),
        "tangent_error_full_precision": _mean_error(exact, manifold, test, sigma),
        "label_free_bandwidth": geometry.bandwidth,
        "label_free_tangent_error": _mean_error(exact, manifold, test, geometry.bandwidth),
        "relative_error_of_G": _oracle_error(exact, manifold, test, sigma, settings),
        "fit_seconds": seconds,
        "training_seconds": geometry.history.seconds,
        "steps": geometry.history.steps,
        "metric_per_second": speed.points_per_second,
        "metric_spread": speed.spread,
        "tangent_per_second": timed(lambda y: field.metric(y, sigma).tangent_basis(d)),
        "metric_per_second_full_precision": timed(lambda y: exact.metric(y, sigma).factor),
        "peak_bytes": peak_memory(metric, points[: settings.n_timed]),
        "points_per_call": len(points),
    }
    return row, exact


def _score_row(
    learned: NeuralField,
    manifold: Manifold,
    validation: Tensor,
    test: Tensor,
    settings: SphereSettings,
    grid: list[float],
    rank: int | None,
) -> dict[str, Any]:
    """The Jacobian of the learned denoiser, in full or by random products: what one has without a factor network."""
    field = ScoreField(learned, rank=rank)
    tuned = best_bandwidth(field, manifold, validation, grid)
    points = _repeated(test, settings.n_timed)
    metric = lambda y: field.metric(y, tuned.bandwidth).factor  # noqa: E731
    speed = throughput(metric, points, repeats=2, warmup=1, seconds=3.0)
    return {
        "method": "Jacobian of the learned denoiser" + ("" if rank is None else ", by random products"),
        "bandwidth": tuned.bandwidth,
        "at_end": list(tuned.at_end),
        "tangent_error": _mean_error(field, manifold, test, tuned.bandwidth),
        "metric_per_second": speed.points_per_second,
        "metric_spread": speed.spread,
        "peak_bytes": peak_memory(metric, points),
        "points_per_call": len(points),
    }


class Remembering:
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
    d, remembering = settings.dimension, Remembering(index, counts[-1])

    def error(bandwidth: float, n_neighbors: int, points: Tensor = validation) -> float:
        # Only the d leading directions are wanted: the rest would cost a decomposition of D×D matrices.
        field = KernelField(samples, n_neighbors=n_neighbors, centered=centered, index=remembering, rank=d)
        return float(tangent_errors(field, manifold, points, bandwidth, chunk=len(points)).mean())

    tuned = grid_search(error, {"bandwidth": settings.bandwidths, "n_neighbors": counts})
    sigma, k = tuned.bandwidth, int(tuned.setting["n_neighbors"])
    field = KernelField(samples, n_neighbors=k, centered=centered, index=index)
    leading = KernelField(samples, n_neighbors=k, centered=centered, index=index, rank=d)
    points = _repeated(test, settings.n_timed)

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


def _profiles(
    learned: NeuralField, samples: Tensor, test: Tensor, rows: list[dict[str, Any]], settings: SphereSettings
) -> dict[str, Any]:
    """Record the mean leading eigenvalues of each method at its best setting [RMM, Fig. 7]."""
    profiles = {}
    for row in rows:
        field: MetricField = learned
        sigma = row["bandwidth"]
        if "n_neighbors" in row and row["engine"] == settings.engines[0]:
            sigma, count = _best_scale_of_metric(row, settings, len(samples))
            field = KernelField(samples, n_neighbors=count, centered=row["method"] == "kernel, centered")
        elif row["method"] != "learned":
            continue
        # A few hundred points: the eigenvalues of D×D matrices are slow where there are more neighbors than columns.
        mean = eigenvalue_profile(field, test[:500], sigma).mean
        profiles[row["method"]] = mean[: settings.rank].tolist()
    return profiles


def _best_scale_of_metric(row: dict[str, Any], settings: SphereSettings, size: int) -> tuple[float, int]:
    """Find the best σ, and k, of a kernel among σ up to half the radius: beyond, G is not near a projector."""
    counts = sorted({min(k, size) for k in settings.n_neighbors})
    errors = zip(settings.bandwidths, row["validation_curve"], strict=True)
    choices = [(e, sigma, k) for sigma, line in errors if sigma <= 0.5 for e, k in zip(line, counts, strict=True)]
    _, sigma, count = min(choices, default=(0.0, row["bandwidth"], row["n_neighbors"]))
    return sigma, count


def _training_steps(settings: SphereSettings, device: str, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Time training steps; on a GPU beside the rate of a large product."""
    on_gpu = device != "cpu"
    rate = measure_product_rate(device=device) if on_gpu else None
    rows = []
    for (batch, width), match_jacobian in itertools.product(_STEPS if on_gpu else _CPU_STEPS, (False, True)):
        row = measure_step(
            batch,
            width=width,
            dim=settings.ambient_dim,
            rank=settings.rank,
            mixed_precision=on_gpu,
            match_jacobian=match_jacobian,
            device=device,
            repeats=250 if on_gpu else 50,
        )
        share = "" if rate is None else f", {row['operations_per_second'] / rate:.0%} of a large product's rate"
        rows.append(row | {"product_rate": rate})
        tell(f"training step, batch {batch:,}, width {width}: {row['milliseconds']:.3f} ms{share}")
    return rows


def _draw(manifold: Embedded, n: int, unevenness: float, generator: torch.Generator) -> Float[Tensor, "n dim"]:
    """Draw points of the sphere, uniformly or not."""
    if unevenness == 0:
        return manifold.sample(n, generator=generator, dtype=torch.float32)
    device, basis = generator.device, manifold.basis.to(generator.device, torch.float32)
    stretch = torch.linspace(-unevenness, unevenness, basis.shape[1], device=device).exp()
    inner = stretch * torch.randn(n, basis.shape[1], generator=generator, device=device)
    return torch.nn.functional.normalize(inner, dim=1) @ basis.mT


def _repeated(points: Float[Tensor, "n dim"], count: int) -> Float[Tensor, "count dim"]:
    """Repeat points until there are enough of them to be timed."""
    return points.repeat(-(-count // len(points)), 1)[:count]


def _mean_error(field: MetricField, manifold: Manifold, points: Tensor, bandwidth: float) -> float:
    return float(tangent_errors(field, manifold, points, bandwidth).mean())


def _oracle_error(
    field: NeuralField, manifold: Manifold, points: Tensor, bandwidth: float, settings: SphereSettings
) -> float | None:
    """Compare G with the exact one, in float64; it is known for the uniform sphere only."""
    if settings.unevenness:
        return None
    return float(oracle_errors(field, manifold, points[:500].double().cpu(), bandwidth).mean())


def _warm_up(settings: SphereSettings, device: str) -> None:
    """Load libraries and compile kernels, so that the first fit is timed like the others."""
    if device == "cpu":
        return
    points = torch.randn(4096, settings.ambient_dim, device=device)
    carre.fit(points, rank=settings.rank, device=device, max_steps=5, verbose=False)


def _line(row: dict[str, Any]) -> str:
    """Say in a line what was measured."""
    where = f" ({row['engine']})" if "engine" in row else ""
    setting = f"σ = {row['bandwidth']:.3g}" + (f", k = {row['n_neighbors']}" if "n_neighbors" in row else "")
    seconds = f", fit in {row['fit_seconds']:.1f} s" if "fit_seconds" in row else ""
    return (
        f"n = {row['n']:,}: {row['method']}{where}: tangent error {row['tangent_error']:.4f} at {setting}{seconds}, "
        f"{row['metric_per_second']:,.0f} metrics/s"
    )
