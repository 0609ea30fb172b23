"""The samples of a fit: whatever people give, checked, and what is known of them beside their values."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from carre.backend.processes import together
from carre.backend.reservoir import Gathered
from carre.backend.rows import Rows, Samples
from carre.boundary import LARGE, ArgumentError, Points, as_dense, as_images, as_points, check_size
from carre.data import Normalization, Source, Table, column_concerns, open_source
from carre.data.columns import column_units
from carre.data.frames import is_frame, names_of, read_frame, refuse_anndata
from carre.data.sources import is_source
from carre.fitting._streams import Stream, read_source, terms_of, with_units
from carre.fitting.plan import FitPlan, OwnRows, make_plan
from carre.fitting.settings import FitSettings
from carre.geometry import is_dataset


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
    terms = terms_of(source, memory=how.memory, validation_fraction=how.validation_fraction, seed=how.seed)
    terms = dataclasses.replace(terms, part=how.part)
    found, stream = read_source(source, terms, progress=how.progress, looks_only=how.looks_only)
    values = found.rows if isinstance(found, Gathered) else torch.from_numpy(found)
    given = _checked(Points(values, True, source.sample_shape), scale)
    if stream is not None:
        stream = with_units(stream, given.units)
    gathered = found if isinstance(found, Gathered) else None
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
