"""Samples that stay where they are, in memory or in a mapped file, and are read some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import LARGE

# Of those that are too many to copy.
_ROWS_AT_ONCE, _NUMBERS_AT_ONCE = 2**18, 2**20


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table in some order, made ready when they are asked for: of all of them no copy is held.

    In training it takes the place of a tensor, whose shape, dtype, device and indices it has.

    Attributes:
        table: All rows, which stay where they are.
        order: Which of them, in which order.
        ready: From some rows to what they are used as, one by one.

    Example:
        >>> rows = Rows(torch.arange(6.0).reshape(3, 2), torch.tensor([2, 0])).then(lambda part: 10 * part)
        >>> rows.shape, rows[:1], rows[torch.tensor([1, 1])]
        ((2, 2), tensor([[40., 50.]]), tensor([[ 0., 10.],
                [ 0., 10.]]))
    """

    table: Float[Tensor, "all ambient"]
    order: Int[Tensor, " n"]
    ready: Callable[[Tensor], Tensor] = lambda part: part

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, which: slice | Tensor) -> Float[Tensor, "m dim"]:
        return self.ready(self.table[self.order[which]])

    @cached_property
    def _first(self) -> Tensor:
        return self[:1]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of columns, when they are ready."""
        return len(self), self._first.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of rows that are ready."""
        return self._first.dtype

    @property
    def device(self) -> torch.device:
        """Of rows that are ready."""
        return self._first.device

    def then(self, function: Callable[[Tensor], Tensor]) -> Rows:
        """Do something more to rows that are ready."""
        before = self.ready
        return replace(self, ready=lambda part: function(before(part)))

    def sorted(self) -> Rows:
        """Return the same rows in the order of the table, in which a file is read best."""
        return replace(self, order=self.order.sort().values)

    def whole(self) -> Float[Tensor, "n dim"]:
        """Hold all rows after all, with no more than one copy of them at any time."""
        found, start = self._first.new_empty(self.shape), 0
        for part in in_blocks(self):
            found[start : (start := start + len(part))] = part
        return found


Samples: TypeAlias = Float[Tensor, "_ _"] | Rows


def row_hashes(rows: Float[Tensor, "n dim"]) -> Int[Tensor, " n"]:
    """Hash every row by itself, from 0 to 2⁶³: the same row has the same hash wherever it is.

    Example:
        >>> one, two = row_hashes(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
        >>> bool(one == row_hashes(torch.tensor([[1.0, 2.0]], dtype=torch.float64))), bool(one == two)
        (True, False)
    """
    # Zero has two signs.
    bits = (rows.detach().double() + 0.0).contiguous().view(torch.int64)
    places = _mixed(torch.arange(1, rows.shape[1] + 1, device=rows.device))
    return _mixed(_mixed(bits ^ places).sum(1)) & (2**63 - 1)


def _mixed(numbers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Let every bit of 64 depend on every other: shifts and odd factors, modulo 2⁶⁴."""
    for shift, factor in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB), (31, 1)):
        numbers = (numbers ^ ((numbers >> shift) & (2 ** (64 - shift) - 1))) * factor
    return numbers


def in_blocks(samples: Samples) -> Iterator[Float[Tensor, "m dim"]]:
    """Go through samples in blocks, as long as rows are in their table: a copy of all of them may not fit."""
    n, dim = samples.shape
    dim = max(dim, samples.table.shape[1]) if isinstance(samples, Rows) else dim
    size = max(1, min(_ROWS_AT_ONCE, n if n * dim <= LARGE else _NUMBERS_AT_ONCE // dim))
    return (samples[start : start + size] for start in range(0, n, size))
