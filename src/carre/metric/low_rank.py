"""The metric as a value: a batch of low-rank symmetric matrices that is never formed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import ArgumentError
from carre.metric.metric import Metric, checked_dimension
from carre.metric.spectrum import Spectrum, batched_eigh, decompose

# Below this ratio to the largest eigenvalue, FᵀV/√λ has lost orthogonality in float32 (error ~ eps·λ₁/λ).
_SAFE_RATIO = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class LowRankMetric(Metric):
    """A batch of symmetric positive semi-definite matrices G = FᵀF + λI, one per point, never formed.

    The rows of ``factor`` are the r vectors whose outer products sum to G. Every method works in
    rank space and costs O(r²D) per point at most; only `dense` is O(D²).

    Attributes:
        factor: The rows of F.
        ridge: The floor λ ≥ 0 under every eigenvalue. G is invertible when λ > 0.

    Example:
        >>> metric = LowRankMetric(torch.tensor([[[2.0, 0.0, 0.0]]]), ridge=0.5)
        >>> metric.apply(torch.tensor([[1.0, 1.0, 0.0]]))
        tensor([[4.5000, 0.5000, 0.0000]])
        >>> metric.trace()
        tensor([5.5000])
    """

    factor: Float[Tensor, "*batch rank dim"]
    ridge: float = 0.0

    def __post_init__(self) -> None:
        if self.factor.ndim < 2:
            raise ArgumentError("factor", "have shape (..., rank, dim)", got=tuple(self.factor.shape))
        if not self.ridge >= 0.0:
            raise ArgumentError("ridge", "be at least 0, or G would not be positive", got=self.ridge)

    @property
    def _rows(self) -> Float[Tensor, "*batch rank dim"]:
        return self.factor

    def _with(self, rows: Float[Tensor, "*batch rank dim"], ridge: float) -> LowRankMetric:
        return LowRankMetric(rows, ridge)

    @property
    def rank(self) -> int:
        """The number of rows of the factor."""
        return self.factor.shape[-2]

    def __repr__(self) -> str:
        shape = tuple(self.factor.shape[:-2])
        return f"LowRankMetric(batch={shape}, rank={self.rank}, dim={self.dim}, ridge={self.ridge:g})"

    def _scaled(self, scale: float) -> LowRankMetric:
        return LowRankMetric(self.factor * scale**0.5, self.ridge * scale)

    def apply(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Compute Gv. With v = ∂f this is the intrinsic gradient of f [RMM, Sec. 4.3]."""
        coefficients = torch.einsum("...rd,...d->...r", self.factor, vectors)
        return torch.einsum("...rd,...r->...d", self.factor, coefficients) + self.ridge * vectors

    def solve(self, vectors: Float[Tensor, "*batch_and_more dim"]) -> Float[Tensor, "*batch_and_more dim"]:
        """Compute G⁻¹v by Woodbury's identity, λ⁻¹[v − Fᵀ(FFᵀ + λI)⁻¹Fv], for one vector per point or several.

        Example:
            >>> metric = LowRankMetric(torch.tensor([[[1.0, 0.0]]]), ridge=0.25)  # diag(1.25, 0.25)
            >>> metric.solve(torch.tensor([[5.0, 1.0]]))
            tensor([[4., 4.]])
        """
        if self.ridge == 0.0:
            raise ArgumentError("ridge", "be positive to invert G; call metric.with_ridge(1e-3).solve(...)")
        if vectors.ndim < self.factor.ndim:
            return self.solve(vectors.unsqueeze(-2)).squeeze(-2)
        if self.rank > self.dim:
            solution: Tensor = torch.linalg.solve(self.dense(), vectors.mT).mT
            return solution
        small = self.gram() + self.ridge * self._identity(self.rank)
        inner: Tensor = torch.linalg.solve(small, self.factor @ vectors.mT)
        return (vectors - inner.mT @ self.factor) / self.ridge

    def congruence(
        self, left: Float[Tensor, "*batch k dim"], right: Float[Tensor, "*batch l dim"]
    ) -> Float[Tensor, "*batch k l"]:
        """Compute AGBᵀ = (AFᵀ)(BFᵀ)ᵀ + λABᵀ for matrices A and B at each point."""
        product = (left @ self.factor.mT) @ (right @ self.factor.mT).mT
        return product if self.ridge == 0.0 else product + self.ridge * (left @ right.mT)

    def inner_product(
        self, left: Float[Tensor, "*batch dim"], right: Float[Tensor, "*batch dim"]
    ) -> Float[Tensor, "*batch"]:
        """Compute vᵀGw = (Fv)·(Fw) + λv·w. With v = ∂f and w = ∂h this is 2Γ(f, h) by the chain rule [RMM, Eq. 13]."""
        left_rank = torch.einsum("...rd,...d->...r", self.factor, left)
        right_rank = torch.einsum("...rd,...d->...r", self.factor, right)
        return (left_rank * right_rank).sum(-1) + self.ridge * (left * right).sum(-1)

    def frobenius_product(self, other: Metric) -> Float[Tensor, "*batch"]:
        """Compute tr(GH) for another metric H on the same points.

        Example:
            >>> floor, wall = (LowRankMetric(torch.eye(3)[None, rows]) for rows in ([0, 1], [1, 2]))
            >>> floor.frobenius_product(wall)  # of two projectors: Σ cos² of the angles between them
            tensor([1.])
        """
        if not isinstance(other, LowRankMetric):
            return other.frobenius_product(self)
        cross = torch.einsum("...rd,...sd->...rs", self.factor, other.factor).square().sum((-2, -1))
        if self.ridge == other.ridge == 0.0:
            return cross
        traces = self.ridge * other.factor.square().sum((-2, -1)) + other.ridge * self.factor.square().sum((-2, -1))
        return cross + traces + self.ridge * other.ridge * self.dim

    def trace(self) -> Float[Tensor, "*batch"]:
        """Compute tr G = ‖F‖²_F + λD."""
        return self.factor.square().sum((-2, -1)) + self.ridge * self.dim

    def squared_norm(self) -> Float[Tensor, "*batch"]:
        """Compute ‖G‖²_F = ‖FFᵀ‖²_F + 2λ‖F‖²_F + λ²D."""
        frobenius = self.gram().square().sum((-2, -1))
        if self.ridge == 0.0:
            return frobenius
        return frobenius + 2 * self.ridge * self.factor.square().sum((-2, -1)) + self.ridge**2 * self.dim

    def gram(self) -> Float[Tensor, "*batch rank rank"]:
        """Compute FFᵀ, which shares its non-zero eigenvalues with FᵀF."""
        return self.factor @ self.factor.mT

    def dense(self) -> Float[Tensor, "*batch dim dim"]:
        """Form G as D×D matrices. Costs D² numbers per point: for small D and for tests."""
        self._check_room_for_dense()
        return self.factor.mT @ self.factor + self.ridge * self._identity(self.dim)

    def eigenvalues(self) -> Float[Tensor, "*batch leading"]:
        """Compute the min(r, D) leading eigenvalues of G, descending, to an absolute error of eps·λ₁.

        Example:
            >>> LowRankMetric(torch.tensor([[[3.0, 4.0]]]), ridge=0.5).eigenvalues()
            tensor([[25.5000]])
        """
        small = self.gram() if self.rank <= self.dim else self.factor.mT @ self.factor
        values, _ = batched_eigh(small)
        return values.flip(-1).clamp_min(0) + self.ridge

    def log_determinant(self) -> Float[Tensor, "*batch"]:
        """Compute log det G, by a Cholesky factor of the small matrix; needs a ridge where the rank is below D.

        Example:
            >>> metric = LowRankMetric(torch.tensor([[[1.0, 0.0]]]), ridge=0.25)  # diag(1.25, 0.25)
            >>> metric.log_determinant().exp()
            tensor([0.3125])
        """
        if self.rank >= self.dim:
            return _log_determinant(self.dense())
        if self.ridge == 0.0:
            raise ArgumentError("ridge", "be positive for G to have a determinant; call metric.with_ridge(1e-3)")
        small = self.gram() + self.ridge * self._identity(self.rank)
        return (self.dim - self.rank) * math.log(self.ridge) + _log_determinant(small)

    def inverse_trace(self) -> Float[Tensor, "*batch"]:
        """Compute tr G⁻¹ from the small matrix; needs a ridge where the rank is below D.

        Example:
            >>> LowRankMetric(torch.tensor([[[1.0, 0.0]]]), ridge=0.25).inverse_trace()  # 1/1.25 + 1/0.25
            tensor([4.8000])
        """
        if self.rank >= self.dim:
            return _inverse_trace(self.dense())
        if self.ridge == 0.0:
            raise ArgumentError("ridge", "be positive to invert G; call metric.with_ridge(1e-3)")
        return (self.dim - self.rank) / self.ridge + _inverse_trace(
            self.gram() + self.ridge * self._identity(self.rank)
        )

    def spectrum(self) -> Spectrum:
        """Decompose G in rank space: min(r, D) leading eigenvalues, descending, and orthonormal eigenvectors.

        The eigenvectors are orthonormal also where eigenvalues vanish or coincide: Fᵀ = QR first,
        then the small R is decomposed.
        """
        orthonormal, triangular = torch.linalg.qr(self.factor.mT)
        left, singular, _ = decompose(partial(torch.linalg.svd, full_matrices=False), triangular)
        return Spectrum(singular.square() + self.ridge, orthonormal @ left, floor=self.ridge)

    def tangent_basis(self, dimension: int) -> Float[Tensor, "*batch dim dimension"]:
        """Compute an orthonormal basis (as columns) of the leading eigenvectors of G, as many as ``dimension``.

        Takes the fast r×r route (eigenvectors of FFᵀ pushed through Fᵀ) where that is accurate in the
        working precision, and the orthogonal one of `spectrum` at points where it is not.

        Example:
            >>> LowRankMetric(torch.tensor([[[3.0, 4.0]]])).tangent_basis(1).abs()
            tensor([[[0.6000],
                     [0.8000]]])
        """
        remedy = "" if self.rank >= self.dim else "Fit with a larger rank to ask for more directions"
        reason = f"rank {self.rank} in dimension {self.dim}"
        dimension = checked_dimension(dimension, 1, min(self.rank, self.dim), reason, remedy=remedy)
        if self.rank > self.dim:
            return batched_eigh(self.factor.mT @ self.factor)[1][..., -dimension:].flip(-1)
        factor = self.factor.reshape(-1, self.rank, self.dim)
        values, vectors = batched_eigh(factor @ factor.mT)
        values, vectors = values[:, -dimension:].flip(-1), vectors[..., -dimension:].flip(-1)
        unsafe = values[:, -1] <= _SAFE_RATIO * values[:, 0].clamp_min(torch.finfo(factor.dtype).tiny)
        pushed = factor.mT @ vectors
        basis = _orthonormalize(pushed / values.clamp_min(torch.finfo(factor.dtype).tiny).sqrt().unsqueeze(-2))
        if bool(unsafe.any()):
            basis = basis.clone()
            basis[unsafe] = LowRankMetric(factor[unsafe]).spectrum().vectors[..., :dimension]
        return basis.reshape(*self.factor.shape[:-2], self.dim, dimension)

    def _sample(self, normal: Callable[..., Tensor]) -> Tensor:
        return torch.einsum("...rd,...r->...d", self.factor, normal(*self.factor.shape[:-1]))


def _log_determinant(matrices: Float[Tensor, "*batch k k"]) -> Float[Tensor, "*batch"]:
    """Compute log det of positive matrices; NaN for those that are not, or not finite."""
    root, failed = torch.linalg.cholesky_ex(matrices)
    logarithms: Tensor = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.where(failed == 0, 2 * logarithms, torch.nan)


def _inverse_trace(matrices: Float[Tensor, "*batch k k"]) -> Float[Tensor, "*batch"]:
    """Compute tr A⁻¹ = ‖L⁻¹‖²_F of positive matrices A = LLᵀ; NaN for those that are not, or not finite."""
    root, failed = torch.linalg.cholesky_ex(matrices)
    identity = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device).expand_as(root)
    inverse: Tensor = torch.linalg.solve_triangular(root, identity, upper=False)
    return torch.where(failed == 0, inverse.square().sum((-2, -1)), torch.nan)


def _orthonormalize(basis: Float[Tensor, "batch dim k"]) -> Float[Tensor, "batch dim k"]:
    """Polish nearly orthonormal columns by one Newton–Schulz step, U(3I − UᵀU)/2: products only."""
    return 1.5 * basis - 0.5 * basis @ (basis.mT @ basis)
