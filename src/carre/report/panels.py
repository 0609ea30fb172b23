"""Where plots are drawn: new figures, or axes of the caller's own."""

from __future__ import annotations

import io
import os
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_DPI = 150


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


def as_panels(axes: Any, count: int, mosaic: str, size: tuple[float, float], **grid: Any) -> np.ndarray:
    """Return the given axes in a row, or those of a new figure: a mosaic of rows of letters, split by ``;``."""
    if axes is None:
        return np.array(list(new_figure(size).subplot_mosaic(mosaic, **grid).values()))
    panels = np.asarray(axes, dtype=object).ravel()
    if len(panels) != count or not all(isinstance(panel, Axes) for panel in panels):
        remedy = f"Make them with figure.subplots({count})"
        raise ValueError(f"axes must be {count} matplotlib Axes to draw into; got {len(panels)} objects. {remedy}")
    return panels


def as_grid(axes: Any, shape: tuple[int, int], size: tuple[float, float]) -> np.ndarray:
    """Return the given axes as a grid, or those of a new figure."""
    if axes is None:
        grid: np.ndarray = new_figure(size).subplots(*shape, squeeze=False)
        return grid
    panels = np.asarray(axes, dtype=object)
    if panels.size != shape[0] * shape[1] or not all(isinstance(panel, Axes) for panel in panels.flat):
        raise ValueError(
            f"axes must be {shape[0]} × {shape[1]} matplotlib Axes to draw into; got shape {panels.shape}. "
            f"Make them with figure.subplots{shape}"
        )
    return panels.reshape(shape)


def figure_of(axes: Axes | np.ndarray) -> Figure:
    """Return the whole figure that a plot was drawn into, to be saved or shown.

    Args:
        axes: What a ``plot_*`` function returned: axes, or an array of them.

    Example:
        >>> from carre.report import plot_spectrum
        >>> figure_of(plot_spectrum([[1.0, 0.9, 0.1]]))
        <Figure size 640x360 with 1 Axes>
    """
    panels = np.asarray(axes, dtype=object).ravel()
    if not len(panels) or not isinstance(panels[0], Axes):
        raise TypeError(f"axes must be what a plot function returned; got {type(axes).__name__}")
    # Axes may lie in a part of a figure.
    figure = panels[0].figure.figure
    assert isinstance(figure, Figure)
    return figure


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
