"""The metric that is everything but a few directions: the identity less a low-rank matrix."""

from __future__ import annotations

import math
import operator
from dataclasses import FrozenInstanceError
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from carre.metric.low_rank import LowRankMetric
from carre.metric.spectrum import Spectrum, batched_eigh


class ComplementMetric(LowRankMetric):
    """A batch of matrices G = cI − HᵀH + λI, positive semi-definite since ‖H‖² ≤ c, never formed.

    Every method answers what it answers for a `LowRankMetric`, from the k rows of H alone. Only
    ``factor``, the square root √(cI − HᵀH), and the eigenvectors have D rows: they are formed when asked
    for, and cost D² numbers per point.

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
    level: float

    def __init__(self, removed: Tensor, level: float = 1.0, ridge: float = 0.0) -> None:
        if removed.ndim < 2 or not 1 <= removed.shape[-2] <= removed.shape[-1]:
            raise ValueError(
                f"removed must have shape (..., k, dim) with k between 1 and dim; got {tuple(removed.shape)}"
            )
        if not (level >= 0.0 and ridge >= 0.0):
            raise ValueError(f"level and ridge must be at least 0, or G would not be positive; got {level} and {ridge}")
        largest = _largest_square(removed.detach())
        if not largest <= level * (1 + 1e3 * torch.finfo(removed.dtype).eps):
            raise ValueError(
                f"removed must have a squared norm of at most level, {level:g}, or G would not be positive; "
                f"got {largest:g}"
            )
        for name, value in (("removed", removed), ("level", level), ("ridge", ridge)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    @property
    def factor(self) -> Float[Tensor, "*batch dim dim"]:
        """The symmetric square root of cI − HᵀH: G = FᵀF + λI here as well. Costs D² numbers per point.

        Example:
            >>> ComplementMetric(torch.tensor([[[0.6, 0.0]]])).factor.round(decimals=4)  # √(1 − 0.36)
            tensor([[[0.8000, 0.0000],
                     [0.0000, 1.0000]]])
        """
        identity = torch.eye(self.dim, dtype=self.removed.dtype, device=self.removed.device)
        return math.sqrt(self.level) * identity - self.removed.mT @ self._root_weights() @ self.removed

    @property
    def rank(self) -> int:
        """The number of rows of the factor: D."""
        return self.dim

    @property
    def dim(self) -> int:
        """The ambient dimension D."""
        return self.removed.shape[-1]

    def __repr__(self) -> str:
        shape, k = tuple(self.removed.shape[:-2]), self.removed.shape[-2]
        return (
            f"ComplementMetric(batch={shape}, removed={k}, dim={self.dim}, level={self.level:g}, ridge={self.ridge:g})"
        )

    def __len__(self) -> int:
        return self.removed.shape[0]

    def __getitem__(self, index: Any) -> ComplementMetric:
        """Select points; the rows and columns of H stay."""
        if isinstance(index, tuple) and sum(part is not None for part in index) > self.removed.ndim - 2:
            raise IndexError(f"index must select points, of which there are {self.removed.ndim - 2} axes; got {index}")
        return ComplementMetric(self.removed[index], self.level, self.ridge)

    def to(self, *args: Any, **kwargs: Any) -> ComplementMetric:
        """Move to a device or dtype, with the arguments of `torch.Tensor.to`."""
        return ComplementMetric(self.removed.to(*args, **kwargs), self.level, self.ridge)

    def detach(self) -> ComplementMetric:
        """Cut the metric out of the autograd graph."""
        return ComplementMetric(self.removed.detach(), self.level, self.ridge)

    def with_ridge(self, ridge: float) -> ComplementMetric:
        """Return the metric cI − HᵀH + λI for another λ."""
        return ComplementMetric(self.removed, self.level, ridge)

    def scaled(self, scale: float) -> ComplementMetric:
        """Return scale·G, for scale ≥ 0."""
        if not scale >= 0.0:
            raise ValueError(f"scale must be at least 0; got {scale}")
        return ComplementMetric(self.removed * math.sqrt(scale), self.level * scale, self.ridge * scale)

    def apply(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Compute Gv."""
        return self._total * vectors - self._push(self._pull(vectors))

    def solve(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Compute G⁻¹v by Woodbury's identity, t⁻¹[v + Hᵀ(tI − HHᵀ)⁻¹Hv] with t = c + λ.

        Example:
            >>> ComplementMetric(torch.tensor([[[0.6, 0.0]]])).solve(torch.tensor([[0.64, 1.0]]))
            tensor([[1., 1.]])
        """
        small = self._small()
        if bool((batched_eigh(small)[0] <= torch.finfo(small.dtype).eps * self._total).any()):
            raise ValueError(
                "ridge must be positive to invert G, which vanishes along a direction; "
                "call metric.with_ridge(1e-3).solve(...)"
            )
        return (vectors + self._push(torch.linalg.solve(small, self._pull(vectors)))) / self._total

    def inner_product(
        self, left: Float[Tensor, "*batch dim"], right: Float[Tensor, "*batch dim"]
    ) -> Float[Tensor, "*batch"]:
        """Compute vᵀGw."""
        return self._total * (left * right).sum(-1) - (self._pull(left) * self._pull(right)).sum(-1)

    def frobenius_product(self, other: LowRankMetric) -> Float[Tensor, "*batch"]:
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
        identity = torch.eye(self.dim, dtype=self.removed.dtype, device=self.removed.device)
        return self._total * identity - self.removed.mT @ self.removed

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

    def spectrum(self) -> Spectrum:
        """Decompose G completely. The first D − k eigenvectors are any basis of a space of equal eigenvalues."""
        k = self.removed.shape[-2]
        orthonormal, triangular = torch.linalg.qr(self.removed.mT, mode="complete")
        _, rotation = batched_eigh(triangular[..., :k, :] @ triangular[..., :k, :].mT)
        vectors = torch.cat([orthonormal[..., k:], orthonormal[..., :k] @ rotation], dim=-1)
        return Spectrum(self.eigenvalues(), vectors, floor=self.ridge)

    def tangent_basis(self, dim: int) -> Float[Tensor, "*batch ambient dim"]:
        """Compute an orthonormal basis of the ``dim`` leading eigenvectors, where these lead: dim ≥ D − k.

        Example:
            >>> metric = ComplementMetric(torch.tensor([[[1.0, 0.0]]]))
            >>> metric.tangent_basis(1).abs()  # all but the direction that is removed
            tensor([[[0.],
                     [1.]]])
        """
        try:
            dim = operator.index(dim)
        except TypeError as error:
            raise ValueError(f"dim must be one integer for all points; got {dim!r}") from error
        least = max(1, self.dim - self.removed.shape[-2])
        if not least <= dim <= self.dim:
            raise ValueError(
                f"dim must lie between {least} and {self.dim}: the first {least} eigenvalues of this metric are equal, "
                f"so that fewer directions do not lead; got {dim}. Take another field for tangent spaces"
            )
        return self.spectrum().vectors[..., :dim]

    def sample(self, n_draws: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "draws *batch dim"]:
        """Draw v ~ N(0, G) as √(cI − HᵀH)ξ + √λ ξ', ``n_draws`` vectors per point."""
        shape = (n_draws, *self.removed.shape[:-2], self.dim)
        options: dict[str, Any] = {"dtype": self.removed.dtype, "device": self.removed.device, "generator": generator}
        noise = torch.randn(shape, **options)
        weighted = torch.einsum("...kl,...l->...k", self._root_weights(), self._pull(noise))
        draws = math.sqrt(self.level) * noise - self._push(weighted)
        if self.ridge > 0.0:
            draws = draws + math.sqrt(self.ridge) * torch.randn(shape, **options)
        return draws

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
        gram = self.removed @ self.removed.mT
        return self._total * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device) - gram

    def _root_weights(self) -> Tensor:
        """Compute M = (√c I + √(cI − HHᵀ))⁻¹, with which √(cI − HᵀH) = √c I − HᵀMH: smooth also where H = 0."""
        squares, vectors = _squares(self.removed)
        roots = math.sqrt(self.level) + (self.level - squares).clamp_min(0).sqrt()
        return (vectors / roots.clamp_min(torch.finfo(roots.dtype).tiny).unsqueeze(-2)) @ vectors.mT


def _squares(rows: Float[Tensor, "*batch k dim"]) -> tuple[Float[Tensor, "*batch k"], Float[Tensor, "*batch k k"]]:
    """Decompose HHᵀ: the squared singular values of H, ascending, and its left singular vectors."""
    values, vectors = batched_eigh(rows @ rows.mT)
    return values.clamp_min(0), vectors


def _largest_square(rows: Float[Tensor, "*batch k dim"]) -> float:
    """Compute the largest ‖H‖² of the batch, nan where H is not finite; 0 for no points."""
    if not bool(torch.isfinite(rows).all()):
        return float("nan")
    return float(_squares(rows)[0].max()) if rows.numel() else 0.0
