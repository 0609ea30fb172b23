"""The metric of a distribution that is known."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields.protocol import Bandwidth
from carre.manifolds import Manifold
from carre.metric import LowRankMetric


@dataclass(frozen=True)
class ExactField:
    """The exact G and posterior mean of a manifold, or of a finite dataset (`FiniteSet`).

    Example:
        >>> import torch
        >>> from carre.manifolds import Sphere
        >>> field = ExactField(Sphere(2))
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> field.metric(pole, 0.1).eigenvalues().round(decimals=3)
        tensor([[0.9900, 0.9900, 0.0100]], dtype=torch.float64)
    """

    manifold: Manifold

    @property
    def dim(self) -> int:
        """The ambient dimension D."""
        return self.manifold.ambient_dim

    def metric(self, points: Tensor, bandwidth: Bandwidth) -> LowRankMetric:
        """Compute the exact G at any point and any σ."""
        points = as_points(points, dim=self.dim).tensor
        return self.manifold.posterior(points, as_bandwidth(bandwidth, points)).metric

    def denoise(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute the exact E[X | Y=y]."""
        points = as_points(points, dim=self.dim).tensor
        return self.manifold.posterior(points, as_bandwidth(bandwidth, points)).mean
