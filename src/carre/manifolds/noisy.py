"""A manifold seen through ambient noise."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds.arguments import checked_positive
from carre.manifolds.draws import standard_normal
from carre.manifolds.manifold import Manifold, Posterior
from carre.metric import LowRankMetric


class Noisy(Manifold):
    """The law of X₀ + τW for X₀ on a clean manifold and W standard Gaussian in the ambient space.

    The posterior is exact: G_σ = (τ²/S²) I + (σ²/S²) G_S of the clean manifold, S² = σ² + τ²
    [THEORY §1, data noise]. Dimension, tangent spaces and distances are those of the clean manifold,
    at its points.

    Args:
        manifold: The clean manifold.
        level: τ.

    Example:
        >>> from carre.manifolds import Sphere
        >>> east = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        >>> metric = Noisy(Sphere(1), 0.1).posterior(east, 0.1).metric
        >>> metric.eigenvalues().round(decimals=1)  # noise of deviation σ is half a dimension
        tensor([[1.0000, 0.5000]], dtype=torch.float64)
    """

    def __init__(self, manifold: Manifold, level: float) -> None:
        super().__init__(manifold.ambient_dim, 0)
        self.manifold = manifold
        self.level = checked_positive("level", level)

    @property
    def dimension(self) -> int:
        """The dimension of the clean manifold."""
        return self.manifold.dimension

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n noisy points."""
        clean = self.manifold.sample(n, generator=generator, dtype=dtype)
        return clean + self.level * standard_normal(*clean.shape, generator=generator, dtype=dtype)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        return self.manifold._tangent_basis(points)

    def _tangent_projector(self, points: Tensor) -> Tensor:
        return self.manifold._tangent_projector(points)

    def _local_dimension(self, points: Tensor) -> Tensor:
        return self.manifold._local_dimension(points)

    def _distance(self, points: Tensor) -> Tensor:
        return self.manifold._distance(points)

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        total = torch.sqrt(bandwidth.square() + self.level**2)
        clean = self.manifold._posterior(points, total)
        share = (bandwidth / total).square().unsqueeze(-1)
        identity = torch.eye(self.ambient_dim).to(points)
        isotropic = (self.level / total)[:, None, None] * identity
        factor = torch.cat([(bandwidth / total)[:, None, None] * clean.metric.factor, isotropic], dim=1)
        return Posterior(clean.log_evidence, points + share * (clean.mean - points), LowRankMetric(factor))
