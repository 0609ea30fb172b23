"""A manifold placed in a larger space by a rigid motion."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds.arguments import checked_orthonormal
from carre.manifolds.draws import standard_normal
from carre.manifolds.manifold import Manifold, Posterior
from carre.metric import LowRankMetric


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
        self,
        manifold: Manifold,
        basis: Float[Tensor, "dim inner"],
        shift: Float[Tensor, " dim"] | None = None,
    ) -> None:
        if basis.shape[1] != manifold.ambient_dim:
            raise ValueError(
                f"basis must have {manifold.ambient_dim} columns, one per coordinate of the manifold; "
                f"got {basis.shape[1]}"
            )
        super().__init__(basis.shape[0], 0)
        self.manifold = manifold
        self.basis = checked_orthonormal("basis", basis)
        self.shift = torch.zeros(basis.shape[0]).double() if shift is None else shift.double()
        if self.shift.shape != (self.ambient_dim,):
            raise ValueError(f"shift must have shape ({self.ambient_dim},); got {tuple(self.shift.shape)}")

    @classmethod
    def random(
        cls,
        manifold: Manifold,
        ambient_dim: int,
        *,
        generator: torch.Generator | None = None,
        shift: float = 0.0,
    ) -> Embedded:
        """Draw a uniform rotation into R^D, and a Gaussian shift of standard deviation ``shift``."""
        if ambient_dim < manifold.ambient_dim:
            raise ValueError(f"ambient_dim must be at least {manifold.ambient_dim}; got {ambient_dim}")
        square = standard_normal(ambient_dim, ambient_dim, generator=generator, dtype=torch.float64)
        orthogonal, triangular = torch.linalg.qr(square)
        # With the signs of R's diagonal the distribution of Q is uniform (Mezzadri).
        basis = (orthogonal * triangular.diagonal().sign())[:, : manifold.ambient_dim]
        offset = shift * standard_normal(ambient_dim, generator=generator, dtype=torch.float64)
        return cls(manifold, basis, offset)

    @property
    def dimension(self) -> int:
        """The dimension of the manifold."""
        return self.manifold.dimension

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n points."""
        inner = self.manifold.sample(n, generator=generator, dtype=dtype)
        return self.shift.to(inner) + inner @ self.basis.to(inner).mT

    def _split(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Split y − shift into the manifold's own coordinates and the vector normal to its space."""
        basis = self.basis.to(points)
        centered = points - self.shift.to(points)
        inner = centered @ basis
        return inner, centered - inner @ basis.mT

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
