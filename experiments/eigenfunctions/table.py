"""Write the table of README.md from results.json: `python experiments/eigenfunctions/table.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).parent
HEADER = """\
| shape | n | exact tangents: largest (mean) error | fitted | diffusion maps | errors within what is said | s |
|---|---|---|---|---|---|---|"""


def table(results: dict[str, Any]) -> str:
    """Make one line per shape: means over the seeds, the best of each line in bold."""
    lines, names = [HEADER], list(dict.fromkeys(row["shape"] for row in results["rows"]))
    for name in names:
        rows = [row for row in results["rows"] if row["shape"] == name]
        fits = [row["fitted"] for row in results["fits"] if row["shape"] == name]
        columns = [[row["exact"] for row in rows], fits, [row["diffusion maps"] for row in rows]]
        largest = [mean(row["largest"] for row in column) if column else None for column in columns]
        best = min(value for value in largest if value is not None)
        shown = [
            ""
            if value is None
            else f"{'**' * (value == best)}{value:.1%}{'**' * (value == best)} ({_mean(column):.1%})"
            for value, column in zip(largest, columns, strict=True)
        ]
        within, seconds = mean(row["within"] for row in rows), mean(row["seconds"] for row in rows)
        lines.append(f"| {name} | {rows[0]['n']:,} | {' | '.join(shown)} | {within:.0%} | {seconds:.1f} |")
    return "\n".join(lines)


def _mean(column: list[dict[str, float]]) -> float:
    return mean(row["mean"] for row in column)


def write(results: dict[str, Any]) -> None:
    """Write the table into README.md between its markers."""
    page = HERE / "README.md"
    found = f"<!-- table -->\n{table(results)}\n<!-- end -->"
    text = re.sub(r"<!-- table -->.*?<!-- end -->", lambda _: found, page.read_text(encoding="utf-8"), flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(json.loads((HERE / "results.json").read_text(encoding="utf-8")))
