"""Everything that a report says, as values: measured once, then written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from carre.report._inputs import Column
from carre.report._survey import Survey
from carre.toolkit import DimensionEstimate


@dataclass(frozen=True, eq=False)
class ScaleTable:
    """What the geometry looks like at every scale of the slider.

    Attributes:
        bandwidth: The scales σ, ascending.
        chosen: Index of the scale that the report is about.
        dimension: The local dimension, one row per scale and one column per point shown; −1 where not measured.
        trace: tr G likewise; NaN where not measured.
        mean: Mean eigenvalues, one row per scale.
        low: Their lower quartiles.
        high: Their upper quartiles.
        n_measured: At how many points scales other than the chosen one were measured.
        notes: A sentence on each scale that should not be believed, empty on others.
    """

    bandwidth: np.ndarray
    chosen: int
    dimension: np.ndarray
    trace: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_measured: int
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """What each scale is called."""
        return [f"σ = {sigma:.3g}" for sigma in self.bandwidth]

    @property
    def mean_trace(self) -> np.ndarray:
        """The mean trace at each scale."""
        return np.asarray(np.nanmean(self.trace, axis=1))

    @property
    def mean_dimension(self) -> np.ndarray:
        """The mean local dimension at each scale."""
        return np.array([row[row >= 0].mean() for row in self.dimension])

    @cached_property
    def shares(self) -> list[dict[int, float]]:
        """Which share of the measured points has which dimension, at each scale."""
        counted = (np.unique(row[row >= 0], return_counts=True) for row in self.dimension)
        return [dict(zip(kinds.tolist(), (counts / counts.sum()).tolist(), strict=True)) for kinds, counts in counted]


@dataclass(frozen=True, eq=False)
class PointMap:
    """Where points are drawn.

    Attributes:
        places: Coordinates of the points shown, shape (n, 2).
        axes: What the two coordinates are.
        note: Where they come from, in a sentence.
        arrow_points: At which of the points shown the leading directions are drawn.
        arrows: These directions on the map, times √λ, shape (scales, points, directions, 2).
    """

    places: np.ndarray
    axes: tuple[str, str]
    note: str
    arrow_points: np.ndarray
    arrows: np.ndarray


@dataclass(frozen=True, eq=False)
class Directions:
    """The leading directions at typical points.

    Attributes:
        points: Which of the points shown.
        eigenvalues: Shape (m, k).
        vectors: Unit vectors, shape (m, k, D).
        freedom: The mean diagonal of G over some points, one number per column of X: 1 where the data move freely
            along a column, 0 where they do not.
        n_averaged: Over how many.
    """

    points: np.ndarray
    eigenvalues: np.ndarray
    vectors: np.ndarray
    freedom: np.ndarray
    n_averaged: int


@dataclass(frozen=True, eq=False)
class PathFound:
    """A path between two rows.

    Attributes:
        rows: Start and end, as rows of X.
        length: Along the path.
        straight: The distance of its ends.
        is_connected: Whether it stays on the data.
        strayed: Its largest distance from the data in units of σ.
        reason: What there is to say, or nothing.
        places: Its nodes on the map.
        nodes: Some of its nodes, evenly spaced, shape (k, D).
    """

    rows: tuple[int, int]
    length: float
    straight: float
    is_connected: bool
    strayed: float
    reason: str
    places: np.ndarray
    nodes: np.ndarray


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths between rows, and how they were found; ``note`` says why where there are none."""

    found: tuple[PathFound, ...]
    note: str


@dataclass(frozen=True, eq=False)
class Checked:
    """Whether the geometry is valid, at some of the points shown.

    Attributes:
        points: Which of the points shown.
        is_near: Whether they are as near to the data as noise leaves them.
        is_clear: Whether their eigenvalues fall into tangent and normal ones.
        agrees: Whether a kernel agrees, or cannot tell.
        could_tell: Whether a kernel has neighbors enough to tell; nowhere where none was asked.
        reasons: A sentence on each that is not valid.
        note: How it was checked, or why not.
    """

    points: np.ndarray
    is_near: np.ndarray
    is_clear: np.ndarray
    agrees: np.ndarray
    could_tell: np.ndarray
    reasons: tuple[str, ...]
    note: str

    @property
    def is_valid(self) -> np.ndarray:
        """Whether nothing speaks against a point."""
        return np.asarray(self.is_near & self.is_clear & self.agrees)

    @property
    def is_rough(self) -> bool:
        """Whether most of the points have no clear gap between their eigenvalues."""
        return len(self.points) > 0 and bool(self.is_clear.mean() < 0.5)

    @property
    def counts(self) -> dict[str, int]:
        """How many points are valid, against how many something speaks, and at how many a kernel had a say."""
        kinds = {
            "valid": self.is_valid,
            "far_from_data": ~self.is_near,
            "no_clear_spectrum": ~self.is_clear,
            "kernel_disagrees": ~self.agrees,
            "kernel_could_tell": self.could_tell,
        }
        return {name: int(mask.sum()) for name, mask in kinds.items()}


@dataclass(frozen=True, eq=False)
class Curvature:
    """How the data bend at some of the points shown; ``note`` says at how many, or why at none.

    Attributes:
        points: Which of the points shown.
        bending: |H|, the length of the mean curvature vector: 1/radius for a curve.
        scalar: The scalar curvature; None for curves, which have none.
        note: A sentence.
    """

    points: np.ndarray
    bending: np.ndarray
    scalar: np.ndarray | None
    note: str


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Everything that a report says.

    Attributes:
        survey: What was asked: the geometry, the data, and which rows are shown.
        estimate: How many dimensions, and how sure.
        warnings: What speaks against the fit, in sentences.
        scales: The geometry over scales.
        map: Where points are drawn.
        columns: What can be read off at each point shown; the labels first.
        directions: The leading directions at typical points.
        paths: Paths.
        checked: Where the geometry is valid.
        curvature: How the data bend.
        origin: How all this was made, in names and values.
    """

    survey: Survey
    estimate: DimensionEstimate
    warnings: tuple[str, ...]
    scales: ScaleTable
    map: PointMap
    columns: tuple[Column, ...]
    directions: Directions
    paths: Paths
    checked: Checked
    curvature: Curvature
    origin: dict[str, object]
