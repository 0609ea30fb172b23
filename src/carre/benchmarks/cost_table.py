"""The tables of what an evaluation costs, from its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carre.benchmarks.cost_cells import EXTRAPOLATED, FAILED, OUT_OF_MEMORY

_MARK = "†"
_TITLES = {"float32": "float32", "tf32": "float32, TF32 convolutions", "bfloat16": "bfloat16"}


def cost_tables(results: dict[str, Any]) -> str:
    """Make the tables in Markdown: for every shape, time and memory of each method; then ratios to metric matching.

    Args:
        results: What `measure_cost` returned, or results.json holds.

    Example:
        >>> row = {"shape": "tiny", "precision": "float32", "method": "metric matching", "batch": 4, "seconds": 0.012}
        >>> row |= {"status": "measured", "peak_bytes": 5_000_000, "estimated_bytes": None, "extrapolated": False}
        >>> shape = {"name": "tiny", "dim": 64, "rank": 5, "factor_bytes": 4_000_000, "mean_bytes": 3_000_000}
        >>> print(cost_tables({"shapes": [shape], "rows": [row], "ratios": []}))
        **tiny**, D = 64, rank 5, weights 4.0 MB (factor) and 3.0 MB (mean)
        <BLANKLINE>
        | per image | batch | float32 |
        |---|---|---|
        | metric matching | 4 | 3.00 ms, 1.2 MB |
        <BLANKLINE>
        Time, and memory beyond the weights, both divided by the batch.
    """
    parts = []
    for shape in results["shapes"]:
        rows = [row for row in results["rows"] if row["shape"] == shape["name"]]
        if rows:
            parts += [_heading(shape), _costs(rows)]
    parts.append("Time, and memory beyond the weights, both divided by the batch." + _footnote(results["rows"]))
    if results["ratios"]:
        parts.append(_ratios(results["ratios"]))
    return "\n\n".join(parts)


def _heading(shape: dict[str, Any]) -> str:
    weights = f"weights {_size(shape['factor_bytes'])} (factor) and {_size(shape['mean_bytes'])} (mean)"
    return f"**{shape['name']}**, D = {shape['dim']:,}, rank {shape['rank']}, {weights}"


def _costs(rows: list[dict[str, Any]]) -> str:
    """Tabulate one shape: a line per method and batch."""
    return _table("per image | batch", rows, lambda row: f"{row['method']} | {row['batch']}", _cell)


def _cell(row: dict[str, Any]) -> str:
    batch = row["batch"]
    if row["status"] == FAILED:
        return f"failed: {row['message']}"
    if row["status"] == OUT_OF_MEMORY:
        needed = max(row["estimated_bytes"] or 0, row["result_bytes"])
        return f"out of memory (about {_size(needed / batch)})"
    memory = "" if row["peak_bytes"] is None else f", {_size(row['peak_bytes'] / batch)}"
    mark = _MARK if row["status"] == EXTRAPOLATED else ""
    return f"{_duration(row['seconds'] / batch)}{memory}{mark}"


def _footnote(rows: list[dict[str, Any]]) -> str:
    if not any(row["extrapolated"] for row in rows):
        return ""
    return (
        f" {_MARK} Extrapolated from the time of some products with the Jacobian; the memory is that of these products "
        "and of the result, a lower bound."
    )


def _ratios(ratios: list[dict[str, Any]]) -> str:
    """Tabulate how many times the time and memory of metric matching the Jacobians take."""
    title = "one image, in multiples of metric matching"
    return _table(title, ratios, lambda row: f"{row['shape']}: {row['method']}", _multiples)


def _multiples(row: dict[str, Any]) -> str:
    time, memory = row["times_slower"], row["times_larger"]
    parts = ["out of memory" if time is None else f"{_count(time)}× the time"]
    if memory is not None:
        parts.append(f"{_count(memory)}× the memory")
    return ", ".join(parts) + (_MARK if row["extrapolated"] else "")


def _table(title: str, rows: list[dict[str, Any]], name: Callable[..., str], cell: Callable[..., str]) -> str:
    """Tabulate with a column per precision and a line per name; a bar in the title makes columns of names, too."""
    precisions = list(dict.fromkeys(row["precision"] for row in rows))
    columns = [*title.split(" | "), *[_TITLES[precision] for precision in precisions]]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for called in dict.fromkeys(map(name, rows)):
        found = {row["precision"]: cell(row) for row in rows if name(row) == called}
        lines.append(f"| {called} | {' | '.join(found.get(precision, '') for precision in precisions)} |")
    return "\n".join(lines)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _duration(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def _size(n_bytes: float | int) -> str:
    value = n_bytes / 1e6
    return f"{value / 1e3:,.1f} GB" if value >= 1e3 else f"{value:.0f} MB" if value >= 100 else f"{value:.1f} MB"
