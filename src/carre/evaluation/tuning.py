"""Choosing settings with labels, on a validation set, as baselines are tuned."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from carre.evaluation.accuracy import CHUNK, Device, tangent_errors
from carre.fields import MetricField
from carre.manifolds import Manifold


@dataclass(frozen=True, eq=False)
class Tuned:
    """The best setting of a grid, and the errors of all of it.

    Attributes:
        setting: The best value of every parameter, by name.
        error: The error there.
        grids: The values that were tried, by name.
        curve: The error of every combination; one axis per parameter, in the order of ``grids``.
        at_end: Names of the parameters whose best value lies at an end of its grid: the optimum may lie beyond.

    Example:
        >>> tuned = grid_search(lambda bandwidth: abs(bandwidth - 0.3), bandwidth=[0.1, 0.2, 0.4])
        >>> tuned.bandwidth, tuned.curve.round(1)
        (0.2, array([0.2, 0.1, 0.1]))
        >>> tuned.remark
        ''
    """

    setting: Mapping[str, Any]
    error: float
    grids: Mapping[str, tuple[Any, ...]]
    curve: np.ndarray
    at_end: tuple[str, ...]

    @property
    def bandwidth(self) -> float:
        """The best σ, when σ was searched."""
        return float(self.setting["bandwidth"])

    @property
    def remark(self) -> str:
        """Say which optimum lies at an end of its grid; empty when all lie inside."""
        return "; ".join(
            f"the best {name}, {self.setting[name]:g}, lies at the "
            f"{'lower' if self.setting[name] == min(self.grids[name]) else 'upper'} end of its grid: extend it"
            for name in self.at_end
        )


def best_bandwidth(
    field: MetricField,
    manifold: Manifold,
    points: Tensor,
    grid: Iterable[Any],
    *,
    chunk: int = CHUNK,
    device: Device = None,
) -> Tuned:
    """Find the σ with the least mean tangent error at clean validation points [RMM, App. E].

    This needs the true tangent spaces. `carre.toolkit.choose_bandwidth` needs none.

    Args:
        field: The field.
        manifold: The truth.
        points: Clean points of a validation set; report errors on another one.
        grid: Candidates for σ.
        chunk: Number of points evaluated at once.
        device: Where to evaluate; where the points are by default.

    Example:
        >>> from carre import ExactField
        >>> from carre.manifolds import FiniteSet, Sphere
        >>> import torch
        >>> sphere, rng = Sphere(2), torch.Generator().manual_seed(0)
        >>> kernel = ExactField(FiniteSet(sphere.sample(500, generator=rng)))
        >>> best_bandwidth(kernel, sphere, sphere.sample(50, generator=rng), [0.05, 0.2, 0.8]).bandwidth
        0.2
    """

    bandwidths = list(grid)
    if not bandwidths or not all(sigma > 0 for sigma in bandwidths):
        raise ValueError(f"grid must hold positive bandwidths, at least one; got {bandwidths}")

    def error(bandwidth: float) -> float:
        return float(tangent_errors(field, manifold, points, bandwidth, chunk=chunk, device=device).mean())

    return grid_search(error, bandwidth=bandwidths)


def grid_search(error: Callable[..., float], **grids: Iterable[Any]) -> Tuned:
    """Evaluate an error at every combination of the grids, and return the least.

    A combination whose error is nan is shown in the curve and never chosen. Of equal errors the first is taken.

    Args:
        error: Called as ``error(name=value, …)`` with one value of every grid.
        **grids: The values to try, by name of the parameter.

    Example:
        >>> tuned = grid_search(lambda x, y: (x - 2) ** 2 + (y - 1) ** 2, x=[1, 2, 3], y=[0, 1])
        >>> tuned.setting, tuned.error, tuned.at_end
        ({'x': 2, 'y': 1}, 0.0, ('y',))
        >>> tuned.remark
        'the best y, 1, lies at the upper end of its grid: extend it'
    """
    if not grids:
        raise ValueError("grids must name at least one parameter; got none. Pass name=[values]")
    tried = {name: tuple(np.asarray(list(grid)).tolist()) for name, grid in grids.items()}
    for name, grid in tried.items():
        if not grid or len(set(grid)) < len(grid) or not all(math.isfinite(value) for value in grid):
            raise ValueError(f"{name} must be a grid of different finite numbers, at least one; got {list(grid)}")
    combinations = [dict(zip(tried, values, strict=True)) for values in itertools.product(*tried.values())]
    errors = [float(error(**setting)) for setting in combinations]
    curve = np.array(errors, dtype=np.float64).reshape([len(grid) for grid in tried.values()])
    if np.isnan(curve).all():
        raise ValueError("error must be a number for at least one combination; got nan for all of them")
    best = int(np.nanargmin(curve))
    setting = combinations[best]
    at_end = tuple(name for name, grid in tried.items() if len(grid) > 1 and setting[name] in (min(grid), max(grid)))
    return Tuned(setting, errors[best], tried, curve, at_end)
