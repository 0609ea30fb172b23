"""Manifolds with known tangent spaces, clean, noisy and unevenly sampled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from carre.manifolds import CliffordTorus, ClosedCurve, Manifold, Sphere, SwissRoll, TorusOfRevolution


@dataclass(frozen=True)
class Shape:
    """A manifold, and how samples are drawn from it.

    Attributes:
        manifold: The truth.
        n: How many samples.
        draw: From a number and a generator to samples, noisy or uneven ones too.
    """

    manifold: Manifold
    n: int
    draw: Callable[[int, torch.Generator], Tensor]


def shapes(generator: torch.Generator) -> dict[str, Shape]:
    """Return the ten shapes of the scale experiment; the generator rotates them."""

    def embedded(manifold: Manifold, ambient: int) -> Manifold:
        return manifold.embed(ambient, generator=generator)

    sphere, torus, curve = Sphere(2), TorusOfRevolution(), ClosedCurve(trefoil)
    plain = {
        "S² in R¹⁰": (embedded(sphere, 10), 2000),
        "S⁵ in R¹²": (embedded(Sphere(5), 12), 3000),
        "torus in R³": (torus, 2000),
        "Clifford torus in R⁸": (embedded(CliffordTorus([1.0, 0.6]), 8), 2000),
        "Swiss roll": (SwissRoll(), 2000),
        "trefoil knot in R⁵": (embedded(curve, 5), 1000),
    }
    drawn = {name: Shape(manifold, n, uniform(manifold)) for name, (manifold, n) in plain.items()}
    clean = embedded(sphere, 6)
    drawn["S² in R⁶, noise 0.05"] = Shape(clean, 2000, noisy(uniform(clean), 0.05))
    drawn["torus in R³, noise 0.05"] = Shape(torus, 3000, noisy(uniform(torus), 0.05))
    drawn["S² in R³, uneven"] = Shape(sphere, 2000, uneven_sphere)
    drawn["torus in R³, uneven"] = Shape(torus, 3000, uneven_torus)
    return drawn


def trefoil(angle: Tensor) -> Tensor:
    """Place the trefoil knot in space."""
    x, y = angle.sin() + 2 * (2 * angle).sin(), angle.cos() - 2 * (2 * angle).cos()
    return torch.stack([x, y, -(3 * angle).sin()], dim=-1) / 2


def uniform(manifold: Manifold) -> Callable[[int, torch.Generator], Tensor]:
    """Draw from the manifold's own distribution."""
    return lambda n, generator: manifold.sample(n, generator=generator)


def noisy(draw: Callable[[int, torch.Generator], Tensor], level: float) -> Callable[[int, torch.Generator], Tensor]:
    """Add Gaussian noise in every ambient direction."""

    def add(n: int, generator: torch.Generator) -> Tensor:
        points = draw(n, generator)
        return points + level * torch.randn(points.shape, generator=generator, dtype=points.dtype)

    return add


def uneven_sphere(n: int, generator: torch.Generator) -> Tensor:
    """Draw from a stretched Gaussian, normalized: up to seven times denser at the poles of the first axis."""
    stretch = torch.tensor([1.6, 1.0, 0.8], dtype=torch.float64)
    return torch.nn.functional.normalize(stretch * torch.randn(n, 3, generator=generator, dtype=torch.float64), dim=1)


def uneven_torus(n: int, generator: torch.Generator) -> Tensor:
    """Draw both angles from densities that vary by a factor of four."""
    u, v = (_uneven_angle(n, generator) for _ in range(2))
    radius = 2.0 + 0.7 * v.cos()
    return torch.stack([radius * u.cos(), radius * u.sin(), 0.7 * v.sin()], dim=-1)


def _uneven_angle(n: int, generator: torch.Generator) -> Tensor:
    """Draw angles with density ∝ 1 + 0.6 cos by rejection: keep, or reflect."""
    angle = 2 * math.pi * torch.rand(n, generator=generator, dtype=torch.float64)
    kept = torch.rand(n, generator=generator, dtype=torch.float64) < 0.5 * (1 + 0.6 * angle.cos())
    return torch.where(kept, angle, math.pi - angle)
