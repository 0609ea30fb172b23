"""Distributions of the bandwidth σ that a model is trained on.

Each is given by its quantile function, so that a batch can be stratified: one draw from each of
n equal slices of probability has the same law on average, and less variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class BandwidthDistribution(Protocol):
    """What the training loop needs of a distribution of σ.

    Example:
        >>> isinstance(LogUniform(0.01, 1.0), BandwidthDistribution)
        True
    """

    @property
    def low(self) -> float:
        """The smallest σ that is drawn."""
        ...

    @property
    def high(self) -> float:
        """The largest σ that is drawn."""
        ...

    def quantile(self, levels: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return the σ below which the given shares of all draws lie."""
        ...


def stratified_levels(
    n: int, *, generator: torch.Generator | None = None, device: torch.device | None = None
) -> Float[Tensor, " n"]:
    """Draw one uniform number in each of n equal slices of (0, 1)."""
    slices = torch.arange(n, device=device, dtype=torch.float32)
    return (slices + torch.rand(n, generator=generator, device=device)).div(n).clamp(1e-7, 1 - 1e-7)


def _check_range(low: float, high: float) -> None:
    if not (0.0 < low < high < math.inf):
        raise ValueError(f"bandwidth range must satisfy 0 < low < high; got low={low}, high={high}")


@dataclass(frozen=True)
class Uniform:
    """σ uniform on [low, high] (the paper's released image models).

    Example:
        >>> Uniform(1.0, 3.0).quantile(torch.tensor([0.0, 0.5, 1.0]))
        tensor([1., 2., 3.])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    def quantile(self, levels: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return low + (high − low)·u."""
        return self.low + (self.high - self.low) * levels


@dataclass(frozen=True)
class LogUniform:
    """log σ uniform on [log low, log high]: every scale gets the same share. The default.

    Example:
        >>> LogUniform(0.01, 1.0).quantile(torch.tensor([0.0, 0.5, 1.0]))
        tensor([0.0100, 0.1000, 1.0000])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    def quantile(self, levels: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return low·(high/low)^u."""
        return self.low * torch.exp(math.log(self.high / self.low) * levels)


@dataclass(frozen=True)
class LogNormal:
    """log σ ~ N(mean, deviation²), clamped to [low, high] [RMM, App. E.1]. The paper prints ε; it means σ.

    Example:
        >>> LogNormal(0.01, 2.0, mean=0.0).quantile(torch.tensor([0.0, 0.5, 1.0]))  # the median is exp(mean)
        tensor([0.0100, 1.0000, 2.0000])
    """

    low: float
    high: float
    mean: float = -1.2
    deviation: float = 1.2

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if not self.deviation > 0:
            raise ValueError(f"deviation must be positive; got {self.deviation}")

    def quantile(self, levels: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return exp(mean + deviation·Φ⁻¹(u)), clamped."""
        return torch.exp(self.mean + self.deviation * torch.special.ndtri(levels)).clamp(self.low, self.high)
