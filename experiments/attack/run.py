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
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from experiments.measures.command import check_folder, write
from experiments.measures.speed import hardware
from tests.attack.conftest import IN_FULL, OUT
from tests.attack.kit import GOOD, Verdict

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


# Corpora of folders of models, of other files, and of kills, by the beginnings of their names.
_FOLDERS = ("damaged copies of good folders", "every value of a description", "descriptions", "tensors that are none")
_FOLDERS += ("a network of ones own", "no code of a folder")
_FILES = ("bombs", "cifar", "damaged copies of good files", "damaged copies of good images", "h5ad", "hostile", "idx")
_FILES += ("lists of images", "parquet", "odd and good")
_REFUSALS = (*_FILES, *_FOLDERS, "files that are no checkpoints", "answers that do not fit")


def summary(results: dict[str, Any]) -> str:
    """Write what was asked of the library beside what its first release did.

    Example:
        >>> row = {"corpus": "idx", "cases": 3, "counts": {"clear": 3}, "figures": {"seconds": 0.1}, "faults": []}
        >>> print(summary({"corpora": [row]}).splitlines()[3])
        | … unclear / silently wrong / not finite / crashed / hung | 670 / 46 / 30 / 0 / 0 | 0 / 0 / 0 / 0 / 0 |
    """
    corpora = {row["corpus"]: row for row in results["corpora"]}

    def total(beginnings: Sequence[str], verdict: str | None = None) -> int:
        chosen = [row for name, row in corpora.items() if name.startswith(tuple(beginnings))]
        return sum(row["cases"] if verdict is None else row["counts"].get(verdict, 0) for row in chosen)

    def most(figure: str, *beginnings: str) -> str:
        found = [row["figures"] for name, row in corpora.items() if name.startswith(beginnings)]
        values = [value for figures in found for name, value in figures.items() if name.startswith(figure)]
        return f"{max(values):.3g}" if values else "–"

    bad = [str(verdict) for verdict in Verdict if verdict not in GOOD]
    faults = " / ".join(str(total([""], verdict)) for verdict in bad[:5])
    rows = [
        ("cases in all", "4,586", f"{total(['']):,}"),
        ("… unclear / silently wrong / not finite / crashed / hung", "670 / 46 / 30 / 0 / 0", faults),
        (
            "kill −9 in a fit: half-written, not resumed or not the same bits",
            "0 of 18",
            f"{most('half-written', 'kills of a fit')} of {total(['kills of a fit'])}",
        ),
        (
            "kill −9 while writing: half-written, or not swept",
            "0 of 218, nothing swept",
            f"{most('half-written', 'kills while')} of {total(['kills while'])}",
        ),
        ("hostile folders of models, hostile files", "3 bombs, 1 hang, 17 bad values", _counted(total, bad)),
        ("… the longest refusal, seconds", "minutes", most("seconds", *_REFUSALS)),
        ("… the most memory of one, MB", "80,000", most("peak memory", *_REFUSALS)),
        ("memory of a fit over its data, 10⁶ × 50", "3.9", most("peak over", "a fit takes")),
        ("… over a mapped file", "4.2", most("mapped", "a fit takes")),
        ("`dimension` on 10⁶ × 50, seconds", "240", most("seconds", "the dimension of a million")),
    ]
    lines = [f"| {what} | {before} | {now} |" for what, before, now in rows]
    return "\n".join(["| | first release | now |", "|---|---|---|", *lines]) + "\n"


def _counted(total: Callable[..., int], bad: Sequence[str]) -> str:
    """Count hostile folders and files, and what went wrong with them."""
    wrong = sum(total([*_FOLDERS, *_FILES], verdict) for verdict in bad)
    return f"{total(_FOLDERS):,} and {total(_FILES):,}: {wrong} wrong"


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
    page = arguments.out / "README.md"
    if page.exists():
        before, _, rest = page.read_text(encoding="utf-8").partition("<!-- summary -->")
        after = rest.partition("<!-- end of summary -->")[2]
        written = f"{before}<!-- summary -->\n{summary(results)}<!-- end of summary -->{after}"
        write(page, written)
    print(tables(results))
    print(summary(results))
    return int(bool(results["pytest"]))


if __name__ == "__main__":
    sys.exit(main())
