"""Datasets of known dimension: clean and noisy, many samples and few, closed and with edges, and like tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds import Box, CliffordTorus, Manifold, SpecialOrthogonal3, Sphere, SwissRoll, TorusOfRevolution

Draws = Callable[[int, torch.Generator], Float[Tensor, "n dim"]]
NOISES, SIZES = (0.02, 0.05, 0.1), (2000, 8000)


@dataclass(frozen=True)
class Dataset:
    """Samples of a known dimension.

    Attributes:
        suite: What it is part of.
        name: What it is called.
        dimension: d.
        n: How many samples.
        noise: The deviation of noise in every direction.
        clean: From a number of samples and a generator to samples without noise.
        tangents: From clean samples to orthonormal bases of their tangent spaces, if they are known.

    Example:
        >>> dataset = next(suite("noisy"))
        >>> samples, clean = dataset.draw(seed=0)
        >>> samples.shape == clean.shape, dataset.dimension
        (True, 2)
    """

    suite: str
    name: str
    dimension: int
    n: int
    noise: float
    clean: Draws
    tangents: Callable[[Tensor], Tensor] | None = None

    def draw(self, seed: int) -> tuple[Float[Tensor, "n dim"], Float[Tensor, "n dim"]]:
        """Draw samples, and return also what they are without noise."""
        generator = torch.Generator().manual_seed(10_000 + seed)
        clean = self.clean(self.n, generator).double()
        return clean + self.noise * torch.randn(clean.shape, generator=generator, dtype=torch.float64), clean


def _embedded(inner: Manifold, ambient: int) -> Manifold:
    return inner.embed(ambient, generator=torch.Generator().manual_seed(0))


def _sampler(manifold: Manifold) -> Draws:
    return lambda n, generator: manifold.sample(n, generator=generator)


_FREQUENCIES = torch.arange(1, 9, dtype=torch.float64)


def closed_curve(n: int, generator: torch.Generator) -> Float[Tensor, "n 16"]:
    """A closed curve that no linear subspace of R¹⁶ holds."""
    angle = 2 * torch.pi * torch.rand(n, 1, generator=generator, dtype=torch.float64) * _FREQUENCIES
    return torch.cat([angle.cos(), angle.sin()], 1) / _FREQUENCIES.repeat(2)


def curve_tangents(points: Float[Tensor, "n 16"]) -> Float[Tensor, "n 16 1"]:
    """Its tangents: the angle is that of its first coordinates."""
    angle = torch.atan2(points[:, 8], points[:, 0])[:, None] * _FREQUENCIES
    return torch.nn.functional.normalize(torch.cat([-angle.sin(), angle.cos()], 1), dim=1)[:, :, None]


def _noisy() -> Iterator[Dataset]:
    """Four shapes, three levels of noise, two sizes."""
    torus, roll, sphere = (
        _embedded(inner, ambient)
        for inner, ambient in ((TorusOfRevolution(1.0, 0.4), 15), (SwissRoll(), 10), (Sphere(3), 20))
    )
    # Of all four the deviation per direction of the data is about the same.
    size = 7.0
    shapes: dict[str, tuple[int, Draws, Callable[[Tensor], Tensor]]] = {
        "torus in R¹⁵": (2, _sampler(torus), torus.tangent_basis),
        "Swiss roll in R¹⁰": (
            2,
            lambda n, generator: roll.sample(n, generator=generator) / size,
            lambda points: roll.tangent_basis(size * points),
        ),
        "S³ in R²⁰": (3, _sampler(sphere), sphere.tangent_basis),
        "closed curve in R¹⁶": (1, closed_curve, curve_tangents),
    }
    for n in SIZES:
        for name, (dimension, draw, tangents) in shapes.items():
            for noise in NOISES:
                yield Dataset("noisy", f"{name}, τ = {noise:g}", dimension, n, noise, draw, tangents)


def _graph(dimension: int, ambient: int) -> Draws:
    """The graph of smooth functions over a cube, turned: as bent in every direction."""

    def draw(n: int, generator: torch.Generator) -> Tensor:
        fixed = torch.Generator().manual_seed(dimension)
        weights = torch.randn(dimension, ambient - dimension, generator=fixed, dtype=torch.float64) / dimension**0.5
        turn = torch.linalg.qr(torch.randn(ambient, ambient, generator=fixed, dtype=torch.float64))[0]
        flat = 2 * torch.rand(n, dimension, generator=generator, dtype=torch.float64) - 1
        return torch.cat([flat, torch.sin(2 * flat @ weights)], 1) @ turn.mT

    return draw


def _table(dimension: int, ambient: int) -> Draws:
    """Columns as of a survey: each a bent function of the same few quantities, in units of its own, standardized."""

    def draw(n: int, generator: torch.Generator) -> Tensor:
        fixed = torch.Generator().manual_seed(100 + dimension)
        weights = torch.randn(dimension, ambient, generator=fixed, dtype=torch.float64)
        hidden = torch.randn(n, dimension, generator=generator, dtype=torch.float64) @ weights / dimension**0.5
        kinds = [hidden, torch.exp(hidden / 2), torch.tanh(hidden), torch.nn.functional.softplus(2 * hidden)]
        columns = torch.stack(kinds, 2)[:, torch.arange(ambient), torch.arange(ambient) % 4]
        return (columns - columns.mean(0)) / columns.std(0)

    return draw


def _spiral(n: int, generator: torch.Generator) -> Float[Tensor, "n 3"]:
    turn = 6 * torch.pi * torch.rand(n, generator=generator, dtype=torch.float64).sqrt()
    return torch.stack([turn * turn.cos(), turn * turn.sin(), 0 * turn], 1) / 6


def _linear(dimension: int, ambient: int) -> Draws:
    def draw(n: int, generator: torch.Generator) -> Tensor:
        basis = torch.linalg.qr(torch.randn(ambient, dimension, generator=torch.Generator().manual_seed(1)).double())[0]
        return torch.randn(n, dimension, generator=generator, dtype=torch.float64) @ basis.mT

    return draw


def _calibration() -> Iterator[Dataset]:
    """At least sixty: clean, noisy, with few samples, with edges, and like tables."""
    known: dict[str, tuple[int, Manifold]] = {
        "circle in R⁶": (1, _embedded(Sphere(1), 6)),
        "S² in R⁸": (2, _embedded(Sphere(2), 8)),
        "S⁴ in R¹²": (4, _embedded(Sphere(4), 12)),
        "torus in R⁵": (2, _embedded(TorusOfRevolution(1.0, 0.45), 5)),
        "Clifford torus, 3 in 10": (3, _embedded(CliffordTorus([1.0, 1.0, 1.0]), 10)),
        "rotations in R¹²": (3, _embedded(SpecialOrthogonal3(), 12)),
        "square in R⁵": (2, _embedded(Box([0.0] * 2, [1.0] * 2), 5)),
        "cube in R⁸": (3, _embedded(Box([0.0] * 3, [1.0] * 3), 8)),
        "cube, 5 in 12": (5, _embedded(Box([0.0] * 5, [1.0] * 5), 12)),
    }
    shapes: dict[str, tuple[int, Draws, Callable[[Tensor], Tensor] | None]] = {
        name: (dimension, _sampler(manifold), manifold.tangent_basis) for name, (dimension, manifold) in known.items()
    }
    roll = SwissRoll()
    shapes["closed curve in R¹⁶"] = (1, closed_curve, curve_tangents)
    shapes["Swiss roll"] = (
        2,
        lambda n, generator: roll.sample(n, generator=generator) / 7,
        lambda points: roll.tangent_basis(7 * points),
    )
    others: dict[str, tuple[int, Draws]] = {
        "spiral": (1, _spiral),
        "graph, 2 in 6": (2, _graph(2, 6)),
        "graph, 4 in 12": (4, _graph(4, 12)),
        "plane of normal variables, 3 in 9": (3, _linear(3, 9)),
        "table, 2 in 8": (2, _table(2, 8)),
        "table, 3 in 12": (3, _table(3, 12)),
        "table, 5 in 20": (5, _table(5, 20)),
    }
    shapes |= {name: (dimension, draw, None) for name, (dimension, draw) in others.items()}
    for name, (dimension, draw, tangents) in shapes.items():
        for n in (300, 1500):
            yield Dataset("calibration", name, dimension, n, 0.0, draw, tangents)
        for noise in (0.03, 0.1):
            yield Dataset("calibration", f"{name}, τ = {noise:g}", dimension, 1500, noise, draw, tangents)


def _benchmark() -> Iterator[Dataset]:
    """scikit-dimension's manifolds; their dimensions and numbers of columns are known without it."""
    for name, dimension in MANIFOLDS.items():
        for n in (2500, 600):
            yield Dataset("benchmark", name, dimension, n, 0.0, _of_scikit_dimension(name))


