"""What the columns of a table look like before a geometry is made of them, and which ones can spoil it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import LARGE, ArgumentError, as_points

# Whole numbers with so many different values at most, each on average in so many rows, are categories.
_FEW_VALUES, _ROWS_PER_VALUE = 10, 5
# Where that many columns hold whole numbers, the data are counts or pixels, and none stands out.
_MOSTLY_WHOLE = 0.8
# One column has the say from this share of the variance on; units differ where the widest column is so many times as
# wide as the one in the middle.
_DOMINANT_SHARE, _UNLIKE_UNITS = 0.9, 100.0
SCALES = ("none", "standardize", "robust")
# Between its quartiles a normal variable of deviation 1 has this range.
_NORMAL_RANGE, _RELATIVE_ROUNDING = 1.349, 1e-12
_FEWEST_ROWS, _LOOKED_AT = 10, 100_000
_MOST_NAMES = 5
_NUMBERING = "seems to number the rows: it would say when a row was written, not what it is"


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
        >>> print(ColumnConcern(("id",), "seems to number the rows", "Leave it out"))
        column 'id' seems to number the rows. Leave it out
    """

    columns: tuple[str, ...]
    finding: str
    remedy: str

    @property
    def is_numbering(self) -> bool:
        """Whether they seem to number the rows, which only the order of the rows tells."""
        return self.finding == _NUMBERING

    def __str__(self) -> str:
        some = ", ".join(map(repr, self.columns[:_MOST_NAMES])) + (", …" if len(self.columns) > _MOST_NAMES else "")
        count = "column" if len(self.columns) == 1 else f"{len(self.columns)} columns"
        return f"{count} {some} {self.finding}. {self.remedy}"


