"""The geometry over scales: what the slider of a report runs through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from carre.report.budget import scattered
from carre.report.content import ScaleTable
from carre.toolkit import DimensionEstimate

_MOST_SCALES = 13
# Scales that differ by less are the same.
_SAME = 0.02


def scale_grid(geometry: Any, bandwidth: float) -> tuple[np.ndarray, int]:
    """Return at most 13 scales, those that were compared at the fit where they are known, and the index of one."""
    profile = geometry.scale_profile_
    low, high = geometry.bandwidth_range_
    grid = np.geomspace(low, high, _MOST_SCALES - 1) if profile is None else np.asarray(profile.bandwidth, dtype=float)
    if len(grid) > _MOST_SCALES:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, _MOST_SCALES).round().astype(int))]
    nearest = int(np.abs(np.log(grid / bandwidth)).argmin())
    if abs(np.log(grid[nearest] / bandwidth)) < _SAME or len(grid) == _MOST_SCALES:
        grid = np.append(np.delete(grid, nearest), bandwidth)
    else:
        grid = np.append(grid, bandwidth)
    grid = np.sort(grid)
    return grid, int(np.searchsorted(grid, bandwidth))


def measure_scales(
    geometry: Any,
    points: Tensor,
    bandwidth: float,
    n_measured: int,
    estimate: DimensionEstimate,
    progress: Callable[[float], None],
) -> ScaleTable:
    """Measure local dimensions and eigenvalues at every scale.

    Args:
        geometry: The fitted geometry.
        points: The points shown.
        bandwidth: The scale that the report is about, at which all points are measured.
        n_measured: At how many points the other scales are measured.
        estimate: What is known at that scale already.
        progress: Told how far the work is.
    """
    grid, chosen = scale_grid(geometry, bandwidth)
    some = scattered(len(points), n_measured)
    dimension = np.full((len(grid), len(points)), -1, dtype=int)
    trace = np.full((len(grid), len(points)), np.nan)
    quartiles = []
    for scale, sigma in enumerate(grid.tolist()):
        rows = np.arange(len(points)) if scale == chosen else some.numpy()
        asked = points[rows]
        values = geometry.eigenvalues(asked, sigma).double().numpy()
        is_known = scale == chosen and not estimate.source and estimate.bandwidth == bandwidth
        dimension[scale, rows] = estimate.local if is_known else geometry.dimension(asked, sigma).numpy()
        trace[scale, rows] = values.sum(1)
        quartiles.append((values.mean(0), *np.quantile(values, [0.25, 0.75], axis=0)))
        progress((scale + 1) / len(grid))
    mean, low, high = (np.array(rows) for rows in zip(*quartiles, strict=True))
    notes = tuple(_note(geometry, sigma) for sigma in grid.tolist())
    return ScaleTable(grid, chosen, dimension, trace, mean, low, high, n_measured, notes)


def _note(geometry: Any, sigma: float) -> str:
    """Say why a scale should not be believed, if so."""
    low, high = geometry.bandwidth_range_
    if not 0.99 * low <= sigma <= 1.01 * high:
        return f"outside of the scales {low:.3g} to {high:.3g} that were trained on: an extrapolation"
    if sigma < 0.99 * geometry.supported_from_:
        return "samples have hardly any neighbors at this scale: an extrapolation of the network"
    profile = geometry.scale_profile_
    if profile is not None:
        nearest = int(np.abs(np.log(profile.bandwidth / sigma)).argmin())
        if not profile.is_admissible[nearest]:
            return f"not calibrated: predicted and found spread differ by {profile.calibration[nearest]:.0%}"
    return ""
