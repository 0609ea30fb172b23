"""The tables of the comparison on a sphere, from its results."""

from __future__ import annotations

import itertools
import math
from typing import Any

_LEARNED = "learned"
_END = "†"


def sphere_tables(results: dict[str, Any]) -> str:
    """Make the tables in Markdown: errors, speeds, when a fit pays, eigenvalues, training steps.

    Args:
        results: What `run_sphere` returned, or results.json holds.

    Example:
        >>> row = {"n": 65_536, "method": "learned", "bandwidth": 0.0625, "at_end": [], "tangent_error": 0.012}
        >>> row |= {"tangent_error_full_precision": 0.013, "label_free_tangent_error": 0.014, "fit_seconds": 8.0}
        >>> tables = sphere_tables({"rows": [row], "eigenvalues": {}, "training_step": []})
        >>> print(*tables.splitlines()[:3], sep="\\n")
        | tangent error | n = 65,536 |
        |---|---|
        | learned | **0.0120** (σ 0.0625) |
    """
    parts = [_errors(results), _speeds(results), _break_even(results)]
    if results["eigenvalues"]:
        parts.append(_eigenvalues(results))
    parts.append(_steps(results))
    return "\n\n".join(parts)


def _errors(results: dict[str, Any]) -> str:
    """Tabulate the tangent errors: a line per method, a column per size."""
    sizes = _sizes(results)
    lines = [_header("tangent error", _columns(sizes))]
    learned = [_find(results, n, _LEARNED) for n in sizes]
    # The best of a column is in bold, whoever it is.
    full = [row["tangent_error_full_precision"] for row in learned]
    errors = [[row["tangent_error"] for row in results["rows"] if row["n"] == n] for n in sizes]
    best = [min(error, *others) for error, others in zip(full, errors, strict=True)]
    for name in _names(results):
        cells = [_error(_find(results, n, name), least) for n, least in zip(sizes, best, strict=True)]
        lines.append(_row(name, cells))
    cells = [_marked(f"{error:.4f}", error == least) for error, least in zip(full, best, strict=True)]
    lines.append(_row("learned, in float32", cells))
    lines.append(_row("learned, at the label-free σ", [f"{row['label_free_tangent_error']:.4f}" for row in learned]))
    lines.append(_row("fit of the learned metric, seconds", [f"{row['fit_seconds']:.1f}" for row in learned]))
    return "\n".join(lines) + f"\n\n{_END} The best setting lies at an end of its grid: the optimum may lie beyond."


def _speeds(results: dict[str, Any]) -> str:
    """Tabulate points per second, and how many times as fast the learned field is."""
    sizes = _sizes(results)
    lines = [_header("points per second", _columns(sizes))]
    quantities = {
        "metric_per_second": "metric",
        "tangent_per_second": "tangent spaces",
        "dense_tangent_per_second": "tangent spaces by D×D matrices",
        "metric_per_second_full_precision": "metric, float32",
    }
    for name in _names(results):
        for quantity, label in quantities.items():
            if not any(quantity in (_find(results, n, name) or {}) for n in sizes):
                continue
            own = "tangent_per_second" if "tangent" in quantity else quantity
            best = [max(row.get(own, 0) for row in results["rows"] if row["n"] == n) for n in sizes]
            found = [(_find(results, n, name), _find(results, n, _LEARNED)) for n in sizes]
            cells = [_speed(*pair, quantity, own, most) for pair, most in zip(found, best, strict=True)]
            lines.append(_row(f"{label}: {name}", cells))
    memory = [_memory(_find(results, n, _LEARNED)) for n in sizes]
    lines.append(_row("working memory of the learned metric, per call", memory))
    return "\n".join(lines)


def _break_even(results: dict[str, Any]) -> str:
    """Tabulate after how many metrics a fit has paid, and from which size on the learned metric is the faster one."""
    sizes = _sizes(results)
    lines = [_header("metrics after which the fit has paid", [*_columns(sizes), "learned is faster"])]
    for name in _names(results):
        pairs = [(_find(results, n, name), _find(results, n, _LEARNED)) for n in sizes]
        if not any("build_seconds" in row for row, _ in pairs):
            continue
        cells = ["" if "build_seconds" not in row else _paid(row, learned) for row, learned in pairs]
        lines.append(_row(name, [*cells, _crossing(sizes, pairs)]))
    return "\n".join(lines)


