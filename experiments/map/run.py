"""Measure `carre map`: how fast, in how much memory, and what kills leave: `python experiments/map/run.py`.

Writes results.json beside this file, and the tables into README.md and docs/how_to/large_data.md between their markers.
Two gigabytes of rows are made in a temporary folder for that, and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre.manifolds import Sphere
from carre.mapping import Asked, MapTask
from carre.mapping.answers import rows_per_batch, steady
from experiments.map.table import TABLES
from experiments.measures.pages import fill_pages, machine

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "how_to" / "large_data.md")
COLUMNS, DIMENSION, ROWS_PER_FILE, STEPS = 50, 4, 500_000, 1300
# What is asked, with how many tangent directions, of how many of the files.
QUESTIONS = (
    (("dimension",), None, None),
    (("denoised",), None, 4),
    (("eigenvalues",), None, 4),
    (("dimension", "tangent", "denoised"), 2, 4),
)
ROWS_IN_MEMORY, KILLED_FILES, KILLED_ROWS = 2**18, 8, 40_000
MEGABYTE = 2**20


def main() -> None:
    """Measure everything, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the first question")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shared", action="store_true", help="note that other work ran on the machine")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = Path(folder)
        geometry = fit()
        carre.save(geometry, place / "model")
        geometry = carre.load(place / "model", device="cpu")
        write_rows(place / "data", max(1, options.rows // ROWS_PER_FILE))
        speeds = [measure(geometry, place, *question) for question in QUESTIONS]
        memory = [peak(place, n_files) for n_files in (1, 4)]
        workers = [scaled(place, count) for count in (1, 2)]
        shutil.rmtree(place / "data")
        kills = killed(place, options.kills)
    results = {
        "machine": machine(shared=options.shared, threads=options.threads),
        "seconds": round(time.perf_counter() - started),
        "columns": COLUMNS,
        "rank": geometry.rank,
        "n_parameters": sum(weight.numel() for weight in geometry.field.model.parameters()),
        "batch": rows_per_batch(geometry),
        "speeds": speeds,
        "memory": memory,
        "workers": workers,
        "kills": kills,
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    fill_pages(PAGES, TABLES, results)


def sphere() -> Any:
    """Return a sphere of dimension 4 in 50 columns."""
    return Sphere(DIMENSION).embed(COLUMNS, generator=torch.Generator().manual_seed(0))


def fit() -> carre.Geometry:
    """Fit that sphere, in float32."""
    samples = sphere().sample(20_000, generator=torch.Generator().manual_seed(1)).float()
    return carre.fit(samples, max_steps=STEPS, random_state=0, verbose=False, device="cpu")


def write_rows(folder: Path, n_files: int, n_rows: int = ROWS_PER_FILE) -> None:
    """Write shards of parquet, of float32 with an id."""
    folder.mkdir()
    for i in range(n_files):
        points = sphere().sample(n_rows, generator=torch.Generator().manual_seed(2 + i)).float().numpy()
        columns = {f"c{k}": points[:, k] for k in range(COLUMNS)}
        table = pyarrow.table({"id": np.arange(n_rows) + i * n_rows, **columns})
        parquet.write_table(table, folder / f"{i:03}.parquet", use_dictionary=False, row_group_size=100_000)


@dataclass(frozen=True)
class Timed(Asked):
    """A question that is timed, and the networks in it."""

    watch: tuple[list[float], list[float]] = ((), ())  # type: ignore[assignment]

    def at(self, geometry: carre.Geometry, values: np.ndarray) -> dict[str, np.ndarray]:
        """Answer, and note how long that took."""
        start = time.perf_counter()
        found = super().at(geometry, values)
        self.watch[0].append(time.perf_counter() - start)
        return found


@contextmanager
def timed_networks(geometry: carre.Geometry, times: list[float]) -> Iterator[None]:
    """Note how long each pass of a network takes."""
    begun: list[float] = []
    model = geometry.field.model
    networks = [network for network in (model.mean, model.factor) if network is not None]
    geometry.field._copies.clear()
    hooks = [network.register_forward_pre_hook(lambda *_: begun.append(time.perf_counter())) for network in networks]
    hooks += [
        network.register_forward_hook(lambda *_: times.append(time.perf_counter() - begun.pop()))
        for network in networks
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        geometry.field._copies.clear()


def measure(
    geometry: carre.Geometry, place: Path, what: tuple[str, ...], dimension: int | None, n_files: int | None
) -> dict[str, Any]:
    """Time a pass over files, what the answers take of it, and the same answers on an array in memory."""
    data, out, asked = place / "some", place / "out", Asked.of(geometry, what, None, dimension)
    data.mkdir()
    for file in sorted((place / "data").iterdir())[:n_files]:
        os.link(file, data / file.name)
    before = in_memory(geometry, data, asked)
    watch: tuple[list[float], list[float]] = ([], [])
    timed = Timed(asked.what, asked.bandwidth, asked.n_directions, watch)
    columns = tuple(f"c{k}" for k in range(COLUMNS))
    with timed_networks(geometry, watch[1]):
        done = MapTask(geometry, data, out, timed, columns=columns, keep=("id",)).run()
    after = in_memory(geometry, data, asked)
    n_bytes = sum(file.stat().st_size for file in out.glob("*.parquet"))
    print(what, f"{done.rows_per_second:,.0f} rows per second", flush=True)
    shutil.rmtree(data)
    shutil.rmtree(out)
    return {
        "what": what,
        "rows": done.n_rows,
        "seconds": done.seconds,
        "answering": sum(watch[0]) / done.seconds,
        "networks": sum(watch[1]) / done.seconds,
        "in_memory": [before, after],
        "bytes_per_row": n_bytes / done.n_rows,
    }


def in_memory(geometry: carre.Geometry, data: Path, asked: Asked) -> dict[str, float]:
    """Time the same answers, and the bare network for the metric, on an array: seconds of a row."""
    table = parquet.read_table(next(iter(sorted(data.iterdir()))))
    values = np.stack([table[f"c{k}"].to_numpy() for k in range(COLUMNS)], axis=1)[:ROWS_IN_MEMORY]
    asking, size = steady(geometry), rows_per_batch(geometry)
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    asked.at(asking, parts[0])
    start = time.perf_counter()
    for part in parts:
        asked.at(asking, part)
    middle = time.perf_counter()
    with torch.no_grad():
        for part in parts:
            _ = asking.at(part, asked.bandwidth).metric
    end = time.perf_counter()
    return {"answers": (middle - start) / len(values), "metric": (end - middle) / len(values)}


def peak(place: Path, n_files: int) -> dict[str, Any]:
    """Run the command on some of the files, and ask the system how much memory its process held."""
    data, out = place / "some", place / "out"
    data.mkdir()
    for file in sorted((place / "data").iterdir())[:n_files]:
        os.link(file, data / file.name)
    told = _command(place / "model", data, out, "--drop", "id", "--keep", "id")
    plan = json.loads(subprocess.run([*told, "--dry-run"], check=True, capture_output=True).stdout)
    process, peak_bytes = subprocess.Popen(told, stdout=subprocess.PIPE), 0
    while process.poll() is None:
        peak_bytes = max(peak_bytes, _high_water(process.pid))
        time.sleep(0.05)
    found = json.loads(process.communicate()[0])
    shutil.rmtree(data)
    shutil.rmtree(out)
    return {
        "rows": found["n_rows"],
        "seconds": found["seconds"],
        "planned_seconds": plan["seconds"],
        "peak_megabytes": peak_bytes / MEGABYTE,
        "planned_megabytes": plan["memory"] / MEGABYTE,
    }


def scaled(place: Path, count: int) -> dict[str, Any]:
    """Time all files with a number of processes, from their start to their end; and count what the cores did for it."""
    out, before = place / "out", os.times()
    told = _command(place / "model", place / "data", out, "--drop", "id", "--workers", str(count))
    found = json.loads(subprocess.run(told, check=True, capture_output=True).stdout)
    after = os.times()
    shutil.rmtree(out)
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return {"workers": count, "rows": found["n_rows"], "seconds": found["seconds"], "core_seconds": busy}


def _high_water(number: int) -> int:
    """Ask how many bytes a process has held at most; what `os.wait4` says of it counts what its parent held, too."""
    lines = Path(f"/proc/{number}/status").read_text(encoding="utf-8").splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def _command(*arguments: str | Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "carre",
        "map",
        *map(str, arguments[:2]),
        "--out",
        *map(str, arguments[2:]),
        "--json",
    ]


def killed(place: Path, n_kills: int) -> dict[str, Any]:
    """Kill the command at some moments, run it again, and compare the bytes of all files."""
    write_rows(place / "data", KILLED_FILES, KILLED_ROWS)
    told = ("--drop", "id", "--keep", "id", "--what", "dimension,denoised")
    whole = place / "whole"
    found = json.loads(
        subprocess.run(_command(place / "model", place / "data", whole, *told), check=True, capture_output=True).stdout
    )
    wanted, chance, moments = _contents(whole), random.Random(0), []
    for k in range(n_kills):
        out, share = place / f"out{k}", (k + chance.random()) / n_kills
        process = subprocess.Popen(_command(place / "model", place / "data", out, *told), stdout=subprocess.DEVNULL)
        while not (out / "carre-map.json").exists():
            time.sleep(0.005)
        time.sleep(share * found["seconds"])
        process.send_signal(signal.SIGKILL)
        was_killed = process.wait() == -signal.SIGKILL
        names = [file.name for file in out.iterdir()]
        there = sum(name.endswith(".parquet") and not name.startswith(".") for name in names)
        strays = sum(name.startswith(".carre.partial") for name in names)
        subprocess.run(_command(place / "model", place / "data", out, *told), check=True, stdout=subprocess.DEVNULL)
        same = _contents(out) == wanted
        moments.append({"share": share, "killed": was_killed, "files": there, "strays": strays, "same": same})
        print(moments[-1], flush=True)
        shutil.rmtree(out)
    return {"files": KILLED_FILES, "rows": KILLED_FILES * KILLED_ROWS, "moments": moments}


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


if __name__ == "__main__":
    main()
