"""The tables of the page on several processes, from results.json."""

from __future__ import annotations

from typing import Any

from experiments.measures import pages


def comparison(results: dict[str, Any]) -> list[str]:
    """Write what one process and two do with the same total batch."""
    one, two = results["one"], results["two"]
    lines = ["| | one process | two |", "|---|---|---|"]
    for batch, seconds in one["seconds_per_step"].items():
        both = two["seconds_per_step"][batch]
        lines.append(f"| steps per second, {int(batch):,} points | {1 / seconds:.1f} | {1 / both:.1f} |")
    errors = [", ".join(f"{error:.4f}" for error in each["errors"]) for each in (one, two)]
    lines.append(f"| tangent error after {results['fit_steps']:,} steps, three seeds | {errors[0]} | {errors[1]} |")
    lines.append(f"| largest relative difference of a loss, float64 | | {results['difference']:.1e} |")
    return lines


def deaths(results: dict[str, Any]) -> list[str]:
    """Write what became of a fit of which one process was killed."""
    lines = [
        "| killed after | process | all had ended after | what was said | checkpoint | resumed with | and finished |",
        "|---|---|---|---|---|---|---|",
    ]
    for kill in results["kills"]:
        ended = "never" if kill["hung"] else f"{kill['ended_after']:.1f} s"
        victim = str(kill["victim"]) if kill["was_running"] else "none: it was done"
        row = [f"{kill['moment']:.1f} s", victim, ended, kill.get("sentence") or "–"]
        row += ["yes" if kill.get("had_checkpoint") else "not yet", str(kill.get("resumed_with", "–"))]
        lines.append(f"| {' | '.join(row)} | {'yes' if kill.get('resumed') else 'no'} |")
    return lines


def machine_note(results: dict[str, Any]) -> list[str]:
    """Write where and when it was measured, and whether alone."""
    machine = results["machine"]
    sentence = (
        f"Measured on {machine['date']} with one thread per process on {machine['cpu']}, torch {machine['torch']}, in "
        f"{results['seconds']} s; the fit that was killed takes {results['uninterrupted']:.0f} s in two processes."
    )
    return pages.machine_note(sentence, machine)


TABLES = {"comparison": comparison, "deaths": deaths, "machine": machine_note}
