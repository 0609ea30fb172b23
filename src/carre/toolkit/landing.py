"""Back onto the data, by the denoiser, and how far that is."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.backend import Progress
from carre.fields import Bandwidth, DataField, MetricField
from carre.toolkit.question import ask

# The second scale of the extrapolation: σ²/2.
_FINER = 2**-0.5
_N_WALKED = 8
# In σ: shorter steps are the drift towards denser data, not the way back.
_SHORT = 0.5
_DEVIATIONS = 3.0


def lengths(vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """Compute the length of every vector."""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return norms


def pull(field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
    """Compute the step from each point to the data: m(y) − y, extrapolated to σ → 0.

    On curved data E[X | Y=y] lies off the data by ½σ²H⃗, towards the center of curvature [THEORY §4.6]. The
    combination 2m(y, σ/√2) − m(y, σ) has no such term. It pulls from as far as σ reaches.
    """
    coarse = field.denoise(points, bandwidth)
    return 2 * field.denoise(points, bandwidth * _FINER) - coarse - points


def land(field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
    """Move points onto the data."""
    return points + pull(field, points, bandwidth)


def walk_back(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]
) -> Float[Tensor, "n dim"]:
    """Follow the denoiser, y ← E[X | Y=y], until its steps are shorter than σ/2.

    One step is enough where the denoiser is exact. That of a network knows points up to a few σ away: from farther
    it steps in the right direction, but at most some 3σ at a time.
    """
    there, walking = points, torch.arange(len(points), device=points.device)
    for _ in range(_N_WALKED):
        step = field.denoise(there[walking], bandwidth[walking]) - there[walking]
        length = lengths(step)
        # Where a field's answer is not finite, there is nowhere to walk.
        long = (length > _SHORT * bandwidth[walking]) & torch.isfinite(length)
        walking = walking[long]
        if len(walking) == 0:
            break
        there = there.index_add(0, walking, step[long])
    return there


def walked_distance(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """Compute the length of the walk back to the data."""
    return lengths(land(field, walk_back(field, points, bandwidth), bandwidth) - points)


def noise_reach(bandwidth: Float[Tensor, " n"], codimension: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Compute how far noise of deviation σ carries a point from the data, but for one in a thousand: σ(√(D−d) + 3)."""
    return bandwidth * (codimension.to(bandwidth).sqrt() + _DEVIATIONS)


@torch.no_grad()
def distance_from_data(
    field: MetricField | DataField, points: Any, bandwidth: Bandwidth | None = None, *, progress: Progress | None = None
) -> Any:
    """Compute how far points are from the data, shape (n,): the length of the walk back to them by the denoiser.

    Right up to some 20σ for a learned field; farther points are said to be at least that far.

    Args:
        field: The field; its denoiser is needed.
        points: Points, shape (n, D).
        bandwidth: σ, one number or one per point; None takes the default of a `carre.Geometry`.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> point = torch.tensor([[0.0, 0.0, 3.0]], dtype=torch.float64)
        >>> distance_from_data(ExactField(Sphere(2)), point, 0.05).round(decimals=2)
        tensor([2.], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="distance from the data")
    return question.answer(lambda y, s: walked_distance(question.field, y, s), progress=progress)
