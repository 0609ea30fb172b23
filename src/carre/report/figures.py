"""Curves: the eigenvalues, the choice of scale, the training."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from carre.report.panels import as_panel, as_panels
from carre.report.plane import as_numbers
from carre.report.style import BLUE, GRAY, GREEN, INK, ORANGE, STYLE, mark_scales
from carre.toolkit import ScaleProfile
from carre.training import History

# Behind words that curves may cross.
_PAPER = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1}


@rc_context(STYLE)
def plot_spectrum(eigenvalues: Any, *, axes: Axes | None = None) -> Axes:
    """Plot the eigenvalues of the metric: their mean over the points, and the half of the points in the middle.

    Those above ½ count as dimensions. A gap across ½ is a sharp dimension; a slope is one that depends on the scale.

    Args:
        eigenvalues: In descending order, shape (n, k), as `carre.MetricMatching.eigenvalues` returns them, or (k,).
        axes: Axes to draw into instead of a new figure.

    Example:
        >>> axes = plot_spectrum([[1.0, 0.9, 0.1], [0.9, 0.7, 0.2]])
        >>> axes.lines[0].get_ydata().round(2).tolist()
        [0.95, 0.8, 0.15]
    """
    values = np.atleast_2d(as_numbers(eigenvalues))
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
        profile: ``scale_profile_`` of a fitted `carre.MetricMatching`.
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
    _check_fitted_with(profile, ScaleProfile, "profile", "scale_profile_; a fit with a given bandwidth has none")
    panels = as_panels(axes, 2, "a;b", (7.2, 6.6), sharex=True, height_ratios=[3, 2])
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
    mark_scales(bottom, sigma.tolist())
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
        history: ``history_`` of a fitted `carre.MetricMatching`.
        axes: Three axes to draw into instead of a new figure.

    Returns:
        The axes of the denoiser's loss, of the whole loss, and of the gain.

    Example:
        >>> from carre.training import Evaluation, History
        >>> looks = [Evaluation(10, 0.1, 1.0, -1.0, -2.0, (0.1, 0.2)), Evaluation(20, 0.2, 0.5, -2.0, -4.0, (0.3, 0.4))]
        >>> left, right, below = plot_training(History((0.5, 2.0), (0.3, 0.4), looks))
        >>> left.lines[0].get_xdata().tolist()
        [10, 20]
    """
    _check_fitted_with(history, History, "history", "history_")
    if not history.evaluations:
        raise ValueError("history must hold at least one evaluation; train for at least one step")
    panels = as_panels(axes, 3, "ab;cc", (7.2, 6.4), height_ratios=[2, 3])
    left, right, below = panels
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
    return panels


def _check_fitted_with(value: Any, kind: type, name: str, attribute: str) -> None:
    if not isinstance(value, kind):
        got = type(value).__name__
        raise TypeError(f"{name} must be a {kind.__name__}; got {got}. Give that of a fit, geometry.{attribute}")


def _label_start(axes: Axes, x: float, y: float, text: str, color: Any) -> None:
    """Write a label to the left of the first point of a curve."""
    axes.annotate(text, (x, y), (-6, 0), textcoords="offset points", ha="right", va="center", color=color, fontsize=9)
