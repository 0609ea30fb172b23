"""The metric that is everything but a few directions: the identity less a low-rank matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import ArgumentError
from carre.metric.metric import Metric, checked_dimension
from carre.metric.spectrum import Spectrum, batched_eigh


@dataclass(frozen=True, eq=False, repr=False)
class ComplementMetric(Metric):
    """A batch of matrices G = cI − HᵀH + λI, positive semi-definite since ‖H‖² ≤ c, never formed.

    Every method works with the k rows of H alone; only the eigenvectors cost D² numbers per point, when asked for.

    Attributes:
        removed: The rows of H.
        level: c, the eigenvalue of all directions from which nothing is removed.
        ridge: The floor λ ≥ 0 under every eigenvalue.

    Example:
        >>> metric = ComplementMetric(torch.tensor([[[0.6, 0.0, 0.0]]]))
        >>> metric.apply(torch.tensor([[1.0, 1.0, 0.0]]))
        tensor([[0.6400, 1.0000, 0.0000]])
        >>> metric.eigenvalues()
        tensor([[1.0000, 1.0000, 0.6400]])
    """

    removed: Float[Tensor, "*batch k dim"]
    level: float = 1.0
    ridge: float = 0.0

    def __post_init__(self) -> None:
        removed, level = self.removed, self.level
        if removed.ndim < 2 or not 1 <= removed.shape[-2] <= removed.shape[-1]:
            must = "have shape (..., k, dim) with k between 1 and dim"
            raise ArgumentError("removed", must, got=tuple(removed.shape))
        if not (level >= 0.0 and self.ridge >= 0.0):
            got = f"{level} and {self.ridge}"
            raise ArgumentError("level and ridge", "be at least 0, or G would not be positive", got=got)
        # Of no points 0, and nan where H is not finite.
        squares = removed.new_tensor(torch.nan)
        if torch.isfinite(removed).all():
            squares = _squares(removed.detach())[0]
        largest = float(squares.max()) if removed.numel() else 0.0
        if not largest <= level * (1 + 1e3 * torch.finfo(removed.dtype).eps):
            must = f"have a squared norm of at most level, {level:g}, or G would not be positive"
            raise ArgumentError("removed", must, got=f"{largest:g}")

    @property
    def _rows(self) -> Float[Tensor, "*batch k dim"]:
        return self.removed

    def _with(self, rows: Float[Tensor, "*batch k dim"], ridge: float) -> ComplementMetric:
        return ComplementMetric(rows, self.level, ridge)

    @property
    def rank(self) -> int:
        """All directions have eigenvalues of their own: D."""
        return self.dim

    def __repr__(self) -> str:
        shape, numbers = tuple(self.removed.shape[:-2]), f"level={self.level:g}, ridge={self.ridge:g}"
        return f"ComplementMetric(batch={shape}, removed={self.removed.shape[-2]}, dim={self.dim}, {numbers})"

    def _scaled(self, scale: float) -> ComplementMetric:
        return ComplementMetric(self.removed * scale**0.5, self.level * scale, self.ridge * scale)

    def apply(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Compute Gv."""
        return self._total * vectors - self._push(self._pull(vectors))

    def solve(self, vectors: Float[Tensor, "*batch_and_more dim"]) -> Float[Tensor, "*batch_and_more dim"]:
        """Compute G⁻¹v by Woodbury's identity, t⁻¹[v + Hᵀ(tI − HHᵀ)⁻¹Hv] with t = c + λ.

        Example:
            >>> ComplementMetric(torch.tensor([[[0.6, 0.0]]])).solve(torch.tensor([[0.64, 1.0]]))
            tensor([[1., 1.]])
        """
        if vectors.ndim < self.removed.ndim:
            return self.solve(vectors.unsqueeze(-2)).squeeze(-2)
        small = self._small()
        if bool((batched_eigh(small)[0] <= torch.finfo(small.dtype).eps * self._total).any()):
            must = "be positive to invert G, which vanishes along a direction; call metric.with_ridge(1e-3).solve(...)"
            raise ArgumentError("ridge", must)
        inner: Tensor = torch.linalg.solve(small, self.removed @ vectors.mT)
        return (vectors + inner.mT @ self.removed) / self._total

    def congruence(
        self, left: Float[Tensor, "*batch k dim"], right: Float[Tensor, "*batch l dim"]
    ) -> Float[Tensor, "*batch k l"]:
        """Compute AGBᵀ = tABᵀ − (AHᵀ)(BHᵀ)ᵀ with t = c + λ."""
        return self._total * (left @ right.mT) - (left @ self.removed.mT) @ (right @ self.removed.mT).mT

    def frobenius_product(self, other: Metric) -> Float[Tensor, "*batch"]:
        """Compute tr(GK) = t tr K − tr HKHᵀ for another metric K on the same points."""
        product = self._total * other.trace()
        for k in range(self.removed.shape[-2]):
            product = product - other.quadratic_form(self.removed[..., k, :])
        return product

    def trace(self) -> Float[Tensor, "*batch"]:
        """Compute tr G = (c + λ)D − ‖H‖²_F."""
        return self._total * self.dim - self.removed.square().sum((-2, -1))

    def squared_norm(self) -> Float[Tensor, "*batch"]:
        """Compute ‖G‖²_F = t²(D − k) + ‖tI − HHᵀ‖²_F with t = c + λ."""
        return self._total**2 * (self.dim - self.removed.shape[-2]) + self._small().square().sum((-2, -1))

    def dense(self) -> Float[Tensor, "*batch dim dim"]:
        """Form G as D×D matrices. Costs D² numbers per point: for small D and for tests."""
        self._check_room_for_dense()
        return self._total * self._identity(self.dim) - self.removed.mT @ self.removed

    def eigenvalues(self) -> Float[Tensor, "*batch dim"]:
        """Compute all D eigenvalues of G, descending: c + λ for all directions but k."""
        lowered = self._total - _squares(self.removed)[0]
        level = lowered.new_full((), self._total).expand(*lowered.shape[:-1], self.dim - lowered.shape[-1])
        return torch.cat([level, lowered.clamp_min(self.ridge)], dim=-1)

    def log_determinant(self) -> Float[Tensor, "*batch"]:
        """Compute log det G from all of its eigenvalues.

        Example:
            >>> ComplementMetric(torch.tensor([[[0.6, 0.0]]])).log_determinant().exp()
            tensor([0.6400])
        """
        return self.eigenvalues().log().sum(-1)

    def inverse_trace(self) -> Float[Tensor, "*batch"]:
        """Compute tr G⁻¹ from all of its eigenvalues."""
        return self.eigenvalues().reciprocal().sum(-1)

    def spectrum(self) -> Spectrum:
        """Decompose G completely. The first D − k eigenvectors are any basis of a space of equal eigenvalues."""
        k = self.removed.shape[-2]
        orthonormal, triangular = torch.linalg.qr(self.removed.mT, mode="complete")
        _, rotation = batched_eigh(triangular[..., :k, :] @ triangular[..., :k, :].mT)
        vectors = torch.cat([orthonormal[..., k:], orthonormal[..., :k] @ rotation], dim=-1)
        return Spectrum(self.eigenvalues(), vectors, floor=self.ridge)

    def tangent_basis(self, dimension: int) -> Float[Tensor, "*batch dim dimension"]:
        """Compute an orthonormal basis of the leading eigenvectors, where these lead: dimension ≥ D − k.

        Example:
            >>> metric = ComplementMetric(torch.tensor([[[1.0, 0.0]]]))
            >>> metric.tangent_basis(1).abs()  # all but the direction that is removed
            tensor([[[0.],
                     [1.]]])
        """
        least = max(1, self.dim - self.removed.shape[-2])
        reason = f"the first {least} eigenvalues of this metric are equal, so that fewer directions do not lead"
        remedy = "Take another field for tangent spaces"
        dimension = checked_dimension(dimension, least, self.dim, reason, remedy=remedy)
        return self.spectrum().vectors[..., :dimension]

    def _sample(self, normal: Callable[..., Tensor]) -> Tensor:
        """Compute √(cI − HᵀH)ξ."""
        noise = normal(*self.removed.shape[:-2], self.dim)
        weighted = torch.einsum("...kl,...l->...k", self._root_weights(), self._pull(noise))
        return math.sqrt(self.level) * noise - self._push(weighted)

    @property
    def _total(self) -> float:
        """t = c + λ, the largest eigenvalue."""
        return self.level + self.ridge

    def _pull(self, vectors: Tensor) -> Tensor:
        """Compute Hv."""
        return torch.einsum("...kd,...d->...k", self.removed, vectors)

    def _push(self, coefficients: Tensor) -> Tensor:
        """Compute Hᵀa."""
        return torch.einsum("...kd,...k->...d", self.removed, coefficients)

    def _small(self) -> Tensor:
        """Compute tI − HHᵀ, which has the eigenvalues of G that differ from t."""
        return self._total * self._identity(self.removed.shape[-2]) - self.removed @ self.removed.mT

    def _root_weights(self) -> Tensor:
        """Compute M = (√c I + √(cI − HHᵀ))⁻¹, with which √(cI − HᵀH) = √c I − HᵀMH: smooth also where H = 0."""
        squares, vectors = _squares(self.removed)
        roots = math.sqrt(self.level) + (self.level - squares).clamp_min(0).sqrt()
        return (vectors / roots.clamp_min(torch.finfo(roots.dtype).tiny).unsqueeze(-2)) @ vectors.mT


def _squares(rows: Float[Tensor, "*batch k dim"]) -> tuple[Float[Tensor, "*batch k"], Float[Tensor, "*batch k k"]]:
    """Decompose HHᵀ: the squared singular values of H, ascending, and its left singular vectors."""
    values, vectors = batched_eigh(rows @ rows.mT)
    return values.clamp_min(0), vectors
