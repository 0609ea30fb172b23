"""Local intrinsic dimension from the spectrum of the metric: several estimators, one function each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField, NoDenoiserError
from carre.metric import LowRankMetric
from carre.toolkit.batches import Progress, in_parts

_TANGENT_ABOVE = 0.5
# At the edge of flat data the eigenvalue across the edge falls to 1 − 2/π = 0.36, and to 0.2 one σ beyond it; normal
# directions have less. With the squared mean displacement, 2/π at the edge, it is 1 again, and 0.72 at least wherever
# the eigenvalue alone is below ½. Directions that fade out gradually have less: λ + λ(1 − λ) on average.
_EDGE_ABOVE, _EDGE_TOGETHER = 0.2, 0.7
# How far the scale is varied for the uncertainty, up and down.
_SCALE_FACTORS = (2**-0.5, 2**0.5)


def count_dimension(metric: LowRankMetric, *, threshold: float = _TANGENT_ABOVE) -> Int[Tensor, "*batch"]:
    """Count the eigenvalues of G above a threshold.

    Right while the noise of the data is smaller than σ, and σ smaller than the radius of curvature;
    the most robust of the estimators compared in THEORY §4.4. Eigenvalues are near 1 along the data
    and near 0 across them, so the threshold hardly matters. At an edge of the data one dimension is
    missed: see `local_dimension`.

    Example:
        >>> import torch
        >>> count_dimension(LowRankMetric(torch.diag(torch.tensor([1.0, 0.9, 0.2]))[None]))
        tensor([2])
    """
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"threshold must lie between 0 and 1; got {threshold}")
    return (metric.eigenvalues() > threshold).sum(-1)


def gap_dimension(metric: LowRankMetric) -> Int[Tensor, "*batch"]:
    """Find the largest drop in the sequence 1, λ₁, λ₂, …, 0 of eigenvalues, clipped to [0, 1].

    Needs no threshold; misled by noise and by strong curvature sooner than the count [THEORY §4.4].

    Example:
        >>> gap_dimension(LowRankMetric(torch.diag(torch.tensor([1.0, 0.9, 0.2]))[None]))
        tensor([2])
    """
    values = metric.eigenvalues().clamp(0, 1)
    ends = values.new_ones(*values.shape[:-1], 1)
    ladder = torch.cat([ends, values, 0 * ends], -1)
    return (ladder[..., :-1] - ladder[..., 1:]).argmax(-1)


def trace_dimension(metric: LowRankMetric) -> Float[Tensor, "*batch"]:
    """Compute tr G, a dimension that need not be whole: biased by −O(σ²) by curvature, and upwards by noise.

    Example:
        >>> trace_dimension(LowRankMetric(torch.eye(3)[None, :2]))
        tensor([2.])
    """
    return metric.trace()


def participation_dimension(metric: LowRankMetric) -> Float[Tensor, "*batch"]:
    """Compute the participation ratio (Σλ)²/Σλ² of the eigenvalues: blind to their size, above d where they differ.

    Example:
        >>> participation_dimension(LowRankMetric(0.1 * torch.eye(3)[None, :2]))
        tensor([2.])
    """
    return metric.trace().square() / metric.squared_norm().clamp_min(torch.finfo(metric.factor.dtype).tiny)


def slope_dimension(field: MetricField, points: Any, bandwidth: Bandwidth, *, progress: Progress | None = None) -> Any:
    """Compute D + ∂ log p_σ(y)/∂ log σ, how fast the blurred density falls as the scale grows.

    It equals tr G + |m(y) − y|²/σ², the trace of the uncentered metric [THEORY §4.4], so no derivative is taken.
    Unbiased at edges and corners, and free of the first-order bias of curvature; but at points off the data by noise
    of size τ it is too large by (D − d)τ²/σ².

    Args:
        field: The field, with a denoiser.
        points: Points, clean or denoised.
        bandwidth: σ, one number or one per point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Box
        >>> corner = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
        >>> slope_dimension(ExactField(Box([-1.0, -1.0], [1.0, 1.0])), corner, 0.1).round(decimals=3)
        tensor([2.], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)

    def part(y: Tensor, s: Tensor) -> Tensor:
        return field.metric(y, s).trace() + ((field.denoise(y, s) - y) / s[:, None]).square().sum(-1)

    sigma = as_bandwidth(bandwidth, given.tensor)
    return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=64 * field.dim, progress=progress))


