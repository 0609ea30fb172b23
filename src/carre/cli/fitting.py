"""``carre fit``."""

from __future__ import annotations

import math
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carre.cli.inputs import checkpoint_of
from carre.cli.options import AsJson, Columns, Data, Device, Quiet, check_positive, listed, seconds_of
from carre.cli.output import COMMAND, say, show
from carre.cli.wording import counted, naming

if TYPE_CHECKING:
    from carre import MetricMatching
    from carre.data import ImageDataset, Table
    from carre.fitting import FitPlan

_INTERRUPTED = 130
# The summary asks for the dimension at so many samples at most.
_SUMMARIZED = 2000
# What NumPy takes.
_LARGEST_SEED = 2**32 - 1


def fit(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Folder to save the geometry in.")],
    columns: Columns = None,
    drop: Annotated[str | None, typer.Option(help="Columns that are no coordinates, such as a label.")] = None,
    size: Annotated[int | None, typer.Option(help="Height and width to bring the images of a folder to.")] = None,
    budget: Annotated[str | None, typer.Option(help="Time to train for: 90s, 2m, 1h30m.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps to train for.")] = None,
    rank: Annotated[int | None, typer.Option(help="Rank of the metric; at least 2d − 1 for dimension d.")] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Scale σ of all questions; chosen from the data if left out.")
    ] = None,
    sigma_min: Annotated[float | None, typer.Option(help="Smallest σ to train on.")] = None,
    sigma_max: Annotated[float | None, typer.Option(help="Largest σ to train on.")] = None,
    device: Device = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a fit that was interrupted.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace MODEL, or start anew.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the data, say what would be done, and stop.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn the geometry of DATA, and save it in the folder MODEL.

    What is not given is chosen from the data.

    After an interruption, the same command with --resume goes on.

    \b
    Examples:
      carre fit points.csv --out model
      carre fit plants.parquet --drop species --budget 2m --out model
      carre fit photographs/ --size 32 --budget 1h --out model
      carre fit points.npy --out model --dry-run
    """
    settings = _settings(budget, steps, rank, sigma, sigma_min, sigma_max)
    check_positive("--size", size)
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"--seed must lie between 0 and {_LARGEST_SEED}; got {seed}")
    if _is_complete(out, resume=resume, overwrite=overwrite):
        show(
            {"complete": f"{out} is there already; nothing was done"}, {"model": out, "complete": True}, as_json=as_json
        )
        return

    from carre.data import load_samples  # noqa: PLC0415

    with naming(folder="DATA"):
        samples = load_samples(data, columns=listed(columns), drop=listed(drop), size=size)
    _check_samples(samples, size, rank)
    if dry_run:
        plan = _plan(samples, settings, device, seed)
        show(_facts_of_plan(plan, data, out), vars(plan), as_json=as_json)
        return
    if overwrite:
        checkpoint_of(out).unlink(missing_ok=True)
    start = time.perf_counter()
    geometry = _fit(samples, settings, out, device=device, seed=seed, quiet=quiet, command=COMMAND.get())
    seconds = time.perf_counter() - start
    facts, results = _summary(geometry, samples, data, out, seconds)
    show(facts, results, as_json=as_json, quiet=quiet)


def _settings(
    budget: str | None,
    steps: int | None,
    rank: int | None,
    sigma: float | None,
    sigma_min: float | None,
    sigma_max: float | None,
) -> dict[str, Any]:
    """Turn options into parameters of `MetricMatching`."""
    scales = {"--sigma": sigma, "--sigma-min": sigma_min, "--sigma-max": sigma_max}
    for option, value in {"--steps": steps, "--rank": rank, **scales}.items():
        check_positive(option, value)
    if (sigma_min is None) != (sigma_max is None):
        raise ValueError("--sigma-min and --sigma-max must be given together, or neither")
    given = None if sigma_min is None or sigma_max is None else (sigma_min, sigma_max)
    if given is not None and not given[0] < given[1]:
        raise ValueError(f"--sigma-min must be less than --sigma-max; got {given[0]:g} and {given[1]:g}")
    seconds = seconds_of(budget)
    return {"max_seconds": seconds, "max_steps": steps, "rank": rank, "bandwidth": sigma, "bandwidth_range": given}


def _check_samples(samples: Table | ImageDataset, size: int | None, rank: int | None) -> None:
    """Refuse, before any work, options that the samples have no use for."""
    from carre.data import Table  # noqa: PLC0415

    is_table = isinstance(samples, Table)
    if is_table and size is not None:
        raise ValueError(f"--size must be left out for tables; got {size}")
    most = 2 * math.prod(samples.shape[1:] if isinstance(samples, Table) else samples.sample_shape)
    if rank is not None and rank > most:
        what = "columns" if is_table else "pixels of an image"
        raise ValueError(f"--rank must be at most {most:,}, twice the {what} of DATA; got {rank:,}")


def _is_complete(out: Path, *, resume: bool, overwrite: bool) -> bool:
    """Check before any work that the model can be saved; say whether it is there, and that is all that was asked."""
    from carre.storage.folder import CONFIG, checked_target  # noqa: PLC0415

    if resume and overwrite:
        raise ValueError("--resume and --overwrite must not be given both: one goes on, the other starts anew")
    target, checkpoint = checked_target(out), checkpoint_of(out)
    if checkpoint.exists() and not (resume or overwrite):
        raise ValueError(
            f"{checkpoint} holds a fit that was interrupted. Go on with it by --resume, or start anew by --overwrite"
        )
    is_there = (target / CONFIG).is_file()
    if is_there and resume and not checkpoint.exists():
        return True
    if is_there and not (resume or overwrite):
        raise ValueError(
            f"--out must be new; {out} holds a geometry. Replace it by --overwrite, or choose another name"
        )
    above = next(folder for folder in target.parents if folder.exists())
    if not os.access(above, os.W_OK):
        raise PermissionError(f"--out must lie where files can be written; {above} is not such a folder")
    return False


def _plan(samples: Table | ImageDataset, settings: dict[str, Any], device: str | None, seed: int) -> FitPlan:
    from sklearn.utils import check_random_state  # noqa: PLC0415

    from carre.boundary import as_images, as_points  # noqa: PLC0415
    from carre.data import Table  # noqa: PLC0415
    from carre.fitting import FitSettings, choose_device, plan_fit  # noqa: PLC0415

    points = as_points(samples.values, name="DATA") if isinstance(samples, Table) else as_images(samples.images)
    return plan_fit(
        points.tensor,
        FitSettings(**settings),
        # As the estimator draws it.
        seed=int(check_random_state(seed).randint(2**31 - 1)),
        device=choose_device(device, points.tensor),
        sample_shape=points.sample_shape,
    )


def _fit(
    samples: Table | ImageDataset,
    settings: dict[str, Any],
    out: Path,
    *,
    device: str | None,
    seed: int,
    quiet: bool,
    command: str,
) -> MetricMatching:
    """Fit and save; after an interruption, say how to go on."""
    from carre import MetricMatching  # noqa: PLC0415

    checkpoint = checkpoint_of(out)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    geometry = MetricMatching(**settings, device=device, random_state=seed, checkpoint=checkpoint, verbose=not quiet)
    try:
        geometry.fit(samples)
        _save(geometry, out)
    except KeyboardInterrupt:
        again = command.replace(" --overwrite", "") + ("" if " --resume" in command else " --resume")
        kept = f"; what was learned is kept. Go on with: {again}"
        say(f"interrupted{kept if checkpoint.exists() else '; nothing was written'}")
        raise typer.Exit(_INTERRUPTED) from None
    return geometry


def _save(geometry: MetricMatching, out: Path) -> None:
    """Save; where that fails, as on a full disk, save elsewhere, so that nothing is lost."""
    try:
        geometry.save_pretrained(out)
    except OSError as error:
        import tempfile  # noqa: PLC0415

        elsewhere = Path(tempfile.mkdtemp(prefix="carre-")) / out.name
        geometry.save_pretrained(elsewhere)
        raise OSError(f"{out} could not be written ({error}); the geometry was saved in {elsewhere} instead") from error


def _summary(
    geometry: MetricMatching, samples: Table | ImageDataset, data: str, out: Path, seconds: float
) -> tuple[dict[str, str], dict[str, Any]]:
    """Say what was learned, and what to do with it."""
    from carre.data import Table  # noqa: PLC0415

    every = -(-len(samples) // _SUMMARIZED)
    some = samples.values[::every] if isinstance(samples, Table) else samples[::every]
    estimate = geometry.estimate_dimension(some)
    (low, high), source = estimate.interval, estimate.source
    model, table = shlex.quote(str(out)), shlex.quote(data)
    facts = {
        "samples": f"{len(samples):,} with {counted(geometry.n_features_in_, 'coordinate')}",
        "dimension": f"{estimate.value} ({low} to {high} as σ varies by √2)" + (f"; {source}" if source else ""),
        "scale σ": f"{geometry.bandwidth_:.4g}",
        "training": f"{geometry.history_.steps:,} steps, {seconds:.1f} s, on {geometry.device_}",
        "saved in": str(out),
        "what next": f"carre dimension {model} {table}",
        "": f"carre report {model} {table} -o report.html",
    }
    results = {
        "model": out,
        "n_samples": len(samples),
        "n_features": geometry.n_features_in_,
        "columns": getattr(geometry, "feature_names_in_", None),
        "dimension": estimate.value,
        "dimension_interval": estimate.interval,
        "bandwidth": geometry.bandwidth_,
        "bandwidth_range": geometry.bandwidth_range_,
        "rank": geometry.rank_,
        "steps": geometry.history_.steps,
        "seconds": seconds,
        "device": geometry.device_,
    }
    return facts, results


def _facts_of_plan(plan: FitPlan, data: str, out: Path) -> dict[str, str]:
    hull = "" if plan.hull_dim == plan.dim else f", in a linear hull of {plan.hull_dim}"
    budget = " or ".join(
        part
        for part in (
            f"{plan.max_steps:,} steps" if plan.max_steps else "",
            f"{plan.max_seconds:g} s" if plan.max_seconds else "",
        )
        if part
    )
    low, high = plan.bandwidth_range
    return {
        "data": f"{data}: {counted(plan.n_samples, 'sample')} with {counted(plan.dim, 'coordinate')}{hull}",
        "device": plan.device,
        "scales σ": f"{low:.4g} to {high:.4g}",
        "rank": f"{plan.rank} (neighbors suggest a dimension of {plan.dimension_guess:.1f})",
        "network": f"{plan.network}, {plan.n_parameters:,} parameters",
        "training": f"{budget}, batches of {plan.batch_size:,}",
        "memory": f"about {plan.memory / 2**20:,.0f} MiB, beside torch's own",
        "would write": f"{out}; nothing was done",
    }