def _of_scikit_dimension(name: str) -> Draws:
    def draw(n: int, generator: torch.Generator) -> Tensor:
        import skdim  # noqa: PLC0415  (only for its manifolds and its estimators)

        # Its seeds are those of the paper: 1 to 5.
        seed = generator.initial_seed() - 10_000
        found = skdim.datasets.BenchmarkManifolds(random_state=seed).generate(n=n)
        return torch.from_numpy(np.ascontiguousarray(found[name]))

    return draw


MANIFOLDS = {
    "M1_Sphere": 10,
    "M2_Affine_3to5": 3,
    "M3_Nonlinear_4to6": 4,
    "M4_Nonlinear": 4,
    "M5a_Helix1d": 1,
    "M5b_Helix2d": 2,
    "M6_Nonlinear": 6,
    "M7_Roll": 2,
    "M8_Nonlinear": 12,
    "M9_Affine": 20,
    "M10a_Cubic": 10,
    "M10b_Cubic": 17,
    "M10c_Cubic": 24,
    "M10d_Cubic": 70,
    "M11_Moebius": 2,
    "M12_Norm": 20,
    "M13a_Scurve": 2,
    "M13b_Spiral": 1,
    "Mbeta": 10,
    "Mn1_Nonlinear": 18,
    "Mn2_Nonlinear": 24,
    "Mp1_Paraboloid": 3,
    "Mp2_Paraboloid": 6,
    "Mp3_Paraboloid": 9,
}


