"""The tables of what was measured."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from experiments.recipe.shapes import SHAPES

_MANY = 10
# The columns of the summary, and what its rows are called: keys of a row, or of its kernel.
SUMMARIZED = (("s2", 2000), ("roll", 2000), ("rotations", 2000), ("s8", 8192), ("s8", 8_388_608), ("uneven", 8192))
SUMMARIZED += (("gr52", 8192), ("wiggly", 131_072))
METHODS = {"**Carré**": "error", "local PCA, by labels": "kernel", "Jacobian of the denoiser": "range_finder"}


def spread(values: list[float], digits: int = 4) -> str:
    """Write a mean with its deviation over seeds, and of many the worst.

    Example:
        >>> spread([0.01, 0.03])
        '0.0200 ± 0.0141'
    """
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    worst = f" (worst {max(values):.{digits}f})" if len(values) >= _MANY else ""
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}{worst}"


def seconds(rows: list[dict[str, Any]]) -> str:
    """Write how long fits took that had the machine to themselves; nothing where none had.

    Example:
        >>> seconds([{"seconds": 20.0}, {"seconds": 99.0, "jobs": 8}])
        '20'
    """
    alone = [row["seconds"] for row in rows if row.get("jobs", 1) == 1]
    return f"{statistics.mean(alone):.0f}" if alone else ""


def tables(results: dict[str, Any]) -> str:
    """Write both tables: the defaults on every shape, and the ingredients.

    Example:
        >>> tables({"rows": []})
        ''
    """
    failed = [row for row in results["rows"] if "failed" in row]
    good = [row for row in results["rows"] if "failed" not in row]
    defaults = [row for row in good if row["steps_each"] is None]
    parts = [defaults_table(defaults)] if defaults else []
    parts += [f"{row['variant']} on {row['shape']}, seed {row['seed']}, failed: {row['failed']}\n" for row in failed]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in good:
        if row["steps_each"] is not None:
            groups[row["shape"], row["n"], row["steps_each"], row["hardware"]].append(row)
    return "\n".join([*parts, *(ingredients_table(key, rows) for key, rows in groups.items())])


def _grouped(rows: list[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def defaults_table(rows: list[dict[str, Any]]) -> str:
    """Write what the defaults reach."""
    lines = [
        "| shape | n | seeds | tangent error, own σ | best of nine σ | kernel, best σ and k by labels | over the range "
        "finder | off from exact G at σ = 0.125 / 0.5 | seconds | steps | ended | hardware |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, n, where), some in _grouped(rows, "shape", "n", "hardware").items():
        ratio = statistics.mean(row["error_there"] / row["range_finder"] for row in some)
        exact = [row["G"] for row in some if "G" in row]
        off = " / ".join(f"{statistics.mean(g[q] for g in exact):.3f}" for q in ("0.125", "0.5")) if exact else ""
        steps = statistics.mean(row["steps"] for row in some)
        ended = ", ".join(sorted({row["ended"] for row in some}))
        own, best = ([row[key] for row in some] for key in ("error", "best_error"))
        rival = [row["kernel"]["error"] for row in some if "kernel" in row]
        errors = [spread(own), spread(best), spread(rival) if rival else ""]
        if rival:
            ahead = min((0, 2), key=lambda k: statistics.mean((own, best, rival)[k]))
            errors[ahead] = f"**{errors[ahead]}**"
            errors[2] += "†" * any(row["kernel"]["at_end"] for row in some if "kernel" in row)
        cells = [SHAPES[name].title, f"{n:,}", str(len(some)), *errors, f"{ratio:.2f}", off, seconds(some)]
        lines.append("| " + " | ".join([*cells, f"{steps:,.0f}", ended, where]) + " |")
    if any("†" in line for line in lines):
        lines += ["", "† The best k is the largest that was tried: with more neighbors it may be better still."]
    return "\n".join(lines) + "\n"


def summary(results: dict[str, Any]) -> str:
    """Write the table of the front page: methods by shapes, the best of each column in bold, whoever it is.

    Example:
        >>> row = {"steps_each": None, "shape": "s2", "n": 2000, "error": 0.01, "range_finder": 0.02}
        >>> print(summary({"rows": [row]}).splitlines()[-1])
        | Jacobian of the denoiser | 0.0200 |
    """
    defaults = _grouped([row for row in results["rows"] if row.get("steps_each", 0) is None], "shape", "n")
    found = {key: _errors(defaults[key]) for key in SUMMARIZED if key in defaults}
    lines = ["| | " + " | ".join(SHAPES[name].title for name, _ in found) + " |", "|---" * (1 + len(found)) + "|"]
    lines.append(f"| samples | {' | '.join(f'{n:,}' for _, n in found)} |")
    for method, key in METHODS.items():
        best = [min(errors.values()) for errors in found.values()]
        cells = [f"{errors[key]:.4f}" if key in errors else "–" for errors in found.values()]
        marks = ["**" * (errors.get(key) == least) for errors, least in zip(found.values(), best, strict=True)]
        lines.append(f"| {' | '.join([method, *(m + cell + m for m, cell in zip(marks, cells, strict=True))])} |")
    return "\n".join(lines) + "\n"


def _errors(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Average the errors of every method over seeds; a method that was not asked is left out."""
    known = [{**row, "kernel": row["kernel"]["error"]} if "kernel" in row else row for row in rows]
    return {key: statistics.mean(row[key] for row in known) for key in METHODS.values() if key in known[0]}


def ingredients_table(key: tuple[Any, ...], rows: list[dict[str, Any]]) -> str:
    """Write what each change does on one shape; the best in bold, whoever it is."""
    name, n, steps, where = key
    groups = _grouped(rows, "variant")
    best = min(groups.values(), key=lambda some: statistics.mean(row["error"] for row in some))
    lines = [
        f"{SHAPES[name].title}, n = {n:,}, {steps:,} steps each, {where}:\n",
        "| | seeds | tangent error, own σ | best of nine σ | over the range finder | off from exact G at σ = 0.0625 / "
        "0.125 / 0.5 | predictive score | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (variant,), some in sorted(groups.items(), key=lambda group: group[0] != ("default",)):
        error = spread([row["error"] for row in some])
        ratio = statistics.mean(row["error_there"] / row["range_finder"] for row in some)
        exact = [row["G"] for row in some if "G" in row]
        off = (
            " / ".join(f"{statistics.mean(g[q] for g in exact):.3f}" for q in ("0.0625", "0.125", "0.5"))
            if exact
            else ""
        )
        score = statistics.mean(row["score"] for row in some)
        cells = [variant, str(len(some)), f"**{error}**" if some is best else error]
        cells += [spread([row["best_error"] for row in some]), f"{ratio:.2f}", off, f"{score:.3f}", seconds(some)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
