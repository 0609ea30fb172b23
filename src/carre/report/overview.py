"""One picture of everything: metric, function, gradient, dimension and paths of data in the plane [RMM, Fig. 1]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from torch import Tensor

from carre.report.directions import plot_metric_ellipses, plot_vectors
from carre.report.maps import plot_dimension_map, plot_paths, plot_scalar_field
from carre.report.panels import as_panels
from carre.report.plane import as_planar
from carre.report.style import STYLE


@rc_context(STYLE)
def plot_overview(
    geometry: Any,
    X: Any,
    function: Callable[[Tensor], Tensor],
    pairs: tuple[Any, Any],
    *,
    bandwidth: float | None = None,
    n_shown: int = 90,
    axes: Any = None,
) -> np.ndarray:
    """Plot what a geometry knows of data in the plane: five panels, as in the first figure of the paper.

    Ellipses of the metric; a function; the local dimension; the gradient of the function along the data; and shortest
    paths.

    Args:
        geometry: A fitted `carre.MetricMatching`.
        X: Samples to draw, shape (n, 2).
        function: A torch function of points, (n, 2) → (n,).
        pairs: The starts and the ends of paths, each of shape (paths, 2).
        bandwidth: σ; None takes the geometry's own.
        n_shown: How many ellipses and arrows to draw.
        axes: Five axes to draw into instead of a new figure.

    Returns:
        The axes of metric, function, dimension, gradient and paths.

    Example:
        >>> from carre import MetricMatching
        >>> angle = np.linspace(0, 3, 200)
        >>> arc = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> geometry = MetricMatching(max_steps=20, width=16, random_state=0).fit(arc)
        >>> panels = plot_overview(geometry, arc, lambda x: x[:, 0], (arc[:1], arc[-1:]))
        >>> [panel.get_title() for panel in panels]
        ['Metric', 'Function f', 'Local dimension', 'Gradient of f along the data', 'Shortest paths']
    """
    points = as_planar(X, name="X")
    starts, ends = (as_planar(side, name=name) for side, name in zip(pairs, ("pairs[0]", "pairs[1]"), strict=True))
    values = function(torch.as_tensor(points))
    path = geometry.geodesic(starts, ends, bandwidth)
    panels = as_panels(axes, 5, "aabc;aade", (12.0, 5.6))
    metric, scalar, dimension, gradient, paths = panels
    plot_metric_ellipses(points, geometry.metric(points, bandwidth), n_shown=n_shown, axes=metric)
    plot_scalar_field(points, values, marker_size=6.0, axes=scalar).set_title("Function f")
    plot_dimension_map(points, geometry.dimension(points, bandwidth), marker_size=6.0, axes=dimension)
    along = geometry.gradient(function, points, bandwidth)
    plot_vectors(points, along, n_shown=n_shown, axes=gradient).set_title("Gradient of f along the data")
    plot_paths(path, points=points, axes=paths).set_title("Shortest paths")
    for panel in panels:
        panel.set(xticks=[], yticks=[])
        panel.grid(visible=False)
        for spine in panel.spines.values():
            spine.set_visible(False)
    return panels
