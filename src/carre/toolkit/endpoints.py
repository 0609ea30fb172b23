"""Where curves start and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField


@dataclass(frozen=True, eq=False)
class Endpoints:
    """Pairs of points, and the scale of each pair.

    Attributes:
        start: Where curves start.
        end: Where they end.
        bandwidth: σ, one per pair.
    """

    start: Float[Tensor, "paths dim"]
    end: Float[Tensor, "paths dim"]
    bandwidth: Float[Tensor, " paths"]


def as_endpoints(
    field: MetricField | None, start: Any, end: Any, bandwidth: Bandwidth = 1.0, *, names: tuple[str, str]
) -> Endpoints:
    """Accept as many starts as ends, or one of either for all, with one σ or one per pair."""
    first = as_points(start, dim=None if field is None else field.dim, name=names[0]).tensor.detach()
    last = as_points(end, dim=first.shape[1], name=names[1]).tensor.detach().to(first)
    count = max(len(first), len(last))
    if {len(first), len(last)} - {1, count}:
        raise ValueError(
            f"{names[1]} must be as many as {names[0]}, {len(first)}, or one for all; got {len(last)}. "
            "For all pairs use geodesic_distances"
        )
    first, last = first.expand(count, -1), last.expand(count, -1)
    return Endpoints(first, last, as_bandwidth(bandwidth, first))
