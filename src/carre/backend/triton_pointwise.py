"""The pointwise steps of residual and of convolutional blocks, see `carre.networks.pointwise`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_ELEMENTS = 2048
_PICTURE_ELEMENTS = 4096
_TILE_ROWS, _ROW_STRIPS = 32, 512


@triton.jit
def _norm_forward(hidden, modulation, out, n_rows, width, stride, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    columns = tl.arange(0, BLOCK)[None, :]
    mask = (rows < n_rows) & (columns < width)
    h = tl.load(hidden + rows * width + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(modulation + rows * stride + columns, mask=mask, other=0.0).to(tl.float32)
    shift = tl.load(modulation + rows * stride + width + columns, mask=mask, other=0.0).to(tl.float32)
    centered = tl.where(mask, h - tl.sum(h, 1)[:, None] / width, 0.0)
    normed = centered * tl.rsqrt(tl.sum(centered * centered, 1)[:, None] / width + epsilon)
    result = normed * (1.0 + scale) + shift
    tl.store(out + rows * width + columns, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _norm_backward(
    gradient,
    through,
    hidden,
    modulation,
    hidden_gradient,
    modulation_gradient,
    n_rows,
    width,
    stride,
    epsilon,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    columns = tl.arange(0, BLOCK)[None, :]
    mask = (rows < n_rows) & (columns < width)
    place = rows * width + columns
    g = tl.load(gradient + place, mask=mask, other=0.0).to(tl.float32)
    h = tl.load(hidden + place, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(modulation + rows * stride + columns, mask=mask, other=0.0).to(tl.float32)
    passed = tl.load(through + place, mask=mask, other=0.0).to(tl.float32)
    # The statistics are computed again: h is read anyway.
    centered = tl.where(mask, h - tl.sum(h, 1)[:, None] / width, 0.0)
    deviation = tl.rsqrt(tl.sum(centered * centered, 1)[:, None] / width + epsilon)
    normed = centered * deviation
    inner = g * (1.0 + scale)
    along = tl.sum(inner * normed, 1)[:, None] / width
    back = passed + deviation * (inner - tl.sum(inner, 1)[:, None] / width - normed * along)
    tl.store(hidden_gradient + place, back.to(hidden_gradient.dtype.element_ty), mask=mask)
    pair = rows * (2 * width) + columns
    tl.store(modulation_gradient + pair, (g * normed).to(modulation_gradient.dtype.element_ty), mask=mask)
    tl.store(modulation_gradient + pair + width, g.to(modulation_gradient.dtype.element_ty), mask=mask)


@triton.jit
def _norm_tangent(
    hidden, tangent, modulation, out, n_rows, width, stride, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    columns = tl.arange(0, BLOCK)[None, :]
    mask = (rows < n_rows) & (columns < width)
    place = rows * width + columns
    h = tl.load(hidden + place, mask=mask, other=0.0).to(tl.float32)
    t = tl.load(tangent + place, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(modulation + rows * stride + columns, mask=mask, other=0.0).to(tl.float32)
    centered = tl.where(mask, h - tl.sum(h, 1)[:, None] / width, 0.0)
    deviation = tl.rsqrt(tl.sum(centered * centered, 1)[:, None] / width + epsilon)
    normed = centered * deviation
    along = tl.sum(normed * t, 1)[:, None] / width
    change = (t - tl.sum(t, 1)[:, None] / width - normed * along) * deviation
    tl.store(out + place, (change * (1.0 + scale)).to(out.dtype.element_ty), mask=mask)


def norm_tangent(hidden: Tensor, tangent: Tensor, modulation: Tensor, epsilon: float) -> Tensor:
    """Compute the derivative of LN(h)·(1 + scale) + shift along ḣ; see `carre.networks.pointwise.modulated_norm`."""
    hidden, tangent = hidden.contiguous(), tangent.contiguous()
    n_rows, width = hidden.shape
    out, tile = torch.empty_like(hidden), _tile(width)
    grid = (triton.cdiv(n_rows, tile["ROWS"]),)
    _norm_tangent[grid](hidden, tangent, modulation, out, n_rows, width, modulation.stride(0), epsilon, **tile)
    return out


@triton.jit
def _gate_tangent(pair, tangent, bias, out, n_elements, width, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n_elements
    column = place % width
    source = (place // width) * (2 * width) + column
    gate = tl.load(pair + source, mask=mask, other=0.0).to(tl.float32) + tl.load(bias + column).to(tl.float32)
    value = tl.load(pair + source + width, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(bias + width + column).to(tl.float32)
    to_gate = tl.load(tangent + source, mask=mask, other=0.0).to(tl.float32)
    to_value = tl.load(tangent + source + width, mask=mask, other=0.0).to(tl.float32)
    open_ = tl.sigmoid(gate)
    change = open_ * (1.0 + gate * (1.0 - open_)) * to_gate * value + gate * open_ * to_value
    tl.store(out + place, change.to(out.dtype.element_ty), mask=mask)


def gate_tangent(pair: Tensor, tangent: Tensor, bias: Tensor) -> Tensor:
    """Compute the derivative of SiLU(a)·b of [a, b] = pair + bias along a tangent of the pair."""
    pair, tangent, width = pair.contiguous(), tangent.contiguous(), pair.shape[1] // 2
    out = torch.empty((len(pair), width), dtype=pair.dtype, device=pair.device)
    grid = (triton.cdiv(out.numel(), 1024),)
    _gate_tangent[grid](pair, tangent, bias, out, out.numel(), width, BLOCK=1024)
    return out


@triton.jit
def _gate_forward(pair, bias, out, n_elements, width, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n_elements
    column = place % width
    source = (place // width) * (2 * width) + column
    gate = tl.load(pair + source, mask=mask, other=0.0).to(tl.float32) + tl.load(bias + column).to(tl.float32)
    value = tl.load(pair + source + width, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(bias + width + column).to(tl.float32)
    tl.store(out + place, (gate * tl.sigmoid(gate) * value).to(out.dtype.element_ty), mask=mask)


@triton.jit
def _gate_backward(
    gradient,
    pair,
    bias,
    pair_gradient,
    bias_gradient,
    n_rows,
    width,
    rows_each,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    # One program walks down a strip of columns, and sums the gradient of the bias as it goes.
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    gate_bias = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    value_bias = tl.load(bias + width + columns, mask=inside, other=0.0).to(tl.float32)
    gate_sum = tl.zeros([COLUMNS], tl.float32)
    value_sum = tl.zeros([COLUMNS], tl.float32)
    first = tl.program_id(0) * rows_each
    for start in range(0, rows_each, ROWS):
        rows = (first + start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        mask = (rows < n_rows) & inside[None, :]
        source = rows * (2 * width) + columns[None, :]
        g = tl.load(gradient + rows * width + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        gate = tl.load(pair + source, mask=mask, other=0.0).to(tl.float32) + gate_bias[None, :]
        value = tl.load(pair + source + width, mask=mask, other=0.0).to(tl.float32) + value_bias[None, :]
        open_ = tl.sigmoid(gate)
        to_gate = g * value * open_ * (1.0 + gate * (1.0 - open_))
        to_value = g * gate * open_
        tl.store(pair_gradient + source, to_gate.to(pair_gradient.dtype.element_ty), mask=mask)
        tl.store(pair_gradient + source + width, to_value.to(pair_gradient.dtype.element_ty), mask=mask)
        gate_sum += tl.sum(to_gate, 0)
        value_sum += tl.sum(to_value, 0)
    place = tl.program_id(0) * (2 * width) + columns
    tl.store(bias_gradient + place, gate_sum, mask=inside)
    tl.store(bias_gradient + place + width, value_sum, mask=inside)


@triton.jit
def _fourier(bandwidth, frequencies, out, half, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < half
    angle = tl.log(tl.load(bandwidth + row)) * tl.load(frequencies + columns, mask=mask, other=0.0)
    tl.store(out + row * 2 * half + columns, tl.cos(angle), mask=mask)
    tl.store(out + row * 2 * half + half + columns, tl.sin(angle), mask=mask)


def fourier(bandwidth: Tensor, frequencies: Tensor) -> Tensor:
    """Compute [cos(ω log σ), sin(ω log σ)], see `carre.networks.pointwise.fourier_features`."""
    half = len(frequencies)
    out = torch.empty((len(bandwidth), 2 * half), dtype=frequencies.dtype, device=bandwidth.device)
    block = triton.next_power_of_2(half)
    _fourier[(len(bandwidth),)](bandwidth.contiguous(), frequencies, out, half, BLOCK=block, num_warps=1)
    return out


def _tile(width: int) -> dict[str, int]:
    """Return a tile of whole rows, of a few thousand numbers."""
    block = triton.next_power_of_2(width)
    return {"ROWS": max(1, _ELEMENTS // block), "BLOCK": block}


class ModulatedNorm(torch.autograd.Function):
    """LN(h)·(1 + scale) + shift and h itself, see `carre.networks.pointwise.modulated_norm`."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, modulation: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """Normalize and modulate; the modulation may be a slice of a wider matrix."""
        hidden = hidden.contiguous()
        n_rows, width = hidden.shape
        out, tile = torch.empty_like(hidden), _tile(width)
        grid = (triton.cdiv(n_rows, tile["ROWS"]),)
        _norm_forward[grid](hidden, modulation, out, n_rows, width, modulation.stride(0), epsilon, **tile)
        ctx.save_for_backward(hidden, modulation)
        ctx.epsilon = epsilon
        return out, hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, through: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        """Return the gradients of h (both ways joined) and of the modulation."""
        hidden, modulation = ctx.saved_tensors
        n_rows, width = hidden.shape
        hidden_gradient = torch.empty_like(hidden)
        modulation_gradient = torch.empty((n_rows, 2 * width), dtype=modulation.dtype, device=hidden.device)
        tile = _tile(width)
        grid = (triton.cdiv(n_rows, tile["ROWS"]),)
        inputs = gradient.contiguous(), through.contiguous(), hidden, modulation
        outputs = hidden_gradient, modulation_gradient
        _norm_backward[grid](*inputs, *outputs, n_rows, width, modulation.stride(0), ctx.epsilon, **tile)
        return *outputs, None


class GatedSilu(torch.autograd.Function):
    """SiLU(a)·b of [a, b] = pair + bias, see `carre.networks.pointwise.gated_linear`."""

    @staticmethod
    def forward(ctx: Any, pair: Tensor, bias: Tensor) -> Tensor:
        """Compute the gated values."""
        pair = pair.contiguous()
        ctx.save_for_backward(pair, bias)
        width = pair.shape[1] // 2
        out = torch.empty((len(pair), width), dtype=pair.dtype, device=pair.device)
        _gate_forward[(triton.cdiv(out.numel(), 1024),)](pair, bias, out, out.numel(), width, BLOCK=1024)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return the gradients of the pair and of the bias."""
        pair, bias = ctx.saved_tensors
        n_rows, width = len(pair), pair.shape[1] // 2
        rows_each = _TILE_ROWS * max(1, triton.cdiv(n_rows, _TILE_ROWS * _ROW_STRIPS))
        n_strips = triton.cdiv(n_rows, rows_each)
        pair_gradient = torch.empty_like(pair)
        partial = torch.empty((n_strips, 2 * width), dtype=torch.float32, device=pair.device)
        grid, tile = (n_strips, triton.cdiv(width, 128)), {"ROWS": _TILE_ROWS, "COLUMNS": 128}
        inputs = gradient.contiguous(), pair, bias
        _gate_backward[grid](*inputs, pair_gradient, partial, n_rows, width, rows_each, **tile)
        return pair_gradient, partial.sum(0).to(bias.dtype)


