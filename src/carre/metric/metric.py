"""What every metric answers, whatever it is made of."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.arguments import as_kind
from carre.backend.memory import check_room
from carre.boundary import ArgumentError
from carre.metric.spectrum import Spectrum

_Kind = TypeVar("_Kind", bound="Metric")


class Metric(ABC):
    """A batch of symmetric positive semi-definite matrices G, one per point, never formed.

    `LowRankMetric` and `ComplementMetric` are its two kinds: few directions, or all but a few. Strictly speaking G is a
    cometric: it raises covectors, ∇f = G ∂f.

    Attributes:
        ridge: The floor λ ≥ 0 under every eigenvalue.

    Example:
        >>> from carre.metric import ComplementMetric, LowRankMetric
        >>> along, across = LowRankMetric(torch.eye(2)[None, :1]), ComplementMetric(torch.eye(2)[None, 1:])
        >>> torch.equal(along.dense(), across.dense())
        True
    """

    ridge: float

    @property
    @abstractmethod
    def _rows(self) -> Float[Tensor, "*batch k dim"]:
        """The numbers that the metric is made of."""

    @abstractmethod
    def _with(self: _Kind, rows: Float[Tensor, "*batch k dim"], ridge: float) -> _Kind:
        """Make a metric of the same kind from other numbers."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """How many directions have eigenvalues of their own, of which `eigenvalues` returns min(rank, D)."""

    @property
    def dim(self) -> int:
        """The ambient dimension D."""
        return self._rows.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return self._rows.dtype

    @property
    def device(self) -> torch.device:
        """Where its numbers are."""
        return self._rows.device

    def __len__(self) -> int:
        return self._rows.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Give NumPy the dense matrices."""
        matrices: np.ndarray = self.dense().detach().cpu().numpy()
        return matrices if dtype is None else matrices.astype(dtype)

    def __getitem__(self: _Kind, index: Any) -> _Kind:
        """Select points; the two axes of the matrices stay."""
        axes = self._rows.ndim - 2
        if isinstance(index, tuple) and sum(part is not None for part in index) > axes:
            raise IndexError(f"index must select points, of which there are {axes} axes; got {index}")
        return self._with(self._rows[index], self.ridge)

    def joined(self: _Kind, *others: _Kind) -> _Kind:
        """Put the points of several metrics of one kind behind one another."""
        for other in others:
            as_kind(other, (type(self),), name="others")
            if other._rows.shape[1:] != self._rows.shape[1:]:
                must, got = f"have factors of shape {tuple(self._rows.shape[1:])}", tuple(other._rows.shape[1:])
                raise ArgumentError("others", must, got=got)
        return self._with(torch.cat([self._rows, *(other._rows for other in others)]), self.ridge)

    def to(self: _Kind, *args: Any, **kwargs: Any) -> _Kind:
        """Move to a device or dtype, with the arguments of `torch.Tensor.to`."""
        return self._with(self._rows.to(*args, **kwargs), self.ridge)

    def detach(self: _Kind) -> _Kind:
        """Cut the metric out of the autograd graph."""
        return self._with(self._rows.detach(), self.ridge)

    def cleaned(self: _Kind) -> tuple[_Kind, Bool[Tensor, "*batch"]]:
        """Put zeros where a point has numbers that are not finite; return also where all were finite.

        Example:
            >>> from carre.metric import LowRankMetric
            >>> metric, known = LowRankMetric(torch.tensor([[[1.0, 0.0]], [[torch.nan, 0.0]]])).cleaned()
            >>> metric.trace(), known
            (tensor([1., 0.]), tensor([ True, False]))
        """
        known = torch.isfinite(self._rows).all(-1).all(-1)
        return self._with(torch.where(known[..., None, None], self._rows, 0.0), self.ridge), known

    def with_ridge(self: _Kind, ridge: float) -> _Kind:
        """Return the metric with another λ."""
        return self._with(self._rows, ridge)

    def scaled(self: _Kind, scale: float) -> _Kind:
        """Return scale·G, for scale ≥ 0. The paper's carré du champ is ``scaled(0.5)``.

        Example:
            >>> from carre.metric import LowRankMetric
            >>> LowRankMetric(torch.eye(2)[None]).scaled(0.5).dense()
            tensor([[[0.5000, 0.0000],
                     [0.0000, 0.5000]]])
        """
        if not scale >= 0.0:
            raise ArgumentError("scale", "be at least 0", got=scale)
        return self._scaled(scale)

    @abstractmethod
    def _scaled(self: _Kind, scale: float) -> _Kind: ...

    @abstractmethod
    def apply(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Compute Gv. With v = ∂f this is the intrinsic gradient of f [RMM, Sec. 4.3]."""

    @abstractmethod
    def solve(self, vectors: Float[Tensor, "*batch_and_more dim"]) -> Float[Tensor, "*batch_and_more dim"]:
        """Compute G⁻¹v by Woodbury's identity, for one vector per point or several, (..., k, D)."""

    @abstractmethod
    def congruence(
        self, left: Float[Tensor, "*batch k dim"], right: Float[Tensor, "*batch l dim"]
    ) -> Float[Tensor, "*batch k l"]:
        """Compute AGBᵀ for matrices A and B at each point."""

    def inner_product(
        self, left: Float[Tensor, "*batch dim"], right: Float[Tensor, "*batch dim"]
    ) -> Float[Tensor, "*batch"]:
        """Compute vᵀGw. With v = ∂f and w = ∂h this is 2Γ(f, h) by the chain rule [RMM, Eq. 13].

        Example:
            >>> from carre.metric import LowRankMetric
            >>> metric = LowRankMetric(torch.tensor([[[1.0, 0.0]]]))
            >>> metric.inner_product(torch.tensor([[2.0, 7.0]]), torch.tensor([[3.0, 9.0]]))
            tensor([6.])
        """
        return self.congruence(left.unsqueeze(-2), right.unsqueeze(-2))[..., 0, 0]

    def quadratic_form(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
        """Compute vᵀGv."""
        return self.inner_product(vectors, vectors)

    @abstractmethod
    def frobenius_product(self, other: Metric) -> Float[Tensor, "*batch"]:
        """Compute tr(GK) for another metric K on the same points."""

    @abstractmethod
    def trace(self) -> Float[Tensor, "*batch"]:
        """Compute tr G."""

    @abstractmethod
    def squared_norm(self) -> Float[Tensor, "*batch"]:
        """Compute ‖G‖²_F."""

    @abstractmethod
    def dense(self) -> Float[Tensor, "*batch dim dim"]:
        """Form G as D×D matrices. Costs D² numbers per point: for small D and for tests."""

    @abstractmethod
    def eigenvalues(self) -> Float[Tensor, "*batch leading"]:
        """Compute the leading eigenvalues of G, descending."""

    @abstractmethod
    def log_determinant(self) -> Float[Tensor, "*batch"]:
        """Compute log det G."""

    @abstractmethod
    def inverse_trace(self) -> Float[Tensor, "*batch"]:
        """Compute tr G⁻¹."""

    @abstractmethod
    def spectrum(self) -> Spectrum:
        """Decompose G: leading eigenvalues, descending, and orthonormal eigenvectors."""

    @abstractmethod
    def tangent_basis(self, dimension: int) -> Float[Tensor, "*batch dim dimension"]:
        """Compute an orthonormal basis (as columns) of the leading eigenvectors of G, as many as ``dimension``."""

    def sample(self, n_draws: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "draws *batch dim"]:
        """Draw v ~ N(0, G), ``n_draws`` vectors per point (the paper prints N(x, Γ) for it).

        Example:
            >>> from carre.metric import LowRankMetric
            >>> metric, rng = LowRankMetric(torch.tensor([[[3.0, 4.0]]])), torch.Generator().manual_seed(0)
            >>> draws = metric.sample(1000, generator=rng)
            >>> bool(torch.allclose(4 * draws[..., 0], 3 * draws[..., 1], atol=1e-4))  # all along (3, 4)
            True
        """

        def normal(*shape: int) -> Tensor:
            return torch.randn(n_draws, *shape, dtype=self.dtype, device=self.device, generator=generator)

        draws = self._sample(normal)
        return draws if self.ridge == 0.0 else draws + self.ridge**0.5 * normal(*draws.shape[1:])

    @abstractmethod
    def _sample(self, normal: Callable[..., Tensor]) -> Tensor:
        """Draw v ~ N(0, G − λI) from standard normal numbers, of which ``normal(*shape)`` gives some for each draw."""

    def _check_room_for_dense(self) -> None:
        rows, count = self._rows, math.prod(self._rows.shape[:-2])
        remedy = "Use what needs no dense matrices: apply, eigenvalues, tangent_basis"
        what = f"{count:,} dense matrices of {self.dim:,} x {self.dim:,}"
        check_room(count * self.dim**2 * rows.element_size(), rows.device, name="metric", what=what, remedy=remedy)

    def _identity(self, size: int) -> Float[Tensor, "size size"]:
        return torch.eye(size, dtype=self.dtype, device=self.device)


def checked_dimension(dimension: Any, least: int, most: int, reason: str, *, remedy: str = "") -> int:
    """Check a number of tangent directions.

    Example:
        >>> checked_dimension(5, 1, 3, "rank 3 in dimension 9")
        Traceback (most recent call last):
        carre.boundary.ArgumentError: dimension must lie between 1 and 3 (rank 3 in dimension 9); got 5
    """
    try:
        count = operator.index(dimension)
    except TypeError as error:
        raise ArgumentError("dimension", "be one integer for all points", got=repr(dimension)) from error
    if not least <= count <= most:
        raise ArgumentError("dimension", f"lie between {least} and {most} ({reason})", got=count, remedy=remedy)
    return count
