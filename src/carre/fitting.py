"""From samples to a fitted field: the pipeline behind `MetricMatching`, as one stateless function."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.fields import NeuralField
from carre.geometry import AffineFrame
from carre.matching import LogUniform
from carre.networks import FrozenDenoiser, GatedBlock, PlainBlock, build_model
from carre.toolkit import ScaleProfile, choose_bandwidth
from carre.training import History, Objective, Progress, TrainingConfig, TrainingDivergedError, train
from carre.training.defaults import DataScale

METHODS = ("joint", "two-stage", "uncentered")
BLOCKS: dict[str, Callable[[int], nn.Module]] = {"gated": GatedBlock, "plain": PlainBlock}
_N_SELECTION = 512
_FEWEST_HELD_OUT, _MOST_HELD_OUT = 8, 20_000


@dataclass(frozen=True, eq=False)
class FitSettings:
    """What a fit is told; the meaning of each is documented in `MetricMatching`. None: from the data."""

    rank: int | None = None
    bandwidth: float | None = None
    bandwidth_range: Sequence[float] | None = None
    method: str = "joint"
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None
    network: nn.Module | None = None
    width: int | None = None
    n_blocks: int = 3
    block: str = "gated"
    ridge: float = 0.0
    reduce: bool = True
    max_steps: int | None = None
    max_seconds: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    validation_fraction: float = 0.1
    patience: int | None = None
    mixed_precision: bool | None = None
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        for name in ("rank", "width", "n_blocks", "max_steps", "batch_size"):
            value = getattr(self, name)
            is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if value is not None and not (is_integer and value >= 1):
                raise ValueError(f"{name} must be a positive integer; got {value!r}")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")
        if self.block not in BLOCKS:
            raise ValueError(f"block must be one of {', '.join(BLOCKS)}; got {self.block!r}")
        if (self.method == "two-stage") != (self.denoiser is not None):
            raise ValueError("denoiser must be given with method='two-stage', and only then")
        if self.network is not None and self.method == "two-stage":
            raise ValueError("network must be None with method='two-stage', which builds its own around the denoiser")
        if self.bandwidth is not None and not (isinstance(self.bandwidth, Real) and 0 < self.bandwidth < math.inf):
            raise ValueError(f"bandwidth must be positive (it is a standard deviation); got {self.bandwidth!r}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie in [0, 1); got {self.validation_fraction}")
        if not 0 <= self.ridge < math.inf:
            raise ValueError(f"ridge must be at least 0; got {self.ridge}")
        if self.network is not None and self.rank is not None:
            raise ValueError("rank must be None with a network of your own, which has its own")
        if self.bandwidth_range is not None:
            edges = tuple(np.asarray(self.bandwidth_range).ravel().tolist())
            if len(edges) != 2 or not all(isinstance(edge, Real) for edge in edges):
                raise ValueError(f"bandwidth_range must be a pair (low, high); got {self.bandwidth_range!r}")
            LogUniform(*edges)
            object.__setattr__(self, "bandwidth_range", edges)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted field and how it came about.

    Attributes:
        field: The learned field.
        bandwidth: Its default scale σ.
        bandwidth_range: The scales it was trained on.
        supported_from: The σ below which samples have hardly any neighbors.
        profile: What the default scale was chosen from; None when it was given.
        history: The training record.
    """

    field: NeuralField
    bandwidth: float
    bandwidth_range: tuple[float, float]
    supported_from: float
    profile: ScaleProfile | None
    history: History


def fit_field(
    samples: Float[Tensor, "n dim"],
    settings: FitSettings,
    *,
    seed: int,
    device: torch.device,
    callback: Callable[[Progress], None] | None = None,
) -> Fit:
    """Fit a neural field to samples: frame, defaults, training, choice of scale.

    Args:
        samples: The samples, finite, at least two of them different.
        settings: What to fit.
        seed: Of everything random.
        device: Where to train.
        callback: Told of the progress of training.
    """
    shuffle = torch.Generator(samples.device).manual_seed(seed)
    order = torch.randperm(len(samples), generator=shuffle, device=samples.device)
    n_held_out = min(int(settings.validation_fraction * len(samples)), _MOST_HELD_OUT)
    n_held_out = n_held_out if n_held_out >= _FEWEST_HELD_OUT else 0
    clean = samples[order[: n_held_out or None]]
    frame = AffineFrame.of(samples[order[n_held_out:]], reduce=settings.reduce and _is_default(settings))
    local = frame.to(samples.device, samples.dtype)
    training = local.encode(samples[order[n_held_out:]]).to(device, torch.float32)
    held_out = local.encode(clean).to(device, torch.float32) if n_held_out else training

    scale = DataScale.of(training)
    low, high = _range(settings, frame, scale)
    model = _model(settings, frame, scale, seed, device)
    _check_output(model, settings, training[:2], (low / frame.scale, high / frame.scale))
    try:
        with _seeded(seed):
            history = train(
                model,
                training,
                held_out,
                LogUniform(low / frame.scale, high / frame.scale),
                Objective(
                    settings.ridge,
                    train_mean=settings.method == "joint",
                    centered=settings.method != "uncentered",
                ),
                _config(settings, scale, seed, device),
                callback=callback,
            )
    except TrainingDivergedError as error:
        error.field = NeuralField(model.cpu(), frame.to("cpu"), ridge=settings.ridge)
        raise
    history = replace(history, bandwidths=tuple(frame.scale * sigma for sigma in history.bandwidths))
    field = NeuralField(model.cpu(), frame.to("cpu"), ridge=settings.ridge)
    supported_from = frame.scale * scale.supported_from()
    if settings.bandwidth is not None:
        return Fit(field, settings.bandwidth, (low, high), supported_from, None, history)
    profile = _profile(
        field,
        clean[:_N_SELECTION].to(device),
        low,
        high,
        supported_from,
        seed,
        calibrated=settings.method != "uncentered",
    )
    return Fit(field, float(profile.bandwidth[profile.chosen]), (low, high), supported_from, profile, history)


