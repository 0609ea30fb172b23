"""What a report asks, and how much of it can be afforded: a geometry, the points shown, a scale and a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from carre.geometry import Geometry
from carre.report._inputs import Column, ReportInput

# Points that are timed: few, and more of them where few take hardly any time.
_FEW, _MORE, _NO_TIME = 8, 256, 0.5
_TRIES = 3
# At fewer points a map says little; networks for images take a hundred times as long as those for tables.
_FEWEST_SHOWN, _FEWEST_IMAGES = 2000, 200
# The share of the time for the points at the scale of the report, where the dimension is estimated at three scales.
_FOR_POINTS, _ESTIMATE_COST = 0.4, 2.2


@dataclass(frozen=True, eq=False)
class Survey:
    """What a report asks.

    Attributes:
        geometry: The geometry, which draws no progress bars here.
        given: The data.
        rows: Which of their rows are shown, ascending.
        bandwidth: The scale σ that the report is about.
        seconds: About how long all of it may take.
        each: How many seconds the local dimension and the eigenvalues of one point take.
    """

    geometry: Geometry
    given: ReportInput
    rows: np.ndarray
    bandwidth: float
    seconds: float
    each: float

    @classmethod
    def of(
        cls, geometry: Geometry, given: ReportInput, bandwidth: float | None, *, max_points: int, seconds: float
    ) -> Survey:
        """Time the geometry, and choose by chance as many rows as can be shown."""
        quiet = replace(geometry.of_scaled_columns(), verbose=False)
        sigma = geometry.bandwidth if bandwidth is None else bandwidth
        each = _seconds_per_point(quiet, given.points, sigma)
        most = min(len(given.points), max_points)
        least = min(most, _FEWEST_SHOWN if geometry.sample_shape is None else _FEWEST_IMAGES)
        count = affordable(most, seconds * _FOR_POINTS, _ESTIMATE_COST * each, least=least)
        return cls(quiet, given, scattered(len(given.points), count).numpy(), sigma, seconds, each)

    @cached_property
    def points(self) -> Tensor:
        """The points shown, shape (n, D)."""
        return self.given.points[self.rows]

    @cached_property
    def array(self) -> np.ndarray:
        """The points shown as an array of double precision."""
        return self.points.double().numpy()

    def as_pictures(self, points: np.ndarray) -> np.ndarray:
        """Return points or vectors (..., D) as the pictures (..., C, H, W) that they are."""
        assert self.given.image_shape is not None
        return points.reshape(*points.shape[:-1], *self.given.image_shape)

    @cached_property
    def label(self) -> Column | None:
        """The labels of the points shown, where there are any."""
        return None if self.given.labels is None else self.given.labels.at(self.rows)


def _seconds_per_point(geometry: Geometry, points: Tensor, bandwidth: float) -> float:
    """Time the local dimension and the eigenvalues at some points; the fastest of a few tries counts."""

    def once(count: int) -> float:
        begun = time.perf_counter()
        geometry.dimension(points[:count], bandwidth)
        geometry.eigenvalues(points[:count], bandwidth)
        return time.perf_counter() - begun

    few, more = min(_FEW, len(points)), min(_MORE, len(points))
    seconds = min(once(few) for _ in range(_TRIES))
    return seconds / few if seconds > _NO_TIME else min(once(more) for _ in range(_TRIES)) / more


def affordable(most: int, seconds: float, each: float, *, least: int = 1) -> int:
    """Return how many questions fit into a time: all, or a round number, the same at slightly different speeds.

    Example:
        >>> affordable(10_000, 10.0, 0.003), affordable(100, 10.0, 0.003), affordable(100, 0.1, 1.0, least=20)
        (3000, 100, 20)
    """
    count = int(seconds / max(each, 1e-9))
    if count >= most:
        return most
    power = 10 ** (len(str(max(count, 1))) - 1)
    rounded = next((step * power for step in (8, 6, 5, 4, 3, 2, 1) if step * power <= count), 1)
    return min(most, max(least, rounded))


def scattered(n: int, count: int, *, seed: int = 0) -> Tensor:
    """Choose so many of n points by chance, the same ones every time, in ascending order."""
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(seed), device="cpu")[:count]
    return chosen.sort().values


def parts_within(seconds: float, order: Tensor, size: int) -> Iterator[Tensor]:
    """Yield parts of an order until the time is over; at least one."""
    begun = time.perf_counter()
    for part in torch.split(order, size):
        yield part
        if time.perf_counter() - begun > seconds:
            return
