"""The toolkit on fitted fields: scale, dimension, gradients and geodesics against what is known.

    python experiments/toolkit/run.py                     everything; an hour and a half on two cores
    python experiments/toolkit/run.py --only fitted       one part: fitted, scale, dimension, spoiled or baselines
    python experiments/toolkit/run.py --workers 16        several fits at once, one thread each

Each fit uses the defaults of `carre.fit` on a CPU. The benchmark manifolds and the baselines are those of
scikit-dimension (``pip install scikit-dimension``); ``--export`` writes the datasets for a machine without it.
Results go to results.json after every job, and tables.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
import warnings
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = ("fitted", "dimension", "spoiled", "scale", "baselines")


def jobs(parts: list[str], data: Path, seed: int) -> list[tuple[str, Any, tuple]]:
    """List what to do, the longest first: (part, function, arguments)."""
    import fitted  # noqa: PLC0415
    import scale  # noqa: PLC0415

    import dimension  # noqa: PLC0415  (after the number of threads is set)

    listed: list[tuple[str, Any, tuple]] = []
    if {"dimension", "baselines"} & set(parts):
        names = sorted(dimension.truth(data), key=lambda name: -dimension.truth(data)[name])
        listed += [("dimension", dimension.measure, (data, name)) for name in names]
        listed += [("baselines", dimension.baselines, (data, name)) for name in names]
    listed[8:8] = [("fitted", fitted.measure_sphere, (seed,)), ("fitted", fitted.measure_roll, (seed,))]
    listed += [("scale", scale.measure_scale, (name, seed)) for name in scale.names()]
    if "spoiled" in parts:
        listed += [
            ("spoiled", dimension.measure, (data, name, how))
            for name in dimension.SPOILED
            for how in ("outliers", "noise")
        ]
    return [job for job in listed if job[0] in parts]


def start(function: Any, arguments: tuple) -> tuple[dict, float]:
    """Run one job in a process of its own."""
    import torch  # noqa: PLC0415

    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    warnings.simplefilter("ignore")
    begun = time.perf_counter()
    return function(*arguments), time.perf_counter() - begun


def save(results: dict, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    partial = out / "results.json.part"
    partial.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    partial.replace(out / "results.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--workers", type=int, default=1, help="fits at once; more than one take one thread each")
    parser.add_argument("--data", type=Path, help="folder of datasets that --export wrote")
    parser.add_argument("--export", type=Path, help="write the datasets of scikit-dimension to a folder, and stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"--only must name parts among {', '.join(PARTS)}; got {', '.join(unknown)}")
    if arguments.workers < 1:
        parser.error(f"--workers must be at least 1; got {arguments.workers}")
    if arguments.data is not None and not (arguments.data / "truth.txt").exists():
        parser.error(f"--data must be a folder that --export wrote; there is no truth.txt in {arguments.data}")
    if arguments.workers > 1:
        os.environ["OMP_NUM_THREADS"] = "1"
    from tables import tables  # noqa: PLC0415

    from dimension import export  # noqa: PLC0415

    if arguments.export:
        export(arguments.export)
        return
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or Path(folder)
        if arguments.data is None and {"dimension", "spoiled", "baselines"} & set(parts):
            export(data)
        stored = arguments.out / "results.json"
        results = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
        for part in parts:
            results[part] = []
        hardware = f"{platform.processor() or platform.machine()}, {arguments.workers} fits at once"
        with ProcessPoolExecutor(arguments.workers) as pool:
            running: dict[Future, tuple[str, tuple]] = {
                pool.submit(start, function, given): (part, given)
                for part, function, given in jobs(parts, data, arguments.seed)
            }
            for done in as_completed(running):
                part, given = running[done]
                row, seconds = done.result()
                about = {"date": date.today().isoformat(), "hardware": hardware, "seconds": seconds}
                results[part].append(row | about)
                save(results, arguments.out)
                print(f"{part} {given[-1]}: {seconds:.0f} s {row.get('value', row.get('regret', ''))}", flush=True)
    (arguments.out / "tables.md").write_text(tables(results) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
