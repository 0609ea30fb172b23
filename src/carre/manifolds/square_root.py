"""The symmetric square root of positive semi-definite matrices, smooth where eigenvectors are not."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.metric import batched_eigh


def symmetric_square_root(matrices: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """Compute S = Sᵀ ≽ 0 with S² = C, differentiable to every order also where eigenvalues coincide.

    Where C is singular its kernel is taken to stay its kernel: no derivative there.
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

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return _solve_sylvester(ctx.saved_tensors[0], 0.5 * (tangent + tangent.mT))


class _Sylvester(torch.autograd.Function):
    """The X that solves SX + XS = Q for symmetric S and Q; zero on the kernel of S."""

    generate_vmap_rule = True

    @staticmethod
    def forward(root: Tensor, right: Tensor) -> Tensor:
        values, vectors = batched_eigh(root)
        sums = values.unsqueeze(-1) + values.unsqueeze(-2)
        # An eigenvalue of C at rounding level, eps, is a root of size √eps.
        kernel = sums <= 8 * torch.finfo(root.dtype).eps ** 0.5 * values[..., -1:, None]
        rotated = vectors.mT @ right @ vectors
        solved = torch.where(kernel, 0.0, rotated / torch.where(kernel, 1.0, sums))
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
