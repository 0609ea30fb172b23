"""What all pictures in the plane share: points of two columns, and axes that do not distort them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from carre.boundary import as_points, is_integer
from carre.report.style import GRAY

SIZE = (6.4, 4.8)
_HALVINGS = 20


def as_numbers(values: Any) -> np.ndarray:
    """Return an array, a tensor on any device, nested lists or a metric as numbers."""
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=float)


def as_planar(points: Any, *, name: str = "points") -> np.ndarray:
    """Check points or vectors of the plane, and return them as an array."""
    given = points.detach().cpu() if isinstance(points, Tensor) else points
    array: np.ndarray = as_points(given, name=name).tensor.numpy()
    if array.shape[1] != 2:
        raise ValueError(
            f"{name} must have 2 columns to be drawn in the plane; got {array.shape[1]}. Give two of the columns, "
            f"{name}[:, :2], or an embedding, such as sklearn.decomposition.PCA(2).fit_transform({name})"
        )
    return array


def draw_background(axes: Axes, points: np.ndarray, n_shown: int | None) -> np.ndarray:
    """Draw points as small gray dots where not all of them get a symbol of their own; return those that do."""
    if n_shown is None:
        return np.arange(len(points))
    if not is_integer(n_shown) or n_shown < 1:
        raise ValueError(f"n_shown must be a positive integer, or None for all; got {n_shown!r}")
    if n_shown < len(points):
        axes.scatter(points[:, 0], points[:, 1], s=4, color=GRAY, alpha=0.45, linewidth=0, zorder=1)
    return spread_out(points, n_shown)


def spread_out(points: np.ndarray, count: int) -> np.ndarray:
    """Choose at most so many points, of which no two are near: each that keeps its distance from those before it.

    The distance is as large as leaves nearly the wanted number. Unlike the farthest points, these lie among the others.
    """
    if len(points) <= count:
        return np.arange(len(points))
    low, high = 0.0, extent(points)
    best = np.arange(1)
    for _ in range(_HALVINGS):
        distance = (low + high) / 2
        chosen = _kept_apart(points, distance, count)
        if len(chosen) > count:
            low = distance
        else:
            high, best = distance, chosen
    return best


def _kept_apart(points: np.ndarray, distance: float, count: int) -> np.ndarray:
    """Choose points in their order that keep a distance, until there are more than a number of them."""
    free = np.ones(len(points), dtype=bool)
    chosen: list[int] = []
    while free.any() and len(chosen) <= count:
        chosen.append(int(free.argmax()))
        free &= np.square(points - points[chosen[-1]]).sum(1) > distance**2
    return np.array(chosen)


def extent(points: np.ndarray) -> float:
    """Return the larger side of the box around points; 1 where all are the same."""
    return float(np.ptp(points, axis=0).max()) or 1.0


def finish(axes: Axes) -> Axes:
    """Let both directions have the same unit."""
    axes.set_aspect("equal")
    return axes
