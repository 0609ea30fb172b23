"""Which share of a cell's RNA velocity lies along the data: learned tangent spaces beside local PCA and others."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

import carre
from experiments.cells.data import Bodies

NEIGHBORS = (10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
N_SCALES, MOST = 16, 10
# How many neighbors analyses of velocities take when nobody chooses.
USUAL = 30
# Two-sided, at five in a hundred.
NORMAL = 1.96


def shares(bases: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Return |Uᵀv|²/|v|² for the first 1, 2, … columns of bases (n, D, d), shape (n, d).

    Example:
        >>> shares(np.eye(2)[None], np.array([[3.0, 4.0]]))
        array([[0.36, 1.  ]])
    """
    along = np.einsum("nij,ni->nj", bases, velocity) ** 2
    found: np.ndarray = along.cumsum(1) / (velocity**2).sum(1, keepdims=True)
    return found


def local_pca(points: np.ndarray, n_neighbors: int, most: int) -> np.ndarray:
    """Return the leading principal directions of the nearest cells of each cell, (n, D, most)."""
    nearest = NearestNeighbors(n_neighbors=min(n_neighbors, len(points))).fit(points).kneighbors(points)[1]
    found = np.empty((len(points), points.shape[1], most))
    for row, cells in enumerate(nearest):
        around = points[cells] - points[cells].mean(0)
        found[row] = np.linalg.eigh(around.T @ around)[1][:, ::-1][:, :most]
    return found


def compare(bodies: Bodies, geometries: list[carre.Geometry], n_components: int) -> dict[str, Any]:
    """Compare methods within the first components: settings by the velocities of one half, shares of the other.

    All methods see the places of all cells. The best σ and the best number of neighbors are chosen for each d by
    itself; the third way, σ as the fit chose it, has seen no velocity.
    """
    points, velocity = bodies.pcs[:, :n_components], bodies.velocity[:, :n_components]
    most = min(MOST, n_components, *(geometry.rank for geometry in geometries))
    halves = np.array_split(np.random.default_rng(0).permutation(len(points)), 2)
    kinds: dict[str, list[dict[float, np.ndarray]]] = {
        "local PCA": [{k: shares(local_pca(points, k, most), velocity) for k in NEIGHBORS if k <= len(points)}],
        "learned": [learned(geometry, points, velocity, most) for geometry in geometries],
    }
    principal = np.linalg.svd(points - points.mean(0), full_matrices=False)[2][:most].T
    everywhere = np.broadcast_to(principal, (len(points), *principal.shape))
    best, settings = {}, {}
    for kind, runs in kinds.items():
        best[kind], settings[kind] = zip(*(chosen(run, *halves) for run in runs), strict=True)
    default = [shares(np.asarray(geometry.tangent_basis(points, most)), velocity)[halves[1]] for geometry in geometries]
    of_all = shares(everywhere, velocity)[halves[1]]
    usual = kinds["local PCA"][0][USUAL][halves[1]]
    by_label = paired(np.mean(best["learned"], axis=0) - best["local PCA"][0])
    without = paired(np.mean(default, axis=0) - usual)
    means = {
        "learned": np.mean(best["learned"], axis=(0, 1)),
        "learned, σ without labels": np.mean(default, axis=(0, 1)),
        "local PCA": best["local PCA"][0].mean(0),
        f"local PCA, k = {USUAL}": usual.mean(0),
        "global PCA": of_all.mean(0),
        "random": np.arange(1, most + 1) / n_components,
    }
    day, counts = bodies.time[halves[1]], [np.asarray(g.dimension(points)) for g in geometries]
    return {
        "components": n_components,
        "share of velocity": float((velocity**2).sum() / (bodies.velocity**2).sum()),
        "means": {name: values.tolist() for name, values in means.items()},
        "learned − local PCA": by_label,
        "without labels": without,
        "by seed": [run.mean(0).tolist() for run in best["learned"]],
        "cosine": {name: float(np.sqrt(best[name][0][:, 0]).mean()) for name in kinds},
        "neighbors": list(settings["local PCA"][0]),
        "bandwidths": [list(one) for one in settings["learned"]],
        "default": [g.bandwidth for g in geometries],
        "dimension": [float(np.median(one)) for one in counts],
        "by neighbors": {str(k): run[halves[1]].mean(0).tolist() for k, run in kinds["local PCA"][0].items()},
        "by bandwidth": {f"{s:.4g}": run[halves[1]].mean(0).tolist() for s, run in kinds["learned"][0].items()},
        "by time": {
            str(int(t)): {
                name: np.mean([one[day == t].mean(0) for one in runs], axis=0).tolist() for name, runs in best.items()
            }
            for t in np.unique(day)
        },
    }


def paired(differences: np.ndarray) -> list[list[float]]:
    """Return the mean of what differs from cell to cell, and half of its interval at 95 %, for each d."""
    half = NORMAL * differences.std(0, ddof=1) / np.sqrt(len(differences))
    return np.stack([differences.mean(0), half], 1).tolist()


def learned(geometry: carre.Geometry, points: np.ndarray, velocity: np.ndarray, most: int) -> dict[float, np.ndarray]:
    """Return the shares inside learned tangent spaces, by σ over the trained range."""
    scales = np.geomspace(*geometry.bandwidth_range, N_SCALES)
    return {float(s): shares(np.asarray(geometry.tangent_basis(points, most, s)), velocity) for s in scales}


def chosen(run: dict[float, np.ndarray], first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Choose a setting for each d on one half of the cells; return its shares on the other, and the settings."""
    settings = list(run)
    best = np.argmax([run[setting][first].mean(0) for setting in settings], axis=0)
    picked = [run[settings[place]][second, d] for d, place in enumerate(best)]
    return np.stack(picked, 1), [settings[place] for place in best]
