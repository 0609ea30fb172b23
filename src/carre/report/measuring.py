"""From a fitted geometry and its data to everything that a report says."""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor

import carre
from carre.report.budget import affordable, scaled_progress, scattered, seconds_per_point
from carre.report.columns import Column
from carre.report.content import Directions, PointMap, ReportContent, ScaleTable
from carre.report.excursions import find_paths
from carre.report.inputs import ReportInput
from carre.report.judgment import check_points, measure_curvature, warnings_of
from carre.report.placement import Plane, make_plane
from carre.report.plane import spread_out
from carre.report.scale_table import measure_scales
from carre.training import linear_phase

# Shares of the time that each part may take, about.
_FOR_POINTS, _FOR_SCALES, _FOR_ARROWS, _FOR_CHECK, _FOR_CURVATURE, _FOR_PATHS = 0.4, 0.3, 0.08, 0.12, 0.1, 0.12
# At fewer points a map says little; networks for images take a hundred times as long as those for tables.
_FEWEST_SHOWN, _FEWEST_AT_SCALES, _FEWEST_IMAGES, _FEWEST_IMAGES_AT_SCALES = 2000, 500, 200, 50
_MOST_ARROWS, _FEWEST_ARROWS = 250, 40
_TYPICAL, _PICTURED, _LOADED, _AVERAGED, _BY_KERNEL = 5, 7, 3, 300, 500
# Tables of so many columns are small enough to show their columns on the map.
_FEW_COLUMNS = 12


