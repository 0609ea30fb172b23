"""Local intrinsic dimension from the spectrum of the metric, several estimators, and the rank that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.backend import Progress
from carre.boundary import ArgumentError, as_numbers
from carre.fields import Bandwidth, DataField, MetricField, NeuralField, NoDenoiserError, ScoreField
from carre.metric import Metric
from carre.sketch import BLUE, GRAY, Stroke, card, picture
from carre.toolkit.edges import TANGENT_ABOVE, count_directions
from carre.toolkit.question import Question, ask, bare, check_number
from carre.toolkit.scale import CLEAR_GAP, ScaleProfile

SPECTRAL_METHODS = ("count", "gap", "trace", "participation")
# A dimension is clear where so many points have it.
_CLEAR_SHARE = 0.9
# Where a rank cuts dimensions off, they are counted from so many products of the Jacobian, at a few points: of all axes
# where that is no more than the probes take.
_MOST_PRODUCTS, _MOST_AXES, _N_PROBES, _FEWEST_COUNTED, _MOST_COUNTED = 24_000, 256, 16, 8, 64
# How far the scale is varied for the uncertainty, up and down.
_SCALE_FACTORS = (2**-0.5, 2**0.5)
# A smooth factor of a field of d-dimensional projectors needs up to 2d − 1 rows, and a few more help training.
_ROWS_PER_DIMENSION, _EXTRA_ROWS = 2, 2


def spectral_dimension(
    metric: Metric, method: str = "count", *, threshold: float = TANGENT_ABOVE
) -> Float[Tensor, "*batch"]:
    """Read a dimension off the eigenvalues λ of G alone, which are near 1 along the data and near 0 across them.

    Args:
        metric: The metric, one matrix per point.
        method: ``"count"`` counts the eigenvalues above a threshold, which hardly matters while the noise of the data
            is smaller than σ, and σ smaller than the radius of curvature: the most robust of these [THEORY §4.4]. At
            an edge of the data one dimension is missed: see `local_dimension`. ``"gap"`` finds the largest drop in the
            sequence 1, λ₁, λ₂, …, 0, clipped to [0, 1]: no threshold, but misled by noise and curvature sooner.
            ``"trace"`` is tr G, biased by −O(σ²) by curvature and upwards by noise; ``"participation"`` the ratio
            (Σλ)²/Σλ², blind to the size of eigenvalues and above d where they differ. These two need not be whole.
        threshold: That of the count.

    Example:
        >>> from carre.metric import LowRankMetric
        >>> metric = LowRankMetric(torch.diag(torch.tensor([1.0, 0.9, 0.2]))[None])
        >>> {name: round(float(spectral_dimension(metric, name)), 2) for name in SPECTRAL_METHODS}
        {'count': 2.0, 'gap': 2.0, 'trace': 1.85, 'participation': 2.06}
    """
    check_number(threshold, "lie between 0 and 1", lambda x: 0 < x < 1, name="threshold")
    if method not in SPECTRAL_METHODS:
        raise ArgumentError("method", f"be one of {', '.join(SPECTRAL_METHODS)}", got=repr(method))
    if method == "trace":
        return metric.trace()
    if method == "participation":
        return metric.trace().square() / metric.squared_norm().clamp_min(torch.finfo(metric.dtype).tiny)
    values = metric.eigenvalues()
    if method == "count":
        return (values > threshold).sum(-1).to(values.dtype)
    ladder = torch.nn.functional.pad(torch.nn.functional.pad(values.clamp(0, 1), (1, 0), value=1.0), (0, 1))
    return (ladder[..., :-1] - ladder[..., 1:]).argmax(-1).to(values.dtype)


def eigenvalues(
    field: MetricField | DataField, points: Any, bandwidth: Bandwidth | None = None, *, progress: Progress | None = None
) -> Any:
    """Compute the leading eigenvalues of G at each point, descending, shape (n, min(rank, D)).

    They are near 1 along the data, and near 0 across them.

    Args:
        field: The field.
        points: Points, shape (n, D).
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Gaussian
        >>> ribbon = Gaussian(torch.zeros(2).double(), torch.diag(torch.tensor([3.0, 1.0])).double())
        >>> eigenvalues(ExactField(ribbon), torch.zeros(1, 2).double(), 1.0)  # v/(v + σ²)
        tensor([[0.7500, 0.5000]], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="eigenvalues")
    return question.answer(lambda y, s: question.field.metric(y, s).eigenvalues(), progress=progress)


