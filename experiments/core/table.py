"""Print the table of the README from results.json.

python experiments/core/table.py
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
HEADER = """\
| data | samples | hardware, fit | tangent error | kernel, best σ and k | G off by | dimension right |
|---|---|---|---|---|---|---|"""


def table(results: dict) -> str:
    """Make one line per dataset: means over the seeds, and the worst seed where it matters."""
    lines = [HEADER]
    for part in results:
        for _, rows in groupby(sorted(results[part]["rows"], key=_name), key=_name):
            lines.append(_line(list(rows), results[part]["hardware"]))
    return "\n".join(lines)


def _name(row: dict) -> str:
    where = "" if row.get("settings", {}).get("reduce", True) else ", all 64 coordinates"
    return re.sub(r"\^(\d+)", lambda power: power.group(1).translate(SUPERSCRIPTS), row["manifold"]) + where


def _line(rows: list[dict], hardware: str) -> str:
    seconds = f"{hardware}, {mean(row['fit_seconds'] for row in rows):.0f} s"
    right = f"{min(row['dimension_right'] for row in rows):.1%}"
    if "tangent_error" not in rows[0]:
        return f"| {_name(rows[0])} | {rows[0]['n']:,} | {seconds} | | | | {right} |"
    errors = [row["tangent_error"] for row in rows]
    rival = next((row["kernel_best"]["tangent_error"] for row in rows if "kernel_best" in row), None)
    off = f"{mean(row['relative_error_of_G'] for row in rows):.1%}"
    is_best = rival is None or mean(errors) <= rival
    own, kernel = f"{mean(errors):.3f}", "as above" if rival is None else f"{rival:.3f}"
    own, kernel = (f"**{own}**", kernel) if is_best else (own, f"**{kernel}**")
    error = f"{own} (worst of {len(rows)} seeds {max(errors):.3f})"
    return f"| {_name(rows[0])} | {rows[0]['n']:,} | {seconds} | {error} | {kernel} | {off} | {right} |"


if __name__ == "__main__":
    print(table(json.loads((HERE / "results.json").read_text(encoding="utf-8"))))
