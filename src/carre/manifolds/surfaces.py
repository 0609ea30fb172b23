"""Surfaces in space: the torus of revolution, with curvature of both signs, and the Swiss roll, with a boundary."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import ArgumentError
from carre.manifolds.combinations import Product
from carre.manifolds.curves import Curve, check_resolution
from carre.manifolds.flat import Interval
from carre.manifolds.manifold import Embedded, Manifold, Options, Posterior, checked_points, checked_positive
from carre.manifolds.sphere import bessel_ratio, log_normalizer
from carre.metric import LowRankMetric
from carre.metric.spectrum import symmetric_square_root


class TorusOfRevolution(Manifold):
    """The area-uniform torus ((R + r cos v) cos u, (R + r cos v) sin u, r sin v) in R³.

    Its posterior is that of a continuous mixture of circles, one per v: exact in u through Bessel
    functions, and spectrally accurate in v by the trapezoid rule.

    Args:
        major: R, the radius of the central circle.
        minor: r < R, the radius of the tube.
        n_nodes: The number of circles.

    Example:
        >>> torus = TorusOfRevolution(2.0, 1.0)
        >>> torus.scalar_curvature(torch.tensor([[3.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))  # outside, inside
        tensor([ 0.6667, -2.0000])
    """

    def __init__(self, major: float = 2.0, minor: float = 0.7, *, n_nodes: int = 512) -> None:
        super().__init__(3, 2)
        self.major, self.minor = checked_positive("major", major), checked_positive("minor", minor)
        if minor >= major:
            raise ArgumentError("minor", f"be smaller than major={major}", got=minor)
        if n_nodes < 32:
            raise ArgumentError("n_nodes", "be at least 32", got=n_nodes)
        angles = 2 * math.pi * torch.arange(n_nodes, dtype=torch.float64) / n_nodes
        self._radii = self.major + self.minor * angles.cos()
        self._heights = self.minor * angles.sin()
        self.spacing = 2 * math.pi * self.minor / n_nodes

    def _sample(self, n: int, options: Options) -> Tensor:
        uniform = torch.rand(3, n, **options)
        u, v = 2 * math.pi * uniform[0], 2 * math.pi * uniform[1]
        # The density of v must be (1 + q cos v)/2π, q = r/R < 1. Keeping a uniform v with probability
        # (1 + q cos v)/2 and reflecting it to π − v otherwise gives exactly that.
        kept = uniform[2] < 0.5 * (1 + self.minor / self.major * v.cos())
        return self._place(u, torch.where(kept, v, math.pi - v))

    def scalar_curvature(self, points: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
        """Compute Scal = 2 cos v/(r(R + r cos v)), twice the Gauss curvature, at points of the torus."""
        cosine = self._angles(checked_points(points, 3))[1].cos()
        return 2 * cosine / (self.minor * (self.major + self.minor * cosine))

    def _place(self, u: Tensor, v: Tensor) -> Tensor:
        radius = self.major + self.minor * v.cos()
        return torch.stack([radius * u.cos(), radius * u.sin(), self.minor * v.sin()], dim=-1)

    def _angles(self, points: Tensor) -> tuple[Tensor, Tensor]:
        x, y, z = points.unbind(-1)
        return torch.atan2(y, x), torch.atan2(z, torch.hypot(x, y) - self.major)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        u, v = self._angles(points)
        around = torch.stack([-u.sin(), u.cos(), torch.zeros_like(u)], dim=-1)
        across = torch.stack([-v.sin() * u.cos(), -v.sin() * u.sin(), v.cos()], dim=-1)
        return torch.stack([around, across], dim=-1)

    def _distance(self, points: Tensor) -> Tensor:
        x, y, z = points.unbind(-1)
        return (torch.hypot(torch.hypot(x, y) - self.major, z) - self.minor).abs()

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        check_resolution(bandwidth, self.spacing)
        radii, heights = self._radii.to(points), self._heights.to(points)
        plane, height = points[:, :2], points[:, 2:]
        noise = bandwidth.square().unsqueeze(-1)
        norm2 = plane.square().sum(-1, keepdim=True)
        concentration = (radii / noise).square()
        squared = concentration * norm2
        ratio, tilt = bessel_ratio(2, squared)

        exponent = ((heights - height).square() + norm2 + radii.square()) / (2 * noise)
        log_joint = (radii / radii.sum()).log() + log_normalizer(2, squared) - exponent
        share = log_joint.softmax(-1)
        log_evidence = log_joint.logsumexp(-1) - 1.5 * torch.log(2 * math.pi * noise[:, 0])

        # Given its circle, X has mean (gain·plane, height) and planar covariance σ² gain (I + …).
        gain = radii.square() * ratio / noise
        mean_gain = (share * gain).sum(-1, keepdim=True)
        mean_rise = (share * (heights - height)).sum(-1, keepdim=True)
        mean = torch.cat([mean_gain * plane, height + mean_rise], dim=-1)

        gain_spread, rise_spread = gain - mean_gain, heights - height - mean_rise
        along = (share * (gain * concentration * tilt + gain_spread.square() / noise)).sum(-1)
        cross = (share * gain_spread * rise_spread / noise).sum(-1)
        vertical = (share * rise_spread.square() / noise).sum(-1)
        metric = _assemble(plane, mean_gain.squeeze(-1), along, cross, vertical)
        return Posterior(log_evidence, mean, LowRankMetric(symmetric_square_root(metric)))


def _assemble(plane: Tensor, isotropic: Tensor, along: Tensor, cross: Tensor, vertical: Tensor) -> Tensor:
    """Form the 3×3 matrix with planar block isotropic·I + along·uuᵀ, mixed block cross·u, and vertical."""
    identity = torch.eye(2, dtype=plane.dtype, device=plane.device)
    block = isotropic[:, None, None] * identity + along[:, None, None] * plane[:, :, None] * plane[:, None, :]
    mixed = (cross.unsqueeze(-1) * plane).unsqueeze(-1)
    upper = torch.cat([block, mixed], dim=-1)
    lower = torch.cat([mixed.mT, vertical[:, None, None]], dim=-1)
    return torch.cat([upper, lower], dim=-2)


class SwissRoll(Embedded):
    """The area-uniform Swiss roll (t cos t, h, t sin t), flat and with a boundary.

    It is the product of a spiral and an interval, so its posterior is exact. The defaults are
    scikit-learn's, which however samples t, and so not the area, uniformly.

    Args:
        start: The first angle t.
        end: The last angle t.
        height: The range [0, height] of h.
        n_nodes: The number of quadrature nodes along the spiral.

    Example:
        >>> roll, between = SwissRoll(), torch.tensor([[3 * math.pi, 10.0, 0.0]])
        >>> roll.distance(between).round(decimals=1)  # turns are 2π apart
        tensor([3.1000])
    """

    def __init__(
        self, *, start: float = 1.5 * math.pi, end: float = 4.5 * math.pi, height: float = 21.0, n_nodes: int = 8192
    ) -> None:
        if not 0.0 <= start < end:
            raise ArgumentError("end", "be larger than start, and start at least 0", got=f"start={start}, end={end}")
        spiral = Curve(_spiral, start, end, n_nodes=n_nodes)
        flat = Product([spiral, Interval(0.0, checked_positive("height", height))])
        # The spiral lies in the first and third coordinates, the height in the second.
        super().__init__(flat, torch.eye(3, dtype=torch.float64)[:, [0, 2, 1]])


def _spiral(angle: Tensor) -> Tensor:
    return torch.stack([angle * angle.cos(), angle * angle.sin()], dim=-1)
