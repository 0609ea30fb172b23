"""From a fitted geometry and its data to everything that a report says."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor

import carre
from carre.geometry import Geometry
from carre.plots.panels import spread_out
from carre.report._content import Directions, PointMap, ReportContent, ScaleTable
from carre.report._inputs import Column, ReportInput
from carre.report._judgment import check_points, find_paths, measure_curvature, warnings_of
from carre.report._placement import Plane, make_plane, stacked
from carre.report._survey import Survey, affordable, scattered
from carre.training import linear_phase

# Shares of the time that each part may take, about.
_FOR_SCALES, _FOR_ARROWS = 0.3, 0.08
# At fewer points a map says little; networks for images take a hundred times as long as those for tables.
_FEWEST_AT_SCALES, _FEWEST_IMAGES_AT_SCALES = 500, 50
_MOST_ARROWS, _FEWEST_ARROWS = 250, 40
_TYPICAL, _PICTURED, _LOADED, _AVERAGED, _BY_KERNEL = 5, 7, 3, 300, 500
# Tables of so many columns are small enough to show their columns on the map.
_FEW_COLUMNS, _MOST_NAMES = 12, 16
_MOST_SCALES = 13
# Scales that differ by less are the same.
_SAME = 0.02
# Numbers of metrics that are held at once.
_METRIC_NUMBERS = 2e7


def measure(
    geometry: Geometry,
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
        geometry: The geometry.
        given: The data.
        bandwidth: The scale σ that the report is about; None takes that of the fit.
        max_points: How many points to show at most.
        seconds: About how long it may take: what is expensive is asked at fewer points.
        command: How the report was called, for its last section.
        progress: Told how far the work is.
    """
    begun = time.perf_counter()
    tell = progress or (lambda fraction: None)
    survey = Survey.of(geometry, given, bandwidth, max_points=max_points, seconds=seconds)
    asked = survey.points[_asked(geometry, len(survey.points), bandwidth)]
    estimate = survey.geometry.estimate_dimension(asked, bandwidth)
    tell(0.3)
    scales = measure_scales(survey, lambda fraction: tell(0.3 + 0.3 * fraction))

    embedding = None if given.embedding is None else given.embedding[survey.rows]
    plane, axes, note = make_plane(survey.array, embedding, given.feature_names)
    places = plane.places(survey.array) if embedding is None else embedding
    if survey.geometry.dim == 1 and embedding is None:
        places = stacked(places[:, 0])
    arrow_points, arrows = _arrows(survey, places, plane, scales)
    tell(0.65)
    checked = check_points(survey)
    tell(0.75)
    curvature = measure_curvature(survey, estimate, checked)
    tell(0.85)
    found = find_paths(survey, plane, checked)
    tell(0.97)
    return ReportContent(
        survey=survey,
        estimate=estimate,
        warnings=warnings_of(geometry, estimate, scales, checked),
        scales=scales,
        map=PointMap(places, axes, note, arrow_points, arrows),
        columns=_columns(survey),
        directions=_directions(survey, places),
        paths=found,
        checked=checked,
        curvature=curvature,
        origin=_origin(geometry, given, command, time.perf_counter() - begun),
    )


def scale_grid(geometry: Geometry, bandwidth: float) -> tuple[np.ndarray, int]:
    """Return at most 13 scales, those that were compared at the fit where they are known, and the index of one."""
    profile = geometry.scale_profile
    low, high = geometry.bandwidth_range
    grid = np.geomspace(low, high, _MOST_SCALES - 1) if profile is None else np.asarray(profile.bandwidth, dtype=float)
    if len(grid) > _MOST_SCALES:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, _MOST_SCALES).round().astype(int))]
    nearest = int(np.abs(np.log(grid / bandwidth)).argmin())
    if abs(np.log(grid[nearest] / bandwidth)) < _SAME or len(grid) == _MOST_SCALES:
        grid = np.delete(grid, nearest)
    grid = np.sort(np.append(grid, bandwidth))
    return grid, int(np.searchsorted(grid, bandwidth))


