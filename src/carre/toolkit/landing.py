"""Back onto the data, by the denoiser."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from carre.fields import MetricField

# The second scale of the extrapolation: σ²/2.
_FINER = 2**-0.5


def pull(field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
    """Compute the step from each point to the data: m(y) − y, extrapolated to σ → 0.

    On curved data E[X | Y=y] lies off the data by ½σ²H⃗, towards the center of curvature [THEORY §4.6]. The
    combination 2m(y, σ/√2) − m(y, σ) has no such term. It pulls from as far as σ reaches.
    """
    coarse = field.denoise(points, bandwidth)
    return 2 * field.denoise(points, bandwidth * _FINER) - coarse - points


def land(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], *, n_steps: int = 1
) -> Float[Tensor, "n dim"]:
    """Move points onto the data."""
    for _ in range(n_steps):
        points = points + pull(field, points, bandwidth)
    return points


def straying(field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Compute how far points are from the data, |m(y) − y|, without the bias of curvature.

    Noisy points y = x + σz are about σ√(D − d) away.
    """
    distance: Tensor = torch.linalg.vector_norm(pull(field, points, bandwidth), dim=-1)
    return distance
