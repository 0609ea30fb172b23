"""Where plots are drawn: new figures or axes of the caller's own, and the plane."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from carre.boundary import as_numbers, as_points
from carre.text import visible

# The size of a picture of the plane, in inches.
_PLANE = (6.4, 4.8)
_DPI = 150
_HALVINGS = 20


def new_figure(size: tuple[float, float]) -> Figure:
    """Make an empty figure.

    Where somebody is looking, in a notebook or an interactive session, it is one of pyplot, which shows it.
    Elsewhere pyplot is left out: it would keep every figure alive.
    """
    if matplotlib.is_interactive() or "inline" in os.environ.get("MPLBACKEND", ""):
        from matplotlib import pyplot  # noqa: PLC0415

        return pyplot.figure(figsize=size, layout="constrained")
    return Figure(figsize=size, layout="constrained")


def as_panel(axes: Any, size: tuple[float, float]) -> Axes:
    """Return the given axes, or those of a new figure."""
    if axes is None:
        panel: Axes = new_figure(size).subplots()
        return panel
    if not isinstance(axes, Axes):
        raise TypeError(f"axes must be the matplotlib Axes to draw into; got {type(axes).__name__}. Give one of them")
    return axes


def as_panels(
    axes: Any,
    shape: tuple[int, ...],
    size: tuple[float, float],
    *,
    mosaic: str = "",
    heights: Sequence[float] | None = None,
    sharex: bool = False,
) -> np.ndarray:
    """Return the given axes in a shape, or those of a new figure: a grid, or a mosaic of rows of letters."""
    if axes is None:
        figure = new_figure(size)
        if mosaic:
            made = list(figure.subplot_mosaic(mosaic, height_ratios=heights, sharex=sharex).values())
        else:
            made = figure.subplots(*shape, height_ratios=heights, sharex=sharex)
        return np.asarray(made, dtype=object).reshape(shape)
    panels = _as_objects(axes)
    if panels.size != math.prod(shape) or not all(isinstance(panel, Axes) for panel in panels.flat):
        raise ValueError(
            f"axes must be {' × '.join(map(str, shape))} matplotlib Axes to draw into; got shape {panels.shape}. "
            f"Make them with figure.subplots{shape}"
        )
    return panels.reshape(shape)


def figure_of(axes: Axes | np.ndarray) -> Figure:
    """Return the whole figure that a plot was drawn into, to be saved or shown.

    Args:
        axes: What a ``plot_*`` function returned: axes, or an array of them.

    Example:
        >>> from carre.plots import plot_spectrum
        >>> figure_of(plot_spectrum([[1.0, 0.9, 0.1]]))
        <Figure size 640x360 with 1 Axes>
    """
    panels = _as_objects(axes).ravel()
    if not len(panels) or not isinstance(panels[0], Axes):
        raise TypeError(f"axes must be what a plot function returned; got {type(axes).__name__}")
    # Axes may lie in a part of a figure.
    figure = panels[0].figure.figure
    assert isinstance(figure, Figure)
    return figure


def _as_objects(axes: Any) -> np.ndarray:
    """Return axes as an array; a tensor holds none, and may not even be readable."""
    return np.asarray((), dtype=object) if isinstance(axes, Tensor) else np.asarray(axes, dtype=object)


def render_png(drawing: Any) -> bytes:
    """Render a figure once, for a page and for a file of its own.

    Args:
        drawing: A matplotlib figure, or what a ``plot_*`` function returned: axes, or an array of them.

    Example:
        >>> render_png(Figure(figsize=(1, 1)))[1:4]
        b'PNG'
    """
    figure = drawing if isinstance(drawing, Figure) else figure_of(drawing)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def as_plane(axes: Any) -> Axes:
    """Return the given axes, or those of a new figure, with the same unit in both directions."""
    panel = as_panel(axes, _PLANE)
    panel.set_aspect("equal")
    return panel


def as_array(values: Any, name: str) -> np.ndarray:
    """Return an array, a tensor on any device, nested lists or a metric as numbers; what a mask hides is missing."""
    given = np.ma.filled(values.astype(float), np.nan) if isinstance(values, np.ma.MaskedArray) else values
    array: np.ndarray = as_numbers(given, name).detach().cpu().double().numpy()
    return array


def as_label(name: object) -> str:
    """Write a name that is not ours, such as that of a class: with nothing unseen in it, and no formula to be parsed.

    Example:
        >>> print(as_label("$x^$"))
        \\$x^\\$
    """
    return visible(str(name)).replace("$", r"\$")


def as_planar(points: Any, *, name: str = "points") -> np.ndarray:
    """Check points or vectors of the plane, and return them as an array."""
    array: np.ndarray = as_points(points, name=name).tensor.detach().cpu().numpy()
    if array.shape[1] != 2:
        raise ValueError(
            f"{name} must have 2 columns to be drawn in the plane; got {array.shape[1]}. Give two of the columns, "
            f"{name}[:, :2], or an embedding, such as sklearn.decomposition.PCA(2).fit_transform({name})"
        )
    return array


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
