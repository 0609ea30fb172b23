"""What three fits of the first release answer; run in a checkout of it, commit 96a37f8, with ``PYTHONPATH=src``.

    python path/to/experiments/house/first_release.py

It writes answers/NAME.npz and answers/NAME, the saved geometry, beside this file, and times to before.json.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import torch

from carre import MetricMatching, UNetSettings
from carre.toolkit import distance_from_data, ricci_curvature
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


def answers(g: Any, X: np.ndarray, dim: int, *, images: bool) -> dict[str, Any]:
    """Ask the questions."""
    few, sigma = X[:8], 2 * g.bandwidth_
    n, values = len(X), X.reshape(len(X), -1)[:, 0]
    path = g.geodesic(few[0], few[1], n_nodes=9)
    estimate, validity, scales = g.estimate_dimension(X[:200]), g.check(X[:50]), g.local_bandwidths(X[:50])
    minimum = g.minimize(first, few, max_steps=20)
    vectors = np.ones_like(few)
    found: dict[str, Any] = {
        "bandwidth": g.bandwidth_,
        "bandwidth_range": g.bandwidth_range_,
        "metric": np.asarray(g.metric(few)),
        "metric_coarse": np.asarray(g.metric(few, sigma)),
        "uncentered": np.asarray(g.carre_du_champ(few, centered=False)),
        "eigenvalues": g.eigenvalues(X[:100]),
        "dimension": g.dimension(X),
        "dimension_coarse": g.dimension(X[:100], sigma),
        "tangent_basis": g.tangent_basis(few, dim),
        "denoised": g.denoise(few + 0.1),
        "estimate": [estimate.value, *estimate.interval],
        "local_bandwidths": scales.bandwidth,
        "rank": g.recommend_rank(X[:200]).rank,
        "projected": g.project(few, vectors),
        "angles": g.tangent_angles(few[:4], few[4:], dim=dim),
        "gradient": g.gradient(height, few),
        "gradient_of_values": g.gradient_of_values(X, values, few),
        "carre_du_champ": g.carre_du_champ_of(height, first, few),
        "minimum": minimum.values,
        "gradient_flow": g.gradient_flow(first, few[:2], step=0.1, n_steps=5),
        "check": np.stack([validity.valid]).astype(float),
        "score": g.score(X[: n // 2]),
        "geodesic": path.nodes.numpy(),
        "geodesic_length": path.length().numpy(),
        "flow": g.interpolate(few[:2], few[2:4], n_nodes=9).nodes.numpy(),
        "thread": g.thread(few[:2], few[2:4], n_nodes=9).nodes.numpy(),
        "distances": g.geodesic_distances(few[:3], n_nodes=9),
        "transported": g.parallel_transport(path, vectors[:1]),
        "distance_from_data": distance_from_data(g.field_, torch.from_numpy(few.reshape(len(few), -1)), g.bandwidth_),
    }
    if images:
        found["tangent_images"] = g.tangent_images(few, 2)
    else:
        found |= {
            "laplacian": g.laplacian(height, few, dim=dim),
            "divergence": g.divergence(turned, few, dim=dim),
            "hessian": g.hessian(height, few, dim=dim)[0],
            "second_form": g.second_fundamental_form(few, dim=dim)[0],
            "mean_curvature": g.mean_curvature(few, dim=dim),
            "scalar_curvature": g.scalar_curvature(few, dim=dim),
            "ricci": ricci_curvature(g.field_, torch.from_numpy(few), g.bandwidth_, dim=dim)[0],
            "exponential": g.exponential(few, 0.5 * vectors, n_steps=4).nodes.numpy(),
            "logarithm": g.logarithm(few[:2], few[2:4], n_nodes=9),
        }
    return {name: np.asarray(value) for name, value in found.items()}


def five(g: Any, point: np.ndarray) -> tuple[Any, ...]:
    """Ask five questions at the same point."""
    return g.metric(point), g.eigenvalues(point), g.dimension(point), g.tangent_basis(point, 3), g.denoise(point)


def best_of(repeats: int, function: Any) -> float:
    """Return the shortest of several times, in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    """Fit, ask, save and time."""
    torch.set_num_threads(1)
    times: dict[str, float] = {}
    for name, draw in DATA.items():
        X = draw()
        images = X.ndim == 4
        unet = {"network": UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1)} if images else {}
        begin = time.perf_counter()
        geometry = MetricMatching(**(IMAGES if images else SMALL), **unet).fit(X)
        times[f"fit {name}"] = time.perf_counter() - begin
        dim = DIMENSION[name]
        ANSWERS.mkdir(exist_ok=True)
        begin = time.perf_counter()
        np.savez_compressed(ANSWERS / f"{name}.npz", **answers(geometry, X, dim, images=images))
        times[f"answers {name}"] = time.perf_counter() - begin
        geometry.save_pretrained(ANSWERS / name)
        if name == "sphere":
            one, many = X[:1], np.tile(X, (100, 1))
            times["metric, 1 point"] = best_of(200, lambda: geometry.metric(one))  # noqa: B023
            times["eigenvalues, 1 point"] = best_of(200, lambda: geometry.eigenvalues(one))  # noqa: B023
            times["five questions, 1 point"] = best_of(200, lambda: five(geometry, one))  # noqa: B023
            times["dimension, 100,000 points"] = best_of(3, lambda: geometry.dimension(many))  # noqa: B023
    (HERE / "before.json").write_text(json.dumps(times, indent=2) + "\n")
    print(json.dumps(times, indent=2))


if __name__ == "__main__":
    main()
