"""Frame, defaults, training and the choice of a scale, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.fields import NeuralField
from carre.fitting.models import build, check_output, seeded
from carre.fitting.preparation import prepare
from carre.fitting.settings import FitSettings
from carre.matching import LogUniform
from carre.toolkit import ScaleProfile, choose_bandwidth
from carre.training import Checkpoint, History, Objective, Progress, TrainingDivergedError, train
from carre.training.fingerprint import digest

# The scale is chosen at this many samples; at fewer, where that many metrics are more than so many numbers. Whatever is
# free: a fit with a seed should not depend on the machine.
_N_SELECTION, _FEWEST_SELECTION, _NUMBERS_IN_SELECTION = 512, 64, 2**24
_FACTS = ("method", "width", "n_blocks", "block", "reduce", "validation_fraction")


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted field and how it came about.

    Attributes:
        field: The learned field.
        bandwidth: Its default scale σ.
        bandwidth_range: The scales it was trained on.
        supported_from: The σ below which samples have hardly any neighbors.
        rank: Rows of the factor.
        profile: What the default scale was chosen from; None when it was given.
        history: The training record.

    Example:
        >>> samples = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> settings = FitSettings(max_steps=3, width=16, n_blocks=1, batch_size=16, bandwidth=0.5)
        >>> fit = fit_field(samples, settings, seed=0, device=torch.device("cpu"))
        >>> fit.bandwidth, fit.profile is None  # the scale was given
        (0.5, True)
    """

    field: NeuralField
    bandwidth: float
    bandwidth_range: tuple[float, float]
    supported_from: float
    rank: int
    profile: ScaleProfile | None
    history: History


def fit_field(
    samples: Float[Tensor, "n dim"],
    settings: FitSettings,
    *,
    seed: int,
    device: torch.device,
    sample_shape: tuple[int, int, int] | None = None,
    callback: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Fit:
    """Fit a neural field to samples: frame, defaults, training, choice of scale.

    Args:
        samples: The samples, finite, at least two of them different.
        settings: What to fit.
        seed: Of everything random.
        device: Where to train.
        sample_shape: Channels, height and width, if the samples are flattened images.
        callback: Told of the progress of training.
        checkpoint: A file to keep training in, and to go on from if it is there; removed when the fit is done.

    Raises:
        CheckpointError: The file is not one of this fit.
        TrainingDivergedError: A loss or gradient was not finite; the last good field is in it.

    Example:
        >>> samples = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> settings = FitSettings(max_steps=5, width=16, n_blocks=1, batch_size=16, bandwidth=0.5, rank=3)
        >>> fit = fit_field(samples, settings, seed=0, device=torch.device("cpu"))
        >>> fit.field.metric(samples, fit.bandwidth).factor.shape, fit.history.stop_reason
        (torch.Size([60, 3, 3]), 'budget spent')
    """
    ready = prepare(samples, settings, seed=seed, device=device, sample_shape=sample_shape)
    frame, (low, high) = ready.frame, ready.bandwidth_range
    trained = LogUniform(low / frame.scale, high / frame.scale)
    model = build(settings, sample_shape, frame, ready.scale, seed, device)
    rank = check_output(model, settings, ready.training[:2], (trained.low, trained.high))
    centered = settings.method != "uncentered"
    try:
        with seeded(seed):
            history = train(
                model,
                ready.training,
                ready.held_out,
                trained,
                Objective(
                    settings.ridge,
                    train_mean=settings.method == "joint",
                    centered=centered,
                    # Uncentered, the loss is ruled by the noise off the data, which is the same at all scales.
                    balance=ready.scale.balance(ready.training, rank) if centered else None,
                ),
                ready.config,
                callback=callback,
                checkpoint=_with_facts(checkpoint, samples, settings, sample_shape, rank),
            )
    except TrainingDivergedError as error:
        error.field = NeuralField(model.cpu(), frame.to("cpu"), ridge=settings.ridge)
        raise
    history = replace(history, bandwidths=tuple(frame.scale * sigma for sigma in history.bandwidths))
    field = NeuralField(model.cpu(), frame.to("cpu"), ridge=settings.ridge)
    supported_from = frame.scale * ready.scale.supported_from()
    profile, bandwidth = None, settings.bandwidth
    if bandwidth is None:
        chosen_at = _selection(ready.clean, rank, device)
        profile = _profile(field, chosen_at, low, high, supported_from, seed, calibrated=centered)
        bandwidth = float(profile.bandwidth[profile.chosen])
    # Not before: the choice of a scale may be interrupted, too.
    if checkpoint is not None:
        checkpoint.remove()
    return Fit(field, bandwidth, (low, high), supported_from, rank, profile, history)


def _with_facts(
    checkpoint: Checkpoint | None,
    samples: Float[Tensor, "n dim"],
    settings: FitSettings,
    sample_shape: tuple[int, int, int] | None,
    rank: int,
) -> Checkpoint | None:
    """Add what the user has said, so that an error can name it: training sees only what became of it."""
    if checkpoint is None:
        return None
    facts: dict[str, Any] = {name: getattr(settings, name) for name in _FACTS}
    facts |= {"samples": digest(samples), "sample_shape": sample_shape, "rank": rank}
    return Checkpoint(checkpoint.path, {**checkpoint.facts, **facts}, every=checkpoint.every)


def _selection(samples: Float[Tensor, "n dim"], rank: int, device: torch.device) -> Float[Tensor, "m dim"]:
    """Take the samples to choose the scale at, few ones repeatedly: their metrics are held at once, with copies."""
    count = max(_FEWEST_SELECTION, min(_N_SELECTION, _NUMBERS_IN_SELECTION // (rank * samples.shape[1])))
    some = samples[:count].to(device)
    return some.repeat(-(-count // len(some)), 1)


@torch.no_grad()
def _profile(
    field: NeuralField,
    samples: Float[Tensor, "n dim"],
    low: float,
    high: float,
    supported_from: float,
    seed: int,
    *,
    calibrated: bool,
) -> ScaleProfile:
    """Choose the scale on a grid of ratio about √2 inside the trained range."""
    generator = torch.Generator(samples.device).manual_seed(seed)
    grid = np.geomspace(low, high, max(3, 1 + round(2 * math.log2(high / low))))
    return choose_bandwidth(
        field,
        samples,
        grid,
        max_dim=field.frame.dim,
        supported_from=supported_from,
        generator=generator,
        calibrated=calibrated,
    )
