"""AdamW, the moving average of the weights and their rounded copy in one pass, see `carre.training.weights`."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048
_EPSILON = 1e-8


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
    """Update flat buffers in place.

    Args:
        values: The weights.
        gradients: Their gradients, in any floating dtype.
        first: Adam's first moments.
        second: Adam's second moments.
        averages: The moving average of the weights.
        working: The weights rounded to another dtype, if a step works with such.
        norm: The norm of all gradients that are clipped together.
        rate: The learning rate, on the device like the next three.
        pull: The share by which averages move towards the weights.
        total: The sum of the loss and all norms; where it is not finite nothing changes.
        n_steps: How many steps there were, this one included.
        clip_norm: Largest norm of the gradients.
        decay: Decoupled weight decay.
        betas: Adam's.
    """
    _update[(triton.cdiv(values.numel(), _BLOCK),)](
        values,
        gradients,
        first,
        second,
        averages,
        values if working is None else working,
        norm,
        rate,
        pull,
        total,
        n_steps,
        values.numel(),
        clip_norm,
        decay,
        betas[0],
        betas[1],
        math.log(betas[0]) if betas[0] > 0 else -math.inf,
        math.log(betas[1]) if betas[1] > 0 else -math.inf,
        _EPSILON,
        HAS_WORKING=working is not None,
        BLOCK=_BLOCK,
    )
