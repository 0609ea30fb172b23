"""Rows of a source that does not fit into memory: a fair draw of them, which new ones replace while it is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.backend.rows import Rows, Samples
from carre.boundary import ArgumentError
from carre.data import Source
from carre.data._pieces import rows_at_once

# Rows that are read ahead, in chunks of so many numbers.
_CHUNK, _AHEAD = 2**18, 3
_PATIENCE, _FAREWELL = 0.1, 10.0
# Of a number, as it is held.
BYTES = 8
# Of a source without an end so many rows are looked at before training, in reservoirs.
_LONGEST_LOOK = 4
# Means of blocks vary by chance as their rows do; in a source that is sorted, by so many times as much.
_SORTED, _FEWEST_BLOCKS = 10.0, 4
_MOST_WORDS = 16
_MIXERS = (np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35))


@dataclass(frozen=True, eq=False)
class Gathered:
    """What one pass through a source has found.

    Attributes:
        rows: A fair draw of the rows that are not held out, each as likely as any other.
        held_out: Rows that are never trained on: which they are, what is in them says.
        first: The first rows, in their order.
        n_rows: How many were read.
        is_whole: Whether all rows are here.
        is_sorted: Whether the order of the rows means something.
        columns_lost: Columns that are constant in the draw, and vary in the source.
    """

    rows: Float[Tensor, "n dim"]
    held_out: Float[Tensor, "m dim"]
    first: Float[Tensor, "k dim"]
    n_rows: int
    is_whole: bool
    is_sorted: bool
    columns_lost: tuple[int, ...]


@dataclass(frozen=True)
class Terms:
    """How a source is read for a fit.

    Attributes:
        capacity: Rows that are held at a time.
        held_out_share: Share of the rows that are never trained on.
        most_held_out: How many of these are held.
        seed: Of the draw.
        part: Which of how many parts of the source to read.
    """

    capacity: int
    held_out_share: float
    most_held_out: int
    seed: int
    part: tuple[int, int] = (0, 1)

    def is_held_out(self, values: np.ndarray) -> Bool[np.ndarray, " n"]:
        """Say which rows are held out: equal rows alike, in every pass, and in every process.

        Example:
            >>> rows = np.random.default_rng(0).normal(size=(10_000, 3))
            >>> found = Terms(10, 0.1, 10, seed=0).is_held_out(rows)
            >>> found.mean().round(1)
            np.float64(0.1)
        """
        words = np.ascontiguousarray(values).view(np.uint32)
        # Some of the numbers of a long row tell it from others.
        words = words[:, :: -(-words.shape[1] // _MOST_WORDS)]
        count = words.shape[1]
        factors = np.random.default_rng(count).integers(0, 2**63, count, dtype=np.uint64) | np.uint64(1)
        # A product of 64 bits, of which the upper half is as good as random.
        hashed = ((words * factors).sum(1, dtype=np.uint64) >> np.uint64(32)).astype(np.uint32)
        for mixer in _MIXERS:
            hashed = (hashed ^ (hashed >> np.uint32(16))) * mixer
        found: np.ndarray = hashed < self.held_out_share * 2**32
        return found


class _Draw:
    """A draw of fixed size from rows that come one after the other, each as likely to be in it as any other."""

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        self.capacity, self.rng, self.count = capacity, rng, 0
        self.values: np.ndarray | None = None

    def add(self, values: np.ndarray) -> None:
        """Let rows into the draw, in the place of others when it is full."""
        if len(values) == 0:
            return
        if self.values is None:
            self.values = np.empty((self.capacity, values.shape[1]), values.dtype)
        free = max(0, min(self.capacity - self.count, len(values)))
        self.values[self.count : self.count + free] = values[:free]
        rest = values[free:]
        # Row number c stays with probability capacity/c.
        numbers = self.count + free + 1 + np.arange(len(rest))
        places = (self.rng.random(len(rest)) * numbers).astype(np.int64)
        stays = places < self.capacity
        self.values[places[stays]] = rest[stays]
        self.count += len(values)

    def rows(self, dim: int) -> Float[Tensor, "n dim"]:
        """Return the draw, in no order."""
        if self.values is None:
            return torch.zeros(0, dim)
        found = self.values[: min(self.count, self.capacity)]
        # Until it was full, rows came in their order.
        self.rng.shuffle(found)
        return torch.from_numpy(found)


class _Order:
    """Whether the order of rows means something: then the means of blocks differ by more than chance."""

    def __init__(self) -> None:
        self.means: list[np.ndarray] = []
        self.sizes: list[int] = []
        self.squares = 0.0
        self.low: np.ndarray | None = None
        self.high: np.ndarray | None = None

    def see(self, values: np.ndarray) -> None:
        """Look at a block."""
        low, high = values.min(0), values.max(0)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)
        mean = values.mean(0, dtype=np.float64)
        self.means.append(mean)
        self.sizes.append(len(values))
        self.squares += float(np.square(values - mean).sum(dtype=np.float64))

    def is_sorted(self) -> bool:
        """Compare how means of blocks vary with how they would if rows were shuffled."""
        if len(self.means) < _FEWEST_BLOCKS:
            return False
        means, sizes = np.stack(self.means), np.array(self.sizes)
        middle = (means * sizes[:, None]).sum(0) / sizes.sum()
        between = float((np.square(means - middle) * sizes[:, None]).sum()) / (len(sizes) - 1)
        within = self.squares / max(sizes.sum() - len(sizes), 1)
        return bool(between > _SORTED * within)

    def lost(self, rows: Float[Tensor, "n dim"]) -> tuple[int, ...]:
        """Return the columns that vary, but not among some rows."""
        if self.low is None or self.high is None or len(rows) == 0:
            return ()
        still = (rows.amax(0) == rows.amin(0)).numpy()
        return tuple(np.flatnonzero(still & (self.low < self.high)).tolist())


def bytes_ahead(source: Source) -> int:
    """Return the bytes of what is read ahead of training: chunks, and the block that they are cut of, with copies."""
    return 8 * (_AHEAD * max(_CHUNK, source.dim) + 4 * rows_at_once(source.dim) * source.dim)


def gather(
    source: Source, terms: Terms, *, most: int | None = None, progress: Callable[[float], None] | None = None
) -> Gathered:
    """Go through a source once, and keep a fair draw of it; of one without an end, go through its beginning.

    Where no more than some rows are to be read, they come from all over a source that knows its length.

    Example:
        >>> from carre.data import open_source
        >>> source = open_source(np.arange(2000.0).reshape(1000, 2))
        >>> found = gather(source, Terms(100, 0.1, 50, seed=0))
        >>> found.rows.shape, found.n_rows, found.is_whole, found.is_sorted
        (torch.Size([100, 2]), 1000, False, False)
    """
    rng = np.random.default_rng(terms.seed)
    drawn, held, order = _Draw(terms.capacity, rng), _Draw(terms.most_held_out, rng), _Order()
    first: np.ndarray | None = None
    n_rows, shuffled = 0, None if most is None else rng
    if most is None and source.n_rows is None:
        most = _LONGEST_LOOK * terms.capacity
    for block in source.blocks(order=shuffled, part=terms.part):
        values = block.values
        first = values if first is None else first
        is_held = terms.is_held_out(values)
        drawn.add(values[~is_held])
        held.add(values[is_held])
        order.see(values)
        n_rows += len(values)
        if progress is not None and source.n_rows:
            progress(min(1.0, n_rows * terms.part[1] / source.n_rows))
        if most is not None and n_rows >= most:
            break
    if n_rows == 0:
        raise _nothing_left(source)
    rows, held_out = drawn.rows(source.dim), held.rows(source.dim)
    return Gathered(
        rows,
        held_out,
        torch.zeros(0, source.dim) if first is None else torch.from_numpy(first),
        n_rows,
        n_rows == len(rows) + len(held_out),
        order.is_sorted(),
        order.lost(rows),
    )


class Refill:
    """Puts new rows of a source in the place of those that were used, block by block, while training goes on.

    A thread reads ahead. On a CPU training waits for it, so that a fit with a seed is reproducible; a GPU waits for
    nothing, and takes what is there.

    Args:
        samples: The rows that are trained on, which are replaced in place.
        ready: From rows of the source to those of ``samples``, on a CPU.
        per_call: How many rows are replaced each time it is called.

    Example:
        >>> from carre.data import open_source
        >>> samples = torch.zeros(10, 2)
        >>> source = open_source(np.ones((50, 2)))
        >>> with Refill(source, Terms(10, 0.0, 0, seed=0), samples, lambda rows: rows.float(), per_call=100) as refill:
        ...     refill()
        >>> bool((samples == 1).all())
        True
    """

    def __init__(
        self, source: Source, terms: Terms, samples: Samples, ready: Callable[[Tensor], Tensor], *, per_call: int
    ) -> None:
        self.source, self.terms, self.per_call, self.ready = source, terms, per_call, ready
        # Where rows stay as they came, they are replaced there.
        self.table = samples.table if isinstance(samples, Rows) else samples
        self.places = samples.order if isinstance(samples, Rows) else None
        self.n_places, self.is_waiting = len(samples), samples.device.type == "cpu"
        self.generator = torch.Generator().manual_seed(terms.seed)
        self.n_due = self.n_replaced = 0
        self.queue: queue.Queue[Any] = queue.Queue(_AHEAD)
        self.is_closed = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Refill:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.is_closed.set()
        # A source that nothing comes from any more is not waited for.
        self.thread.join(_FAREWELL)

    def __call__(self) -> None:
        """Replace as many rows as are due."""
        self.n_due += self.per_call
        while self.n_due > 0:
            try:
                found = self.queue.get() if self.is_waiting else self.queue.get_nowait()
            except queue.Empty:
                return
            if isinstance(found, BaseException):
                raise found
            self._replace(found)
            self.n_due -= len(found)

    def _replace(self, rows: Float[Tensor, "m dim"]) -> None:
        places = torch.randint(self.n_places, (len(rows),), generator=self.generator)
        places = places if self.places is None else self.places.cpu()[places]
        device = self.table.device
        self.table[places.to(device)] = rows.to(device, self.table.dtype, non_blocking=True)
        self.n_replaced += len(rows)

    def _read(self) -> None:
        """Read ahead, pass after pass, until it is closed."""
        rng = np.random.default_rng(self.terms.seed + 1)
        try:
            for chunk in self._chunks(rng):
                self._hand_over(chunk)
                if self.is_closed.is_set():
                    return
        except BaseException as error:
            # Whatever it is, it is for the thread that trains.
            self._hand_over(error)

    def _hand_over(self, found: Tensor | BaseException) -> None:
        """Put something into the queue when there is room, unless nobody waits for it any more."""
        while not self.is_closed.is_set():
            with suppress(queue.Full):
                self.queue.put(found, timeout=_PATIENCE)
                return

    def _chunks(self, rng: np.random.Generator) -> Iterator[Tensor]:
        """Make rows ready here: whoever trains should have nothing to do but to copy them."""
        size = max(1, _CHUNK // self.source.dim)
        while not self.is_closed.is_set():
            n_rows = 0
            for block in self.source.blocks(order=rng, part=self.terms.part):
                n_rows += len(block.values)
                rows = torch.from_numpy(block.values[~self.terms.is_held_out(block.values)])
                for part in torch.split(rows, size) if len(rows) else ():
                    found = part if self.places is not None else self.ready(part)
                    yield found if self.is_waiting else found.pin_memory()
            if n_rows == 0:
                raise _nothing_left(self.source)


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
        return BYTES * self.source.dim * (self.terms.capacity + self.terms.most_held_out) + bytes_ahead(self.source)

    @property
    def facts(self) -> str:
        """What a run that goes on has to have been told of its samples."""
        return f"{self.source!r} {self.source.names} {self.n_rows}"


def _nothing_left(source: Source) -> ArgumentError:
    must = "have rows whenever it is read; as of a function that returns a new iterator each time"
    return ArgumentError("X", must, got=f"none in another pass through {source.name}")
