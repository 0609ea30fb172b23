"""The pointwise steps of a residual block: each one formula and, in training on a GPU, one fused operation.

Their forward derivatives are spelled out where torch's own compute with zeros: torch gives weights, which have no
tangent, one of zeros, convolves with them once more, and takes a detour through Python for every product with them.
Along a direction in the points alone, half of that is not needed.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from carre.backend.modes import are_fused

_EPSILON = 1e-5


def is_one_value(vector: Float[Tensor, " n"]) -> bool:
    """Say whether a vector is one number, expanded, and nobody asks for its derivative entry by entry."""
    # The stride first: an exported program must not depend on how many points there are.
    is_expanded = vector.stride(0) == 0 and vector.shape[0] > 1
    return is_expanded and not (vector.requires_grad or is_transformed(vector))


def is_transformed(tensor: Tensor) -> bool:
    """Say whether a tensor is differentiated forward, or wrapped by a transformation of `torch.func`."""
    is_wrapped: bool = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return is_wrapped or forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def layer_norm(
    hidden: Float[Tensor, "*batch width"], weight: Tensor | None = None, bias: Tensor | None = None
) -> Float[Tensor, "*batch width"]:
    """Compute (h − ⟨h⟩)/deviation over the last axis.

    Spelled out where it is differentiated forward or transformed: torch's own forward derivative takes the deviation
    for a constant, so that its derivative is wrong.
    """
    if not is_transformed(hidden):
        return functional.layer_norm(hidden, hidden.shape[-1:], weight, bias, _EPSILON)
    normed = _standardize(hidden)[0]
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def _standardize(hidden: Float[Tensor, "*batch width"]) -> tuple[Float[Tensor, "*batch width"], Tensor]:
    """Return the norm and one over the deviation; in float32 at least, as autocast would."""
    wide = hidden.float() if hidden.dtype == torch.bfloat16 else hidden
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    inverse = (variance + _EPSILON).rsqrt()
    return (wide - mean) * inverse, inverse


def modulated_norm(
    hidden: Float[Tensor, "batch width"], modulation: Float[Tensor, "batch twice_width"]
) -> tuple[Float[Tensor, "batch width"], Float[Tensor, "batch width"]]:
    """Compute LN(h)·(1 + scale) + shift, with the modulation [scale, shift]; return it and h.

    Take h from the result for what follows: its gradient then joins that of the norm in one operation.
    """
    if are_fused(hidden, modulation):
        from carre.backend.triton_pointwise import ModulatedNorm  # noqa: PLC0415

        return ModulatedNorm.apply(hidden, modulation, _EPSILON)  # type: ignore[no-any-return, no-untyped-call]
    scale, shift = modulation.chunk(2, -1)
    normed = layer_norm(hidden)
    return torch.addcmul(shift + normed, normed, scale), hidden


def modulated_activation(
    image: Float[Tensor, "batch c h w"], modulation: Float[Tensor, "batch twice_c"]
) -> tuple[Float[Tensor, "batch c h w"], Float[Tensor, "batch c h w"]]:
    """Compute SiLU(LN(x)·(1 + scale) + shift), normed over the channels of each pixel; return it and the image.

    As with `modulated_norm`, take the image from the result for what follows.
    """
    if are_fused(image, modulation):
        from carre.backend.triton_pointwise import ModulatedActivation  # noqa: PLC0415

        return ModulatedActivation.apply(image, modulation, _EPSILON)  # type: ignore[no-any-return, no-untyped-call]
    pixels = image.permute(0, 2, 3, 1)
    scale, shift = modulation[:, None, None, :].chunk(2, -1)
    value, tangent = split_dual(pixels, modulation)
    if tangent is not None:
        return _activation_with_tangent(value, tangent, scale, shift).permute(0, 3, 1, 2), image
    normed = layer_norm(pixels)
    return functional.silu(torch.addcmul(shift + normed, normed, scale)).permute(0, 3, 1, 2), image


def _activation_with_tangent(
    value: Float[Tensor, "batch h w c"], tangent: Float[Tensor, "batch h w c"], scale: Tensor, shift: Tensor
) -> Float[Tensor, "batch h w c"]:
    """Compute SiLU(n·(1 + scale) + shift), n = LN(x), and its derivative along ẋ.

    ṅ = (ẋ − ⟨ẋ⟩ − n⟨nẋ⟩)/deviation. Torch's own derivatives of products with what has no tangent are slow.
    """
    normed, inverse = _standardize(value)
    change = torch.addcmul(tangent, normed, (normed * tangent).mean(-1, keepdim=True), value=-1.0)
    change = (change - change.mean(-1, keepdim=True)) * inverse
    modulated = torch.addcmul(shift + normed, normed, scale)
    opened, active = torch.sigmoid(modulated), functional.silu(modulated)
    slope = torch.addcmul(opened + active, opened, active, value=-1.0)
    derivative = torch.addcmul(change, change, scale) * slope
    dual: Tensor = forward_ad.make_dual(active.to(value.dtype), derivative.to(value.dtype))  # type: ignore[no-untyped-call]
    return dual


def gated_linear(inputs: Float[Tensor, "batch width"], linear: nn.Linear) -> Float[Tensor, "batch half"]:
    """Compute SiLU(a)·b of [a, b] = Wx + c."""
    if are_fused(inputs, linear.weight):
        from carre.backend.triton_pointwise import GatedSilu  # noqa: PLC0415

        fused: Tensor = GatedSilu.apply(functional.linear(inputs, linear.weight), linear.bias)  # type: ignore[no-untyped-call]
        return fused
    gate, value = functional.linear(inputs, linear.weight, linear.bias).chunk(2, -1)
    gated: Tensor = functional.silu(gate) * value
    return gated


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

    That is where it is differentiated backward as well, or where one of the constants has a tangent, too.

    Example:
        >>> split_dual(torch.ones(2))
        (tensor([1., 1.]), None)
        >>> with forward_ad.dual_level():
        ...     split_dual(forward_ad.make_dual(torch.ones(2), torch.zeros(2)))
        (tensor([1., 1.]), tensor([0., 0.]))
    """
    value, tangent = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    others = [constant for constant in constants if constant is not None]
    is_backward = torch.is_grad_enabled() and any(part.requires_grad for part in (value, *others))
    if tangent is None or is_backward or any(forward_ad.unpack_dual(c).tangent is not None for c in others):  # type: ignore[no-untyped-call]
        return tensor, None
    return value, tangent
