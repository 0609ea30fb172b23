"""What every oracle answers: samples, tangent spaces, and the exact posterior at any bandwidth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.manifolds.arguments import checked_bandwidth, checked_points
from carre.metric import LowRankMetric

if TYPE_CHECKING:
    from carre.manifolds.embedded import Embedded
    from carre.manifolds.noisy import Noisy


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

    @abstractmethod
    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n points from the distribution."""

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
        """Place the manifold in R^D by a random rotation, and a Gaussian shift of deviation ``shift``."""
        from carre.manifolds.embedded import Embedded  # noqa: PLC0415  (a subclass of this class)

        return Embedded.random(self, ambient_dim, generator=generator, shift=shift)

    def noisy(self, level: float) -> Noisy:
        """Add Gaussian noise of standard deviation ``level`` in every ambient direction."""
        from carre.manifolds.noisy import Noisy  # noqa: PLC0415  (a subclass of this class)

        return Noisy(self, level)

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
