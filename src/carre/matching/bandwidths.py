"""Distributions of the bandwidth σ that a model is trained on.

Each is given by its quantile function, so that a batch can be stratified: one draw from each of
n equal slices of probability has the same law on average, and less variance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import ArgumentError


@dataclass(frozen=True)
class BandwidthDistribution(ABC):
    """A distribution of σ between two scales, for the training loop to draw from by quantiles.

    Attributes:
        low: The smallest σ that is drawn.
        high: The largest σ that is drawn.

    Example:
        >>> isinstance(LogUniform(0.01, 1.0), BandwidthDistribution)
        True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0.0 < self.low < self.high < math.inf):
            raise ArgumentError("bandwidth range", "satisfy 0 < low < high", got=f"low={self.low}, high={self.high}")

    @abstractmethod
    def quantile(self, levels: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return the σ below which the given shares of all draws lie."""


def stratified_levels(
    n: int, *, generator: torch.Generator | None = None, device: torch.device | None = None
) -> Float[Tensor, " n"]:
    """Draw one uniform number in each of n equal slices of (0, 1)."""
    slices = torch.arange(n, device=device, dtype=torch.float32)
    return (slices + torch.rand(n, generator=generator, device=device)).div(n).clamp(1e-7, 1 - 1e-7)


@dataclass(frozen=True)
class Uniform(BandwidthDistribution):
    """σ uniform on [low, high] (the paper's released image models).

    Example:
        >>> Uniform(1.0, 3.0).quantile(torch.tensor([0.0, 0.5, 1.0]))
        tensor([1., 2., 3.])
    """

    def quantile(self, levels: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return low + (high − low)·u."""
        return self.low + (self.high - self.low) * levels


@dataclass(frozen=True)
class LogUniform(BandwidthDistribution):
    """log σ uniform on [log low, log high]: every scale gets the same share. The default.

    Example:
        >>> LogUniform(0.01, 1.0).quantile(torch.tensor([0.0, 0.5, 1.0]))
        tensor([0.0100, 0.1000, 1.0000])
    """

    def quantile(self, levels: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return low·(high/low)^u."""
        return self.low * torch.exp(math.log(self.high / self.low) * levels)


@dataclass(frozen=True)
class LogNormal(BandwidthDistribution):
    """log σ ~ N(mean, deviation²), clamped to [low, high] [RMM, App. E.1]. The paper prints ε; it means σ.

    Example:
        >>> LogNormal(0.01, 2.0, mean=0.0).quantile(torch.tensor([0.0, 0.5, 1.0]))  # the median is exp(mean)
        tensor([0.0100, 1.0000, 2.0000])
    """

    mean: float = -1.2
    deviation: float = 1.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.deviation > 0:
            raise ArgumentError("deviation", "be positive", got=self.deviation)

    def quantile(self, levels: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return exp(mean + deviation·Φ⁻¹(u)), clamped."""
        return torch.exp(self.mean + self.deviation * torch.special.ndtri(levels)).clamp(self.low, self.high)
