"""What the columns of a table look like before a geometry is made of them, and which ones can spoil it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

# Whole numbers with so many different values at most, each on average in so many rows, are categories.
_FEW_VALUES, _ROWS_PER_VALUE = 10, 5
# Where that many columns hold whole numbers, the data are counts or pixels, and none stands out.
_MOSTLY_WHOLE = 0.8
# One column has the say from this share of the variance on; units differ where the widest column is so many times as
# wide as the one in the middle.
_DOMINANT_SHARE, _UNLIKE_UNITS = 0.9, 100.0
_LOOKED_AT = 100_000
_MOST_NAMES = 5


class ColumnWarning(UserWarning):
    """A column that can spoil a geometry: one that numbers the rows, a category, or one in units of its own.

    Example:
        >>> issubclass(ColumnWarning, UserWarning)
        True
    """


@dataclass(frozen=True)
class ColumnConcern:
    """What is odd about some columns.

    Attributes:
        columns: Their names or numbers.
        finding: What was seen, in words.
        remedy: What to do.

    Example:
        >>> print(ColumnConcern(("id",), "numbers the rows", "Leave it out"))
        column 'id' numbers the rows. Leave it out
    """

    columns: tuple[str, ...]
    finding: str
    remedy: str

    def __str__(self) -> str:
        some = ", ".join(map(repr, self.columns[:_MOST_NAMES])) + (", …" if len(self.columns) > _MOST_NAMES else "")
        count = "column" if len(self.columns) == 1 else f"{len(self.columns)} columns"
        return f"{count} {some} {self.finding}. {self.remedy}"


def column_concerns(
    values: Float[np.ndarray, "n dim"], names: Sequence[str] | None = None
) -> tuple[ColumnConcern, ...]:
    """Find columns that can spoil a geometry, in which all coordinates are lengths in the same units.

    A column that numbers the rows; whole numbers with few values, where other columns have more; one column with more
    than nine tenths of the variance; units that differ by orders of magnitude. The first 100,000 rows are looked at.

    Args:
        values: The coordinates, finite.
        names: What they are called; their numbers where that is unknown.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> table = np.column_stack([np.arange(100), rng.normal(size=100), rng.integers(0, 3, 100)])
        >>> for concern in column_concerns(table, ("id", "height", "kind")):
        ...     print(concern.finding.partition(":")[0], concern.columns)
        numbers the rows ('id',)
        holds 3 whole numbers only ('kind',)
        has 100% of the variance ('id',)
    """
    some = np.asarray(values[:_LOOKED_AT], dtype=np.float64)
    called = [str(i) for i in range(some.shape[1])] if names is None else list(names)
    found: list[ColumnConcern] = []
    for look in (_numbering, _categories, _units):
        found.extend(look(some, lambda which: tuple(np.array(called, dtype=object)[which].tolist())))
    return tuple(found)


Called = Callable[[Bool[np.ndarray, " dim"]], tuple[str, ...]]


def _is_whole(values: Float[np.ndarray, "n dim"]) -> Bool[np.ndarray, " dim"]:
    whole: np.ndarray = (values == np.round(values)).all(0)
    return whole


def _numbering(values: Float[np.ndarray, "n dim"], called: Called) -> Iterator[ColumnConcern]:
    """Whole numbers that rise, or fall, from each row to the next; or all from one to another, in any order."""
    steps = np.diff(values, axis=0)
    in_order = (steps > 0).all(0) | (steps < 0).all(0)
    shuffled = np.diff(np.sort(values, axis=0), axis=0).max(0, initial=0) == 1
    shuffled &= np.ptp(values, axis=0) == len(values) - 1
    numbers = _is_whole(values) & (in_order | shuffled) & (len(values) > 2)
    for name in called(numbers):
        yield ColumnConcern((name,), "numbers the rows: it says when a row was written, not what it is", "Leave it out")


def _categories(values: Float[np.ndarray, "n dim"], called: Called) -> Iterator[ColumnConcern]:
    whole = _is_whole(values)
    if whole.mean() >= _MOSTLY_WHOLE:
        return
    counts = np.array(
        [len(np.unique(column)) if is_whole else 0 for column, is_whole in zip(values.T, whole, strict=True)]
    )
    few = (counts > 1) & (counts <= _FEW_VALUES) & (counts * _ROWS_PER_VALUE <= len(values))
    names = called(few)
    if names:
        least, most = counts[few].min(), counts[few].max()
        count = least if least == most else f"{least} to {most}"
        finding = f"hold{'s' if len(names) == 1 else ''} {count} whole numbers only"
        yield ColumnConcern(
            names, f"{finding}: a category, it seems, not a length", "Leave it out, or fit each category by itself"
        )


def _units(values: Float[np.ndarray, "n dim"], called: Called) -> Iterator[ColumnConcern]:
    """One column that has the say, or columns in other units; the first is said where both are true."""
    deviations = values.std(0)
    if (deviations > 0).sum() < 2:
        return
    widest = deviations == deviations.max()
    share = float(deviations.max() ** 2 / np.square(deviations).sum())
    varied = np.sort(deviations[deviations > 0])
    typical = float(varied[(len(varied) - 1) // 2])
    remedy = "Distances hardly see the others. If units are arbitrary, divide each column by its deviation"
    if share > _DOMINANT_SHARE:
        yield ColumnConcern(called(widest)[:1], f"has {share:.0%} of the variance", remedy)
    elif varied[-1] >= _UNLIKE_UNITS * typical:
        wide = deviations >= _UNLIKE_UNITS * typical
        finding = (
            f"var{'ies' if wide.sum() == 1 else 'y'} {varied[-1] / typical:,.0f} times as much as the one in the middle"
        )
        yield ColumnConcern(called(wide), finding, remedy)
