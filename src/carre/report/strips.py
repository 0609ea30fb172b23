"""Rows of pictures: paths between images, or the stages of a repair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from carre.report.images import strip
from carre.report.panels import as_grid, as_panel, as_panels, figure_of
from carre.report.plane import as_numbers
from carre.report.style import STYLE

_CELL = 0.45
# How dark the lines between images of a mosaic are, from 0 to 1.
_LINE = 0.2


@rc_context(STYLE)
def plot_path_strip(
    images: Any,
    *,
    ends: tuple[str, str] | None = ("start", "end"),
    limits: tuple[float, float] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Plot the pictures along paths, one path per row.

    Args:
        images: Shape (paths, nodes, height, width); or rows of shape (nodes, height, width) under names, such as
            ``{"straight": …, "along the data": …}``. Unfold flat nodes with ``nodes.reshape(-1, n_nodes, 8, 8)``.
        ends: What to write under the first and the last picture.
        limits: The values that are white and black; None takes the smallest and the largest.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_path_strip({"straight": np.zeros((5, 8, 8)), "along the data": np.ones((5, 8, 8))})
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['straight', 'along the data']
    """
    if isinstance(images, Mapping):
        rows = _as_rows(images, "images")
    else:
        array = as_numbers(images)
        if array.ndim != 4:
            must = "images must have shape (paths, nodes, height, width)"
            raise ValueError(f"{must}; got {array.shape}. Unfold flat nodes with reshape(-1, n_nodes, height, width)")
        rows = _as_rows({f"{number}": row for number, row in enumerate(array, start=1)}, "images")
    stacked = np.stack(list(rows.values()))
    low, high = (float(stacked.min()), float(stacked.max())) if limits is None else limits
    if not low <= high:
        raise ValueError(f"limits must be the values of white and black, ascending; got {limits}")
    n_rows, n_columns = stacked.shape[:2]
    panel = as_panel(axes, (1.2 + 1.6 * _CELL * n_columns, 0.6 + 1.6 * _CELL * n_rows))
    _draw_rows(panel, rows, ends, (low, high))
    panel.set_title("Pictures along paths")
    return panel


@rc_context(STYLE)
def plot_image_rows(
    groups: Mapping[str, Mapping[str, Any]], *, title: str = "", ends: tuple[str, str] | None = None, axes: Any = None
) -> np.ndarray:
    """Plot named rows of images in titled groups, two groups beside each other: paths, or the stages of a repair.

    Args:
        groups: The rows of each group under their names; a row has shape (columns, height, width), with values from 0,
            white, to 1, black.
        title: Of the whole figure, where it is a new one.
        ends: What to write under the first and the last column.
        axes: One axes per group to draw into instead of a new figure.

    Returns:
        The axes, one per group.

    Example:
        >>> images = np.zeros((4, 8, 8))
        >>> panels = plot_image_rows({"a pair": {"straight": images, "along the data": images}}, title="Paths")
        >>> [panel.get_title() for panel in panels]
        ['a pair']
    """
    if not groups:
        raise ValueError("groups must hold at least one group of rows; got none")
    checked = {name: _as_rows(rows, f"the rows of {name!r}") for name, rows in groups.items()}
    panels = _new_panels(checked, title) if axes is None else as_panels(axes, len(checked), "", (1.0, 1.0))
    for panel, (name, rows) in zip(panels, checked.items(), strict=True):
        _draw_rows(panel, rows, ends, (0.0, 1.0))
        panel.set_title(name, fontsize=10)
    return panels


def _as_rows(rows: Mapping[str, Any], what: str) -> dict[str, np.ndarray]:
    """Check rows of images of one size."""
    arrays = {name: as_numbers(images) for name, images in rows.items()}
    shapes = {images.shape for images in arrays.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 3 or 0 in next(iter(shapes)):
        raise ValueError(f"{what} must have one shape (columns, height, width); got {sorted(shapes)}")
    return arrays


def _new_panels(groups: Mapping[str, Mapping[str, np.ndarray]], title: str) -> np.ndarray:
    """Make a figure with a panel per group, as large as the first group needs."""
    across = min(2, len(groups))
    n_columns = len(next(iter(next(iter(groups.values())).values())))
    down, most = -(-len(groups) // across), max(map(len, groups.values()))
    size = across * (1.0 + _CELL * n_columns), 0.4 + down * (0.5 + _CELL * most)
    panels = as_grid(None, (down, across), size).ravel()
    for panel in panels[len(groups) :]:
        panel.set_axis_off()
    figure_of(panels).suptitle(title, x=0.01, ha="left")
    return panels[: len(groups)]


def _draw_rows(
    axes: Axes, rows: Mapping[str, np.ndarray], ends: tuple[str, str] | None, limits: tuple[float, float]
) -> None:
    """Draw rows of images as one mosaic: hundreds of axes would take minutes to lay out."""
    stacked = np.stack(list(rows.values()))
    n_rows, n_columns, height, width = stacked.shape
    line = limits[0] + _LINE * (limits[1] - limits[0])
    framed = np.pad(stacked, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=line)
    mosaic = framed.swapaxes(1, 2).reshape(n_rows * (height + 1), -1)
    axes.imshow(mosaic, cmap="gray_r", vmin=limits[0], vmax=limits[1], interpolation="nearest")
    strip(axes)
    axes.set_yticks((np.arange(n_rows) + 0.5) * (height + 1) - 0.5, list(rows), fontsize=8)
    if ends is not None:
        axes.set_xticks([width / 2, (n_columns - 0.5) * (width + 1) - 0.5], ends, fontsize=8)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set(visible=False)
