"""What every oracle answers: samples, tangent spaces, and the exact posterior at any bandwidth."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import ArgumentError
from carre.metric import LowRankMetric

Options: TypeAlias = dict[str, Any]
"""How random numbers are drawn, for `torch.randn` and `torch.rand`: their generator, dtype and device."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known of X ~ p once Y = X + σZ was seen at y. A batch of points y, one answer each.

    Attributes:
        log_evidence: log p_σ(y), with every constant. Its gradient is (m − y)/σ² (Tweedie).
        mean: m(y) = E[X | Y=y].
        metric: G = Cov[X | Y=y]/σ² = ∂m/∂y in factor form, without ridge. Tends to the tangent projector.

    Example:
        >>> from carre.manifolds import Gaussian
        >>> line = Gaussian(torch.zeros(2), torch.diag(torch.tensor([3.0, 0.0])))
        >>> posterior = line.posterior(torch.ones(1, 2, dtype=torch.float64), 1.0)
        >>> posterior.mean  # Σ/(Σ + σ²) of y
        tensor([[0.7500, 0.0000]], dtype=torch.float64)
        >>> posterior.metric.eigenvalues()
        tensor([[0.7500]], dtype=torch.float64)
    """

    log_evidence: Float[Tensor, " batch"]
    mean: Float[Tensor, "batch dim"]
    metric: LowRankMetric


class Manifold(ABC):
    """A probability distribution on a manifold in R^D whose geometry is known.

    Everything is batched over points, works in the dtype and on the device of ``points``, and is
    differentiable in them. Subclasses implement the underscored methods, which may trust their shapes.

    Attributes:
        ambient_dim: D.

    Example:
        >>> from carre.manifolds import Sphere
        >>> sphere = Sphere(2).embed(5)  # turned at random
        >>> sphere.dimension, sphere.ambient_dim
        (2, 5)
        >>> bool((sphere.distance(sphere.sample(10)) < 1e-12).all())
        True
        >>> sphere.distance(torch.zeros(1, 5))
        tensor([1.])
    """

    def __init__(self, ambient_dim: int, dimension: int) -> None:
        self.ambient_dim = ambient_dim
        self._dimension = dimension

    @property
    def dimension(self) -> int:
        """The intrinsic dimension d."""
        return self._dimension

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n points from the distribution."""
        return self._sample(n, _options(generator, dtype))

    def tangent_basis(self, points: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim d"]:
        """Compute an orthonormal basis (as columns) of the tangent space at points of the manifold."""
        return self._tangent_basis(checked_points(points, self.ambient_dim))

    def tangent_projector(self, points: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim dim"]:
        """Compute the orthogonal projector on the tangent space at points of the manifold."""
        return self._tangent_projector(checked_points(points, self.ambient_dim))

    def local_dimension(self, points: Float[Tensor, "batch dim"]) -> Int[Tensor, " batch"]:
        """Return the dimension of the manifold at each of its points."""
        return self._local_dimension(checked_points(points, self.ambient_dim))

    def distance(self, points: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
        """Compute the Euclidean distance from any points to the manifold."""
        return self._distance(checked_points(points, self.ambient_dim))

    def posterior(self, points: Float[Tensor, "batch dim"], bandwidth: float | Float[Tensor, " batch"]) -> Posterior:
        """Compute the exact law of X given Y = X + σZ at any points, on the manifold or not [THEORY §2].

        Args:
            points: Where Y was seen.
            bandwidth: The standard deviation σ, one for all points or one per point.
        """
        points = checked_points(points, self.ambient_dim)
        return self._posterior(points, checked_bandwidth(bandwidth, points))

    def embed(self, ambient_dim: int, *, generator: torch.Generator | None = None, shift: float = 0.0) -> Embedded:
        """Place the manifold in R^D by a uniform random rotation, and a Gaussian shift of deviation ``shift``."""
        if ambient_dim < self.ambient_dim:
            raise ArgumentError("ambient_dim", f"be at least {self.ambient_dim}", got=ambient_dim)
        options = _options(generator, torch.float64)
        orthogonal, triangular = torch.linalg.qr(torch.randn(ambient_dim, ambient_dim, **options))
        # With the signs of R's diagonal the distribution of Q is uniform (Mezzadri).
        basis = (orthogonal * triangular.diagonal().sign())[:, : self.ambient_dim]
        return Embedded(self, basis, shift * torch.randn(ambient_dim, **options))

    def noisy(self, level: float) -> Noisy:
        """Add Gaussian noise of standard deviation ``level`` in every ambient direction."""
        return Noisy(self, level)

    @abstractmethod
    def _sample(self, n: int, options: Options) -> Tensor: ...

    @abstractmethod
    def _tangent_basis(self, points: Tensor) -> Tensor: ...

    @abstractmethod
    def _distance(self, points: Tensor) -> Tensor: ...

    def _tangent_projector(self, points: Tensor) -> Tensor:
        basis = self._tangent_basis(points)
        return basis @ basis.mT

    def _local_dimension(self, points: Tensor) -> Tensor:
        return torch.full(points.shape[:1], self.dimension, device=points.device)

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        raise NotImplementedError(
            f"{type(self).__name__} has no closed posterior; use FiniteSet(manifold.sample(n)) with a large n"
        )


class Embedded(Manifold):
    """The image of a manifold under u ↦ shift + Bu, where B has orthonormal columns [THEORY §2d].

    Args:
        manifold: The manifold in its own space R^{D₀}.
        basis: B.
        shift: Where its origin goes; the origin by default.

    Example:
        >>> from carre.manifolds import Sphere
        >>> circle = Embedded(Sphere(1), torch.eye(3)[:, :2], shift=torch.tensor([0.0, 0.0, 5.0]))
        >>> circle.distance(torch.tensor([[1.0, 0.0, 0.0]]))
        tensor([5.])
        >>> circle.tangent_basis(torch.tensor([[1.0, 0.0, 5.0]])).abs().squeeze()
        tensor([0., 1., 0.])
    """

    def __init__(
        self, manifold: Manifold, basis: Float[Tensor, "dim inner"], shift: Float[Tensor, " dim"] | None = None
    ) -> None:
        if basis.shape[1] != manifold.ambient_dim:
            must = f"have {manifold.ambient_dim} columns, one per coordinate of the manifold"
            raise ArgumentError("basis", must, got=basis.shape[1])
        super().__init__(basis.shape[0], 0)
        self.manifold = manifold
        self.basis, self.shift = checked_basis(basis), checked_origin("shift", shift, self.ambient_dim)

    @property
    def dimension(self) -> int:
        """The dimension of the manifold."""
        return self.manifold.dimension

    def _sample(self, n: int, options: Options) -> Tensor:
        inner = self.manifold._sample(n, options)
        return self.shift.to(inner) + inner @ self.basis.to(inner).mT

    def _split(self, points: Tensor) -> tuple[Tensor, Tensor]:
        return split(points, self.basis, self.shift)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        return self.basis.to(points) @ self.manifold._tangent_basis(self._split(points)[0])

    def _tangent_projector(self, points: Tensor) -> Tensor:
        basis = self.basis.to(points)
        return basis @ self.manifold._tangent_projector(self._split(points)[0]) @ basis.mT

    def _local_dimension(self, points: Tensor) -> Tensor:
        return self.manifold._local_dimension(self._split(points)[0])

    def _distance(self, points: Tensor) -> Tensor:
        inner, normal = self._split(points)
        return torch.hypot(self.manifold._distance(inner), torch.linalg.vector_norm(normal, dim=-1))

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        basis = self.basis.to(points)
        inner, normal = self._split(points)
        posterior = self.manifold._posterior(inner, bandwidth)
        noise = bandwidth.square()
        codimension = self.ambient_dim - self.manifold.ambient_dim
        log_normal = -normal.square().sum(-1) / (2 * noise) - 0.5 * codimension * torch.log(2 * math.pi * noise)
        return Posterior(
            posterior.log_evidence + log_normal,
            self.shift.to(points) + posterior.mean @ basis.mT,
            LowRankMetric(posterior.metric.factor @ basis.mT),
        )


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

    def _sample(self, n: int, options: Options) -> Tensor:
        clean = self.manifold._sample(n, options)
        return clean + self.level * torch.randn(clean.shape, **options)

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
        identity = torch.eye(self.ambient_dim, dtype=points.dtype, device=points.device)
        isotropic = (self.level / total)[:, None, None] * identity
        factor = torch.cat([(bandwidth / total)[:, None, None] * clean.metric.factor, isotropic], dim=1)
        return Posterior(clean.log_evidence, points + share * (clean.mean - points), LowRankMetric(factor))


def _options(generator: torch.Generator | None, dtype: torch.dtype) -> Options:
    return {"generator": generator, "dtype": dtype, "device": None if generator is None else generator.device}


def checked_points(points: Tensor, ambient_dim: int) -> Tensor:
    """Check that points are a batch in R^D."""
    if points.ndim != 2 or points.shape[1] != ambient_dim:
        raise ArgumentError("points", f"have shape (batch, {ambient_dim})", got=tuple(points.shape))
    if not points.is_floating_point():
        raise ArgumentError("points", "be floating point", got=points.dtype)
    return points


def checked_bandwidth(bandwidth: float | Tensor, points: Tensor) -> Float[Tensor, " batch"]:
    """Check a bandwidth and return one value per point."""
    values = torch.as_tensor(bandwidth, dtype=points.dtype, device=points.device)
    if values.shape not in ((), points.shape[:1]):
        must = f"be a number or have shape ({len(points)},), one per point"
        raise ArgumentError("bandwidth", must, got=f"shape {tuple(values.shape)}")
    if not bool((values > 0).all()):
        raise ArgumentError("bandwidth", "be positive", got=float(values.min()))
    return values.expand(points.shape[:1])


def checked_positive(name: str, value: float) -> float:
    """Check that a length given to a constructor is positive and finite."""
    if not 0.0 < value < float("inf"):
        raise ArgumentError(name, "be positive", got=value)
    return float(value)


def checked_basis(basis: Float[Tensor, "dim rank"]) -> Float[Tensor, "dim rank"]:
    """Check that the columns of a basis are orthonormal, and return it in float64."""
    wide = basis.double()
    gram = wide.mT @ wide
    error = float((gram - torch.eye(len(gram)).to(gram)).abs().max())
    if not error < 1e-6:
        must = "have orthonormal columns (take torch.linalg.qr)"
        raise ArgumentError("basis", must, got=f"an error of {error:.1e}")
    return wide


def checked_origin(name: str, origin: Tensor | None, dim: int) -> Float[Tensor, " dim"]:
    """Check the point of R^D that an origin goes to, and return it in float64; None for the origin itself."""
    wide = torch.zeros(dim).double() if origin is None else origin.double()
    if wide.shape != (dim,):
        raise ArgumentError(name, f"have shape ({dim},)", got=tuple(wide.shape))
    return wide


def split(points: Tensor, basis: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
    """Split y − origin into its coordinates along a basis, and the vector normal to that."""
    basis = basis.to(points)
    centered = points - origin.to(points)
    along = centered @ basis
    return along, centered - along @ basis.mT
