"""Results as notebooks show them: facts in words, and a small picture that needs no plotting library and no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, NamedTuple

import numpy as np

from carre.text import visible

# Readable on white and on black; text and axes take the color of the page's own text.
BLUE, ORANGE, GRAY = "#2E8BC9", "#DD6B20", "#8A8A8A"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 320, 180, 44.0, 306.0, 34.0, 156.0
_CARD = "display:flex;flex-wrap:wrap;gap:8px 28px;align-items:flex-start;font:13px/1.5 system-ui,sans-serif"
_FACTS = "display:grid;grid-template-columns:max-content minmax(0,1fr);gap:1px 14px;margin-top:4px"


class Stroke(NamedTuple):
    """A line through points; two equal points are a dot, a thick vertical line is a bar."""

    x: Any
    y: Any
    color: str = BLUE
    width: float = 2.0


def picture(
    title: str,
    strokes: Iterable[Stroke],
    *,
    x_ticks: Mapping[Any, str],
    y_ticks: Mapping[Any, str],
    mark: tuple[Any, str] | None = None,
    log: bool = False,
    is_map: bool = False,
) -> str:
    """Draw strokes as SVG, on axes of numbers (the one below may be logarithmic) or on a map; a mark stands out.

    What is not finite is left out, and where nothing is left there is no picture.

    Example:
        >>> text = picture("one < two", [Stroke([1, 2], [0, 1])], x_ticks={1: "1"}, y_ticks={0: "0"})
        >>> text[:4], text.count("<polyline"), "one &lt; two" in text
        ('<svg', 1, True)
        >>> picture("nothing", [Stroke([1], [float("nan")])], x_ticks={}, y_ticks={})
        ''
    """
    lines = [(np.array([one.x, one.y], float), one) for one in strokes]
    lines = [(line[:, np.isfinite(line).all(0)], one) for line, one in lines]
    known = np.concatenate([np.empty((2, 0)), *(line for line, _ in lines)], 1)
    if not known.size:
        return ""
    convert = np.log if log else np.asarray
    rows = [convert(np.array([*known[0], *x_ticks], float)), np.array([*known[1], *y_ticks])]
    (left, low), (wide, high) = (row.min() for row in rows), (np.ptp(row) or 1.0 for row in rows)
    units = np.array([(_RIGHT - _LEFT) / wide, (_BOTTOM - _TOP) / high])
    units = units.min().repeat(2) if is_map else units
    # A map stands in the middle.
    first = (_LEFT + _RIGHT - units[0] * wide) / 2

    def across(value: Any) -> Any:
        return first + (convert(value) - left) * units[0]

    def up(value: Any) -> Any:
        return _BOTTOM - (np.asarray(value) - low) * units[1]

    def word(x: float, y: float, text: str, more: str = "") -> str:
        anchor = "start" if x < _LEFT else "end" if x > _RIGHT - 20 else "middle"
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" {more}>{_text(text)}</text>'

    parts = [f'<text x="{_LEFT}" y="12" font-weight="600">{_text(title)}</text>']
    for value, label in y_ticks.items():
        y = up(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="currentColor" opacity=".18"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_text(label)}</text>')
    parts += [word(across(value), _BOTTOM + 16, label) for value, label in x_ticks.items()]
    if mark is not None:
        dashed = f'stroke="{ORANGE}" stroke-width="1.5" stroke-dasharray="4 3"'
        parts.append(f'<path d="M{across(mark[0]):.1f} {_TOP}V{_BOTTOM}" {dashed}/>')
        parts.append(word(across(mark[0]), _TOP - 6, mark[1], f'fill="{ORANGE}"'))
    for (x, y), one in lines:
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across(x), up(y), strict=True))
        ends = f'stroke-linecap="{"butt" if one.width > 9 else "round"}" stroke-linejoin="round" fill="none"'
        parts.append(f'<polyline points="{points}" stroke="{one.color}" stroke-width="{one.width:.1f}" {ends}/>')
    head = (
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{_text(title)}"'
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" {head} font-size="11" fill="currentColor">{"".join(parts)}</svg>'


def card(title: str, facts: Mapping[str, str], drawn: str = "", *, doubts: Iterable[str | None] = ()) -> str:
    """Put facts and a picture side by side, or below each other where there is no room; doubts stand out.

    Example:
        >>> "&lt;b&gt;" in card("Path", {"name": "<b>"})
        True
    """
    known = {_text(name): _text(fact) for name, fact in facts.items() if fact}
    rows = "".join(f'<span style="opacity:.65">{name}</span><span>{fact}</span>' for name, fact in known.items())
    told = "".join(f'<div style="color:{ORANGE};margin-top:4px">{_text(doubt)}</div>' for doubt in doubts if doubt)
    words = f'<b>{_text(title)}</b><div style="{_FACTS}">{rows}</div>{told}'
    return f'<div style="{_CARD}"><div style="flex:1 1 300px;max-width:520px">{words}</div>{drawn}</div>'


def _text(text: str) -> str:
    """Write a text, which may hold names that are not ours, so that it is nothing but text."""
    return escape(visible(text))
