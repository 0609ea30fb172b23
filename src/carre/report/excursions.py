"""Paths between rows: which ones, how they are found, and what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from carre.report.budget import scattered
from carre.report.content import Checked, PathFound, Paths
from carre.report.inputs import ReportInput
from carre.report.placement import Plane

# Pairs are sought among so many points, and so many of them are tried.
_AMONG, _TRIED, _SHOWN = 400, 4, 2
# Far apart, but no outliers.
_FAR = (0.8, 0.95)
_PICTURES = 9
# A thread of images joins its ends by what the data have in common at a coarser scale.
_COARSER = 1.7
_SWEEPS = (15, 40)
_THREAD_NODES = 17


def find_paths(
    geometry: Any,
    given: ReportInput,
    points: Tensor,
    rows: np.ndarray,
    bandwidth: float,
    plane: Plane,
    checked: Checked,
    *,
    seconds: float,
    each: float,
) -> Paths:
    """Find paths between given rows of X, or between some that lie far apart.

    Smooth data of a clear dimension are joined by geodesics; images, and data without one, by threads.
    """
    nothing: tuple[PathFound, ...] = ()
    if given.pairs is not None and len(given.pairs) == 0:
        return Paths(nothing, "No paths were asked for.")
    if not geometry.is_centered_:
        return Paths(nothing, "There are no paths: this fit has no denoiser, which they need.")
    if len(points) < 3:
        return Paths(nothing, "There are no paths: they need at least three points.")
    is_rough = geometry.sample_shape_ is not None or (len(checked.points) > 0 and checked.is_clear.mean() < 0.5)
    is_slow = each * _THREAD_NODES * _SWEEPS[1] * _TRIED > seconds
    is_chosen = given.pairs is None
    n_tried = _SHOWN if is_rough and is_slow else _TRIED
    pairs = rows[_far_pairs(points, n_tried, given, rows)] if given.pairs is None else given.pairs
    start, end = given.points[pairs[:, 0]], given.points[pairs[:, 1]]
    if is_rough:
        sigma = min(_COARSER * bandwidth, max(bandwidth, geometry.bandwidth_range_[1]))
        n_nodes = _PICTURES if is_slow else _THREAD_NODES
        sweeps = int(np.clip(seconds / (each * n_nodes * len(pairs)), *_SWEEPS))
        found = geometry.thread(start, end, sigma, n_nodes=n_nodes, max_sweeps=sweeps)
        note = f"Threads, drawn tight through the data at σ up to {sigma:.3g} ({sweeps} sweeps)."
    else:
        found = geometry.geodesic(start, end, bandwidth)
        note = f"Geodesics, the shortest ways along the data, at σ = {bandwidth:.3g}."
    order = list(range(len(pairs)))
    if is_chosen:
        # Those that stay on the data first, the longest of them before others.
        order = sorted(order, key=lambda k: (not bool(found.connected[k]), -float(found.arc_length()[k])))[:_SHOWN]
        note += " The pairs were chosen by the report: far apart, and connected where any are."
    return Paths(tuple(_described(found[k], pairs[k], plane) for k in order), note)


def _described(path: Any, pair: np.ndarray, plane: Plane) -> PathFound:
    ends = path.nodes[0, [0, -1]].double()
    return PathFound(
        rows=(int(pair[0]), int(pair[1])),
        length=float(path.arc_length()[0]),
        straight=float(torch.linalg.vector_norm(ends[1] - ends[0])),
        is_connected=bool(path.connected[0]),
        strayed=float(path.strayed[0]),
        reason=path.reasons[0],
        places=plane.places(path.nodes[0].double().numpy()),
        nodes=path.resample(_PICTURES).nodes[0].double().numpy(),
    )


def _far_pairs(points: Tensor, count: int, given: ReportInput, rows: np.ndarray) -> np.ndarray:
    """Choose pairs of points that are far apart, of one class where there are classes, no point twice."""
    some = scattered(len(points), _AMONG, seed=4)
    distances = torch.cdist(points[some], points[some])
    if given.labels is not None and given.labels.names is not None:
        codes = torch.as_tensor(given.labels.values[rows][some.numpy()])
        same = codes[:, None] == codes[None, :]
        distances = torch.where(same, distances, torch.nan) if int(same.sum()) > 4 * len(some) else distances
    upper = torch.triu(torch.ones_like(distances, dtype=torch.bool), diagonal=1) & distances.isfinite()
    known = distances[upper]
    low, high = (float(known.quantile(share)) for share in _FAR)
    far = upper & (distances >= low) & (distances <= high)
    # Of very few points none may lie between the two.
    left, right = (far if bool(far.any()) else upper & (distances >= low)).nonzero(as_tuple=True)
    order = torch.randperm(len(left), generator=torch.Generator().manual_seed(5)).tolist()
    chosen: list[tuple[int, int]] = []
    used: set[int] = set()
    for k in order:
        pair = int(left[k]), int(right[k])
        if len(chosen) < count and not used & set(pair):
            chosen.append((int(some[pair[0]]), int(some[pair[1]])))
            used |= set(pair)
    return np.array(chosen)