def slope_dimension(
    field: MetricField | DataField, points: Any, bandwidth: Bandwidth | None = None, *, progress: Progress | None = None
) -> Any:
    """Compute D + ∂ log p_σ(y)/∂ log σ, how fast the blurred density falls as the scale grows.

    It equals tr G + |m(y) − y|²/σ², the trace of the uncentered metric [THEORY §4.4], so no derivative is taken.
    Unbiased at edges and corners, and free of the first-order bias of curvature; but at points off the data by noise
    of size τ it is too large by (D − d)τ²/σ².

    Args:
        field: The field, with a denoiser.
        points: Points, clean or denoised.
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Box
        >>> corner = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
        >>> slope_dimension(ExactField(Box([-1.0, -1.0], [1.0, 1.0])), corner, 0.1).round(decimals=3)
        tensor([2.], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="dimension")

    def part(y: Tensor, s: Tensor) -> Tensor:
        displacement = (question.field.denoise(y, s) - y) / s[:, None]
        return question.field.metric(y, s).trace() + displacement.square().sum(-1)

    return question.answer(part, progress=progress)


def local_dimension(
    field: MetricField | DataField,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    threshold: float | None = None,
    progress: Progress | None = None,
) -> Any:
    """Count the directions along which the data extend from each point, also at their edges.

    The recommended estimator. An eigenvector u of G counts if its eigenvalue λ is above ½, or if λ is above 0.2 and the
    data lie to one side along u, as at an edge: the mean square displacement λ + (u·(m(y) − y)/σ)² is above 0.7, and
    with curvature taken off, m = 2m(y; σ/√2) − m(y; σ), the mean is still displaced by more than 1.5(½ − λ)σ. Where
    more than a third of such directions is not explained so, they are noise. A field that knows of noise in its samples
    is asked where it denoises points to: the data are there.

    Args:
        field: The field; without a denoiser edges are not seen.
        points: Points, shape (n, D).
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        threshold: Count the eigenvalues above it instead, and nothing else (`spectral_dimension`).
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Box
        >>> square = ExactField(Box([-1.0, -1.0], [1.0, 1.0]))
        >>> edge = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        >>> local_dimension(square, edge, 0.1), local_dimension(square, edge, 0.1, threshold=0.5)
        (tensor([2]), tensor([1]))
    """
    question = ask(field, points, bandwidth, task="dimension")

    def part(y: Tensor, s: Tensor) -> Tensor:
        if threshold is not None:
            return spectral_dimension(question.field.metric(y, s), threshold=threshold).long()
        return _count_at(question.field, y, s)

    return question.answer(part, progress=progress)


def _count_at(field: MetricField, points: Tensor, bandwidth: Tensor) -> Int[Tensor, " n"]:
    if getattr(field, "noise", 0.0) > 0:
        points = field.denoise(points, bandwidth)
    return count_directions(field.metric(points, bandwidth), points, bandwidth, field.denoise)


@dataclass(frozen=True, eq=False, repr=False)
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
        counted: How the value, its interval and its mean were counted, where the rank of a factor cuts dimensions off:
            by `carre.fields.ScoreField.count`, of the denoiser.
        doubt: Why the samples cannot tell, in a few words, where they cannot.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> sphere = Sphere(2).embed(5)
        >>> print(estimate_dimension(ExactField(sphere), sphere.sample(100), 0.1))
        dimension 2 at σ = 0.1 (2 to 2 as σ varies by √2; 100% of 100 points have 2)
    """

    local: Any
    low: Any
    high: Any
    value: int
    interval: tuple[int, int]
    mean: float
    standard_error: float
    shares: dict[int, float]
    bandwidth: float
    source: str = ""
    counted: str = ""
    doubt: str = ""

    @property
    def verdict(self) -> str:
        """Is there one answer: "clear"; or "not resolved", "depends on the scale", "varies from point to point"."""
        low, high = self.interval
        if self.doubt:
            return "not resolved"
        if low != high:
            return "depends on the scale"
        return "clear" if self.shares.get(self.value, 0.0) >= _CLEAR_SHARE else "varies from point to point"

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"dimension {self.value} at σ = {self.bandwidth:.3g} ({low} to {high} as σ varies by √2; "
            f"{self.shares.get(self.value, 0.0):.0%} of {len(self.local)} points have {self.value})"
            f"{''.join('; ' + how for how in (self.source, self.counted, self.doubt) if how)}"
        )

    def __repr__(self) -> str:
        return f"DimensionEstimate({self})"

    def _repr_html_(self) -> str:
        counts, (low, high) = sorted(self.shares), self.interval
        facts = {"points": f"{len(self.local):,}", "verdict": self.verdict, "how": self.counted}
        facts["scale"] = f"σ = {self.bandwidth:.3g}; {low} to {high} as it varies by √2"
        facts["mean"] = f"{self.mean:.2f}" + (f" ± {self.standard_error:.1g}" if self.standard_error > 0 else "")
        drawn = picture(
            "Points by dimension",
            [
                Stroke([k, k], [0, self.shares[k]], BLUE if k == self.value else GRAY, 240 / (len(counts) + 4))
                for k in counts
            ],
            # Room for half a bar at both ends.
            x_ticks={float(k): f"{k}" * (k in self.shares) for k in (counts[0] - 1, *counts, counts[-1] + 1)},
            y_ticks={share: f"{share:.0%}" for share in (0.0, max(self.shares.values()))},
        )
        return card(f"Dimension {self.value}", facts, drawn, doubts=(self.source, self.doubt))


