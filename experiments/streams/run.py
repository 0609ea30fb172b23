"""Fits of data that do not fit into memory, beside fits of those that do: `python experiments/streams/run.py`.

Writes parquet shards into a temporary folder, learns them within a bound of memory in a process of its own, and
compares the error with that of a fit that holds its samples. Results go to results.json, the tables into README.md.
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
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from experiments.measures.command import check_folder, checked_device, write
from experiments.measures.speed import hardware

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "how_to" / "large_data.md")
COLUMNS, DIMENSION, ROWS_PER_SHARD, BYTES = 50, 2, 500_000, 4
N_NEW, MEGABYTE = 1000, 1e6
# Rows of the fit that holds them, and of those that are compared with it seed by seed.
HELD = 1_000_000
MEMORY = 500 * 10**6


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=20.0, help="size of the shards")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="optimizer steps; by default until it is done")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--scratch", type=Path, help="where the shards go for a while")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one is not None:
        print(json.dumps(one_fit(**json.loads(arguments.one))))
        return 0
    try:
        check_folder(arguments.out)
        checked_device(arguments.device)
    except ValueError as error:
        parser.error(str(error))
    results = measure(arguments)
    write(arguments.out / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    # Elsewhere no page is written: these are figures of the project.
    for page in PAGES if arguments.out == HERE else ():
        before, _, rest = page.read_text(encoding="utf-8").partition("<!-- streams -->")
        after = rest.partition("<!-- end of streams -->")[2]
        write(page, f"{before}<!-- streams -->\n{table(results)}<!-- end of streams -->{after}")
    print(table(results))
    return 0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the shards, and fit: what streams from them, and what holds the first of them."""
    n_rows = int(arguments.gigabytes * 1e9 / (BYTES * COLUMNS))
    results: dict[str, Any] = {"date": str(date.today()), "hardware": hardware(arguments.device)}
    results |= {"python": platform.python_version(), "torch": torch.__version__, "columns": COLUMNS, "fits": []}
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        shards, few = Path(folder, "all"), Path(folder, "few")
        start = time.perf_counter()
        n_few = write_shards(few, max(HELD, ROWS_PER_SHARD), first=0)
        n_all = write_shards(shards, n_rows, first=1000)
        results |= {"n_rows": n_all, "gigabytes": size(shards) / 1e9, "seconds of writing": time.perf_counter() - start}
        told = {"steps": arguments.steps, "device": arguments.device}
        for seed in range(arguments.seeds):
            for how, where, n in (("held", few, n_few), ("streamed, the same rows", few, n_few)):
                results["fits"].append(alone(how, where, n, seed, **told))
        results["fits"].append(alone("streamed", shards, n_all, 0, **told))
    return results


