"""Where the geometry is valid, how it bends, and what speaks against the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from carre.report.budget import affordable, parts_within, scattered
from carre.report.content import Checked, Curvature, ScaleTable
from carre.toolkit import DimensionEstimate, rank_cuts_off
from carre.training import linear_phase

# One check costs about as much as so many dimensions, and it looks at so many samples before the first.
_CHECK_COST, _CHECK_SAMPLES = 20, 256
_FEWEST_CHECKED, _MOST_CHECKED = 100, 1000
_FEW_SAMPLES = 20
_MOST_CURVED = 2000
# Numbers of the second fundamental form that are held at once.
_FORM_NUMBERS = 2e7


def check_points(geometry: Any, points: Tensor, bandwidth: float, *, seconds: float, each: float) -> Checked:
    """Check the geometry at as many points as the time allows; without samples where comparing would take too long."""
    if not geometry.is_centered_:
        nothing = np.zeros(0, dtype=bool)
        note = "Not checked: this fit has no denoiser, which the check needs."
        return Checked(np.zeros(0, dtype=int), nothing, nothing, nothing, (), note)
    each, most = _CHECK_COST * each, min(len(points), _MOST_CHECKED)
    # The samples have to be looked at in any case: a short check of few points is not worth it.
    with_samples = each * (_CHECK_SAMPLES + min(_FEWEST_CHECKED, most)) < 3 * seconds
    count = affordable(
        most,
        seconds - with_samples * each * _CHECK_SAMPLES,
        each,
        least=min(_FEWEST_CHECKED if with_samples else _FEW_SAMPLES, most),
    )
    some = scattered(len(points), count, seed=1)
    options: dict[str, Any] = {} if with_samples else {"samples": None}
    found = geometry.check(points[some], bandwidth, **options)
    note = f"Checked at {count:,} of {len(points):,} points" + ("." if count == len(points) else ", chosen by chance.")
    if not with_samples:
        note += " To save time they were not compared with a kernel on the samples."
    near, clear, agrees = (np.asarray(flag) for flag in (found.near_data, found.clear_spectrum, found.agrees))
    return Checked(some.numpy(), near, clear, agrees, found.reasons, note, with_samples)


def measure_curvature(
    geometry: Any, points: Tensor, bandwidth: float, estimate: DimensionEstimate, checked: Checked, *, seconds: float
) -> Curvature:
    """Measure how the data bend at as many points as the time allows, if they have a dimension to speak of."""
    reason = _no_curvature(geometry, estimate, checked)
    if reason:
        return Curvature(np.zeros(0, dtype=int), np.zeros(0), None, reason)
    size = int(np.clip(_FORM_NUMBERS / ((estimate.interval[1] + 2) ** 2 * points.shape[1]), 1, 64))
    order = scattered(len(points), min(len(points), _MOST_CURVED), seed=2)
    order = order[scattered(len(order), len(order), seed=3).argsort()]
    bending, scalar, rows = [], [], []
    for part in parts_within(seconds, order, size):
        clean = geometry.denoise(points[part], bandwidth) if geometry.is_centered_ else points[part]
        form, _ = geometry.second_fundamental_form(clean, bandwidth)
        mean = form.diagonal(dim1=1, dim2=2).sum(-1)
        bending.append(mean.norm(dim=-1).numpy())
        scalar.append((mean.square().sum(-1) - form.square().sum((1, 2, 3))).numpy())
        rows.append(part.numpy())
    found = np.concatenate(rows)
    note = f"Curvature was measured at {len(found):,} of {len(points):,} points, which takes the most time; "
    note += "at points that were pulled onto the data, from derivatives of the metric."
    has_scalar = estimate.value > 1
    return Curvature(found, np.concatenate(bending), np.concatenate(scalar) if has_scalar else None, note)


def _no_curvature(geometry: Any, estimate: DimensionEstimate, checked: Checked) -> str:
    """Say why there is no curvature to be measured, if so."""
    hull = geometry.field_.frame.dim
    if estimate.value == 0:
        return "Curvature is left out: at this scale the data have no direction to bend along."
    if estimate.value >= hull:
        return f"Curvature is left out: the data fill all {hull} dimensions of their linear hull, and nothing bends."
    if len(checked.points) and checked.is_clear.mean() < 0.5:
        return (
            f"Curvature is left out: only {checked.is_clear.mean():.0%} of the checked points have a clear gap between "
            "their eigenvalues. Where the tangent space is a matter of degree, so is its turning."
        )
    return ""


def warnings_of(geometry: Any, estimate: DimensionEstimate, scales: ScaleTable, checked: Checked) -> tuple[str, ...]:
    """Say what speaks against the fit, in sentences."""
    found = []
    if len(geometry.landmarks_) < _FEW_SAMPLES:
        found.append(
            f"The geometry was learned from only {len(geometry.landmarks_)} samples: too few to tell a geometry from "
            "chance. Collect more."
        )
    linear = linear_phase(geometry.history_)
    if linear:
        found.append(f"The network was not trained for long enough: {linear}.")
    if estimate.source:
        found.append(
            f"The number of dimensions above was therefore estimated {estimate.source}. Everything below is the "
            "network's, and should not be relied on."
        )
    profile = geometry.scale_profile_
    cut = None if profile is None else rank_cuts_off(profile, geometry.field_.frame.dim)
    if cut:
        found.append(f"The rank of the fit cuts the dimension off: {cut}.")
    if scales.notes[scales.chosen]:
        found.append(f"The scale σ = {scales.bandwidth[scales.chosen]:.3g} is doubtful: {scales.notes[scales.chosen]}.")
    if len(checked.points) and checked.is_near.mean() < 0.5:
        found.append(
            f"{1 - checked.is_near.mean():.0%} of the checked points are farther from the data than noise would carry "
            "them. Are these the data that the geometry was learned from, in the same units?"
        )
    elif len(checked.points) and checked.agrees.mean() < 0.5:
        found.append(
            f"At {1 - checked.agrees.mean():.0%} of the checked points a kernel on the samples sees another geometry. "
            "Train longer, or choose a larger scale."
        )
    return tuple(found)