@triton.jit
def _activation_forward(
    image, modulation, out, n_pixels, width, stride, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
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
def _activation_tangent(
    image, tangent, modulation, out, n_pixels, width, stride, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    picture = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    inside = columns < width
    mask = (rows < n_pixels) & inside
    place = (picture * n_pixels + rows) * width + columns
    h = tl.load(image + place, mask=mask, other=0.0).to(tl.float32)
    t = tl.load(tangent + place, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(modulation + picture * stride + columns, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(modulation + picture * stride + width + columns, mask=inside, other=0.0).to(tl.float32)
    centered = tl.where(mask, h - tl.sum(h, 1)[:, None] / width, 0.0)
    deviation = tl.rsqrt(tl.sum(centered * centered, 1)[:, None] / width + epsilon)
    normed = centered * deviation
    along = tl.sum(normed * t, 1)[:, None] / width
    change = (t - tl.sum(t, 1)[:, None] / width - normed * along) * deviation * (1.0 + scale)
    value = normed * (1.0 + scale) + shift
    open_ = tl.sigmoid(value)
    result = change * open_ * (1.0 + value * (1.0 - open_))
    tl.store(out + place, result.to(out.dtype.element_ty), mask=mask)


def activation_tangent(image: Tensor, tangent: Tensor, modulation: Tensor, epsilon: float) -> Tensor:
    """Compute the derivative of SiLU(LN(x)·(1 + scale) + shift) over channels along ẋ."""
    pixels, moved = _pixels(image), _pixels(tangent)
    batch, height, width, channels = pixels.shape
    out = torch.empty_like(pixels)
    grid, tile = _picture_tiles(batch, height * width, channels)
    sizes = height * width, channels, modulation.stride(0)
    _activation_tangent[grid](pixels, moved, modulation, out, *sizes, epsilon, **tile)
    return out.permute(0, 3, 1, 2)


@triton.jit
def _activation_backward(
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


def _picture_tiles(batch: int, n_pixels: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Cut every picture into tiles of a few thousand numbers."""
    block = triton.next_power_of_2(width)
    rows = min(max(1, _PICTURE_ELEMENTS // block), triton.next_power_of_2(n_pixels))
    return (batch, triton.cdiv(n_pixels, rows)), {"ROWS": rows, "BLOCK": block}


def _pixels(image: Tensor) -> Tensor:
    """Give channels the last place in memory; no copy where they have it."""
    return image.permute(0, 2, 3, 1).contiguous()


class ModulatedActivation(torch.autograd.Function):
    """SiLU(LN(x)·(1 + scale) + shift) over channels, and x itself, see `modulated_activation` there."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, modulation: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """Normalize, modulate, activate; the modulation may be a slice of a wider matrix."""
        pixels = _pixels(image)
        batch, height, width, channels = pixels.shape
        out = torch.empty_like(pixels)
        grid, tile = _picture_tiles(batch, height * width, channels)
        sizes = height * width, channels, modulation.stride(0)
        _activation_forward[grid](pixels, modulation, out, *sizes, epsilon, **tile)
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
        grid, tile = _picture_tiles(batch, height * width, channels)
        partial = torch.empty((batch, grid[1], 2 * channels), dtype=torch.float32, device=pixels.device)
        inputs, sizes = (_pixels(gradient), _pixels(through), pixels, modulation), (height * width, channels)
        _activation_backward[grid](*inputs, back, partial, *sizes, modulation.stride(0), ctx.epsilon, **tile)
        return back.permute(0, 3, 1, 2), partial.sum(1).to(modulation.dtype), None
