"""What the geometry of the bone marrow says: how many dimensions, which ways, which genes, and where it is valid."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

import carre
from experiments.cells.data import Marrow

# A stem cell, and the last cells of three fates, as the notebook of palantir names them.
START = "Run5_164698952452459"
ENDS = {
    "erythroid": "Run4_200562869397916",
    "monocyte": "Run5_134936662236454",
    "dendritic": "Run5_131097901611291",
}
# Which cells belong to which part, by what a gene is above its mean in the components.
PARTS = {"stem": ("AVP", 0.5), "erythroid": ("KLF1", 0.5), "monocyte": ("MPO", 1.0), "dendritic": ("IRF8", 1.0)}
MARKERS = ("CD34", "AVP", "MPO", "ELANE", "GATA1", "KLF1", "HBB", "CA1", "IRF8", "CSF1R", "CD79A", "CD79B")
ORDER = ("GATA1", "KLF1", "HBB")
N_CHECKED, N_AROUND, N_GENES = 300, 15, 10


def measure(marrow: Marrow, geometry: carre.Geometry) -> dict[str, Any]:
    """Ask what an analyst asks, at the scale of the fit and at that of the tree."""
    coarse = tree_scale(geometry)
    profile = geometry.scale_profile
    assert profile is not None
    scales = [float(s) for s in profile.bandwidth if s >= geometry.bandwidth]
    ways = {"default scale": geometry.bandwidth, "scale of the tree": coarse}
    return {
        "cells": len(marrow.pcs),
        "genes": len(marrow.names),
        "variable genes": len(marrow.genes),
        "components": marrow.pcs.shape[1],
        "share of variance": marrow.share,
        "deviations": marrow.pcs.std(0).tolist(),
        "counting noise": marrow.noise.tolist(),
        "noise": str(geometry.noise_estimate),
        "bandwidth": geometry.bandwidth,
        "why": profile.reason,
        "tree": coarse,
        "scales": [at_scale(marrow, geometry, sigma) for sigma in scales],
        "parts": parts(marrow, geometry, coarse),
        "explained": {gene: explained(marrow, gene) for gene in MARKERS},
        "paths": {name: {fate: way(marrow, geometry, fate, sigma) for fate in ENDS} for name, sigma in ways.items()},
        "rising with": {gene: rising(marrow, geometry, gene, coarse) for gene in ("MPO", "GATA1")},
    }


def tree_scale(geometry: carre.Geometry) -> float:
    """Return the smallest scale whose gap between eigenvalues is the widest, within a hundredth."""
    profile = geometry.scale_profile
    assert profile is not None
    gap = np.asarray(profile.gap)
    return float(profile.bandwidth[int(np.flatnonzero(gap >= gap.max() - 0.01)[0])])


def at_scale(marrow: Marrow, geometry: carre.Geometry, sigma: float) -> dict[str, Any]:
    """Count dimensions at every cell, and check some of them."""
    found = geometry.estimate_dimension(marrow.pcs, sigma)
    some = np.random.default_rng(0).choice(len(marrow.pcs), min(N_CHECKED, len(marrow.pcs)), replace=False)
    check = geometry.check(marrow.pcs[some], sigma)
    return {
        "bandwidth": sigma,
        "dimension": found.value,
        "interval": list(found.interval),
        "verdict": found.verdict,
        "shares": {str(k): v for k, v in found.shares.items()},
        "valid": float(np.mean(check.valid)),
    }


def parts(marrow: Marrow, geometry: carre.Geometry, sigma: float) -> dict[str, Any]:
    """Count dimensions in each part of the tree, and where the parts meet."""
    dimension = np.asarray(geometry.dimension(marrow.pcs, sigma))
    belongs = {part: marrow.restored(marrow.pcs, gene) > above for part, (gene, above) in PARTS.items()}
    belongs["between"] = ~np.any(list(belongs.values()), axis=0)
    rows = {}
    for part, inside in belongs.items():
        counted = np.bincount(np.minimum(dimension[inside], 3), minlength=4) / max(inside.sum(), 1)
        rows[part] = {"cells": int(inside.sum()), "shares": counted.tolist()}
    return rows


def way(marrow: Marrow, geometry: carre.Geometry, fate: str, sigma: float) -> dict[str, Any]:
    """Go from the stem cell to the last cell of a fate, and look at cells, genes and directions on the way."""
    start, end = marrow.pcs[marrow.cell(START)], marrow.pcs[marrow.cell(ENDS[fate])]
    begun = time.perf_counter()
    path = geometry.path(start, end, sigma)
    seconds = time.perf_counter() - begun
    nodes = path.numpy()[0]
    line = np.linspace(start, end, len(nodes))
    near = NearestNeighbors(n_neighbors=N_AROUND).fit(marrow.pcs)
    around = near.kneighbors(nodes)[1]
    genes = {gene: marrow.restored(nodes, gene).tolist() for gene in MARKERS}
    seen = {gene: marrow.expression(gene)[around].mean(1).tolist() for gene in MARKERS}
    inner = slice(len(nodes) // 4, -(len(nodes) // 4))
    return {
        "length": float(path.length()),
        "connected": bool(path.connected[0]),
        "strayed": float(path.strayed[0]),
        "seconds": seconds,
        "nearest cell, path": float(near.kneighbors(nodes[inner])[0][:, 0].mean()),
        "nearest cell, line": float(near.kneighbors(line[inner])[0][:, 0].mean()),
        "genes": genes,
        "genes, line": {gene: marrow.restored(line, gene).tolist() for gene in MARKERS},
        "genes of cells around": seen,
        "nodes": nodes[:, :3].tolist(),
        "half": {gene: half(np.array(genes[gene])) for gene in ORDER if fate == "erythroid"},
        "half, cells around": {gene: half(np.array(seen[gene])) for gene in ORDER if fate == "erythroid"},
        "directions": [direction(marrow, geometry, nodes, at, sigma) for at in (0.25, 0.5, 0.75)],
    }


def half(values: np.ndarray) -> float:
    """Return where on a way a value is last below the middle between its ends, as a share of the way.

    Example:
        >>> half(np.array([0.0, 0.0, 1.0, 1.0, 1.0]))
        0.25
    """
    below = np.flatnonzero((values - (values[0] + values[-1]) / 2) * np.sign(values[-1] - values[0]) < 0)
    return float(below[-1] / (len(values) - 1)) if len(below) else 0.0


def direction(marrow: Marrow, geometry: carre.Geometry, nodes: np.ndarray, at: float, sigma: float) -> dict[str, Any]:
    """Turn the leading tangent direction at a node into genes, and say how much of the way lies along it."""
    k = int(at * (len(nodes) - 1))
    local = geometry.at(nodes[k : k + 1], sigma)
    leading = np.asarray(local.tangent_basis(1))[0, :, 0]
    onwards = nodes[k + 1] - nodes[k - 1]
    onwards /= np.linalg.norm(onwards)
    leading = leading * np.sign(leading @ onwards)
    weight = leading @ marrow.loadings
    place = {str(gene): k for k, gene in enumerate(marrow.genes[np.argsort(-np.abs(weight))], start=1)}
    return {
        "at": at,
        "eigenvalues": np.asarray(local.eigenvalues)[0, :4].tolist(),
        "share of the way": float((leading @ onwards) ** 2),
        "up": [str(gene) for gene in marrow.genes[np.argsort(-weight)[:N_GENES]]],
        "down": [str(gene) for gene in marrow.genes[np.argsort(weight)[:N_GENES]]],
        "places": {gene: place.get(gene) for gene in MARKERS},
    }


def rising(marrow: Marrow, geometry: carre.Geometry, gene: str, sigma: float) -> list[str]:
    """List the genes that rise fastest along the gradient of one, at cells between the parts."""
    between = ~np.any([marrow.restored(marrow.pcs, one) > above for one, above in PARTS.values()], axis=0)
    slope = geometry.gradient_of_values(marrow.pcs, marrow.expression(gene), marrow.pcs[between][:200], sigma)
    weight = np.asarray(slope).mean(0) @ marrow.loadings
    return [str(name) for name in marrow.genes[np.argsort(-weight)[:N_GENES]]]


def explained(marrow: Marrow, gene: str) -> float | None:
    """Return which share of the variance of a gene the components have; None for one that was not chosen."""
    if gene not in marrow.genes:
        return None
    return float(marrow.restored(marrow.pcs, gene).var() / marrow.expression(gene).var())
