"""The front door: from samples to a geometry."""

from __future__ import annotations

import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend.memory import check_room
from carre.backend.processes import together
from carre.backend.rows import Samples
from carre.backend.surroundings import plain_surroundings
from carre.boundary import ArgumentError
from carre.data import ColumnWarning
from carre.data.sources import is_source
from carre.fields import NeuralField
from carre.fitting.plan import FitPlan, check_output
from carre.fitting.samples import Reading, accept_samples, pooled
from carre.fitting.settings import FitSettings, choose_device
from carre.geometry import Geometry
from carre.matching import LogUniform
from carre.metric import AffineFrame
from carre.networks import UNetSettings
from carre.progress import progress_bar
from carre.toolkit import ScaleProfile, choose_bandwidth, rank_cuts_off
from carre.training import (
    Checkpoint,
    History,
    LinearPhaseWarning,
    Objective,
    Progress,
    TrainingDivergedError,
    likely_steps,
    linear_phase,
    seconds_per_step,
    train,
)
from carre.training.monitor import TOO_HARD, HeldOut

# The scale is chosen at this many samples; at fewer, where that many metrics are more than so many numbers. Whatever is
# free: a fit with a seed should not depend on the machine.
_N_SELECTION, _FEWEST_SELECTION, _NUMBERS_IN_SELECTION = 512, 64, 2**24
# What the user has said and training does not see, so that an error about a checkpoint can name it.
_FACTS = ("method", "width", "n_blocks", "block", "reduce", "validation_fraction")
_FEW_SAMPLES, _MOST_LANDMARKS = 20, 5000
# Of a budget, training gets so much at least, whatever else takes long. What was measured once may take longer.
_LEAST_FOR_TRAINING = 0.5
_MOST_LOOKS, _SPARE = 30, 1.5


# When somebody began to wait for a fit; when it is done, how many points they ask about, and how long they need else.
_WAITING: ContextVar[tuple[float | None, int, float]] = ContextVar("_WAITING", default=(None, 0, 0.0))


@contextmanager
def waiting(since: float, *, answers: int, seconds: float) -> Iterator[None]:
    """Let budgets of fits include what else is done before them, since a time of `time.perf_counter`, and after.

    Example:
        >>> with waiting(time.perf_counter(), answers=2000, seconds=1.0):
        ...     geometry = fit(np.random.default_rng(0).normal(size=(40, 2)), max_seconds=2, width=16, bandwidth=1.0)
        >>> geometry.history.seconds < 2
        True
    """
    known = _WAITING.set((since, answers, seconds))
    try:
        yield
    finally:
        _WAITING.reset(known)


