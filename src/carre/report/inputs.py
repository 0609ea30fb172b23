"""What a report is made of, checked before any work is done."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from carre.boundary import as_points, is_integer
from carre.report.columns import Column, as_column, as_columns

_MOST_PAIRS = 12


@dataclass(frozen=True, eq=False)
class ReportInput:
    """The data of a report.

    Attributes:
        points: All points, flat, shape (n, D).
        labels: One class or number per point, or None.
        columns: Further columns.
        pairs: Rows to be joined by paths, shape (k, 2); None chooses some.
        image_shape: (C, H, W) where points are pictures.
        embedding: Coordinates of the caller's own for the map, shape (n, 2), or None.
        feature_names: The names of the columns of X.
        title: The title of the page.
    """

    points: Tensor
    labels: Column | None
    columns: tuple[Column, ...]
    pairs: np.ndarray | None
    image_shape: tuple[int, int, int] | None
    embedding: np.ndarray | None
    feature_names: tuple[str, ...]
    title: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the points, row by row, in their floating-point type."""
        return hashlib.sha256(np.ascontiguousarray(self.points.numpy()).tobytes()).hexdigest()


def as_input(
    geometry: Any,
    X: Any,
    *,
    labels: Any = None,
    columns: Any = None,
    pairs: Any = None,
    image_shape: Sequence[int] | None = None,
    embedding: Any = None,
    title: str | None = None,
) -> ReportInput:
    """Check everything that is given beside a fitted geometry."""
    # The geometry's own checks: column names, shapes, normalization.
    points = geometry._validated(X).tensor.detach().cpu()
    n, dim = points.shape
    own, class_names = getattr(X, "labels", None), getattr(X, "class_names", ())
    if labels is None and hasattr(X, "normalization") and own is not None:
        labels = [class_names[label] for label in own] if class_names else own
    coordinates = None
    if embedding is not None:
        given = embedding.detach().cpu() if isinstance(embedding, Tensor) else embedding
        coordinates = as_points(given, name="embedding").tensor.numpy().astype(float)
        if coordinates.shape != (n, 2):
            raise ValueError(f"embedding must have shape ({n}, 2), a place on the map per point; got {np.shape(given)}")
    return ReportInput(
        points=points,
        labels=None if labels is None else as_column(labels, n, name="label", argument="labels", classes=True),
        columns=as_columns(columns, n),
        pairs=_as_pairs(pairs, n),
        image_shape=_as_image_shape(image_shape, geometry.sample_shape_, dim),
        embedding=coordinates,
        feature_names=_feature_names(geometry, X, dim),
        title=_title(X, title, n),
    )


def as_destination(path: Any) -> Path:
    """Check where the page should go."""
    try:
        destination = Path(path)
    except TypeError as error:
        raise ValueError(f"path must be the name of a file; got {path!r}") from error
    if destination.is_dir():
        raise IsADirectoryError(f"path must be a file, such as 'report.html'; got the folder {str(path)!r}")
    if not destination.parent.is_dir():
        raise FileNotFoundError(f"path must lie in an existing folder; got {str(path)!r}")
    return destination


def as_positive(value: Any, *, name: str) -> float:
    """Check a positive number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a positive number; got {value!r}")
    return float(value)


def as_count(value: Any, *, name: str) -> int:
    """Check a positive whole number."""
    if not is_integer(value) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}")
    return int(value)


def _as_pairs(given: Any, n: int) -> np.ndarray | None:
    if given is None:
        return None
    if (is_integer(given) and given == 0) or (not is_integer(given) and np.size(given) == 0):
        return np.zeros((0, 2), dtype=int)
    must = "pairs must be a list of (i, j), two rows of X each, or 0 for none"
    pairs = np.asarray(given)
    if pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"{must}; got {given!r}")
    if len(pairs) > _MOST_PAIRS:
        raise ValueError(f"pairs must be at most {_MOST_PAIRS}; got {len(pairs)}")
    unknown = pairs[(pairs < 0) | (pairs >= n)]
    if len(unknown):
        raise ValueError(f"{must}; got row {int(unknown[0])}, but X has the rows 0 to {n - 1}")
    if bool((pairs[:, 0] == pairs[:, 1]).any()):
        raise ValueError(f"pairs must join two different rows; got {pairs[pairs[:, 0] == pairs[:, 1]][0].tolist()}")
    return pairs.astype(int)


def _as_image_shape(
    given: Sequence[int] | None, own: tuple[int, int, int] | None, dim: int
) -> tuple[int, int, int] | None:
    if given is None:
        return own
    must = "image_shape must be (height, width) or (channels, height, width)"
    if np.ndim(given) != 1 or len(given) not in (2, 3) or not all(is_integer(size) and size > 0 for size in given):
        raise ValueError(f"{must}; got {given!r}")
    channels, height, width = (1, *map(int, given)) if len(given) == 2 else tuple(map(int, given))
    if channels * height * width != dim:
        raise ValueError(f"{must} with {dim} values in all, as X has {dim} columns; got {tuple(given)}")
    if own is not None and own != (channels, height, width):
        raise ValueError(f"image_shape must be that of the fit, {own}, or None; got {tuple(given)}")
    return channels, height, width


def _feature_names(geometry: Any, X: Any, dim: int) -> tuple[str, ...]:
    names = getattr(X, "columns", getattr(geometry, "feature_names_in_", None))
    if names is not None and not callable(names) and len(names) == dim:
        return tuple(str(name) for name in names)
    return tuple(f"x{number}" for number in range(dim))


def _title(X: Any, title: str | None, n: int) -> str:
    if title is not None:
        if not isinstance(title, str) or not title.strip():
            raise ValueError(f"title must be text; got {title!r}")
        return title
    name = getattr(X, "name", None) if hasattr(X, "normalization") else None
    return f"The geometry of {name}" if isinstance(name, str) and name else f"The geometry of {n:,} points"
