"""Traces that were estimated."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TraceEstimate:
    """A trace at each point, and how far off it may be.

    Attributes:
        value: The trace.
        error: Its standard error over the probes; 0 where it was computed exactly.

    Example:
        >>> import torch
        >>> from carre import ExactField, ScoreField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> estimate = ScoreField(ExactField(Sphere(2))).trace(pole, 0.1)  # exactly, in three products
        >>> round(float(estimate.value), 2), float(estimate.error)
        (1.99, 0.0)
    """

    value: Float[Tensor, " n"]
    error: Float[Tensor, " n"]
