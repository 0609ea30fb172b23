"""Places on the map: two columns, principal axes, or coordinates of the caller's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

# The axes of long tables with many columns are found from some of the rows.
_MOST_ROWS = 2000
# Neighbors that a place, or a local linear map, is taken from.
_NEAREST, _FITTED = 8, 32
_RIDGE = 1e-3
# Dots on a line are stacked in so many places, up to this share of its length.
_PILES, _HIGHEST = 60, 0.4


@dataclass(frozen=True, eq=False)
class LinearPlane:
    """Points seen along two orthonormal axes.

    Attributes:
        center: What is at the origin.
        basis: The axes as columns, shape (D, 2).
    """

    center: np.ndarray
    basis: np.ndarray

    def places(self, points: np.ndarray) -> np.ndarray:
        """Return the places of points, shape (..., 2)."""
        return np.asarray((points - self.center) @ self.basis)

    def directions(self, points: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return what vectors (n, k, D) at points look like on the map, shape (n, k, 2)."""
        return np.asarray(vectors @ self.basis)


@dataclass(frozen=True, eq=False)
class GivenPlane:
    """Points at places that were given, and others among their neighbors.

    Attributes:
        points: The points that have a place, shape (n, D).
        given: Their places, shape (n, 2).
    """

    points: np.ndarray
    given: np.ndarray

    def places(self, points: np.ndarray) -> np.ndarray:
        """Return the mean place of the nearest points, weighted by nearness."""
        flat = points.reshape(-1, points.shape[-1])
        distance, near = self._nearest(flat, _NEAREST)
        weights = 1 / np.maximum(distance, 1e-9 * (1 + distance.mean()))
        found = (weights[..., None] * self.given[near]).sum(1) / weights.sum(1)[:, None]
        return np.asarray(found.reshape(*points.shape[:-1], 2))

    def directions(self, points: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Fit the map linearly to the nearest points, along the vectors."""
        _, near = self._nearest(points, _FITTED)
        away = np.einsum("njd,nkd->njk", self.points[near] - points[:, None], vectors)
        moved = self.given[near] - self.places(points)[:, None]
        gram = np.einsum("njk,njl->nkl", away, away)
        size = np.trace(gram, axis1=1, axis2=2)[:, None, None] + 1e-12
        slopes = np.linalg.solve(gram + _RIDGE * size * np.eye(gram.shape[1]), np.einsum("njk,njc->nkc", away, moved))
        return np.asarray(slopes)

    def _nearest(self, points: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        distances = torch.cdist(torch.as_tensor(points), torch.as_tensor(self.points))
        found = distances.topk(min(count, len(self.points)), largest=False)
        return found.values.numpy(), found.indices.numpy()


Plane = LinearPlane | GivenPlane


def make_plane(
    points: np.ndarray, embedding: np.ndarray | None, names: tuple[str, ...]
) -> tuple[Plane, tuple[str, str], str]:
    """Return a plane, what its axes are, and where it comes from."""
    if embedding is not None:
        note = "The map has the coordinates that were given. Arrows and paths are fitted to the nearest points."
        return GivenPlane(points, embedding), ("first coordinate", "second coordinate"), note
    dim = points.shape[1]
    if dim <= 2:
        plane = LinearPlane(np.zeros(dim), np.eye(dim, 2))
        alone = "The map shows the column of the data; dots are stacked where there are many, paths run below them."
        note = "The map shows the two columns of the data." if dim == 2 else alone
        return plane, (names[0], names[1] if dim == 2 else ""), note
    center, basis, shares = principal_axes(points)
    labels = tuple(f"principal axis {k + 1} ({share:.0%} of the variance)" for k, share in enumerate(shares))
    note = (
        f"The map shows the two principal axes of the points (PCA), which hold {shares.sum():.0%} of their variance; "
        "what lies along others is not seen. Give an embedding of your own for another map."
    )
    return LinearPlane(center, basis), (labels[0], labels[1]), note


def stacked(values: np.ndarray) -> np.ndarray:
    """Place numbers along a line, one above the other where there are many, shape (n, 2).

    Example:
        >>> stacked(np.array([0.0, 60.0, 0.1, 0.2]))[:, 1].round(2)
        array([1., 1., 2., 3.])
    """
    span = float(np.ptp(values)) or 1.0
    pile = ((values - values.min()) / span * _PILES).astype(int)
    height = np.array([np.count_nonzero(pile[: k + 1] == own) for k, own in enumerate(pile)])
    return np.stack([values, height * span * min(1 / _PILES, _HIGHEST / height.max())], axis=1)


def principal_axes(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean, the two leading principal axes as columns, and their shares of the variance.

    Example:
        >>> center, basis, shares = principal_axes(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [4.0, 0.0, 1.0]]))
        >>> center.round(2), basis[:, 0].round(2), shares.round(2)
        (array([2., 0., 1.]), array([1., 0., 0.]), array([1., 0.]))
    """
    center = points.mean(0)
    some = points if points.shape[1] <= _MOST_ROWS // 2 else points[:: max(1, len(points) // _MOST_ROWS)]
    centered = some - center
    total = max(float(np.square(centered).sum()), np.finfo(float).tiny)
    if centered.shape[1] <= len(centered):
        values, vectors = np.linalg.eigh(centered.T @ centered)
        basis = vectors[:, :-3:-1]
    else:
        values, sides = np.linalg.eigh(centered @ centered.T)
        basis = centered.T @ sides[:, :-3:-1]
        # A single row, or rows that are all the same, have no axes.
        basis, _ = np.linalg.qr(basis + 1e-12 * np.eye(*basis.shape))
    basis = basis[:, :2] if basis.shape[1] >= 2 else np.eye(points.shape[1], 2)
    signs = np.sign(basis[np.abs(basis).argmax(0), np.arange(basis.shape[1])])
    shares = np.append(values[::-1], [0.0, 0.0])[:2].clip(0) / total
    return center, basis * np.where(signs == 0, 1, signs), shares
