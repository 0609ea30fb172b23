"""Samples that are images: their tangent directions, and what denoising makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carre.report.style import INK, STYLE

_CELL = 0.95
_SMALL_CELL = 0.45
# How dark the lines between images of a mosaic are.
_LINE = 0.2


@rc_context(STYLE)
def plot_tangent_images(
    images: np.ndarray, directions: np.ndarray, eigenvalues: np.ndarray, *, numbers: Sequence[int] | None = None
) -> Figure:
    """Plot images and their leading tangent directions, one image per row.

    Moving the image along a direction darkens it where the picture is red and lightens it where it is
    blue (or the other way round: a direction has no sign). The outline is that of the image.

    Args:
        images: Shape (n, height, width).
        directions: Shape (n, k, height, width), leading direction first.
        eigenvalues: Those of the metric along the directions, shape (n, k).
        numbers: Which eigenvectors the directions are, counted from 1, where they are not the k leading ones.
    """
    n, k = directions.shape[:2]
    if images.shape != (n, *directions.shape[2:]) or eigenvalues.shape != (n, k):
        raise ValueError(
            "images, directions and eigenvalues must have shapes (n, h, w), (n, k, h, w) and (n, k); "
            f"got {images.shape}, {directions.shape} and {eigenvalues.shape}"
        )
    if numbers is not None and len(numbers) != k:
        raise ValueError(f"numbers must be one per direction, {k}; got {len(numbers)}")
    names = ["λ"] * k if numbers is None else [f"λ{number}" for number in numbers]
    figure, grid = _image_grid(n, 1 + k, top=1.0)
    # A few strong pixels would leave all others pale.
    limit = float(np.quantile(np.abs(directions), 0.99))
    for row, image, vectors, values in zip(grid, images, directions, eigenvalues, strict=True):
        row[0].imshow(image, cmap="gray_r")
        for axes, vector, value, name in zip(row[1:], vectors, values, names, strict=True):
            shown = axes.imshow(vector, cmap="RdBu_r", vmin=-limit, vmax=limit)
            _outline(axes, image)
            axes.set_title(f"{name} = {value:.2f}", fontsize=8, fontweight="normal", loc="center", pad=2)
    grid[0, 0].set_title("image", fontsize=8, fontweight="normal", loc="center", pad=2)
    bar = figure.colorbar(
        shown,
        ax=grid.ravel().tolist(),
        location="bottom",
        shrink=0.5,
        pad=0.01,
        aspect=40,
        extend="both",
        ticks=[-limit, 0, limit],
    )
    bar.ax.set_xticklabels(["lighter", "no change", "darker"], fontsize=9)
    figure.suptitle("How each image can change and stay among the data", x=0.01, ha="left")
    return figure


@rc_context(STYLE)
def plot_denoised_images(clean: np.ndarray, noisy: np.ndarray, denoised: Mapping[str, np.ndarray]) -> Figure:
    """Plot images, the same with noise, and what denoisers make of them, one image per column.

    Args:
        clean: Shape (n, height, width).
        noisy: The same images with noise.
        denoised: The reconstructions, under the name of the denoiser.
    """
    rows = {"original": clean, "with noise": noisy, **denoised}
    for name, images in rows.items():
        if images.shape != clean.shape:
            raise ValueError(f"{name!r} must have the shape of the clean images, {clean.shape}; got {images.shape}")
    figure, grid = _image_grid(len(rows), len(clean), left=1.1, top=0.6)
    for row, (name, images) in zip(grid, rows.items(), strict=True):
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
        for axes, image in zip(row, images, strict=True):
            axes.imshow(image, cmap="gray_r", vmin=float(clean.min()), vmax=float(clean.max()))
    figure.suptitle("Images, the same with noise, and with the noise taken off again", x=0.01, ha="left")
    return figure


@rc_context(STYLE)
def plot_image_rows(
    groups: Mapping[str, Mapping[str, np.ndarray]], *, title: str, ends: tuple[str, str] | None = None
) -> Figure:
    """Plot named rows of images in titled groups, two groups beside each other: paths, or the stages of a repair.

    Args:
        groups: The rows of each group under their names; a row has shape (columns, height, width), with values from 0,
            white, to 1, black.
        title: Of the whole figure.
        ends: What to write under the first and the last column.

    Example:
        >>> images = np.zeros((4, 8, 8))
        >>> plot_image_rows({"a pair": {"straight": images, "along the data": images}}, title="Paths")
        <Figure size 280x180 with 1 Axes>
    """
    if not groups:
        raise ValueError("groups must hold at least one group of rows; got none")
    for title_of_group, rows in groups.items():
        shapes = {images.shape for images in rows.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 3:
            raise ValueError(
                f"the rows of {title_of_group!r} must have one shape (columns, height, width); got {sorted(shapes)}"
            )
    across = min(2, len(groups))
    first = next(iter(groups.values()))
    n_columns = len(next(iter(first.values())))
    down, most = -(-len(groups) // across), max(map(len, groups.values()))
    size = across * (1.0 + _SMALL_CELL * n_columns), 0.4 + down * (0.5 + _SMALL_CELL * most)
    figure = Figure(figsize=size, layout="constrained")
    panels: np.ndarray = figure.subplots(down, across, squeeze=False)
    for axes, (name, rows) in zip(panels.flat, groups.items(), strict=False):
        _draw_rows(axes, rows, ends)
        axes.set_title(name, fontsize=10)
    for axes in panels.flat[len(groups) :]:
        axes.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _draw_rows(axes: Axes, rows: Mapping[str, np.ndarray], ends: tuple[str, str] | None) -> None:
    """Draw rows of images as one mosaic: hundreds of axes would take minutes to lay out."""
    stacked = np.stack(list(rows.values()))
    n_rows, n_columns, height, width = stacked.shape
    framed = np.pad(stacked, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=_LINE)
    axes.imshow(
        framed.swapaxes(1, 2).reshape(n_rows * (height + 1), -1), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest"
    )
    _strip(axes)
    axes.set_yticks((np.arange(n_rows) + 0.5) * (height + 1) - 0.5, list(rows), fontsize=8)
    if ends is not None:
        axes.set_xticks([width / 2, (n_columns - 0.5) * (width + 1) - 0.5], ends, fontsize=8)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set(visible=False)


def _image_grid(n_rows: int, n_columns: int, *, left: float = 0.0, top: float = 0.0) -> tuple[Figure, np.ndarray]:
    """Make a grid of small frames without ticks, with inches of room to the left and on top."""
    figure = Figure(figsize=(left + _CELL * n_columns, top + _CELL * n_rows), layout="constrained")
    grid: np.ndarray = figure.subplots(n_rows, n_columns, squeeze=False)
    for axes in grid.flat:
        _strip(axes)
    return figure, grid


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
