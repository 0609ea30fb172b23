"""Data in the plane: maps, paths, metrics as ellipses, vectors, tangents, and all of it in one picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.colors import is_color_like, to_rgba
from torch import Tensor

from carre.boundary import ArgumentError, is_integer
from carre.geometry import Geometry
from carre.plots.panels import as_array, as_panels, as_planar, as_plane, extent, spread_out
from carre.plots.style import BLUE, GRAY, GREEN, INK, ORANGE, PINK, SKY, STYLE, YELLOW
from carre.toolkit import Eigenfunctions

# The color of each dimension from 0 up, the same in every picture.
_DIMENSION_COLORS = (GRAY, BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)
_PATH_COLORS = (BLUE, ORANGE, GREEN, PINK, INK)
# Lengths of what is drawn at points, as shares of the extent of the points.
_ELLIPSE, _ARROW, _DASH = 0.03, 0.09, 0.03


@rc_context(STYLE)
def plot_dimension_map(points: Any, dimension: Any, *, marker_size: float = 9.0, axes: Axes | None = None) -> Axes:
    """Plot points in the plane, colored by their local dimension, with the number of points of each.

    Args:
        points: Shape (n, 2): points of the plane, or an embedding of points of a larger space.
        dimension: One whole number per point, as `carre.Geometry.dimension` counts them.
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
    panel = as_plane(axes)
    found, counts = np.unique(values.astype(int), return_counts=True)
    for kind, count, color in zip(found, counts, _dimension_colors(found), strict=True):
        label = f"{kind} ({count:,})"
        x, y = places[values == kind].T
        panel.scatter(x, y, s=marker_size, color=color, linewidth=0, label=label)
    # Beside the map, where it covers no point.
    panel.legend(
        title="dimension\n(points)", fontsize=9, title_fontsize=9, markerscale=(30 / max(marker_size, 1e-3)) ** 0.5,
        loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0, handletextpad=0.1,
    )  # fmt: skip
    panel.set_title("Local dimension")
    return panel


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
    panel = as_plane(axes)
    shown = panel.scatter(places[:, 0], places[:, 1], c=numbers, s=marker_size, cmap="viridis", linewidth=0)
    panel.figure.colorbar(shown, ax=panel, label=label, shrink=0.75, aspect=25, pad=0.02)
    panel.set_title("Scalar field")
    return panel


@rc_context(STYLE)
def plot_eigenfunction(
    points: Any, found: Eigenfunctions, number: int = 1, *, marker_size: float = 9.0, axes: Axes | None = None
) -> Axes:
    """Plot an eigenfunction over the samples it was found on: red where positive, blue where negative.

    Args:
        points: The samples in the plane, or an embedding of them, such as their `coordinates`; shape (n, 2).
        found: What `carre.Geometry.eigenfunctions` returned for these samples.
        number: Which function; 0 is the constant.
        marker_size: Area of a dot.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> from carre import KernelField, toolkit
        >>> line = torch.linspace(0, 1, 200, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.0])
        >>> found = toolkit.eigenfunctions(KernelField(line), line, 3, 0.05)
        >>> plot_eigenfunction(line, found, 1).get_title()[:18]  # λ = π² on an interval of length 1
        'Eigenfunction 1, λ'
    """
    places, most = as_planar(points), len(found.values) - 1
    if not is_integer(number) or not 0 <= number <= most:
        raise ArgumentError("number", f"be an integer between 0 and {most}, one of the functions found", got=number)
    values = _per_point(as_array(found.functions, "found")[:, number], len(places), "found")
    panel, bound = as_plane(axes), np.abs(values).max()
    shown = panel.scatter(
        places[:, 0], places[:, 1], c=values, s=marker_size, cmap="RdBu_r", vmin=-bound, vmax=bound, linewidth=0
    )
    panel.figure.colorbar(shown, ax=panel, shrink=0.75, aspect=25, pad=0.02)
    panel.set_title(f"Eigenfunction {number}, λ = {float(found.values[number]):.2g}")
    return panel


