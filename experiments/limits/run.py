"""Measure what a fit and each question cost, in time and memory: `python experiments/limits/run.py`.

Writes results.json beside this file, and the tables into README.md and docs/limits.md between their markers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre.manifolds import Sphere
from carre.toolkit import Geodesic
from experiments.limits.table import TABLES
from experiments.measures import peak_memory
from experiments.measures.pages import fill_pages, machine

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "limits.md")
# Dimension of the sphere, columns, rank, width of the network, and at how many points quick questions are asked.
CASES = ((2, 10, 8, 128, 10_000), (4, 100, 16, 128, 10_000), (8, 784, 16, 128, 1000))
N_SAMPLES = 2000
# Steps of the two fits whose difference is the time of a step. The longer one is asked: it has some idea of the data.
SHORT, LONG = 20, 100
MEGABYTE = 2**20
# The working memory of a CPU, and the points and activations that a network holds at once.
PARTS, AT_ONCE, ACTIVATIONS = 128 * MEGABYTE, 16_384, 8


def main() -> None:
    """Measure everything, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", action="store_true", help="note that other work ran on the machine")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    started = time.perf_counter()
    with warnings.catch_warnings():
        # Fits of a few steps know nothing, and say so.
        warnings.simplefilter("ignore")
        cases = [measure(*case) for case in CASES]
    results = {
        "machine": machine(shared=options.shared, threads=options.threads),
        "seconds": round(time.perf_counter() - started),
        "cases": cases,
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    fill_pages(PAGES, TABLES, results)


def measure(dimension: int, columns: int, rank: int, width: int, many: int) -> dict[str, Any]:
    """Fit a sphere in so many columns, and ask it everything."""
    sphere = Sphere(dimension).embed(columns, generator=torch.Generator().manual_seed(0))
    samples = sphere.sample(N_SAMPLES, generator=torch.Generator().manual_seed(1))
    settings: dict[str, Any] = {"rank": rank, "width": width, "reduce": False, "random_state": 0, "verbose": False}
    settings |= {"device": "cpu", "bandwidth": 0.2}
    times = []
    # The first fit loads what later ones find loaded.
    for steps in (1, SHORT, LONG):
        begin = time.perf_counter()
        geometry = carre.fit(samples, max_steps=steps, **settings)
        times.append(time.perf_counter() - begin)
    step = max((times[2] - times[1]) / (LONG - SHORT), 1e-6)
    fit = {"n_samples": N_SAMPLES, "seconds_per_step": step, "seconds_beside": times[1] - SHORT * step}
    fit["batch_size"] = 256
    return {
        "dimension": dimension,
        "columns": columns,
        "rank": rank,
        "width": width,
        "fit": fit,
        "queries": _queries(geometry, sphere, dimension, rank, width, many),
    }


def _queries(
    geometry: carre.Geometry, sphere: Any, dimension: int, rank: int, width: int, many: int
) -> list[dict[str, Any]]:
    columns, shortest = geometry.dim, Geodesic(dimension=dimension)
    calls: list[tuple[str, int, Callable[[Tensor], object], int]] = [
        # Name, points, call, numbers in the answer per point.
        ("metric", many, geometry.metric, rank * columns),
        ("eigenvalues", many, geometry.eigenvalues, min(rank, columns)),
        ("dimension", many, geometry.dimension, 1),
        ("tangent_basis", many, lambda y: geometry.tangent_basis(y, dimension), columns * dimension),
        ("denoise", many, geometry.denoise, columns),
        ("gradient", 1000, lambda y: geometry.gradient(lambda x: x[:, 0] ** 2, y, dimension=dimension), columns),
        ("check", 100, geometry.check, 10),
        ("scalar_curvature", 100, lambda y: geometry.curvature(y, dimension=dimension).scalar, 1),
        ("path", 1, lambda y: geometry.path(y, geometry.landmarks[:1], method=shortest), 33 * columns),
    ]
    rows = []
    for name, n, call, numbers in calls:
        points = sphere.sample(n, generator=torch.Generator().manual_seed(2))
        seconds: list[float] = []

        def timed(y: Tensor, call: Callable[[Tensor], object] = call, seconds: list[float] = seconds) -> object:
            begin = time.perf_counter()
            answer = call(y)
            seconds.append(time.perf_counter() - begin)
            return answer

        peak = peak_memory(timed, points)
        parts = (3 if name == "check" else 2) * PARTS
        bound = 2 * n * numbers * 8 + parts + min(n, AT_ONCE) * ACTIVATIONS * width * 8
        rows.append(
            {
                "call": name,
                "points": n,
                "seconds": seconds[-1],
                "first_seconds": seconds[0],
                "answer_megabytes": n * numbers * 8 / MEGABYTE,
                "bound_megabytes": bound / MEGABYTE,
                "peak_megabytes": None if peak is None else peak / MEGABYTE,
            }
        )
    return rows


if __name__ == "__main__":
    main()
