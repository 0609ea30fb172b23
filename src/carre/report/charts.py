"""Charts as SVG: small, sharp at every size, in the colors of the page by day and by night."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TypeAlias

import numpy as np

Number: TypeAlias = float | int

_WIDTH, _HEIGHT = 360, 220
_RIGHT, _TOP, _BOTTOM = 10, 14, 42
# Room for the name of the axis, and for each character of its numbers.
_NAME, _CHARACTER = 30, 7
# So many labels fit below the axis.
_MOST_LABELS, _FEW_BARS = 10, 30


class _Frame:
    """The axes of a chart: from numbers to places, and what stands around."""

    def __init__(
        self,
        x: tuple[Number, Number],
        y: tuple[Number, Number],
        y_ticks: Mapping[Number, str],
        *,
        log: bool = False,
    ) -> None:
        self.log, self.y, self.y_ticks = log, y, y_ticks
        self.left = _NAME + _CHARACTER * max(map(len, y_ticks.values()), default=1)
        self.x = (math.log(x[0]), math.log(x[1])) if log else x
        self.parts: list[str] = []

    def across(self, value: Number) -> float:
        value = math.log(value) if self.log else value
        span = (self.x[1] - self.x[0]) or 1.0
        return round(self.left + (value - self.x[0]) / span * (_WIDTH - self.left - _RIGHT), 1)

    def up(self, value: Number) -> float:
        span = (self.y[1] - self.y[0]) or 1.0
        share = min(1.0, max(0.0, (value - self.y[0]) / span))
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    def add(self, element: str) -> None:
        self.parts.append(element)

    def axes(self, x_ticks: Mapping[Number, str], x_label: str, y_label: str) -> None:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        for value, text in self.y_ticks.items():
            y = self.up(value)
            self.add(f'<path class="grid" d="M{self.left} {y}H{right}"/>')
            self.add(f'<text class="tick" x="{self.left - 6}" y="{y + 4}" text-anchor="end">{escape(text)}</text>')
        for value, text in x_ticks.items():
            self.add(
                f'<text class="tick" x="{self.across(value)}" y="{bottom + 16}" text-anchor="middle">'
                f"{escape(text)}</text>"
            )
        self.add(f'<path class="axis" d="M{self.left} {bottom}H{right}"/>')
        self.add(
            f'<text class="label" x="{(self.left + right) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">'
            f"{escape(x_label)}</text>"
        )
        middle = (_TOP + bottom) / 2
        self.add(
            f'<text class="label" x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">'
            f"{escape(y_label)}</text>"
        )

    def svg(self, alt: str) -> str:
        return (
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(alt)}">'
            + "".join(self.parts)
            + "</svg>"
        )


def spectrum_chart(mean: np.ndarray, low: np.ndarray, high: np.ndarray, *, top: float, alt: str) -> str:
    """Draw mean eigenvalues as bars with their quartiles as lines; those above ½ are dimensions.

    Example:
        >>> spectrum_chart(np.array([1.0, 0.2]), np.array([0.9, 0.1]), np.array([1.0, 0.3]), top=1.2, alt="two")[:18]
        '<svg class="chart"'
    """
    count = len(mean)
    frame = _Frame((0.4, count + 0.6), (0.0, top), _ticks(0.0, top))
    frame.axes(_whole_ticks(1, count), "eigenvalue, largest first", "size of the eigenvalue")
    whisker = "whisker" if count <= _FEW_BARS else "whisker thin"
    width = max(1.0, 0.72 * (_WIDTH - frame.left - _RIGHT) / (count + 0.2))
    for k in range(count):
        x, y = frame.across(k + 1), frame.up(float(mean[k]))
        kind = "bar" if mean[k] > 0.5 else "bar weak"
        frame.add(
            f'<rect class="{kind}" x="{round(x - width / 2, 1)}" y="{y}" width="{round(width, 1)}" '
            f'height="{round(_HEIGHT - _BOTTOM - y, 1)}"/>'
        )
        frame.add(f'<path class="{whisker}" d="M{x} {frame.up(float(low[k]))}V{frame.up(float(high[k]))}"/>')
    half = frame.up(0.5)
    frame.add(f'<path class="threshold" d="M{frame.left} {half}H{_WIDTH - _RIGHT}"/>')
    frame.add(
        f'<text class="tick halo" x="{_WIDTH - _RIGHT}" y="{half - 5}" text-anchor="end">above ½: along the data</text>'
    )
    return frame.svg(alt)


def histogram_chart(shares: Mapping[int, float], *, span: tuple[int, int], alt: str) -> str:
    """Draw which share of the points has which dimension."""
    first, last = span
    # Few heights of the axis, so that scales can be compared.
    top = next(height for height in (0.28, 0.56, 1.12) if max(shares.values()) <= 0.92 * height)
    percent = {value: f"{value:.0%}" for value in _ticks(0.0, top)}
    frame = _Frame((first - 0.6, last + 0.6), (0.0, top), percent)
    frame.axes(_whole_ticks(first, last), "local dimension", "share of the points")
    width = 0.8 * (_WIDTH - frame.left - _RIGHT) / (last - first + 1.2)
    for dimension, share in shares.items():
        x, y = frame.across(dimension), frame.up(share)
        frame.add(
            f'<rect class="bar" x="{round(x - width / 2, 1)}" y="{y}" width="{round(width, 1)}" '
            f'height="{round(_HEIGHT - _BOTTOM - y, 1)}"/>'
        )
        if len(shares) <= 8 and share >= 0.005:
            frame.add(f'<text class="tick" x="{x}" y="{y - 4}" text-anchor="middle">{share:.0%}</text>')
    return frame.svg(alt)


def curve_chart(
    x: Sequence[Number],
    curves: Mapping[str, Sequence[Number]],
    *,
    x_label: str,
    y_label: str,
    alt: str,
    log: bool = False,
    marked: int | None = None,
    bottom: Number | None = 0.0,
    marker_name: str = "",
) -> str:
    """Draw up to three curves, with a vertical line at one of the places.

    Args:
        x: The places, ascending.
        curves: The numbers of each curve under its name; not finite ones are left out.
        x_label: Below the axis.
        y_label: Beside the axis.
        alt: What it shows.
        log: Whether places are on a logarithmic axis.
        marked: Index of the place with a line.
        bottom: Where the axis begins; None begins at the smallest number.
        marker_name: How scripts find the line, to move it.
    """
    known = [value for values in curves.values() for value in values if math.isfinite(value)] or [0.0, 1.0]
    low = min(known) if bottom is None else min(bottom, *known)
    high = max(known) if max(known) > low else low + 1.0
    room = 0.08 * (high - low)
    span = (x[0], x[-1]) if x[-1] > x[0] else (x[0], x[0] * 1.1 + 1)
    frame = _Frame(span, (low, high + room), _ticks(low, high + room), log=log)
    below = {value: f"{value:.3g}" for value in x[:: math.ceil(len(x) / 6)]} if log else _ticks(x[0], x[-1])
    frame.axes(below, x_label, y_label)
    if marked is not None:
        places = " ".join(str(frame.across(value)) for value in x)
        at = frame.across(x[marked])
        frame.add(
            f'<path class="marker" data-marker="{marker_name}" data-places="{places}" '
            f'd="M0 {_TOP}V{_HEIGHT - _BOTTOM}" transform="translate({at} 0)"/>'
        )
    for number, values in enumerate(curves.values()):
        points = [(frame.across(a), frame.up(b)) for a, b in zip(x, values, strict=True) if math.isfinite(b)]
        line = "L".join(f"{a} {b}" for a, b in points)
        frame.add(f'<path class="curve c{number}" d="M{line}"/>' if points else "")
        for a, b in points:
            frame.add(_dot(number, a, b))
    return frame.svg(alt) + _legend(list(curves))


def _dot(number: int, x: Number, y: Number) -> str:
    """Draw a dot, a square or a triangle: shapes are told apart where colors are not."""
    if number == 0:
        return f'<circle class="dot c0" cx="{x}" cy="{y}" r="3"/>'
    if number == 1:
        return f'<rect class="dot c1" x="{round(x - 3, 1)}" y="{round(y - 3, 1)}" width="6" height="6"/>'
    return f'<path class="dot c2" d="M{x} {round(y - 4, 1)}l4 7h-8z"/>'


def _legend(names: list[str]) -> str:
    if len(names) < 2:
        return ""
    keys = "".join(
        f'<li><svg class="key" viewBox="0 0 28 12" aria-hidden="true"><path class="curve c{k}" d="M2 6H26"/>'
        f"{_dot(k, 14, 6)}</svg>{escape(name)}</li>"
        for k, name in enumerate(names)
    )
    return f'<ul class="legend">{keys}</ul>'


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
    step = max(1, math.ceil((last - first + 1) / _MOST_LABELS))
    return {float(k): str(k) for k in range(first, last + 1, step)}
