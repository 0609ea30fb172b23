"""How good a field is: errors against a manifold whose geometry is known, and settings tuned by them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import ArgumentError, as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.manifolds import Manifold
from carre.metric import LowRankMetric, Metric, projector_distance
from carre.toolkit import spectral_dimension

CHUNK = 1024

Device: TypeAlias = str | torch.device | None


def tangent_errors(
    field: MetricField,
    manifold: Manifold,
    points: Tensor,
    bandwidth: Bandwidth,
    *,
    chunk: int = CHUNK,
    device: Device = None,
) -> Float[Tensor, " n"]:
    """Compute ‖UUᵀ − ÛÛᵀ‖_F between the true tangent space and the leading eigenvectors of G.

    As many eigenvectors are taken as the manifold has dimensions at the point. A random subspace has an
    error of about √(2d(1 − d/D)) [THEORY §5].

    Args:
        field: The field.
        manifold: The truth.
        points: Clean points, on the manifold.
        bandwidth: σ, one for all points or one per point.
        chunk: Number of points evaluated at once.
        device: Where to evaluate; where the points are by default. The errors return to the points.

    Example:
        >>> from carre import ExactField
        >>> from carre.manifolds import Sphere
        >>> sphere = Sphere(2)
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> tangent_errors(ExactField(sphere), sphere, pole, 0.1) < 1e-12
        tensor([True])
    """

    def errors(y: Tensor, sigma: Tensor) -> Tensor:
        metric, truth = field.metric(y, sigma), _tangent_frame(manifold, y)
        dimension = manifold.local_dimension(y)
        out = y.new_empty(len(y))
        for d in sorted(set(dimension.tolist())):
            chosen = dimension == d
            out[chosen] = projector_distance(truth[chosen], metric[chosen].tangent_basis(d))
        return out

    return _over_chunks(errors, field, manifold, points, bandwidth, chunk, device)


def oracle_errors(
    field: MetricField,
    manifold: Manifold,
    points: Tensor,
    bandwidth: Bandwidth,
    *,
    chunk: int = CHUNK,
    device: Device = None,
) -> Float[Tensor, " n"]:
    """Compute ‖G − G*‖_F / ‖G*‖_F against the exact G* of the manifold at the same σ, at any points.

    Unlike the tangent error it sees eigenvalues, and it has no floor: the best possible field at σ has
    error 0. No D×D matrix is formed while the ranks of both are small.

    Args:
        field: The field.
        manifold: The truth; it needs a closed posterior.
        points: Points, on the manifold or not.
        bandwidth: σ, one for all points or one per point.
        chunk: Number of points evaluated at once.
        device: Where to evaluate; where the points are by default. The errors return to the points.

    Example:
        >>> from carre import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> oracle_errors(ExactField(Sphere(2)), Sphere(2, radius=0.8), pole, 0.1).round(decimals=2)
        tensor([0.2500], dtype=torch.float64)
    """

    def errors(y: Tensor, sigma: Tensor) -> Tensor:
        truth = manifold.posterior(y, sigma).metric
        return _frobenius_distance(field.metric(y, sigma), truth) / truth.squared_norm().sqrt()

    return _over_chunks(errors, field, manifold, points, bandwidth, chunk, device)


def dimension_errors(
    field: MetricField,
    manifold: Manifold,
    points: Tensor,
    bandwidth: Bandwidth,
    *,
    threshold: float = 0.5,
    chunk: int = CHUNK,
    device: Device = None,
) -> Int[Tensor, " n"]:
    """Compute the counted minus the true dimension at clean points; 0 where it is right.

    Args:
        field: The field.
        manifold: The truth.
        points: Clean points, on the manifold.
        bandwidth: σ, one for all points or one per point.
        threshold: Eigenvalues above it are counted, as in `carre.toolkit.spectral_dimension`.
        chunk: Number of points evaluated at once.
        device: Where to evaluate; where the points are by default. The errors return to the points.

    Example:
        >>> from carre import ExactField
        >>> from carre.manifolds import Sphere
        >>> sphere = Sphere(2)
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> dimension_errors(ExactField(sphere), sphere, pole, 0.1)
        tensor([0])
    """

    def errors(y: Tensor, sigma: Tensor) -> Tensor:
        counts = spectral_dimension(field.metric(y, sigma), threshold=threshold).long()
        return counts - manifold.local_dimension(y)

    return _over_chunks(errors, field, manifold, points, bandwidth, chunk, device)


@dataclass(frozen=True, eq=False)
class EigenvalueProfile:
    """The leading eigenvalues of G, summarized over points.

    Attributes:
        mean: Mean of each eigenvalue, descending.
        deviation: Its standard deviation over the points.
        quantiles: Its quantiles, one row per level.
        levels: The levels of the quantiles.
        n_points: How many points were asked.

    Example:
        >>> from carre import ExactField
        >>> from carre.manifolds import Sphere
        >>> profile = eigenvalue_profile(ExactField(Sphere(2)), Sphere(2).sample(50), 0.1)
        >>> profile.n_points, bool((profile.deviation < 1e-9).all())  # all points of a sphere are alike
        (50, True)
    """

    mean: Float[Tensor, " rank"]
    deviation: Float[Tensor, " rank"]
    quantiles: Float[Tensor, "levels rank"]
    levels: tuple[float, ...]
    n_points: int


def eigenvalue_profile(
    field: MetricField,
    points: Tensor,
    bandwidth: Bandwidth,
    *,
    levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
    chunk: int = CHUNK,
    device: Device = None,
) -> EigenvalueProfile:
    """Summarize the leading eigenvalues of G over points.

    Args:
        field: The field.
        points: Points, on the data or not.
        bandwidth: σ, one for all points or one per point.
        levels: Levels of the quantiles, between 0 and 1.
        chunk: Number of points evaluated at once.
        device: Where to evaluate; where the points are by default.

    Example:
        >>> from carre import ExactField
        >>> from carre.manifolds import Sphere
        >>> sphere = Sphere(2)
        >>> points = sphere.sample(100, generator=torch.Generator().manual_seed(0))
        >>> eigenvalue_profile(ExactField(sphere), points, 0.1).mean.round(decimals=3)
        tensor([0.9900, 0.9900, 0.0100], dtype=torch.float64)
    """
    if not levels or not all(0.0 <= level <= 1.0 for level in levels):
        raise ArgumentError("levels", "be numbers between 0 and 1", got=list(levels))

    def eigenvalues(y: Tensor, sigma: Tensor) -> Tensor:
        return field.metric(y, sigma).eigenvalues()

    values = _over_chunks(eigenvalues, field, None, points, bandwidth, chunk, device)
    ranks = torch.tensor(list(levels), dtype=values.dtype, device=values.device)
    return EigenvalueProfile(
        values.mean(0),
        values.std(0, correction=0),
        torch.stack([torch.quantile(column, ranks) for column in values.mT], dim=1),
        tuple(levels),
        len(values),
    )


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
        >>> tuned = grid_search(lambda bandwidth: abs(bandwidth - 0.3), {"bandwidth": [0.1, 0.2, 0.4]})
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
        >>> sphere, rng = Sphere(2), torch.Generator().manual_seed(0)
        >>> kernel = ExactField(FiniteSet(sphere.sample(500, generator=rng)))
        >>> best_bandwidth(kernel, sphere, sphere.sample(50, generator=rng), [0.05, 0.2, 0.8]).bandwidth
        0.2
    """
    bandwidths = list(grid)
    if not bandwidths or not all(sigma > 0 for sigma in bandwidths):
        raise ArgumentError("grid", "hold positive bandwidths, at least one", got=bandwidths)

    def error(bandwidth: float) -> float:
        return float(tangent_errors(field, manifold, points, bandwidth, chunk=chunk, device=device).mean())

    return grid_search(error, {"bandwidth": bandwidths})


