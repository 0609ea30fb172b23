"""The pointwise steps of a residual block: each one formula and, in training on a GPU, one fused operation.

Their forward derivatives are spelled out where torch's own compute with zeros: torch gives weights, which have no
tangent, one of zeros, convolves with them once more, and takes a detour through Python for every product with them.
Along a direction in the points alone, half of that is not needed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from carre.backend.modes import are_fused, are_tangents_constant, is_transformed

_EPSILON = 1e-5


def is_one_value(vector: Float[Tensor, " n"]) -> bool:
    """Say whether a vector is one number, expanded, and nobody asks for its derivative entry by entry."""
    # The stride first: an exported program must not depend on how many points there are.
    is_expanded = vector.stride(0) == 0 and vector.shape[0] > 1
    return is_expanded and not (vector.requires_grad or is_transformed(vector))


def layer_norm(
    hidden: Float[Tensor, "*batch width"], weight: Tensor | None = None, bias: Tensor | None = None
) -> Float[Tensor, "*batch width"]:
    """Compute (h − ⟨h⟩)/deviation over the last axis.

    Spelled out where it is differentiated forward or transformed: torch's own forward derivative takes the deviation
    for a constant, so that its derivative is wrong.
    """
    if not is_transformed(hidden):
        return functional.layer_norm(hidden, hidden.shape[-1:], weight, bias, _EPSILON)
    # In float32 at least, as autocast would.
    normed = _standardize(hidden.float() if hidden.dtype == torch.bfloat16 else hidden)[0]
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def _standardize(hidden: Float[Tensor, "*batch width"]) -> tuple[Float[Tensor, "*batch width"], Tensor]:
    """Return the norm and one over the deviation."""
    variance, mean = torch.var_mean(hidden, -1, correction=0, keepdim=True)
    inverse = (variance + _EPSILON).rsqrt()
    return (hidden - mean) * inverse, inverse


def modulated_norm(
    hidden: Float[Tensor, "batch width"], modulation: Float[Tensor, "batch twice_width"]
) -> tuple[Float[Tensor, "batch width"], Float[Tensor, "batch width"]]:
    """Compute LN(h)·(1 + scale) + shift, with the modulation [scale, shift]; return it and h.

    Take h from the result for what follows: its gradient then joins that of the norm in one operation.
    """
    value, tangent = split_dual(hidden, modulation)
    if are_fused(value, modulation):
        from carre.backend.triton_pointwise import ModulatedNorm, norm_tangent  # noqa: PLC0415

        out, through = ModulatedNorm.apply(value, modulation, _EPSILON)  # type: ignore[no-untyped-call]
        if tangent is None:
            return out, through
        change = norm_tangent(value.detach(), tangent, modulation.detach(), _EPSILON)
        return make_dual(out, change), make_dual(through, tangent)
    scale, shift = modulation.chunk(2, -1)
    if tangent is None:
        normed = layer_norm(hidden)
        return torch.addcmul(shift + normed, normed, scale), hidden
    normed, change = _norm_with_tangent(value, tangent)
    with untracked():
        change = torch.addcmul(change, change, scale)
    return make_dual(torch.addcmul(shift + normed, normed, scale), change), hidden


def modulated_activation(
    image: Float[Tensor, "batch c h w"], modulation: Float[Tensor, "batch twice_c"]
) -> tuple[Float[Tensor, "batch c h w"], Float[Tensor, "batch c h w"]]:
    """Compute SiLU(LN(x)·(1 + scale) + shift), normed over the channels of each pixel; return it and the image.

    As with `modulated_norm`, take the image from the result for what follows.
    """
    value, tangent = split_dual(image, modulation)
    if are_fused(value, modulation):
        from carre.backend.triton_pointwise import ModulatedActivation, activation_tangent  # noqa: PLC0415

        out, through = ModulatedActivation.apply(value, modulation, _EPSILON)  # type: ignore[no-untyped-call]
        if tangent is None:
            return out, through
        change = activation_tangent(value.detach(), tangent, modulation.detach(), _EPSILON)
        return make_dual(out, change), make_dual(through, tangent)
    scale, shift = modulation[:, None, None, :].chunk(2, -1)
    if tangent is not None:
        pixels = value.permute(0, 2, 3, 1), tangent.permute(0, 2, 3, 1)
        return _activation_with_tangent(*pixels, scale, shift).permute(0, 3, 1, 2), image
    normed = layer_norm(image.permute(0, 2, 3, 1))
    return functional.silu(torch.addcmul(shift + normed, normed, scale)).permute(0, 3, 1, 2), image


def _activation_with_tangent(
    value: Float[Tensor, "batch h w c"], tangent: Float[Tensor, "batch h w c"], scale: Tensor, shift: Tensor
) -> Float[Tensor, "batch h w c"]:
    """Compute SiLU(n·(1 + scale) + shift), n = LN(x), and its derivative along ẋ."""
    normed, change = _norm_with_tangent(value, tangent)
    modulated = torch.addcmul(shift + normed, normed, scale)
    with untracked():
        derivative = _along_silu(torch.addcmul(change, change, scale), modulated)
    return make_dual(functional.silu(modulated).to(value.dtype), derivative)


def _norm_with_tangent(value: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    """Compute n = LN(x) and ṅ = (ẋ − ⟨ẋ⟩ − n⟨nẋ⟩)/deviation, in float32 at least, as autocast would.

    The derivative is symmetric, so that torch's backward pass is the forward one, in one operation; but that cannot be
    differentiated forward once more.
    """
    wide, along = (part.float() if part.dtype == torch.bfloat16 else part for part in (value, tangent))
    if not are_tangents_constant():
        normed, inverse = _standardize(wide)
        change = torch.addcmul(along, normed, (normed * along).mean(-1, keepdim=True), value=-1.0)
        return normed, (change - change.mean(-1, keepdim=True)) * inverse
    shape = list(value.shape[-1:])
    normed, mean, inverse = torch.native_layer_norm(wide, shape, None, None, _EPSILON)
    known = wide.detach(), shape, mean.detach(), inverse.detach(), None, None, [True, False, False]
    return normed, torch.ops.aten.native_layer_norm_backward(along.contiguous(), *known)[0]


def _along_silu(tangent: Tensor, values: Tensor) -> Tensor:
    """Multiply by the slope of SiLU; in one operation where that is not differentiated any more."""
    if are_tangents_constant():
        product: Tensor = torch.ops.aten.silu_backward(tangent.contiguous(), values.contiguous())
        return product
    opened = torch.sigmoid(values)
    return tangent * torch.addcmul(opened, opened * values, 1 - opened)


def silu(inputs: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """Compute SiLU(x)."""
    value, tangent = split_dual(inputs)
    active = functional.silu(value)
    if tangent is None:
        return active
    with untracked():
        change = _along_silu(tangent, value)
    return make_dual(active, change)


def times(inputs: Float[Tensor, "batch width"], factors: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch width"]:
    """Multiply by constants."""
    value, tangent = split_dual(inputs, factors)
    if tangent is None:
        return inputs * factors
    with untracked():
        change = tangent * factors
    return make_dual(value * factors, change)


def linear(
    inputs: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*batch out"]:
    """Compute Wx + b."""
    value, tangent = split_dual(inputs, weight, bias)
    result = functional.linear(value, weight, bias)
    if tangent is None:
        return result
    with untracked():
        change = functional.linear(tangent, weight)
    return make_dual(result, change)


def residual_linear(
    hidden: Float[Tensor, "batch out"], inputs: Float[Tensor, "batch in"], weight: Float[Tensor, "out in"]
) -> Float[Tensor, "batch out"]:
    """Compute h + Wx."""
    value, tangent = split_dual(inputs, weight)
    start, moved = split_dual(hidden, weight)
    if tangent is None or moved is None:
        return torch.addmm(hidden, inputs, weight.mT)
    with untracked():
        change = torch.addmm(moved, tangent, weight.mT)
    return make_dual(torch.addmm(start, value, weight.mT), change)


def gated_linear(inputs: Float[Tensor, "batch width"], layer: nn.Linear) -> Float[Tensor, "batch half"]:
    """Compute SiLU(a)·b of [a, b] = Wx + c."""
    value, tangent = split_dual(inputs, layer.weight, layer.bias)
    if are_fused(value, layer.weight):
        from carre.backend.triton_pointwise import GatedSilu, gate_tangent  # noqa: PLC0415

        pair = functional.linear(value, layer.weight)
        fused: Tensor = GatedSilu.apply(pair, layer.bias)  # type: ignore[no-untyped-call]
        if tangent is None:
            return fused
        with torch.no_grad():
            change = gate_tangent(pair.detach(), functional.linear(tangent, layer.weight), layer.bias)
        return make_dual(fused, change)
    gate, gated = functional.linear(value, layer.weight, layer.bias).chunk(2, -1)
    opened = functional.silu(gate)
    if tangent is None:
        result: Tensor = opened * gated
        return result
    with untracked():
        gate_change, gated_change = functional.linear(tangent, layer.weight).chunk(2, -1)
        change = torch.addcmul(opened * gated_change, _along_silu(gate_change, gate), gated)
    return make_dual(opened * gated, change)


def fourier_features(
    bandwidth: Float[Tensor, " batch"], frequencies: Float[Tensor, " half"]
) -> Float[Tensor, "batch width"]:
    """Compute the cosines and sines of ω·log σ. In training σ has no gradient, and the fused operation gives none."""
    if are_fused(bandwidth, frequencies) and not bandwidth.requires_grad:
        from carre.backend.triton_pointwise import fourier  # noqa: PLC0415

        return fourier(bandwidth, frequencies)
    angles = bandwidth.log()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], 1)


def split_dual(tensor: Tensor, *constants: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return a tensor's value and its tangent; None where it has none, or where torch had better do the derivative.

    That is where one of the constants has a tangent, too, and where the tangent is differentiated backward itself: it
    is not, if `constant_tangents` says so.

    Example:
        >>> split_dual(torch.ones(2))
        (tensor([1., 1.]), None)
        >>> with forward_ad.dual_level():
        ...     split_dual(forward_ad.make_dual(torch.ones(2), torch.zeros(2)))
        (tensor([1., 1.]), tensor([0., 0.]))
    """
    value, tangent = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    if tangent is None:
        return tensor, None
    others = [constant for constant in constants if constant is not None]
    if any(forward_ad.unpack_dual(constant).tangent is not None for constant in others):  # type: ignore[no-untyped-call]
        return tensor, None
    is_backward = torch.is_grad_enabled() and any(part.requires_grad for part in (value, *others))
    return (tensor, None) if is_backward and not are_tangents_constant() else (value, tangent)


def make_dual(value: Tensor, tangent: Tensor) -> Tensor:
    """Join a value and its tangent.

    Example:
        >>> with forward_ad.dual_level():
        ...     split_dual(make_dual(torch.ones(2), torch.zeros(2)))[1]
        tensor([0., 0.])
    """
    dual: Tensor = forward_ad.make_dual(value, tangent.to(value.dtype))  # type: ignore[no-untyped-call]
    return dual


def untracked() -> AbstractContextManager[Any]:
    """Compute a tangent without a graph, where it is a constant."""
    return torch.no_grad() if are_tangents_constant() else nullcontext()
