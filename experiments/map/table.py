"""The tables on `carre map`, from results.json."""

from __future__ import annotations

from typing import Any

from experiments.measures import pages


def _microseconds(value: float) -> str:
    return f"{1e6 * value:.1f} µs"


def _mean(entry: dict[str, Any], name: str) -> float:
    """Average what was measured before and after."""
    return sum(one[name] for one in entry["in_memory"]) / len(entry["in_memory"])


def speed_table(results: dict[str, Any]) -> list[str]:
    """Write what a row costs, and how much of that is the answer itself."""
    lines = [
        "| asked | rows | rows per second | a row | of that in the answers | in the networks "
        "| the same answers in memory | bytes of a row |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in results["speeds"]:
        each = entry["seconds"] / entry["rows"]
        lines.append(
            f"| {', '.join(entry['what'])} | {entry['rows']:,} | {1 / each:,.0f} | {_microseconds(each)} "
            f"| {entry['answering']:.0%} | {entry['networks']:.0%} | {_microseconds(_mean(entry, 'answers'))} "
            f"| {entry['bytes_per_row']:.0f} |"
        )
    return lines


def memory_table(results: dict[str, Any]) -> list[str]:
    """Write what the process held, beside what a dry run said."""
    lines = ["| rows | peak | at most, by the dry run | time | by the dry run |", "|---|---|---|---|---|"]
    for entry in results["memory"]:
        peak, planned = f"{entry['peak_megabytes']:.0f} MiB", f"{entry['planned_megabytes']:.0f} MiB"
        times = f"{entry['seconds']:.1f} s | {entry['planned_seconds']:.1f} s"
        lines.append(f"| {entry['rows']:,} | {peak} | {planned} | {times} |")
    return lines


def worker_table(results: dict[str, Any]) -> list[str]:
    """Write how fast several processes are."""
    lines = ["| processes | rows | time | core-seconds, with the start |", "|---|---|---|---|"]
    for entry in results["workers"]:
        times = f"{entry['seconds']:.1f} s | {entry['core_seconds']:.1f}"
        lines.append(f"| {entry['workers']} | {entry['rows']:,} | {times} |")
    return lines


def kill_table(results: dict[str, Any]) -> list[str]:
    """Write what kills left, and what came of it."""
    kills = results["kills"]
    lines = [
        f"| killed after, of the work | complete files of {kills['files']} | half files | after another run |",
        "|---|---|---|---|",
    ]
    for moment in kills["moments"]:
        after = "the same bytes" if moment["same"] else "OTHER BYTES"
        when = f"{moment['share']:.0%}" if moment["killed"] else "ended before"
        lines.append(f"| {when} | {moment['files']} | {1 if moment['strays'] else 0} | {after} |")
    return lines


def machine_note(results: dict[str, Any]) -> list[str]:
    """Write where and when it was measured, and whether alone."""
    machine = results["machine"]
    threads = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    sentence = (
        f"{results['columns']} columns in float32, rank {results['rank']}, {results['n_parameters']:,} parameters, "
        f"batches of {results['batch']:,}. Measured on {machine['date']} with {threads} of {machine['cpu']}, "
        f"torch {machine['torch']}, in {results['seconds']} s."
    )
    return pages.machine_note(sentence, machine)


TABLES = {
    "speed": speed_table,
    "memory": memory_table,
    "workers": worker_table,
    "kills": kill_table,
    "machine": machine_note,
}
