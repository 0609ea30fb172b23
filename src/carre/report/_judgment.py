"""What takes long and is asked at some points only: where the geometry is valid, how it bends, and paths."""

from __future__ import annotations

import numpy as np
import torch

from carre.geometry import Geometry
from carre.report._content import Checked, Curvature, PathFound, Paths, ScaleTable
from carre.report._placement import Plane
from carre.report._survey import Survey, affordable, parts_within, scattered
from carre.toolkit import DimensionEstimate, Path, Thread, check, rank_cuts_off
from carre.training import linear_phase

# Shares of the time that each part may take, about.
_FOR_CHECK, _FOR_CURVATURE, _FOR_PATHS = 0.12, 0.1, 0.12
# One check costs about as much as so many dimensions, and it looks at so many samples before the first.
_CHECK_COST, _CHECK_SAMPLES = 20, 256
_FEWEST_CHECKED, _MOST_CHECKED = 100, 1000
_FEW_SAMPLES = 20
_MOST_CURVED = 2000
# Numbers of the second fundamental form that are held at once.
_FORM_NUMBERS = 2e7
# Pairs are sought among so many points, and so many of them are tried.
_AMONG, _TRIED, _SHOWN = 400, 4, 2
# Far apart, but no outliers.
_FAR = (0.8, 0.95)
_PICTURES = 9
# A thread of images joins its ends by what the data have in common at a coarser scale.
_COARSER = 1.7
_SWEEPS = (15, 40)
_THREAD_NODES = 17


def check_points(survey: Survey) -> Checked:
    """Check the geometry at as many points as the time allows; without samples where comparing would take too long."""
    geometry, points, seconds = survey.geometry, survey.points, survey.seconds * _FOR_CHECK
    if not geometry.is_centered:
        nothing = np.zeros(0, dtype=bool)
        note = "Not checked: this fit has no denoiser, which the check needs."
        return Checked(np.zeros(0, dtype=int), nothing, nothing, nothing, nothing, (), note)
    each, most = _CHECK_COST * survey.each, min(len(points), _MOST_CHECKED)
    # The samples have to be looked at in any case: a short check of few points is not worth it.
    with_samples = each * (_CHECK_SAMPLES + min(_FEWEST_CHECKED, most)) < 3 * seconds
    count = affordable(
        most,
        seconds - with_samples * each * _CHECK_SAMPLES,
        each,
        least=min(_FEWEST_CHECKED if with_samples else _FEW_SAMPLES, most),
    )
    some = scattered(len(points), count, seed=1)
    # The field alone knows no samples.
    asked = points[some] if with_samples else points[some].to(geometry.device)
    found = check(geometry if with_samples else geometry.field, asked, survey.bandwidth)
    note = f"Checked at {count:,} of {len(points):,} points" + ("." if count == len(points) else ", chosen by chance.")
    if not with_samples:
        note += " To save time they were not compared with a kernel on the samples."
    near, clear, agrees = (flag.cpu().numpy() for flag in (found.near_data, found.clear_spectrum, found.agrees))
    told = ~found.disagreement.isnan().cpu().numpy() if with_samples else np.zeros_like(near)
    return Checked(some.numpy(), near, clear, agrees, told, found.reasons, note)


def measure_curvature(survey: Survey, estimate: DimensionEstimate, checked: Checked) -> Curvature:
    """Measure how the data bend at as many points as the time allows, if they have a dimension to speak of."""
    geometry, points, bandwidth = survey.geometry, survey.points, survey.bandwidth
    reason = _no_curvature(geometry, estimate, checked)
    if reason:
        return Curvature(np.zeros(0, dtype=int), np.zeros(0), None, reason)
    size = int(np.clip(_FORM_NUMBERS / ((estimate.interval[1] + 2) ** 2 * points.shape[1]), 1, 64))
    order = scattered(len(points), min(len(points), _MOST_CURVED), seed=2)
    order = order[scattered(len(order), len(order), seed=3).argsort()]
    bending, scalar, rows = [], [], []
    for part in parts_within(survey.seconds * _FOR_CURVATURE, order, size):
        clean = geometry.denoise(points[part], bandwidth) if geometry.is_centered else points[part]
        curvature = geometry.curvature(clean, bandwidth)
        bending.append(curvature.mean.flatten(1).norm(dim=-1).numpy())
        scalar.append(curvature.scalar.numpy())
        rows.append(part.numpy())
    found = np.concatenate(rows)
    note = f"Curvature was measured at {len(found):,} of {len(points):,} points, which takes the most time; "
    note += "at points that were pulled onto the data, from derivatives of the metric."
    has_scalar = estimate.value > 1
    return Curvature(found, np.concatenate(bending), np.concatenate(scalar) if has_scalar else None, note)


def _no_curvature(geometry: Geometry, estimate: DimensionEstimate, checked: Checked) -> str:
    """Say why there is no curvature to be measured, if so."""
    hull = geometry.hull_dim
    if estimate.value == 0:
        return "Curvature is left out: at this scale the data have no direction to bend along."
    if hull == 1:
        return "Curvature is left out: a line does not bend."
    if estimate.value >= hull:
        return f"Curvature is left out: the data fill all {hull} dimensions of their linear hull, and nothing bends."
    if checked.is_rough:
        return (
            f"Curvature is left out: {checked.is_clear.mean():.0%} of the checked points have a clear gap between "
            "their eigenvalues. Where the tangent space is a matter of degree, so is its turning."
        )
    return ""


