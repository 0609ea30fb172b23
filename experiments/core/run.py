"""Accuracy of the defaults on manifolds whose exact geometry is known.

    python experiments/core/run.py cpu      S² in R¹⁰, S³ in R²⁰, and a union of dimensions 1, 2, 3 in R¹²
    python experiments/core/run.py gpu      S⁸ in R⁶⁴ over five seeds, with and without the linear hull

Each fit uses the defaults of `MetricMatching`. Every error is measured at clean held-out points, at the
label-free ``bandwidth_`` and at the best σ of a grid on a validation set (as the paper does), beside the
exact kernel sum over the same samples at its own best σ. Results go to results.json, under "cpu" or "gpu".
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch

from carre import ExactField, MetricField, MetricMatching, projector_distance
from carre.manifolds import Box, FiniteSet, Manifold, Sphere, Union

HERE = Path(__file__).parent
GRID = [2.0**k for k in np.arange(-7, 0.5, 0.5)]


def tangent_error(field: MetricField, manifold: Manifold, points: torch.Tensor, sigma: float, device: str) -> float:
    basis = field.metric(points.to(device), sigma).tangent_basis(manifold.dimension).cpu()
    return float(projector_distance(basis, manifold.tangent_basis(points)).mean())


def best_on_validation(field, manifold, validation, test, device, grid):
    """Choose σ with the labels of a validation set, as in the paper's appendix; report the test error."""
    sigma = min(grid, key=lambda s: tangent_error(field, manifold, validation, s, device))
    return {"bandwidth": sigma, "tangent_error": tangent_error(field, manifold, test, sigma, device)}


def kernel_best(manifold, samples, validation, test):
    """The exact centered kernel sum over the training samples, at its best σ."""
    field = ExactField(FiniteSet(samples))
    return best_on_validation(field, manifold, validation, test, "cpu", [s for s in GRID if s > 0.05])


def fit_sphere(d: int, ambient: int, n: int, *, seed: int, device: str, n_test: int = 1000, **settings) -> dict:
    generator = torch.Generator().manual_seed(seed)
    manifold = Sphere(d).embed(ambient, generator=generator)
    samples, validation, test = (manifold.sample(m, generator=generator) for m in (n, 500, n_test))
    start = time.perf_counter()
    geometry = MetricMatching(random_state=seed, device=device, verbose=False, **settings).fit(samples.numpy())
    seconds = time.perf_counter() - start
    learned = geometry.metric(test).dense()
    exact = manifold.posterior(test, geometry.bandwidth_).metric.dense()
    relative = ((learned - exact).norm(dim=(1, 2)) / exact.norm(dim=(1, 2))).mean()
    return {
        "manifold": f"S^{d} in R^{ambient}",
        "n": n,
        "seed": seed,
        "settings": settings,
        "steps": geometry.history_.steps,
        "rank": geometry.rank_,
        "hull": geometry.field_.frame.dim,
        "fit_seconds": seconds,
        "training_seconds": geometry.history_.seconds,
        "bandwidth": geometry.bandwidth_,
        "tangent_error": tangent_error(geometry.field_, manifold, test, geometry.bandwidth_, device),
        "dimension_right": float((geometry.dimension(test) == d).double().mean()),
        "relative_error_of_G": float(relative),
        "eigenvalues": geometry.eigenvalues(test).mean(0)[: d + 2].tolist(),
        "gain": max(geometry.history_.gain.tolist()),
        "best_on_validation": best_on_validation(
            geometry.field_, manifold, validation, test, device, [s for s in GRID if s >= geometry.bandwidth_range_[0]]
        ),
    } | ({"kernel_best": kernel_best(manifold, samples, validation, test)} if seed == 0 and not settings else {})


def fit_union(*, seed: int, n: int = 6000) -> dict:
    """A circle, a 2-sphere and a 3-dimensional patch, randomly placed in R¹²; intersections and edges left out."""
    generator = torch.Generator().manual_seed(seed)
    parts = [Sphere(1), Sphere(2), Box([-1.0] * 3, [1.0] * 3)]
    union = Union([part.embed(12, generator=generator, shift=0.3) for part in parts])
    samples, test = union.sample(n, generator=generator), union.sample(2000, generator=generator)
    start = time.perf_counter()
    geometry = MetricMatching(random_state=seed, device="cpu", verbose=False).fit(samples.numpy())
    seconds = time.perf_counter() - start
    patch = union.components[2]
    edge = 1 - ((test - patch.shift) @ patch.basis).abs().amax(1)
    truth = union.local_dimension(test)
    away = (union.purity(test, 0.1) > 0.999) & ((truth < 3) | (edge > 2 * geometry.bandwidth_))
    right = geometry.dimension(test) == truth
    return {
        "manifold": "circle, 2-sphere, 3-patch in R^12",
        "n": n,
        "seed": seed,
        "fit_seconds": seconds,
        "bandwidth": geometry.bandwidth_,
        "rank": geometry.rank_,
        "points_away": int(away.sum()),
        "dimension_right": float(right[away].double().mean()),
        "dimension_right_by_part": [float(right[away & (truth == d)].double().mean()) for d in (1, 2, 3)],
        "dimension_right_everywhere": float(right.double().mean()),
    }


def run_cpu(seeds: int) -> list[dict]:
    rows = []
    for seed in range(seeds):
        for d, ambient, n in ((2, 10, 4000), (3, 20, 5000)):
            rows.append(report(fit_sphere(d, ambient, n, seed=seed, device="cpu")))
        rows.append(report(fit_union(seed=seed)))
    return rows


def run_gpu(seeds: int) -> list[dict]:
    options = [{}, {"reduce": False}]
    return [
        report(fit_sphere(8, 64, 8192, seed=seed, device="cuda", n_test=2000, **settings))
        for settings in options
        for seed in range(seeds)
    ]


def report(row: dict) -> dict:
    error = row.get("tangent_error")
    best = row.get("best_on_validation", {}).get("tangent_error")
    kernel = row.get("kernel_best", {}).get("tangent_error")
    print(f"{row['manifold']:36s} seed {row['seed']} {row.get('settings', '')} fit {row['fit_seconds']:.1f} s", end="")
    print(f"  σ {row['bandwidth']:.3f}  dimension right {row['dimension_right']:.1%}", end="")
    if error is not None:
        print(f"  tangent error {error:.4f} (best σ {best:.4f})  G within {row['relative_error_of_G']:.1%}", end="")
    print(f"  kernel {kernel:.4f}" if kernel else "", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", choices=["cpu", "gpu"])
    parser.add_argument("--seeds", type=int, default=None, help="number of seeds (default: 3 on a CPU, 5 on a GPU)")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    arguments = parser.parse_args()
    if arguments.where == "gpu" and not torch.cuda.is_available():
        parser.error("gpu needs a CUDA device, and there is none")
    rows = run_cpu(arguments.seeds or 3) if arguments.where == "cpu" else run_gpu(arguments.seeds or 5)
    hardware = torch.cuda.get_device_name() if arguments.where == "gpu" else f"{torch.get_num_threads()} CPU threads"
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    known[arguments.where] = {
        "hardware": hardware,
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(known, indent=1) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
