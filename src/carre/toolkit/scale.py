"""Choosing the scale without labels: one for all points, or one for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_points
from carre.fields import MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.calibration import calibration_error

CALIBRATION_LIMIT = 0.3
CLEAR_GAP = 0.4
# A point leaves the common scale only for a gap that is wider by this much: gaps of single points are noisy.
_WORTH_LEAVING = 0.05


@dataclass(frozen=True, eq=False)
class ScaleProfile:
    """What a field looks like over a grid of scales, and which scale was chosen.

    Attributes:
        bandwidth: The grid of σ, in the units of the data.
        eigenvalues: Mean eigenvalues at clean samples, one row per σ.
        idempotency: mean Σλ(1−λ) / mean Σλ with λ clipped to [0, 1]: 0 for projectors.
        gap: Mean over samples of the largest drop between consecutive eigenvalues, clipped to [0, 1].
        calibration: `calibration_error` at each σ.
        chosen: Index of the chosen σ.
        reason: Why, in a sentence.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> rng = torch.Generator().manual_seed(0)
        >>> samples = Sphere(2).sample(200, generator=rng)
        >>> profile = choose_bandwidth(ExactField(Sphere(2)), samples, [0.05, 0.1, 0.2], generator=rng)
        >>> profile.trace.round(2)  # 2 − σ²
        array([2.  , 1.99, 1.96])
        >>> profile.is_admissible
        array([ True,  True,  True])
    """

    bandwidth: np.ndarray
    eigenvalues: np.ndarray
    idempotency: np.ndarray
    gap: np.ndarray
    calibration: np.ndarray
    chosen: int
    reason: str

    @property
    def trace(self) -> np.ndarray:
        """The mean trace of G at each σ: a dimension that need not be whole."""
        trace: np.ndarray = self.eigenvalues.sum(1)
        return trace

    @property
    def is_admissible(self) -> np.ndarray:
        """Which σ are calibrated, so that the field may be believed there; all, where that is not known."""
        admissible: np.ndarray = np.isnan(self.calibration) | (self.calibration < CALIBRATION_LIMIT)
        return admissible


def choose_bandwidth(
    field: MetricField,
    samples: Any,
    grid: Any,
    *,
    max_dim: int | None = None,
    supported_from: float = 0.0,
    generator: torch.Generator | None = None,
    calibrated: bool = True,
) -> ScaleProfile:
    """Choose the σ at which tangent and normal directions are most distinct, among the calibrated ones.

    The rules of THEORY §4.5: the largest spectral gap subject to a calibration error below 0.3. Below the
    scale of the noise, data are full-dimensional and G is a perfect projector on everything, which
    idempotency would take for the answer; the gap does not. Data can have clear gaps after different
    numbers of eigenvalues: a thin ribbon is a surface from near and a curve from afar. The finest structure that the
    samples resolve is taken, that is the largest such number. Where no scale has a clear gap (flat
    data, or data without a sharp dimension), the σ at which G is most nearly a projector is taken,
    among scales at which samples have neighbors.

    Args:
        field: The field.
        samples: Held-out samples, clean.
        grid: Candidates for σ, ascending.
        max_dim: Dimension of the linear hull of the data; a gap beyond it says nothing.
        supported_from: Below this σ the samples are too far apart to speak for themselves, and only a clear gap
            is trusted.
        generator: Source of the noise in the calibration error.
        calibrated: Whether the field has a denoiser to calibrate against.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> sphere, rng = Sphere(2).noisy(0.05), torch.Generator().manual_seed(0)
        >>> samples = sphere.sample(200, generator=rng)
        >>> profile = choose_bandwidth(ExactField(sphere), samples, [0.01, 0.05, 0.2], generator=rng)
        >>> float(profile.bandwidth[profile.chosen])  # well above the noise
        0.2
    """
    samples = as_points(samples, dim=field.dim, name="samples").tensor
    grid = checked_grid(grid)
    rows = [_statistics(field, samples, sigma, max_dim, generator, calibrated) for sigma in grid.tolist()]
    eigenvalues = np.array([row[0] for row in rows])
    idempotency, gap, errors = np.array([row[1] for row in rows]).T
    admissible = errors < CALIBRATION_LIMIT if calibrated else np.ones(len(grid), dtype=bool)
    supported = admissible & (grid >= 0.99 * supported_from)
    widest = gap[admissible].max(initial=0.0)
    if not admissible.any():
        chosen = int(errors.argmin())
        reason = f"no scale is calibrated within {CALIBRATION_LIMIT}; this one comes nearest. Train longer"
    elif widest >= CLEAR_GAP:
        chosen, reason = _widest_gap(gap, _gap_positions(eigenvalues, max_dim), admissible, supported)
    elif supported.any():
        chosen = int(np.where(supported, idempotency, np.inf).argmin())
        reason = f"no scale has a clear spectral gap (at most {widest:.2f}); of those at which samples have neighbors "
        reason += f"(σ ≥ {supported_from:.3g}), this one makes G most nearly a projector"
    else:
        chosen = int(np.where(admissible, idempotency, np.inf).argmin())
        reason = f"no scale has a clear spectral gap (at most {widest:.2f}); this one makes G most nearly a projector"
    if chosen in (0, len(grid) - 1):
        reason += f"; it lies at the {'lower' if chosen == 0 else 'upper'} end of the trained range"
    return ScaleProfile(grid, eigenvalues, idempotency, gap, errors, chosen, reason)


def checked_grid(grid: Any, *, name: str = "grid") -> np.ndarray:
    """Check candidates for σ: positive, finite, ascending."""
    array = np.asarray(grid, dtype=np.float64)
    if (
        array.ndim != 1
        or len(array) == 0
        or not (np.diff(array, prepend=0.0) > 0).all()
        or not np.isfinite(array).all()
    ):
        raise ValueError(f"{name} must be positive and ascending; got {grid}")
    return array


def _widest_gap(
    gap: np.ndarray, position: np.ndarray, admissible: np.ndarray, supported: np.ndarray
) -> tuple[int, str]:
    """Find the widest gap; of structures with different numbers of dimensions, that of the finest one."""
    widest = int(np.where(admissible, gap, -np.inf).argmax())
    finer = supported & (gap >= CLEAR_GAP) & (position > position[widest])
    if not finer.any():
        return widest, f"the spectral gap is widest here ({gap[widest]:.2f})"
    finest = finer & (position == position[finer].max())
    chosen = int(np.where(finest, gap, -np.inf).argmax())
    return chosen, (
        f"of the scales with a clear spectral gap this one shows the finest structure: {position[chosen]} dimensions "
        f"(gap {gap[chosen]:.2f}), of which {position[widest]} remain at larger scales"
    )


def _gap_positions(eigenvalues: np.ndarray, max_dim: int | None) -> np.ndarray:
    """Count the eigenvalues before the largest drop of the mean spectrum, at each scale."""
    clipped = eigenvalues[:, :max_dim].clip(0, 1)
    if clipped.shape[1] < 2:
        return np.ones(len(clipped), dtype=int)
    positions: np.ndarray = 1 + (clipped[:, :-1] - clipped[:, 1:]).argmax(1)
    return positions


@dataclass(frozen=True, eq=False)
class LocalScales:
    """A scale for every point.

    Attributes:
        bandwidth: σ at each point.
        grid: The candidates.
        gap: The widest spectral gap of each point at each candidate, from its own and the two neighboring scales.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> field, points = ExactField(Sphere(1)), Sphere(1).sample(50)
        >>> profile = choose_bandwidth(field, points, [0.1, 0.4], calibrated=False)
        >>> scales = choose_local_bandwidths(field, points, profile)
        >>> np.unique(scales.bandwidth)  # all points of a circle are alike
        array([0.1])
    """

    bandwidth: np.ndarray
    grid: np.ndarray
    gap: np.ndarray


def choose_local_bandwidths(
    field: MetricField, points: Any, profile: ScaleProfile, *, progress: Progress | None = None
) -> LocalScales:
    """Choose a scale for every point: the one of widest spectral gap there, among those that are calibrated.

    Dense or strongly curved parts of the data want a smaller σ, sparse or noisy ones a larger. A point keeps the
    scale of the profile unless another has a gap wider by 0.05.

    Args:
        field: The field.
        points: Points, shape (n, D).
        profile: What the common scale was chosen from (`choose_bandwidth`, or ``scale_profile_`` of a fit).
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere, Union
        >>> rng = torch.Generator().manual_seed(0)
        >>> small, large = Sphere(1, 0.2).embed(4, generator=rng, shift=2.0), Sphere(1, 2.0).embed(4, generator=rng)
        >>> union = Union([small, large])
        >>> grid = np.geomspace(0.02, 0.64, 11)
        >>> profile = choose_bandwidth(ExactField(union), union.sample(64, generator=rng), grid, generator=rng)
        >>> points = torch.cat([small.sample(1), large.sample(1)])
        >>> chosen = choose_local_bandwidths(ExactField(union), points, profile).bandwidth
        >>> bool(chosen[0] < 0.1)
        True
    """
    tensor = as_points(points, dim=field.dim).tensor
    columns = []
    with torch.no_grad():
        for done, sigma in enumerate(profile.bandwidth.tolist()):
            columns.append(in_parts(lambda y, s=sigma: _gaps(field, y, s), tensor, numbers_per_item=64 * field.dim))
            if progress is not None:
                progress((done + 1) / len(profile.bandwidth))
    gap = _smoothed(torch.stack(columns, 1).cpu().numpy())
    best = np.where(profile.is_admissible, gap, -np.inf).argmax(1)
    rows = np.arange(len(gap))
    stay = gap[rows, best] < gap[:, profile.chosen] + _WORTH_LEAVING
    return LocalScales(profile.bandwidth[np.where(stay, profile.chosen, best)], profile.bandwidth, gap)


def _gaps(field: MetricField, points: Float[Tensor, "n dim"], sigma: float) -> Float[Tensor, " n"]:
    """Compute the largest drop between consecutive eigenvalues at each point."""
    values = field.metric(points, sigma).eigenvalues().clamp(0, 1)
    drops = values[:, :-1] - values[:, 1:]
    return drops.amax(1) if drops.shape[1] else values[:, 0]


def _smoothed(gap: np.ndarray) -> np.ndarray:
    """Average over neighboring scales with weights ¼, ½, ¼."""
    padded = np.pad(gap, ((0, 0), (1, 1)), mode="edge")
    smooth: np.ndarray = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4
    return smooth


def _statistics(
    field: MetricField,
    samples: Float[Tensor, "n dim"],
    sigma: float,
    max_dim: int | None,
    generator: torch.Generator | None,
    calibrated: bool,
) -> tuple[np.ndarray, tuple[float, float, float]]:
    """Compute the mean eigenvalues at one σ, and (idempotency, gap, calibration error)."""
    values = field.metric(samples, sigma).eigenvalues()[:, :max_dim]
    clipped = values.clamp(0, 1)
    idempotency = float((clipped * (1 - clipped)).sum() / clipped.sum().clamp_min(1e-12))
    drops = clipped[:, :-1] - clipped[:, 1:]
    gap = float(drops.amax(1).mean()) if drops.shape[1] else 0.0
    error = calibration_error(field, samples, sigma, generator=generator) if calibrated else float("nan")
    return values.mean(0).cpu().numpy(), (idempotency, gap, error)
