"""How a network sees the bandwidth."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from carre.networks.pointwise import fourier_features


class LogBandwidthEmbedding(nn.Module):
    """Fourier features of log σ, followed by one layer.

    The paper embeds σ itself, which is blind at small scales: all of σ < 0.1 looks alike. The
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
        return functional.silu(self.layer(fourier_features(bandwidth, self.frequencies)))
