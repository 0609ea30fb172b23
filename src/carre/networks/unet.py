"""A U-Net whose blocks are modulated by the bandwidth [RMM, App. E.4], written for metric matching.

Images are (batch, channels, height, width) in channels-last memory, which is what convolutions in bfloat16 want.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from carre.backend.modes import is_transformed
from carre.boundary import ArgumentError, as_count, is_integer
from carre.networks.film import LogBandwidthEmbedding
from carre.networks.pointwise import (
    is_one_value,
    layer_norm,
    make_dual,
    modulated_activation,
    split_dual,
    untracked,
)

_HEAD_CHANNELS = 64
_BIAS_DEVIATION = 1e-3**0.5
_FEWEST_PIXELS_APART = 8
_POSITION_DEVIATION = 0.1
# SiLU of a standard normal variable has a root mean square of 0.6.
_SILU_GAIN = 1.7
# What a process takes over what its tensors hold: convolutions reorder their inputs, and memory is fragmented.
# Measured on a CPU in float32, as resident memory over the numbers below: 1.5 to 2.0.
_OVERHEAD = 2.2


@dataclass(frozen=True)
class UNetSettings:
    """The sizes of a U-Net, in the words of the paper's tables.

    Attributes:
        channels: Channels of the finest level. On a GPU choose a multiple of 8: others are many times slower in
            bfloat16 (a step with 60 channels took 0.34 s where one with 96 took 0.023 s).
        multipliers: Channels of each level, in multiples of those; a level has half the resolution of the one before.
        n_blocks: Residual blocks per level on the way down; one more on the way up.
        attention: The levels with self-attention, counted from 0; None takes the coarsest, ``len(multipliers) - 1``.
            The bottom, between the ways down and up, always has it, also with ``()``.
        patch: Side of the squares of pixels that are packed into channels before the first level and unpacked after
            the last. With 2 nothing wide is computed at full resolution.
        head_channels: Channels of a hidden layer before the outputs of a factor, whose many rows would otherwise all be
            sums of a few images; None for none.
        positions: Whether a factor is told where a pixel lies: which row is to show which part of an image cannot be
            seen from the image.

    Example:
        >>> settings = UNetSettings.for_shape((1, 28, 28))
        >>> settings.channels, settings.multipliers, settings.patch
        (64, (1, 2), 2)
    """

    channels: int = 64
    multipliers: tuple[int, ...] = (1, 2, 2)
    n_blocks: int = 2
    attention: tuple[int, ...] | None = None
    patch: int = 1
    head_channels: int | None = None
    positions: bool = False

    def __post_init__(self) -> None:
        for name in ("channels", "n_blocks", "patch", "head_channels"):
            if name != "head_channels" or self.head_channels is not None:
                object.__setattr__(self, name, as_count(getattr(self, name), name=name))
        if not isinstance(self.positions, bool):
            raise ArgumentError("positions", "be True or False", got=repr(self.positions))
        multipliers = _integers(self.multipliers)
        if not multipliers or min(multipliers) < 1:
            got, remedy = repr(self.multipliers), "Give a tuple like (1, 2, 2)"
            raise ArgumentError("multipliers", "be positive integers, one per level", got=got, remedy=remedy)
        coarsest = len(multipliers) - 1
        attention = (coarsest,) if self.attention is None else _integers(self.attention)
        if attention is None or any(not 0 <= level <= coarsest for level in attention):
            remedy = f"Give a tuple like ({coarsest},), () for none, or None for the coarsest"
            must = f"name levels below {coarsest + 1}"
            raise ArgumentError("attention", must, got=repr(self.attention), remedy=remedy)
        object.__setattr__(self, "multipliers", multipliers)
        object.__setattr__(self, "attention", attention)

    @classmethod
    def for_shape(cls, sample_shape: tuple[int, int, int]) -> UNetSettings:
        """Choose sizes for images of a shape: patches of two pixels, and levels down to about seven."""
        sizes = _integers(sample_shape)
        if sizes is None or len(sizes) != 3 or min(sizes) < 1:
            must = "be three positive integers, the channels, height and width"
            remedy = "Give a tuple like (1, 28, 28)"
            raise ArgumentError("sample_shape", must, got=repr(sample_shape), remedy=remedy)
        side = min(sizes[1:])
        patch = 2 if side >= 2 * _FEWEST_PIXELS_APART else 1
        n_levels = min(4, max(1, 1 + int(math.log2(max(side / patch / 7, 1)))))
        return cls(64, (1, 2, 2, 4)[:n_levels], 2, (n_levels - 1,), patch, head_channels=256, positions=True)

    @classmethod
    def of_paper(cls, dataset: str) -> UNetSettings:
        """Return the sizes in the paper's appendix: ``"mnist"``, ``"cifar10"``, ``"celeba"`` or ``"ffhq"``."""
        known = {
            "mnist": cls(64, (1, 2, 2), 2, (2,)),
            "cifar10": cls(128, (1, 2, 2, 2), 2, (1,)),
            "celeba": cls(64, (1, 2, 2, 2), 3, (2, 3)),
            "ffhq": cls(128, (1, 2, 2, 4), 2, (3,)),
        }
        if not isinstance(dataset, str) or dataset not in known:
            raise ArgumentError("dataset", f"be one of {', '.join(known)}", got=repr(dataset))
        return known[dataset]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values; ``UNetSettings(**it)`` is the way back."""
        return asdict(self)


def _integers(values: Any) -> tuple[int, ...] | None:
    """Return whole numbers as a tuple; None if they are anything else, or not several."""
    if isinstance(values, str | bytes):
        return None
    try:
        items = tuple(values)
    except TypeError:
        return None
    return tuple(map(int, items)) if all(map(is_integer, items)) else None


class UNet(nn.Module):
    """Map (points, σ) to images of several channels: levels down, a bottom, levels up with what was kept, a head.

    Points are flat, as everywhere; inside they are images. Sizes that cannot be halved often enough are padded.

    Args:
        sample_shape: Channels, height and width of a point.
        n_outputs: Images of that shape to put out per point: the rank of a factor, 1 for a mean.
        settings: The sizes.
        head_deviation: 1 lets the outputs start with about unit variance; 0 makes the first output zero.

    Example:
        >>> network = UNet((1, 6, 6), 4, UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1))
        >>> network(torch.randn(2, 36), torch.full((2,), 0.5)).shape  # four images of 36 pixels each
        torch.Size([2, 144])
    """

    def __init__(
        self, sample_shape: tuple[int, int, int], n_outputs: int, settings: UNetSettings, *, head_deviation: float = 0.0
    ) -> None:
        super().__init__()
        if len(sample_shape) != 3 or min(sample_shape) < 1:
            must = "be channels, height and width, at least 1 each"
            raise ArgumentError("sample_shape", must, got=tuple(sample_shape))
        self.sample_shape, self.n_outputs, self.settings = sample_shape, n_outputs, settings
        packed = sample_shape[0] * settings.patch**2
        widths = [settings.channels * multiplier for multiplier in settings.multipliers]
        self.inlet = Convolution(packed, widths[0], bias_deviation=0.0)
        down, up = nn.ModuleList(), nn.ModuleList()
        current, kept = widths[0], [widths[0]]
        for level, width in enumerate(widths):
            for _ in range(settings.n_blocks):
                down.append(self._stage(current, width, level))
                current = width
                kept.append(current)
            if level + 1 < len(widths):
                down.append(Convolution(current, current, stride=2))
                kept.append(current)
        self.bottom = nn.ModuleList(
            [ConvolutionBlock(current, current), SpatialAttention(current), ConvolutionBlock(current, current)]
        )
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(settings.n_blocks + 1):
                up.append(self._stage(current + kept.pop(), width, level))
                current = width
            if level > 0:
                # Before the pixels are doubled: the same weights at a quarter of the cost.
                up.append(Convolution(current, current))
        self.down, self.up = down, up
        self.expansion, self.position, self.head = self._outlet(current, n_outputs * packed, head_deviation)
        self.embedding = LogBandwidthEmbedding(settings.channels)
        self.modulation_widths = [sum(block.modulation_widths) for block in self._blocks()] + [2 * current]
        self.film = nn.Linear(settings.channels, sum(self.modulation_widths), bias=False)

    def _outlet(
        self, channels: int, n_outputs: int, deviation: float
    ) -> tuple[Convolution | None, nn.Parameter | None, Convolution]:
        """Build what only a factor has, the hidden layer and the map of positions, and the head."""
        settings = self.settings
        # Of a single row, too: a mean starts at zero, a factor never does.
        is_factor = self.n_outputs > 1 or deviation > 0
        wide = settings.head_channels if is_factor else None
        expansion, position = None, None
        size, inputs, gain = 3, channels, 1.0
        if wide is not None:
            expansion = Convolution(channels, wide, deviation=_SILU_GAIN * (9 * channels) ** -0.5, bias_deviation=0.0)
            size, inputs, gain = 1, wide, _SILU_GAIN
        if settings.positions and is_factor:
            (rows, columns), (_, height, width) = self._padding(), self.sample_shape
            grid = (height + rows) // settings.patch, (width + columns) // settings.patch
            # The channels last, as in memory.
            finest = settings.channels * settings.multipliers[0]
            position = nn.Parameter(_POSITION_DEVIATION * torch.randn(*grid, finest))
        spread = deviation * gain * (size * size * inputs) ** -0.5
        head = Convolution(inputs, n_outputs, size, deviation=spread, bias_deviation=deviation * _BIAS_DEVIATION)
        return expansion, position, head

    def _stage(self, in_channels: int, out_channels: int, level: int) -> nn.ModuleList:
        attention = [SpatialAttention(out_channels)] if level in (self.settings.attention or ()) else []
        return nn.ModuleList([ConvolutionBlock(in_channels, out_channels), *attention])

    def _blocks(self) -> Iterator[ConvolutionBlock]:
        """Go through the residual blocks in the order in which they compute."""
        for part in (self.down, self.bottom, self.up):
            yield from (module for module in part.modules() if isinstance(module, ConvolutionBlock))

    @property
    def numbers_per_point(self) -> int:
        """How many numbers are held per point at once, rather too many than too few: it sizes batches.

        Without gradients the most is held in a block on the way up, beside what is kept from the way down: the image
        joined with what was kept, and that thrice on its way through the norm. Or at the end: two copies of the answer.
        """
        settings, (rows, columns) = self.settings, self._padding()
        channels, height, width = self.sample_shape
        area = (height + rows) * (width + columns)
        widths = [settings.channels * multiplier for multiplier in settings.multipliers]
        pixels = [area // (settings.patch * 2**level) ** 2 for level in range(len(widths))]
        levels = list(zip(pixels, [widths[0], *widths[:-1]], widths, [*widths[1:], widths[-1]], strict=True))
        kept = sum(n * (finer + settings.n_blocks * own) for n, finer, own, _ in levels)
        block = 4 * max(n * (own + max(finer, own, coarser)) for n, finer, own, coarser in levels)
        before = widths[0] if self.expansion is None else self.expansion.weight.shape[0]
        answer = 2 * self.n_outputs * channels * area + 2 * before * pixels[0]
        return int(_OVERHEAD * max(kept + block, answer))

    def forward(
        self, points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch out"]:
        """Compute the output images of noisy points, flattened."""
        # One σ for all points (an expanded scalar) is embedded once.
        distinct = bandwidth[:1] if is_one_value(bandwidth) else bandwidth
        modulation = self.film(self.embedding(distinct)).expand(points.shape[0], -1)
        modulations = iter(modulation.split(self.modulation_widths, -1))
        hidden = self.inlet(self._pack(points))
        if self.position is not None:
            hidden = hidden + self.position.permute(2, 0, 1).to(hidden.dtype)
        kept = [hidden]
        for stage in self.down:
            hidden = self._through(stage, hidden, modulations)
            kept.append(hidden)
        hidden = self._through(self.bottom, hidden, modulations)
        for stage in self.up:
            if isinstance(stage, Convolution):
                hidden = functional.interpolate(stage(hidden), scale_factor=2, mode="nearest")
            else:
                # Under one name, so that nobody holds the image before it was joined.
                hidden = torch.cat([hidden, kept.pop()], 1)
                hidden = self._through(stage, hidden, modulations)
        hidden = modulated_activation(hidden, next(modulations))[0]
        if self.expansion is not None:
            hidden = functional.silu(self.expansion(hidden))
        return self._unpack(self.head(hidden))

    @staticmethod
    def _through(stage: nn.Module, hidden: Tensor, modulations: Iterator[Tensor]) -> Tensor:
        """Apply the modules of a stage one after the other."""
        for module in stage if isinstance(stage, nn.ModuleList) else [stage]:
            hidden = module(hidden, next(modulations)) if isinstance(module, ConvolutionBlock) else module(hidden)
        return hidden

    def _padding(self) -> tuple[int, int]:
        """Return how many rows and columns are missing to halve the image at every level."""
        step = self.settings.patch * 2 ** (len(self.settings.multipliers) - 1)
        _, height, width = self.sample_shape
        return -height % step, -width % step

    def _pack(self, points: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch c h w"]:
        """See flat points as images of patches, in channels-last memory."""
        image = points.reshape(-1, *self.sample_shape)
        rows, columns = self._padding()
        if rows or columns:
            image = functional.pad(image, (0, columns, 0, rows))
        return functional.pixel_unshuffle(image, self.settings.patch).contiguous(memory_format=torch.channels_last)

    def _unpack(self, image: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch out"]:
        """Return to flat points, in one copy where nothing was padded."""
        patch, (_, height, width) = self.settings.patch, self.sample_shape
        if patch > 1:
            patches = (image.shape[0], -1, patch, patch, *image.shape[2:])
            image = image.reshape(patches).permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)
        return image[:, :, :height, :width].flatten(1)


class Convolution(nn.Module):
    """A convolution that keeps the size of the image, or halves it.

    The weight is stored as (out, k, k, in), so that it is in channels-last memory however the optimizer lays out its
    buffers. Without a deviation of the initial weights they keep the variance of the input; without one of the bias
    there is none.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int = 3,
        *,
        stride: int = 1,
        deviation: float | None = None,
        bias_deviation: float | None = None,
    ) -> None:
        super().__init__()
        self.stride, self.padding = stride, size // 2
        spread = (size * size * in_channels) ** -0.5 if deviation is None else deviation
        self.weight = nn.Parameter(spread * torch.randn(out_channels, size, size, in_channels))
        self.bias = None if bias_deviation is None else nn.Parameter(bias_deviation * torch.randn(out_channels))

    def forward(self, image: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch out h2 w2"]:
        """Convolve."""
        weight = self.weight.permute(0, 3, 1, 2)
        value, tangent = split_dual(image, self.weight, self.bias)
        result = functional.conv2d(value, weight, self.bias, stride=self.stride, padding=self.padding)
        if tangent is None:
            return result
        with untracked():
            change = functional.conv2d(tangent, weight, stride=self.stride, padding=self.padding)
        return make_dual(result, change)


class ConvolutionBlock(nn.Module):
    """Residual block norm → FiLM → SiLU → conv → norm → FiLM → SiLU → conv(0).

    The norms are over the channels of each pixel: nothing is averaged over an image, so a stroke is not dimmed by the
    noise elsewhere, and one pass over the memory is enough.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.rise = Convolution(in_channels, out_channels)
        self.fall = Convolution(out_channels, out_channels, deviation=0.0)
        self.skip = None if in_channels == out_channels else Convolution(in_channels, out_channels, 1)
        # Scale and shift of both norms.
        self.modulation_widths = [2 * in_channels, 2 * out_channels]

    def forward(
        self, image: Float[Tensor, "batch c h w"], modulation: Float[Tensor, "batch m"]
    ) -> Float[Tensor, "batch out h w"]:
        """Add the block's update; at initialization it is zero."""
        first, second = torch.split(modulation, self.modulation_widths, -1)
        inner, image = modulated_activation(image, first)
        # One after the other under one name: an image at full resolution is not held longer than it is needed.
        inner = self.rise(inner)
        inner = modulated_activation(inner, second)[0]
        update: Tensor = self.fall(inner)
        return (image if self.skip is None else self.skip(image)) + update


class SpatialAttention(nn.Module):
    """Self-attention between the pixels of an image, in heads of 64 channels or somewhat more, as a residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        # Heads of equal size: the most of them that divide the channels.
        most = max(1, channels // _HEAD_CHANNELS)
        self.n_heads = next(count for count in range(most, 0, -1) if channels % count == 0)
        self.ask = Convolution(channels, 3 * channels, 1)
        self.answer = Convolution(channels, channels, 1, deviation=0.0)

    def forward(self, image: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch c h w"]:
        """Add what each pixel asks of all others; at initialization it is zero."""
        batch, channels, height, width = image.shape
        normed = layer_norm(image.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        packed = self.ask(normed).permute(0, 2, 3, 1).reshape(batch, height * width, 3, self.n_heads, -1)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = _attend(query, key, value).transpose(1, 2).reshape(batch, height, width, channels)
        update: Tensor = self.answer(mixed.permute(0, 3, 1, 2))
        return image + update


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend as one operation; spelled out where it is differentiated forward or transformed, which that cannot."""
    if not is_transformed(query):
        return functional.scaled_dot_product_attention(query, key, value)
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value
