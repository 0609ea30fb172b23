"""Classes side by side: their eigenvalues, and their dimension at every scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carre.report.style import BLUE, GREEN, INK, ORANGE, STYLE, mark_scales

# Five colors that every eye tells apart, each solid and dashed, and a label at the end of every curve.
_LOOKS = [(color, line) for line in ("-", "--") for color in (BLUE, ORANGE, GREEN, "#CC79A7", INK)]


@rc_context(STYLE)
def plot_class_spectra(eigenvalues: Mapping[str, np.ndarray]) -> Figure:
    """Plot the mean cumulative eigenvalues of each class, as sums and as shares of the whole [RMM, Fig. 3].

    Where the sum levels off, there are no more directions; the earlier, the fewer.

    Args:
        eigenvalues: The mean eigenvalues of each class under its name, in descending order.

    Example:
        >>> plot_class_spectra({"0": np.array([1.0, 0.9, 0.2]), "1": np.array([1.0, 0.4, 0.0])})
        <Figure size 1000x420 with 2 Axes>
    """
    if not eigenvalues:
        raise ValueError("eigenvalues must hold at least one class; got none")
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    sums = {name: np.cumsum(values) for name, values in eigenvalues.items()}
    numbers = np.arange(1, 1 + max(map(len, sums.values())))
    _draw_classes(left, {name: (numbers[: len(values)], values) for name, values in sums.items()})
    shares = {name: (numbers[: len(values)], values / values[-1]) for name, values in sums.items()}
    _draw_classes(right, shares, labeled=False)
    left.set(title="How much there is in the leading directions", ylabel="sum of the leading eigenvalues")
    right.set(title="The same, as a share of all", ylabel="share of the sum")
    for axes in (left, right):
        axes.set(xlabel="leading eigenvalues, mean over the class", ylim=(0, None))
    _name_classes(figure, left)
    return figure


@rc_context(STYLE)
def plot_dimension_over_scales(
    bandwidths: Sequence[float], dimension: Mapping[str, Sequence[float]], *, label: str = "dimension"
) -> Figure:
    """Plot the mean dimension of each class at every scale σ.

    Args:
        bandwidths: The scales, ascending.
        dimension: The dimensions of each class under its name, one per scale.
        label: What kind of dimension it is.

    Example:
        >>> plot_dimension_over_scales([0.5, 1.0], {"0": [12.0, 8.0], "1": [7.0, 4.0]})
        <Figure size 760x440 with 1 Axes>
    """
    wrong = [name for name, values in dimension.items() if len(values) != len(bandwidths)]
    if wrong or not dimension:
        raise ValueError(f"dimension must hold {len(bandwidths)} values, one per scale, for each class; wrong: {wrong}")
    figure = Figure(figsize=(7.6, 4.4), layout="constrained")
    axes = figure.subplots()
    scales = np.asarray(bandwidths, dtype=float)
    mark_scales(axes, scales.tolist())
    _draw_classes(axes, {name: (scales, np.asarray(values)) for name, values in dimension.items()}, marker="o")
    axes.set(ylabel=label, ylim=(0, None), title="In how many directions a sample can move, by class and scale")
    _name_classes(figure, axes)
    return figure


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


def _name_classes(figure: Figure, axes: Axes) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", title="class", fontsize=9)