def grid_search(error: Callable[..., float], grids: Mapping[str, Iterable[Any]]) -> Tuned:
    """Evaluate an error at every combination of the grids, and return the least.

    A combination whose error is nan is shown in the curve and never chosen. Of equal errors the first is taken.

    Args:
        error: Called as ``error(name=value, …)`` with one value of every grid.
        grids: The values to try, by name of the parameter.

    Example:
        >>> tuned = grid_search(lambda x, y: (x - 2) ** 2 + (y - 1) ** 2, {"x": [1, 2, 3], "y": [0, 1]})
        >>> tuned.setting, tuned.error, tuned.at_end
        ({'x': 2, 'y': 1}, 0.0, ('y',))
        >>> tuned.remark
        'the best y, 1, lies at the upper end of its grid: extend it'
    """
    if not grids:
        raise ArgumentError("grids", "name at least one parameter", got="none", remedy="Give {name: values}")
    tried = {name: tuple(np.asarray(list(grid)).tolist()) for name, grid in grids.items()}
    for name, grid in tried.items():
        if not grid or len(set(grid)) < len(grid) or not all(math.isfinite(value) for value in grid):
            raise ArgumentError(name, "be a grid of different finite numbers, at least one", got=list(grid))
    combinations = [dict(zip(tried, values, strict=True)) for values in itertools.product(*tried.values())]
    errors = [float(error(**setting)) for setting in combinations]
    curve = np.array(errors, dtype=np.float64).reshape([len(grid) for grid in tried.values()])
    if np.isnan(curve).all():
        raise ArgumentError("error", "be a number for at least one combination", got="nan for all of them")
    best = int(np.nanargmin(curve))
    setting = combinations[best]
    at_end = tuple(name for name, grid in tried.items() if len(grid) > 1 and setting[name] in (min(grid), max(grid)))
    return Tuned(setting, errors[best], tried, curve, at_end)