def local_dimension(field: MetricField, points: Any, bandwidth: Bandwidth, *, progress: Progress | None = None) -> Any:
    """Count the directions along which the data extend from each point, also at their edges.

    The recommended estimator. An eigenvector u of G counts if its eigenvalue λ is above ½, or if λ is above 0.2 and the
    mean square displacement λ + (u·(m(y) − y)/σ)² is above 0.7: at an edge the data lie to one side only, and what
    the variance lacks is in the mean.

    Args:
        field: The field; without a denoiser edges are not seen.
        points: Points, shape (n, D).
        bandwidth: σ, one number or one per point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Box
        >>> square = ExactField(Box([-1.0, -1.0], [1.0, 1.0]))
        >>> edge = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        >>> local_dimension(square, edge, 0.1), count_dimension(square.metric(edge, 0.1))
        (tensor([2]), tensor([1]))
    """
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)

    def part(y: Tensor, s: Tensor) -> Tensor:
        spectrum = field.metric(y, s).spectrum()
        try:
            shift = (field.denoise(y, s) - y) / s[:, None]
        except NoDenoiserError:
            # An uncentered field has no denoiser; its metric holds the displacement already.
            shift = torch.zeros_like(y)
        along = torch.einsum("ndk,nd->nk", spectrum.vectors, shift).square()
        at_edge = (spectrum.values > _EDGE_ABOVE) & (spectrum.values + along > _EDGE_TOGETHER)
        return ((spectrum.values > _TANGENT_ABOVE) | at_edge).sum(-1)

    return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=64 * field.dim, progress=progress))


@dataclass(frozen=True, eq=False)
class DimensionEstimate:
    """How many dimensions, at every point and on the whole, and how sure.

    Attributes:
        local: The dimension at each point.
        low: The smallest dimension at each point as σ varies by √2 either way.
        high: The largest.
        value: The median over the points: a few outliers do not move it.
        interval: The medians of ``low`` and ``high``.
        mean: The mean over the points.
        standard_error: Of the mean, from the scatter between points.
        shares: Which share of the points has which dimension.
        bandwidth: The σ, the median where there is one per point.
        source: Where the metric came from, if not from the field that was asked.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> sphere = Sphere(2).embed(5)
        >>> print(estimate_dimension(ExactField(sphere), sphere.sample(100), 0.1))
        dimension 2 at σ = 0.1 (2 to 2 as σ varies by √2; 100% of 100 points have 2)
    """

    local: np.ndarray
    low: np.ndarray
    high: np.ndarray
    value: int
    interval: tuple[int, int]
    mean: float
    standard_error: float
    shares: dict[int, float]
    bandwidth: float
    source: str = ""

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"dimension {self.value} at σ = {self.bandwidth:.3g} ({low} to {high} as σ varies by √2; "
            f"{self.shares.get(self.value, 0.0):.0%} of {len(self.local)} points have {self.value})"
            f"{'; ' if self.source else ''}{self.source}"
        )


def estimate_dimension(
    field: MetricField,
    points: Any,
    bandwidth: Bandwidth,
    *,
    bandwidth_range: Sequence[float] = (0.0, float("inf")),
    progress: Progress | None = None,
) -> DimensionEstimate:
    """Estimate the dimension of the data by `local_dimension`, with its uncertainty.

    Args:
        field: The field.
        points: Samples, or other points on the data.
        bandwidth: The scale σ, one number or one per point.
        bandwidth_range: Scales beyond it are not asked for (those a network was not trained on).
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere, Union
        >>> sphere, circle = Sphere(2), Sphere(1).embed(3, generator=torch.Generator().manual_seed(0), shift=9.0)
        >>> points = torch.cat([sphere.sample(5), circle.sample(5)])
        >>> estimate = estimate_dimension(ExactField(Union([sphere, circle])), points, 0.1)
        >>> estimate.shares, estimate.mean
        ({1: 0.5, 2: 0.5}, 1.5)
    """
    tensor = as_points(points, dim=field.dim).tensor
    given = as_bandwidth(bandwidth, tensor)
    scales = [(factor * given).clamp(bandwidth_range[0], bandwidth_range[1]) for factor in _SCALE_FACTORS]
    counts = []
    with torch.no_grad():
        for done, sigma in enumerate([given, *scales]):
            counts.append(local_dimension(field, tensor, sigma).cpu().numpy())
            if progress is not None:
                progress((done + 1) / (1 + len(scales)))
    local, low, high = counts[0], np.min(counts, axis=0), np.max(counts, axis=0)
    kinds, sizes = np.unique(local, return_counts=True)
    return DimensionEstimate(
        local=local,
        low=low,
        high=high,
        value=_median(local),
        interval=(_median(low), _median(high)),
        mean=float(local.mean()),
        standard_error=float(local.std(ddof=1) / np.sqrt(len(local))) if len(local) > 1 else float("nan"),
        shares={int(kind): float(size / len(local)) for kind, size in zip(kinds, sizes, strict=True)},
        bandwidth=float(given.median()),
    )


def _median(counts: np.ndarray) -> int:
    """Return the middle count, one that occurs."""
    return int(np.sort(counts)[(len(counts) - 1) // 2])