@rc_context(STYLE)
def plot_coordinates(
    coordinates: Any, values: Any = None, *, label: str = "", marker_size: float = 9.0, axes: Axes | None = None
) -> Axes:
    """Plot two harmonic coordinates of points against one another, colored by a value, if there is one.

    Args:
        coordinates: What `carre.Geometry.coordinates` returned, or two columns of it; shape (n, 2).
        values: One number per point.
        label: What the values are, for the color bar.
        marker_size: Area of a dot.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> plot_coordinates([[0, 1], [1, 0]], [0.5, 1.5], label="height").get_xlabel()
        'coordinate 1'
    """
    places = as_planar(coordinates, name="coordinates")
    if values is None:
        panel = as_plane(axes)
        panel.scatter(places[:, 0], places[:, 1], s=marker_size, color=BLUE, linewidth=0)
    else:
        panel = plot_scalar_field(places, values, label=label, marker_size=marker_size, axes=axes)
    panel.set(xlabel="coordinate 1", ylabel="coordinate 2", title="Harmonic coordinates")
    return panel


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
    panel = as_plane(axes)
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
    return panel


def _per_point(values: Any, count: int, name: str) -> np.ndarray:
    """Check numbers, one per point."""
    numbers = as_array(values, name)
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
    given = as_array(getattr(paths, "nodes", paths), "paths")
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


