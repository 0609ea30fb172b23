"""A residual MLP whose blocks are modulated by the bandwidth [RMM, App. E.3]."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from carre.networks.pointwise import (
    fourier_features,
    gated_linear,
    is_one_value,
    layer_norm,
    linear,
    modulated_norm,
    residual_linear,
    silu,
)


class LogBandwidthEmbedding(nn.Module):
    """Fourier features of log σ, followed by one layer.

    The paper embeds σ itself, which is blind at small scales: all σ < 0.1 are alike to it. The
    frequencies are the quantiles of a half-normal law, with periods from about a factor of 3 in σ
    upwards, so that G varies smoothly over scales.

    Args:
        width: Numbers per σ.

    Example:
        >>> LogBandwidthEmbedding(16)(torch.tensor([0.01, 0.1, 1.0])).shape
        torch.Size([3, 16])
    """

    frequencies: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        half = max(width // 2, 1)
        levels = 0.5 + (torch.arange(half, dtype=torch.float64) + 0.5) / (2 * half)
        self.register_buffer("frequencies", (torch.special.ndtri(levels) * math.pi / 2).float())
        self.layer = nn.Linear(2 * half, width)

    def forward(self, bandwidth: Float[Tensor, " batch"]) -> Float[Tensor, "batch width"]:
        """Embed one σ per row."""
        features = fourier_features(bandwidth, self.frequencies)
        return functional.silu(functional.linear(features, self.layer.weight, self.layer.bias))


class GatedBlock(nn.Module):
    """Residual block LN → FiLM → Linear(2H) → SiLU(a)·b → Linear(0).

    The product of two linear maps is what a radius or a curvature needs: gated blocks leave the
    linear phase of training [THEORY §3.9] in a third of the steps of plain ones.

    Example:
        >>> hidden = torch.randn(5, 8)
        >>> bool((GatedBlock(8)(hidden, torch.randn(5, 16)) == hidden).all())  # it starts with no update
        True
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rise = nn.Linear(width, 2 * width)
        self.fall = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.fall.weight)

    def forward(
        self, hidden: Float[Tensor, "batch width"], modulation: Float[Tensor, "batch twice_width"]
    ) -> Float[Tensor, "batch width"]:
        """Add the block's update; at initialization it is zero."""
        inner, hidden = modulated_norm(hidden, modulation)
        return residual_linear(hidden, gated_linear(inner, self.rise), self.fall.weight)


class PlainBlock(nn.Module):
    """The paper's residual block LN → FiLM → Linear → SiLU → LN → Linear(0).

    Example:
        >>> hidden = torch.randn(5, 8)
        >>> bool((PlainBlock(8)(hidden, torch.randn(5, 16)) == hidden).all())  # it starts with no update
        True
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rise = nn.Linear(width, width)
        self.inner_norm = nn.LayerNorm(width)
        self.fall = nn.Linear(width, width)
        nn.init.zeros_(self.fall.weight)
        nn.init.zeros_(self.fall.bias)

    def forward(
        self, hidden: Float[Tensor, "batch width"], modulation: Float[Tensor, "batch twice_width"]
    ) -> Float[Tensor, "batch width"]:
        """Add the block's update; at initialization it is zero."""
        inner, hidden = modulated_norm(hidden, modulation)
        inner = layer_norm(functional.silu(self.rise(inner)), self.inner_norm.weight, self.inner_norm.bias)
        update: Tensor = self.fall(inner)
        return hidden + update


class FilmMLP(nn.Module):
    """Map (points, σ) to features: input layer, residual blocks, norm, linear head.

    The scales and shifts of all norms come from one linear map of the embedded σ (FiLM).

    Args:
        in_features: Size of a point.
        out_features: Size of the output.
        width: Hidden width H.
        n_blocks: Number of residual blocks.
        block: `GatedBlock` (default) or `PlainBlock` (the paper's).
        head_deviation: Standard deviation of the head's initial weights; 0 makes the first output zero.

    Example:
        >>> network = FilmMLP(3, 7, width=16, n_blocks=2)
        >>> network(torch.randn(5, 3), torch.full((5,), 0.1)).shape
        torch.Size([5, 7])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        width: int,
        n_blocks: int,
        block: Callable[[int], nn.Module] = GatedBlock,
        head_deviation: float = 0.0,
    ) -> None:
        super().__init__()
        conditioning = max(width // 4, 16)
        self.embedding = LogBandwidthEmbedding(conditioning)
        self.film = nn.Linear(conditioning, (n_blocks + 1) * 2 * width, bias=False)
        self.inlet = nn.Linear(in_features, width)
        self.blocks = nn.ModuleList([block(width) for _ in range(n_blocks)])
        # No bias here either: the shift of the last norm is one.
        self.head = nn.Linear(width, out_features, bias=False)
        if head_deviation > 0:
            nn.init.normal_(self.head.weight, std=head_deviation)
        else:
            nn.init.zeros_(self.head.weight)

    def forward(
        self, points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch out"]:
        """Compute the features of noisy points."""
        # One σ for all points (an expanded scalar) is embedded once.
        distinct = bandwidth[:1] if is_one_value(bandwidth) else bandwidth
        # Plainly, without the calls of modules: for a few points these cost as much as what they compute.
        modulation = functional.linear(self.embedding(distinct), self.film.weight).expand(points.shape[0], -1)
        *modulations, last = modulation.chunk(len(self.blocks) + 1, -1)
        hidden = silu(linear(points, self.inlet.weight, self.inlet.bias))
        for block, modulation in zip(self.blocks, modulations, strict=True):
            hidden = block(hidden, modulation)
        return linear(modulated_norm(hidden, last)[0], self.head.weight)
