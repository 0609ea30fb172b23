"""Accuracy of the defaults on manifolds whose exact geometry is known.

    python experiments/core/run.py      S² in R¹⁰, S³ in R²⁰, and a union of dimensions 1, 2, 3 in R¹²

Each fit uses the defaults of `carre.fit`. Every error is measured at clean held-out points, at the
label-free ``bandwidth_`` and at the best σ of a grid on a validation set (as the paper does), beside the
centered kernel over the same samples at its own best σ and number of neighbors. Results go to results.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre.manifolds import Box, Sphere, Union
from experiments.measures.accuracy import best_bandwidth, grid_search, oracle_errors, tangent_errors

HERE = Path(__file__).parent
GRID = [2.0**k for k in np.arange(-7, 0.5, 0.5)]


def best_on_validation(field, manifold, validation, test, grid):
    """Choose σ with the labels of a validation set, as in the paper's appendix; report the test error."""
    sigma = best_bandwidth(field, manifold, validation, grid).bandwidth
    return {"bandwidth": sigma, "tangent_error": float(tangent_errors(field, manifold, test, sigma).mean())}


def kernel_best(manifold, samples, validation, test):
    """The centered kernel over the training samples, at its best σ and number of neighbors."""

    def error(bandwidth, n_neighbors, points=validation):
        field = carre.KernelField(samples, n_neighbors=n_neighbors, rank=manifold.dimension)
        return float(tangent_errors(field, manifold, points, bandwidth).mean())

    tuned = grid_search(
        error, {"bandwidth": [0.05, 0.1, 0.2, 0.4, 16.0], "n_neighbors": [32, 64, 128, 256, 512, 1024, len(samples)]}
    )
    return {**tuned.setting, "tangent_error": error(**tuned.setting, points=test)}


def fit_sphere(d: int, ambient: int, n: int, *, seed: int, n_test: int = 1000, **settings) -> dict:
    generator = torch.Generator().manual_seed(seed)
    manifold = Sphere(d).embed(ambient, generator=generator)
    samples, validation, test = (manifold.sample(m, generator=generator) for m in (n, 500, n_test))
    start = time.perf_counter()
    geometry = carre.fit(samples.numpy(), random_state=seed, device="cpu", verbose=False, **settings)
    seconds = time.perf_counter() - start
    field, sigma = geometry.field, geometry.bandwidth
    return {
        "manifold": f"S^{d} in R^{ambient}",
        "n": n,
        "seed": seed,
        "settings": settings,
        "steps": geometry.history.steps,
        "rank": geometry.rank,
        "hull": geometry.hull_dim,
        "fit_seconds": seconds,
        "training_seconds": geometry.history.seconds,
        "bandwidth": sigma,
        "tangent_error": float(tangent_errors(field, manifold, test, sigma).mean()),
        "dimension_right": float((geometry.dimension(test) == d).double().mean()),
        "relative_error_of_G": float(oracle_errors(field, manifold, test, sigma).mean()),
        "eigenvalues": geometry.eigenvalues(test).mean(0)[: d + 2].tolist(),
        "gain": max(geometry.history.gain.tolist()),
        "best_on_validation": best_on_validation(
            field, manifold, validation, test, [s for s in GRID if s >= geometry.bandwidth_range[0]]
        ),
    } | ({"kernel_best": kernel_best(manifold, samples, validation, test)} if seed == 0 and not settings else {})


def fit_union(*, seed: int, n: int = 6000) -> dict:
    """A circle, a 2-sphere and a 3-dimensional patch, randomly placed in R¹²; intersections and edges left out."""
    generator = torch.Generator().manual_seed(seed)
    parts = [Sphere(1), Sphere(2), Box([-1.0] * 3, [1.0] * 3)]
    union = Union([part.embed(12, generator=generator, shift=0.3) for part in parts])
    samples, test = union.sample(n, generator=generator), union.sample(2000, generator=generator)
    start = time.perf_counter()
    geometry = carre.fit(samples.numpy(), random_state=seed, device="cpu", verbose=False)
    seconds = time.perf_counter() - start
    patch = union.components[2]
    edge = 1 - ((test - patch.shift) @ patch.basis).abs().amax(1)
    truth = union.local_dimension(test)
    away = (union.purity(test, 0.1) > 0.999) & ((truth < 3) | (edge > 2 * geometry.bandwidth))
    right = geometry.dimension(test) == truth
    return {
        "manifold": "circle, 2-sphere, 3-patch in R^12",
        "n": n,
        "seed": seed,
        "fit_seconds": seconds,
        "bandwidth": geometry.bandwidth,
        "rank": geometry.rank,
        "points_away": int(away.sum()),
        "dimension_right": float(right[away].double().mean()),
        "dimension_right_by_part": [float(right[away & (truth == d)].double().mean()) for d in (1, 2, 3)],
        "dimension_right_everywhere": float(right.double().mean()),
    }


def run_cpu(seeds: int) -> list[dict]:
    rows = []
    for seed in range(seeds):
        for d, ambient, n in ((2, 10, 4000), (3, 20, 5000)):
            rows.append(report(fit_sphere(d, ambient, n, seed=seed)))
        rows.append(report(fit_union(seed=seed)))
    return rows


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
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    arguments = parser.parse_args()
    results = {
        "hardware": f"{torch.get_num_threads()} CPU threads",
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rows": run_cpu(arguments.seeds),
    }
    arguments.out.write_text(json.dumps({"cpu": results}, indent=1) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
