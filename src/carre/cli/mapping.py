"""``carre map``."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import carre
from carre.cli import _inputs as inputs
from carre.cli._inputs import AsJson, Columns, Device, DropMissing, Model, Quiet, Sigma, listed, positive
from carre.cli._output import COMMAND, counted, naming, progress, say, show
from carre.text import in_words

if TYPE_CHECKING:
    from carre.mapping import Mapped, MapPlan, MapTask

_INTERRUPTED = 130
# What the library calls by other names.
_NAMES = {"what": "--what", "shard": "--shard", "keep": "--keep", "out": "--out", "memory": "--memory"}
_NAMES |= {"dimension": "--dim", "overwrite": "--overwrite", "n_processes": "--workers", "n_workers": "--workers"}


class Engine(StrEnum):
    """Who does the work."""

    local = "local"
    ray = "ray"


def rows_to_files(
    model: Model,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Folder of parquet or npy, or a file: parquet, npy, zarr, h5ad::key, csv. Or images."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the answers: a parquet for each file of DATA.")],
    what: Annotated[
        str, typer.Option(help="What to answer: dimension, eigenvalues, tangent, denoised, separated by commas.")
    ] = "dimension",
    dim: Annotated[int | None, typer.Option(help="How many tangent directions, the leading ones first.")] = None,
    sigma: Sigma = None,
    columns: Columns = None,
    drop: Annotated[str | None, typer.Option(help="Columns that are no coordinates, such as a label.")] = None,
    keep: Annotated[str | None, typer.Option(help="Columns to write beside the answers, such as an id.")] = None,
    drop_missing: DropMissing = False,
    shard: Annotated[str, typer.Option(metavar="I/N", help="Do the I-th of N shares of the files, from 1.")] = "1/1",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What all processes may hold together: 2GB, 800MB.")
    ] = None,
    workers: Annotated[
        int | None,
        positive("Processes, or workers of Ray; one for each GPU or of each core of Ray by default, else 1."),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="This machine, or the cluster that Ray knows.")] = Engine.local,
    device: Device = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace answers that are there.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Answer a few rows, say what all of them would take, and stop.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Answer at all rows of DATA, file by file, in memory that does not grow with them.

    A file of answers appears when it is complete. After an interruption, of whatever kind, the same command goes on.

    \b
    Examples:
      carre map model shards/ --out answers/
      carre map model shards/ --out answers/ --what dimension,denoised --keep id --workers 4
      carre map model shards/ --out answers/ --shard 3/16
      carre map model cells.h5ad::X_pca --out answers/ --what dimension,tangent --dim 2 --dry-run
    """
    share, most, names = _share(shard), inputs.bytes_of(memory), listed(what) or []
    from carre.mapping import Asked, MapTask  # noqa: PLC0415

    geometry = inputs.load_model(model, device)
    with naming(_NAMES):
        task = MapTask(
            geometry,
            data,
            out,
            Asked.of(geometry, names, sigma, dim),
            columns=listed(columns),
            drop=listed(drop),
            keep=tuple(listed(keep) or ()),
            drop_missing=drop_missing,
            shard=share,
            memory=most,
            overwrite=overwrite,
        )
        devices = _devices(device, geometry, workers)
        count = workers or max(1, len(devices))
        if dry_run:
            plan = task.plan(count)
            results = asdict(plan) | {"workers": count, "out": task.out}
            show(_facts_of_plan(plan, task, count), results, as_json=as_json)
            return
        done = _do(task, engine, workers, count, devices, quiet=quiet)
    results = asdict(done) | {"rows_per_second": done.rows_per_second}
    show(_facts(done), results, as_json=as_json, quiet=quiet)


def _share(text: str) -> tuple[int, int]:
    """Read which of how many shares is meant."""
    parts = text.split("/")
    if len(parts) != 2 or not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise ValueError(f"--shard must be like 3/16, the third of sixteen shares; got {text!r}")
    which, count = map(int, parts)
    if not 1 <= which <= count:
        raise ValueError(f"--shard must be one of 1/{count} to {count}/{count}; got {text!r}")
    return which, count


def _devices(device: str | None, geometry: carre.Geometry, workers: int | None) -> tuple[str, ...]:
    """Name the GPUs that processes share, where the machine has several and none was chosen."""
    import torch  # noqa: PLC0415

    if geometry.device.type != "cuda" or (device is not None and ":" in device):
        return ()
    count = torch.cuda.device_count()
    return tuple(f"cuda:{i}" for i in range(count if workers is None else min(workers, count))) if count > 1 else ()


def _do(
    task: MapTask, engine: Engine, workers: int | None, count: int, devices: tuple[str, ...], *, quiet: bool
) -> Mapped:
    """Do the work; after an interruption, say how to go on."""
    from carre.mapping import map_in_processes, map_on_ray  # noqa: PLC0415

    try:
        with progress("map", quiet=quiet) as tell:
            if engine is Engine.ray:
                return map_on_ray(task, workers, progress=tell)
            return map_in_processes(task, count, devices=devices, progress=tell)
    except KeyboardInterrupt:
        there = len(task.parts) - len(task.open_parts)
        again = COMMAND.get().replace(" --overwrite", "")
        say(f"interrupted; {there:,} of {counted(len(task.parts), 'file')} are complete and stay. Go on with: {again}")
        raise typer.Exit(_INTERRUPTED) from None


def _facts(done: Mapped) -> dict[str, str]:
    before = f", {done.n_there:,} of them before" if done.n_there else ""
    speed = f": {done.rows_per_second:,.0f} rows per second" if done.n_rows else ""
    return {
        "answered": f"{counted(done.n_rows, 'row')} in {done.seconds:.1f} s{speed}",
        "files": f"{done.n_parts:,}{before}",
        "written to": str(done.out),
    }


def _facts_of_plan(plan: MapPlan, task: MapTask, count: int) -> dict[str, str]:
    there = f", {plan.n_there:,} of them there already" if plan.n_there else ""
    each = f" in each of {count} processes" if count > 1 else ""
    return {
        "rows": f"{plan.n_rows:,} of {task.source.name}",
        "files": f"{plan.n_parts:,}{there}",
        "answers": f"{', '.join(task.asked.what)} at σ = {task.asked.bandwidth:.4g}: about {_size(plan.n_bytes)}",
        "time": f"about {in_words(plan.seconds)}, on {task.geometry.device}",
        "memory": f"at most {_size(plan.memory)}{each}, with Python and torch",
        "would write": f"{task.out}; nothing was done",
    }


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.1f} MB"
