"""Measure eigenvalues of the Laplace–Beltrami operator where they are known.

    python experiments/eigenfunctions/run.py [--quick]

Beside diffusion maps with α = 1, whose bandwidth is chosen for each shape and seed with the labels. Writes results.json
beside this file, and the table into README.md. `--quick` takes few points, one seed and no fits, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import eigsh
from sklearn.neighbors import NearestNeighbors
from table import write
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre.manifolds import Box, CliffordTorus, Manifold, SpecialOrthogonal3, Sphere, SwissRoll, Union
from carre.metric import LowRankMetric

HERE = Path(__file__).parent
N_FUNCTIONS, SEEDS, FIT_STEPS = 16, (1, 2, 3), 500
# Of the rival: its bandwidth, as a multiple of the median distance to the 16th neighbor, and how far its kernel is cut.
WIDTHS, NEIGHBORS = (0.35, 0.5, 0.7, 1.0, 1.4), 256


class ExactTangents:
    """The field whose metric is the true tangent projector: what a perfect fit would say for σ → 0."""

    def __init__(self, manifold: Manifold) -> None:
        self.manifold, self.dim = manifold, manifold.ambient_dim

    def metric(self, points: Tensor, bandwidth: Any) -> LowRankMetric:
        """Return the projector."""
        return LowRankMetric(self.manifold.tangent_basis(points).mT.contiguous())

    def denoise(self, points: Tensor, bandwidth: Any) -> Tensor:
        """Return the points."""
        return points


@dataclass(frozen=True)
class Shape:
    """A manifold, how it is sampled, and its eigenvalues."""

    manifold: Manifold
    n: int
    eigenvalues: list[float]
    draw: Callable[[int, torch.Generator], Tensor] | None = None

    def samples(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw samples."""
        return self.draw(n, generator) if self.draw else self.manifold.sample(n, generator=generator)


def uneven(n: int, generator: torch.Generator) -> Tensor:
    """Draw from S² with a density of e^{1.5 z}: twenty times as dense at one pole as at the other."""
    points = Sphere(2).sample(20 * n, generator=generator)
    kept = torch.rand(len(points), generator=generator, dtype=points.dtype) < (1.5 * (points[:, 2] - 1)).exp()
    return points[kept][:n]


def shapes(generator: torch.Generator) -> dict[str, Shape]:
    """Return the shapes; the generator rotates the sphere."""
    sphere = [float(k * (k + 1)) for k in range(5) for _ in range(2 * k + 1)]
    three = [float(k * (k + 2)) for k in range(4) for _ in range((k + 1) ** 2)]
    circle = [0.0] + [float(k * k) for k in range(1, 30) for _ in range(2)]
    roll = SwissRoll()
    first, last = (0.5 * (t * math.sqrt(1 + t * t) + math.asinh(t)) for t in (1.5 * math.pi, 4.5 * math.pi))
    turns = range(-9, 10)
    return {
        "circle": Shape(Sphere(1), 1000, circle),
        "two circles": Shape(Union([Sphere(1), Sphere(1, radius=2.0)]), 2000, circle + [k / 4 for k in circle]),
        "S² in R¹⁰": Shape(Sphere(2).embed(10, generator=generator), 4000, sphere),
        "S², uneven 20 : 1": Shape(Sphere(2), 4000, sphere, uneven),
        "Clifford torus": Shape(CliffordTorus([1.0, 0.5]), 4000, [a * a + 4.0 * b * b for a in turns for b in turns]),
        "S³": Shape(Sphere(3), 4000, three),
        "SO(3)": Shape(SpecialOrthogonal3(), 4000, [0.0] + 9 * [1.0] + 25 * [3.0]),
        "rectangle": Shape(Box([0.0, 0.0], [1.0, 0.7]), 4000, _neumann(1.0, 0.7)),
        "Swiss roll": Shape(roll, 4000, _neumann(last - first, 21.0)),
        "cube": Shape(Box([0.0] * 3, [1.0] * 3), 4000, _neumann(1.0, 1.0, 1.0)),
    }


def _neumann(*sides: float) -> list[float]:
    axes = np.meshgrid(*[[(k * math.pi / side) ** 2 for k in range(20)] for side in sides])
    return [float(value) for value in sum(axes).ravel()]