def column_units(values: Float[Tensor, "n dim"], scale: str) -> Float[Tensor, " dim"] | None:
    """Return what to divide each column by, in float64: its deviation, or its interquartile range as one.

    A column that does not vary is taken as it is, and one of which half is the same value by its deviation.

    Example:
        >>> import torch
        >>> values = torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [100.0, 5.0]])
        >>> column_units(values, "standardize").round(), column_units(values, "robust").round()
        (tensor([50.,  1.], dtype=torch.float64), tensor([19.,  1.], dtype=torch.float64))
    """
    if scale not in SCALES:
        raise ArgumentError("scale", f"be one of {', '.join(SCALES)}", got=repr(scale))
    if scale == "none":
        return None
    deviations, largest = _sizes(values)
    units = deviations
    if scale == "robust":
        some = values[:: -(-len(values) // _LOOKED_AT)].double().cpu().numpy()
        low, high = np.quantile(some, [0.25, 0.75], axis=0)
        ranges = torch.from_numpy((high - low) / _NORMAL_RANGE).to(largest)
        units = torch.where(ranges > _RELATIVE_ROUNDING * largest, ranges, deviations)
    return torch.where(units > _RELATIVE_ROUNDING * largest, units, 1.0)


def _sizes(values: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, " dim"], Float[Tensor, " dim"]]:
    """Return the deviation of each column and its largest size, in float64; of many rows some are read at a time."""
    n, blocks = len(values), torch.split(values, max(1, LARGE // values.shape[1]))
    largest = torch.stack([part.abs().amax(0) for part in blocks]).amax(0).double()
    if len(blocks) == 1:
        return values.double().std(0), largest
    mean = torch.stack([part.sum(0, dtype=torch.float64) for part in blocks]).sum(0) / n
    squares = torch.stack([(part - mean).square().sum(0) for part in blocks]).sum(0)
    return (squares / (n - 1)).sqrt(), largest


def column_concerns(
    values: Any, names: Sequence[str] | None = None, *, units_matter: bool = True
) -> tuple[ColumnConcern, ...]:
    """Find columns that can spoil a geometry, in which all coordinates are lengths in the same units.

    A column that numbers the rows; whole numbers with few values, where other columns have more; one column with more
    than nine tenths of the variance; units that differ by orders of magnitude. The first 100,000 rows are looked at.

    Args:
        values: The coordinates, shape (n, D).
        names: What they are called; their numbers where that is unknown.
        units_matter: Whether units and variances are looked at: not where columns are scaled.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> table = np.column_stack([np.arange(100), rng.normal(size=100), rng.integers(0, 3, 100)])
        >>> for concern in column_concerns(table, ("id", "height", "kind")):
        ...     print(concern.finding.partition(":")[0], concern.columns)
        seems to number the rows ('id',)
        holds 3 whole numbers only ('kind',)
        has more than 99% of the variance ('id',)
    """
    some = values[:_LOOKED_AT] if len(getattr(values, "shape", ())) == 2 else values
    points = as_points(some, name="values").tensor.detach().cpu()[:_LOOKED_AT]
    n, dim = points.shape
    called = np.array([str(i) for i in range(dim)] if names is None else list(names), dtype=object)
    if len(called) != dim:
        raise ArgumentError("names", f"be as many as the columns, {dim}", got=len(called))
    # In units of the largest number, whose square may overflow; by column: a copy of all may not fit.
    unit = max(float(torch.linalg.vector_norm(points, math.inf)), np.finfo(np.float64).tiny)
    seen = [_Column.of(column.double().numpy(), unit) for column in points.mT]
    looks = [_numbering(seen, called), _categories(seen, called, n), *([_units(seen, called)] if units_matter else [])]
    return tuple(concern for look in looks for concern in look)


class _Column(NamedTuple):
    """What is seen of a column: its deviation, in some unit; and of whole numbers how many there are, and an order."""

    deviation: float
    is_whole: bool
    n_values: int
    is_numbering: bool

    @classmethod
    def of(cls, values: Float[np.ndarray, " n"], unit: float) -> _Column:
        """Look at a column; whole numbers that rise, or fall, or go from one to another in any order, number rows."""
        deviation = float((values / unit).std())
        if not (values == np.round(values)).all():
            return cls(deviation, False, 0, False)
        steps, ordered = np.diff(values), np.diff(np.sort(values))
        in_order = (steps > 0).all() or (steps < 0).all() or (ordered == 1).all()
        return cls(deviation, True, 1 + int(np.count_nonzero(ordered)), bool(in_order and len(values) >= _FEWEST_ROWS))


def _numbering(seen: Sequence[_Column], called: np.ndarray) -> Iterator[ColumnConcern]:
    for name in called[[column.is_numbering for column in seen]]:
        yield ColumnConcern((name,), _NUMBERING, "Leave it out")


def _categories(seen: Sequence[_Column], called: np.ndarray, n_rows: int) -> Iterator[ColumnConcern]:
    if np.mean([column.is_whole for column in seen]) >= _MOSTLY_WHOLE:
        return
    counts = np.array([column.n_values for column in seen])
    few = (counts > 1) & (counts <= _FEW_VALUES) & (counts * _ROWS_PER_VALUE <= n_rows)
    if few.any():
        least, most = counts[few].min(), counts[few].max()
        count = least if least == most else f"{least} to {most}"
        finding = f"hold{'s' if few.sum() == 1 else ''} {count} whole numbers only: a category, it seems, not a length"
        yield ColumnConcern(tuple(called[few]), finding, "Leave it out, or fit each category by itself")


def _units(seen: Sequence[_Column], called: np.ndarray) -> Iterator[ColumnConcern]:
    """One column that has the say, or columns in other units; the first is said where both are true."""
    deviations = np.array([column.deviation for column in seen])
    varied = np.sort(deviations[deviations > 0])
    if len(varied) < 2:
        return
    share, ratio = varied[-1] ** 2 / np.square(varied).sum(), varied[-1] / varied[(len(varied) - 1) // 2]
    remedy = "Distances hardly see the others. If units are arbitrary, fit with scale='standardize'"
    if share > _DOMINANT_SHARE:
        most = f"{share:.0%}" if share < 0.995 else "more than 99%"
        yield ColumnConcern((called[deviations.argmax()],), f"has {most} of the variance", remedy)
    elif ratio >= _UNLIKE_UNITS:
        wide = deviations >= _UNLIKE_UNITS * varied[-1] / ratio
        finding = f"var{'ies' if wide.sum() == 1 else 'y'} up to {ratio:,.0f} times as much as the one in the middle"
        yield ColumnConcern(tuple(called[wide]), finding, remedy)
