"""Flat manifolds: Gaussians, of full rank or on an affine subspace, and the interval, which has a boundary."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import ArgumentError
from carre.manifolds.manifold import Manifold, Options, Posterior, checked_basis, checked_origin, split
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
        self.basis, self.mean = checked_basis(basis), checked_origin("mean", mean, self.ambient_dim)
        self.variances = variances.double()
        if self.variances.shape != (self.dimension,) or not bool((self.variances > 0).all()):
            raise ArgumentError("variances", f"be {self.dimension} positive numbers", got=variances.tolist())

    def _sample(self, n: int, options: Options) -> Tensor:
        draws = torch.randn(n, self.dimension, **options)
        scaled = self.basis.to(draws) * self.variances.to(draws).sqrt()
        return self.mean.to(draws) + draws @ scaled.mT

    def _tangent_basis(self, points: Tensor) -> Tensor:
        return self.basis.to(points).expand(len(points), -1, -1)

    def _distance(self, points: Tensor) -> Tensor:
        _, normal = split(points, self.basis, self.mean)
        distance: Tensor = torch.linalg.vector_norm(normal, dim=-1)
        return distance

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        basis, prior = self.basis.to(points), self.variances.to(points)
        noise = bandwidth.square().unsqueeze(-1)
        along, normal = split(points, self.basis, self.mean)
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
        if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
            raise ArgumentError("covariance", "be a square matrix", got=f"shape {tuple(covariance.shape)}")
        if not torch.allclose(covariance, covariance.mT):
            raise ArgumentError("covariance", "be symmetric", got="a matrix that differs from its transpose")
        values, vectors = torch.linalg.eigh(covariance)
        largest = float(values.max())
        if not float(values.min()) >= -1e-9 * abs(largest) or not largest > 0:
            got = f"eigenvalues {values.tolist()}"
            raise ArgumentError("covariance", "be positive semi-definite and not zero", got=got)
        kept = values > _RELATIVE_TOLERANCE * largest
        super().__init__(vectors[:, kept], values[kept], mean)


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
            raise ArgumentError("high", "be larger than low, and both finite", got=f"low={low}, high={high}")
        super().__init__(1, 1)
        self.low, self.high = float(low), float(high)

    def _sample(self, n: int, options: Options) -> Tensor:
        return self.low + (self.high - self.low) * torch.rand(n, 1, **options)

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
