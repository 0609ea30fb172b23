"""Classes side by side: their dimension, their eigenvalues, and their dimension at every scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from carre.report.panels import as_panel, as_panels
from carre.report.plane import as_numbers
from carre.report.style import BLUE, GRAY, GREEN, INK, ORANGE, PINK, STYLE, mark_scales

# Five colors that every eye tells apart, each solid and dashed, and a label at the end of every curve.
_LOOKS = [(color, line) for line in ("-", "--") for color in (BLUE, ORANGE, GREEN, PINK, INK)]


@rc_context(STYLE)
def plot_dimension_by_class(dimension: Any, labels: Any, *, axes: Axes | None = None) -> Axes:
    """Plot the distribution of the local dimension in each class, with its mean.

    Args:
        dimension: One dimension per sample, as `carre.MetricMatching.dimension` counts them.
        labels: One class per sample.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_dimension_by_class([1, 2, 4, 4], ["a", "a", "b", "b"])
        >>> [label.get_text() for label in axes.get_xticklabels()]
        ['a', 'b']
    """
    dimension, labels = as_numbers(dimension), np.asarray(labels)
    if dimension.ndim != 1 or not len(dimension):
        raise ValueError(f"dimension must be one per sample, shape (n,); got shape {dimension.shape}")
    if labels.shape != dimension.shape:
        raise ValueError(f"labels must be one per dimension, {len(dimension)}; got shape {labels.shape}")
    panel = as_panel(axes, (7.2, 4.0))
    classes = np.unique(labels)
    means = [float(dimension[labels == name].mean()) for name in classes]
    for place, name in enumerate(classes):
        values, counts = np.unique(dimension[labels == name], return_counts=True)
        panel.scatter(np.full(len(values), place), values, s=520 * counts / counts.sum(), color=BLUE, alpha=0.35, lw=0)
    panel.scatter(range(len(classes)), means, marker="_", s=420, linewidth=2.6, color=ORANGE, zorder=3)
    for place, mean in enumerate(means):
        panel.annotate(
            f"{mean:.1f}", (place, mean), (13, 0), textcoords="offset points", color=ORANGE, va="center", fontsize=9
        )
    panel.axhline(float(dimension.mean()), color=GRAY, linestyle="--", linewidth=1, zorder=0)
    panel.annotate(
        f"all: {dimension.mean():.1f}", (1, float(dimension.mean())), xycoords=("axes fraction", "data"), va="center"
    )
    panel.set_xticks(range(len(classes)), [str(name) for name in classes])
    panel.grid(visible=False, axis="x")
    panel.set(xlabel="class", ylabel="local dimension", xlim=(-0.6, len(classes) - 0.2), ylim=(0, None))
    panel.set_title("In how many directions a sample can move, by class\n(dot area: share of the class; bar: mean)")
    return panel


@rc_context(STYLE)
def plot_class_spectra(eigenvalues: Mapping[str, np.ndarray], *, axes: Any = None) -> np.ndarray:
    """Plot the mean cumulative eigenvalues of each class, as sums and as shares of the whole [RMM, Fig. 3].

    Where the sum levels off, there are no more directions; the earlier, the fewer.

    Args:
        eigenvalues: The mean eigenvalues of each class under its name, in descending order.
        axes: Two axes to draw into instead of a new figure.

    Returns:
        The axes of the sums and of the shares.

    Example:
        >>> left, right = plot_class_spectra({"0": np.array([1.0, 0.9, 0.2]), "1": np.array([1.0, 0.4, 0.0])})
        >>> left.lines[0].get_ydata().round(1).tolist()
        [1.0, 1.9, 2.1]
    """
    if not eigenvalues:
        raise ValueError("eigenvalues must hold at least one class; got none")
    panels = as_panels(axes, 2, "ab", (10.0, 4.2))
    left, right = panels
    sums = {name: np.cumsum(values) for name, values in eigenvalues.items()}
    numbers = np.arange(1, 1 + max(map(len, sums.values())))
    _draw_classes(left, {name: (numbers[: len(values)], values) for name, values in sums.items()})
    shares = {name: (numbers[: len(values)], values / values[-1]) for name, values in sums.items()}
    _draw_classes(right, shares, labeled=False)
    left.set(title="How much there is in the leading directions", ylabel="sum of the leading eigenvalues")
    right.set(title="The same, as a share of all", ylabel="share of the sum")
    for panel in panels:
        panel.set(xlabel="leading eigenvalues, mean over the class", ylim=(0, None))
    _name_classes(right)
    return panels


@rc_context(STYLE)
def plot_dimension_over_scales(
    bandwidths: Sequence[float],
    dimension: Mapping[str, Sequence[float]],
    *,
    label: str = "dimension",
    axes: Axes | None = None,
) -> Axes:
    """Plot the mean dimension of each class at every scale σ.

    Args:
        bandwidths: The scales, ascending.
        dimension: The dimensions of each class under its name, one per scale.
        label: What kind of dimension it is.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_dimension_over_scales([0.5, 1.0], {"0": [12.0, 8.0], "1": [7.0, 4.0]})
        >>> [line.get_label() for line in axes.lines]
        ['0', '1']
    """
    wrong = [name for name, values in dimension.items() if len(values) != len(bandwidths)]
    if wrong or not dimension:
        raise ValueError(f"dimension must hold {len(bandwidths)} values, one per scale, for each class; wrong: {wrong}")
    panel = as_panel(axes, (7.6, 4.4))
    scales = np.asarray(bandwidths, dtype=float)
    mark_scales(panel, scales.tolist())
    _draw_classes(panel, {name: (scales, np.asarray(values)) for name, values in dimension.items()}, marker="o")
    panel.set(ylabel=label, ylim=(0, None), title="In how many directions a sample can move, by class and scale")
    _name_classes(panel)
    return panel


def _draw_classes(
    axes: Axes, curves: Mapping[str, tuple[np.ndarray, np.ndarray]], *, marker: str = "", labeled: bool = True
) -> None:
    """Draw a curve per class, with its name at the end: at the right, or at the left where curves fall."""
    place = 0 if all(y[0] > y[-1] for _, y in curves.values()) else -1
    for (name, (x, y)), (color, line) in zip(curves.items(), cycle(_LOOKS), strict=False):
        axes.plot(x, y, line, color=color, marker=marker, linewidth=1.5, markersize=3.5, label=name)
        if labeled:
            side = 5 if place == -1 else -8
            axes.annotate(name, (x[place], y[place]), (side, 0), textcoords="offset points", fontsize=8, color=color)


def _name_classes(axes: Axes) -> None:
    """Write the legend beside the panel, where it covers no curve."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), title="class", fontsize=9)
