"""The uniform interval: the oracle with a boundary."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds.draws import standard_uniform
from carre.manifolds.manifold import Manifold, Posterior
from carre.metric import LowRankMetric


class Interval(Manifold):
    """The uniform distribution on [low, high] in R¹ [THEORY §2d'].

    The posterior is a truncated Gaussian, evaluated through logarithms of tails. It is accurate to
    about 1e-6 while the interval is longer than σ/1000 and the point nearer than 1000σ.

    Example:
        >>> points = torch.tensor([[0.5], [0.0]])
        >>> Interval(0.0, 1.0).posterior(points, 0.01).metric.trace().round(decimals=3)  # inside 1, at the edge 1 − 2/π
        tensor([1.0000, 0.3630])
    """

    def __init__(self, low: float, high: float) -> None:
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"high must be larger than low, and both finite; got low={low}, high={high}")
        super().__init__(1, 1)
        self.low, self.high = float(low), float(high)

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n points."""
        return self.low + (self.high - self.low) * standard_uniform(n, 1, generator=generator, dtype=dtype)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        return torch.ones_like(points).unsqueeze(-1)

    def _distance(self, points: Tensor) -> Tensor:
        return (points - points.clamp(self.low, self.high)).abs().squeeze(-1)

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        # In float64 throughout: far outside, the variance is a small difference of large terms.
        dtype, bandwidth = points.dtype, bandwidth.double()
        y = points.squeeze(-1).double()
        left, right = (self.low - y) / bandwidth, (self.high - y) / bandwidth
        # Reflect points below the center, so that both ends are measured by accurate lower tails.
        below = left + right > 0
        left, right = torch.where(below, -right, left), torch.where(below, -left, right)
        log_right, log_left = torch.special.log_ndtr(right), torch.special.log_ndtr(left)
        log_mass = log_right + torch.log(-torch.expm1(log_left - log_right))
        density_left, density_right = _density(left, log_mass), _density(right, log_mass)
        shift = density_left - density_right
        variance = 1 + left * density_left - right * density_right - shift.square()
        positive = variance.clamp_min(torch.finfo(y.dtype).eps)
        mean = y + bandwidth * torch.where(below, -shift, shift)
        log_evidence = log_mass - math.log(self.high - self.low)
        metric = LowRankMetric(positive.sqrt()[:, None, None].to(dtype))
        return Posterior(log_evidence.to(dtype), mean.unsqueeze(-1).to(dtype), metric)


def _density(ends: Tensor, log_mass: Tensor) -> Tensor:
    """The density of the truncated standard Gaussian, φ(α)/Z."""
    return torch.exp(-0.5 * ends.square() - log_mass) / math.sqrt(2 * math.pi)