@rc_context(STYLE)
def plot_metric_ellipses(
    points: Any, metric: Any, *, size: float | None = None, n_shown: int | None = None, axes: Axes | None = None
) -> Axes:
    """Plot the metric G at points of the plane as ellipses, with half axes of √λ along its eigenvectors.

    A circle says that the data extend in every direction, a needle that they are a curve there.

    Args:
        points: Shape (n, 2).
        metric: G at the points: what `carre.Geometry.metric` returned, or matrices of shape (n, 2, 2).
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
    matrices = as_array(metric, "metric")
    if matrices.shape != (len(places), 2, 2) or not np.isfinite(matrices).all():
        must = f"metric must hold finite matrices of shape ({len(places)}, 2, 2), one per point"
        raise ValueError(f"{must}; got {matrices.shape}. Ask for the metric at these points")
    panel, chosen, size = _draw_behind(places, axes, size, n_shown, share=_ELLIPSE)
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
    return panel


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
    if not is_color_like(color):
        raise ArgumentError("color", "be a color of matplotlib", got=repr(color))
    panel, chosen, size = _draw_behind(places, axes, size, n_shown, share=_ARROW)
    longest = float(np.linalg.norm(arrows[chosen], axis=1).max()) or 1.0
    panel.quiver(
        *places[chosen].T, *arrows[chosen].T, color=color, angles="xy", scale_units="xy", scale=longest / size,
        width=0.006, zorder=3,
    )  # fmt: skip
    ends = places[chosen] + arrows[chosen] * (size / longest)
    panel.update_datalim(ends)
    panel.autoscale_view()
    panel.set_title("Vectors")
    return panel


@rc_context(STYLE)
def plot_tangents(
    points: Any, basis: Any, *, size: float | None = None, n_shown: int | None = None, axes: Axes | None = None
) -> Axes:
    """Plot tangent directions at points of the plane as dashes: they have no sign.

    Args:
        points: Shape (n, 2).
        basis: Shape (n, 2, dim), unit columns, as `carre.Geometry.tangent_basis` returns them.
        size: Half the length of a dash, in units of the points; None takes 3% of their extent.
        n_shown: Draw dashes at at most so many points, spread over all, and the others as dots; None draws all.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_tangents([[0.0, 0.0]], [[[1.0], [0.0]]], size=0.5)
        >>> axes.collections[-1].get_segments()[0].tolist()
        [[-0.5, 0.0], [0.5, 0.0]]
    """
    places = as_planar(points)
    frames = as_array(basis, "basis")
    if frames.ndim != 3 or frames.shape[:2] != places.shape or not np.isfinite(frames).all():
        must = f"basis must be finite, of shape ({len(places)}, 2, dim), directions as columns"
        raise ValueError(f"{must}; got {frames.shape}. Use what tangent_basis returns at these points")
    panel, chosen, size = _draw_behind(places, axes, size, n_shown, share=_DASH)
    steps = size * frames[chosen].swapaxes(1, 2)
    ends = np.stack([places[chosen][:, None] - steps, places[chosen][:, None] + steps], 2).reshape(-1, 2, 2)
    panel.add_collection(LineCollection(list(ends), colors=BLUE, linewidths=1.6, zorder=3))
    panel.update_datalim(ends.reshape(-1, 2))
    panel.autoscale_view()
    panel.set_title("Tangent directions")
    return panel


def _draw_behind(
    points: np.ndarray, axes: Axes | None, size: float | None, n_shown: int | None, *, share: float
) -> tuple[Axes, np.ndarray, float]:
    """Draw points as small gray dots where not all of them get a symbol of their own.

    Returns:
        The axes, the points that get a symbol, and its size: a share of the extent of the points, if not given.
    """
    if size is None:
        size = share * extent(points)
    elif not (np.ndim(size) == 0 and np.isfinite(size) and size > 0):
        raise ValueError(f"size must be a positive length in units of the points; got {size}")
    if n_shown is not None and (not is_integer(n_shown) or n_shown < 1):
        raise ValueError(f"n_shown must be a positive integer, or None for all; got {n_shown!r}")
    panel, count = as_plane(axes), len(points) if n_shown is None else n_shown
    if count < len(points):
        panel.scatter(points[:, 0], points[:, 1], s=4, color=GRAY, alpha=0.45, linewidth=0, zorder=1)
    return panel, spread_out(points, count), float(size)


@rc_context(STYLE)
def plot_overview(
    geometry: Geometry,
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
        geometry: The geometry, as `carre.fit` returns it.
        X: Samples to draw, shape (n, 2).
        function: A torch function of points, (n, 2) → (n,).
        pairs: The starts and the ends of paths, each of shape (paths, 2).
        bandwidth: σ; None takes the geometry's own.
        n_shown: How many ellipses and arrows to draw.
        axes: Five axes to draw into instead of a new figure.

    Returns:
        The axes of metric, function, dimension, gradient and paths.

    Example:
        >>> import carre
        >>> angle = np.linspace(0, 3, 200)
        >>> arc = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> geometry = carre.fit(arc, max_steps=20, width=16, random_state=0)
        >>> panels = plot_overview(geometry, arc, lambda x: x[:, 0], (arc[:1], arc[-1:]))
        >>> [panel.get_title() for panel in panels]
        ['Metric', 'Function f', 'Local dimension', 'Gradient of f along the data', 'Shortest paths']
    """
    points = as_planar(X, name="X")
    if not isinstance(pairs, (tuple, list)) or len(pairs) != 2:
        raise ArgumentError("pairs", "be the starts and the ends of paths", got=repr(pairs))
    starts, ends = (as_planar(side, name=name) for side, name in zip(pairs, ("pairs[0]", "pairs[1]"), strict=True))
    values = function(torch.as_tensor(points))
    if geometry.units is not None:
        # Ellipses and arrows are what they are in the columns as they were scaled.
        units, outer = geometry.units.numpy(), function
        points, starts, ends = (side / units for side in (points, starts, ends))
        geometry = geometry.of_scaled_columns()

        def function(inner: Tensor) -> Tensor:
            return outer(inner * torch.as_tensor(units).to(inner))

    path = geometry.path(starts, ends, bandwidth, method="geodesic")
    panels = as_panels(axes, (5,), (12.0, 5.6), mosaic="aabc;aade")
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