def _with(columns: Tensor, ambient: int, seed: int) -> Tensor:
    """Add columns of zeros, and permute."""
    padded = torch.nn.functional.pad(columns, (0, ambient - columns.shape[1]))
    return padded[:, torch.randperm(ambient, generator=torch.Generator().manual_seed(seed))]


def _denoising() -> Iterator[Dataset]:
    """The five sets of the denoising loss as an estimator: centered, divided by the largest deviation of a column."""

    def scaled(draw: Draws) -> Draws:
        def of(n: int, generator: torch.Generator) -> Tensor:
            samples = draw(n, generator)
            return (samples - samples.mean(0)) / samples.std(0).max()

        return of

    def turned(inner: Tensor, ambient: int) -> Tensor:
        square = torch.randn(ambient, inner.shape[1], generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        return inner @ torch.linalg.qr(square)[0].mT

    def sphere(n: int, generator: torch.Generator) -> Tensor:
        return turned(Sphere(16).sample(n, generator=generator), 64)

    def ball(n: int, generator: torch.Generator) -> Tensor:
        radius = torch.rand(n, 1, generator=generator, dtype=torch.float64) ** (1 / 16)
        return turned(radius * Sphere(15).sample(n, generator=generator), 64)

    def twin_peaks(n: int, generator: torch.Generator) -> Tensor:
        flat = 1 - 2 * torch.rand(n, 128, generator=generator, dtype=torch.float64)
        height = torch.sin(math.pi * flat[:, :1]) * torch.tanh(3 * flat[:, 1:2])
        return _with(torch.cat([flat, height], 1), 256, 3)

    def torus(n: int, generator: torch.Generator) -> Tensor:
        angle = 2 * torch.pi * torch.rand(n, 32, generator=generator, dtype=torch.float64)
        return _with(torch.cat([angle.cos(), angle.sin()], 1), 128, 4)

    def nonlinear(n: int, generator: torch.Generator) -> Tensor:
        flat = torch.rand(n, 32, generator=generator, dtype=torch.float64)
        bent = torch.cat([flat * torch.cos(2 * torch.pi * flat), flat * torch.sin(2 * torch.pi * flat)], 1)
        return torch.cat([bent, bent.flip(1)], 1)

    sets = {
        "hyperSphere, 16 in 64": (16, sphere),
        "hyperBall, 16 in 64": (16, ball),
        "twin peaks, 128 in 256": (128, twin_peaks),
        "Clifford torus, 32 in 128": (32, torus),
        "nonlinear, 32 in 128": (32, nonlinear),
    }
    for name, (dimension, draw) in sets.items():
        yield Dataset("denoising", name, dimension, 2000, 0.0, scaled(draw))


def _spaghetti(n: int, generator: torch.Generator) -> Float[Tensor, "n 100"]:
    """A curve whose coordinates turn a hundred times as fast at one end of the list as at the other."""
    return torch.sin(torch.rand(n, 1, generator=generator, dtype=torch.float64) * torch.arange(1, 101).double())


def _pictures(count: int, draw: Callable[[int, Tensor, torch.Generator], Tensor]) -> Draws:
    """Pictures of 32 × 32 pixels: so many things, in places that are the same in all, added."""
    chosen = torch.randperm(26**2, generator=torch.Generator().manual_seed(5))[:count]
    places = torch.stack([chosen // 26, chosen % 26], 1) + 3

    def of(n: int, generator: torch.Generator) -> Tensor:
        return draw(n, places, generator).flatten(1)

    return of


def _squares(n: int, places: Tensor, generator: torch.Generator) -> Float[Tensor, "n 32 32"]:
    """Squares of side 3 or 5, whose brightness varies."""
    shapes = torch.zeros(len(places), 32, 32, dtype=torch.float64)
    for k, (row, column) in enumerate(places.tolist()):
        half = 1 + k % 2
        shapes[k, row - half : row + half + 1, column - half : column + half + 1] = 1
    brightness = torch.rand(n, len(places), generator=generator, dtype=torch.float64)
    return torch.einsum("nk,kij->nij", brightness, shapes)


def _blobs(n: int, places: Tensor, generator: torch.Generator) -> Float[Tensor, "n 32 32"]:
    """Blobs whose widths vary."""
    axis = torch.arange(32, dtype=torch.float64)
    widths = 1 + 4 * torch.rand(n, len(places), 1, generator=generator, dtype=torch.float64)
    rows, columns = (
        torch.exp(-(axis - places[:, k, None]).square() / (2 * widths.square())) for k in range(places.shape[1])
    )
    return torch.einsum("nki,nkj->nij", rows, columns)


def _iddiff() -> Iterator[Dataset]:
    """The sets of ID-diff; its squares and blobs as they are described, at places of our own."""
    for dimension in (10, 50):
        yield Dataset(
            "iddiff", f"S{dimension} in R¹⁰⁰", dimension, 50_000, 0.0, _sampler(_embedded(Sphere(dimension), 100))
        )
    yield Dataset("iddiff", "spaghetti in R¹⁰⁰", 1, 10_000, 0.0, _spaghetti)
    for count in (10, 20, 100):
        yield Dataset("iddiff", f"squares, {count} in 1,024", count, 10_000, 0.0, _pictures(count, _squares))
        yield Dataset("iddiff", f"blobs, {count} in 1,024", count, 10_000, 0.0, _pictures(count, _blobs))


SUITES = {
    "noisy": _noisy,
    "calibration": _calibration,
    "benchmark": _benchmark,
    "denoising": _denoising,
    "iddiff": _iddiff,
}


def suite(name: str) -> Iterator[Dataset]:
    """Go through the datasets of a suite."""
    return SUITES[name]()