def diffusion_maps(samples: np.ndarray, dimension: int, n_functions: int, width: float) -> np.ndarray:
    """Compute the eigenvalues of diffusion maps with α = 1 (Coifman and Lafon), of the kernel exp(−d²/4ε)."""
    count = min(NEIGHBORS, len(samples))
    distances, near = NearestNeighbors(n_neighbors=count).fit(samples).kneighbors(samples)
    epsilon = (width * float(np.median(distances[:, 16]))) ** 2
    rows = np.repeat(np.arange(len(samples)), count)
    kernel = coo_array((np.exp(-(distances**2) / (4 * epsilon)).ravel(), (rows, near.ravel()))).tocsr()
    kernel = kernel.maximum(kernel.T)
    density = diags_array(1 / kernel.sum(1))
    kernel = density @ kernel @ density
    root = diags_array(1 / np.sqrt(kernel.sum(1)))
    start = np.random.default_rng(0).normal(size=len(samples))
    values = eigsh(root @ kernel @ root, k=n_functions, which="LA", v0=start, return_eigenvectors=False)
    return np.sort(-np.log(np.clip(values, 1e-12, 1)) / epsilon)


def errors(values: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return the largest and the mean relative error of the eigenvalues that are not zero."""
    off = np.abs(values - truth)[truth > 0] / truth[truth > 0]
    return {"largest": float(off.max()), "mean": float(off.mean())}


def measure(name: str, shape: Shape, seed: int, n: int) -> dict[str, Any]:
    """Compute the eigenvalues of one sample of a shape, by both."""
    samples = shape.samples(n, torch.Generator().manual_seed(100 + seed))
    truth = np.sort(shape.eigenvalues)[:N_FUNCTIONS]
    start = time.perf_counter()
    found = carre.toolkit.eigenfunctions(ExactTangents(shape.manifold), samples, N_FUNCTIONS, 1.0)
    seconds = time.perf_counter() - start
    values, sure = found.values.numpy(), found.uncertainty.numpy()
    dimension = shape.manifold.dimension
    rivals = {w: errors(diffusion_maps(samples.numpy(), dimension, N_FUNCTIONS, w), truth) for w in WIDTHS}
    best = min(rivals, key=lambda width: rivals[width]["largest"])
    return {
        "shape": name,
        "n": n,
        "seed": seed,
        "seconds": seconds,
        "exact": errors(values, truth),
        "within": float((np.abs(values - truth) <= sure)[truth > 0].mean()),
        "resolved": found.n_resolved,
        "diffusion maps": rivals[best] | {"width": best},
        "values": values.tolist(),
        "truth": truth.tolist(),
    }


def fitted(name: str, shape: Shape, seed: int, n: int) -> dict[str, Any]:
    """Fit the samples, and compute the eigenvalues at them by the fitted geometry with its own scale."""
    samples = shape.samples(n, torch.Generator().manual_seed(100 + seed)).numpy()
    geometry = carre.fit(samples, random_state=seed, device="cpu", verbose=False, max_steps=FIT_STEPS)
    found = geometry.eigenfunctions(samples, N_FUNCTIONS)
    return {"shape": name, "seed": seed, "fitted": errors(found.values, np.sort(shape.eigenvalues)[:N_FUNCTIONS])}


def main() -> None:
    """Measure everything, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few points, one seed, no fits; nothing is written")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    rows, fits, started = [], [], time.perf_counter()
    for seed in SEEDS[:1] if options.quick else SEEDS:
        for name, shape in shapes(torch.Generator().manual_seed(seed)).items():
            rows.append(measure(name, shape, seed, 500 if options.quick else shape.n))
            print(name, seed, {key: rows[-1][key] for key in ("exact", "diffusion maps", "seconds")}, flush=True)
            if name in ("S² in R¹⁰", "S², uneven 20 : 1") and not options.quick:
                fits.append(fitted(name, shape, seed, shape.n))
                print(fits[-1], flush=True)
    if options.quick:
        return
    machine = {"cores": os.cpu_count(), "threads": options.threads, "python": platform.python_version()}
    results = {
        "machine": machine | {"torch": torch.__version__, "carre": carre.__version__, "date": date.today().isoformat()},
        "seconds": round(time.perf_counter() - started),
        "rows": rows,
        "fits": fits,
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write(results)


if __name__ == "__main__":
    main()
