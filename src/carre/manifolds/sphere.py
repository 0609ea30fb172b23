"""The uniform sphere."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from carre.manifolds.arguments import checked_positive
from carre.manifolds.bessel import bessel_ratio, log_normalizer
from carre.manifolds.draws import standard_normal
from carre.manifolds.manifold import Manifold, Posterior
from carre.metric import LowRankMetric


class Sphere(Manifold):
    """The uniform distribution on the sphere of a given dimension and radius around the origin of R^{d+1}.

    Args:
        dimension: d ≥ 1.
        radius: R.

    Example:
        >>> circle = Sphere(1)
        >>> circle.posterior(torch.tensor([[1.0, 0.0]]), 0.1).metric.dense().round(decimals=2)
        tensor([[[0.0100, 0.0000],
                 [0.0000, 0.9900]]])
    """

    def __init__(self, dimension: int, radius: float = 1.0) -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1; got {dimension}")
        super().__init__(dimension + 1, dimension)
        self.radius = checked_positive("radius", radius)

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n points."""
        draws = standard_normal(n, self.ambient_dim, generator=generator, dtype=dtype)
        return self.radius * normalize(draws, dim=-1)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        # The Householder reflection that sends x/|x| to the first axis; its other columns are tangent.
        direction = normalize(points, dim=-1)
        sign = torch.where(direction[:, :1] < 0, -1.0, 1.0).to(points)
        axis = normalize(torch.cat([direction[:, :1] + sign, direction[:, 1:]], dim=-1), dim=-1)
        identity = torch.eye(self.ambient_dim).to(points)
        return (identity - 2 * axis.unsqueeze(-1) * axis.unsqueeze(-2))[..., 1:]

    def _distance(self, points: Tensor) -> Tensor:
        distance: Tensor = (torch.linalg.vector_norm(points, dim=-1) - self.radius).abs()
        return distance

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        dim = self.ambient_dim
        noise = bandwidth.square()
        concentration = (self.radius / noise).square()  # κ² = concentration·|y|²
        norm2 = points.square().sum(-1)
        squared = concentration * norm2
        ratio, tilt = bessel_ratio(dim, squared)
        tangential = self.radius**2 * ratio / noise  # the eigenvalue R·A/|y| of G across y
        stretch = (1 + squared * tilt).sqrt()  # √ of the radial eigenvalue over the tangential one
        # √G = √g_tan (I + (stretch − 1) eeᵀ), written so that it is smooth at y = 0.
        radial = concentration * tilt / (stretch + 1)
        outer = points.unsqueeze(-1) * points.unsqueeze(-2)
        identity = torch.eye(dim).to(points)
        factor = tangential.sqrt()[:, None, None] * (identity + radial[:, None, None] * outer)
        log_evidence = (
            log_normalizer(dim, squared)
            - (norm2 + self.radius**2) / (2 * noise)
            - 0.5 * dim * torch.log(2 * math.pi * noise)
        )
        return Posterior(log_evidence, tangential.unsqueeze(-1) * points, LowRankMetric(factor))
