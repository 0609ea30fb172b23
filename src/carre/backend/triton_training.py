"""What a training step fuses: the metric loss with its gradient (see `carre.matching.metric_matching_loss`), and AdamW
with the moving average of the weights and their rounded copy (see `carre.training._weights`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

# A sample's factor must fit into the registers of one program.
_LARGEST_TILE = 8192
_BLOCK = 2048
_EPSILON = 1e-8


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
    """Say whether the fused loss can take a factor: float32, and small enough."""
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
        probe = [displacement if part is None else part.contiguous() for part in (vectors, products)]
        sizes = rank, dim, displacement.shape[1]
        tile = {"RANK": triton.next_power_of_2(max(rank, 16)), "DIM": triton.next_power_of_2(max(dim, 16))}
        tile |= {"HAS_PROBE": vectors is not None, "num_warps": 2 if rank * dim <= 2048 else 4}
        _loss_and_gradient[(n,)](factor, displacement, *probe, loss, gradient, *sizes, weight, **tile)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None, None]:  # type: ignore[override]
        """Scale the gradient that was kept; none flows into the displacements, as in the formula."""
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[:, None, None], None, None, None, None


@triton.jit
def _update(
    values,
    gradients,
    first,
    second,
    averages,
    working,
    norm,
    rate,
    pull,
    total,
    n_steps,
    n_elements,
    clip_norm,
    decay,
    beta1,
    beta2,
    log_beta1,
    log_beta2,
    epsilon,
    HAS_WORKING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # A step that is not finite changes nothing (a comparison with NaN is false).
    if tl.abs(tl.load(total)) < float("inf"):
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = place < n_elements
        count = tl.load(n_steps).to(tl.float32)
        learning_rate = tl.load(rate)
        g = tl.load(gradients + place, mask=mask, other=0.0).to(tl.float32)
        g = g / tl.maximum(tl.load(norm) / clip_norm, 1.0)
        value = tl.load(values + place, mask=mask, other=0.0)
        m = tl.load(first + place, mask=mask, other=0.0)
        v = tl.load(second + place, mask=mask, other=0.0)
        average = tl.load(averages + place, mask=mask, other=0.0)
        m = beta1 * m + (1.0 - beta1) * g
        v = beta2 * v + (1.0 - beta2) * g * g
        unbiased = v / (1.0 - tl.exp(count * log_beta2))
        step = m / (1.0 - tl.exp(count * log_beta1)) / (tl.sqrt(unbiased) + epsilon)
        value = value - learning_rate * (decay * value + step)
        average = average + tl.load(pull) * (value - average)
        tl.store(values + place, value, mask=mask)
        tl.store(first + place, m, mask=mask)
        tl.store(second + place, v, mask=mask)
        tl.store(averages + place, average, mask=mask)
        if HAS_WORKING:
            tl.store(working + place, value.to(working.dtype.element_ty), mask=mask)


def averaged_adamw(
    values: Tensor,
    gradients: Tensor,
    first: Tensor,
    second: Tensor,
    averages: Tensor,
    working: Tensor | None,
    *,
    norm: Tensor,
    rate: Tensor,
    pull: Tensor,
    total: Tensor,
    n_steps: Tensor,
    clip_norm: float,
    decay: float,
    betas: tuple[float, float],
) -> None:
    """Update flat buffers in place: weights, Adam's moments, averages, and a working copy in another dtype, if any.

    All gradients that are clipped together have the ``norm``; ``pull`` is the share by which averages move towards the
    weights, and ``n_steps`` counts this step, too. Where ``total``, the sum of the loss and all norms, is not finite,
    nothing changes.
    """
    buffers = values, gradients, first, second, averages, values if working is None else working
    of_step = norm, rate, pull, total, n_steps
    logarithms = [math.log(beta) if beta > 0 else -math.inf for beta in betas]
    constants = values.numel(), clip_norm, decay, *betas, *logarithms, _EPSILON
    grid = (triton.cdiv(values.numel(), _BLOCK),)
    _update[grid](*buffers, *of_step, *constants, HAS_WORKING=working is not None, BLOCK=_BLOCK)
