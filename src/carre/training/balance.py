"""What each scale counts in the metric loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.matching import BandwidthDistribution

# Samples whose inner products the variances come from: a weight need not be exact.
_N_SAMPLES = 1024
# Variances below this share of the largest are rounding.
_NEGLIGIBLE = 1e-10


@dataclass(frozen=True, eq=False)
class BalancedScales:
    """Weights w(σ) of the metric loss with which every scale counts the same.

    At its optimum the loss is −‖G‖²_F. For Gaussian data that is −Σᵢ (λᵢ/(λᵢ + σ²))², over as many of the leading
    variances λ as G has rows: from their number, where σ is small, it falls to nearly nothing, and without a weight the
    few directions that are left at large scales would not be learned beside the many at small ones. w is the number of
    variances over that sum; where they are all equal, it is the 1/c_G⁴ of THEORY §3.6.

    Attributes:
        variances: λ, positive and descending, at most one per row of the factor, in the units of the samples that are
            trained on. Without any, every scale has the weight 1.

    Example:
        >>> balance = BalancedScales(torch.tensor([1.0, 1.0]))
        >>> balance(torch.tensor([0.01, 1.0, 3.0])).round(decimals=2)  # (1 + σ²)²
        tensor([  1.,   4., 100.])
    """

    variances: Float[Tensor, " rank"]

    @classmethod
    def of(cls, samples: Float[Tensor, "n dim"], rank: int) -> BalancedScales:
        """Measure the variances of centered samples; the first ones serve, so shuffle if their order means something.

        Example:
            >>> corners = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
            >>> BalancedScales.of(corners, 1).variances
            tensor([2.])
        """
        some = samples[:_N_SAMPLES].double()
        # Of the smaller of the two: they share all values that are not zero.
        products = some @ some.mT if len(some) <= some.shape[1] else some.mT @ some
        values = torch.linalg.eigvalsh(products / len(some)).flip(0).clamp_min(0)[:rank]
        # A direction without any variance has no posterior either, at no scale.
        return cls(values[values > _NEGLIGIBLE * values[:1]].to(samples.dtype))

    def __call__(self, bandwidth: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Compute w(σ)."""
        if len(self.variances) == 0:
            return torch.ones_like(bandwidth)
        shrinkage = self.variances / (self.variances + bandwidth.square()[:, None])
        return len(self.variances) / shrinkage.square().sum(1)

    def between(self, bandwidths: BandwidthDistribution) -> list[float]:
        """Return w at both ends of a range, as plain values."""
        ends: list[float] = self(self.variances.new_tensor([bandwidths.low, bandwidths.high])).tolist()
        return ends
