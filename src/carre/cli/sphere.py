"""``carre benchmark sphere``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from carre.cli.options import Device
from carre.cli.output import say


def sphere(
    out: Annotated[Path, typer.Option(help="Folder for results.json, tables.md and the figures.")] = Path("sphere"),
    quick: Annotated[bool, typer.Option("--quick", help="A small sphere: two minutes on a laptop.")] = False,
    device: Device = None,
    sizes: Annotated[str | None, typer.Option(help="Numbers of samples, separated by commas.")] = None,
    dimension: Annotated[int | None, typer.Option(help="Dimension d of the sphere.")] = None,
    ambient: Annotated[int | None, typer.Option(help="Dimension D of the space that it lies in.")] = None,
    rank: Annotated[int | None, typer.Option(help="Rank of the learned metric.")] = None,
    engines: Annotated[str | None, typer.Option(help="Neighbor searches, separated by commas.")] = None,
    uneven: Annotated[float | None, typer.Option(help="How uneven the density is, from 0 (uniform) to 3.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Compare the learned metric with the k-NN carré du champ on a sphere, as the samples grow.

    Every method is tuned on the same validation points. Writes results.json, tables.md and figures.

    \b
    Examples:
      carre benchmark sphere --quick
      carre benchmark sphere --device cuda --out sphere-gpu
      carre benchmark sphere --device cpu --sizes 8192,65536 --engines torch,faiss,hnsw
    """
    import torch  # noqa: PLC0415

    from carre import benchmarks  # noqa: PLC0415
    from carre.fitting import choose_device  # noqa: PLC0415

    where = str(choose_device(device, torch.empty(0)))
    base = benchmarks.QUICK if quick else benchmarks.CPU if where == "cpu" else benchmarks.FULL
    given: dict[str, Any] = {"dimension": dimension, "ambient_dim": ambient, "rank": rank, "unevenness": uneven}
    given |= {"sizes": _numbers("--sizes", sizes), "engines": None if engines is None else tuple(engines.split(","))}
    settings = dataclasses.replace(base, seed=seed, **{k: v for k, v in given.items() if v is not None})
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder; {out} is a file")
    results = benchmarks.run_sphere(
        settings,
        device=where,
        report=say,
        save=lambda results: _write(out / "results.json", json.dumps(results, indent=1) + "\n"),
    )
    typer.echo(_write_all(results, out))


def _numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    """Read whole numbers, separated by commas."""
    if text is None:
        return None
    try:
        return tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name} must be whole numbers separated by commas; got {text!r}") from error


def _write_all(results: dict[str, Any], out: Path) -> str:
    """Write results, tables and, with matplotlib, figures; return the tables."""
    from carre.benchmarks import sphere_tables  # noqa: PLC0415

    tables = sphere_tables(results)
    _write(out / "results.json", json.dumps(results, indent=1) + "\n")
    _write(out / "tables.md", tables + "\n")
    try:
        from carre.report.scaling import plot_eigenvalues, plot_scaling  # noqa: PLC0415
    except ImportError as error:
        return f"{tables}\n\nwritten to {out}, without figures: {error}"
    plot_scaling(results).savefig(out / "scaling.png", dpi=150)
    if results["eigenvalues"]:
        plot_eigenvalues(results).savefig(out / "eigenvalues.png", dpi=150)
    return f"{tables}\n\nwritten to {out}"


def _write(file: Path, text: str) -> None:
    from carre.data.writing import written_whole  # noqa: PLC0415

    with written_whole(file) as partial:
        partial.write_text(text, encoding="utf-8")
