"""What has a direction at points of the plane: metrics as ellipses, vectors as arrows, tangents as dashes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.colors import to_rgba

from carre.report.panels import as_panel
from carre.report.plane import SIZE, as_numbers, as_planar, draw_background, extent, finish
from carre.report.style import BLUE, ORANGE, STYLE

# Lengths of what is drawn at points, as shares of the extent of the points.
_ELLIPSE, _ARROW, _DASH = 0.03, 0.09, 0.03


@rc_context(STYLE)
def plot_metric_ellipses(
    points: Any, metric: Any, *, size: float | None = None, n_shown: int | None = None, axes: Axes | None = None
) -> Axes:
    """Plot the metric G at points of the plane as ellipses, with half axes of √λ along its eigenvectors.

    A circle says that the data extend in every direction, a needle that they are a curve there.

    Args:
        points: Shape (n, 2).
        metric: G at the points: what `carre.MetricMatching.metric` returned, or matrices of shape (n, 2, 2).
        size: The half axis that belongs to the eigenvalue 1, in units of the points; None takes 3% of their extent.
        n_shown: Draw at most so many ellipses, spread over the points, and the others as dots; None draws all.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> import numpy as np
        >>> axes = plot_metric_ellipses([[0, 0], [1, 0]], np.stack([np.eye(2), np.diag([1.0, 0.01])]), size=0.2)
        >>> axes.collections[-1].get_widths(), axes.collections[-1].get_heights()
        (array([0.4, 0.4]), array([0.4 , 0.04]))
    """
    places = as_planar(points)
    matrices = as_numbers(metric)
    if matrices.shape != (len(places), 2, 2) or not np.isfinite(matrices).all():
        must = f"metric must hold finite matrices of shape ({len(places)}, 2, 2), one per point"
        raise ValueError(f"{must}; got {matrices.shape}. Ask for the metric at these points")
    size = _checked_size(size, _ELLIPSE * extent(places))
    panel = as_panel(axes, SIZE)
    chosen = draw_background(panel, places, n_shown)
    values, vectors = np.linalg.eigh(matrices[chosen])
    small, large = 2 * size * np.sqrt(values.clip(0)).T
    angle = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
    ellipses = EllipseCollection(
        large, small, angle, units="xy", offsets=places[chosen], offset_transform=panel.transData,
        facecolors=[to_rgba(BLUE, 0.22)], edgecolors=BLUE, linewidths=0.9, zorder=3,
    )  # fmt: skip
    panel.add_collection(ellipses)
    panel.update_datalim(np.concatenate([places[chosen] - size, places[chosen] + size]))
    panel.autoscale_view()
    panel.set_title("Metric")
    return finish(panel)


@rc_context(STYLE)
def plot_vectors(
    points: Any,
    vectors: Any,
    *,
    size: float | None = None,
    n_shown: int | None = None,
    color: str = ORANGE,
    axes: Axes | None = None,
) -> Axes:
    """Plot a vector at each point of the plane as an arrow: a gradient, say.

    Args:
        points: Shape (n, 2).
        vectors: Shape (n, 2).
        size: The length at which the longest arrow is drawn, in units of the points; None takes 9% of their extent.
        n_shown: Draw at most so many arrows, spread over the points, and the others as dots; None draws all.
        color: Of the arrows.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> plot_vectors([[0, 0], [1, 0]], [[0, 1], [0, 2]], size=1.0).get_title()
        'Vectors'
    """
    places, arrows = as_planar(points), as_planar(vectors, name="vectors")
    if len(arrows) != len(places):
        raise ValueError(f"vectors must be one per point, {len(places)}; got {len(arrows)}")
    size = _checked_size(size, _ARROW * extent(places))
    panel = as_panel(axes, SIZE)
    chosen = draw_background(panel, places, n_shown)
    longest = float(np.linalg.norm(arrows[chosen], axis=1).max()) or 1.0
    panel.quiver(
        *places[chosen].T, *arrows[chosen].T, color=color, angles="xy", scale_units="xy", scale=longest / size,
        width=0.006, zorder=3,
    )  # fmt: skip
    ends = places[chosen] + arrows[chosen] * (size / longest)
    panel.update_datalim(ends)
    panel.autoscale_view()
    panel.set_title("Vectors")
    return finish(panel)


@rc_context(STYLE)
def plot_tangents(
    points: Any, basis: Any, *, size: float | None = None, n_shown: int | None = None, axes: Axes | None = None
) -> Axes:
    """Plot tangent directions at points of the plane as dashes: they have no sign.

    Args:
        points: Shape (n, 2).
        basis: Shape (n, 2, dim), unit columns, as `carre.MetricMatching.tangent_basis` returns them.
        size: Half the length of a dash, in units of the points; None takes 3% of their extent.
        n_shown: Draw dashes at at most so many points, spread over all, and the others as dots; None draws all.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_tangents([[0.0, 0.0]], [[[1.0], [0.0]]], size=0.5)
        >>> axes.collections[-1].get_segments()[0].tolist()
        [[-0.5, 0.0], [0.5, 0.0]]
    """
    places = as_planar(points)
    frames = as_numbers(basis)
    if frames.ndim != 3 or frames.shape[:2] != places.shape or not np.isfinite(frames).all():
        must = f"basis must be finite, of shape ({len(places)}, 2, dim), directions as columns"
        raise ValueError(f"{must}; got {frames.shape}. Use what tangent_basis returns at these points")
    size = _checked_size(size, _DASH * extent(places))
    panel = as_panel(axes, SIZE)
    chosen = draw_background(panel, places, n_shown)
    steps = size * frames[chosen].swapaxes(1, 2)
    ends = np.stack([places[chosen][:, None] - steps, places[chosen][:, None] + steps], 2).reshape(-1, 2, 2)
    panel.add_collection(LineCollection(list(ends), colors=BLUE, linewidths=1.6, zorder=3))
    panel.update_datalim(ends.reshape(-1, 2))
    panel.autoscale_view()
    panel.set_title("Tangent directions")
    return finish(panel)


def _checked_size(size: float | None, default: float) -> float:
    if size is None:
        return default
    if not (np.ndim(size) == 0 and np.isfinite(size) and size > 0):
        raise ValueError(f"size must be a positive length in units of the points; got {size}")
    return float(size)
