"""What a fit will do: everything that was not given is decided here, once, and nothing is trained."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from carre.backend.processes import together
from carre.backend.reservoir import Refill, Stream
from carre.backend.rows import Rows, Samples, in_blocks, row_hashes
from carre.backend.surroundings import DrawingFrom
from carre.boundary import LARGE, ArgumentError
from carre.fields.neural import LEAST_SCALE, observed_scale
from carre.fitting.settings import FitSettings, Shape
from carre.metric import AffineFrame
from carre.networks import FrozenDenoiser, build_image_model, build_model
from carre.networks.denoisers import of_flat_points
from carre.networks.unet import UNet, UNetSettings
from carre.toolkit.noise import NoiseEstimate, estimate_noise
from carre.training import DataScale, ImageScale, TrainingConfig
from carre.training.checkpoint import digest

_SLACK = 1e-6
# A network that sees the whole tells no points apart that are nearer together than that share of it; where a tenth of
# the samples makes the whole so large, they are no part of a shape.
_LEAST_RESOLVED, _MOST_FAR = 1e-2, 0.1
_LARGEST = 1e35
_LOOKED_AT, _FEWEST_LOOKED_AT, _MOST_NAMED = 2**22, 100, 5
_FEWEST_HELD_OUT, _MOST_HELD_OUT = 8, 20_000
# Weights, gradients, two moments of Adam, the average, and the best of it.
_COPIES_OF_WEIGHTS = 6
_COPIES_OF_SAMPLES = 3  # Where they are copied: as they were given, in the frame, and one to spare.
# Numbers that are kept for the way back, per unit of a residual block, and relative to those of a U-Net on its way.
_NUMBERS_PER_UNIT, _KEPT_BY_UNET = 16, 4


class OwnRows(NamedTuple):
    """Rows that only this process has, of several that train together; a plan is made from some rows of all of them.

    Attributes:
        samples: The rows.
        n_samples: How many rows all processes have.
        digest: Of all these rows, whoever has which.
    """

    samples: Samples
    n_samples: int
    digest: str


@dataclass(frozen=True, eq=False)
class FitPlan:
    """Samples in the coordinates that a network works in, and all that was decided about its training.

    A fit carries it out, a dry run prints it, and function matching trains other networks by it.

    Attributes:
        settings: What was told.
        samples: The samples as they were given.
        clean: Samples to choose a scale at, as they were given: those held out, else all.
        training: Samples to train on, in the frame, on the device; on a CPU many stay where they are.
        held_out: Samples to watch training with; the training samples where too few are left.
        frame: The coordinates.
        scale: What defaults are made from.
        bandwidth_range: The scales to train for, in the units of the data; with noise, those of the clean data.
        noise: What is known of the noise of the samples, in the units of the data.
        rank: Rows of the factor of G; a network of one's own may have another.
        width: Hidden width of a network for tables.
        unet: Sizes of a network for images; None for tables and a network of one's own.
        config: How to train.
        sample_shape: Channels, height and width of images.
        seed: Of everything random.
        device: Where it is trained.
        own: What this process alone trains on, where each has rows of its own; in the frame, but for those held out.
        stream: Where samples come from that do not fit into memory; ``samples`` are then a draw of them.

    Example:
        >>> line = torch.linspace(0, 1, 200)[:, None] * torch.tensor([1.0, 2.0, 2.0])
        >>> plan = make_plan(line, FitSettings(width=32), seed=0, device=torch.device("cpu"))
        >>> plan.samples.shape[1], plan.frame.hull_dim  # all samples lie on a line
        (3, 1)
        >>> plan.network, plan.config.max_steps
        ('residual MLP of width 32', 6000)
    """

    settings: FitSettings
    samples: Samples
    clean: Samples
    training: Samples
    held_out: Samples
    frame: AffineFrame
    scale: DataScale
    bandwidth_range: tuple[float, float]
    noise: NoiseEstimate
    rank: int
    width: int
    unet: UNetSettings | None
    config: TrainingConfig
    sample_shape: Shape | None
    seed: int
    device: torch.device
    own: OwnRows | None = None
    stream: Stream | None = None

    @property
    def n_samples(self) -> int:
        """How many samples there are, in all processes, and as far as they were read."""
        if self.stream is not None:
            return self.stream.n_rows
        return len(self.samples) if self.own is None else self.own.n_samples

    @property
    def facts(self) -> str:
        """What tells these samples from others."""
        if self.stream is not None:
            return self.stream.facts
        return digest(self.samples) if self.own is None else self.own.digest

    def share(self) -> tuple[Samples, Samples]:
        """Return what this process trains on and is watched with: of the same samples every so-manieth.

        Samples that are few enough to be averaged over all at once are not divided.
        """
        everyone, rows = together(), self.training
        if self.own is not None:
            rows = self.own.samples
        elif everyone.size > 1 and len(rows) // everyone.size >= max(self.config.n_references, 1):
            rows = _taken(rows, torch.arange(everyone.rank, len(rows), everyone.size, device=rows.device))
        return rows, rows if self.held_out is self.training else self.held_out

    def refill(self, training: Samples) -> AbstractContextManager[Callable[[], None] | None]:
        """Bring new samples in while training goes on, where there are more than fit into memory."""
        stream, frame, used = self.stream, self.frame, together().share(self.config.batch_size)
        if stream is None:
            return nullcontext()

        def ready(rows: Tensor) -> Tensor:
            rows = rows if stream.units is None else rows / stream.units.to(rows)
            return frame.to(rows.device, rows.dtype).encode(rows).to(torch.float32)

        return Refill(stream.source, stream.terms, training, ready, per_call=used)

    @property
    def network(self) -> str:
        """What would be trained, in words."""
        if self.settings.own_network is not None:
            return f"{type(self.settings.own_network).__name__}, your own"
        return f"residual MLP of width {self.width}" if self.unet is None else f"U-Net of {self.unet.channels} channels"

    @property
    def trained_range(self) -> tuple[float, float]:
        """The deviations of the noise that is added in training, in the units of the data."""
        ends = torch.tensor(self.bandwidth_range, device="cpu").double()
        low, high = observed_scale(ends, self.noise.value)[0].tolist()
        return low, high

    @property
    def max_steps(self) -> int | None:
        """Optimizer steps; None if only the time is bounded."""
        settings = self.settings
        return None if settings.max_steps is None and settings.max_seconds is not None else self.config.max_steps

    def build(self, device: torch.device | None = None) -> nn.Module:
        """Build the network, or take the user's (a copy: what was told is not changed by a fit)."""
        settings, device = self.settings, device or self.device
        if settings.own_network is not None:
            return copy.deepcopy(settings.own_network).to(device, torch.float32)
        mean: nn.Module | None = None
        if settings.denoiser is not None:
            denoiser = of_flat_points(settings.denoiser, self.sample_shape, self.samples.shape[1])
            mean = FrozenDenoiser(denoiser, self.frame)
        with_mean = settings.method != "uncentered"
        shared: dict[str, Any] = {"spread": self.scale.spread, "mean": mean, "with_mean": with_mean}
        with DrawingFrom(torch.Generator().manual_seed(self.seed)):
            if self.unet is not None and self.sample_shape is not None:
                model = build_image_model(self.sample_shape, self.rank, settings=self.unet, **shared)
            else:
                sizes: dict[str, Any] = {"width": self.width, "n_blocks": settings.n_blocks, "block": settings.block}
                model = build_model(self.frame.hull_dim, self.rank, **sizes, **shared)
        return model.to(device, torch.float32)

    def harder(self) -> FitPlan | None:
        """Return the plan for data that turn out to be too hard for the default network; None where there is none."""
        settings = self.settings
        is_open = settings.is_default and settings.width is None and settings.method == "joint"
        found = self.scale.harder(self.device) if is_open else None
        if found is None:
            return None
        width, n_blocks, changes = found
        for name in ("batch_size", "learning_rate", "max_steps", "mixed_precision"):
            if getattr(settings, name) is not None:
                changes[name] = getattr(settings, name)
        if self.max_steps is None:
            changes["max_steps"] = self.config.max_steps
        config = replace(self.config, **changes)
        settings = replace(settings, n_blocks=max(settings.n_blocks, n_blocks))
        return replace(self, settings=settings, width=width, config=config)

    def check_memory(self, memory: int | None) -> None:
        """Refuse to take more than a bound."""
        needed = sum(self.costs()[1:]) if memory is not None else 0
        if memory is not None and needed > memory:
            must = f"leave room for {self.network} and its samples, {needed / 1e6:,.0f} MB"
            remedy = "Give more, or a smaller rank, width or batch_size"
            raise ArgumentError("memory", must, got=f"{memory / 1e6:,.0f} MB", remedy=remedy)

    def costs(self) -> tuple[int, int, int]:
        """Return how many numbers would be learned, and roughly the bytes that samples and training take."""
        with torch.device("meta"):
            model = self.build(torch.device("meta"))
        n_parameters = sum(weights.numel() for weights in model.parameters())
        unets = [part for part in model.modules() if isinstance(part, UNet)]
        per_point = (
            _KEPT_BY_UNET * sum(part.numbers_per_point for part in unets)
            if unets
            else (2 * _NUMBERS_PER_UNIT * self.settings.n_blocks * self.width)
        )
        per_point += self.rank * self.frame.hull_dim
        of_training = 4 * (_COPIES_OF_WEIGHTS * n_parameters + self.config.batch_size * per_point)
        if self.stream is not None:
            on_device = 0 if self.device.type == "cpu" else 4 * self.stream.terms.capacity * self.frame.hull_dim
            return n_parameters, self.stream.n_bytes + on_device, of_training
        copies = 1 if isinstance(self.training, Rows) else _COPIES_OF_SAMPLES
        return n_parameters, 4 * copies * math.prod(self.samples.shape), of_training


