"""Fit again what the first release fitted, ask the same questions, and compare: ``python experiments/house/run.py``.

It writes results.json: the largest difference of every answer, relative to the largest number of that answer, and the
times beside those of the first release (before.json), both with one thread.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import carre
from data import ANSWERS, DATA, DIMENSION, HERE, IMAGES, SMALL


def height(x: torch.Tensor) -> torch.Tensor:
    """Compute a smooth function of points or images."""
    flat = x.flatten(1)
    return flat[:, 0] ** 2 + flat[:, 1]


def first(x: torch.Tensor) -> torch.Tensor:
    """Return the second coordinate."""
    return x.flatten(1)[:, 1]


def turned(x: torch.Tensor) -> torch.Tensor:
    """Compute a smooth vector field."""
    return x.roll(1, -1)


def answers(geometry: carre.Geometry, X: np.ndarray, dimension: int) -> dict[str, np.ndarray]:
    """Ask the questions."""
    few, sigma = X[:8], 2 * geometry.bandwidth
    values, vectors = X.reshape(len(X), -1)[:, 0], np.ones_like(few)
    local = geometry.at(few)
    path = geometry.path(few[0], few[1], n_nodes=9)
    estimate = geometry.estimate_dimension(X[:200])
    found: dict[str, Any] = {
        "bandwidth": geometry.bandwidth,
        "bandwidth_range": geometry.bandwidth_range,
        "metric": np.asarray(local.metric),
        "metric_coarse": np.asarray(geometry.metric(few, sigma)),
        "uncentered": np.asarray(local.gamma(centered=False)),
        "eigenvalues": geometry.eigenvalues(X[:100]),
        "dimension": geometry.dimension(X),
        "dimension_coarse": geometry.at(X[:100], sigma).dimension,
        "tangent_basis": local.tangent_basis(dimension),
        "denoised": geometry.denoise(few + 0.1),
        "estimate": [estimate.value, *estimate.interval],
        "local_bandwidths": geometry.local_bandwidths(X[:50]).bandwidth,
        "rank": geometry.recommend_rank(X[:200]).rank,
        "projected": geometry.project(few, vectors),
        "angles": geometry.tangent_angles(few[:4], few[4:], dimension=dimension),
        "gradient": local.gradient(height),
        "gradient_of_values": geometry.gradient_of_values(X, values, few),
        "carre_du_champ": geometry.carre_du_champ(height, first, few),
        "minimum": geometry.minimize(first, few, max_steps=20).values,
        "gradient_flow": geometry.gradient_flow(first, few[:2], step=0.1, n_steps=5),
        "check": np.stack([geometry.check(X[:50]).valid]).astype(float),
        "score": geometry.score(X[: len(X) // 2]),
        "geodesic": path.nodes.numpy(),
        "geodesic_length": path.length().numpy(),
        "flow": geometry.path(few[:2], few[2:4], method="flow", n_nodes=9).nodes.numpy(),
        "thread": geometry.path(few[:2], few[2:4], method="thread", n_nodes=9).nodes.numpy(),
        "distances": geometry.distances(few[:3], n_nodes=9),
        "transported": geometry.transport(path, vectors[:1]),
        "distance_from_data": geometry.distance_from_data(few),
    }
    if geometry.sample_shape is not None:
        found["tangent_images"] = geometry.tangent_images(few, 2)
    else:
        found |= {
            "laplacian": geometry.laplacian(height, few, dimension=dimension),
            "divergence": geometry.divergence(turned, few, dimension=dimension),
            "hessian": geometry.hessian(height, few, dimension=dimension)[0],
            "second_form": geometry.second_fundamental_form(few, dimension=dimension)[0],
            "mean_curvature": geometry.curvature(few, dimension=dimension).mean,
            "scalar_curvature": geometry.curvature(few, dimension=dimension).scalar,
            "ricci": geometry.curvature(few, dimension=dimension).ricci,
            "exponential": geometry.exponential(few, 0.5 * vectors, n_steps=4).nodes.numpy(),
            "logarithm": geometry.logarithm(few[:2], few[2:4], n_nodes=9),
        }
    return {name: np.asarray(value) for name, value in found.items()}


def differences(found: dict[str, np.ndarray], expected: Any) -> dict[str, float]:
    """Return the largest difference of every answer, relative to its largest number."""
    if set(found) != set(expected.files):
        raise ValueError(f"the questions are not the same: {set(found) ^ set(expected.files)}")
    return {
        name: float(np.abs(value - expected[name]).max() / max(np.abs(expected[name]).max(), 1e-300))
        for name, value in found.items()
    }


def five(local: carre.Local) -> tuple[Any, ...]:
    """Ask five questions at the same point."""
    return local.metric, local.eigenvalues, local.dimension, local.tangent_basis(3), local.denoised


def best_of(repeats: int, function: Callable[[], Any]) -> float:
    """Return the shortest of several times, in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    """Fit, ask, compare and time."""
    torch.set_num_threads(1)
    times: dict[str, float] = {}
    compared: dict[str, dict[str, float]] = {}
    for name, draw in DATA.items():
        X = draw()
        begin = time.perf_counter()
        unet = carre.UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1) if X.ndim == 4 else None
        geometry = carre.fit(X, network=unet, **(IMAGES if X.ndim == 4 else SMALL))
        times[f"fit {name}"] = time.perf_counter() - begin
        begin = time.perf_counter()
        found = answers(geometry, X, DIMENSION[name])
        times[f"answers {name}"] = time.perf_counter() - begin
        with np.load(ANSWERS / f"{name}.npz") as expected:
            compared[name] = differences(found, expected)
        if name == "sphere":
            one, many = X[:1], np.tile(X, (100, 1))
            times["metric, 1 point"] = best_of(200, lambda: geometry.at(one).metric)  # noqa: B023
            times["eigenvalues, 1 point"] = best_of(200, lambda: geometry.at(one).eigenvalues)  # noqa: B023
            times["five questions, 1 point"] = best_of(200, lambda: five(geometry.at(one)))  # noqa: B023
            times["dimension, 100,000 points"] = best_of(3, lambda: geometry.dimension(many))  # noqa: B023
    worst = {name: max(found.items(), key=lambda item: item[1]) for name, found in compared.items()}
    results = {
        "what": "answers of three fits beside those of the first release; times with one thread, in seconds",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "largest_difference": worst,
        "differences": compared,
        "seconds": {"before": json.loads((HERE / "before.json").read_text()), "after": times},
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps({"largest_difference": worst, "seconds": results["seconds"]}, indent=2))


if __name__ == "__main__":
    main()
