"""Eigenvalues and eigenvectors of a batch of metrics, square roots, and distances between subspaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.boundary import ArgumentError, checked_answer

# cuSOLVER's batched eigh fails with an internal error from 65,536 matrices on, whatever their size.
_EIGH_CHUNK = 32_768
# Numbers that are eliminated together, and how much they may grow: in float32 errors are then some 10⁻⁵ at most.
_ELIMINATED, _MOST_GROWTH = 2**20, 256.0


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The leading eigenpairs of a batch of metrics, and the floor under the rest.

    Attributes:
        values: Eigenvalues, descending. A tangent direction has one near 1, a normal direction near 0.
        vectors: Orthonormal eigenvectors, as columns.
        floor: The eigenvalue of every direction that is not listed (the metric's ridge).

    Example:
        >>> spectrum = Spectrum(torch.tensor([1.2, 0.9, 0.1]), torch.eye(3))
        >>> spectrum.clipped()
        tensor([1.0000, 0.9000, 0.1000])
        >>> spectrum.basis(1)
        tensor([[1.],
                [0.],
                [0.]])
    """

    values: Float[Tensor, "*batch leading"]
    vectors: Float[Tensor, "*batch dim leading"]
    floor: float = 0.0

    def clipped(self) -> Float[Tensor, "*batch leading"]:
        """Clip the eigenvalues to [0, 1]: for counting and reporting only.

        Off the data and between modes eigenvalues above 1 are right (THEORY: G → Dπ(y)), but they mean
        one dimension, not more.
        """
        return self.values.clamp(0.0, 1.0)

    def basis(self, dim: int) -> Float[Tensor, "*batch ambient dim"]:
        """Return the ``dim`` leading eigenvectors."""
        if not 1 <= dim <= self.values.shape[-1]:
            raise ArgumentError("dim", f"lie between 1 and {self.values.shape[-1]}", got=dim)
        return self.vectors[..., :dim]