def measure_scales(survey: Survey, progress: Callable[[float], None]) -> ScaleTable:
    """Measure local dimensions and eigenvalues at every scale, at all points at the scale that the report is about."""
    geometry, points = survey.geometry, survey.points
    least = _FEWEST_AT_SCALES if geometry.sample_shape is None else _FEWEST_IMAGES_AT_SCALES
    cost = (_MOST_SCALES - 1) * survey.each
    count = affordable(len(points), survey.seconds * _FOR_SCALES, cost, least=min(len(points), least))
    grid, chosen = scale_grid(geometry, survey.bandwidth)
    some = scattered(len(points), count)
    dimension = np.full((len(grid), len(points)), -1, dtype=int)
    trace = np.full((len(grid), len(points)), np.nan)
    quartiles = []
    for scale, sigma in enumerate(grid.tolist()):
        rows = np.arange(len(points)) if scale == chosen else some.numpy()
        values, dimension[scale, rows] = _eigenvalues_and_dimension(geometry, points[rows], sigma)
        trace[scale, rows] = values.sum(1)
        quartiles.append((values.mean(0), *np.quantile(values, [0.25, 0.75], axis=0)))
        progress((scale + 1) / len(grid))
    mean, low, high = (np.array(rows) for rows in zip(*quartiles, strict=True))
    notes = tuple(_note(geometry, sigma) for sigma in grid.tolist())
    return ScaleTable(grid, chosen, dimension, trace, mean, low, high, count, notes)


