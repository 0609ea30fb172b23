"""Samples of a fit that do not fit into memory: a draw of them, and what brings new ones in."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend.processes import together
from carre.backend.reservoir import Gathered, Refill, Terms, bytes_ahead, gather
from carre.backend.rows import Samples
from carre.boundary import ArgumentError, as_count, listed
from carre.data import Source

# Of samples that are held at a time, if nobody says otherwise: what tells the shape of nearly everything.
_HELD_BYTES = 2**29
# The share of the memory of a fit that samples may take; the rest is for steps, blocks that are read ahead and answers.
_SHARE_OF_SAMPLES, _BYTES = 0.4, 8
_FEWEST_ROWS, _MOST_HELD_OUT, _HELD_OUT_BYTES = 512, 20_000, 2**26
_MOST_OF_UNKNOWN = 2**18
# Numbers that are looked at to say what a fit would do.
_LOOKED_AT = 2**23


@dataclass(frozen=True, eq=False)
class Stream:
    """Where the samples of a fit come from while it trains.

    Attributes:
        source: The rows.
        terms: How they are read.
        n_rows: How many there are, as far as was read.
        units: What each column is divided by.
    """

    source: Source
    terms: Terms
    n_rows: int
    units: Float[Tensor, " dim"] | None = None

    @property
    def n_bytes(self) -> int:
        """The bytes that its rows take at any time."""
        return _BYTES * self.source.dim * (self.terms.capacity + self.terms.most_held_out) + bytes_ahead(self.source)

    @property
    def facts(self) -> str:
        """What a run that goes on has to have been told of its samples."""
        return f"{self.source!r} {self.source.names} {self.n_rows}"

    def refill(
        self, training: Samples, encode: Callable[[Tensor], Tensor], *, per_step: int
    ) -> AbstractContextManager[Callable[[], None]]:
        """Read on while training goes on; its samples are replaced as fast as they are used."""

        def ready(rows: Tensor) -> Tensor:
            return encode(rows if self.units is None else rows / self.units.to(rows))

        return Refill(self.source, self.terms, training, ready, per_call=per_step)


def terms_of(source: Source, *, memory: int | None, validation_fraction: float, seed: int) -> Terms:
    """Say how a source is read within a bound of memory.

    Example:
        >>> from carre.data import open_source
        >>> source = open_source(np.zeros((1000, 50)))
        >>> terms_of(source, memory=10**8, validation_fraction=0.1, seed=0).capacity
        100000
    """
    held = _HELD_BYTES if memory is None else int(_SHARE_OF_SAMPLES * as_count(memory, name="memory"))
    capacity = held // (_BYTES * source.dim)
    if memory is None:
        capacity = max(capacity, _FEWEST_ROWS)
    elif capacity < _FEWEST_ROWS:
        least = _FEWEST_ROWS * _BYTES * source.dim / _SHARE_OF_SAMPLES
        must = f"be at least {least / 1e6:,.1f} MB for rows of {source.dim:,} numbers"
        raise ArgumentError("memory", must, got=f"{memory:,} bytes", remedy="Give more, or smaller images")
    if source.n_rows is None:
        # It may have no end: what is looked at before training is a few of these draws.
        capacity = min(capacity, _MOST_OF_UNKNOWN)
    most_held_out = max(_FEWEST_ROWS, min(_MOST_HELD_OUT, _HELD_OUT_BYTES // (_BYTES * source.dim)))
    share = validation_fraction
    if source.n_rows:
        share = min(share, most_held_out / source.n_rows)
    return Terms(capacity, share, most_held_out, seed)


def read_source(
    source: Source, terms: Terms, *, progress: Callable[[float], None] | None = None, looks_only: bool = False
) -> tuple[Float[np.ndarray, "n dim"], None] | tuple[Gathered, Stream]:
    """Read all of a source, where that fits into the memory it may take, or draw from it."""
    if source.n_rows is not None and source.n_rows <= terms.capacity:
        return np.concatenate([block.values for block in source.blocks()]), None
    if looks_only:
        few = min(terms.capacity, max(_FEWEST_ROWS, _LOOKED_AT // source.dim))
        found = gather(source, replace(terms, capacity=few), most=few)
        return found, Stream(source, terms, source.n_rows or found.n_rows)
    found = gather(source, terms, progress=progress)
    # All processes go one way.
    if all(together().gather(found.is_whole)):
        return torch.cat([found.rows, found.held_out]).numpy(), None
    _warn(source, found)
    return found, Stream(source, terms, found.n_rows)


def _warn(source: Source, found: Gathered) -> None:
    """Say what a source does not promise, and what was seen of it."""
    if found.is_sorted and source.limits:
        warnings.warn(
            f"X seems to be sorted, and {source.limits}: what is trained on at a time is not like the whole. "
            "Shuffle it, or give files or an array, which are read in any order",
            UserWarning,
            stacklevel=4,
        )
    if found.columns_lost:
        names = source.names or tuple(map(str, range(source.dim)))
        lost = listed([names[i] for i in found.columns_lost])
        warnings.warn(
            f"X has columns that hardly ever vary ({lost}): among the {len(found.rows):,} rows that were drawn they "
            "are constant, and what other rows have there is taken for noise. Leave them out",
            UserWarning,
            stacklevel=4,
        )


def with_units(stream: Stream, units: Float[Tensor, " dim"] | None) -> Stream:
    """Divide rows by units as they come in."""
    return replace(stream, units=units)