def batched_eigh(
    matrices: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n n"]]:
    """Decompose symmetric matrices, eigenvalues ascending, in chunks that every backend accepts.

    Each matrix is first divided by its largest entry, and entries that are next to nothing beside it become zero:
    LAPACK fails to converge on some matrices with denormal entries, such as vanishing kernel weights give.

    Example:
        >>> batched_eigh(torch.tensor([[[2.0, 1.0], [1.0, 2.0]]]))[0]
        tensor([[1., 3.]])
    """
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    limits = torch.finfo(flat.dtype)
    size = flat.detach().abs().amax((1, 2), keepdim=True).clamp_min(limits.tiny)
    scaled = torch.nn.functional.hardshrink(flat / size, limits.eps**2)
    parts = [decompose(torch.linalg.eigh, chunk) for chunk in torch.split(scaled, _EIGH_CHUNK)]
    values = torch.cat([part[0] for part in parts]) * size[:, 0]
    vectors = torch.cat([part[1] for part in parts])
    return values.reshape(matrices.shape[:-1]), vectors.reshape(matrices.shape)


def count_above(matrices: Float[Tensor, "n k k"], threshold: float) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """Count the eigenvalues of symmetric matrices above a threshold without computing them; say where that is sure.

    By Sylvester's law of inertia these are the positive pivots of A − tI. Elimination without a choice of pivots is
    exact but for rounding, as long as nothing grows in it; where something does, the count is not sure.

    Example:
        >>> count_above(torch.diag(torch.tensor([0.9, 0.6, 0.1]))[None], 0.5)
        (tensor([2]), tensor([True]))
    """
    parts = torch.split(matrices.detach(), max(1, _ELIMINATED // matrices.shape[-1] ** 2))
    found = [_positive_pivots(part, threshold) for part in parts]
    return torch.cat([counts for counts, _ in found]), torch.cat([is_sure for _, is_sure in found])


def _positive_pivots(matrices: Float[Tensor, "n k k"], threshold: float) -> tuple[Tensor, Tensor]:
    # With the matrices along the last axis each step is a few operations on all of them.
    left = matrices.movedim(0, -1).clone()
    most = _MOST_GROWTH * (left.diagonal().abs().amax(-1) + abs(threshold))
    left.diagonal().sub_(threshold)
    counts, growth = torch.zeros_like(most, dtype=torch.long), torch.zeros_like(most)
    for k in range(len(left)):
        pivot, row = left[k, k], left[k, k + 1 :]
        counts += pivot > 0
        if k + 1 < len(left):
            share = row / pivot
            left[k + 1 :, k + 1 :].addcmul_(share[:, None], row[None], value=-1)
            growth = torch.maximum(growth, (share * row).abs_().amax(0))
    return counts, growth <= most


def decompose(how: Callable[[Tensor], Any], matrices: Float[Tensor, "*batch m n"]) -> tuple[Tensor, ...]:
    """Decompose matrices; where the backend gives up, once more in float64 by LAPACK, without entries next to nothing.

    Args:
        how: A decomposition of `torch.linalg` that returns several tensors.
        matrices: The matrices.

    Example:
        >>> decompose(torch.linalg.svd, 3 * torch.eye(2))[1]
        tensor([3., 3.])
    """
    try:
        return tuple(how(matrices))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        checked_answer(matrices, "metric")
        wide = matrices.double().cpu()
        least = torch.finfo(wide.dtype).eps ** 2 * wide.detach().abs().amax((-2, -1), keepdim=True)
        return tuple(part.to(matrices) for part in how(torch.where(wide.abs() < least, 0.0, wide)))


def projector_distance(
    left: Float[Tensor, "*batch dim k"], right: Float[Tensor, "*batch dim l"]
) -> Float[Tensor, "*batch"]:
    """Compute ‖UUᵀ − VVᵀ‖_F of the projectors on two subspaces: the tangent error of the paper.

    Evaluated from the residuals, ‖V − U(UᵀV)‖² + ‖U − V(VᵀU)‖², which is accurate down to rounding;
    the expanded form 2d − 2‖UᵀV‖² has a floor near 1e-3 in float32.

    Example:
        >>> line = torch.tensor([[1.0], [0.0]])
        >>> projector_distance(line, torch.tensor([[0.0], [1.0]]))
        tensor(1.4142)
    """
    cross = left.mT @ right
    squares = (right - left @ cross).square().sum((-2, -1)) + (left - right @ cross.mT).square().sum((-2, -1))
    return squares.sqrt()


def principal_angles(
    left: Float[Tensor, "*batch dim k"], right: Float[Tensor, "*batch dim l"]
) -> Float[Tensor, "*batch m"]:
    """Compute the min(k, l) principal angles between two subspaces, in radians, ascending.

    Small angles are taken from their sines and large ones from their cosines, so that both are
    accurate (Björck and Golub).

    Example:
        >>> angle = torch.tensor(0.3)
        >>> floor = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> ramp = torch.tensor([[1.0, 0.0], [0.0, angle.cos()], [0.0, angle.sin()]])
        >>> principal_angles(floor, ramp)
        tensor([0.0000, 0.3000])
    """
    if left.shape[-1] < right.shape[-1]:
        left, right = right, left
    cross = left.mT @ right
    cosines = torch.linalg.svdvals(cross).clamp(max=1.0)
    sines = torch.linalg.svdvals(right - left @ cross).flip(-1).clamp(max=1.0)
    return torch.where(cosines.square() > 0.5, torch.asin(sines), torch.acos(cosines))


def symmetric_square_root(matrices: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """Compute S = Sᵀ ≽ 0 with S² = C, differentiable to every order also where eigenvalues coincide.

    Where C is singular its null space is taken to stay that: no derivative there.
    """
    root: Tensor = _SquareRoot.apply(matrices)  # type: ignore[no-untyped-call]
    return root


def _solve_sylvester(root: Tensor, right: Tensor) -> Tensor:
    solution: Tensor = _Sylvester.apply(root, right)  # type: ignore[no-untyped-call]
    return solution


class _SquareRoot(torch.autograd.Function):
    """S with S·dS + dS·S = dC."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrices: Tensor) -> Tensor:
        values, vectors = batched_eigh(matrices)
        return (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _solve_sylvester(ctx.saved_tensors[0], 0.5 * (gradient + gradient.mT))

    # The derivative is its own adjoint.
    jvp = backward


class _Sylvester(torch.autograd.Function):
    """The X that solves SX + XS = Q for symmetric S and Q; zero on the null space of S."""

    generate_vmap_rule = True

    @staticmethod
    def forward(root: Tensor, right: Tensor) -> Tensor:
        values, vectors = batched_eigh(root)
        sums = values.unsqueeze(-1) + values.unsqueeze(-2)
        # An eigenvalue of C at rounding level, eps, is a root of size √eps.
        null = sums <= 8 * torch.finfo(root.dtype).eps ** 0.5 * values[..., -1:, None]
        rotated = vectors.mT @ right @ vectors
        solved = torch.where(null, 0.0, rotated / torch.where(null, 1.0, sums))
        return vectors @ solved @ vectors.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        root, solution = ctx.saved_tensors
        adjoint = _solve_sylvester(root, 0.5 * (gradient + gradient.mT))
        product = adjoint @ solution
        return -(product + product.mT), adjoint

    @staticmethod
    def jvp(ctx: Any, root_tangent: Tensor, right_tangent: Tensor) -> Tensor:
        root, solution = ctx.saved_tensors
        product = root_tangent @ solution
        return _solve_sylvester(root, right_tangent - product - product.mT)
