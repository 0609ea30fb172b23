"""The tables of the sphere benchmark, from its results."""

from __future__ import annotations

from typing import Any

_LEARNED = "learned"


def sphere_tables(results: dict[str, Any]) -> str:
    """Make the tables in Markdown: errors, speeds, eigenvalues, training steps.

    Args:
        results: What `run_sphere` returned, or results.json holds.
    """
    parts = [_errors(results), _speeds(results)]
    if results["eigenvalues"]:
        parts.append(_eigenvalues(results))
    parts.append(_steps(results))
    return "\n\n".join(parts)


def _errors(results: dict[str, Any]) -> str:
    """Tabulate the tangent errors: a line per method, a column per size."""
    sizes = _sizes(results)
    lines = [_header("tangent error", sizes)]
    for name in _names(results):
        lines.append(_row(name, [_error(_find(results, n, name)) for n in sizes]))
    learned = [_find(results, n, _LEARNED) for n in sizes]
    lines.append(_row("learned, at the label-free σ", [f"{row['label_free_tangent_error']:.4f}" for row in learned]))
    lines.append(_row("fit of the learned metric, seconds", [f"{row['fit_seconds']:.1f}" for row in learned]))
    return "\n".join(lines)


def _speeds(results: dict[str, Any]) -> str:
    """Tabulate points per second, and how many times as fast the learned field is."""
    sizes = _sizes(results)
    lines = [_header("points per second", sizes)]
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
            own = "tangent_per_second" if "tangent" in quantity else "metric_per_second"
            cells = [_speed(_find(results, n, name), _find(results, n, _LEARNED), quantity, own) for n in sizes]
            lines.append(_row(f"{label}: {name}", cells))
    memory = [_memory(_find(results, n, _LEARNED)) for n in sizes]
    lines.append(_row("working memory of the learned metric, per call", memory))
    return "\n".join(lines)


def _eigenvalues(results: dict[str, Any]) -> str:
    """Tabulate the mean eigenvalues of each method around the dimension."""
    d = results["settings"]["dimension"]
    columns = [f"λ{k}" for k in (1, d, d + 1, d + 2)]
    title = f"mean eigenvalues, n = {results['settings']['profile_size']:,}"
    lines = [f"| {title} | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for name, values in results["eigenvalues"].items():
        lines.append(_row(name, [f"{values[k - 1]:.3f}" for k in (1, d, d + 1, d + 2) if k <= len(values)]))
    return "\n".join(lines)


def _steps(results: dict[str, Any]) -> str:
    """Tabulate training steps."""
    lines = ["| training step | ms | share of a large product's rate |", "|---|---|---|"]
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


def _header(title: str, sizes: list[int]) -> str:
    return f"| {title} | {' | '.join(f'n = {n:,}' for n in sizes)} |\n|---|{'---|' * len(sizes)}"


def _row(name: str, cells: list[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _error(row: dict[str, Any]) -> str:
    if not row:
        return ""
    setting = f"σ {row['bandwidth']:.3g}" + (f", k {row['n_neighbors']}" if "n_neighbors" in row else "")
    error = f"**{row['tangent_error']:.4f}**" if row["method"] == _LEARNED else f"{row['tangent_error']:.4f}"
    return f"{error} ({setting})"


def _speed(row: dict[str, Any], learned: dict[str, Any], quantity: str, own: str) -> str:
    if quantity not in row:
        return ""
    value = f"{row[quantity]:,.0f}"
    if row["method"] == _LEARNED:
        return f"**{value}**"
    ratio = learned[own] / row[quantity]
    return f"{value} (learned: {ratio:,.0f}×)" if ratio >= 10 else f"{value} (learned: {ratio:.1f}×)"


def _memory(row: dict[str, Any]) -> str:
    return "" if row.get("peak_bytes") is None else f"{row['peak_bytes'] / 1e6:,.0f} MB"
