"""Factors with few rows: of a metric that has more, or of a Jacobian."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from carre.metric import batched_eigh
from carre.metric.spectrum import symmetric_square_root

# On a GPU, batched eigh is a thousand times slower for matrices larger than this.
_FAST_EIGH = 32
_LARGEST_ITERATED_RANK = 24
_N_ITERATIONS = 16
_JITTER = 16


def compress(
    rows: Iterable[Float[Tensor, "points _ dim"]], n_rows: int, *, rank: int | None = None
) -> Float[Tensor, "points rank dim"]:
    """Build a factor F from n rows A, in blocks, FᵀF = AᵀA: at most as many rows as columns, or the leading ones.

    With a rank, FᵀF is the best approximation. Derivatives hold its directions fixed: exact for the eigenvalues.
    """
    blocks = iter(rows)
    first = next(blocks)
    dim = first.shape[2]
    if n_rows <= dim:
        whole = torch.cat([first, *blocks], 1)
        if rank is None or rank >= n_rows:
            return whole
        # Rotated among themselves so that the leading rows come first.
        return _leading_directions(whole.detach() @ whole.detach().mT, rank).mT @ whole
    # In float64: the factor of a nearly singular matrix needs a shift of the size of its rounding errors.
    moment = _second_moment(first)
    for block in blocks:
        moment = moment + _second_moment(block)
    if rank is None or rank >= dim:
        return _factor(moment).to(first.dtype)
    directions = _leading_directions(moment.detach(), rank)
    return (_factor(directions.mT @ moment @ directions) @ directions.mT).to(first.dtype)


def leading_factor(
    basis: Float[Tensor, "n dim q"], image: Float[Tensor, "n dim q"], rank: int
) -> Float[Tensor, "n rank dim"]:
    """Compute √λ₊ Vᵀ of the leading eigenpairs of Q·sym(QᵀJQ)·Qᵀ, from Q and JQ.

    Eigenvectors have no derivative where eigenvalues coincide, but FᵀF has. With V held fixed,
    F + Λ^(−½)(dJ V − ½V sym(VᵀdJ V))ᵀ has the square G + dJ VVᵀ + VVᵀdJ − VVᵀdJ VVᵀ, which is G + dG when V spans
    the range of G. The added term is zero in value.
    """
    compressed = (basis.mT @ image).detach()
    values, vectors = batched_eigh(0.5 * (compressed + compressed.mT))
    values, vectors = values[:, -rank:].flip(-1).clamp_min(0), vectors[..., -rank:].flip(-1)
    directions = basis @ vectors
    moved = image @ vectors
    change = moved - moved.detach()
    inside = directions.mT @ change
    change = change - 0.25 * directions @ (inside + inside.mT)
    rounding = torch.finfo(values.dtype).eps * values.shape[-1] * values[:, :1]
    inverse = torch.where(values > rounding, values.clamp_min(torch.finfo(values.dtype).tiny).rsqrt(), 0.0)
    return values.sqrt().unsqueeze(-1) * directions.mT + inverse.unsqueeze(-1) * change.mT


def _second_moment(rows: Float[Tensor, "points k dim"]) -> Float[Tensor, "points dim dim"]:
    wide = rows.double()
    return wide.mT @ wide


def _factor(moment: Float[Tensor, "points n n"]) -> Float[Tensor, "points n n"]:
    """Find F with FᵀF = S: triangular and fast, or symmetric and smooth where a derivative is asked for."""
    has_tangent = forward_ad.unpack_dual(moment).tangent is not None  # type: ignore[no-untyped-call]
    if moment.requires_grad or has_tangent:
        return symmetric_square_root(moment)
    triangular, failed = _cholesky(moment, _JITTER)
    if bool(failed.any()):
        triangular[failed > 0] = symmetric_square_root(moment[failed > 0])
    return triangular.mT


def _leading_directions(matrices: Float[Tensor, "points n n"], rank: int) -> Float[Tensor, "points n rank"]:
    """Find orthonormal eigenvectors of the ``rank`` largest eigenvalues."""
    if matrices.is_cuda and matrices.shape[-1] > _FAST_EIGH and rank <= _LARGEST_ITERATED_RANK:
        return iterate_subspace(matrices, rank)
    return batched_eigh(matrices)[1][..., -rank:].flip(-1)


def iterate_subspace(
    matrices: Float[Tensor, "points n n"], rank: int, *, n_iterations: int = _N_ITERATIONS
) -> Float[Tensor, "points n rank"]:
    """Find the leading eigenvectors by subspace iteration, from batched products and small decompositions only.

    With 32 vectors the error falls like (λ₃₃/λ_rank)^n_iterations. Matrices are scaled to size one, and worked on
    in float64: those of vanishing kernel weights have rank one to the last digit of float32.
    """
    n = matrices.shape[-1]
    given, matrices = matrices.dtype, matrices.double()
    matrices = matrices / matrices.abs().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(matrices.dtype).tiny)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(n, min(n, _FAST_EIGH), generator=generator, dtype=torch.float64, device="cpu").to(matrices)
    basis = start.expand(len(matrices), -1, -1)
    for _ in range(n_iterations):
        basis = _orthonormalize(matrices @ basis)
    basis = _orthonormalize(basis)
    _, rotation = batched_eigh(basis.mT @ matrices @ basis)
    leading: Tensor = basis @ rotation[..., -rank:].flip(-1)
    return leading.to(given)


def _orthonormalize(basis: Float[Tensor, "points n q"]) -> Float[Tensor, "points n q"]:
    """Orthonormalize columns by Cholesky's decomposition of their Gram matrix; vanishing ones stay small."""
    triangular, _ = _cholesky(basis.mT @ basis, _JITTER * basis.shape[-2])
    orthonormal: Tensor = torch.linalg.solve_triangular(triangular.mT, basis, upper=True, left=False)
    return orthonormal


def _cholesky(matrices: Float[Tensor, "points n n"], jitter: int) -> tuple[Tensor, Tensor]:
    """Decompose matrices shifted above their rounding errors, or singular ones would have no decomposition."""
    diagonal, limits = matrices.diagonal(dim1=-2, dim2=-1), torch.finfo(matrices.dtype)
    shift = jitter * limits.eps * diagonal.sum(-1, keepdim=True) + limits.tiny
    triangular, failed = torch.linalg.cholesky_ex(matrices + torch.diag_embed(shift.expand_as(diagonal)))
    return triangular, failed
