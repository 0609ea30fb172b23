"""The axes of charts: where numbers stand on them. What stands between the axes is drawn by a template, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from carre.training import History

Number: TypeAlias = float | int

_WIDTH, _HEIGHT = 360, 220
_RIGHT, _TOP, _BOTTOM = 10, 14, 42
# Room for the name of the axis, and for each character of its numbers.
_NAME, _CHARACTER = 30, 7
# So many labels fit below the axis.
_MOST_LABELS = 10
_FEWEST_BARS = 6


@dataclass(frozen=True)
class ChartAxes:
    """The two axes of a chart.

    Attributes:
        x_range: The numbers at the ends of the axis below.
        y_range: The numbers at the ends of the axis beside.
        x_ticks: What is written below which numbers.
        y_ticks: What is written beside which numbers.
        is_log: Whether the axis below is logarithmic.
    """

    x_range: tuple[Number, Number]
    y_range: tuple[Number, Number]
    x_ticks: Mapping[Number, str]
    y_ticks: Mapping[Number, str]
    is_log: bool = False

    width, height, top = _WIDTH, _HEIGHT, _TOP
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    @property
    def left(self) -> int:
        """Where the axis beside stands: as far in as its numbers are long."""
        return _NAME + _CHARACTER * max(map(len, self.y_ticks.values()), default=1)

    def across(self, value: Number) -> float:
        """Return the place of a number along the axis below."""
        low, high, value = map(math.log, (*self.x_range, value)) if self.is_log else (*self.x_range, value)
        return round(self.left + (value - low) / ((high - low) or 1.0) * (self.right - self.left), 1)

    def up(self, value: Number) -> float:
        """Return the place of a number along the axis beside; those beyond its ends are drawn at the ends."""
        low, high = self.y_range
        share = min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))
        return round(self.bottom - share * (self.bottom - self.top), 1)

    def bar_width(self, share: float) -> float:
        """Return the width of a bar that takes a share of the unit of the axis below."""
        low, high = self.x_range
        return max(1.0, share * (self.right - self.left) / (high - low))

    def places(self, x: Sequence[Number], y: Sequence[Number]) -> list[tuple[float, float]]:
        """Return the places along a curve; numbers that are not finite have none."""
        return [(self.across(a), self.up(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b)]


def spectrum_axes(eigenvalues: np.ndarray) -> ChartAxes:
    """Make room for eigenvalues, one row per scale: the same at every scale."""
    count, top = eigenvalues.shape[1], 1.08 * max(1.0, float(eigenvalues.max()))
    return ChartAxes((0.4, max(count, _FEWEST_BARS) + 0.6), (0.0, top), _whole_ticks(1, count), _ticks(0.0, top))


def histogram_axes(shares: Mapping[int, float]) -> ChartAxes:
    """Make room for the shares of the dimensions that occur at a scale."""
    # A few bars are as wide as others are.
    first = max(0, min(shares) - max(0, _FEWEST_BARS - (max(shares) - min(shares))) // 2)
    last = max(*shares, first + _FEWEST_BARS)
    # Few heights of the axis, so that scales can be compared.
    top = next(height for height in (0.28, 0.56, 1.12) if max(shares.values()) <= 0.92 * height)
    y_ticks = {value: f"{value:.0%}" for value in _ticks(0.0, top)}
    return ChartAxes((first - 0.6, last + 0.6), (0.0, top), _whole_ticks(first, last), y_ticks)


def curve_axes(
    x: Sequence[Number], curves: Iterable[Sequence[Number]], *, log: bool = False, bottom: Number | None = 0.0
) -> ChartAxes:
    """Make room for curves over ascending places; the axis beside begins at the smallest number, or at a lower one.

    Example:
        >>> axes = curve_axes([1.0, 10.0, 100.0], [[0.0, float("nan"), 2.0]], log=True)
        >>> list(axes.x_ticks.values()), list(axes.y_ticks.values())
        (['1', '10', '100'], ['0', '0.5', '1', '1.5', '2'])
    """
    known = [value for values in curves for value in values if math.isfinite(value)] or [0.0, 1.0]
    low = min(known) if bottom is None else min(bottom, *known)
    high = max(known) if max(known) > low else low + 1.0
    top = high + 0.08 * (high - low)
    x_range = (x[0], x[-1]) if x[-1] > x[0] else (x[0], x[0] * 1.1 + 1)
    x_ticks = {value: f"{value:.3g}" for value in x[:: math.ceil(len(x) / 6)]} if log else _ticks(x[0], x[-1])
    return ChartAxes(x_range, (low, top), x_ticks, _ticks(low, top), log)


def gain_curves(history: History) -> dict[str, list[float]]:
    """Return what is gained over a linear denoiser at each scale, by the network and by a kernel."""
    curves = {"this network": history.gain.tolist()}
    if history.kernel_gain:
        # A kernel without neighbors is far worse than a linear denoiser: what matters is where it is better.
        curves["kernel on the samples"] = [gain if gain > -1 else math.nan for gain in history.kernel_gain]
    return curves


def _ticks(low: Number, high: Number) -> dict[Number, str]:
    """Choose about four round numbers.

    Example:
        >>> list(_ticks(0.0, 1.1).values())
        ['0', '0.5', '1']
    """
    span = high - low or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if span / (factor * power) <= 5)
    first = math.ceil(low / step - 1e-9)
    numbers = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
    return {number: f"{number:,.0f}" if step >= 1 else f"{number:.4g}" for number in numbers}


def _whole_ticks(first: int, last: int) -> dict[Number, str]:
    """Choose whole numbers, as many as have room."""
    step = max(1, math.ceil((last - first + 1) / _MOST_LABELS))
    return {float(k): str(k) for k in range(first, last + 1, step)}