@plain_surroundings()
def fit(
    X: Any,
    *,
    rank: int | None = None,
    bandwidth: float | None = None,
    bandwidth_range: Sequence[float] | None = None,
    method: str = "joint",
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
    network: nn.Module | UNetSettings | None = None,
    width: int | None = None,
    n_blocks: int = 3,
    block: str = "gated",
    ridge: float = 0.0,
    noise: str | float = "auto",
    scale: str = "none",
    reduce: bool = True,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    validation_fraction: float = 0.1,
    mixed_precision: bool | None = None,
    cuda_graph: bool = True,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    memory: int | None = None,
    device: str | torch.device | None = None,
    random_state: int | np.random.RandomState | None = None,
    verbose: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> Geometry:
    """Learn the Riemannian geometry of a dataset from samples.

    Trains a network that outputs, at any point and any scale σ, the low-rank metric G = Cov[X | Y=y]/σ², whose leading
    eigenvectors are the directions the data can move in: its eigenvalues are near 1 along the data and near 0 across
    them. What is not given is chosen from the data.

    Where ``torch.distributed`` is initialized, all its processes fit one geometry: each calls this with the same
    arguments, and with the same samples, or its own part of them. Each returns the same.

    Args:
        X: Samples, shape (n, D), which an MLP learns, or images, shape (n, C, H, W), which a U-Net learns: an array, a
            tensor, a data frame, a `carre.Table`, or a dataset of images. Whole numbers are taken as they are: of uint8
            images, σ is in steps of 0 to 255. Or whatever `carre.data.open_source` reads in blocks: a folder of npy or
            parquet shards, zarr, a dataset or a ``DataLoader`` of PyTorch, a function that returns batches. What does
            not fit into memory is drawn from, and read on while training goes on.
        rank: Rows of the factor of G; at least 2d−1 for data of dimension d.
        bandwidth: The default scale σ of all questions, a standard deviation in the units of the data.
            None chooses it after training, without labels.
        bandwidth_range: The scales (low, high) to train on.
        method: ``"joint"`` (one stage, centered), ``"two-stage"`` (with ``denoiser``) or
            ``"uncentered"`` (the main text of the paper).
        denoiser: For the two-stage method, a callable ``(y, σ) ↦ E[X | Y=y]`` on tensors, in the units
            and the shape of the data, or in its own ``sample_shape``; of diffusion models a `carre.DiffusionDenoiser`.
        network: A module ``(y, σ) ↦ (mean, factor)`` to train instead of the default one. It sees
            centered points in isotropic units, flat also if they are images. Or, for images, a
            `carre.UNetSettings` with the sizes of the U-Net.
        width: Hidden width of the default network for tables.
        n_blocks: Residual blocks per trunk of the default network for tables.
        block: ``"gated"``, or ``"plain"`` as in the paper; of the default network for tables.
        ridge: λ ≥ 0 of G = FᵀF + λI.
        noise: The deviation τ of noise that the samples have in every direction, in their units. ``"auto"`` looks for
            it, in tables, and claims it only where it can be told from dimension and curvature; 0 takes the samples as
            they are. With noise the geometry is that of the clean data: scales include the noise, and begin above it.
        scale: ``"none"`` takes the columns as they are: right where all are lengths in the same units, as coordinates
            or pixels are. ``"standardize"`` divides each by its standard deviation, ``"robust"`` by its interquartile
            range over 1.349, which outliers do not move: right for a table of different quantities. Points and
            vectors stay in the units of the columns; σ, τ and lengths are then in deviations.
        reduce: Whether to work in the linear hull of the samples where that is a proper subspace
            (constant or dependent columns, fewer samples than columns). Nothing is lost inside the hull; what
            new points have outside of it is taken for noise. Ignored for images: a U-Net needs all pixels.
        max_steps: Optimizer steps, at most. Training ends sooner when held-out samples say that it is done; without a
            bound of yours there is one, of some minutes.
        max_seconds: Wall-clock budget instead of, or beside, the steps: at most, for everything from the call to the
            geometry. Training gets half of it at least, also where reading the samples takes longer than the rest.
        batch_size: Noisy points per step, of all processes together.
        learning_rate: Its peak.
        validation_fraction: Share of the samples held out to watch training and to choose the scale.
        mixed_precision: Whether to multiply matrices in bfloat16 while training; by default on a GPU, for wide networks
            and U-Nets.
        cuda_graph: Whether to replay training steps as a CUDA graph; switch it off for a network or denoiser
            that cannot be captured.
        checkpoint: A file to keep training in, so that an interrupted fit can go on. It is written at every held-out
            evaluation, at least about every minute, and when Ctrl-C is pressed; a fit with the same samples, seed
            and settings goes on from it, and removes it when it is done. A `carre.training.Checkpoint` stays, for you
            to remove when the geometry is saved: then nothing is lost at any moment.
        memory: The bytes that a fit of a source may take beside what the process holds already; without a bound of
            yours, half a gigabyte of samples are held at a time.
        device: Where to compute; None takes a GPU if there is one.
        random_state: Seed or generator of NumPy. A seed makes a fit on a CPU reproducible.
        verbose: Whether to draw progress bars, in a notebook or on a terminal, here and in the tools of the geometry.
        progress: Told how training goes, instead of a bar.

    Raises:
        TrainingDivergedError: A loss or gradient was not finite; the last good field is in it.
        CheckpointError: The checkpoint is of other samples or settings, or damaged.
        ProcessLostError: Another process that trains with this one is gone.

    Example:
        >>> import carre, numpy as np
        >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 400)
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> geometry = carre.fit(circle, max_steps=50, width=32, random_state=0)
        >>> geometry.at(np.array([[1.0, 0.0]])).tangent_basis(1).shape
        (1, 2, 1)
    """
    told = locals()
    start = _WAITING.get()[0] or time.perf_counter()
    settings = FitSettings(**{name: told[name] for name in FitSettings.__dataclass_fields__})
    if denoiser is not None and scale != "none":
        must = "be 'none' with a denoiser, whose noise is the same in all columns as they are"
        raise ArgumentError("scale", must, got=repr(scale), remedy="Scale the columns yourself, for both")
    everyone = together()
    # Networks and functions cannot be compared; each process may have a device and a progress of its own.
    plain = {name: value for name, value in vars(settings).items() if not callable(value)}
    everyone.check_same("the arguments of a fit", (plain, scale, memory, checkpoint is None))
    kept = everyone.each(lambda: _checkpoint_of(checkpoint))
    seed = everyone.agreed(lambda: seed_of(random_state, kept))
    is_shown = verbose and everyone.is_first
    with progress_bar("reading") if is_shown and is_source(X) else nullcontext() as reading:
        part = (everyone.rank, everyone.size)
        how = Reading(memory, validation_fraction, seed=seed, progress=reading, part=part)
        samples = everyone.each(lambda: accept_samples(X, scale=scale, how=how))
    samples, own = pooled(samples, scale)
    concerns = samples.concerns()
    for concern in concerns:
        warnings.warn(concern, ColumnWarning, stacklevel=4)
    place = choose_device(device, samples.points.tensor)
    plan = everyone.each(lambda: samples.plan(settings, seed=seed, device=place, own=own))
    everyone.each(lambda: plan.check_memory(memory))
    if max_seconds is not None:
        # Measured before the clock is read.
        after = sum(everyone.each(lambda: _seconds_beside(plan)))
        plan = _reserving(plan, after + time.perf_counter() - start, most=1 - _LEAST_FOR_TRAINING)
    bar = progress_bar("fit") if is_shown and progress is None else nullcontext(progress)
    with bar as callback:
        geometry = carry_out(plan, callback=callback, checkpoint=kept)
    parameters = {name: told[name] for name in told if name not in ("X", "progress")}
    units = samples.points.units
    geometry = dataclasses.replace(
        geometry,
        normalization=samples.normalization,
        feature_names=samples.names,
        units=units,
        landmarks=geometry.landmarks if units is None else geometry.landmarks * units.to(geometry.landmarks),
        concerns=concerns,
        parameters=parameters,
        verbose=verbose,
    )
    _warn(geometry, plan.n_samples)
    # Not before: also the choice of a scale may be interrupted.
    if kept is not None and kept is not checkpoint and everyone.is_first:
        kept.remove()
    return geometry


def _checkpoint_of(told: str | os.PathLike[str] | Checkpoint | None) -> Checkpoint | None:
    """Make a checkpoint of a path."""
    return told if told is None or isinstance(told, Checkpoint) else Checkpoint(told)


def carry_out(
    plan: FitPlan, *, callback: Callable[[Progress], None] | None = None, checkpoint: Checkpoint | None = None
) -> Geometry:
    """Train by a plan, and choose the default scale.

    Args:
        plan: What `make_plan` decided.
        callback: Told of the progress of training.
        checkpoint: A file to keep training in, and to go on from if it is there.

    Example:
        >>> from carre.fitting import make_plan
        >>> samples = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> settings = FitSettings(max_steps=3, width=16, n_blocks=1, batch_size=16, bandwidth=0.5)
        >>> geometry = carry_out(make_plan(samples, settings, seed=0, device=torch.device("cpu")))
        >>> geometry.bandwidth, geometry.scale_profile is None, geometry.history.stop_reason  # the scale was given
        (0.5, True, 'budget spent')
    """
    everyone = together()
    if plan.settings.is_default:
        what = f"training a network of {plan.frame.hull_dim:,} coordinates"
        remedy = "Give fewer columns, such as principal components, or a smaller rank, width or batch_size"
        needed = plan.costs()[2]
        everyone.each(lambda: check_room(needed, plan.device, name="X", what=what, remedy=remedy))
    plan, model, rank, history = _train_plan(plan, callback, checkpoint)
    settings, frame, centered = plan.settings, plan.frame, plan.settings.method != "uncentered"
    noise = plan.noise.value
    field = NeuralField(model.cpu(), frame.to("cpu"), ridge=settings.ridge, noise=noise)
    supported_from = math.hypot(frame.scale * plan.scale.supported_from(), noise)
    profile, bandwidth = None, settings.bandwidth
    if bandwidth is None:
        profile = everyone.agreed(lambda: _profile(plan, field, rank, supported_from, calibrated=centered))
        bandwidth = float(profile.bandwidth[profile.chosen])
    chosen = np.random.default_rng(plan.seed).permutation(len(plan.samples))[:_MOST_LANDMARKS]
    return Geometry(
        field,
        bandwidth,
        plan.bandwidth_range,
        landmarks=plan.samples[torch.from_numpy(chosen)].cpu(),
        rank=rank,
        n_samples=plan.n_samples,
        supported_from=supported_from,
        noise_estimate=plan.noise,
        is_centered=centered,
        history=history,
        scale_profile=profile,
        sample_shape=plan.sample_shape,
        device=plan.device,
    )


def _train_plan(
    plan: FitPlan, callback: Callable[[Progress], None] | None, checkpoint: Checkpoint | None
) -> tuple[FitPlan, nn.Module, int, History]:
    """Train by a plan or, where its first steps show that the data are hard, by the one for harder data."""
    harder, everyone = plan.harder(), together()
    # An interrupted run may have come to the second attempt.
    if harder is not None and checkpoint is not None and everyone.agreed(lambda: checkpoint.told("gives_up")) is False:
        plan = harder
    while True:
        model = plan.build()
        rank = check_output(model, plan)
        history = _train(plan, model, rank, callback, checkpoint)
        if history.stop_reason != TOO_HARD or harder is None:
            return plan, model, rank, history
        if checkpoint is not None and everyone.is_first:
            checkpoint.remove()
        plan = _reserving(harder, plan.config.reserved + history.seconds, most=0.9)


def _train(
    plan: FitPlan,
    model: nn.Module,
    rank: int,
    callback: Callable[[Progress], None] | None,
    checkpoint: Checkpoint | None,
) -> History:
    """Train the model; its history is in the units of the data."""
    settings, scale, centered = plan.settings, plan.frame.scale, plan.settings.method != "uncentered"
    low, high = plan.trained_range
    objective = Objective(
        settings.ridge,
        noise=plan.noise.value / scale,
        train_mean=settings.method == "joint",
        centered=centered,
        # Uncentered, the loss is ruled by the noise off the data, which is the same at all scales.
        balance=plan.scale.balance(plan.training, rank) if centered else None,
    )
    if checkpoint is not None:
        facts: dict[str, Any] = {name: getattr(settings, name) for name in _FACTS}
        facts |= {"samples": plan.facts, "sample_shape": plan.sample_shape, "rank": rank}
        checkpoint = Checkpoint(checkpoint.path, {**checkpoint.facts, **facts}, every=checkpoint.every)
    try:
        training, held_out = plan.share()
        with plan.refill(training) as refill:
            history = train(
                model,
                training,
                held_out,
                LogUniform(low / scale, high / scale),
                objective,
                plan.config,
                callback=callback,
                checkpoint=checkpoint,
                refill=refill,
            )
    except TrainingDivergedError as error:
        options: Any = {"ridge": settings.ridge, "noise": plan.noise.value}
        error.field = NeuralField(model.cpu(), plan.frame.to("cpu"), **options)
        raise
    scales = tuple(math.hypot(scale * sigma, plan.noise.value) for sigma in history.bandwidths)
    return dataclasses.replace(history, bandwidths=scales)


@torch.no_grad()
def _profile(
    plan: FitPlan,
    field: NeuralField,
    rank: int,
    supported_from: float,
    *,
    calibrated: bool,
    n_scales: int | None = None,
) -> ScaleProfile:
    """Choose the scale on the grid, or only on some of it."""
    samples = _selection(plan.clean, rank, plan.device)
    if plan.frame.basis is not None and rank * plan.frame.basis.shape[0] * len(samples) > _NUMBERS_IN_SELECTION:
        # Of long samples in the coordinates of their hull, in which G has the same eigenvalues.
        hull, basis = AffineFrame(torch.zeros(field.frame.hull_dim), field.frame.scale), plan.frame.basis
        samples = ((samples - field.frame.center.to(samples)) @ basis.to(samples)).float()
        field = NeuralField(field.model, hull, ridge=field.ridge, noise=field.noise)
    return choose_bandwidth(
        field,
        samples,
        _grid(plan)[:n_scales],
        max_dimension=field.frame.hull_dim,
        supported_from=supported_from,
        neighbor_dimension=plan.scale.dimension,
        generator=torch.Generator(samples.device).manual_seed(plan.seed),
        calibrated=calibrated,
    )


def _grid(plan: FitPlan) -> np.ndarray:
    """Lay a grid of ratio about √2 inside the trained range."""
    low, high = plan.bandwidth_range
    return np.geomspace(low, high, max(3, 1 + round(2 * math.log2(high / low))))


def expected_seconds(plan: FitPlan) -> tuple[float, float, float]:
    """Measure how long the rest of a fit takes: between which times it will probably end, and the most that it can.

    Example:
        >>> from carre.fitting import make_plan
        >>> samples = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> plan = make_plan(samples, FitSettings(max_steps=9, width=16), seed=0, device=torch.device("cpu"))
        >>> least, most, longest = expected_seconds(plan)
        >>> 0 < least == most == longest < 10  # so few steps will all be taken
        True
    """
    per_step = seconds_per_step(plan.build(), plan.training, *_lesson(plan), plan.config)
    (per_look, after), allowed = _seconds_beside(plan), plan.config.max_seconds or math.inf
    counts = (*likely_steps(plan.config), plan.config.max_steps)
    # Held-out samples are looked at in every round at first, then ever less often.
    looks = [min(1 + count / plan.config.round_steps, _MOST_LOOKS) for count in counts]
    seconds = [count * per_step + n * per_look + after for count, n in zip(counts, looks, strict=True)]
    least, most, longest = (min(total, allowed) for total in seconds)
    return least, most, longest


def _lesson(plan: FitPlan) -> tuple[LogUniform, Objective]:
    """Return what a network is taught, for measuring what that costs."""
    (low, high), method = plan.trained_range, plan.settings.method
    objective = Objective(train_mean=method == "joint", centered=method != "uncentered")
    return LogUniform(low / plan.frame.scale, high / plan.frame.scale), objective


def _seconds_beside(plan: FitPlan) -> tuple[float, float]:
    """Measure a look at held-out samples, and choosing the scale and answering who waits, with an untrained network."""
    settings, (_, n_answers, seconds), (bandwidths, objective) = plan.settings, _WAITING.get(), _lesson(plan)
    model, generator = plan.build(), torch.Generator(plan.device).manual_seed(plan.seed)
    rank, watch = check_output(model, plan), HeldOut(plan.held_out, plan.training, bandwidths, generator=generator)
    start = time.perf_counter()
    watch.evaluate(model, objective, step=0, seconds=0.0)
    looked = time.perf_counter()
    field = NeuralField(model.cpu(), plan.frame.to("cpu"), ridge=settings.ridge, noise=plan.noise.value)
    _profile(plan, field, rank, 0.0, calibrated=settings.method != "uncentered", n_scales=1)
    n_scales = len(_grid(plan)) if settings.bandwidth is None else 0
    answered = (time.perf_counter() - looked) * (n_scales + n_answers / _N_SELECTION)
    return looked - start, seconds + _SPARE * answered


def _reserving(plan: FitPlan, seconds: float, *, most: float) -> FitPlan:
    """Keep seconds free of a budget, if there is one: a share of it at most."""
    allowed = plan.config.max_seconds
    reserved = 0.0 if allowed is None else together().agreed(lambda: min(seconds, most * allowed))
    return dataclasses.replace(plan, config=dataclasses.replace(plan.config, reserved=reserved))


def _selection(samples: Samples, rank: int, device: torch.device) -> Float[Tensor, "m dim"]:
    """Take the samples to choose the scale at, few ones repeatedly: their metrics are held at once, with copies."""
    count = max(_FEWEST_SELECTION, min(_N_SELECTION, _NUMBERS_IN_SELECTION // (rank * samples.shape[1])))
    some = samples[:count].to(device)
    return some.repeat(-(-count // len(some)), 1)


def seed_of(random_state: Any, checkpoint: Checkpoint | None = None) -> int:
    """Draw the seed of a fit as scikit-learn's estimators do; without a wish, take that of an interrupted fit.

    Example:
        >>> seed_of(0) == np.random.RandomState(0).randint(2**31 - 1)
        True
    """
    if isinstance(random_state, np.random.RandomState):
        generator = random_state
    else:
        try:
            generator = np.random.mtrand._rand if random_state is None else np.random.RandomState(random_state)
        except (TypeError, ValueError) as error:
            must = "be None, a whole number from 0 to 2**32 - 1, or a numpy.random.RandomState"
            raise ArgumentError("random_state", must, got=repr(random_state)) from error
    seed = int(generator.randint(2**31 - 1))
    stored = checkpoint.told("seed") if checkpoint is not None and random_state is None else None
    return seed if stored is None else stored


def _warn(geometry: Geometry, n_samples: int) -> None:
    """Warn of a fit that is not to be trusted: few samples, too little training, or too small a rank."""
    few = f"X has only {n_samples} samples: too few to tell a geometry from chance. Collect more"
    profile, supported = geometry.scale_profile, geometry.supported_from
    cut = None if profile is None else rank_cuts_off(profile, geometry.hull_dim, supported)
    for message, category in (
        (few if n_samples < _FEW_SAMPLES else None, UserWarning),
        (linear_phase(geometry.history), LinearPhaseWarning),
        (cut, UserWarning),
    ):
        if message:
            warnings.warn(message, category, stacklevel=5)