def choose_device(asked: str | torch.device | None, samples: Tensor) -> torch.device:
    """Take the device that was asked for, else the samples' GPU, else any GPU, else the CPU."""
    if asked is None:
        cuda = samples.device if samples.is_cuda else torch.device("cuda")
        return cuda if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(asked)
    except RuntimeError as error:
        raise ValueError(f"device must be one of torch's, like 'cpu' or 'cuda'; got {asked!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device must be 'cpu' or None: there is no CUDA device here")
    return device


def _model(settings: FitSettings, frame: AffineFrame, scale: DataScale, seed: int, device: torch.device) -> nn.Module:
    """Build the network, or take the user's (a copy: parameters of an estimator are not changed by a fit)."""
    if settings.network is not None:
        return copy.deepcopy(settings.network).to(device, torch.float32)
    with _seeded(seed):
        model = build_model(
            frame.dim,
            settings.rank or scale.rank(frame.dim),
            width=settings.width or scale.width(device),
            n_blocks=settings.n_blocks,
            spread=scale.spread,
            block=BLOCKS[settings.block],
            mean=None if settings.denoiser is None else FrozenDenoiser(settings.denoiser, frame),
            with_mean=settings.method != "uncentered",
        )
    return model.to(device, torch.float32)


def _is_default(settings: FitSettings) -> bool:
    """Say whether all networks are ours; a user's network or denoiser is shown all coordinates."""
    return settings.network is None and settings.denoiser is None


def _range(settings: FitSettings, frame: AffineFrame, scale: DataScale) -> tuple[float, float]:
    """Return the range of σ in the units of the data; a default range is widened to hold a given bandwidth."""
    if settings.bandwidth_range is not None:
        return settings.bandwidth_range[0], settings.bandwidth_range[1]
    low, high = (frame.scale * edge for edge in scale.bandwidth_range())
    if settings.bandwidth is not None:
        low, high = min(low, settings.bandwidth / 2), max(high, 2 * settings.bandwidth)
    return low, high


def _check_output(
    model: nn.Module, settings: FitSettings, points: Float[Tensor, "two dim"], edges: tuple[float, float]
) -> None:
    """Try a model once before it is trained: shapes that are wrong could broadcast silently."""
    n, dim = points.shape
    with torch.no_grad():
        mean, factor = copy.deepcopy(model).eval()(points, points.new_full((n,), (edges[0] * edges[1]) ** 0.5))
    if mean is None and settings.method == "joint":
        raise ValueError("network must return a mean with method='joint'; got None. Fit with method='uncentered'")
    if mean is not None and mean.shape != points.shape:
        raise ValueError(f"network must return a mean of shape (batch, {dim}); got {tuple(mean.shape)} for batch {n}")
    if factor.ndim != 3 or factor.shape[::2] != (n, dim):
        raise ValueError(f"network must return a factor of shape (batch, rank, {dim}); got {tuple(factor.shape)}")


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generator of the CPU for a while: initialization, and dropout of a user's network."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _config(settings: FitSettings, scale: DataScale, seed: int, device: torch.device) -> TrainingConfig:
    """Fill the training configuration."""
    # A wall-clock budget alone should not be cut short by the default number of steps.
    width = settings.width or scale.width(device)
    batch_size = settings.batch_size or scale.batch_size(device)
    rate = scale.learning_rate(width, batch_size) if settings.learning_rate is None else settings.learning_rate
    # A user's network is rounded only on request.
    default = _is_default(settings) and scale.mixed_precision(device)
    mixed = default if settings.mixed_precision is None else settings.mixed_precision
    unlimited = settings.max_seconds is not None and settings.max_steps is None
    return TrainingConfig(
        max_steps=10**9 if unlimited else settings.max_steps or scale.max_steps(device),
        max_seconds=settings.max_seconds,
        batch_size=batch_size,
        learning_rate=rate,
        n_references=scale.n_references(),
        patience=settings.patience,
        mixed_precision=mixed,
        cuda_graph=settings.cuda_graph,
        seed=seed,
    )


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
    repeats = -(-_N_SELECTION // len(samples))
    generator = torch.Generator(samples.device).manual_seed(seed)
    grid = np.geomspace(low, high, max(3, 1 + round(2 * math.log2(high / low))))
    return choose_bandwidth(
        field,
        samples.repeat(repeats, 1),
        grid,
        max_dim=field.frame.dim,
        supported_from=supported_from,
        generator=generator,
        calibrated=calibrated,
    )
