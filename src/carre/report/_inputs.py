"""What a report is made of, checked before any work is done: points, columns beside them, pairs, shapes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from carre.boundary import ArgumentError, as_array, as_points, is_integer
from carre.data.image_dataset import is_dataset
from carre.files import is_path
from carre.geometry import Geometry

_MOST_PAIRS, _MOST_COLUMNS = 12, 24
# So many different whole numbers are still classes.
_MOST_CLASSES, _LONGEST_NAME = 40, 80
# Of so few rows every value may differ by chance.
_FEW_ROWS = 5


@dataclass(frozen=True, eq=False)
class Column:
    """One value per point.

    Attributes:
        name: What it is called.
        values: The numbers, NaN where one is missing; of classes their index in ``names``.
        names: The classes, in their order, or the most frequent first where they are many; None for numbers.
        is_id: Whether it names or numbers the rows, instead of saying something about them.
    """

    name: str
    values: np.ndarray
    names: tuple[str, ...] | None = None
    is_id: bool = False

    def at(self, rows: np.ndarray) -> Column:
        """Select rows."""
        return replace(self, values=self.values[rows])

    def text(self, row: int) -> str:
        """Write the value of a row as a person would."""
        value = self.values[row]
        if np.isnan(value):
            return "missing"
        return f"{value:.4g}" if self.names is None else self.names[int(value)]


@dataclass(frozen=True, eq=False)
class ReportInput:
    """The data of a report.

    Attributes:
        points: All points, flat, shape (n, D), in the units of the geometry.
        units: What their columns were divided by; None where they are as they were.
        digest: The SHA-256 of the points as they were given, row by row, in their floating-point type.
        labels: One class or number per point, or None.
        columns: Further columns.
        pairs: Rows to be joined by paths, shape (k, 2); None chooses some.
        image_shape: (C, H, W) where points are pictures.
        embedding: Coordinates of the caller's own for the map, shape (n, 2), or None.
        feature_names: The names of the columns of X.
        title: The title of the page.
    """

    points: Tensor
    units: Tensor | None
    digest: str
    labels: Column | None
    columns: tuple[Column, ...]
    pairs: np.ndarray | None
    image_shape: tuple[int, int, int] | None
    embedding: np.ndarray | None
    feature_names: tuple[str, ...]
    title: str

    def name_of(self, row: Any) -> str:
        """Say which row it is: its number, and its name where a column beside the data has one."""
        known = next((column for column in self.columns if column.is_id), None)
        return f"{row}" if known is None else f"{row} ({known.name} {known.text(row)})"


def as_input(
    geometry: Geometry,
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
    given = replace(geometry, units=None).accept(X, name="X")
    points = given.in_units(geometry.units).tensor.detach().cpu()
    n, dim = points.shape
    own, class_names = getattr(X, "labels", None), getattr(X, "class_names", ())
    if labels is None and is_dataset(X) and own is not None:
        labels = [class_names[label] for label in own] if class_names else own
    beside, name = _as_columns(columns), getattr(labels, "name", None) or "label"
    if isinstance(labels, str):
        if labels not in beside:
            must = "hold one class or number per point, or be the name of one of columns"
            raise ArgumentError("labels", must, got=repr(labels))
        labels, name = beside.pop(labels), labels
    return ReportInput(
        points=points,
        units=geometry.units,
        digest=hashlib.sha256(np.ascontiguousarray(given.tensor.detach().cpu().numpy()).tobytes()).hexdigest(),
        labels=None if labels is None else as_column(labels, n, name=str(name), argument="labels", classes=True),
        columns=tuple(_beside(values, n, name) for name, values in beside.items()),
        pairs=_as_pairs(pairs, n),
        image_shape=_as_image_shape(image_shape, geometry.sample_shape, dim),
        embedding=_as_embedding(embedding, n),
        feature_names=_feature_names(geometry, X, dim),
        title=_title(X, title, n),
    )


def as_destination(path: Any) -> Path:
    """Check where the page should go."""
    if not is_path(path):
        raise ArgumentError("path", "be the name of a file", got=repr(path))
    destination = Path(path)
    if destination.is_dir():
        raise IsADirectoryError(f"path must be a file, such as 'report.html'; got the folder {str(path)!r}")
    if not destination.parent.is_dir():
        raise FileNotFoundError(f"path must lie in an existing folder; got {str(path)!r}")
    return destination


def as_positive(value: Any, *, name: str) -> float:
    """Check a positive number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ArgumentError(name, "be a positive number", got=repr(value))
    return float(value)