def _eigenvalues_and_dimension(geometry: Geometry, points: Tensor, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Ask for both at once, of no more points at a time than metrics can be held."""
    size = max(1, int(_METRIC_NUMBERS / (geometry.rank * geometry.dim)))
    parts = (geometry.at(part, sigma) for part in torch.split(points, size))
    found = [(local.eigenvalues, local.dimension) for local in parts]
    values, counts = (torch.cat(kind) for kind in zip(*found, strict=True))
    return values.double().numpy(), counts.numpy()


def _note(geometry: Geometry, sigma: float) -> str:
    """Say why a scale should not be believed, if so."""
    low, high = geometry.bandwidth_range
    if not 0.99 * low <= sigma <= 1.01 * high:
        return f"outside of the scales {low:.3g} to {high:.3g} that were trained on: an extrapolation"
    if sigma < 0.99 * geometry.supported_from:
        return "samples have hardly any neighbors at this scale: an extrapolation of the network"
    profile = geometry.scale_profile
    if profile is not None:
        nearest = int(np.abs(np.log(profile.bandwidth / sigma)).argmin())
        if not profile.is_admissible[nearest]:
            return f"not calibrated: predicted and found spread differ by {profile.calibration[nearest]:.0%}"
    return ""


def _asked(geometry: Geometry, n: int, bandwidth: float | None) -> Tensor:
    """Choose where to estimate the dimension: everywhere, but where a kernel has to answer, which is slow, at some."""
    is_kernel = bandwidth is None and linear_phase(geometry.history) is not None
    return scattered(n, min(n, _BY_KERNEL) if is_kernel else n)


def _arrows(survey: Survey, places: np.ndarray, plane: Plane, scales: ScaleTable) -> tuple[np.ndarray, np.ndarray]:
    """Find the two leading directions at points that are spread over the map, at every scale; a line needs none."""
    if survey.geometry.dim == 1:
        return np.zeros(0, dtype=int), np.zeros((len(scales.bandwidth), 0, 2, 2))
    cost = len(scales.bandwidth) * survey.each
    count = affordable(_MOST_ARROWS, survey.seconds * _FOR_ARROWS, cost, least=_FEWEST_ARROWS)
    some = np.sort(spread_out(places, count))
    asked = survey.points[some]
    drawn = []
    for sigma in scales.bandwidth.tolist():
        vectors, values = _leading(survey.geometry, asked, 2, sigma)
        seen = plane.directions(survey.array[some], vectors)
        drawn.append(seen * np.sqrt(values.clip(0, 1))[..., None])
    return some, np.array(drawn)


def _leading(geometry: Geometry, points: Tensor, count: int | None, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return leading directions, or all that are known, as rows, shape (n, k, D), and their eigenvalues."""
    spectrum = geometry.metric(points, sigma).spectrum()
    return spectrum.vectors[..., :count].mT.double().numpy(), spectrum.values[:, :count].double().numpy()


def _directions(survey: Survey, places: np.ndarray) -> Directions:
    """Find the leading directions at typical points, and how freely every column moves."""
    points, is_picture = survey.points, survey.given.image_shape is not None
    chosen = _typical(survey, places)
    count = _PICTURED if is_picture else _LOADED
    vectors, values = _leading(survey.geometry, points[chosen], count, survey.bandwidth)
    some = scattered(len(points), _TYPICAL if is_picture else _AVERAGED, seed=6)
    along, sizes = _leading(survey.geometry, points[some], None, survey.bandwidth)
    freedom = (sizes[..., None] * np.square(along)).sum(1).mean(0)
    return Directions(chosen, values, vectors, freedom, len(some))


def _typical(survey: Survey, places: np.ndarray) -> np.ndarray:
    """Choose the point nearest to the middle of each class, or points that are spread over the map."""
    points, label = survey.points, survey.label
    if label is None or label.names is None:
        return spread_out(places, _TYPICAL)
    chosen = []
    for code in range(min(len(label.names), 2 * _TYPICAL)):
        own = np.flatnonzero(label.values == code)
        if len(own):
            away = (points[own] - points[own].median(0).values).square().sum(1)
            chosen.append(int(own[int(away.argmin())]))
    return np.array(chosen, dtype=int) if chosen else spread_out(places, _TYPICAL)


def _columns(survey: Survey) -> tuple[Column, ...]:
    """Collect what can be read off at each point: labels, further columns, and the columns of small tables."""
    given = survey.given
    beside = [column.at(survey.rows) for column in given.columns]
    if survey.label is not None:
        beside.insert(0, survey.label)
    if given.image_shape is not None or len(given.feature_names) > _FEW_COLUMNS:
        return tuple(beside)
    taken = {column.name for column in beside}
    names = [f"{name} (of X)" if name in taken else name for name in given.feature_names]
    values = survey.array if given.units is None else survey.array * given.units.double().numpy()
    return (*beside, *(Column(name, values[:, k]) for k, name in enumerate(names)))


def _origin(geometry: Geometry, given: ReportInput, command: str | None, seconds: float) -> dict[str, object]:
    number_kind = str(given.points.dtype).removeprefix("torch.")
    settings = {name: _plain(value) for name, value in sorted(geometry.parameters.items()) if value is not None}
    return {
        "made on": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command or "carre.write_report(geometry, X, …)",
        "carre": carre.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": str(geometry.device),
        "data": f"{len(given.points):,} rows × {geometry.dim:,} columns, {number_kind}",
        "data, SHA-256": given.digest,
        "rank": geometry.rank,
        "trained scales": "{:.4g} to {:.4g}".format(*geometry.bandwidth_range),
        "scale": "given at the fit" if geometry.scale_profile is None else geometry.scale_profile.reason,
        "noise": str(geometry.noise_estimate),
        "coordinates": _some(given.feature_names) if given.image_shape is None else "pixels",
        "not taken": _some([column.name for column in given.columns]) or "–",
        "scaling": geometry.scaling_in_words,
        "settings of the fit": settings,
        "training": f"{geometry.history.steps:,} steps, {geometry.history.seconds:.0f} s",
        "seconds for this report": round(seconds, 1),
    }


def _some(names: Sequence[str]) -> str:
    """List the first few of many names, and how many there are."""
    return ", ".join(names[:_MOST_NAMES]) + (f", … ({len(names):,})" if len(names) > _MOST_NAMES else "")


def _plain(value: Any) -> Any:
    """Return what JSON knows as it is, and everything else as short text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    return type(value).__name__ if callable(value) else str(value)[:200]
