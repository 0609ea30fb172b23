"""Gaussians, of full rank or on an affine subspace."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds.arguments import checked_orthonormal
from carre.manifolds.draws import standard_normal
from carre.manifolds.manifold import Manifold, Posterior
from carre.metric import LowRankMetric

# Eigenvalues below this share of the largest are rounding: the Gaussian is flat there.
_RELATIVE_TOLERANCE = 1e-12


class SubspaceGaussian(Manifold):
    """The Gaussian N(μ, B diag(v) Bᵀ) on the affine subspace μ + span(B).

    G = B diag(v/(v + σ²)) Bᵀ at every point [THEORY §2a].

    Args:
        basis: B, with orthonormal columns.
        variances: v, one positive number per column.
        mean: μ; the origin by default.

    Example:
        >>> line = SubspaceGaussian(torch.tensor([[0.6], [0.8]]).double(), torch.tensor([3.0]))
        >>> line.posterior(torch.zeros(1, 2), 1.0).metric.eigenvalues()  # 3/(3 + σ²)
        tensor([[0.7500]])
        >>> line.distance(torch.tensor([[-0.8, 0.6]]))
        tensor([1.])
    """

    def __init__(
        self,
        basis: Float[Tensor, "dim rank"],
        variances: Float[Tensor, " rank"],
        mean: Float[Tensor, " dim"] | None = None,
    ) -> None:
        super().__init__(basis.shape[0], basis.shape[1])
        self.basis = checked_orthonormal("basis", basis)
        self.variances = variances.double()
        self.mean = torch.zeros(basis.shape[0]).double() if mean is None else mean.double()
        if self.variances.shape != (self.dimension,) or not bool((self.variances > 0).all()):
            raise ValueError(f"variances must be {self.dimension} positive numbers; got {variances.tolist()}")
        if self.mean.shape != (self.ambient_dim,):
            raise ValueError(f"mean must have shape ({self.ambient_dim},); got {tuple(self.mean.shape)}")

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n points."""
        draws = standard_normal(n, self.dimension, generator=generator, dtype=dtype)
        scaled = self.basis.to(draws) * self.variances.to(draws).sqrt()
        return self.mean.to(draws) + draws @ scaled.mT

    def _tangent_basis(self, points: Tensor) -> Tensor:
        return self.basis.to(points).expand(len(points), -1, -1)

    def _distance(self, points: Tensor) -> Tensor:
        _, normal = self._split(points)
        distance: Tensor = torch.linalg.vector_norm(normal, dim=-1)
        return distance

    def _split(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Split y − μ into coordinates along the subspace and the vector normal to it."""
        basis = self.basis.to(points)
        centered = points - self.mean.to(points)
        along = centered @ basis
        return along, centered - along @ basis.mT

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        basis, prior = self.basis.to(points), self.variances.to(points)
        noise = bandwidth.square().unsqueeze(-1)
        along, normal = self._split(points)
        total = prior + noise
        gain = prior / total
        mean = self.mean.to(points) + (gain * along) @ basis.mT
        exponent = (along.square() / total).sum(-1) + (normal.square() / noise).sum(-1)
        codimension = self.ambient_dim - self.dimension
        log_volume = torch.log(2 * math.pi * total).sum(-1) + codimension * torch.log(2 * math.pi * noise[:, 0])
        factor = gain.sqrt().unsqueeze(-1) * basis.mT
        return Posterior(-0.5 * (exponent + log_volume), mean, LowRankMetric(factor))


class Gaussian(SubspaceGaussian):
    """The Gaussian N(μ, Σ), where Σ may be singular: its dimension is the rank of Σ.

    Args:
        mean: μ.
        covariance: Σ, symmetric and positive semi-definite.

    Example:
        >>> ellipsoid = Gaussian(torch.zeros(3), torch.diag(torch.tensor([3.0, 1.0, 0.0])))
        >>> ellipsoid.dimension
        2
        >>> ellipsoid.posterior(torch.zeros(1, 3), 1.0).metric.eigenvalues()  # Σ/(Σ + σ²)
        tensor([[0.7500, 0.5000]])
    """

    def __init__(self, mean: Float[Tensor, " dim"], covariance: Float[Tensor, "dim dim"]) -> None:
        covariance = covariance.double()
        if not torch.allclose(covariance, covariance.mT):
            raise ValueError("covariance must be symmetric; got a matrix that differs from its transpose")
        values, vectors = torch.linalg.eigh(covariance)
        largest = float(values.max())
        if not float(values.min()) >= -1e-9 * abs(largest) or not largest > 0:
            raise ValueError(
                f"covariance must be positive semi-definite and not zero; got eigenvalues {values.tolist()}"
            )
        kept = values > _RELATIVE_TOLERANCE * largest
        super().__init__(vectors[:, kept], values[kept], mean)
