"""Ratios of modified Bessel functions, which are all that the posterior of a sphere needs.

A sphere S^{p−1} enters only through A(κ) = I_{p/2}(κ)/I_{p/2−1}(κ). We work with s = κ² and

    h(s) = A/κ,    tilt(s) = 2 d log h/ds = h⁺ − h    (h⁺ the same ratio one order up),

which are smooth at s = 0, where κ itself is not. Then A′ = h·(1 + s·tilt), and the log-normalizer
L(s) = log E exp(κ⟨e, x⟩) over the unit sphere has dL/ds = h/2 [THEORY §2c].
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

_N_TERMS = 14


def bessel_ratio(dim: int, squared: Float[Tensor, "*batch"]) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Compute h = A/κ and its tilt at s = κ² for the unit sphere in R^dim, differentiable to every order.

    Backward recurrence up to κ ≈ 15 dim²/4, and the asymptotic series beyond.
    """
    large = squared > _switch(dim) ** 2
    inside = torch.where(large, 1.0, squared)
    above = _recurrence(dim + 2, inside, _n_steps(dim))
    ratio = 1 / (dim + inside * above)
    outside = torch.where(large, squared, _switch(dim) ** 2)
    ratio_series, tilt_series = _series(dim, outside)
    return torch.where(large, ratio_series, ratio), torch.where(large, tilt_series, above - ratio)


def log_normalizer(dim: int, squared: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Compute L(s) = log E exp(κ⟨e, x⟩), x uniform on the unit sphere of R^dim; as differentiable."""
    result: Tensor = _LogNormalizer.apply(squared, dim)  # type: ignore[no-untyped-call]
    return result


def _switch(dim: int) -> float:
    """The κ above which the series is exact to rounding."""
    return 15 * dim**2 / 4 + 60


def _n_steps(dim: int) -> int:
    """How many orders up the recurrence must start to be exact to rounding below the switch."""
    return 20 + int(5 * _switch(dim) ** 0.5)


def _recurrence(dim: int, squared: Tensor, n_steps: int) -> Tensor:
    result: Tensor = _Ratio.apply(squared, dim, n_steps)  # type: ignore[no-untyped-call]
    return result


def _series(dim: int, squared: Tensor) -> tuple[Tensor, Tensor]:
    """Expand A = Σ aₖκ⁻ᵏ, from the Riccati equation A′ = 1 − A² − (dim − 1)A/κ."""
    coefficients = [1.0]
    for k in range(1, _N_TERMS):
        square = sum(coefficients[i] * coefficients[k - i] for i in range(1, k))
        coefficients.append(0.5 * ((k - dim) * coefficients[k - 1] - square))
    inverse = squared.rsqrt()
    value, slope = torch.zeros_like(squared), torch.zeros_like(squared)
    for k in reversed(range(_N_TERMS)):
        value = value * inverse + coefficients[k]
        slope = slope * inverse - k * coefficients[k]
    # slope = κA′, and A′ = h(1 + s·tilt) with A = κh.
    return value * inverse, (slope / value - 1) / squared


class _Ratio(torch.autograd.Function):
    """h(s) by backward recurrence, with dh/ds = ½h(h⁺ − h) by calling itself one order up."""

    generate_vmap_rule = True

    @staticmethod
    def forward(squared: Tensor, dim: int, n_steps: int) -> Tensor:
        half = dim / 2 + n_steps
        # Amos' bound starts the recurrence h_{ν−1} = 1/(2ν + s·h_ν).
        ratio = 1 / (half - 0.5 + torch.sqrt(squared + (half + 0.5) ** 2))
        for step in reversed(range(n_steps)):
            ratio = 1 / (dim + 2 * step + squared * ratio)
        return ratio

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        squared, ctx.dim, ctx.n_steps = inputs
        ctx.save_for_backward(squared, output)
        ctx.save_for_forward(squared, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient * _Ratio._slope(ctx), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return tangent * _Ratio._slope(ctx)

    @staticmethod
    def _slope(ctx: Any) -> Tensor:
        squared, ratio = ctx.saved_tensors
        slope: Tensor = 0.5 * ratio * (_recurrence(ctx.dim + 2, squared, ctx.n_steps) - ratio)
        return slope


class _LogNormalizer(torch.autograd.Function):
    """L(s) by L_{dim+2} = L_dim + log(dim·h_dim), from log I₀ or log cosh, with dL/ds = h/2."""

    generate_vmap_rule = True

    @staticmethod
    def forward(squared: Tensor, dim: int) -> Tensor:
        ratio, _ = bessel_ratio(dim, squared)
        log = torch.zeros_like(squared)
        for below in range(dim - 2, 0, -2):
            ratio = 1 / (below + squared * ratio)
            log = log + torch.log(below * ratio)
        kappa = squared.sqrt()
        if dim % 2 == 0:
            log_start: Tensor = torch.special.i0e(kappa).log()
            return log + log_start + kappa
        return log + torch.log1p(torch.exp(-2 * kappa)) + (kappa - math.log(2.0))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        squared, ctx.dim = inputs
        ctx.save_for_backward(squared)
        ctx.save_for_forward(squared)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * _LogNormalizer._slope(ctx), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent * _LogNormalizer._slope(ctx)

    @staticmethod
    def _slope(ctx: Any) -> Tensor:
        ratio, _ = bessel_ratio(ctx.dim, ctx.saved_tensors[0])
        return 0.5 * ratio
