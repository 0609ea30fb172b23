"""Curves: the eigenvalues, the choice of scale, the training, and classes side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from carre.boundary import as_array as as_given
from carre.plots.panels import as_array, as_label, as_panel, as_panels
from carre.plots.style import BLUE, GRAY, GREEN, INK, ORANGE, PINK, STYLE
from carre.toolkit import ScaleProfile
from carre.training import History

# Behind words that curves may cross.
_PAPER = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1}
_MOST_LABELS = 9
# Five colors that every eye tells apart, each solid and dashed, and a label at the end of every curve.
_LINES = [(color, line) for line in ("-", "--") for color in (BLUE, ORANGE, GREEN, PINK, INK)]


@rc_context(STYLE)
def plot_spectrum(eigenvalues: Any, *, axes: Axes | None = None) -> Axes:
    """Plot the eigenvalues of the metric: their mean over the points, and the half of the points in the middle.

    Those above ½ count as dimensions. A gap across ½ is a sharp dimension; a slope is one that depends on the scale.

    Args:
        eigenvalues: In descending order, shape (n, k), as `carre.Geometry.eigenvalues` returns them, or (k,).
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_spectrum([[1.0, 0.9, 0.1], [0.9, 0.7, 0.2]])
        >>> axes.lines[0].get_ydata().round(2).tolist()
        [0.95, 0.8, 0.15]
    """
    values = as_array(eigenvalues, "eigenvalues")
    values = values[None] if values.ndim == 1 else values
    if values.ndim != 2 or 0 in values.shape or not np.isfinite(values).all():
        must = "eigenvalues must be finite, of shape (n, k), one row per point"
        raise ValueError(f"{must}; got shape {values.shape}. Use what geometry.eigenvalues(X) returns")
    panel = as_panel(axes, (6.4, 3.6))
    numbers, mean = np.arange(1, 1 + values.shape[1]), values.mean(0)
    low, high = np.quantile(values, [0.25, 0.75], axis=0)
    panel.plot(numbers, mean, "o-", color=BLUE, label="mean", zorder=3)
    if len(values) > 1:
        panel.fill_between(numbers, low, high, color=BLUE, alpha=0.2, linewidth=0, label="half of the points")
        panel.legend(loc="upper right", fontsize=9)
    panel.axhline(0.5, color=GRAY, linestyle="--", linewidth=1)
    panel.text(numbers[0], 0.51, "above 0.5: a dimension", va="bottom", color=GRAY, fontsize=9, bbox=_PAPER)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(xlabel="eigenvalue, in descending order", ylabel="eigenvalue of the metric", ylim=(0, None))
    panel.set_title("In how many directions the data extend")
    return panel


@rc_context(STYLE)
def plot_scale_profile(profile: ScaleProfile, *, axes: Any = None) -> np.ndarray:
    """Plot what the geometry looks like at every scale σ, and which scale was chosen.

    Above, the mean eigenvalues of the metric, leading one first: near 1 along the data, near 0 across
    them. Below, what the scale was chosen from.

    Args:
        profile: ``scale_profile`` of a `carre.Geometry`.
        axes: Two axes to draw into instead of a new figure.

    Returns:
        The upper and the lower axes.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> from carre.toolkit import choose_bandwidth
        >>> circle = Sphere(1).embed(3)
        >>> profile = choose_bandwidth(ExactField(circle), circle.sample(20), [0.1, 0.2, 0.4])
        >>> top, bottom = plot_scale_profile(profile)
        >>> bottom.get_xscale()
        'log'
    """
    panels = as_panels(axes, (2,), (7.2, 6.6), sharex=True, heights=(3.0, 2.0))
    top, bottom = panels
    sigma, chosen = profile.bandwidth, float(profile.bandwidth[profile.chosen])
    shades = colormaps["viridis"](np.linspace(0.0, 0.9, profile.eigenvalues.shape[1]))
    for k, (values, shade) in enumerate(zip(profile.eigenvalues.T, shades, strict=True), start=1):
        top.plot(sigma, values, "o-", color=shade, linewidth=1.5, markersize=3.5)
        if k in (1, len(shades)):
            _label_start(top, float(sigma[0]), float(values[0]), f"λ{k} ", shade)
    top.axhline(0.5, color=GRAY, linestyle="--", linewidth=1)
    top.text(sigma[-1], 0.51, "above 0.5: a dimension", ha="right", va="bottom", color=GRAY, fontsize=9, bbox=_PAPER)
    top.set(ylabel="mean eigenvalue of the metric", ylim=(0, 1.12 * float(profile.eigenvalues.max())))
    top.set_title("In how many directions the data extend, at each scale")

    bottom.plot(sigma, 1 - profile.gap, "^-.", color=GREEN, label="1 − largest gap between eigenvalues")
    bottom.plot(sigma, profile.idempotency, "o-", color=BLUE, label="how far the eigenvalues are from 0 or 1")
    if np.isfinite(profile.calibration).any():
        bottom.plot(sigma, profile.calibration, "s--", color=ORANGE, label="calibration error (best below 0.1)")
    # Room above the curves for the legend.
    bottom.set(ylabel="error", ylim=(0, 1.6 * bottom.dataLim.y1))
    bottom.set_title("Smaller is better; the scale is chosen from these")
    bottom.legend(loc="upper right", fontsize=9)
    for panel in (top, bottom):
        panel.axvline(chosen, color=INK, linewidth=1.2, linestyle=":")
    _mark_scales(bottom, sigma.tolist())
    room = (sigma[-1] / sigma[0]) ** 0.08
    bottom.set_xlim(sigma[0] / room, sigma[-1] * room)
    top.annotate(
        f" chosen: σ = {chosen:.3g}", (chosen, 1.0), xycoords=("data", "axes fraction"), va="top", color=INK, fontsize=9
    )
    return panels


@rc_context(STYLE)
def plot_training(history: History, *, axes: Any = None) -> np.ndarray:
    """Plot the held-out losses during training, and what the denoiser gained over a linear one.

    Args:
        history: ``history`` of a `carre.Geometry`.
        axes: Three axes to draw into instead of a new figure.

    Returns:
        The axes of the denoiser's loss, of the whole loss, and of the gain.

    Example:
        >>> from carre.training import Evaluation, History
        >>> first = Evaluation(10, 0.1, 1.0, -1.0, -2.0, (0.1, 0.2))
        >>> second = Evaluation(20, 0.2, 0.5, -2.0, -4.0, (0.3, 0.4))
        >>> left, right, below = plot_training(History((0.5, 2.0), (0.3, 0.4), [first, second]))
        >>> left.lines[0].get_xdata().tolist()
        [10, 20]
    """
    if not history.evaluations:
        raise ValueError("history must hold at least one evaluation; train for at least one step")
    panels = as_panels(axes, (3,), (7.2, 6.4), mosaic="ab;cc", heights=(2.0, 3.0))
    left, right, below = panels
    steps = [evaluation.step for evaluation in history.evaluations]
    left.plot(steps, [evaluation.mean_loss for evaluation in history.evaluations], "o-", color=BLUE)
    left.set(title="Denoising, held-out samples", xlabel="training step", ylabel="loss")
    right.plot(steps, [evaluation.loss for evaluation in history.evaluations], "o-", color=GREEN)
    right.set(title="Mean and metric together", xlabel="training step")

    sigma = list(history.bandwidths)
    below.axhline(0.0, color=GRAY, linewidth=1.2)
    remark = "0: the best linear denoiser"
    below.annotate(remark, (sigma[0], 0), (0, -4), textcoords="offset points", va="top", color=GRAY, fontsize=9)
    if history.kernel_gain:
        below.plot(sigma, history.kernel_gain, "s--", color=ORANGE, label="kernel on the training samples")
    if len(history.gain):
        below.plot(sigma, history.gain, "o-", color=BLUE, label="this network")
    _mark_scales(below, sigma)
    # A kernel without neighbors is far worse than a linear denoiser: what matters is where it is better.
    top = max([1.0, *history.gain.tolist(), *history.kernel_gain])
    below.set_ylim(-0.25 * top, 1.15 * top)
    below.set(title="How many more directions are cleaned of noise than linearly", ylabel="gain in dimensions")
    below.legend(loc="upper right", fontsize=9)
    return panels


def _label_start(axes: Axes, x: float, y: float, text: str, color: Any) -> None:
    """Write a label to the left of the first point of a curve."""
    axes.annotate(text, (x, y), (-6, 0), textcoords="offset points", ha="right", va="center", color=color, fontsize=9)


@rc_context(STYLE)
def plot_dimension_by_class(dimension: Any, labels: Any, *, axes: Axes | None = None) -> Axes:
    """Plot the distribution of the local dimension in each class, with its mean.

    Args:
        dimension: One dimension per sample, as `carre.Geometry.dimension` counts them.
        labels: One class per sample.
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_dimension_by_class([1, 2, 4, 4], ["a", "a", "b", "b"])
        >>> [label.get_text() for label in axes.get_xticklabels()]
        ['a', 'b']
    """
    dimension, labels = as_array(dimension, "dimension"), as_given(labels, "labels")
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
    panel.set_xticks(range(len(classes)), [as_label(name) for name in classes])
    panel.grid(visible=False, axis="x")
    panel.set(xlabel="class", ylabel="local dimension", xlim=(-0.6, len(classes) - 0.2), ylim=(0, None))
    panel.set_title("In how many directions a sample can move, by class\n(dot area: share of the class; bar: mean)")
    return panel


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
    wrong = [name for name, values in dimension.items() if np.shape(values) != (len(bandwidths),)]
    if wrong or not dimension:
        raise ValueError(f"dimension must hold {len(bandwidths)} values, one per scale, for each class; wrong: {wrong}")
    panel = as_panel(axes, (7.6, 4.4))
    scales = np.asarray(bandwidths, dtype=float).tolist()
    _mark_scales(panel, scales)
    # A name stands at the end of its curve: at the right, or at the left where curves fall.
    place, side = (0, -8) if all(values[0] > values[-1] for values in dimension.values()) else (-1, 5)
    for (name, values), (color, line) in zip(dimension.items(), cycle(_LINES), strict=False):
        panel.plot(scales, values, line, color=color, marker="o", linewidth=1.5, markersize=3.5, label=as_label(name))
        end = scales[place], values[place]
        panel.annotate(as_label(name), end, (side, 0), textcoords="offset points", fontsize=8, color=color)
    panel.set(ylabel=label, ylim=(0, None), title="In how many directions a sample can move, by class and scale")
    # Beside the panel, where it covers no curve.
    panel.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), title="class", fontsize=9)
    return panel


def _mark_scales(axes: Axes, scales: list[float]) -> None:
    """Give a logarithmic axis of σ plain ticks at the scales themselves."""
    axes.set_xscale("log")
    # Numbers beside one another need room; every tick stays.
    every = -(-len(scales) // _MOST_LABELS)
    axes.set_xticks(scales, [f"{scale:.2g}" if place % every == 0 else "" for place, scale in enumerate(scales)])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("scale σ (deviation of the noise, in units of the data)")
