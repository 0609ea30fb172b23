"""The parts of a U-Net: convolutions, residual blocks modulated by the bandwidth, attention.

Images are (batch, channels, height, width) in channels-last memory, which is what convolutions in bfloat16 want.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from carre.networks.pointwise import layer_norm, modulated_activation
from carre.networks.tangents import join_dual, split_dual

_HEAD_CHANNELS = 64


class Convolution(nn.Module):
    """A convolution that keeps the size of the image, or halves it.

    The weight is stored as (out, k, k, in), so that it is in channels-last memory however the optimizer lays out its
    buffers.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        size: k, 1 or 3.
        stride: 1, or 2 to halve the image.
        deviation: Standard deviation of the initial weights; None keeps the variance of the input, 0 starts at zero.
        bias_deviation: Standard deviation of the initial bias; None for no bias.
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
        return join_dual(result, functional.conv2d(tangent, weight, stride=self.stride, padding=self.padding))


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
    """Attend by the fused kernel; spelled out where it is differentiated forward or transformed, which that cannot."""
    is_transformed = torch._C._functorch.is_functorch_wrapped_tensor(query)
    is_dual = forward_ad.unpack_dual(query).tangent is not None  # type: ignore[no-untyped-call]
    if not (is_transformed or is_dual):
        return functional.scaled_dot_product_attention(query, key, value)
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value
