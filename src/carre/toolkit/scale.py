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


@dataclass(frozen=True, eq=False)
class ScaleProfile:
    """What a field looks like over a grid of scales, and which scale was chosen.

    Attributes:
        bandwidth: The grid of σ, in the units of the data.
        eigenvalues: Mean eigenvalues at clean samples, one row per σ.
        idempotency: mean Σλ(1−λ) / mean Σλ with λ clipped to [0, 1]: 0 for projectors.
        calibration: `calibration_error` at each σ.
        chosen: Index of the chosen σ.
        reason: Why, in a sentence.
    """

    bandwidth: np.ndarray
    eigenvalues: np.ndarray
    idempotency: np.ndarray
    calibration: np.ndarray
    chosen: int
    reason: str


def choose_bandwidth(
    field: MetricField,
    samples: Float[Tensor, "n dim"],
    grid: np.ndarray,
    *,
    generator: torch.Generator | None = None,
    calibrated: bool = True,
) -> ScaleProfile:
    """Choose the σ at which G is most nearly a projector, among those at which it is calibrated.

    The rule of THEORY §4.5: least Σλ(1−λ)/Σλ subject to a calibration error below 0.3. Idempotency alone is
    degenerate (G → 0 at both ends of the scale is idempotent); calibration rules those ends out.

    Args:
        field: The field.
        samples: Held-out samples, clean.
        grid: Candidates for σ, ascending.
        generator: Source of the noise in the calibration error.
        calibrated: Whether the field has a denoiser to calibrate against; without one only
            idempotency is used.
    """
    means, idempotency, calibration = [], [], []
    for sigma in grid.tolist():
        values = field.metric(samples, sigma).eigenvalues()
        clipped = values.clamp(0, 1)
        means.append(values.mean(0).cpu().numpy())
        idempotency.append(float((clipped * (1 - clipped)).sum() / clipped.sum().clamp_min(1e-12)))
        calibration.append(
            calibration_error(field, samples, sigma, generator=generator) if calibrated else float("nan")
        )
    criterion, errors = np.array(idempotency), np.array(calibration)
    admissible = errors < _CALIBRATION_LIMIT if calibrated else np.ones(len(grid), dtype=bool)
    if admissible.any():
        chosen = int(np.where(admissible, criterion, np.inf).argmin())
        reason = f"G is most nearly a projector here, of {admissible.sum()} calibrated scales among {len(grid)}"
    else:
        chosen = int(errors.argmin())
        reason = f"no scale is calibrated within {_CALIBRATION_LIMIT}; this one comes nearest. Train longer"
    if chosen in (0, len(grid) - 1):
        reason += f"; it lies at the {'lower' if chosen == 0 else 'upper'} end of the trained range"
    return ScaleProfile(grid, np.array(means), criterion, errors, chosen, reason)