def as_column(given: Any, n: int, *, name: str, argument: str, classes: bool = False) -> Column:
    """Accept numbers or text, one per point.

    Args:
        given: An array, a tensor, a column of a table or a list. None and NaN are missing.
        n: How many there must be.
        name: What to call the column on the page.
        argument: What errors call it.
        classes: Whether a few whole numbers are classes, as for labels.

    Example:
        >>> as_column(["a", "b", None, "b"], 4, name="kind", argument="labels").values
        array([ 0.,  1., nan,  1.])
    """
    values = _as_array(given, argument)
    if values.shape != (n,):
        got = f"{len(values)}" if values.ndim == 1 else f"shape {values.shape}"
        raise ArgumentError(argument, f"hold one value for each of the {n} points of X", got=got)
    numbers = _as_numbers(values)
    if numbers is None:
        return _classes(name, [None if _is_missing(value) else str(value) for value in values.tolist()])
    known = np.unique(numbers[np.isfinite(numbers)])
    if classes and len(known) <= _MOST_CLASSES and bool((known == known.round()).all()):
        return _classes(name, [f"{value:.0f}" if np.isfinite(value) else None for value in numbers.tolist()])
    return Column(name, np.where(np.isfinite(numbers), numbers, np.nan))


def _as_columns(given: Any) -> dict[Any, Any]:
    """Accept a mapping from names to columns, or a table of them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) and not (hasattr(given, "keys") and hasattr(given, "__getitem__")):
        must = "map names to one value per point, such as {'age': ages}"
        raise ArgumentError("columns", must, got=type(given).__name__)
    names = list(given.keys())
    if len(names) > _MOST_COLUMNS:
        raise ArgumentError("columns", f"be at most {_MOST_COLUMNS}, for the page to stay small", got=len(names))
    return {name: given[name] for name in names}


def _beside(given: Any, n: int, name: Any) -> Column:
    """Accept a column beside the data, and see whether it only tells the rows apart."""
    column = as_column(given, n, name=str(name), argument=f"columns[{name!r}]")
    values, n = column.values, len(column.values)
    # What is missing names no row; numbers of rows leave few gaps, as some rows may have been left out.
    is_different = n > _FEW_ROWS and bool(np.isfinite(values).all()) and len(np.unique(values)) == n
    is_counted = is_different and bool((values == values.round()).all() and np.ptp(values) < 2 * n)
    return replace(column, is_id=is_counted if column.names is None else is_different)


def _as_array(given: Any, argument: str) -> np.ndarray:
    if isinstance(given, Tensor):
        return as_array(given, argument)
    array = np.asanyarray(given)
    if np.ma.is_masked(array):
        shown = np.array(array, dtype=object)
        shown[np.ma.getmaskarray(array)] = None
        return shown
    # NumPy would turn None and numbers beside text into text.
    return np.asarray(given, dtype=object) if array.dtype.kind in "US" else array


def _as_numbers(values: np.ndarray) -> np.ndarray | None:
    """Return numbers as they are; None for text, and for anything else that is no number."""
    if values.dtype.kind in "iuf":
        return values.astype(float)
    if values.dtype.kind != "O":
        return None
    if any(isinstance(value, (str, bytes, bool)) for value in values.tolist()):
        return None
    try:
        return np.array([np.nan if _is_missing(value) else float(value) for value in values.tolist()])
    except (TypeError, ValueError):
        return None


def _is_missing(value: Any) -> bool:
    # NaN, NaT and what tables call missing differ from themselves, or cannot say.
    return value is None or str(value) in ("nan", "NaT", "<NA>")


def _classes(name: str, values: list[str | None]) -> Column:
    shown = [None if value is None else value[:_LONGEST_NAME] for value in values]
    known, counts = np.unique([value for value in shown if value is not None], return_counts=True)
    # Of many classes only the first get a color of their own.
    order = np.argsort(-counts, kind="stable") if len(known) > _MOST_CLASSES else _in_order(known)
    names = tuple(str(text) for text in known[order])
    places = {text: float(place) for place, text in enumerate(names)}
    return Column(name, np.array([np.nan if text is None else places[text] for text in shown]), names)


def _in_order(names: np.ndarray) -> np.ndarray:
    """Sort numbers by their size, and everything else as text."""
    try:
        return np.argsort([float(name) for name in names], kind="stable")
    except ValueError:
        return np.arange(len(names))


def _as_pairs(given: Any, n: int) -> np.ndarray | None:
    if given is None:
        return None
    if (is_integer(given) and given == 0) or (not is_integer(given) and np.size(given) == 0):
        return np.zeros((0, 2), dtype=int)
    must = "be a list of (i, j), two rows of X each, or 0 for none"
    pairs = as_array(given, "pairs")
    if pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ArgumentError("pairs", must, got=repr(given))
    if len(pairs) > _MOST_PAIRS:
        raise ArgumentError("pairs", f"be at most {_MOST_PAIRS}", got=len(pairs))
    unknown = pairs[(pairs < 0) | (pairs >= n)]
    if len(unknown):
        raise ArgumentError("pairs", must, got=f"row {int(unknown[0])}, but X has the rows 0 to {n - 1}")
    same = pairs[pairs[:, 0] == pairs[:, 1]]
    if len(same):
        raise ArgumentError("pairs", "join two different rows", got=same[0].tolist())
    return pairs.astype(int)


def _as_image_shape(
    given: Sequence[int] | None, own: tuple[int, int, int] | None, dim: int
) -> tuple[int, int, int] | None:
    if given is None:
        return own
    must = "be (height, width) or (channels, height, width)"
    if np.ndim(given) != 1 or len(given) not in (2, 3) or not all(is_integer(size) and size > 0 for size in given):
        raise ArgumentError("image_shape", must, got=repr(given))
    channels, height, width = (1, *map(int, given)) if len(given) == 2 else tuple(map(int, given))
    if channels * height * width != dim:
        must += f" with {dim} values in all, as X has {dim} columns"
        raise ArgumentError("image_shape", must, got=tuple(given))
    if own is not None and own != (channels, height, width):
        raise ArgumentError("image_shape", f"be that of the fit, {own}, or None", got=tuple(given))
    return channels, height, width


def _as_embedding(given: Any, n: int) -> np.ndarray | None:
    if given is None:
        return None
    given = as_array(given, "embedding")
    places: np.ndarray = as_points(given, name="embedding").tensor.numpy().astype(float)
    if places.shape != (n, 2):
        raise ArgumentError("embedding", f"have shape ({n}, 2), a place on the map per point", got=np.shape(given))
    return places


def _feature_names(geometry: Geometry, X: Any, dim: int) -> tuple[str, ...]:
    names = geometry.feature_names or getattr(X, "columns", None)
    if names is None or callable(names) or len(names) != dim:
        return tuple(f"x{number}" for number in range(dim))
    return tuple(str(name) for name in names)


def _title(X: Any, title: str | None, n: int) -> str:
    if title is not None:
        if not isinstance(title, str) or not title.strip():
            raise ArgumentError("title", "be text", got=repr(title))
        return title
    name = getattr(X, "name", None) if is_dataset(X) else None
    return f"The geometry of {name}" if name else f"The geometry of {n:,} points"
