"""Three newcomers, timed from `pip install` to their answers: `python experiments/newcomer/run.py`.

Builds the wheel, installs it with its dependencies into an empty environment, and does there what three users would: an
analyst with a csv on the command line, a researcher with a diffusion model, a geometer with a shape. Results go to
results.json, the table into README.md.
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
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from experiments.measures.command import check_folder, write
from experiments.measures.pages import fill_pages

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
# Commands of the analyst, in the order in which she gives them; what she sees after each.
ANALYST = {
    "look before": "fit wine.csv --drop id,cultivar --scale standardize --out model --dry-run",
    "fit": "fit wine.csv --drop id,cultivar --scale standardize --out model",
    "dimension": "dimension model wine.csv --out dimensions.csv",
    "path": "path model 0 17 --data wine.csv --out path.csv",
    "report": "report model wine.csv -o report.html",
}
SCRIPTS = {"researcher": (TUTORIALS / "denoiser.py", "diffusers"), "geometer": (TUTORIALS / "geometers_shape.py", None)}


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    try:
        check_folder(arguments.out)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder))
    write(arguments.out / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    if arguments.out == HERE:
        fill_pages([HERE / "README.md"], {"newcomers": lambda found: table(found).splitlines()}, results)
    print(table(results))
    return 0


def measure(folder: Path) -> dict[str, Any]:
    """Install, and let each of the three work in a folder of their own."""
    timed(folder, [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)])
    wheel = next(folder.glob("*.whl"))
    python, carre = (folder / "home" / "bin" / name for name in ("python", "carre"))
    timed(folder, [sys.executable, "-m", "venv", str(folder / "home")])
    install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    steps: dict[str, dict[str, Any]] = {"installation": {"carre": timed(folder, [*install, f"{wheel}[plots]"])}}
    wine(folder / "analyst")
    steps["analyst"] = {name: timed(folder / "analyst", [str(carre), *line.split()]) for name, line in ANALYST.items()}
    for who, (script, needed) in SCRIPTS.items():
        steps[who] = {f"pip install {needed}": timed(folder, [*install, needed])} if needed else {}
        (folder / who).mkdir()
        steps[who][f"all of {script.name}"] = timed(folder / who, [str(python), str(script)])
    return {
        "date": str(date.today()),
        "hardware": f"{os.cpu_count()} CPU cores",
        "python": platform.python_version(),
        "steps": steps,
    }


def wine(folder: Path) -> None:
    """Write the wines as people keep them: with a number of the row, and a label."""
    from sklearn.datasets import load_wine  # noqa: PLC0415

    folder.mkdir()
    data = load_wine()
    names = [name.replace("/", "_") for name in data.feature_names]
    rows = [
        ",".join([str(i), f"cultivar {label}", *map(repr, map(float, values))])
        for i, (values, label) in enumerate(zip(data.data, np.asarray(data.target), strict=True))
    ]
    text = "\n".join([",".join(["id", "cultivar", *names]), *rows]) + "\n"
    (folder / "wine.csv").write_text(text, encoding="utf-8")


def timed(folder: Path, command: list[str]) -> dict[str, Any]:
    """Run a command where nothing of the repository is, and keep how long it took, and what it said last."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"MPLBACKEND": "Agg"}
    start = time.perf_counter()
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if found.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{found.stdout}\n{found.stderr}")
    said = found.stdout.strip().splitlines()
    print(f"{seconds:7.1f} s  {Path(command[0]).name} {' '.join(command[1:5])}", flush=True)
    return {"seconds": seconds, "said": said[:12]}


def table(results: dict[str, Any]) -> str:
    """Write what each step took.

    Example:
        >>> steps = {"installation": {"carre": {"seconds": 40.2}}, "analyst": {"fit": {"seconds": 20.0}}}
        >>> print(table({"steps": steps, "hardware": "2 CPU cores", "date": "today"}), end="")
        | who | step | seconds |
        |---|---|---|
        | all | pip install carre | 40 |
        | analyst | fit | 20 |
        | | **from pip install to the last answer** | **60** |
        <BLANKLINE>
        2 CPU cores, today.
    """
    steps = results["steps"]
    first = steps["installation"]["carre"]["seconds"]
    lines = ["| who | step | seconds |", "|---|---|---|", f"| all | pip install carre | {first:.0f} |"]
    for who, own in steps.items():
        if who == "installation":
            continue
        lines += [f"| {who} | {name} | {step['seconds']:.0f} |" for name, step in own.items()]
        total = first + sum(step["seconds"] for step in own.values())
        lines.append(f"| | **from pip install to the last answer** | **{total:.0f}** |")
    return "\n".join([*lines, "", f"{results['hardware']}, {results['date']}."]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
