"""What is made of samples and settings before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.fitting.settings import FitSettings
from carre.metric import AffineFrame
from carre.training import TrainingConfig
from carre.training.defaults import DataScale, ImageScale

_FEWEST_HELD_OUT, _MOST_HELD_OUT = 8, 20_000


@dataclass(frozen=True, eq=False)
class Preparation:
    """Samples in the coordinates that a network works in, and the defaults that come from them.

    Attributes:
        clean: Samples to choose a scale at, as they were given: those held out, else all.
        training: Samples to train on, in the frame, on the device.
        held_out: Samples to watch training with; the training samples where too few are left.
        frame: The coordinates.
        scale: What defaults are made from.
        bandwidth_range: The σ to train on, in the units of the data.
        config: How to train.
    """

    clean: Float[Tensor, "m dim"]
    training: Float[Tensor, "n hull"]
    held_out: Float[Tensor, "k hull"]
    frame: AffineFrame
    scale: DataScale
    bandwidth_range: tuple[float, float]
    config: TrainingConfig


def prepare(
    samples: Float[Tensor, "n dim"],
    settings: FitSettings,
    *,
    seed: int,
    device: torch.device,
    sample_shape: tuple[int, int, int] | None,
) -> Preparation:
    """Hold samples out, choose the coordinates, and fill in what was not given."""
    unet = settings.unet(sample_shape)
    shuffle = torch.Generator(samples.device).manual_seed(seed)
    order = torch.randperm(len(samples), generator=shuffle, device=samples.device)
    n_held_out = min(int(settings.validation_fraction * len(samples)), _MOST_HELD_OUT)
    n_held_out = n_held_out if n_held_out >= _FEWEST_HELD_OUT else 0
    clean = samples[order[: n_held_out or None]]
    # A U-Net needs its pixels where they are; a user's network or denoiser is shown all coordinates.
    reduce = settings.reduce and settings.is_default and unet is None
    frame = AffineFrame.of(samples[order[n_held_out:]], reduce=reduce)
    local = frame.to(samples.device, samples.dtype)
    training = local.encode(samples[order[n_held_out:]]).to(device, torch.float32)
    held_out = local.encode(clean).to(device, torch.float32) if n_held_out else training
    scale = (DataScale if unet is None else ImageScale).of(training)
    edges, config = _range(settings, frame, scale), _config(settings, scale, frame.dim, seed, device)
    return Preparation(clean, training, held_out, frame, scale, edges, config)


def _range(settings: FitSettings, frame: AffineFrame, scale: DataScale) -> tuple[float, float]:
    """Return the range of σ in the units of the data; a default range is widened to hold a given bandwidth."""
    if settings.bandwidth_range is not None:
        return settings.bandwidth_range[0], settings.bandwidth_range[1]
    low, high = (frame.scale * edge for edge in scale.bandwidth_range())
    if settings.bandwidth is not None:
        low, high = min(low, settings.bandwidth / 2), max(high, 2 * settings.bandwidth)
    return low, high


def _config(settings: FitSettings, scale: DataScale, dim: int, seed: int, device: torch.device) -> TrainingConfig:
    """Fill the training configuration."""
    # A wall-clock budget alone should not be cut short by the default number of steps.
    width = settings.width or scale.width(device)
    batch_size = settings.batch_size or scale.batch_size(device)
    rate = scale.learning_rate(width, batch_size) if settings.learning_rate is None else settings.learning_rate
    # A user's network is rounded only on request.
    default = settings.is_default and scale.mixed_precision(device)
    mixed = default if settings.mixed_precision is None else settings.mixed_precision
    unlimited = settings.max_seconds is not None and settings.max_steps is None
    return TrainingConfig(
        max_steps=10**9 if unlimited else settings.max_steps or scale.max_steps(device),
        max_seconds=settings.max_seconds,
        batch_size=batch_size,
        learning_rate=rate,
        n_references=scale.n_references(dim),
        evaluations=scale.evaluations(device),
        patience=settings.patience,
        mixed_precision=mixed,
        cuda_graph=settings.cuda_graph,
        seed=seed,
    )