def estimate_dimension(
    field: MetricField | DataField,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    bandwidth_range: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> DimensionEstimate:
    """Estimate the dimension of the data by `local_dimension`, with its uncertainty.

    Args:
        field: The field.
        points: Samples, or other points on the data.
        bandwidth: The scale σ, one number or one per point; None for the default of a geometry.
        bandwidth_range: Scales beyond it are not asked for. None takes that of a geometry, which its network was
            trained on; other fields are asked at any scale.
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
    question = ask(field, points, bandwidth, task="dimension").detached()
    if bandwidth_range is None:
        bandwidth_range = field.bandwidth_range if isinstance(field, DataField) else (0.0, float("inf"))
    given = question.bandwidth
    try:
        low, high = map(float, bandwidth_range)
    except (TypeError, ValueError) as error:
        raise ArgumentError("bandwidth_range", "be a pair (low, high)", got=repr(bandwidth_range)) from error
    scales = [given, *((factor * given).clamp(low, high) for factor in _SCALE_FACTORS)]

    def part(y: Tensor, *several: Tensor) -> tuple[Tensor, ...]:
        return tuple(_count_at(question.field, y, s) for s in several)

    with torch.no_grad():
        found = question.compute(part, question.points, *scales, progress=progress)
    counts = [column.cpu().numpy() for column in found]
    local, low, high = counts[0], np.min(counts, axis=0), np.max(counts, axis=0)
    kinds, sizes = np.unique(local, return_counts=True)
    found = DimensionEstimate(
        local=question.given.named(local),
        low=question.given.named(low),
        high=question.given.named(high),
        value=_median(local),
        interval=(_median(low), _median(high)),
        mean=float(local.mean()),
        standard_error=float(local.std(ddof=1) / np.sqrt(len(local))) if len(local) > 1 else float("nan"),
        shares={int(kind): float(size / len(local)) for kind, size in zip(kinds, sizes, strict=True)},
        bandwidth=float(given.median()),
    )
    if _is_cut(question, local):
        # An uncentered field has no denoiser to count with.
        with suppress(NoDenoiserError):
            return _uncut(question, scales, found)
    return found


def _is_cut(question: Question, counts: np.ndarray) -> bool:
    """Say whether at most points a learned factor has no row left that is no direction of the data."""
    field = bare(question.asked)
    if not isinstance(field, NeuralField):
        return False
    rank = question.field.metric(question.points[:1], question.bandwidth[:1]).eigenvalues().shape[-1]
    return rank < field.frame.hull_dim and float((counts >= rank).mean()) > 0.5


def _uncut(question: Question, scales: Sequence[Tensor], cut: DimensionEstimate) -> DimensionEstimate:
    """Count the dimensions that a rank cuts off from products of the denoiser's Jacobian, at some of the points."""
    field, dim = ScoreField(bare(question.asked), seed=0), question.field.dim
    n_probes = None if dim <= _MOST_AXES else _N_PROBES
    count = min(max(_MOST_PRODUCTS // (len(scales) * min(dim, _MOST_AXES)), _FEWEST_COUNTED), _MOST_COUNTED)
    rows = torch.linspace(0, len(cut.local) - 1, min(count, len(cut.local)), device=question.points.device).long()
    generator = torch.Generator(question.points.device).manual_seed(0)
    # Where samples are noisy, the data are where they are denoised to.
    is_noisy = getattr(question.field, "noise", 0.0) > 0
    points = [
        question.field.denoise(question.points[rows], s[rows]) if is_noisy else question.points[rows] for s in scales
    ]
    counts = [
        field.count(y.double(), s[rows].double(), n_probes=n_probes, generator=generator)
        for y, s in zip(points, scales, strict=True)
    ]
    values = counts[0].value.cpu().numpy()
    means = [int(one.value.mean().round()) for one in counts]
    within = np.abs(values - means[0]) <= np.maximum(2 * counts[0].error.cpu().numpy(), 0.5)
    how = "the Jacobian of the denoiser" if n_probes is None else f"{n_probes} probes of the denoiser's Jacobian"
    return replace(
        cut,
        value=means[0],
        interval=(min(means), max(means)),
        mean=float(values.mean()),
        standard_error=float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan"),
        shares={means[0]: float(within.mean())},
        counted=f"counted from {how} at {len(values)} points, since the rank cuts dimensions off",
    )


def _median(counts: np.ndarray) -> int:
    """Return the middle count, one that occurs."""
    return int(np.sort(counts)[(len(counts) - 1) // 2])


@dataclass(frozen=True)
class RankAdvice:
    """A rank, and why.

    Attributes:
        rank: The recommended number of rows.
        dimension: The largest dimension seen, up to a few odd points.
        reason: Why, in a sentence.

    Example:
        >>> recommend_rank(np.array([4, 4, 4]), rank=4, hull_dim=10)
        RankAdvice(rank=8, dimension=4, reason='rank 4 cuts the dimension off at 4; try 8 and look again')
    """

    rank: int
    dimension: int
    reason: str


def recommend_rank(dimensions: np.ndarray, rank: int, hull_dim: int) -> RankAdvice:
    """Recommend a rank from local dimensions that were found with another one.

    2d + 2 rows for data of dimension d, but no more than twice the hull, beyond which nothing is gained. Where the
    dimensions reach the rank they were found with, they are cut off, and twice that rank is the advice.

    Args:
        dimensions: Local dimensions at samples (`local_dimension`).
        rank: The rank of the field they were found with.
        hull_dim: Dimension of the linear hull of the data, or D.

    Example:
        >>> recommend_rank(np.array([2, 2, 3, 3]), rank=16, hull_dim=10).rank
        8
    """
    dimensions = as_numbers(dimensions, "dimensions").detach().cpu().numpy()
    if dimensions.size == 0 or dimensions.ndim == 0 or not np.isfinite(dimensions).all():
        got = "a number" if dimensions.ndim == 0 else "none" if dimensions.size == 0 else "NaN or infinity"
        raise ArgumentError("dimensions", "hold a finite number for at least one point", got=got)
    # One point in fifty may be an outlier.
    dimension = int(np.quantile(dimensions, 0.98, method="higher"))
    most = 2 * hull_dim
    if dimension >= rank and rank < hull_dim:
        advice = min(2 * rank, most)
        reason = f"rank {rank} cuts the dimension off at {dimension}; try {advice} and look again"
        return RankAdvice(advice, dimension, reason)
    advice = min(_ROWS_PER_DIMENSION * dimension + _EXTRA_ROWS, most)
    return RankAdvice(advice, dimension, f"2d + 2 for data of dimension up to {dimension}")


def rank_cuts_off(profile: ScaleProfile, hull_dim: int, supported_from: float = 0.0) -> str | None:
    """Say that the rank is too small, if it is: its last eigenvalue should be near 0 at the chosen scale.

    Where that scale was chosen for want of a clear gap, also at smaller ones at which samples have neighbors.

    Example:
        >>> from carre.fields import ExactField, ScoreField
        >>> from carre.manifolds import Sphere
        >>> from carre.toolkit import choose_bandwidth
        >>> field, points = ScoreField(ExactField(Sphere(2)), rank=1), Sphere(2).sample(50)
        >>> told = rank_cuts_off(choose_bandwidth(field, points, [0.1], calibrated=False), hull_dim=3)
        >>> told.split(":")[0]
        'rank 1 is too small'
    """
    rank, chosen = profile.eigenvalues.shape[1], profile.chosen
    is_clear = profile.gap[chosen] >= CLEAR_GAP
    index = np.arange(len(profile.bandwidth))
    finer = (index < chosen) & profile.is_admissible & (profile.bandwidth >= supported_from) & (not is_clear)
    last = np.where(finer | (index == chosen), profile.eigenvalues[:, -1], 0.0)
    if rank >= hull_dim or last.max() <= TANGENT_ABOVE:
        return None
    return (
        f"rank {rank} is too small: at σ = {profile.bandwidth[last.argmax()]:.3g} even the last eigenvalue averages "
        f"{last.max():.2f}, so dimensions are cut off. Raise rank (up to {hull_dim})"
    )
