"""Columns beside the points: numbers or names, some of them missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

# So many different whole numbers are still classes.
_MOST_CLASSES = 40
_LONGEST_NAME = 80
_MOST_COLUMNS = 24


@dataclass(frozen=True, eq=False)
class Column:
    """One value per point.

    Attributes:
        name: What it is called.
        values: The numbers, NaN where one is missing; of classes their index in ``names``.
        names: The classes, in their order, or the most frequent first where they are many; None for numbers.
    """

    name: str
    values: np.ndarray
    names: tuple[str, ...] | None = None

    def at(self, rows: np.ndarray) -> Column:
        """Select rows."""
        return replace(self, values=self.values[rows])

    def text(self, row: int) -> str:
        """Write the value of a row as a person would."""
        value = self.values[row]
        if np.isnan(value):
            return "missing"
        return f"{value:.4g}" if self.names is None else self.names[int(value)]


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
    values = _as_array(given)
    if values.shape != (n,):
        got = f"{len(values)}" if values.ndim == 1 else f"shape {values.shape}"
        raise ValueError(f"{argument} must hold one value for each of the {n} points of X; got {got}")
    numbers = _as_numbers(values)
    if numbers is None:
        return _classes(name, [None if _is_missing(value) else str(value) for value in values.tolist()])
    known = np.unique(numbers[np.isfinite(numbers)])
    if classes and len(known) <= _MOST_CLASSES and bool((known == known.round()).all()):
        return _classes(name, [f"{value:.0f}" if np.isfinite(value) else None for value in numbers.tolist()])
    return Column(name, np.where(np.isfinite(numbers), numbers, np.nan))


def as_columns(given: Any, n: int) -> tuple[Column, ...]:
    """Accept a mapping from names to columns, or a table of them."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) and not (hasattr(given, "keys") and hasattr(given, "__getitem__")):
        raise ValueError(
            f"columns must map names to one value per point, such as {{'age': ages}}; got {type(given).__name__}"
        )
    names = list(given.keys())
    if len(names) > _MOST_COLUMNS:
        raise ValueError(f"columns must be at most {_MOST_COLUMNS}, for the page to stay small; got {len(names)}")
    return tuple(as_column(given[name], n, name=str(name), argument=f"columns[{name!r}]") for name in names)


def _as_array(given: Any) -> np.ndarray:
    if isinstance(given, Tensor):
        return np.asarray(given.detach().cpu())
    if isinstance(given, (str, bytes)):
        return np.asarray(given)
    array = np.asarray(given)
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
