"""Single cells: the tree of the bone marrow, and RNA velocities of embryoid bodies inside learned tangent spaces.

    python experiments/cells/run.py --marrow marrow_sample_scseq_counts.h5ad     a fit, and what is asked of it
    python experiments/cells/run.py --embryoid embryoid_body_subset.npz          fits within 5, 10, 30 and 50 components

The marrow is in the sdist of palantir 1.4.2 (`pip download --no-deps --no-binary :all: palantir==1.4.2`). The embryoid
bodies are an npz of `pcs`, `velocity` and `time`. ``--models`` keeps the fits, and takes those that lie there. Results
go to results.json, tables into README.md, pictures beside it and into docs/images/cells.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from experiments.cells import velocities
from experiments.cells.data import read_bodies, read_marrow
from experiments.cells.figures import draw_bodies, draw_marrow
from experiments.cells.marrow import measure
from experiments.cells.tables import TABLES, fill
from experiments.measures.command import check_folder, numbers, write
from experiments.measures.speed import hardware

HERE = Path(__file__).parent
DRAWN = 30


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marrow", type=Path, help="h5ad of counts")
    parser.add_argument("--embryoid", type=Path, help="npz of pcs, velocity and time")
    parser.add_argument("--components", default="5,10,30,50", help="within which the velocities are compared")
    parser.add_argument("--seeds", type=int, default=2, help="fits of each")
    parser.add_argument("--steps", type=int, help="optimizer steps; by default until it is done")
    parser.add_argument("--models", type=Path, help="folder that keeps the fits")
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    try:
        check_folder(arguments.out)
        components = numbers("--components", arguments.components, int) or ()
    except ValueError as error:
        parser.error(str(error))
    stored = arguments.out / "results.json"
    results: dict[str, Any] = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    about = {"date": str(date.today()), "hardware": hardware("cpu"), "python": platform.python_version()}
    pictures = HERE.parents[1] / "docs" / "images" / "cells" if arguments.out == HERE else arguments.out
    if arguments.marrow:
        marrow = read_marrow(arguments.marrow)
        fits = [fitted("marrow", marrow.pcs, seed, arguments) for seed in range(arguments.seeds)]
        found = [measure(marrow, geometry) | {"seconds": seconds} for geometry, seconds in fits]
        results["marrow"] = about | {"seeds": found}
        draw_marrow(marrow, fits[0][0], found[0], pictures)
    if arguments.embryoid:
        bodies, compared = read_bodies(arguments.embryoid), {}
        for n_components in components:
            points = bodies.pcs[:, :n_components]
            fits = [fitted("bodies", points, seed, arguments) for seed in range(arguments.seeds)]
            row = velocities.compare(bodies, [geometry for geometry, _ in fits], n_components)
            compared[str(n_components)] = row | {"seconds": [seconds for _, seconds in fits]}
        results["bodies"] = about | {"cells": len(bodies.pcs), **compared}
        draw_bodies(results["bodies"], DRAWN if DRAWN in components else components[-1], arguments.out)
    write(stored, as_text(results))
    if arguments.out == HERE:
        page = HERE / "README.md"
        text = page.read_text(encoding="utf-8")
        for name, table in TABLES.items():
            text = fill(text, name, table(json.loads(as_text(results))))
        write(page, text)
    return 0


def as_text(results: dict[str, Any]) -> str:
    """Write results as JSON, with lists of numbers on one line and four digits of each.

    Example:
        >>> print(as_text({"a": [0.123456, 2]}), end="")
        {
         "a": [0.1235, 2]
        }
    """

    def shorter(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shorter(one) for key, one in value.items()}
        if isinstance(value, list):
            return [shorter(one) for one in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    text = json.dumps(shorter(results), indent=1, ensure_ascii=False)
    text = re.sub(r"(?<=\[)\s+(?=[-\d])|(?<=\d)\s+(?=\])", "", text)
    return re.sub(r"(?<=\d,)\s+(?=[-\d])", " ", text) + "\n"


def fitted(name: str, points: np.ndarray, seed: int, told: argparse.Namespace) -> tuple[carre.Geometry, float | None]:
    """Fit with the defaults, or take a fit that lies there, whose seconds are not known."""
    folder = told.models and told.models / f"{name}{points.shape[1]}_{seed}"
    if folder and folder.exists():
        return carre.load(folder), None
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        geometry = carre.fit(points, random_state=seed, max_steps=told.steps, verbose=False)
    seconds = time.perf_counter() - start
    if folder:
        carre.save(geometry, folder)
    print(f"{name} within {points.shape[1]}, seed {seed}: {seconds:.0f} s, {geometry}", flush=True)
    return geometry, seconds


if __name__ == "__main__":
    raise SystemExit(main())
