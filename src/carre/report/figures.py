"""Curves and counts: the choice of scale, the training, the dimension of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carre.report.style import BLUE, GRAY, GREEN, INK, ORANGE, STYLE, mark_scales
from carre.toolkit import ScaleProfile
from carre.training import History


@rc_context(STYLE)
def plot_scale_profile(profile: ScaleProfile, *, axes: Sequence[Axes] | None = None) -> Figure:
    """Plot what the geometry looks like at every scale σ, and which scale was chosen.

    Above, the mean eigenvalues of the metric, leading one first: near 1 along the data, near 0 across
    them. Below, what the scale was chosen from.

    Args:
        profile: ``scale_profile_`` of a fitted `carre.MetricMatching`.
        axes: Two axes to draw into instead of a new figure.
    """
    top, bottom = _panels(axes, "a;b", (7.2, 6.6), sharex=True, height_ratios=[3, 2])
    sigma, chosen = profile.bandwidth, float(profile.bandwidth[profile.chosen])
    shades = colormaps["viridis"](np.linspace(0.0, 0.9, profile.eigenvalues.shape[1]))
    for k, (values, shade) in enumerate(zip(profile.eigenvalues.T, shades, strict=True), start=1):
        top.plot(sigma, values, "o-", color=shade, linewidth=1.5, markersize=3.5)
        if k in (1, len(shades)):
            _label_start(top, float(sigma[0]), float(values[0]), f"λ{k} ", shade)
    top.axhline(0.5, color=GRAY, linestyle="--", linewidth=1)
    top.text(sigma[-1], 0.51, "above 0.5: a dimension", ha="right", va="bottom", color=GRAY, fontsize=9)
    top.set(ylabel="mean eigenvalue of the metric", ylim=(0, 1.12 * float(profile.eigenvalues.max())))
    top.set_title("In how many directions the data extend, at each scale")

    bottom.plot(sigma, 1 - profile.gap, "^-.", color=GREEN, label="1 − largest gap between eigenvalues")
    bottom.plot(sigma, profile.idempotency, "o-", color=BLUE, label="how far the eigenvalues are from 0 or 1")
    if np.isfinite(profile.calibration).any():
        bottom.plot(sigma, profile.calibration, "s--", color=ORANGE, label="calibration error (best below 0.1)")
    bottom.set(ylabel="error", ylim=(0, None))
    bottom.set_title("Smaller is better; the scale is chosen from these")
    bottom.legend(loc="best", fontsize=9)
    for panel in (top, bottom):
        panel.axvline(chosen, color=INK, linewidth=1.2, linestyle=":")
    mark_scales(bottom, sigma.tolist())
    room = (sigma[-1] / sigma[0]) ** 0.08
    bottom.set_xlim(sigma[0] / room, sigma[-1] * room)
    top.annotate(
        f" chosen: σ = {chosen:.3g}", (chosen, 1.0), xycoords=("data", "axes fraction"), va="top", color=INK, fontsize=9
    )
    return _figure_of(top)


@rc_context(STYLE)
def plot_dimension_by_class(dimension: np.ndarray, labels: np.ndarray, *, axes: Axes | None = None) -> Figure:
    """Plot the distribution of the local dimension in each class, with its mean.

    Args:
        dimension: One dimension per sample, as `carre.MetricMatching.dimension` counts them.
        labels: One class per sample.
        axes: Axes to draw into instead of a new figure.
    """
    if len(dimension) != len(labels):
        raise ValueError(f"labels must be one per dimension, {len(dimension)}; got {len(labels)}")
    (panel,) = _panels(None if axes is None else [axes], "a", (7.2, 4.0))
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
    return _figure_of(panel)


@rc_context(STYLE)
def plot_training(history: History, *, axes: Sequence[Axes] | None = None) -> Figure:
    """Plot the held-out losses during training, and what the denoiser gained over a linear one.

    Args:
        history: ``history_`` of a fitted `carre.MetricMatching`.
        axes: Three axes to draw into instead of a new figure.
    """
    if not history.evaluations:
        raise ValueError("history must hold at least one evaluation; train for at least one step")
    left, right, below = _panels(axes, "ab;cc", (7.2, 6.4), height_ratios=[2, 3])
    steps = [evaluation.step for evaluation in history.evaluations]
    left.plot(steps, [evaluation.mean_loss for evaluation in history.evaluations], "o-", color=BLUE)
    left.set(title="Denoising, held-out samples", xlabel="training step", ylabel="loss")
    right.plot(steps, [evaluation.loss for evaluation in history.evaluations], "o-", color=GREEN)
    right.set(title="Mean and metric together", xlabel="training step")

    sigma = list(history.bandwidths)
    below.axhline(0.0, color=GRAY, linewidth=1.2)
    below.annotate(
        "0: the best linear denoiser",
        (sigma[0], 0),
        (0, -4),
        textcoords="offset points",
        va="top",
        color=GRAY,
        fontsize=9,
    )
    if history.kernel_gain:
        below.plot(sigma, history.kernel_gain, "s--", color=ORANGE, label="kernel on the training samples")
    if len(history.gain):
        below.plot(sigma, history.gain, "o-", color=BLUE, label="this network")
    mark_scales(below, sigma)
    # A kernel without neighbors is far worse than a linear denoiser: what matters is where it is better.
    top = max([1.0, *history.gain.tolist(), *history.kernel_gain])
    below.set_ylim(-0.25 * top, 1.15 * top)
    below.set(title="How many more directions are cleaned of noise than linearly", ylabel="gain in dimensions")
    below.legend(loc="upper right", fontsize=9)
    return _figure_of(below)


def _panels(axes: Sequence[Axes] | None, mosaic: str, size: tuple[float, float], **grid: Any) -> list[Axes]:
    """Return the given axes, or those of a new figure laid out as a mosaic: rows of letters, split by ``;``.

    Figures are made without pyplot, which would keep every one of them alive.
    """
    if axes is not None:
        return list(axes)
    return list(Figure(figsize=size, layout="constrained").subplot_mosaic(mosaic, **grid).values())


def _figure_of(axes: Axes) -> Figure:
    """Return the whole figure that axes belong to, also when they lie in a part of it."""
    figure = axes.figure.figure
    assert isinstance(figure, Figure)
    return figure


def _label_start(axes: Axes, x: float, y: float, text: str, color: Any) -> None:
    """Write a label to the left of the first point of a curve."""
    axes.annotate(text, (x, y), (-6, 0), textcoords="offset points", ha="right", va="center", color=color, fontsize=9)
