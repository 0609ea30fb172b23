"""The metric loss and its gradient, see `carre.matching.metric_matching_loss`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

# A sample's factor must fit into the registers of one program.
_LARGEST_TILE = 8192


@triton.jit
def _loss_and_gradient(
    factor,
    displacement,
    vectors,
    products,
    loss,
    gradient,
    rank,
    dim,
    n_draws,
    weight,
    HAS_PROBE: tl.constexpr,
    RANK: tl.constexpr,
    DIM: tl.constexpr,
):
    sample = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, RANK), tl.arange(0, DIM)
    mask = (rows[:, None] < rank) & (columns[None, :] < dim)
    place = sample * rank * dim + rows[:, None] * dim + columns[None, :]
    f = tl.load(factor + place, mask=mask, other=0.0).to(tl.float32)
    gram = tl.dot(f, tl.trans(f), input_precision="tf32x3")
    total = tl.sum(tl.sum(gram * gram, 1), 0)
    slope = tl.dot(gram, f, input_precision="tf32x3")
    for draw in range(n_draws):
        delta = tl.load(displacement + (sample * n_draws + draw) * dim + columns, mask=columns < dim, other=0.0)
        delta = delta.to(tl.float32)
        along = tl.sum(f * delta[None, :], 1)
        total -= 2.0 / n_draws * tl.sum(along * along, 0)
        slope -= along[:, None] * delta[None, :] / n_draws
    if HAS_PROBE:
        v = tl.load(vectors + sample * dim + columns, mask=columns < dim, other=0.0).to(tl.float32)
        w = tl.load(products + sample * dim + columns, mask=columns < dim, other=0.0).to(tl.float32)
        fv = tl.sum(f * v[None, :], 1)
        fw = tl.sum(f * w[None, :], 1)
        image = tl.sum(f * fv[:, None], 0)
        total += weight * tl.sum(image * (image - 2.0 * w), 0)
        back = tl.sum(f * image[None, :], 1) - fw
        slope += 0.5 * weight * (back[:, None] * v[None, :] + fv[:, None] * (image - w)[None, :])
    tl.store(loss + sample, total)
    tl.store(gradient + place, (4.0 * slope).to(gradient.dtype.element_ty), mask=mask)


def fits(factor: Tensor) -> bool:
    """Say whether the kernel can take a factor: float32, and small enough."""
    rank, dim = factor.shape[-2:]
    tile = triton.next_power_of_2(max(rank, 16)) * triton.next_power_of_2(max(dim, 16))
    return factor.dtype == torch.float32 and tile <= _LARGEST_TILE


class MetricMatchingLoss(torch.autograd.Function):
    """‖FFᵀ‖² − (2/n) Σ ‖Fδ‖² per sample, with the gradient 4(FFᵀF − (1/n) Σ (Fδ)δᵀ) in the same pass.

    With a probe v and w = Jv, also |g|² − 2gᵀw for g = FᵀFv, with the gradient 2((Fg − Fw)vᵀ + (Fv)(g − w)ᵀ).
    """

    @staticmethod
    def forward(
        ctx: Any, factor: Tensor, displacement: Tensor, vectors: Tensor | None, products: Tensor | None, weight: float
    ) -> Tensor:
        """Compute the loss, and keep its gradient."""
        factor, displacement = factor.contiguous(), displacement.contiguous()
        n, rank, dim = factor.shape
        loss, gradient = factor.new_empty(n), torch.empty_like(factor)
        _loss_and_gradient[(n,)](
            factor,
            displacement,
            displacement if vectors is None else vectors.contiguous(),
            displacement if products is None else products.contiguous(),
            loss,
            gradient,
            rank,
            dim,
            displacement.shape[1],
            weight,
            HAS_PROBE=vectors is not None,
            RANK=triton.next_power_of_2(max(rank, 16)),
            DIM=triton.next_power_of_2(max(dim, 16)),
            num_warps=2 if rank * dim <= 2048 else 4,
        )
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None, None]:  # type: ignore[override]
        """Scale the gradient that was kept; none flows into the displacements, as in the formula."""
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[:, None, None], None, None, None, None
