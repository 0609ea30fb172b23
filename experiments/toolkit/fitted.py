"""Gradients and geodesics of fitted fields against closed forms: S³ in R²⁰, and the Swiss roll."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

import carre
from carre.manifolds import Sphere, SwissRoll

N_PAIRS = 100
# Neighboring sheets of the roll are 2π apart.
HALF_GAP = math.pi


def measure_sphere(seed: int = 0, tell: Any = print) -> dict:
    """Fit S³ in R²⁰ with the defaults; compare gradients, geodesics and curvature with the truth."""
    generator = torch.Generator().manual_seed(seed)
    sphere = Sphere(3).embed(20, generator=generator)
    samples, test, others = (sphere.sample(n, generator=generator) for n in (5000, 300, 300))
    geometry, seconds = _fit(samples, seed)
    linear, quadratic = torch.randn(2, 20, generator=generator, dtype=torch.float64)

    def function(x: Tensor) -> Tensor:
        return x @ linear.to(x) + (x @ quadratic.to(x)).square()

    slope = linear + 2 * (test @ quadratic)[:, None] * quadratic
    truth = torch.einsum("nij,nj->ni", sphere.tangent_projector(test), slope)
    found = geometry.gradient(function, test)
    cosine = torch.nn.functional.cosine_similarity(found, truth, dim=1)
    first, last = test[:N_PAIRS], others[:N_PAIRS]
    arcs = torch.acos((first * last).sum(1).clamp(-1, 1))
    start = time.perf_counter()
    path = geometry.path(first, last)
    path_seconds = time.perf_counter() - start
    ratio = path.length() / arcs
    curvature = geometry.curvature(test, dimension=3).scalar
    back = geometry.exponential(first, geometry.logarithm(first, last, dimension=3), dimension=3).nodes[:, -1]
    result = {
        "n": 5000,
        "fit_seconds": seconds,
        "bandwidth": geometry.bandwidth,
        "gradient_degrees": float(torch.rad2deg(torch.acos(cosine.clamp(-1, 1))).mean()),
        "gradient_relative_error": float(((found - truth).norm(dim=1) / truth.norm(dim=1)).mean()),
        "geodesic_length_error": float((ratio - 1).abs().mean()),
        "geodesic_length_worst": float((ratio - 1).abs().max()),
        "geodesics_arrived": float(path.arrived.double().mean()),
        "geodesic_off_sphere": float(sphere.distance(path.nodes.reshape(-1, 20)).max()),
        "seconds_for_100_geodesics": path_seconds,
        "scalar_curvature": float(curvature.mean()),
        "scalar_curvature_scatter": float(curvature.std()),
        "exp_log_error": float(((back - last).norm(dim=1) / arcs).median()),
        "valid_samples": float(geometry.check(test).valid.double().mean()),
    }
    tell({key: round(value, 4) for key, value in result.items()})
    return result


def measure_roll(seed: int = 0, tell: Any = print) -> dict:
    """Fit the Swiss roll with the defaults; geodesics must follow the sheet, and have its lengths."""
    generator = torch.Generator().manual_seed(seed)
    roll = SwissRoll()
    samples, first, last = (roll.sample(n, generator=generator) for n in (5000, N_PAIRS, N_PAIRS))
    geometry, seconds = _fit(samples, seed)
    truth = torch.hypot(_arc(first) - _arc(last), first[:, 1] - last[:, 1])
    path = geometry.path(first, last)
    off = roll.distance(path.resample(200).nodes.reshape(-1, 3)).reshape(N_PAIRS, -1)
    straight = roll.distance(torch.lerp(first, last, torch.linspace(0, 1, 200).double()[:, None, None]).reshape(-1, 3))
    flow = geometry.path(first, last, method="flow")
    ratio = path.length() / truth
    result = {
        "n": 5000,
        "fit_seconds": seconds,
        "bandwidth": geometry.bandwidth,
        "length_error": float((ratio - 1).abs().mean()),
        "length_worst": float((ratio - 1).abs().max()),
        "connected": float(path.connected.double().mean()),
        "farthest_from_the_sheet": float(off.max()),
        "farthest_in_half_gaps": float(off.max()) / HALF_GAP,
        "straight_lines_farthest": float(straight.max()),
        "flow_arrived": float(flow.arrived.double().mean()),
    }
    tell({key: round(value, 4) for key, value in result.items()})
    return result


def _fit(samples: Tensor, seed: int) -> tuple[carre.Geometry, float]:
    start = time.perf_counter()
    geometry = carre.fit(samples, random_state=seed, device="cpu", verbose=False)
    return geometry, time.perf_counter() - start


def _arc(points: Tensor) -> Tensor:
    """Compute the arc length along the spiral up to points of the roll."""
    angle = torch.hypot(points[:, 0], points[:, 2])
    return 0.5 * (angle * (1 + angle.square()).sqrt() + angle.asinh())
