"""Shapes with known tangent spaces: with the symmetry that helps a kernel, without, with tangents that turn fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds import CliffordTorus, Manifold, SpecialOrthogonal3, Sphere, SwissRoll, TorusOfRevolution

Drawn = tuple[Float[Tensor, "n dim"], Float[Tensor, "n dim d"]]
"""Points, and an orthonormal basis of the tangent space at each."""


@dataclass(frozen=True)
class Shape:
    """A shape to draw samples from, with its tangent spaces.

    Attributes:
        title: Its name in tables.
        dimension: d.
        draw: From a number of points and a generator to points and tangent bases.
        exact: Whether G is known in closed form, as that of a `carre.manifolds.Manifold`.
        rank: Rows of the factor; None for the default.
        reduce: Whether to work in the linear hull, as by default; a sphere is easier there.

    Example:
        >>> points, tangents = SHAPES["gr52"].draw(5, torch.Generator().manual_seed(0))
        >>> points.shape, tangents.shape
        (torch.Size([5, 48]), torch.Size([5, 48, 6]))
    """

    title: str
    dimension: int
    draw: Callable[[int, torch.Generator], Drawn]
    exact: Manifold | None = None
    rank: int | None = None
    reduce: bool = False


def _orthonormal(size: int, dim: int, seed: int) -> Float[Tensor, "dim size"]:
    square = torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.linalg.qr(square)[0][:, :size].float()


def _embedded(inner: Manifold, ambient: int) -> tuple[Manifold, Callable[[int, torch.Generator], Drawn]]:
    """Turn a manifold into a larger space, and draw from it."""
    manifold = inner.embed(ambient, generator=torch.Generator().manual_seed(0))

    def draw(n: int, generator: torch.Generator) -> Drawn:
        points = manifold.sample(n, generator=generator, dtype=torch.float32)
        return points, manifold.tangent_basis(points)

    return manifold, draw


def _ellipsoid(
    dimension: int, ambient: int, axes: tuple[float, float], unevenness: float = 0.0
) -> Callable[[int, torch.Generator], Drawn]:
    """Draw from an ellipsoid with semi-axes between two lengths; from a sphere, if those are equal.

    With an unevenness u, coordinates are stretched by up to e^u either way before a point is brought to the sphere.
    """
    lengths = torch.logspace(math.log10(axes[0]), math.log10(axes[1]), dimension + 1)
    stretch = torch.linspace(-unevenness, unevenness, dimension + 1).exp()
    basis = _orthonormal(dimension + 1, ambient, seed=0)

    def draw(n: int, generator: torch.Generator) -> Drawn:
        device = generator.device
        scale, turned = lengths.to(device), basis.to(device)
        normal = torch.randn(n, dimension + 1, generator=generator, device=device) * stretch.to(device)
        inner = torch.nn.functional.normalize(normal, dim=1)
        # The normal of Σ (xᵢ/aᵢ)² = 1 at x = a·u is u/a; the rest of an orthonormal basis is tangent.
        first = torch.nn.functional.normalize(inner / scale, dim=1)
        tangents = torch.linalg.svd(first[:, None, :], full_matrices=True)[2][:, 1:].mT
        return (inner * scale) @ turned.mT, turned @ tangents

    return draw


def _grassmannian(n: int, generator: torch.Generator) -> Drawn:
    """Draw from Gr(5, 2) as projectors in R²⁵, turned into R⁴⁸: 6 dimensions."""
    device = generator.device
    frame = torch.linalg.qr(torch.randn(n, 5, 5, generator=generator, device=device))[0]
    inside, outside = frame[..., :2], frame[..., 2:]
    moves = torch.einsum("nia,njb->nijab", inside, outside)
    moves = (moves + moves.transpose(1, 2)).reshape(n, 25, 6) / math.sqrt(2)
    turned = _orthonormal(25, 48, seed=7).to(device)
    return (inside @ inside.mT).reshape(n, 25) @ turned.mT, turned @ moves


def _wiggly_torus(n: int, generator: torch.Generator) -> Drawn:
    """Draw from a 4-torus in R⁶⁴ that is a sum of 40 random waves, unevenly."""
    device, fixed = generator.device, torch.Generator().manual_seed(11)
    waves = torch.randint(-2, 3, (40, 4), generator=fixed).float()
    heights = torch.randn(40, 64, generator=fixed) / (1 + waves.square().sum(1, keepdim=True))
    phases = 2 * math.pi * torch.rand(40, generator=fixed)
    waves, heights, phases = waves.to(device), heights.to(device), phases.to(device)
    angles = 2 * math.pi * torch.rand(n, 4, generator=generator, device=device)
    angles = angles + 0.6 * angles.sin()
    arguments = angles @ waves.mT + phases
    # In parts: at all points at once the derivatives would not fit.
    tangents = [
        torch.linalg.qr(torch.einsum("nk,kd,kD->nDd", -part.sin(), waves, heights))[0]
        for part in arguments[:2000].split(500)
    ]
    return arguments.cos() @ heights, torch.cat(tangents)


_S2, _draw_s2 = _embedded(Sphere(2), 10)
_S8, _draw_s8 = _embedded(Sphere(8), 64)

SHAPES = {
    "s2": Shape("S² ⊂ R¹⁰", 2, _draw_s2, exact=_S2, reduce=True),
    "s8": Shape("S⁸ ⊂ R⁶⁴", 8, _draw_s8, exact=_S8, rank=16),
    "uneven": Shape("S⁸ ⊂ R⁶⁴, uneven", 8, _ellipsoid(8, 64, (1.0, 1.0), 1.0), rank=16),
    "ellipsoid": Shape("ellipsoid of axes 0.5 to 2 ⊂ R⁶⁴", 8, _ellipsoid(8, 64, (0.5, 2.0)), rank=16),
    "gr52": Shape("Gr(5, 2) ⊂ R⁴⁸", 6, _grassmannian),
    "wiggly": Shape("wiggly 4-torus ⊂ R⁶⁴", 4, _wiggly_torus),
    "s3": Shape("S³ ⊂ R²⁰", 3, _embedded(Sphere(3), 20)[1], reduce=True),
    "torus": Shape("torus of revolution ⊂ R¹⁰", 2, _embedded(TorusOfRevolution(2.0, 1.0), 10)[1], reduce=True),
    "flat": Shape("flat 3-torus ⊂ R¹²", 3, _embedded(CliffordTorus([1.0, 1.0, 1.0]), 12)[1], reduce=True),
    "rotations": Shape("SO(3) ⊂ R¹²", 3, _embedded(SpecialOrthogonal3(), 12)[1], reduce=True),
    "roll": Shape("Swiss roll ⊂ R¹⁰", 2, _embedded(SwissRoll(), 10)[1], reduce=True),
}
