"""The tables of the page on limits, from results.json."""

from __future__ import annotations

from typing import Any

from experiments.measures import pages

# What calls were called when they were measured.
_CALLS = {"geodesic": "path"}


def _case(case: dict[str, Any]) -> str:
    return f"{case['columns']:,}, {case['rank']}, {case['width']}"


def _seconds(value: float) -> str:
    return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def _megabytes(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1 else "< 1"


def fit_table(results: dict[str, Any]) -> list[str]:
    """Write what a fit costs: a step, everything beside the steps, and a default fit of 2,000 or 3,000 steps."""
    lines = ["| D, rank, width | one step of 256 points | beside the steps | 2,000 steps |", "|---|---|---|---|"]
    for case in results["cases"]:
        fit = case["fit"]
        whole = 2000 * fit["seconds_per_step"] + fit["seconds_beside"]
        step, beside = _seconds(fit["seconds_per_step"]), _seconds(fit["seconds_beside"])
        lines.append(f"| {_case(case)} | {step} | {beside} | {whole:.0f} s |")
    return lines


def query_table(results: dict[str, Any]) -> list[str]:
    """Write what each question costs, next to the bound on its memory."""
    lines = [
        "| call | points | D, rank, width | time | peak MB | at most, by the formula |",
        "|---|---|---|---|---|---|",
    ]
    for k, first in enumerate(results["cases"][0]["queries"]):
        for case in results["cases"]:
            row = case["queries"][k]
            peak, bound = _megabytes(row["peak_megabytes"]), _megabytes(row["bound_megabytes"])
            time = _seconds(row["seconds"])
            call = _CALLS.get(first["call"], first["call"])
            lines.append(f"| `{call}` | {row['points']:,} | {_case(case)} | {time} | {peak} | {bound} |")
    return lines


def machine_note(results: dict[str, Any]) -> list[str]:
    """Write where and when it was measured, and whether alone."""
    machine = results["machine"]
    sentence = (
        f"Measured on {machine['date']} with {machine['threads']} thread{'s' if machine['threads'] > 1 else ''} of "
        f"{machine['cpu']}, torch {machine['torch']}, in {results['seconds']} s."
    )
    return pages.machine_note(sentence, machine)


TABLES = {"fit": fit_table, "queries": query_table, "machine": machine_note}
