"""``carre fit``."""

from __future__ import annotations

import math
import os
import shlex
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import carre
from carre.cli import _inputs as inputs
from carre.cli._inputs import (
    AsJson,
    Columns,
    Data,
    Device,
    DropMissing,
    Memory,
    Quiet,
    Samples,
    checkpoint_of,
    listed,
    positive,
)
from carre.cli._output import BEGAN, COMMAND, counted, progress, say, show, worded
from carre.cli._together import own_device
from carre.text import in_words, span

_INTERRUPTED = 130
# The summary asks for the dimension at so many samples at most, at three scales.
_SUMMARIZED = 2000
# What the start of Python, saving, and the end of the process take.
_SECONDS_TO_END = 2.5
# What NumPy takes.
_LARGEST_SEED = 2**32 - 1


class Scale(StrEnum):
    """What columns are divided by."""

    none = "none"
    standardize = "standardize"
    robust = "robust"


def fit(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Folder to save the geometry in.")],
    columns: Columns = None,
    drop: Annotated[str | None, typer.Option(help="Columns that are no coordinates, such as a label.")] = None,
    drop_missing: DropMissing = False,
    scale: Annotated[
        Scale, typer.Option(help="Divide each column by its deviation, or by its interquartile range, or by nothing.")
    ] = Scale.none,
    size: Annotated[int | None, positive("Height and width to bring the images of a folder to.")] = None,
    budget: Annotated[str | None, typer.Option(help="Time for all of it, at most: 90s, 2m, 1h30m.")] = None,
    steps: Annotated[int | None, positive("Optimizer steps to train for, at most.")] = None,
    rank: Annotated[int | None, positive("Rank of the metric; at least 2d − 1 for dimension d.")] = None,
    sigma: Annotated[float | None, positive("Scale σ of all questions; chosen from the data if left out.")] = None,
    sigma_min: Annotated[float | None, positive("Smallest σ to train on.")] = None,
    sigma_max: Annotated[float | None, positive("Largest σ to train on.")] = None,
    noise: Annotated[
        str, typer.Option(metavar="auto|NUMBER", help="Deviation of the samples' noise; auto looks for it.")
    ] = "auto",
    memory: Memory = None,
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

    Several processes fit one geometry where torchrun starts them.

    \b
    Examples:
      carre fit points.csv --out model
      carre fit plants.parquet --drop species --budget 2m --out model
      carre fit wine.csv --drop id --scale standardize --drop-missing --out model
      carre fit photographs/ --size 32 --budget 1h --out model
      carre fit points.npy --out model --dry-run
      torchrun --nproc-per-node 2 -m carre fit points.npy --out model
    """
    settings = {
        "max_seconds": inputs.seconds_of(budget),
        "max_steps": steps,
        "rank": rank,
        "bandwidth": sigma,
        "bandwidth_range": _range(sigma_min, sigma_max),
        "noise": _noise(noise),
    }
    bound = inputs.bytes_of(memory)
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"--seed must lie between 0 and {_LARGEST_SEED}; got {seed}")
    from carre.backend.processes import together  # noqa: PLC0415

    everyone = together()
    with ExitStack() as reserved:

        def begin() -> bool:
            reserved.enter_context(_reserved(out, wanted=not dry_run))
            return _is_complete(out, resume=resume, overwrite=overwrite)

        if everyone.agreed(begin):
            facts = {"complete": f"{out} is there already; nothing was done"}
            show(facts, {"model": out, "complete": True}, as_json=as_json)
            return
        left_out = "leave the column out (--drop)"
        samples = everyone.each(
            lambda: inputs.open_samples(
                data,
                memory,
                otherwise=left_out,
                columns=listed(columns),
                drop=listed(drop),
                size=size,
                drop_missing=drop_missing,
            )
        )
        everyone.each(lambda: _check_samples(samples, size, rank))
        if dry_run:
            plan = _plan(samples, settings, scale.value, device, seed, bound)
            plan = plan | _columns_of(samples)
            show(_facts_of_plan(plan, data, out), plan, as_json=as_json)
            return
        if overwrite and everyone.is_first:
            checkpoint_of(out).unlink(missing_ok=True)
        told = {"device": own_device(device), "random_state": seed, "scale": scale.value, "memory": bound, **settings}
        geometry = _fit(samples, out, quiet=quiet, **told)
    if not everyone.is_first:
        return
    facts, results = _summary(geometry, samples, data, out, quiet=quiet)
    show(facts, results, as_json=as_json, quiet=quiet)


@contextmanager
def _reserved(out: Path, *, wanted: bool) -> Iterator[None]:
    """Let nobody else fit into the same folder, nor into its checkpoint."""
    from carre.files import alone  # noqa: PLC0415
    from carre.storage.folder import checked_target  # noqa: PLC0415

    target = checked_target(out)
    above = next(folder for folder in target.parents if folder.exists())
    if not os.access(above, os.W_OK):
        raise PermissionError(f"--out must lie where files can be written; {above} is not such a folder")
    if not wanted:
        yield
        return
    with inputs.folder_for(target), alone(target, "folder"):
        yield


def _noise(given: str) -> str | float:
    """Read the noise that was given."""
    if given == "auto":
        return given
    try:
        return float(given)
    except ValueError:
        raise ValueError(f"--noise must be auto, or a number of at least 0; got {given}") from None


def _range(low: float | None, high: float | None) -> tuple[float, float] | None:
    """Check the scales to train on."""
    if (low is None) != (high is None):
        raise ValueError("--sigma-min and --sigma-max must be given together, or neither")
    if low is None or high is None:
        return None
    if not low < high:
        raise ValueError(f"--sigma-min must be less than --sigma-max; got {low:g} and {high:g}")
    return low, high


def _check_samples(samples: Samples, size: int | None, rank: int | None) -> None:
    """Refuse, before any work, options that the samples have no use for."""
    images = None if isinstance(samples, carre.Table) else samples.sample_shape
    if images is None and size is not None:
        raise ValueError(f"--size must be left out for tables; got {size}")
    dim = samples.shape[1] if isinstance(samples, carre.Table) else math.prod(samples.sample_shape or (samples.dim,))
    most = 2 * dim
    if rank is not None and rank > most:
        what = "columns" if images is None else "pixels of an image"
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
    return False


def _plan(
    samples: Samples, settings: dict[str, Any], scale: str, device: str | None, seed: int, memory: int | None
) -> dict[str, Any]:
    """Find out what a fit would do: all is decided, and nothing is trained."""
    from carre.fitting import (  # noqa: PLC0415
        FitSettings,
        Reading,
        accept_samples,
        choose_device,
        expected_seconds,
        seed_of,
    )

    accepted = accept_samples(samples, scale=scale, how=Reading(memory, seed=seed_of(seed), looks_only=True))
    for concern in accepted.concerns():
        warnings.warn(concern, carre.data.ColumnWarning, stacklevel=2)
    place = choose_device(device, accepted.points.tensor)
    plan = accepted.plan(FitSettings(**settings), seed=seed_of(seed), device=place)
    plan.check_memory(memory)
    n_parameters, *n_bytes = plan.costs()
    spent = time.perf_counter() - BEGAN.get()
    expected = expected_seconds(plan)
    # What was done so far is done in a fit, too.
    *likely, longest = (seconds + (0 if plan.config.max_seconds else spent) for seconds in expected)
    return {
        "n_samples": plan.n_samples,
        "dim": plan.samples.shape[1],
        "hull_dim": plan.frame.hull_dim,
        "dimension_guess": plan.scale.dimension,
        "bandwidth_range": plan.bandwidth_range,
        "noise": plan.noise.value,
        "noise_in_words": str(plan.noise),
        "rank": plan.rank,
        "network": plan.network,
        "n_parameters": n_parameters,
        "max_steps": plan.max_steps,
        "max_seconds": plan.config.max_seconds,
        "batch_size": plan.config.batch_size,
        "device": str(plan.device),
        "memory": sum(n_bytes),
        "likely_seconds": likely,
        "seconds": longest,
        "scale": scale,
        "concerns": accepted.concerns(),
    }


def _scaled(scale: str) -> dict[str, str]:
    """Say what columns are divided by."""
    by = {"standardize": "its standard deviation", "robust": "its interquartile range over 1.349"}.get(scale)
    return {} if by is None else {"scaled": f"each column is divided by {by}; σ is in these units"}


def _columns_of(samples: Samples) -> dict[str, Any]:
    """Say which columns of a table are taken, and which are left out, and why."""
    if isinstance(samples, carre.data.Source):
        return {"columns": samples.names, "left_out": dict(samples.left_out)}
    if not isinstance(samples, carre.Table):
        return {}
    left_out = {
        name: "not chosen" if column.dtype.kind in "fiub" else "text" if any(map(str.strip, column)) else "empty"
        for name, column in samples.other.items()
        if not (samples.dropped and name == "row")
    }
    rows = {"rows_left_out": list(samples.dropped)} if samples.dropped else {}
    return {"columns": samples.names, "left_out": left_out} | rows


def _facts_of_columns(columns: dict[str, Any]) -> dict[str, str]:
    names, left_out = columns.get("columns"), columns.get("left_out")
    facts = {"columns": inputs.some_of(names)} if names else {}
    return facts | (
        {"left out": inputs.some_of([f"{name} ({why})" for name, why in left_out.items()])} if left_out else {}
    )


def _facts_of_plan(plan: dict[str, Any], data: str, out: Path) -> dict[str, str]:
    hull = "" if plan["hull_dim"] == plan["dim"] else f", in a linear hull of {plan['hull_dim']}"
    steps = f"{plan['max_steps']:,} steps" if plan["max_steps"] else ""
    seconds = f"{plan['max_seconds']:g} s" if plan["max_seconds"] else ""
    bound = " or ".join(filter(None, (steps, seconds)))
    low, high = plan["bandwidth_range"]
    return {
        "data": f"{data}: {counted(plan['n_samples'], 'sample')} with {counted(plan['dim'], 'coordinate')}{hull}",
        **_facts_of_columns(plan),
        **_scaled(plan["scale"]),
        "device": plan["device"],
        "noise": plan["noise_in_words"],
        "scales σ": f"{low:.4g} to {high:.4g}",
        "rank": f"{plan['rank']} (neighbors suggest a dimension of {plan['dimension_guess']:.1f})",
        "network": f"{plan['network']}, {plan['n_parameters']:,} parameters",
        "training": f"until it is done, at most {bound}, batches of {plan['batch_size']:,}",
        "time": f"likely {span(*plan['likely_seconds'])}, at most {in_words(plan['seconds'])}, as measured now",
        "memory": f"about {plan['memory'] / 2**20:,.0f} MiB, beside torch's own",
        "would write": f"{out}; nothing was done",
    }


def _fit(samples: Samples, out: Path, *, quiet: bool, **settings: Any) -> carre.Geometry:
    """Fit and save; after an interruption, say how to go on."""
    from carre.backend.processes import together  # noqa: PLC0415
    from carre.fitting import waiting  # noqa: PLC0415
    from carre.training import Checkpoint  # noqa: PLC0415

    everyone = together()
    checkpoint = everyone.each(lambda: Checkpoint(checkpoint_of(out)))
    waits = waiting(BEGAN.get(), answers=3 * _SUMMARIZED, seconds=_SECONDS_TO_END)
    try:
        with progress("fit", quiet=quiet) as tell, waits:
            geometry = carre.fit(samples, **settings, checkpoint=checkpoint, verbose=not quiet, progress=tell)
        if everyone.is_first:
            _save(geometry, out)
            # Not before: at every moment there is one or the other.
            checkpoint.remove()
    except carre.TrainingDivergedError as error:
        error.args = (
            f"the loss or a gradient was not finite at step {error.step}. Give --sigma nearer to the data's own scale, "
            "or leave it out, or check the samples for extreme values",
        )
        raise
    except KeyboardInterrupt:
        command = COMMAND.get()
        again = command.replace(" --overwrite", "") + ("" if " --resume" in command else " --resume")
        kept = f"; what was learned is kept. Go on with: {again}"
        say(f"interrupted{kept if checkpoint.path.exists() else '; nothing was written'}")
        raise typer.Exit(_INTERRUPTED) from None
    return geometry


def _save(geometry: carre.Geometry, out: Path) -> None:
    """Save; where that fails, as on a full disk, save elsewhere, so that nothing is lost."""
    try:
        carre.save(geometry, out)
    except OSError as error:
        import tempfile  # noqa: PLC0415

        elsewhere = Path(tempfile.mkdtemp(prefix="carre-")) / out.name
        carre.save(geometry, elsewhere)
        raise OSError(f"{worded(error)}; the geometry was saved in {elsewhere} instead") from error


def _next(samples: Samples, model: str, table: str) -> dict[str, str]:
    """Say which commands to go on with."""
    if isinstance(samples, carre.data.Source):
        return {"what next": f"carre map {model} {table} --out answers"}
    return {"what next": f"carre dimension {model} {table}", "": f"carre report {model} {table} -o report.html"}


def _summary(
    geometry: carre.Geometry,
    samples: Samples,
    data: str,
    out: Path,
    *,
    quiet: bool,
) -> tuple[dict[str, str], dict[str, Any]]:
    """Say what was learned, and what to do with it."""
    if isinstance(samples, carre.data.Source):
        some: Any = geometry.landmarks[:_SUMMARIZED].numpy()
    else:
        every = -(-len(samples) // _SUMMARIZED)
        some = samples.values[::every] if isinstance(samples, carre.Table) else samples[::every]
    from carre.training import linear_phase  # noqa: PLC0415

    # A kernel would answer in place of a network that has not resolved the data: not within a budget.
    estimate = None
    if geometry.parameters["max_seconds"] is None or linear_phase(geometry.history) is None:
        with progress("dimension", quiet=quiet) as tell:
            estimate = geometry.estimate_dimension(some, progress=tell)
    seconds = time.perf_counter() - BEGAN.get()
    model, table, history = shlex.quote(str(out)), shlex.quote(data), geometry.history
    table += " --drop-missing" if isinstance(samples, carre.Table) and samples.dropped else ""
    facts = {
        "samples": f"{geometry.n_samples:,} with {counted(geometry.dim, 'coordinate')}",
        **_facts_of_columns(_columns_of(samples)),
        **_scaled(str(geometry.parameters.get("scale"))),
        "dimension": _dimension(estimate, doubt=bool(geometry.concerns)),
        "scale σ": f"{geometry.bandwidth:.4g}" + (", which includes the noise" if geometry.noise > 0 else ""),
        "noise": str(geometry.noise_estimate),
        "training": f"{history.steps:,} steps, {seconds:.1f} s, on {geometry.device}: {history.stop_reason}",
        "saved in": str(out),
        **_next(samples, model, table),
    }
    results = {
        "model": out,
        "n_samples": geometry.n_samples,
        "n_features": geometry.dim,
        "columns": geometry.feature_names,
        "left_out": _columns_of(samples).get("left_out"),
        "rows_left_out": list(samples.dropped) if isinstance(samples, carre.Table) else [],
        "scale": geometry.parameters.get("scale"),
        "concerns": geometry.concerns,
        "dimension": estimate.value if estimate else None,
        "dimension_interval": estimate.interval if estimate else None,
        "verdict": estimate.verdict if estimate else "not resolved",
        "bandwidth": geometry.bandwidth,
        "bandwidth_range": geometry.bandwidth_range,
        "noise": geometry.noise,
        "noise_standard_error": geometry.noise_estimate.standard_error if geometry.noise > 0 else None,
        "rank": geometry.rank,
        "steps": history.steps,
        "ended": history.stop_reason,
        "outlook": history.outlook,
        "seconds": seconds,
        "device": geometry.device,
    }
    return facts, results


def _dimension(estimate: carre.DimensionEstimate | None, *, doubt: bool) -> str:
    """Say what was estimated."""
    if estimate is None:
        return "not resolved within this budget: give more, or ask below, where a kernel answers, which takes longer"
    (low, high), why = estimate.interval, [estimate.source, estimate.counted, estimate.doubt]
    parts = [f"{estimate.value} ({low} to {high} as σ varies by √2): {estimate.verdict}", *filter(None, why)]
    return "; ".join(parts + ["read the warnings about columns first"] * doubt)
