"""Samples that are images: tangent directions, denoising, and rows of pictures along paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from carre.plots.panels import as_array, as_label, as_panel, as_panels, figure_of
from carre.plots.style import INK, STYLE

# Inches of an image in a panel of its own, and in a mosaic; how dark the lines of a mosaic are, from 0 to 1.
_PANEL, _CELL, _LINE = 0.95, 0.45, 0.2


@rc_context(STYLE)
def plot_tangent_images(
    images: Any, directions: Any, eigenvalues: Any, *, numbers: Sequence[int] | None = None, axes: Any = None
) -> np.ndarray:
    """Plot images and their leading tangent directions, one image per row.

    Moving the image along a direction darkens it where the picture is red and lightens it where it is
    blue (or the other way round: a direction has no sign). The outline is that of the image.

    Args:
        images: Shape (n, height, width).
        directions: Shape (n, k, height, width), leading direction first.
        eigenvalues: Those of the metric along the directions, shape (n, k).
        numbers: Which eigenvectors the directions are, counted from 1, where they are not the k leading ones.
        axes: An array of (n, 1 + k) axes to draw into instead of a new figure.

    Returns:
        The axes, shape (n, 1 + k).

    Example:
        >>> panels = plot_tangent_images(np.eye(8)[None], np.ones((1, 2, 8, 8)), np.array([[0.9, 0.4]]))
        >>> [panel.get_title() for panel in panels[0]]
        ['image', 'λ = 0.90', 'λ = 0.40']
    """
    images, directions = as_array(images, "images"), as_array(directions, "directions")
    eigenvalues = as_array(eigenvalues, "eigenvalues")
    if directions.ndim != 4 or 0 in directions.shape:
        raise ValueError(f"directions must have shape (n, k, height, width); got {directions.shape}")
    n, k = directions.shape[:2]
    if images.shape != (n, *directions.shape[2:]) or eigenvalues.shape != (n, k):
        raise ValueError(
            "images, directions and eigenvalues must have shapes (n, h, w), (n, k, h, w) and (n, k); "
            f"got {images.shape}, {directions.shape} and {eigenvalues.shape}"
        )
    if numbers is not None and len(numbers) != k:
        raise ValueError(f"numbers must be one per direction, {k}; got {len(numbers)}")
    names = ["λ"] * k if numbers is None else [f"λ{number}" for number in numbers]
    grid = _image_grid(axes, n, 1 + k, top=1.0)
    # A few strong pixels would leave all others pale.
    limit = float(np.quantile(np.abs(directions), 0.99))
    for row, image, vectors, values in zip(grid, images, directions, eigenvalues, strict=True):
        row[0].imshow(image, cmap="gray_r")
        for panel, vector, value, name in zip(row[1:], vectors, values, names, strict=True):
            shown = panel.imshow(vector, cmap="RdBu_r", vmin=-limit, vmax=limit)
            _outline(panel, image)
            panel.set_title(f"{name} = {value:.2f}", fontsize=8, fontweight="normal", loc="center", pad=2)
    grid[0, 0].set_title("image", fontsize=8, fontweight="normal", loc="center", pad=2)
    panels, ticks = grid.ravel().tolist(), [-limit, 0, limit]
    bar = panels[0].figure.colorbar(
        shown, ax=panels, location="bottom", shrink=0.5, pad=0.01, aspect=40, extend="both", ticks=ticks
    )
    bar.ax.set_xticklabels(["lighter", "no change", "darker"], fontsize=9)
    if axes is None:
        figure_of(grid).suptitle("How each image can change and stay among the data", x=0.01, ha="left")
    return grid


@rc_context(STYLE)
def plot_denoised_images(clean: Any, noisy: Any, denoised: Mapping[str, Any], *, axes: Any = None) -> np.ndarray:
    """Plot images, the same with noise, and what denoisers make of them, one image per column.

    Args:
        clean: Shape (n, height, width).
        noisy: The same images with noise.
        denoised: The reconstructions, under the name of the denoiser.
        axes: An array of (2 + denoisers, n) axes to draw into instead of a new figure.

    Returns:
        The axes, a row for the images, for those with noise, and for each denoiser.

    Example:
        >>> images = np.eye(8)[None].repeat(3, axis=0)
        >>> plot_denoised_images(images, images + 0.1, {"kernel": images}).shape
        (3, 3)
    """
    rows = {"original": as_array(clean, "clean"), "with noise": as_array(noisy, "noisy")}
    rows |= {name: as_array(images, "denoised") for name, images in denoised.items()}
    clean = rows["original"]
    if clean.ndim != 3 or 0 in clean.shape:
        raise ValueError(f"clean must have shape (n, height, width); got {clean.shape}. Reshape flat images")
    for name, images in rows.items():
        if images.shape != clean.shape:
            argument = "noisy" if name == "with noise" else f"denoised, {name!r},"
            raise ValueError(f"{argument} must have the shape of the clean images, {clean.shape}; got {images.shape}")
    grid = _image_grid(axes, len(rows), len(clean), left=1.1, top=0.6)
    for row, (name, images) in zip(grid, rows.items(), strict=True):
        row[0].set_ylabel(as_label(name), rotation=0, ha="right", va="center", fontsize=10)
        for panel, image in zip(row, images, strict=True):
            panel.imshow(image, cmap="gray_r", vmin=float(clean.min()), vmax=float(clean.max()))
    if axes is None:
        title = "Images, the same with noise, and with the noise taken off again"
        figure_of(grid).suptitle(title, x=0.01, ha="left")
    return grid


def _image_grid(axes: Any, n_rows: int, n_columns: int, *, left: float = 0.0, top: float = 0.0) -> np.ndarray:
    """Return a grid of small frames without ticks, new ones with inches of room to the left and on top."""
    grid = as_panels(axes, (n_rows, n_columns), (left + _PANEL * n_columns, top + _PANEL * n_rows))
    for panel in grid.flat:
        _strip(panel)
    return grid


def _outline(axes: Axes, image: np.ndarray) -> None:
    """Draw the line where the image is half as dark as at its darkest, closed also at the border."""
    height, width = image.shape
    padded = np.pad(image, 1, constant_values=float(image.min()))
    level = 0.5 * float(image.min() + image.max())
    axes.contour(
        np.arange(-1, width + 1), np.arange(-1, height + 1), padded, [level], colors=INK, linewidths=0.7, alpha=0.7
    )
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))


def _strip(axes: Axes) -> None:
    """Take off ticks and grid, and draw a thin frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.5)


