"""How far from the data a point is."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.landing import land

_N_WALKED = 8
# In σ: shorter steps are the drift towards denser data, not the way back.
_SHORT = 0.5
_DEVIATIONS = 3.0


def walk_back(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], *, n_steps: int = _N_WALKED
) -> Float[Tensor, "n dim"]:
    """Follow the denoiser, y ← E[X | Y=y], until its steps are shorter than σ/2.

    One step is enough where the denoiser is exact. That of a network knows points up to a few σ away: from farther
    it steps in the right direction, but at most some 3σ at a time.
    """
    there, walking = points, torch.arange(len(points), device=points.device)
    for _ in range(n_steps):
        step = field.denoise(there[walking], bandwidth[walking]) - there[walking]
        length = torch.linalg.vector_norm(step, dim=-1)
        # Where a field's answer is not finite, there is nowhere to walk.
        long = (length > _SHORT * bandwidth[walking]) & torch.isfinite(length)
        walking = walking[long]
        if len(walking) == 0:
            break
        there = there.index_add(0, walking, step[long])
    return there


def noise_reach(bandwidth: Float[Tensor, " n"], codimension: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Compute how far noise of deviation σ carries a point from the data: σ(√(D−d) + 3).

    The distance is σχ with D−d degrees of freedom, of mean about √(D−d) and deviation below 1: one noisy
    point in a thousand lies beyond.
    """
    return bandwidth * (codimension.to(bandwidth).sqrt() + _DEVIATIONS)


def distance_from_data(
    field: MetricField, points: Any, bandwidth: Bandwidth, *, progress: Progress | None = None
) -> Any:
    """Compute how far points are from the data, shape (n,): the length of the walk back to them by the denoiser.

    Right up to some 20σ for a learned field; farther points are said to be at least that far.

    Args:
        field: The field.
        points: Points, shape (n, D).
        bandwidth: σ, one number or one per point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> point = torch.tensor([[0.0, 0.0, 3.0]], dtype=torch.float64)
        >>> distance_from_data(ExactField(Sphere(2)), point, 0.05).round(decimals=2)
        tensor([2.], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)

    def part(y: Tensor, s: Tensor) -> Tensor:
        distance: Tensor = torch.linalg.vector_norm(land(field, walk_back(field, y, s), s) - y, dim=-1)
        return distance

    with torch.no_grad():
        return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=64 * field.dim, progress=progress))