@torch.no_grad()
def _over_chunks(
    function: Callable[[Tensor, Tensor], Tensor],
    field: MetricField,
    manifold: Manifold | None,
    points: Tensor,
    bandwidth: Bandwidth,
    chunk: int,
    device: Device,
) -> Tensor:
    """Check the arguments, evaluate chunk by chunk on the device, and bring the results back to the points."""
    if manifold is not None and manifold.ambient_dim != field.dim:
        raise ArgumentError(
            "manifold",
            f"have the ambient dimension of the field, {field.dim}",
            got=manifold.ambient_dim,
            remedy=f"Place a smaller one with manifold.embed({field.dim})",
        )
    if chunk < 1:
        raise ArgumentError("chunk", "be at least 1", got=chunk)
    given = as_points(points, dim=field.dim).tensor
    sigma = as_bandwidth(bandwidth, given)
    pairs = zip(torch.split(given, chunk), torch.split(sigma, chunk), strict=True)
    return torch.cat([function(y.to(device), s.to(device)).to(given.device) for y, s in pairs])


def _tangent_frame(manifold: Manifold, points: Tensor) -> Tensor:
    """Return A with AAᵀ the tangent projector: a basis, or the projector itself where dimensions differ."""
    try:
        return manifold.tangent_basis(points)
    except ValueError:  # components of several dimensions share no shape of basis
        return manifold.tangent_projector(points)


def _frobenius_distance(left: Metric, right: Metric) -> Float[Tensor, " n"]:
    """Compute ‖A − B‖_F without the cancellation of ‖A‖² + ‖B‖² − 2⟨A, B⟩; in rank space where both are of low rank."""
    if isinstance(left, LowRankMetric) and isinstance(right, LowRankMetric) and left.rank + right.rank < left.dim:
        return _factored_distance(left, right)
    distance: Tensor = torch.linalg.matrix_norm(left.dense() - right.dense())
    return distance


def _factored_distance(left: LowRankMetric, right: LowRankMetric) -> Float[Tensor, " n"]:
    """Subtract small matrices: with [F₁; F₂]ᵀ = QR, A − B is Q(R₁R₁ᵀ − R₂R₂ᵀ)Qᵀ + (λ₁ − λ₂)I."""
    triangular = torch.linalg.qr(torch.cat([left.factor, right.factor], dim=1).mT, mode="r")[1]
    first, second = triangular[..., : left.rank], triangular[..., left.rank :]
    ridge = left.ridge - right.ridge
    identity = torch.eye(triangular.shape[-1], dtype=triangular.dtype, device=triangular.device)
    small = first @ first.mT - second @ second.mT + ridge * identity
    squares: Tensor = small.square().sum((-2, -1)) + ridge**2 * (left.dim - len(identity))
    return squares.sqrt()