def make_plan(
    samples: Samples,
    settings: FitSettings,
    *,
    seed: int,
    device: torch.device,
    sample_shape: Shape | None = None,
    own: OwnRows | None = None,
    held_out: Samples | None = None,
    stream: Stream | None = None,
) -> FitPlan:
    """Hold samples out, choose the coordinates, and fill in what was not given.

    Args:
        samples: The samples, finite, at least two of them different.
        settings: What to fit.
        seed: Of everything random.
        device: Where to train.
        sample_shape: Channels, height and width, if the samples are flattened images.
        own: Rows of this process, where the samples are some of those that several processes have.
        held_out: Samples beside these to watch training with; None takes some of these.
        stream: Where more samples come from while it trains.

    Example:
        >>> samples = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> plan = make_plan(samples, FitSettings(), seed=0, device=torch.device("cpu"))
        >>> plan.rank, plan.width, plan.costs()[0]  # rows of the factor, hidden units, numbers to learn
        (6, 128, 367808)
    """
    unet = settings.unet(sample_shape)
    if held_out is None or len(held_out) < _FEWEST_HELD_OUT:
        clean, rest, is_held_out = _split(samples, settings.validation_fraction, seed)
    else:
        clean, rest, is_held_out = held_out, _taken(samples, torch.arange(len(samples))), True
    # A U-Net needs its pixels where they are; a user's network or denoiser is shown all coordinates.
    reduce = settings.reduce and settings.is_default and unet is None
    in_order = rest.sorted() if isinstance(rest, Rows) else rest
    frame = AffineFrame.of(in_order, reduce=reduce)
    _check_extent(samples, frame.scale)
    noise = _noise(settings, frame, rest, is_image=sample_shape is not None)
    if noise.value > 0 and reduce:
        frame = AffineFrame.of(in_order, noise=noise.value)
    training = _encoded(rest, frame, device)
    watched = _encoded(clean, frame, device) if is_held_out else training
    scale = (DataScale if unet is None else ImageScale).of(training)
    if noise.n_directions is not None:
        # Neighbors in noise are those of the whole space.
        scale = replace(scale, dimension=float(noise.n_directions))
    if own is not None:
        # Of a source they are held out already, by what is in them.
        apart = _without(own.samples, clean) if is_held_out and stream is None else own.samples
        own = own._replace(samples=_encoded(apart, frame, device))
    many = stream.n_rows if stream is not None else own.n_samples if own is not None else None
    scale = scale if many is None else replace(scale, n_samples=many)
    width = settings.width or scale.width(device)
    plan = FitPlan(
        settings=settings,
        samples=samples,
        clean=clean,
        training=training,
        held_out=watched,
        frame=frame,
        scale=scale,
        bandwidth_range=_range(settings, frame, scale, noise.value),
        noise=noise,
        rank=settings.rank or scale.rank(frame.hull_dim),
        width=width,
        unet=unet,
        config=_config(settings, scale, frame.hull_dim, width, seed, device),
        sample_shape=sample_shape,
        seed=seed,
        device=device,
        own=own,
        stream=stream,
    )
    return replace(plan, config=replace(plan.config, gives_up=plan.harder() is not None))


