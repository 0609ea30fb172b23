"""Maps of a dataset in the plane: the dimension or a value at each point, and paths over the samples."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes

from carre.report.panels import as_panel
from carre.report.plane import SIZE, as_numbers, as_planar, finish
from carre.report.style import BLUE, GRAY, GREEN, INK, ORANGE, PINK, SKY, STYLE, YELLOW

# The color of each dimension from 0 up, the same in every picture.
_DIMENSION_COLORS = (GRAY, BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)
_PATH_COLORS = (BLUE, ORANGE, GREEN, PINK, INK)


@rc_context(STYLE)
def plot_dimension_map(points: Any, dimension: Any, *, marker_size: float = 9.0, axes: Axes | None = None) -> Axes:
    """Plot points in the plane, colored by their local dimension, with the number of points of each.

    Args:
        points: Shape (n, 2): points of the plane, or an embedding of points of a larger space.
        dimension: One whole number per point, as `carre.MetricMatching.dimension` counts them.
        marker_size: Area of a dot.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_dimension_map([[0, 0], [1, 0], [2, 1]], [1, 1, 2])
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['1 (2)', '2 (1)']
    """
    places = as_planar(points)
    values = _per_point(dimension, len(places), "dimension")
    if (values != np.round(values)).any() or (values < 0).any():
        raise ValueError("dimension must hold whole numbers from 0 up; got others. Use plot_scalar_field for those")
    panel = as_panel(axes, SIZE)
    found, counts = np.unique(values.astype(int), return_counts=True)
    for kind, count, color in zip(found, counts, _dimension_colors(found), strict=True):
        label = f"{kind} ({count:,})"
        x, y = places[values == kind].T
        panel.scatter(x, y, s=marker_size, color=color, linewidth=0, label=label)
    # Beside the map, where it covers no point.
    panel.legend(
        title="dimension\n(points)", fontsize=9, title_fontsize=9, markerscale=(30 / marker_size) ** 0.5,
        loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0, handletextpad=0.1,
    )  # fmt: skip
    panel.set_title("Local dimension")
    return finish(panel)


@rc_context(STYLE)
def plot_scalar_field(
    points: Any, values: Any, *, label: str = "", marker_size: float = 9.0, axes: Axes | None = None
) -> Axes:
    """Plot points in the plane, colored by a value at each.

    Args:
        points: Shape (n, 2).
        values: One number per point.
        label: What the values are, for the color bar.
        marker_size: Area of a dot.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> plot_scalar_field([[0, 0], [1, 0]], [0.5, 1.5], label="height").get_title()
        'Scalar field'
    """
    places = as_planar(points)
    numbers = _per_point(values, len(places), "values")
    panel = as_panel(axes, SIZE)
    shown = panel.scatter(places[:, 0], places[:, 1], c=numbers, s=marker_size, cmap="viridis", linewidth=0)
    panel.figure.colorbar(shown, ax=panel, label=label, shrink=0.75, aspect=25, pad=0.02)
    panel.set_title("Scalar field")
    return finish(panel)


@rc_context(STYLE)
def plot_paths(paths: Any, *, points: Any = None, axes: Axes | None = None) -> Axes:
    """Plot paths in the plane over the samples, each from a dot to a square.

    Args:
        paths: A `carre.toolkit.Path`, nodes of shape (paths, nodes, 2) or (nodes, 2), or several of these under
            names, such as ``{"straight": …, "along the data": …}``, each in its own color.
        points: The samples to draw behind them, shape (n, 2).
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_paths({"bent": [[0, 0], [1, 1], [2, 0]], "straight": [[0, 0], [2, 0]]}, points=[[1, 1]])
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['bent', 'straight']
    """
    named = paths if isinstance(paths, Mapping) else {"": paths}
    if not named:
        raise ValueError("paths must hold at least one path; got none")
    curves = {name: _as_nodes(nodes, name) for name, nodes in named.items()}
    behind = None if points is None else as_planar(points)
    panel = as_panel(axes, SIZE)
    if behind is not None:
        panel.scatter(behind[:, 0], behind[:, 1], s=5, color=GRAY, alpha=0.5, linewidth=0, zorder=1)
    for (name, batch), color in zip(curves.items(), cycle(_PATH_COLORS), strict=False):
        for number, nodes in enumerate(batch):
            panel.plot(*nodes.T, color=color, label=name if name and number == 0 else None, zorder=3)
    ends = np.concatenate([batch[:, [0, -1]] for batch in curves.values()])
    panel.plot(*ends[:, 0].T, "o", color=INK, markersize=5, zorder=4)
    panel.plot(*ends[:, 1].T, "s", color=INK, markersize=5, zorder=4)
    if any(named):
        panel.legend(loc="best", fontsize=9)
    panel.set_title("Paths")
    return finish(panel)


def _per_point(values: Any, count: int, name: str) -> np.ndarray:
    """Check numbers, one per point."""
    numbers = as_numbers(values)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite, one per point, shape ({count},); got shape {numbers.shape}")
    return numbers


def _dimension_colors(found: np.ndarray) -> list[Any]:
    """Return a color for each dimension; many, or high ones, by their order on a map that every eye can read."""
    if found.max() < len(_DIMENSION_COLORS):
        return [_DIMENSION_COLORS[kind] for kind in found]
    return list(colormaps["cividis"](np.linspace(0, 1, len(found))))


def _as_nodes(paths: Any, name: str) -> np.ndarray:
    """Check the nodes of paths in the plane, and return them as (paths, nodes, 2)."""
    given = as_numbers(getattr(paths, "nodes", paths))
    called = f"paths[{name!r}]" if name else "paths"
    if given.ndim not in (2, 3) or given.shape[-2] < 2 or not np.isfinite(given).all():
        must = f"{called} must be finite, of shape (paths, nodes, 2) or (nodes, 2) with at least 2 nodes"
        raise ValueError(f"{must}; got shape {given.shape}")
    if given.shape[-1] != 2:
        raise ValueError(
            f"{called} must lie in the plane, with 2 columns; got {given.shape[-1]}. Give two columns of the nodes, "
            "path.nodes[..., :2], or map the nodes by the embedding that was fitted on the samples"
        )
    return given.reshape(-1, *given.shape[-2:])