def measure(
    geometry: Any,
    given: ReportInput,
    *,
    bandwidth: float | None = None,
    max_points: int = 10_000,
    seconds: float = 40.0,
    command: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> ReportContent:
    """Measure everything that a report says.

    Args:
        geometry: A fitted `carre.MetricMatching`.
        given: The data.
        bandwidth: The scale σ that the report is about; None takes that of the fit.
        max_points: How many points to show at most.
        seconds: About how long it may take: what is expensive is asked at fewer points.
        command: How the report was called, for its last section.
        progress: Told how far the work is.
    """
    begun = time.perf_counter()
    quiet = copy.copy(geometry)
    quiet.verbose = False
    sigma = geometry.bandwidth_ if bandwidth is None else bandwidth
    part = [scaled_progress(progress, start, end) for start, end in ((0.0, 0.3), (0.3, 0.6))]
    each = seconds_per_point(quiet, given.points, sigma)
    # The estimate asks for the dimension at three scales.
    most, is_image = min(len(given.points), max_points), geometry.sample_shape_ is not None
    least = _FEWEST_IMAGES if is_image else _FEWEST_SHOWN
    n_shown = affordable(most, seconds * _FOR_POINTS, 2.2 * each, least=min(most, least))
    rows = scattered(len(given.points), n_shown).numpy()
    points = given.points[rows]
    estimate = quiet.estimate_dimension(points[_asked(quiet, n_shown, bandwidth)], bandwidth)
    part[0](1.0)
    least = _FEWEST_IMAGES_AT_SCALES if is_image else _FEWEST_AT_SCALES
    n_measured = affordable(n_shown, seconds * _FOR_SCALES, 12 * each, least=min(n_shown, least))
    scales = measure_scales(quiet, points, sigma, n_measured, estimate, part[1])

    embedding = None if given.embedding is None else given.embedding[rows]
    plane, axes, note = make_plane(points, embedding, given.feature_names)
    places = plane.places(points.double().numpy()) if embedding is None else embedding
    count = affordable(_MOST_ARROWS, seconds * _FOR_ARROWS, len(scales.bandwidth) * each, least=_FEWEST_ARROWS)
    arrow_points, arrows = _arrows(quiet, points, places, plane, scales, count)
    later = scaled_progress(progress, 0.65, 1.0)
    later(0.0)
    checked = check_points(quiet, points, sigma, seconds=seconds * _FOR_CHECK, each=each)
    later(0.3)
    curvature = measure_curvature(quiet, points, sigma, estimate, checked, seconds=seconds * _FOR_CURVATURE)
    later(0.6)
    found = find_paths(quiet, given, points, rows, sigma, plane, checked, seconds=seconds * _FOR_PATHS, each=each)
    later(0.9)
    label = None if given.labels is None else given.labels.at(rows)
    array = points.double().numpy()
    return ReportContent(
        title=given.title,
        n_rows=len(given.points),
        dim=given.points.shape[1],
        rows=rows,
        image_shape=given.image_shape,
        estimate=estimate,
        warnings=warnings_of(quiet, estimate, scales, checked),
        scales=scales,
        map=PointMap(places, axes, note, arrow_points, arrows),
        columns=_columns(given, rows, array),
        directions=_directions(quiet, points, places, label, sigma, is_picture=given.image_shape is not None),
        paths=found,
        checked=checked,
        curvature=curvature,
        history=geometry.history_,
        origin=_origin(geometry, given, command, time.perf_counter() - begun),
        points=array,
        feature_names=given.feature_names,
        label=label,
        pixel_range=_pixel_range(geometry, given),
    )


def _asked(geometry: Any, n: int, bandwidth: float | None) -> Tensor:
    """Choose where to estimate the dimension: everywhere, but where a kernel has to answer, which is slow, at some."""
    is_kernel = bandwidth is None and linear_phase(geometry.history_) is not None
    return scattered(n, min(n, _BY_KERNEL) if is_kernel else n)


def _arrows(
    geometry: Any, points: Tensor, places: np.ndarray, plane: Plane, scales: ScaleTable, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find the two leading directions at points that are spread over the map, at every scale."""
    some = np.sort(spread_out(places, count))
    asked = points[some]
    drawn = []
    for sigma in scales.bandwidth.tolist():
        vectors, values = _leading(geometry, asked, 2, sigma)
        seen = plane.directions(asked.double().numpy(), vectors)
        drawn.append(seen * np.sqrt(values.clip(0, 1))[..., None])
    return some, np.array(drawn)


def _leading(geometry: Any, points: Tensor, count: int, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return leading directions as rows, shape (n, k, D), and their eigenvalues."""
    spectrum = geometry.metric(points, sigma).spectrum()
    k = min(count, spectrum.values.shape[1])
    return spectrum.vectors[..., :k].mT.double().numpy(), spectrum.values[:, :k].double().numpy()


def _directions(
    geometry: Any, points: Tensor, places: np.ndarray, label: Column | None, sigma: float, *, is_picture: bool
) -> Directions:
    """Find the leading directions at typical points, and how freely every column moves."""
    chosen = _typical(places, points, label)
    vectors, values = _leading(geometry, points[chosen], _PICTURED if is_picture else _LOADED, sigma)
    some = scattered(len(points), _TYPICAL if is_picture else _AVERAGED, seed=6)
    factor = geometry.metric(points[some], sigma).factor.double()
    freedom = factor.square().sum(1).mean(0).numpy()
    return Directions(chosen, values, vectors, freedom, len(some))


def _typical(places: np.ndarray, points: Tensor, label: Column | None) -> np.ndarray:
    """Choose the point nearest to the middle of each class, or points that are spread over the map."""
    if label is None or label.names is None:
        return spread_out(places, _TYPICAL)
    chosen = []
    for code in range(min(len(label.names), 2 * _TYPICAL)):
        own = np.flatnonzero(label.values == code)
        if len(own):
            away = (points[own] - points[own].median(0).values).square().sum(1)
            chosen.append(int(own[int(away.argmin())]))
    return np.array(chosen, dtype=int) if chosen else spread_out(places, _TYPICAL)


def _columns(given: ReportInput, rows: np.ndarray, points: np.ndarray) -> tuple[Column, ...]:
    """Collect what can be read off at each point: labels, further columns, and the columns of small tables."""
    beside = (*(() if given.labels is None else (given.labels,)), *given.columns)
    own: tuple[Column, ...] = ()
    if given.image_shape is None and len(given.feature_names) <= _FEW_COLUMNS:
        taken = {column.name for column in beside}
        names = [f"{name} (of X)" if name in taken else name for name in given.feature_names]
        own = tuple(Column(name, points[:, k]) for k, name in enumerate(names))
    return (*(column.at(rows) for column in beside), *own)


def _pixel_range(geometry: Any, given: ReportInput) -> tuple[float, float]:
    """Return the values of black and white: those of pixels 0 and 1 where that is known, else the extremes."""
    normalization = geometry.normalization_
    if normalization is not None and len(normalization.mean) == 1:
        low, high = normalization.encode(np.array([0.0, 1.0])).tolist()
        return low, high
    some = given.points[:: max(1, len(given.points) // 1000)]
    return float(some.min()), max(float(some.max()), float(some.min()) + 1e-12)


def _origin(geometry: Any, given: ReportInput, command: str | None, seconds: float) -> dict[str, Any]:
    settings = {name: value for name, value in geometry.get_params().items() if value is not None}
    return {
        "made on": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command or "geometry.report(X, …)",
        "carre": carre.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": str(geometry.device_),
        "data": f"{len(given.points):,} rows × {given.points.shape[1]:,} columns, {given.points.dtype}".replace(
            "torch.", ""
        ),
        "data, SHA-256": given.digest,
        "rank": geometry.rank_,
        "trained scales": "{:.4g} to {:.4g}".format(*geometry.bandwidth_range_),
        "scale": "given at the fit" if geometry.scale_profile_ is None else geometry.scale_profile_.reason,
        "settings of the fit": {name: _plain(value) for name, value in settings.items()},
        "training": f"{geometry.history_.steps:,} steps, {geometry.history_.seconds:.0f} s",
        "seconds for this report": round(seconds, 1),
    }


def _plain(value: Any) -> Any:
    """Return what JSON knows as it is, and everything else as short text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    return f"{type(value).__name__}" if callable(value) else str(value)[:200]
