"""Choosing the scale without labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.fields import MetricField
from carre.toolkit.calibration import calibration_error

_CALIBRATION_LIMIT = 0.3
_CLEAR_GAP = 0.4


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
    """

    bandwidth: np.ndarray
    eigenvalues: np.ndarray
    idempotency: np.ndarray
    gap: np.ndarray
    calibration: np.ndarray
    chosen: int
    reason: str


def choose_bandwidth(
    field: MetricField,
    samples: Float[Tensor, "n dim"],
    grid: np.ndarray,
    *,
    max_dim: int | None = None,
    supported_from: float = 0.0,
    generator: torch.Generator | None = None,
    calibrated: bool = True,
) -> ScaleProfile:
    """Choose the σ at which tangent and normal directions are most distinct, among the calibrated ones.

    The rules of THEORY §4.5: the largest spectral gap subject to a calibration error below 0.3. Below the
    scale of the noise, data are full-dimensional and G is a perfect projector on everything, which
    idempotency would take for the answer; the gap does not. Where no scale has a clear gap (flat
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
    """
    rows = [_statistics(field, samples, sigma, max_dim, generator, calibrated) for sigma in grid.tolist()]
    eigenvalues = np.array([row[0] for row in rows])
    idempotency, gap, errors = np.array([row[1] for row in rows]).T
    admissible = errors < _CALIBRATION_LIMIT if calibrated else np.ones(len(grid), dtype=bool)
    supported = admissible & (grid >= supported_from)
    widest = gap[admissible].max(initial=0.0)
    if not admissible.any():
        chosen = int(errors.argmin())
        reason = f"no scale is calibrated within {_CALIBRATION_LIMIT}; this one comes nearest. Train longer"
    elif widest >= _CLEAR_GAP:
        chosen = int(np.where(admissible, gap, -np.inf).argmax())
        reason = f"the spectral gap is widest here ({widest:.2f})"
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


def rank_cuts_off(profile: ScaleProfile, hull: int) -> str | None:
    """Say that the rank is too small at the chosen scale, if it is: its last eigenvalue should be near 0."""
    rank = profile.eigenvalues.shape[1]
    least = float(profile.eigenvalues[profile.chosen][-1])
    if rank >= hull or least <= 0.5:
        return None
    return (
        f"rank {rank} is too small: at the chosen scale even the last eigenvalue averages {least:.2f}, so dimensions "
        f"are cut off. Raise rank (up to {hull})"
    )


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
