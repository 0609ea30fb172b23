"""The metric as a value: a batch of low-rank symmetric matrices that is never formed."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.metric.spectrum import Spectrum, batched_eigh

# Below this ratio to the largest eigenvalue, FᵀV/√λ has lost orthogonality in float32 (error ~ eps·λ₁/λ).
_SAFE_RATIO = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class LowRankMetric:
    """A batch of symmetric positive semi-definite matrices G = FᵀF + λI, one per point, never formed.

    The rows of ``factor`` are the r vectors whose outer products sum to G. Every method works in
    rank space and costs O(r²D) per point at most; only `dense` is O(D²). Strictly speaking G is a
    cometric: it raises covectors, ∇f = G ∂f.

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
            raise ValueError(f"factor must have shape (..., rank, dim); got {tuple(self.factor.shape)}")
        if not self.ridge >= 0.0:
            raise ValueError(f"ridge must be at least 0, or G would not be positive; got {self.ridge}")

    @property
    def rank(self) -> int:
        """The number of rows of the factor."""
        return self.factor.shape[-2]

    @property
    def dim(self) -> int:
        """The ambient dimension D."""
        return self.factor.shape[-1]

    def __repr__(self) -> str:
        shape = tuple(self.factor.shape[:-2])
        return f"LowRankMetric(batch={shape}, rank={self.rank}, dim={self.dim}, ridge={self.ridge:g})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Give NumPy the dense matrices."""
        matrices: np.ndarray = self.dense().detach().cpu().numpy()
        return matrices if dtype is None else matrices.astype(dtype)

    def __len__(self) -> int:
        return self.factor.shape[0]

    def __getitem__(self, index: Any) -> LowRankMetric:
        """Select points; the factor's own two axes stay."""
        if isinstance(index, tuple) and sum(part is not None for part in index) > self.factor.ndim - 2:
            raise IndexError(f"index must select points, of which there are {self.factor.ndim - 2} axes; got {index}")
        return LowRankMetric(self.factor[index], self.ridge)

    def to(self, *args: Any, **kwargs: Any) -> LowRankMetric:
        """Move to a device or dtype, with the arguments of `torch.Tensor.to`."""
        return LowRankMetric(self.factor.to(*args, **kwargs), self.ridge)

    def detach(self) -> LowRankMetric:
        """Cut the metric out of the autograd graph."""
        return LowRankMetric(self.factor.detach(), self.ridge)

    def with_ridge(self, ridge: float) -> LowRankMetric:
        """Return the metric FᵀF + λI for another λ."""
        return LowRankMetric(self.factor, ridge)

    def scaled(self, scale: float) -> LowRankMetric:
        """Return scale·G, for scale ≥ 0. The paper's carré du champ is ``scaled(0.5)``.

        Example:
            >>> LowRankMetric(torch.eye(2)[None]).scaled(0.5).dense()
            tensor([[[0.5000, 0.0000],
                     [0.0000, 0.5000]]])
        """
        if not scale >= 0.0:
            raise ValueError(f"scale must be at least 0; got {scale}")
        return LowRankMetric(self.factor * scale**0.5, self.ridge * scale)

    def apply(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Compute Gv. With v = ∂f this is the intrinsic gradient of f [RMM, Sec. 4.3]."""
        coefficients = torch.einsum("...rd,...d->...r", self.factor, vectors)
        return torch.einsum("...rd,...r->...d", self.factor, coefficients) + self.ridge * vectors

    def solve(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Compute G⁻¹v by Woodbury's identity, λ⁻¹[v − Fᵀ(FFᵀ + λI)⁻¹Fv].

        Example:
            >>> metric = LowRankMetric(torch.tensor([[[1.0, 0.0]]]), ridge=0.25)  # diag(1.25, 0.25)
            >>> metric.solve(torch.tensor([[5.0, 1.0]]))
            tensor([[4., 4.]])
        """
        if self.ridge == 0.0:
            raise ValueError("ridge must be positive to invert G; call metric.with_ridge(1e-3).solve(...)")
        if self.rank > self.dim:
            solution: Tensor = torch.linalg.solve(self.dense(), vectors)
            return solution
        coefficients = torch.einsum("...rd,...d->...r", self.factor, vectors)
        identity = torch.eye(self.rank, dtype=self.factor.dtype, device=self.factor.device)
        inner = torch.linalg.solve(self.gram() + self.ridge * identity, coefficients)
        return (vectors - torch.einsum("...rd,...r->...d", self.factor, inner)) / self.ridge

    def inner_product(
        self, left: Float[Tensor, "*batch dim"], right: Float[Tensor, "*batch dim"]
    ) -> Float[Tensor, "*batch"]:
        """Compute vᵀGw. With v = ∂f and w = ∂h this is 2Γ(f, h) by the chain rule [RMM, Eq. 13].

        Example:
            >>> metric = LowRankMetric(torch.tensor([[[1.0, 0.0]]]))
            >>> metric.inner_product(torch.tensor([[2.0, 7.0]]), torch.tensor([[3.0, 9.0]]))
            tensor([6.])
        """
        left_rank = torch.einsum("...rd,...d->...r", self.factor, left)
        right_rank = torch.einsum("...rd,...d->...r", self.factor, right)
        return (left_rank * right_rank).sum(-1) + self.ridge * (left * right).sum(-1)

    def quadratic_form(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
        """Compute vᵀGv."""
        return self.inner_product(vectors, vectors)

    def frobenius_product(self, other: LowRankMetric) -> Float[Tensor, "*batch"]:
        """Compute tr(GH) for another metric H on the same points.

        Example:
            >>> floor, wall = (LowRankMetric(torch.eye(3)[None, rows]) for rows in ([0, 1], [1, 2]))
            >>> floor.frobenius_product(wall)  # of two projectors: Σ cos² of the angles between them
            tensor([1.])
        """
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
        identity = torch.eye(self.dim, dtype=self.factor.dtype, device=self.factor.device)
        return self.factor.mT @ self.factor + self.ridge * identity

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
            raise ValueError("ridge must be positive for G to have a determinant; call metric.with_ridge(1e-3)")
        identity = torch.eye(self.rank, dtype=self.factor.dtype, device=self.factor.device)
        return (self.dim - self.rank) * math.log(self.ridge) + _log_determinant(self.gram() + self.ridge * identity)

    def spectrum(self) -> Spectrum:
        """Decompose G in rank space: min(r, D) leading eigenvalues, descending, and orthonormal eigenvectors.

        The eigenvectors are orthonormal also where eigenvalues vanish or coincide: Fᵀ = QR first,
        then the small R is decomposed.
        """
        orthonormal, triangular = torch.linalg.qr(self.factor.mT)
        left, singular, _ = torch.linalg.svd(triangular, full_matrices=False)
        return Spectrum(singular.square() + self.ridge, orthonormal @ left, floor=self.ridge)

    def tangent_basis(self, dim: int) -> Float[Tensor, "*batch ambient dim"]:
        """Compute an orthonormal basis (as columns) of the ``dim`` leading eigenvectors of G.

        Takes the fast r×r route (eigenvectors of FFᵀ pushed through Fᵀ) where that is accurate in the
        working precision, and the orthogonal one of `spectrum` at points where it is not.

        Example:
            >>> LowRankMetric(torch.tensor([[[3.0, 4.0]]])).tangent_basis(1).abs()
            tensor([[[0.6000],
                     [0.8000]]])
        """
        try:
            dim = operator.index(dim)
        except TypeError as error:
            raise ValueError(f"dim must be one integer for all points; got {dim!r}") from error
        leading = min(self.rank, self.dim)
        if not 1 <= dim <= leading:
            remedy = "" if self.rank >= self.dim else ". Fit with a larger rank to ask for more directions"
            raise ValueError(
                f"dim must lie between 1 and {leading} (rank {self.rank} in dimension {self.dim}); got {dim}{remedy}"
            )
        if self.rank > self.dim:
            return batched_eigh(self.factor.mT @ self.factor)[1][..., -dim:].flip(-1)
        factor = self.factor.reshape(-1, self.rank, self.dim)
        values, vectors = batched_eigh(factor @ factor.mT)
        values, vectors = values[:, -dim:].flip(-1), vectors[..., -dim:].flip(-1)
        unsafe = values[:, -1] <= _SAFE_RATIO * values[:, 0].clamp_min(torch.finfo(factor.dtype).tiny)
        pushed = factor.mT @ vectors
        basis = _orthonormalize(pushed / values.clamp_min(torch.finfo(factor.dtype).tiny).sqrt().unsqueeze(-2))
        if bool(unsafe.any()):
            basis = basis.clone()
            basis[unsafe] = LowRankMetric(factor[unsafe]).spectrum().vectors[..., :dim]
        return basis.reshape(*self.factor.shape[:-2], self.dim, dim)

    def sample(self, n_draws: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "draws *batch dim"]:
        """Draw v ~ N(0, G), ``n_draws`` vectors per point (the paper prints N(x, Γ) for it).

        Example:
            >>> metric, rng = LowRankMetric(torch.tensor([[[3.0, 4.0]]])), torch.Generator().manual_seed(0)
            >>> draws = metric.sample(1000, generator=rng)
            >>> bool(torch.allclose(4 * draws[..., 0], 3 * draws[..., 1], atol=1e-4))  # all along (3, 4)
            True
        """
        shape = (n_draws, *self.factor.shape[:-1])
        options: dict[str, Any] = {"dtype": self.factor.dtype, "device": self.factor.device, "generator": generator}
        draws = torch.einsum("...rd,...r->...d", self.factor, torch.randn(shape, **options))
        if self.ridge > 0.0:
            draws = draws + self.ridge**0.5 * torch.randn(draws.shape, **options)
        return draws


def _log_determinant(matrices: Float[Tensor, "*batch k k"]) -> Float[Tensor, "*batch"]:
    """Compute log det of positive matrices; NaN for those that are not, or not finite."""
    root, failed = torch.linalg.cholesky_ex(matrices)
    logarithms: Tensor = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.where(failed == 0, 2 * logarithms, torch.nan)


def _orthonormalize(basis: Float[Tensor, "batch dim k"]) -> Float[Tensor, "batch dim k"]:
    """Polish nearly orthonormal columns by one Newton–Schulz step, U(3I − UᵀU)/2: products only."""
    return 1.5 * basis - 0.5 * basis @ (basis.mT @ basis)