def _paid(row: dict[str, Any], learned: dict[str, Any]) -> str:
    """Say how many metrics make up for the fit, with the time to build the index taken off."""
    saved = 1 / row["metric_per_second"] - 1 / learned["metric_per_second"]
    return "never" if saved <= 0 else f"{max(learned['fit_seconds'] - row['build_seconds'], 0) / saved:,.0f}"


def _crossing(sizes: list[int], pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Say where the speeds cross, by interpolation between the logarithms."""
    known = [
        (n, math.log(learned["metric_per_second"] / row["metric_per_second"]))
        for n, (row, learned) in zip(sizes, pairs, strict=True)
        if row and learned
    ]
    if known[0][1] > 0:
        return f"at every size from {known[0][0]:,}"
    for (small, slower), (large, faster) in itertools.pairwise(known):
        if slower <= 0 < faster:
            share = -slower / (faster - slower)
            return f"from about {small * (large / small) ** share:,.0f} on"
    return "at no size"


def _eigenvalues(results: dict[str, Any]) -> str:
    """Tabulate the mean eigenvalues of each method around the dimension."""
    d = results["settings"]["dimension"]
    columns = [f"λ{k}" for k in (1, d, d + 1, d + 2)]
    title = f"mean eigenvalues, n = {results['settings']['profile_size']:,}"
    lines = [_header(title, columns)]
    for name, values in results["eigenvalues"].items():
        lines.append(_row(name, [f"{values[k - 1]:.3f}" for k in (1, d, d + 1, d + 2) if k <= len(values)]))
    return "\n".join(lines)


def _steps(results: dict[str, Any]) -> str:
    """Tabulate training steps."""
    lines = [_header("training step", ["ms", "share of a large product's rate"])]
    for row in results["training_step"]:
        rate = row["product_rate"]
        share = "" if rate is None else f"{row['operations_per_second'] / rate:.0%}"
        target = "both targets" if row["match_jacobian"] else "displacements alone"
        name = f"batch {row['batch_size']:,}, two networks of {row['n_blocks']} × {row['width']}, {target}"
        lines.append(_row(name, [f"{row['milliseconds']:.3f}", share]))
    return "\n".join(lines)


def _name(row: dict[str, Any]) -> str:
    return str(row["method"]) + (f" ({row['engine']})" if "engine" in row else "")


def _names(results: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(_name(row) for row in results["rows"]))


def _sizes(results: dict[str, Any]) -> list[int]:
    return sorted({row["n"] for row in results["rows"]})


def _find(results: dict[str, Any], size: int, name: str) -> dict[str, Any]:
    return next((row for row in results["rows"] if row["n"] == size and _name(row) == name), {})


def _columns(sizes: list[int]) -> list[str]:
    return [f"n = {n:,}" for n in sizes]


def _header(title: str, columns: list[str]) -> str:
    return f"| {title} | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}"


def _row(name: str, cells: list[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _marked(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text


def _error(row: dict[str, Any], best: float) -> str:
    if not row:
        return ""
    setting = f"σ {row['bandwidth']:.3g}" + (f", k {row['n_neighbors']}" if "n_neighbors" in row else "")
    error = _marked(f"{row['tangent_error']:.4f}", row["tangent_error"] == best)
    return f"{error}{_END if row['at_end'] else ''} ({setting})"


def _speed(row: dict[str, Any], learned: dict[str, Any], quantity: str, own: str, best: float) -> str:
    if quantity not in row:
        return ""
    value = _marked(f"{row[quantity]:,.0f}", row[quantity] == best)
    if row["method"] == _LEARNED:
        return value
    ratio = learned[own] / row[quantity]
    return f"{value} (learned: {ratio:,.0f}×)" if ratio >= 10 else f"{value} (learned: {ratio:.1f}×)"


def _memory(row: dict[str, Any]) -> str:
    return "" if row.get("peak_bytes") is None else f"{row['peak_bytes'] / 1e6:,.0f} MB"