def find_paths(survey: Survey, plane: Plane, checked: Checked) -> Paths:
    """Find paths between given rows of X, or between some that lie far apart.

    Smooth data of a clear dimension are joined by geodesics; images, and data without one, by threads.
    """
    geometry, given, bandwidth, seconds = survey.geometry, survey.given, survey.bandwidth, survey.seconds * _FOR_PATHS
    if given.pairs is not None and len(given.pairs) == 0:
        return Paths((), "No paths were asked for.")
    if not geometry.is_centered:
        return Paths((), "There are no paths: this fit has no denoiser, which they need.")
    if len(survey.points) < 3:
        return Paths((), "There are no paths: they need at least three points.")
    is_rough = geometry.sample_shape is not None or checked.is_rough
    is_slow = survey.each * _THREAD_NODES * _SWEEPS[1] * _TRIED > seconds
    pairs = _far_pairs(survey, _SHOWN if is_rough and is_slow else _TRIED) if given.pairs is None else given.pairs
    start, end = given.points[pairs[:, 0]], given.points[pairs[:, 1]]
    if is_rough:
        sigma = min(_COARSER * bandwidth, max(bandwidth, geometry.bandwidth_range[1]))
        n_nodes = _PICTURES if is_slow else _THREAD_NODES
        sweeps = int(np.clip(seconds / (survey.each * n_nodes * len(pairs)), *_SWEEPS))
        found = geometry.path(start, end, sigma, method=Thread(max_sweeps=sweeps), n_nodes=n_nodes)
        note = f"Threads, drawn tight through the data at σ up to {sigma:.3g} ({sweeps} sweeps)."
    else:
        found = geometry.path(start, end, bandwidth, method="geodesic")
        note = f"Geodesics, the shortest ways along the data, at σ = {bandwidth:.3g}."
    order = list(range(len(pairs)))
    if given.pairs is None:
        # Those that stay on the data first, the longest of them before others.
        order = sorted(order, key=lambda k: (not bool(found.connected[k]), -float(found.length()[k])))[:_SHOWN]
        note += " The pairs were chosen by the report: far apart, and connected where any are."
    return Paths(tuple(_described(found[k], pairs[k], plane) for k in order), note)


def _described(path: Path, pair: np.ndarray, plane: Plane) -> PathFound:
    ends = path.nodes[0, [0, -1]].double()
    return PathFound(
        rows=(int(pair[0]), int(pair[1])),
        length=float(path.length()[0]),
        straight=float(torch.linalg.vector_norm(ends[1] - ends[0])),
        is_connected=bool(path.connected[0]),
        strayed=float(path.strayed[0]),
        reason=path.reasons[0],
        places=plane.places(path.nodes[0].double().numpy()),
        nodes=path.resample(_PICTURES).nodes[0].double().numpy(),
    )


def _far_pairs(survey: Survey, count: int) -> np.ndarray:
    """Choose pairs of rows that are far apart, of one class where there are classes, no row twice."""
    points, labels = survey.points, survey.given.labels
    some = scattered(len(points), _AMONG, seed=4)
    distances = torch.cdist(points[some], points[some])
    if labels is not None and labels.names is not None:
        codes = torch.as_tensor(labels.values[survey.rows][some.numpy()])
        same = codes[:, None] == codes[None, :]
        distances = torch.where(same, distances, torch.nan) if int(same.sum()) > 4 * len(some) else distances
    upper = torch.triu(torch.ones_like(distances, dtype=torch.bool), diagonal=1) & distances.isfinite()
    known = distances[upper]
    low, high = (float(known.quantile(share)) for share in _FAR)
    far = upper & (distances >= low) & (distances <= high)
    # Of very few points none may lie between the two.
    left, right = (far if bool(far.any()) else upper & (distances >= low)).nonzero(as_tuple=True)
    order = torch.randperm(len(left), generator=torch.Generator().manual_seed(5), device="cpu").tolist()
    chosen: list[tuple[int, int]] = []
    used: set[int] = set()
    for k in order:
        pair = int(left[k]), int(right[k])
        if len(chosen) < count and not used & set(pair):
            chosen.append((int(some[pair[0]]), int(some[pair[1]])))
            used |= set(pair)
    return np.asarray(survey.rows[np.array(chosen)])


def warnings_of(
    geometry: Geometry, estimate: DimensionEstimate, scales: ScaleTable, checked: Checked
) -> tuple[str, ...]:
    """Say what speaks against the fit, in sentences."""
    found = [f"Of the table that the geometry was learned from: {concern}." for concern in geometry.concerns]
    if len(geometry.landmarks) < _FEW_SAMPLES:
        found.append(
            f"The geometry was learned from only {len(geometry.landmarks)} samples: too few to tell a geometry from "
            "chance. Collect more."
        )
    linear = linear_phase(geometry.history)
    if linear:
        whose = "The network was not trained for long enough: " if geometry.history.trains_mean else "The denoiser: "
        found.append(f"{whose}{linear}.")
    if estimate.source:
        found.append(
            f"The number of dimensions above was therefore estimated {estimate.source}. Everything below is the "
            "network's, and should not be relied on."
        )
    profile = geometry.scale_profile
    cut = None if profile is None else rank_cuts_off(profile, geometry.hull_dim, geometry.supported_from)
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
