"""The two tables of cells: what is read, and what is made of counts before anything is learned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA

N_GENES, N_COMPONENTS, SEEN_IN, N_BINS = 1500, 30, 10, 20


@dataclass(frozen=True, eq=False)
class Marrow:
    """Cells of the bone marrow, as an analysis of single cells has them before it begins.

    Attributes:
        pcs: Principal components of log-counts of the variable genes, (cells, components).
        loadings: What a component is, in genes: (components, variable genes), orthonormal rows.
        genes: Names of the variable genes.
        logs: Log-counts of all genes, (cells, all genes), sparse.
        names: Names of all genes.
        cells: Names of the cells.
        share: Which share of the variance of the variable genes the components have.
        noise: The deviation of each component that comes from counting, by splitting the counts.
    """

    pcs: np.ndarray
    loadings: np.ndarray
    genes: np.ndarray
    logs: sparse.csc_matrix
    names: np.ndarray
    cells: np.ndarray
    share: float
    noise: np.ndarray

    def cell(self, name: str) -> int:
        """Return the row of a cell."""
        return int(np.flatnonzero(self.cells == name)[0])

    def expression(self, gene: str) -> np.ndarray:
        """Return the log-counts of a gene, one per cell."""
        found: np.ndarray = self.logs[:, int(np.flatnonzero(self.names == gene)[0])].toarray()[:, 0]
        return found

    def restored(self, points: np.ndarray, gene: str) -> np.ndarray:
        """Return how far a variable gene is above its mean at points in components."""
        found: np.ndarray = points @ self.loadings[:, int(np.flatnonzero(self.genes == gene)[0])]
        return found


def read_marrow(file: Path) -> Marrow:
    """Read counts, divide by what was counted in a cell, take logs, variable genes, principal components."""
    import anndata  # noqa: PLC0415

    cells = anndata.read_h5ad(file)
    names = np.asarray(cells.var_names, dtype=str)
    counts = sparse.csr_matrix(cells.X, dtype=np.float64)
    scaled = per_cell(counts)
    logs = sparse.csc_matrix(scaled.log1p())
    chosen = variable(sparse.csc_matrix(scaled))
    values = logs[:, chosen].toarray()
    pca = PCA(N_COMPONENTS, random_state=0).fit(values)
    noise = counting_noise(counts, chosen, pca.components_)
    share, rows = float(pca.explained_variance_ratio_.sum()), np.asarray(cells.obs_names, dtype=str)
    return Marrow(pca.transform(values), pca.components_, names[chosen], logs, names, rows, share, noise)


def per_cell(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Divide by what was counted in a cell, times what is counted in the one in the middle."""
    total = np.asarray(counts.sum(1))[:, 0]
    return sparse.csr_matrix(sparse.diags(np.median(total) / total) @ counts)


def variable(scaled: sparse.csc_matrix) -> np.ndarray:
    """Choose genes that vary more, for their mean, than others of about that mean."""
    mean = np.asarray(scaled.mean(0))[0]
    variance = np.asarray(scaled.multiply(scaled).mean(0))[0] - mean**2
    seen = np.flatnonzero(np.diff(scaled.indptr) >= SEEN_IN)
    dispersion = np.log(variance[seen] / mean[seen])
    bins = np.argsort(np.argsort(mean[seen])) * N_BINS // len(seen)
    score = np.empty(len(seen))
    for k in range(N_BINS):
        inside = dispersion[bins == k]
        score[bins == k] = (inside - np.median(inside)) / inside.std()
    return np.sort(seen[np.argsort(-score)[:N_GENES]])


def counting_noise(counts: sparse.csr_matrix, chosen: np.ndarray, loadings: np.ndarray) -> np.ndarray:
    """Split the counts of every cell at random: the halves differ by nothing but counting."""
    first = counts.copy()
    first.data = np.random.default_rng(0).binomial(counts.data.astype(int), 0.5).astype(float)
    # Twice each, so that logarithms are taken of numbers as large as those of all counts.
    halves = [per_cell(2 * half).log1p()[:, chosen].toarray() @ loadings.T for half in (first, counts - first)]
    found: np.ndarray = (halves[0] - halves[1]).std(0) / 2
    return found


@dataclass(frozen=True, eq=False)
class Bodies:
    """Cells of embryoid bodies: principal components, RNA velocities in them, and the time of each cell, 0 to 4."""

    pcs: np.ndarray
    velocity: np.ndarray
    time: np.ndarray


def read_bodies(file: Path) -> Bodies:
    """Read an npz of pcs, velocity and time."""
    with np.load(file) as stored:
        pcs, velocity = (np.asarray(stored[name], dtype=np.float64) for name in ("pcs", "velocity"))
        return Bodies(pcs, velocity, np.asarray(stored["time"]))
