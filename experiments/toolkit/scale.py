"""How good is the scale that is chosen without labels?"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from shapes import Shape, shapes

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from experiments.measures.accuracy import tangent_errors

N_TEST = 500


def names() -> list[str]:
    """Name the shapes."""
    return list(shapes(torch.Generator()))


def measure_scale(name: str, seed: int = 0) -> dict:
    """Fit a shape with the defaults, and compare the chosen σ with the best of the same grid."""
    generator = torch.Generator().manual_seed(seed)
    return {"shape": name, **_row(shapes(generator)[name], generator, seed)}


def _row(shape: Shape, generator: torch.Generator, seed: int) -> dict:
    samples, test = shape.draw(shape.n, generator), shape.manifold.sample(N_TEST, generator=generator)
    start = time.perf_counter()
    geometry = carre.fit(samples.numpy(), random_state=seed, device="cpu", verbose=False)
    seconds = time.perf_counter() - start
    profile = geometry.scale_profile
    errors = [
        float(tangent_errors(geometry.field, shape.manifold, test, sigma).mean())
        for sigma in profile.bandwidth.tolist()
    ]
    chosen = errors[profile.chosen]
    local = torch.from_numpy(geometry.local_bandwidths(test).bandwidth)
    return {
        "n": shape.n,
        "fit_seconds": seconds,
        "bandwidth": geometry.bandwidth,
        "tangent_error": chosen,
        "best_error": min(errors),
        "best_bandwidth": float(profile.bandwidth[errors.index(min(errors))]),
        "regret": chosen / min(errors),
        "local_error": float(tangent_errors(geometry.field, shape.manifold, test, local).mean()),
        "dimension_right": float((geometry.dimension(test) == shape.manifold.dimension).double().mean()),
        "curve": errors,
        "grid": profile.bandwidth.tolist(),
        "gap": profile.gap.tolist(),
        "calibration": profile.calibration.tolist(),
        "idempotency": profile.idempotency.tolist(),
        "reason": profile.reason,
    }