@rc_context(STYLE)
def plot_path_strip(
    images: Any,
    *,
    ends: tuple[str, str] | None = ("start", "end"),
    limits: tuple[float, float] | None = None,
    title: str = "Pictures along paths",
    axes: Axes | None = None,
) -> Axes:
    """Plot rows of pictures: along paths, one path per row, or the stages of a repair.

    Args:
        images: Shape (paths, nodes, height, width); or rows of shape (nodes, height, width) under names, such as
            ``{"straight": …, "along the data": …}``. Unfold flat nodes with ``nodes.reshape(-1, n_nodes, 8, 8)``.
        ends: What to write under the first and the last picture.
        limits: The values that are white and black; None takes the smallest and the largest.
        title: Of the picture.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_path_strip({"straight": np.zeros((5, 8, 8)), "along the data": np.ones((5, 8, 8))})
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['straight', 'along the data']
    """
    if not isinstance(images, Mapping):
        array = as_array(images, "images")
        if array.ndim != 4:
            must = "images must have shape (paths, nodes, height, width)"
            raise ValueError(f"{must}; got {array.shape}. Unfold flat nodes with reshape(-1, n_nodes, height, width)")
        images = {f"{number}": row for number, row in enumerate(array, start=1)}
    rows = {name: as_array(row, "images") for name, row in images.items()}
    shapes = {row.shape for row in rows.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 3 or 0 in next(iter(shapes)):
        raise ValueError(f"images must have one shape (columns, height, width); got {sorted(shapes)}")
    stacked = np.stack(list(rows.values()))
    low, high = (float(stacked.min()), float(stacked.max())) if limits is None else limits
    if not low <= high:
        raise ValueError(f"limits must be the values of white and black, ascending; got {limits}")
    n_rows, n_columns, height, width = stacked.shape
    panel = as_panel(axes, (1.2 + 1.6 * _CELL * n_columns, 0.6 + 1.6 * _CELL * n_rows))
    # As one mosaic: hundreds of axes would take minutes to lay out.
    line = low + _LINE * (high - low)
    framed = np.pad(stacked, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=line)
    mosaic = framed.swapaxes(1, 2).reshape(n_rows * (height + 1), -1)
    panel.imshow(mosaic, cmap="gray_r", vmin=low, vmax=high, interpolation="nearest")
    _strip(panel)
    panel.set_yticks((np.arange(n_rows) + 0.5) * (height + 1) - 0.5, list(map(as_label, rows)), fontsize=8)
    if ends is not None:
        panel.set_xticks([width / 2, (n_columns - 0.5) * (width + 1) - 0.5], ends, fontsize=8)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set(visible=False)
    panel.set_title(title)
    return panel
