"""The uniform sphere, and the rotations of space.

The posterior of a sphere needs ratios of modified Bessel functions only: S^{p−1} enters through
A(κ) = I_{p/2}(κ)/I_{p/2−1}(κ). We work with s = κ² and

    h(s) = A/κ,    tilt(s) = 2 d log h/ds = h⁺ − h    (h⁺ the same ratio one order up),

which are smooth at s = 0, where κ itself is not. Then A′ = h·(1 + s·tilt), and the log-normalizer
L(s) = log E exp(κ⟨e, x⟩) over the unit sphere has dL/ds = h/2 [THEORY §2c].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from carre.boundary import ArgumentError
from carre.manifolds.manifold import Manifold, Options, Posterior, checked_positive
from carre.metric import LowRankMetric

_N_TERMS = 14


class Sphere(Manifold):
    """The uniform distribution on the sphere of a given dimension and radius around the origin of R^{d+1}.

    Args:
        dimension: d ≥ 1.
        radius: R.

    Example:
        >>> circle = Sphere(1)
        >>> circle.posterior(torch.tensor([[1.0, 0.0]]), 0.1).metric.dense().round(decimals=2)
        tensor([[[0.0100, 0.0000],
                 [0.0000, 0.9900]]])
    """

    def __init__(self, dimension: int, radius: float = 1.0) -> None:
        if dimension < 1:
            raise ArgumentError("dimension", "be at least 1", got=dimension)
        super().__init__(dimension + 1, dimension)
        self.radius = checked_positive("radius", radius)

    def _sample(self, n: int, options: Options) -> Tensor:
        return self.radius * normalize(torch.randn(n, self.ambient_dim, **options), dim=-1)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        # The Householder reflection that sends x/|x| to the first axis; its other columns are tangent.
        direction = normalize(points, dim=-1)
        sign = torch.where(direction[:, :1] < 0, -1.0, 1.0).to(points)
        axis = normalize(torch.cat([direction[:, :1] + sign, direction[:, 1:]], dim=-1), dim=-1)
        identity = torch.eye(self.ambient_dim, dtype=points.dtype, device=points.device)
        return (identity - 2 * axis.unsqueeze(-1) * axis.unsqueeze(-2))[..., 1:]

    def _distance(self, points: Tensor) -> Tensor:
        distance: Tensor = (torch.linalg.vector_norm(points, dim=-1) - self.radius).abs()
        return distance

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        dim = self.ambient_dim
        noise = bandwidth.square()
        concentration = (self.radius / noise).square()  # κ² = concentration·|y|²
        norm2 = points.square().sum(-1)
        squared = concentration * norm2
        ratio, tilt = bessel_ratio(dim, squared)
        tangential = self.radius**2 * ratio / noise  # the eigenvalue R·A/|y| of G across y
        stretch = (1 + squared * tilt).sqrt()  # √ of the radial eigenvalue over the tangential one
        # √G = √g_tan (I + (stretch − 1) eeᵀ), written so that it is smooth at y = 0.
        radial = concentration * tilt / (stretch + 1)
        outer = points.unsqueeze(-1) * points.unsqueeze(-2)
        identity = torch.eye(dim, dtype=points.dtype, device=points.device)
        factor = tangential.sqrt()[:, None, None] * (identity + radial[:, None, None] * outer)
        log_evidence = (
            log_normalizer(dim, squared)
            - (norm2 + self.radius**2) / (2 * noise)
            - 0.5 * dim * torch.log(2 * math.pi * noise)
        )
        return Posterior(log_evidence, tangential.unsqueeze(-1) * points, LowRankMetric(factor))


class SpecialOrthogonal3(Manifold):
    """The uniform (Haar) distribution on SO(3), rotation matrices read row by row as points of R⁹.

    It has no closed posterior; its scalar curvature is ¾ everywhere, in the metric of R⁹.

    Example:
        >>> rotations, turned = SpecialOrthogonal3(), torch.tensor([[0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
        >>> rotations.distance(torch.cat([turned, -turned]))  # the second is a reflection
        tensor([0., 2.])
    """

    def __init__(self) -> None:
        super().__init__(9, 3)

    def _sample(self, n: int, options: Options) -> Tensor:
        # Rotations from uniform unit quaternions.
        w, x, y, z = normalize(torch.randn(n, 4, **options), dim=-1).unbind(-1)
        rows = [
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        ]  # fmt: skip
        return torch.stack(rows, dim=-1)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        # The tangent space at Q is Q times the skew matrices, whose basis E₁₂, E₁₃, E₂₃ has norm √2.
        first, second = torch.triu_indices(3, 3, offset=1)
        skew = torch.zeros(3, 3, 3, dtype=points.dtype, device=points.device)
        skew[range(3), first, second], skew[range(3), second, first] = 1.0, -1.0
        tangents = points.reshape(-1, 1, 3, 3) @ skew / 2**0.5
        return tangents.flatten(2).mT

    def _distance(self, points: Tensor) -> Tensor:
        left, values, right = torch.linalg.svd(points.reshape(-1, 3, 3))
        # The nearest rotation flips the weakest axis where the nearest orthogonal matrix is a reflection.
        sign = torch.linalg.det(left @ right).sign()
        target = torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], dim=-1)
        distance: Tensor = torch.linalg.vector_norm(values - target, dim=-1)
        return distance


def bessel_ratio(dim: int, squared: Float[Tensor, "*batch"]) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Compute h = A/κ and its tilt at s = κ² for the unit sphere in R^dim, differentiable to every order.

    Backward recurrence up to κ ≈ 15 dim²/4, and the asymptotic series beyond, where it is exact to rounding.
    """
    switch = 15 * dim**2 / 4 + 60
    large = squared > switch**2
    inside = torch.where(large, 1.0, squared)
    # So many orders up the recurrence must start to be exact to rounding below the switch.
    above = _recurrence(dim + 2, inside, 20 + int(5 * switch**0.5))
    ratio = 1 / (dim + inside * above)
    outside = torch.where(large, squared, switch**2)
    ratio_series, tilt_series = _series(dim, outside)
    return torch.where(large, ratio_series, ratio), torch.where(large, tilt_series, above - ratio)


def log_normalizer(dim: int, squared: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Compute L(s) = log E exp(κ⟨e, x⟩), x uniform on the unit sphere of R^dim; as differentiable.

    By L_{dim+2} = L_dim + log(dim·h_dim), from log I₀ or log cosh.
    """

    def value(s: Tensor) -> Tensor:
        ratio, _ = bessel_ratio(dim, s)
        log = torch.zeros_like(s)
        for below in range(dim - 2, 0, -2):
            ratio = 1 / (below + s * ratio)
            log = log + torch.log(below * ratio)
        kappa = s.sqrt()
        if dim % 2 == 0:
            log_start: Tensor = torch.special.i0e(kappa).log()
            return log + log_start + kappa
        return log + torch.log1p(torch.exp(-2 * kappa)) + (kappa - math.log(2.0))

    return _with_slope(squared, value, lambda s, _: 0.5 * bessel_ratio(dim, s)[0])


def _recurrence(dim: int, squared: Tensor, n_steps: int) -> Tensor:
    """Compute h(s) by backward recurrence, with dh/ds = ½h(h⁺ − h) by calling itself one order up."""

    def value(s: Tensor) -> Tensor:
        half = dim / 2 + n_steps
        # Amos' bound starts the recurrence h_{ν−1} = 1/(2ν + s·h_ν).
        ratio = 1 / (half - 0.5 + torch.sqrt(s + (half + 0.5) ** 2))
        for step in reversed(range(n_steps)):
            ratio = 1 / (dim + 2 * step + s * ratio)
        return ratio

    return _with_slope(squared, value, lambda s, ratio: 0.5 * ratio * (_recurrence(dim + 2, s, n_steps) - ratio))


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


def _with_slope(s: Tensor, value: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Compute f(s), whose derivative is a function of s and f(s) that can be differentiated again."""
    result: Tensor = _WithSlope.apply(s, value, slope)  # type: ignore[no-untyped-call]
    return result


class _WithSlope(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(s: Tensor, value: Callable[[Tensor], Tensor], slope: Any) -> Tensor:
        return value(s)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Any, Any], output: Tensor) -> None:
        s, _, ctx.slope = inputs
        ctx.save_for_backward(s, output)
        ctx.save_for_forward(s, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient * ctx.slope(*ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        derivative: Tensor = tangent * ctx.slope(*ctx.saved_tensors)
        return derivative
