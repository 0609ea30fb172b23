"""The samples of a fit: whatever people give, checked; what is known of them, and what several processes have of it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.backend.processes import together
from carre.backend.reservoir import BYTES, Gathered, Stream, Terms, gather
from carre.backend.rows import Rows, Samples, in_blocks, row_hashes
from carre.boundary import LARGE, ArgumentError, Points, as_count, as_dense, as_images, as_points, check_size, listed
from carre.data import Normalization, Source, Table, column_concerns, open_source
from carre.data.columns import column_units
from carre.data.frames import is_frame, names_of, read_frame, refuse_anndata
from carre.data.image_dataset import is_dataset
from carre.data.sources import is_source
from carre.fitting.plan import FitPlan, OwnRows, make_plan
from carre.fitting.settings import FitSettings
from carre.training.checkpoint import digest

# Of all rows so many are enough to make a plan from, and of long ones so many numbers.
_MOST_ROWS, _MOST_NUMBERS = 2**17, 2**24
_HASHES = 2**64
# Of samples that are held at a time, if nobody says otherwise: what tells the shape of nearly everything.
_HELD_BYTES = 2**29
# The share of the memory of a fit that samples may take; the rest is for steps, blocks that are read ahead and answers.
_SHARE_OF_SAMPLES = 0.4
_FEWEST_ROWS, _MOST_HELD_OUT, _HELD_OUT_BYTES = 512, 20_000, 2**26
_MOST_OF_UNKNOWN = 2**18
# Numbers that are looked at to say what a fit would do.
_LOOKED_AT = 2**23


class GivenSamples(NamedTuple):
    """The samples of a fit, checked, and what is known of them beside their values.

    Attributes:
        points: The samples; of a source that does not fit into memory a draw of them.
        names: Of the columns.
        normalization: What makes values of pixels.
        stream: Where more of them come from.
        gathered: What was found beside the draw.
    """

    points: Points
    names: tuple[str, ...] | None
    normalization: Normalization | None
    stream: Stream | None = None
    gathered: Gathered | None = None

    @property
    def values(self) -> Samples:
        """The samples, flat, each column divided by its unit; many of them only when they are asked for."""
        tensor, units = self.points.tensor.detach(), self.points.units
        if units is None or tensor.numel() <= LARGE:
            return self.points.in_units(units).tensor.detach()
        rows, unit = Rows(tensor, torch.arange(len(tensor), device=tensor.device)), units.to(tensor)
        return rows.then(lambda part: part / unit)

    def concerns(self) -> tuple[str, ...]:
        """Say what is odd about their columns, in sentences; images have none."""
        if self.points.sample_shape is not None:
            return ()
        values, units = self.points.tensor, self.points.units
        found = column_concerns(values, self.names, units_matter=units is None)
        if self.gathered is not None:
            # A draw has lost the order, which shows what numbers the rows.
            numbering = (one for one in column_concerns(self.gathered.first, self.names) if one.is_numbering)
            found = (*numbering, *found)
        return tuple(map(str, found))

    def shared(self, some: Points) -> GivenSamples:
        """Take rows of all processes for these; what is held out of a source, and its length, are those of all."""
        if self.gathered is None or self.stream is None:
            return self._replace(points=some)
        everyone = together()
        held_out = torch.cat(everyone.gather(self.gathered.held_out))[: self.stream.terms.most_held_out]
        n_rows = sum(everyone.gather(self.stream.n_rows))
        stream = dataclasses.replace(self.stream, n_rows=n_rows, units=some.units)
        gathered = dataclasses.replace(self.gathered, held_out=held_out)
        return self._replace(points=some, stream=stream, gathered=gathered)

    def plan(self, settings: FitSettings, *, seed: int, device: torch.device, own: OwnRows | None = None) -> FitPlan:
        """Decide what a fit of these samples does; of several processes each may have rows of its own."""
        held_out = None if self.gathered is None else self.gathered.held_out
        if held_out is not None and self.points.units is not None:
            held_out = held_out / self.points.units.to(held_out)
        return make_plan(
            self.values,
            settings,
            seed=seed,
            device=device,
            sample_shape=self.points.sample_shape,
            own=own,
            held_out=held_out,
            stream=self.stream,
        )


@dataclass(frozen=True)
class Reading:
    """How samples are read that come from a source.

    Attributes:
        memory: The bytes that the fit may take.
        validation_fraction: Share of the rows that are held out.
        seed: Of what is drawn.
        progress: Told how far it is.
        part: Which of how many parts of it to read, where several processes share the work.
        looks_only: Whether to read a part of it, to say what a fit would do.

    Example:
        >>> accept_samples(open_source(torch.rand(20, 2).numpy()), how=Reading(seed=1)).points.tensor.shape
        torch.Size([20, 2])
    """

    memory: int | None = None
    validation_fraction: float = 0.1
    seed: int = 0
    progress: Callable[[float], None] | None = None
    part: tuple[int, int] = (0, 1)
    looks_only: bool = False


def terms_of(source: Source, how: Reading) -> Terms:
    """Say how a source is read within a bound of memory.

    Example:
        >>> terms_of(open_source(np.zeros((1000, 50))), Reading(memory=10**8)).capacity
        100000
    """
    memory = how.memory
    held = _HELD_BYTES if memory is None else int(_SHARE_OF_SAMPLES * as_count(memory, name="memory"))
    capacity = held // (BYTES * source.dim)
    if memory is None:
        capacity = max(capacity, _FEWEST_ROWS)
    elif capacity < _FEWEST_ROWS:
        least = _FEWEST_ROWS * BYTES * source.dim / _SHARE_OF_SAMPLES
        must = f"be at least {least / 1e6:,.1f} MB for rows of {source.dim:,} numbers"
        raise ArgumentError("memory", must, got=f"{memory:,} bytes", remedy="Give more, or smaller images")
    if source.n_rows is None:
        # It may have no end: what is looked at before training is a few of these draws.
        capacity = min(capacity, _MOST_OF_UNKNOWN)
    most_held_out = max(_FEWEST_ROWS, min(_MOST_HELD_OUT, _HELD_OUT_BYTES // (BYTES * source.dim)))
    share = how.validation_fraction
    if source.n_rows:
        share = min(share, most_held_out / source.n_rows)
    return Terms(capacity, share, most_held_out, how.seed, how.part)


def read_source(source: Source, how: Reading) -> tuple[Float[Tensor, "n dim"], Gathered | None, Stream | None]:
    """Read all of a source, where that fits into the memory it may take, or draw from it."""
    terms = terms_of(source, how)
    if source.n_rows is not None and source.n_rows <= terms.capacity:
        return torch.from_numpy(np.concatenate([block.values for block in source.blocks()])), None, None
    if how.looks_only:
        few = min(terms.capacity, max(_FEWEST_ROWS, _LOOKED_AT // source.dim))
        found = gather(source, dataclasses.replace(terms, capacity=few), most=few)
        return found.rows, found, Stream(source, terms, source.n_rows or found.n_rows)
    found = gather(source, terms, progress=how.progress)
    # All processes go one way.
    if all(together().gather(found.is_whole)):
        return torch.cat([found.rows, found.held_out]), None, None
    _warn(source, found)
    return found.rows, found, Stream(source, terms, found.n_rows)


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


def accept_samples(X: Any, *, scale: str = "none", how: Reading | None = None) -> GivenSamples:
    """Check the samples of a fit: arrays, tensors, tables, data frames, images, datasets of images, sources.

    Args:
        X: The samples.
        scale: How columns are scaled, as in `fit`.
        how: How a source is read.

    Example:
        >>> from carre.data import Table
        >>> accept_samples(Table(torch.zeros(2, 1).numpy(), ("height",))).names
        ('height',)
    """
    if is_source(X):
        return _of_source(open_source(X), scale, how or Reading())
    if how is not None and how.memory is not None:
        must = "be left out for samples that are in memory already"
        raise ArgumentError("memory", must, got=how.memory, remedy="Give a path, or carre.data.open_source(X)")
    normalization = X.normalization if is_dataset(X) else None
    names: tuple[str, ...] | None = None
    if isinstance(X, Table):
        names, X = X.names, X.values
    elif is_dataset(X):
        X = X.images
    elif is_frame(X):
        (X, _), names = read_frame(X, None, name="X"), names_of(X)
    refuse_anndata(X, "X")
    values = as_dense(X, "X")
    if normalization is None:
        _warn_of_last_channels(values)
    points = as_points(values, name="X", columns=names) if values.ndim <= 2 else as_images(values, name="X")
    return GivenSamples(_checked(points, scale), names, normalization)


def _of_source(source: Source, scale: str, how: Reading) -> GivenSamples:
    """Read a source, or draw from it where it does not fit into memory."""
    rows, gathered, stream = read_source(source, how)
    given = _checked(Points(rows, True, source.sample_shape), scale)
    if stream is not None:
        stream = dataclasses.replace(stream, units=given.units)
    return GivenSamples(given, source.names, source.normalization, stream, gathered)


def _checked(points: Points, scale: str) -> Points:
    """Refuse what has no geometry, and find the units of the columns."""
    if len(points.tensor) < 2:
        raise ArgumentError("X", "have at least 2 samples", got=f"{len(points.tensor)} sample (n_samples = 1)")
    check_size(points.tensor, "X")
    if scale != "none" and points.sample_shape is not None:
        raise ArgumentError("scale", "be 'none' for images, whose pixels are alike", got=repr(scale))
    return dataclasses.replace(points, units=column_units(points.tensor.detach(), scale))


def _warn_of_last_channels(values: Any) -> None:
    """Warn of images that seem to have their channels on the last axis: a U-Net would take rows for channels."""
    shape, usual = tuple(values.shape), (1, 3)
    if len(shape) == 4 and shape[3] in usual and shape[1] not in usual:
        remedy = f"X.{'permute' if isinstance(values, Tensor) else 'transpose'}(0, 3, 1, 2)"
        warnings.warn(
            f"X must have shape (n, channels, height, width); got {shape}, with the channels last, it seems. "
            f"If so, fit on {remedy}",
            UserWarning,
            stacklevel=6,
        )


def pooled(samples: GivenSamples, scale: str) -> tuple[GivenSamples, OwnRows | None]:
    """Pool samples of which each process has some: return rows of all of them, the same everywhere, and its own.

    Where all have the same, or there is one process, these are what was given, and none. Which rows are taken depends
    on the rows alone, not on how they are divided: those whose hashes are the smallest.
    """
    everyone, points = together(), samples.points
    if everyone.size == 1 or len(set(everyone.gather(digest(points.tensor)))) == 1:
        return samples, None
    kind = f"{points.tensor.shape[1]} columns of {points.tensor.dtype}, images {points.sample_shape}"
    kind += f", names {samples.names}"
    kinds = set(everyone.gather(kind))
    if len(kinds) > 1:
        must = "have the same columns, shape of images and dtype in all processes that train together"
        raise ArgumentError("X", must, got="; ".join(sorted(kinds)))
    some, total = _some_of_all(points.tensor.detach())
    points = dataclasses.replace(points, units=column_units(some, scale))
    n_samples = sum(everyone.gather(len(points.tensor)))
    told = digest(f"{n_samples} rows, {sum(everyone.gather(total)) % _HASHES:x}, {kind}")
    own = OwnRows(samples._replace(points=points).values, n_samples, told)
    return samples.shared(dataclasses.replace(points, tensor=some)), own


def _some_of_all(table: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "m dim"], int]:
    """Gather the rows with the smallest hashes of all processes, in their order; return the sum of its own hashes."""
    everyone = together()
    most = max(2, min(_MOST_ROWS, _MOST_NUMBERS // table.shape[1]))
    hashes, places, total = _smallest(table, most)
    known = torch.cat(everyone.gather(hashes.cpu())).sort().values[:most]
    is_among = hashes <= known[-1].to(hashes)
    parts = everyone.gather((hashes[is_among].cpu(), table[places[is_among]].cpu()))
    order = torch.cat([part for part, _ in parts]).sort(stable=True).indices[:most]
    return torch.cat([rows for _, rows in parts])[order].to(table.device), total


def _smallest(table: Float[Tensor, "n dim"], count: int) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"], int]:
    """Find the smallest hashes of rows, and where they are; and add all of them up."""
    hashes = places = torch.zeros(0, dtype=torch.int64, device=table.device)
    start = total = 0
    for part in in_blocks(table):
        found = row_hashes(part)
        total += int(found.sum())
        hashes = torch.cat([hashes, found])
        places = torch.cat([places, torch.arange(start, start + len(part), device=table.device)])
        start += len(part)
        kept = hashes.sort(stable=True).indices[:count]
        hashes, places = hashes[kept], places[kept]
    return hashes, places, total