def circle_like(n: int, seed: int) -> np.ndarray:
    """Sample a sphere in general position, denser at one side."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, DIMENSION + 1), dtype=np.float32)
    x[:, 0] += 0.5
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    found: np.ndarray = x @ axes().astype(np.float32)
    return found


def axes() -> np.ndarray:
    """Return where the sphere lies in space."""
    found: np.ndarray = np.linalg.qr(np.random.default_rng(7).normal(size=(COLUMNS, COLUMNS)))[0][: DIMENSION + 1]
    return found


def write_shards(folder: Path, n_rows: int, *, first: int) -> int:
    """Write rows as parquet, some hundred thousand to a file."""
    import pyarrow as arrow  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    folder.mkdir()
    names = [f"x{i}" for i in range(COLUMNS)]
    for shard, start in enumerate(range(0, n_rows, ROWS_PER_SHARD)):
        values = circle_like(min(ROWS_PER_SHARD, n_rows - start), first + shard)
        table = arrow.table(dict(zip(names, np.ascontiguousarray(values.T), strict=True)))
        options: dict[str, Any] = {"row_group_size": 50_000, "compression": "none", "use_dictionary": False}
        parquet.write_table(table, folder / f"part{shard:04}.parquet", **options)
    return n_rows


def size(folder: Path) -> int:
    """Count the bytes of the files of a folder."""
    return sum(file.stat().st_size for file in folder.iterdir())


def alone(how: str, where: Path, n_rows: int, seed: int, **told: Any) -> dict[str, Any]:
    """Fit in a process of its own, whose memory is measured."""
    asked = {"how": how, "where": str(where), "seed": seed, **told}
    command = [sys.executable, __file__, "--one", json.dumps(asked)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ})
    row: dict[str, Any] = {"how": how, "n_rows": n_rows, "seed": seed, **json.loads(found.stdout.splitlines()[-1])}
    print(row, flush=True)
    return row


def one_fit(how: str, where: str, seed: int, steps: int | None, device: str) -> dict[str, Any]:
    """Fit, and measure the error, the peak of memory, and how fast steps are."""
    before = peak_memory()
    start, times = time.perf_counter(), list[float]()
    told: dict[str, Any] = {"max_steps": steps, "random_state": seed, "device": device, "verbose": False}
    if how == "held":
        X: Any = np.concatenate([block.values for block in carre.data.open_source(where).blocks()])
    else:
        X, told["memory"] = carre.data.open_source(where), MEMORY
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        geometry = carre.fit(X, **told, progress=lambda progress: times.append(time.perf_counter()))
    seconds = time.perf_counter() - start
    steady = np.diff(times)[len(times) // 4 :]
    return {
        "error": error(geometry),
        "bandwidth": geometry.bandwidth,
        "seconds": seconds,
        "seconds before training": times[0] - start,
        "steps": len(times),
        "steps per second": float(1 / np.median(steady)),
        "peak, MB": peak_memory() / MEGABYTE,
        "before, MB": before / MEGABYTE,
        "ended": geometry.history.stop_reason,
    }


def peak_memory() -> int:
    """Return the most bytes that this process has held."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def error(geometry: carre.Geometry) -> float:
    """Compute the mean tangent error at points that nobody has seen."""
    points = torch.from_numpy(circle_like(N_NEW, 10**6)).double()
    inside = points @ torch.from_numpy(axes()).T
    normal = inside / inside.norm(dim=1, keepdim=True)
    true = torch.linalg.svd(normal[:, None], full_matrices=True).Vh[:, 1:] @ torch.from_numpy(axes())
    agreement = (true @ geometry.tangent_basis(points, DIMENSION)).square().sum((1, 2))
    return float((2 * (DIMENSION - agreement)).clamp_min(0).sqrt().mean())


def table(results: dict[str, Any]) -> str:
    """Write what was measured as a table.

    Example:
        >>> row = {"how": "held", "n_rows": 10, "error": 0.01, "seconds": 5.0, "seconds before training": 1.0}
        >>> row |= {"steps per second": 50.0, "peak, MB": 400.0, "before, MB": 300.0}
        >>> print(table({"fits": [row], "gigabytes": 2, "date": "today", "hardware": "CPU", "seconds of writing": 1}))
        | samples | rows | seeds | tangent error | seconds, before training | seconds in all | steps per second | peak memory, MB | … beside torch |
        |---|---|---|---|---|---|---|---|---|
        | held | 10 | 1 | 0.0100 | 1 | 5 | 50 | 400 | 100 |
        <BLANKLINE>
        Shards of 2.0 GB in all. CPU, today.
        <BLANKLINE>
    """  # noqa: E501  (a table's line)
    names = ("samples", "rows", "seeds", "tangent error", "seconds, before training", "seconds in all")
    names += ("steps per second", "peak memory, MB", "… beside torch")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for how, rows in by_kind(results["fits"]):
        errors = np.array([row["error"] for row in rows])
        spread = f" ± {errors.std(ddof=1):.4f}" if len(rows) > 1 else ""

        def mean(name: str, rows: list[dict[str, Any]] = rows) -> float:
            return float(np.mean([row[name] for row in rows]))

        peak = max(row["peak, MB"] for row in rows)
        beside = max(row["peak, MB"] - row["before, MB"] for row in rows)
        cells = [how, f"{rows[0]['n_rows']:,}", str(len(rows)), f"{errors.mean():.4f}{spread}"]
        cells += [f"{mean('seconds before training'):.0f}", f"{mean('seconds'):.0f}", f"{mean('steps per second'):.0f}"]
        lines.append(f"| {' | '.join([*cells, f'{peak:,.0f}', f'{beside:,.0f}'])} |")
    last = f"Shards of {results['gigabytes']:.1f} GB in all. {results['hardware']}, {results['date']}."
    return "\n".join([*lines, "", last]) + "\n"


def by_kind(fits: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Put fits together that differ by their seeds."""
    for how in dict.fromkeys(row["how"] for row in fits):
        yield how, [row for row in fits if row["how"] == how]


if __name__ == "__main__":
    sys.exit(main())