def _split(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples, bool]:
    """Hold some samples out; where that would be too few, watch with all."""
    shuffle = torch.Generator(samples.device).manual_seed(seed)
    order = torch.randperm(len(samples), generator=shuffle, device=samples.device)
    n_held_out = min(int(share * len(samples)), _MOST_HELD_OUT)
    n_held_out = n_held_out if n_held_out >= _FEWEST_HELD_OUT else 0
    return _taken(samples, order[: n_held_out or None]), _taken(samples, order[n_held_out:]), n_held_out > 0


def _check_extent(samples: Samples, scale: float) -> None:
    """Refuse sizes beyond float32, and a few rows so far away that all others are one point beside them."""
    if not 1 / _LARGEST < scale < _LARGEST:
        must = f"have a size from {1 / _LARGEST:g} to {_LARGEST:g}, as scales are trained in float32"
        raise ArgumentError("X", must, got=f"{scale:g}", remedy="Multiply it by a constant")
    n, dim = samples.shape
    some = samples[:: max(1, n // max(_FEWEST_LOOKED_AT, _LOOKED_AT // dim))].double()
    middle = some.median(0).values
    reach = float((some - middle).square().sum(1).median().sqrt())
    if reach >= _LEAST_RESOLVED * scale:
        return
    distances = torch.cat([(part - middle).norm(dim=1) for part in in_blocks(samples)])
    far = torch.nonzero(distances > scale)[:, 0].tolist()
    if 0 < len(far) <= _MOST_FAR * n and reach > 0:
        rows = ", ".join(map(str, far[:_MOST_NAMED])) + ", …" * (len(far) > _MOST_NAMED)
        times = float(distances.max()) / reach
        got = f"{len(far):,} row{'s' * (len(far) > 1)} ({rows}) up to {times:.1g} times as far from the middle as most"
        remedy = "Leave such rows out, as with numpy.delete(X, rows, axis=0), mend them, or take logarithms"
        raise ArgumentError("X", "have no rows beside which all others are one point", got=got, remedy=remedy)


def _without(samples: Samples, others: Samples) -> Samples:
    """Leave out the rows that are among others; an error says so where none is left."""
    known = torch.cat([row_hashes(part) for part in in_blocks(others)])
    left = torch.cat([~torch.isin(row_hashes(part), known) for part in in_blocks(samples)])
    if not left.any():
        must = "leave each process rows to train on, beside those held out"
        raise ArgumentError("X", must, got=f"{len(samples)} rows", remedy="Give each process more rows")
    return _taken(samples, torch.nonzero(left)[:, 0])


def _taken(samples: Samples, which: Int[Tensor, " m"]) -> Samples:
    """Take some of the samples: as a copy, or of many as rows that stay where they are."""
    if isinstance(samples, Rows):
        return replace(samples, order=samples.order[which])
    return samples[which] if samples.numel() <= LARGE else Rows(samples, which)


def _encoded(samples: Samples, frame: AffineFrame, device: torch.device) -> Samples:
    """Bring samples into a frame, to where they are trained on; a GPU, which cannot wait for them, gets them all."""
    local = frame.to(samples.device, samples.dtype)
    if isinstance(samples, Tensor):
        return local.encode(samples).to(device, torch.float32)
    rows = samples.then(lambda part: local.encode(part).to(device, torch.float32))
    return rows if device.type == "cpu" else rows.whole()


def _noise(settings: FitSettings, frame: AffineFrame, samples: Samples, *, is_image: bool) -> NoiseEstimate:
    """Take the noise that was given, or look for some where the answer can be used."""
    told, (smallest, _) = settings.noise, settings.bandwidth_range or (settings.bandwidth or math.inf, 0)
    if isinstance(told, float):
        return NoiseEstimate(told, reason="it was given")
    if is_image or settings.ridge > 0 or settings.method == "uncentered":
        return NoiseEstimate(reason="it is looked for in tables, with a mean and without a ridge")
    local = frame.to(samples.device, samples.dtype)

    def inside(part: Tensor) -> Tensor:
        return frame.scale * local.encode(part)

    found = estimate_noise(samples.then(inside) if isinstance(samples, Rows) else inside(samples))
    if smallest < LEAST_SCALE * found.value:
        return NoiseEstimate(reason=f"there seems to be noise of {found.value:.3g}; scales within it were asked for")
    return found


def _range(settings: FitSettings, frame: AffineFrame, scale: DataScale, noise: float) -> tuple[float, float]:
    """Return the range of scales in the units of the data; a default range is widened to hold a given bandwidth."""
    least = LEAST_SCALE * noise
    # A diffusion model knows the scales that it was trained on.
    known = getattr(settings.denoiser, "bandwidth_range", (0.0, math.inf))
    for name, told in (("bandwidth", settings.bandwidth), ("bandwidth_range", settings.bandwidth_range)):
        ends = [told] if isinstance(told, float) else told or known
        if min(ends) < (1 - _SLACK) * known[0] or max(ends) > (1 + _SLACK) * known[1]:
            must = f"lie in [{known[0]:.3g}, {known[1]:.3g}], where the denoiser was trained"
            raise ArgumentError(name, must, got=told)
    if settings.bandwidth_range is not None:
        low, high = settings.bandwidth_range
        if low < (1 - _SLACK) * least:
            must = f"start at {least:.3g} or above, 1.22 times the noise: below, samples show noise alone"
            raise ArgumentError("bandwidth_range", must, got=(low, high))
        return low, high
    low, high = (frame.scale * edge for edge in scale.bandwidth_range())
    if settings.bandwidth is not None:
        low, high = min(low, settings.bandwidth / 2), max(high, 2 * settings.bandwidth)
    low = max(math.hypot(low, noise), least, known[0])
    return low, min(max(math.hypot(high, noise), 4 * low), known[1])


def _config(
    settings: FitSettings, scale: DataScale, hull_dim: int, width: int, seed: int, device: torch.device
) -> TrainingConfig:
    """Fill the training configuration."""
    batch_size = settings.batch_size or scale.batch_size(device)
    rate = scale.learning_rate(width, batch_size) if settings.learning_rate is None else settings.learning_rate
    # A user's network is rounded only on request.
    default = settings.is_default and scale.mixed_precision(device)
    mixed = default if settings.mixed_precision is None else settings.mixed_precision
    # A wall-clock budget alone should not be cut short by the default number of steps.
    unlimited = settings.max_seconds is not None and settings.max_steps is None
    return TrainingConfig(
        max_steps=10**9 if unlimited else settings.max_steps or scale.max_steps(device),
        max_seconds=settings.max_seconds,
        batch_size=batch_size,
        learning_rate=rate,
        n_references=scale.n_references(hull_dim),
        polish_batch=scale.polish_batch(device),
        worth=scale.worth(hull_dim, device),
        round_steps=scale.round_steps(device),
        fills_hull=scale.fills(hull_dim),
        evaluations=scale.evaluations(device),
        mixed_precision=mixed,
        cuda_graph=settings.cuda_graph,
        seed=seed,
    )


def check_output(model: nn.Module, plan: FitPlan) -> int:
    """Try a model once before it is trained: shapes that are wrong could broadcast silently. Return its rank."""
    points = plan.training[:2]
    n, dim = points.shape
    low, high = plan.bandwidth_range
    sigma = points.new_full((n,), (low * high) ** 0.5 / plan.frame.scale)
    with torch.no_grad():
        mean, factor = copy.deepcopy(model).eval()(points, sigma)
    if mean is None and plan.settings.method == "joint":
        remedy = "Fit with method='uncentered'"
        raise ArgumentError("network", "return a mean with method='joint'", got="None", remedy=remedy)
    if mean is not None and mean.shape != points.shape:
        got = f"{tuple(mean.shape)} for batch {n}"
        raise ArgumentError("network", f"return a mean of shape (batch, {dim})", got=got)
    if factor.ndim != 3 or factor.shape[::2] != (n, dim):
        raise ArgumentError("network", f"return a factor of shape (batch, rank, {dim})", got=tuple(factor.shape))
    return int(factor.shape[1])
