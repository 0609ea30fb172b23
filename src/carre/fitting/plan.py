"""What a fit would do, found out without training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.fitting.models import build
from carre.fitting.preparation import prepare
from carre.fitting.settings import FitSettings
from carre.networks.unet import UNet

# Weights, gradients, two moments of Adam, the average, and the best of it.
_COPIES_OF_WEIGHTS = 6
# Of the samples: as they were given, in the frame, and one to spare.
_COPIES_OF_SAMPLES = 3
# Numbers that are kept for the way back, per unit of a residual block, and relative to those of a U-Net on its way.
_NUMBERS_PER_UNIT, _KEPT_BY_UNET = 16, 4


@dataclass(frozen=True)
class FitPlan:
    """What would be trained, and for how long; `plan_fit` finds it out.

    Attributes:
        n_samples: How many samples there are.
        dim: Numbers of each.
        hull_dim: Dimension of the space that the network works in: of the linear hull of the samples.
        dimension_guess: Their intrinsic dimension by the distances of neighbors, from which defaults are made.
        bandwidth_range: The scales σ that would be trained on.
        rank: Rows of the factor of G.
        network: What would be trained, in words.
        n_parameters: Numbers that would be learned.
        max_steps: Optimizer steps; None if only the time is bounded.
        max_seconds: The wall-clock budget, if there is one.
        batch_size: Noisy points per step.
        device: Where.
        memory: A rough estimate of the bytes that training takes there.

    Example:
        >>> line = torch.linspace(0, 1, 200)[:, None] * torch.tensor([1.0, 2.0, 2.0])
        >>> plan = plan_fit(line, FitSettings(), seed=0, device=torch.device("cpu"))
        >>> plan.dim, plan.hull_dim  # all samples lie on a line
        (3, 1)
    """

    n_samples: int
    dim: int
    hull_dim: int
    dimension_guess: float
    bandwidth_range: tuple[float, float]
    rank: int
    network: str
    n_parameters: int
    max_steps: int | None
    max_seconds: float | None
    batch_size: int
    device: str
    memory: int


def plan_fit(
    samples: Float[Tensor, "n dim"],
    settings: FitSettings,
    *,
    seed: int,
    device: torch.device,
    sample_shape: tuple[int, int, int] | None = None,
) -> FitPlan:
    """Find out what `fit_field` would do: its defaults are made, its network is built, and nothing is trained.

    Args:
        samples: The samples, finite, at least two of them different.
        settings: What to fit.
        seed: Of everything random.
        device: Where it would be trained.
        sample_shape: Channels, height and width, if the samples are flattened images.

    Example:
        >>> samples = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> plan = plan_fit(samples, FitSettings(width=32), seed=0, device=torch.device("cpu"))
        >>> plan.network, plan.rank, plan.max_steps
        ('residual MLP of width 32', 6, 2000)
    """
    ready = prepare(samples, settings, seed=seed, device=device, sample_shape=sample_shape)
    unet, frame, scale, config = settings.unet(sample_shape), ready.frame, ready.scale, ready.config
    model = build(settings, sample_shape, frame, scale, seed, torch.device("cpu"))
    width = settings.width or scale.width(device)
    rank = settings.rank or scale.rank(frame.dim)
    n_parameters = sum(weights.numel() for weights in model.parameters())
    per_point = _numbers_per_point(model, settings, width) + rank * frame.dim
    numbers = _COPIES_OF_WEIGHTS * n_parameters + _COPIES_OF_SAMPLES * samples.numel() + config.batch_size * per_point
    return FitPlan(
        n_samples=len(samples),
        dim=samples.shape[1],
        hull_dim=frame.dim,
        dimension_guess=scale.dimension,
        bandwidth_range=ready.bandwidth_range,
        rank=rank,
        network=f"residual MLP of width {width}" if unet is None else f"U-Net of {unet.channels} channels",
        n_parameters=n_parameters,
        max_steps=None if settings.max_steps is None and settings.max_seconds is not None else config.max_steps,
        max_seconds=settings.max_seconds,
        batch_size=config.batch_size,
        device=str(device),
        memory=4 * numbers,
    )


def _numbers_per_point(model: nn.Module, settings: FitSettings, width: int) -> int:
    """Estimate how many numbers are held of each noisy point of a batch, for both networks."""
    unets = [part for part in model.modules() if isinstance(part, UNet)]
    if unets:
        return _KEPT_BY_UNET * sum(part.numbers_per_point for part in unets)
    return 2 * _NUMBERS_PER_UNIT * settings.n_blocks * width
