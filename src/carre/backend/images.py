"""The pointwise step of a convolutional block, see `carre.networks.pointwise.modulated_activation`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_ELEMENTS = 4096


@triton.jit
def _forward(image, modulation, out, n_pixels, width, stride, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # One program: some pixels of one picture, all channels.
    picture = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    mask = (rows < n_pixels) & (columns < width)
    place = (picture * n_pixels + rows) * width + columns
    h = tl.load(image + place, mask=mask, other=0.0).to(tl.float32)
    inside = columns < width
    scale = tl.load(modulation + picture * stride + columns, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(modulation + picture * stride + width + columns, mask=inside, other=0.0).to(tl.float32)
    centered = tl.where(mask, h - tl.sum(h, 1)[:, None] / width, 0.0)
    normed = centered * tl.rsqrt(tl.sum(centered * centered, 1)[:, None] / width + epsilon)
    value = normed * (1.0 + scale) + shift
    tl.store(out + place, (value * tl.sigmoid(value)).to(out.dtype.element_ty), mask=mask)


@triton.jit
def _backward(
    gradient,
    through,
    image,
    modulation,
    image_gradient,
    partial,
    n_pixels,
    width,
    stride,
    epsilon,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    picture = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    inside = columns < width
    mask = (rows < n_pixels) & inside
    place = (picture * n_pixels + rows) * width + columns
    h = tl.load(image + place, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(modulation + picture * stride + columns, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(modulation + picture * stride + width + columns, mask=inside, other=0.0).to(tl.float32)
    # The statistics are computed again: the image is read anyway.
    centered = tl.where(mask, h - tl.sum(h, 1)[:, None] / width, 0.0)
    deviation = tl.rsqrt(tl.sum(centered * centered, 1)[:, None] / width + epsilon)
    normed = centered * deviation
    value = normed * (1.0 + scale) + shift
    open_ = tl.sigmoid(value)
    g = tl.load(gradient + place, mask=mask, other=0.0).to(tl.float32) * open_ * (1.0 + value * (1.0 - open_))
    inner = g * (1.0 + scale)
    along = tl.sum(inner * normed, 1)[:, None] / width
    passed = tl.load(through + place, mask=mask, other=0.0).to(tl.float32)
    back = passed + deviation * (inner - tl.sum(inner, 1)[:, None] / width - normed * along)
    tl.store(image_gradient + place, back.to(image_gradient.dtype.element_ty), mask=mask)
    channel = tl.arange(0, BLOCK)
    slot = (picture * tl.num_programs(1) + tl.program_id(1)) * (2 * width) + channel
    tl.store(partial + slot, tl.sum(g * normed, 0), mask=channel < width)
    tl.store(partial + slot + width, tl.sum(g, 0), mask=channel < width)


def _grid(batch: int, n_pixels: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Cut every picture into tiles of a few thousand numbers."""
    block = triton.next_power_of_2(width)
    rows = min(max(1, _ELEMENTS // block), triton.next_power_of_2(n_pixels))
    return (batch, triton.cdiv(n_pixels, rows)), {"ROWS": rows, "BLOCK": block}


def _pixels(image: Tensor) -> Tensor:
    """Give channels the last place in memory; no copy where they have it."""
    return image.permute(0, 2, 3, 1).contiguous()


class ModulatedActivation(torch.autograd.Function):
    """SiLU(LN(x)·(1 + scale) + shift) over channels, and x itself."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, modulation: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """Normalize, modulate, activate; the modulation may be a slice of a wider matrix."""
        pixels = _pixels(image)
        batch, height, width, channels = pixels.shape
        out = torch.empty_like(pixels)
        grid, tile = _grid(batch, height * width, channels)
        _forward[grid](pixels, modulation, out, height * width, channels, modulation.stride(0), epsilon, **tile)
        ctx.save_for_backward(pixels, modulation)
        ctx.epsilon = epsilon
        return out.permute(0, 3, 1, 2), pixels.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, through: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        """Return the gradients of x (both ways joined) and of the modulation."""
        pixels, modulation = ctx.saved_tensors
        batch, height, width, channels = pixels.shape
        back = torch.empty_like(pixels)
        grid, tile = _grid(batch, height * width, channels)
        partial = torch.empty((batch, grid[1], 2 * channels), dtype=torch.float32, device=pixels.device)
        _backward[grid](
            _pixels(gradient),
            _pixels(through),
            pixels,
            modulation,
            back,
            partial,
            height * width,
            channels,
            modulation.stride(0),
            ctx.epsilon,
            **tile,
        )
        return back.permute(0, 3, 1, 2), partial.sum(1).to(modulation.dtype), None
