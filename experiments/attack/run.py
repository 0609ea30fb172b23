"""Attack the library: hostile calls, hostile files, hostile surroundings, kills, bounds of memory.

    python experiments/attack/run.py             everything, in about a quarter of an hour on two cores
    python experiments/attack/run.py --small     the dose that is part of ``make test``

The attacks are the tests in tests/attack, each of which asks all cases of a corpus and writes down what came of them;
this command gives them their full dose, and makes results.json and tables.md of what they wrote. It ends with 1 if
anything but a right answer or a clear sentence was seen.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from experiments.measures.command import check_folder, write
from experiments.measures.speed import hardware
from tests.attack.conftest import IN_FULL, OUT
from tests.attack.kit import Verdict

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]


def attack(*, small: bool) -> dict[str, Any]:
    """Run all attacks, and collect what they wrote."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        told = {**os.environ, OUT: folder, "OMP_NUM_THREADS": "1"} | ({} if small else {IN_FULL: "1"})
        command = [sys.executable, "-m", "pytest", "tests/attack", "-n", "2", "--dist", "worksteal", "-q"]
        code = subprocess.run(command, cwd=ROOT, env=told, check=False).returncode
        corpora = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(Path(folder).glob("*.json"))]
    where = {"date": str(date.today()), "hardware": hardware("cpu"), "python": platform.python_version()}
    where |= {"dose": "small" if small else "full", "seconds": round(time.perf_counter() - start), "pytest": code}
    return where | {"corpora": corpora}


def tables(results: dict[str, Any]) -> str:
    """Write the counts of all corpora as a table, and below it what was measured.

    Example:
        >>> row = {"corpus": "calls", "cases": 3, "counts": {"right": 2, "clear": 1}, "figures": {}, "faults": []}
        >>> print(tables({"dose": "full", "hardware": "CPU", "date": "today", "seconds": 9, "corpora": [row]}))
        Dose: full; CPU, today, 9 s.
        <BLANKLINE>
        | corpus | cases | right | clear | unclear | silently wrong | not finite, without a word | crashed | hung | too much memory |
        |---|---|---|---|---|---|---|---|---|---|
        | calls | 3 | 2 | 1 | 0 | 0 | 0 | 0 | 0 | 0 |
        | **all** | **3** | **2** | **1** | **0** | **0** | **0** | **0** | **0** | **0** |
        <BLANKLINE>
    """  # noqa: E501  (a table's line)
    verdicts, total = [str(verdict) for verdict in Verdict], Counter[str]()
    lines = [f"Dose: {results['dose']}; {results['hardware']}, {results['date']}, {results['seconds']} s.", ""]
    lines += [f"| corpus | cases | {' | '.join(verdicts)} |", "|---" * (2 + len(verdicts)) + "|"]
    for row in results["corpora"]:
        total.update(row["counts"] | {"cases": row["cases"]})
        cells = [row["corpus"], f"{row['cases']:,}", *(f"{row['counts'].get(verdict, 0):,}" for verdict in verdicts)]
        lines.append(f"| {' | '.join(cells)} |")
    cells = [f"**{total[name]:,}**" for name in ("cases", *verdicts)]
    lines.append(f"| **all** | {' | '.join(cells)} |")
    measured = [(row["corpus"], name, value) for row in results["corpora"] for name, value in row["figures"].items()]
    if measured:
        lines += ["", "| corpus | the most that was measured | |", "|---|---|---|"]
        lines += [f"| {corpus} | {name} | {value:.3g} |" for corpus, name, value in measured]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Attack from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the dose that is part of make test")
    parser.add_argument("--out", type=Path, default=HERE, help="where results.json and tables.md go")
    arguments = parser.parse_args(argv)
    try:
        check_folder(arguments.out)
    except ValueError as error:
        parser.error(str(error))
    results = attack(small=arguments.small)
    write(arguments.out / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write(arguments.out / "tables.md", tables(results))
    print(tables(results))
    return int(bool(results["pytest"]))


if __name__ == "__main__":
    sys.exit(main())
