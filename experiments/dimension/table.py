"""The tables of what was measured."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from typing import Any

Rows = list[dict[str, Any]]
# Of flat data all methods have the hull, up to rounding.
_LEAST_ERROR = 1e-4
# Columns of a small space.
_LOW = 30


def tables(results: dict[str, Any]) -> str:
    """Write a table for every suite that was measured.

    Example:
        >>> tables({"rows": []})
        ''
    """
    writers = {"noisy": noisy, "calibration": calibration}
    writers |= dict.fromkeys(("benchmark", "denoising", "iddiff"), benchmark)
    parts = []
    for name, write in writers.items():
        rows = [row for row in results["rows"] if row["suite"] == name]
        parts += [write(rows)] if rows else []
    return "\n".join(parts)


def noisy(rows: Rows) -> str:
    """Directions, dimension and noise on shapes under noise."""
    lines = [
        "## Under noise\n",
        "| data | n | tangent error | at the best σ | local PCA, best k by labels | over it | τ found | points of the "
        "right dimension |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (name, n), some in sorted(_grouped(rows, "name", "n").items()):
        ours, best, pca = (_mean(some, key) for key in ("error", "best_error", "pca_error"))
        marks = ("**", "") if ours <= pca else ("", "**")
        claimed = [row["found_noise"] for row in some if row["found_noise"] > 0]
        tau = f"{statistics.mean(claimed):.4f}" if claimed else "not claimed"
        lines.append(
            f"| {name} | {n:,} | {marks[0]}{ours:.3f}{marks[0]} | {best:.3f} | {marks[1]}{pca:.3f}{marks[1]} | "
            f"{ours / pca:.2f} | {tau} | {_mean(some, 'share_right'):.1%} |"
        )
    ratios = [_mean(some, "error") / _mean(some, "pca_error") for some in _grouped(rows, "name", "n").values()]
    right = sum(_mean(some, "share_right") >= 0.95 for some in _grouped(rows, "name", "n").values())
    off = [abs(row["found_noise"] / row["noise"] - 1) for row in rows if row["found_noise"] > 0]
    worst = f"; at most {max(off):.1%} off in the {len(off)} fits that claim noise" if off else ""
    lines.append(
        f"\n{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} below local PCA, at most {max(ratios):.2f} times it; "
        f"in {right} at least 95 % of the points have the right dimension{worst}.\n"
    )
    return "\n".join(lines)


def calibration(rows: Rows) -> str:
    """How often what is said is right."""
    inside = [row["interval"][0] <= row["dimension"] <= row["interval"][1] for row in rows]
    lines = [
        "## Is what is said right?\n",
        f"{len(rows)} fits. The interval holds the dimension in {statistics.mean(inside):.1%}.\n",
        "| what is said | fits | the dimension is right | the interval holds it |",
        "|---|---|---|---|",
    ]
    for verdict, some in sorted(_grouped(rows, "verdict").items()):
        right = statistics.mean(row["value"] == row["dimension"] for row in some)
        holds = statistics.mean(row["interval"][0] <= row["dimension"] <= row["interval"][1] for row in some)
        lines.append(f"| {verdict[0]} | {len(some)} | {right:.1%} | {holds:.1%} |")
    lines += ["", _scales(rows)]
    lines += [
        "",
        "| data | n | d | said | interval | verdict | valid | τ, found |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["name"], row["n"], row["seed"])):
        low, high = row["interval"]
        mark = "" if row["value"] == row["dimension"] else " (wrong)"
        lines.append(
            f"| {row['name']} | {row['n']:,} | {row['dimension']} | {row['value']}{mark} | {low} to {high} | "
            f"{row['verdict']} | {row['valid']:.0%} | {row['noise']:g}, {row['found_noise']:.3g} |"
        )
    return "\n".join(lines) + "\n"


def _scales(rows: Rows) -> str:
    """Compare the scale that was chosen without labels with the best one, and with local PCA at its best k."""
    known = [row for row in rows if row.get("best_error", 0.0) > _LEAST_ERROR]
    if not known:
        return ""
    over_best = sorted(row["error"] / row["best_error"] for row in known)
    below = sum(row["error"] < row["pca_error"] for row in known)
    worst = max(known, key=lambda row: row["error"] / row["best_error"])
    high = over_best[math.ceil(0.9 * len(over_best)) - 1]
    return (
        f"The scale is chosen without labels. In the {len(known)} fits of shapes with known tangents (clean flat ones "
        f"aside) the tangent error is {statistics.median(over_best):.2f} times the one at the best σ of that fit in "
        f"the median, at most {high:.2f} times in nine of ten, {over_best[-1]:.2f} times at worst ({worst['name']}, "
        f"n = {worst['n']:,}). "
        f"It is below that of local PCA with the best k by labels in {below} of {len(known)}."
    )


def benchmark(rows: Rows) -> str:
    """Absolute errors of rounded dimensions, ours and others'."""
    parts = []
    for (suite, n), some in _grouped(rows, "suite", "n").items():
        methods = sorted({name for row in some for name in row.get("rivals", {})})
        lines = [
            f"## Suite {suite}, n = {n:,}\n",
            "| data | d | D | ours | " + "".join(f"{name} | " for name in methods),
            "|---|---|---|---|" + "---|" * len(methods),
        ]
        groups = _grouped(some, "name", "dimension", "ambient")
        for (name, d, ambient), same in groups.items():
            known = [row["rivals"] for row in same if "rivals" in row]
            others = [statistics.mean(row[method] for row in known) if known else math.nan for method in methods]
            said = "".join(f"{value:.1f} | " if math.isfinite(value) else "– | " for value in others)
            lines.append(f"| {name} | {d} | {ambient} | {_mean(same, 'value'):.1f} | {said}")
        asked = [row for row in some if "rivals" in row]
        kinds = {"mean absolute error, rounded": some}
        if 0 < len(asked) < len(some):
            kinds[f"of the {len(asked)} that the others were asked"] = asked
        for what, rows_of_kind in kinds.items():
            low = [row for row in rows_of_kind if row["ambient"] <= _LOW]
            lines.append(f"| {what} | | | " + _errors(rows_of_kind, methods))
            if low and len(low) < len(rows_of_kind):
                lines.append(f"| … with D ≤ {_LOW} | | | " + _errors(low, methods))
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _errors(rows: Rows, methods: list[str]) -> str:
    """Write mean absolute errors of rounded values; the best is bold, and what failed somewhere has none."""
    found = [statistics.mean(abs(row["value"] - row["dimension"]) for row in rows)]
    for method in methods:
        values = [(row["rivals"][method], row["dimension"]) for row in rows if "rivals" in row]
        is_known = len(values) == len(rows) and all(math.isfinite(value) for value, _ in values)
        found.append(statistics.mean(abs(round(value) - d) for value, d in values) if is_known else math.nan)
    best = min(value for value in found if math.isfinite(value))
    cells = [
        f"**{value:.2f}**" if value == best else f"{value:.2f}" if math.isfinite(value) else "–" for value in found
    ]
    return " | ".join(cells) + " |"


def _grouped(rows: Rows, *keys: str) -> dict[tuple[Any, ...], Rows]:
    groups: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def _mean(rows: Rows, key: str) -> float:
    return statistics.mean(float(row[key]) for row in rows)
