"""One pass through rows that lie in files: a file of answers for each, in memory that does not grow."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from carre.backend.memory import resident_memory
from carre.boundary import ArgumentError, checked_integer, listed
from carre.data import Block, Source, open_source
from carre.data.table import write_batches
from carre.files import AnyPath, is_path, written_whole
from carre.geometry import Geometry
from carre.mapping._parts import Part, batches_of, check_page, clear, digest_of, parts_of, read_ahead, write_page
from carre.mapping.answers import Asked, as_columns, bytes_per_batch, rows_per_batch, steady

_ROW = "row"
# Numbers of one group of rows in a file, and the copies of them that are held while it is written.
_NUMBERS_PER_GROUP, _COPIES_OF_GROUP = 2**21, 6
# Of what is read ahead: blocks of the source, their columns and their rows side by side, twice; and what pyarrow keeps.
_BYTES_OF_READING = 2**28
# A dry run tries so many batches, of which the first one is not timed.
_TRIED = 4


@dataclass(frozen=True)
class MapProgress:
    """How far a pass is.

    Attributes:
        fraction: Of the rows that were to be answered.
        n_rows: How many were answered.
        rows_per_second: Since the beginning.

    Example:
        >>> MapProgress(0.5, 1000, 250.0).note
        '1,000 rows, 250 per second'
    """

    fraction: float
    n_rows: int
    rows_per_second: float

    @property
    def note(self) -> str:
        """Say it in a few words."""
        return f"{self.n_rows:,} rows, {self.rows_per_second:,.0f} per second"


@dataclass(frozen=True)
class Mapped:
    """What was done.

    Attributes:
        out: The folder.
        n_parts: How many files of it were to be written.
        n_there: How many of these were there already.
        n_rows: How many rows were answered, beside those.
        seconds: How long that took.

    Example:
        >>> Mapped(Path("out"), n_parts=10, n_there=4, n_rows=6000, seconds=2.0).rows_per_second
        3000.0
    """

    out: Path
    n_parts: int
    n_there: int
    n_rows: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """How fast it was; NaN where nothing was left to do."""
        return self.n_rows / self.seconds if self.n_rows else float("nan")


@dataclass(frozen=True)
class MapPlan:
    """What a pass would do.

    Attributes:
        n_parts: How many files it writes.
        n_there: How many of these are there already.
        n_rows: How many rows the others have.
        n_bytes: About how many bytes their answers take.
        seconds: About how long it takes.
        memory: How many bytes each process holds at most, with what Python and torch hold.

    Example:
        >>> MapPlan(10, 4, 6000, n_bytes=24_000, seconds=2.0, memory=2**29).n_rows
        6000
    """

    n_parts: int
    n_there: int
    n_rows: int
    n_bytes: int
    seconds: float
    memory: int


@dataclass(frozen=True, eq=False)
class MapTask:
    """Everything that a pass is told; another process does the same with it.

    Attributes:
        geometry: The geometry.
        data: What `carre.data.open_source` takes.
        out: The folder of the answers.
        asked: What is asked.
        columns: The coordinates, by name or number; None takes those of the fit where it had names, else all.
        drop: Columns that are no coordinates.
        keep: Columns to write beside the answers.
        drop_missing: Whether rows with missing cells are left out.
        shard: Which of how many shares of the files, from 1.
        memory: How many bytes the process may hold; None for any number.
        overwrite: Whether to replace the answers that are there.

    Example:
        >>> import carre
        >>> X = np.random.default_rng(0).uniform(size=(200, 2))
        >>> geometry = carre.fit(X, max_steps=20, width=16, bandwidth=0.1, random_state=0)
        >>> task = MapTask(geometry, X, Path("answers"), Asked.of(geometry, ["dimension"], None, None))
        >>> [(part.name, part.n_rows) for part in task.parts]
        [('array.parquet', 200)]
    """

    geometry: Geometry
    data: Any
    out: Path
    asked: Asked
    columns: Sequence[str | int] | None = None
    drop: Sequence[str | int] | None = None
    keep: tuple[str, ...] = ()
    drop_missing: bool = False
    shard: tuple[int, int] = (1, 1)
    memory: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if not is_path(self.out):
            raise ArgumentError("out", "be a path", got=repr(self.out))
        object.__setattr__(self, "out", Path(self.out).expanduser())
        # Paths go to other processes as text.
        object.__setattr__(self, "data", os.fspath(self.data) if isinstance(self.data, os.PathLike) else self.data)
        which, count = self.shard if len(self.shard) == 2 else (0, 0)
        checked_integer(count, name="shard", least=1, reason=" for the number of shares, as in (2, 10)")
        checked_integer(which, name="shard", least=1, most=count, reason=" for the first of them")
        if self.overwrite and count > 1:
            must = "be False for one share of several, which would remove the answers of the others"
            raise ArgumentError("overwrite", must, remedy="Remove the folder before the shares begin")
        if self.memory is not None:
            checked_integer(self.memory, name="memory", least=1)

    @cached_property
    def source(self) -> Source:
        """The rows, with the columns of the fit in its order, and pixels normalized like its own."""
        source = open_source(self.data, columns=self.columns, drop=self.drop, drop_missing=self.drop_missing)
        known, normalization = self.geometry.feature_names, self.geometry.normalization
        if self.columns is None and known is not None and source.names not in (None, known):
            source = open_source(self.data, columns=known, drop_missing=self.drop_missing)
        if normalization is not None and source.sample_shape is not None:
            source = replace(source, normalization=normalization)
        if source.dim != self.geometry.dim:
            must = f"have {self.geometry.dim:,} numbers in each row, like the samples of the fit"
            raise ArgumentError("X", must, got=f"{source.dim:,} in {source.name}", remedy="Choose the columns")
        return source

    @cached_property
    def every_part(self) -> list[Part]:
        """All files that are to be written."""
        return parts_of(self.source)

    @property
    def parts(self) -> list[Part]:
        """Those of this share."""
        which, count = self.shard
        return self.every_part[which - 1 :: count]

    @property
    def open_parts(self) -> list[Part]:
        """Those of this share that are not there yet."""
        return [part for part in self.parts if self.overwrite or not (self.out / part.name).is_file()]

    @cached_property
    def asking(self) -> Geometry:
        """The geometry as it is asked here."""
        return steady(self.geometry)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What coordinates are called."""
        known = self.source.names or self.geometry.feature_names
        return known or tuple(f"x{i}" for i in range(self.geometry.dim))

    @cached_property
    def nothing(self) -> dict[str, np.ndarray]:
        """The columns of a file without rows; to find them, a first question is asked."""
        point = self.geometry.landmarks[:1].cpu().numpy()
        found = as_columns(self.asked.at(self.asking, point), self.names)
        twice = [name for name in self.keep if name in found or name == _ROW]
        if twice:
            must = "be columns whose names no answer has"
            raise ArgumentError("keep", must, got=listed(twice), remedy="Rename them")
        return {_ROW: np.zeros(0, dtype=np.int64), **{name: column[:0] for name, column in found.items()}}

    @property
    def said(self) -> dict[str, Any]:
        """What the folder says of its files."""
        return {
            "model": digest_of(self.geometry),
            "what": list(self.asked.what),
            "bandwidth": self.asked.bandwidth,
            "directions": self.asked.n_directions,
            "columns": list(self.names),
            "keep": list(self.keep),
            "drop_missing": self.drop_missing,
            "parts": {part.name: part.n_rows for part in self.every_part},
        }

    def check(self) -> None:
        """Refuse, before anything is written, what cannot end well."""
        self._check_place()
        needed = self.needed_memory
        if self.memory is not None and self.memory < needed:
            must = f"be at least {needed:,} bytes: so many are held by Python, torch, the model and what is computed"
            raise ArgumentError("memory", must, got=f"{self.memory:,}", remedy="Give more, or leave it out")
        if not self.overwrite:
            check_page(self.out, self.said)

    def _check_place(self) -> None:
        """Refuse a folder in which data are, or would be."""
        called, folder = repr(str(self.out)), self.out.resolve()
        if isinstance(self.data, str):
            place = Path(self.data.partition("::")[0]).expanduser().resolve()
            if folder.is_relative_to(place) or place.is_relative_to(folder):
                got, remedy = f"{called}, beside {str(place)!r}", "Choose a folder of its own for the answers"
                raise ArgumentError("out", "neither lie in the data nor hold them", got=got, remedy=remedy)
        if self.out.exists() and not self.out.is_dir():
            raise ArgumentError("out", "be a folder", got=f"{called}, which is a file", remedy="Choose another name")
        lost = next((part.name for part in self.every_part if (self.out / part.name).is_dir()), None)
        if lost is not None:
            must = f"have room for the file {lost}"
            raise ArgumentError("out", must, got="a folder of that name", remedy="Move it away")

    @cached_property
    def needed_memory(self) -> int:
        """How many bytes the process will hold at most; to know it, a first question is asked, and a block read."""
        _ = self.nothing, next(self.source.blocks(keep=self.keep), None)
        group = 8 * _NUMBERS_PER_GROUP * _COPIES_OF_GROUP
        batch = 4 * 8 * rows_per_batch(self.geometry) * (len(self.nothing) + self.geometry.dim)
        on_cpu = bytes_per_batch(self.geometry) if self.geometry.device.type == "cpu" else 0
        return resident_memory() + on_cpu + group + batch + _BYTES_OF_READING

    def begin(self) -> MapTask:
        """Check everything, and say in the folder what its files are; return what is left to be done."""
        self.check()
        if self.overwrite:
            clear(self.out)
        write_page(self.out, self.said)
        return replace(self, overwrite=False) if self.overwrite else self

    def write(self, part: Part, tell: Callable[[int], None] = lambda n_rows: None) -> int:
        """Answer at the rows of a part, and put the file in its place; return how many they are."""
        target = self.out / part.name
        target.parent.mkdir(parents=True, exist_ok=True)
        group = max(rows_per_batch(self.geometry), _NUMBERS_PER_GROUP // len(self.nothing))
        with written_whole(target) as partial:
            n_rows = write_batches(partial, self._columns(part, tell), group=group)
        return n_rows

    def _columns(self, part: Part, tell: Callable[[int], None]) -> Iterator[Mapping[str, np.ndarray]]:
        batches = batches_of(part.source, rows_per_batch(self.geometry), self.keep)
        is_empty = True
        for block in read_ahead(batches):
            is_empty = False
            yield {_ROW: block.rows, **block.other, **self._answers(block)}
            tell(len(block.rows))
        if is_empty:
            yield self.nothing

    def _answers(self, block: Block) -> dict[str, np.ndarray]:
        try:
            return as_columns(self.asked.at(self.asking, block.values), self.names)
        except ArgumentError as error:
            where = f"at rows {block.rows[0]:,} to {block.rows[-1]:,} of {block.shard}"
            got = where if error.got is None else f"{error.got} {where}"
            raise ArgumentError(error.argument, error.must, got=got, remedy=error.remedy) from error

    def run(self, progress: Callable[[MapProgress], None] | None = None) -> Mapped:
        """Answer at all rows of this share that are not answered yet."""
        watch = Watch(self, progress)
        for part in watch.waiting:
            watch.task.write(part, watch.add)
        return watch.done()

    def plan(self, n_processes: int = 1) -> MapPlan:
        """Say what would be done, from a few batches that are answered and forgotten."""
        n_processes = checked_integer(n_processes, name="n_processes", least=1, most=2**20)
        self.check()
        waiting = self.open_parts
        n_rows = sum(part.n_rows for part in waiting)
        times, sizes = [0.0], [0.0]
        if waiting:
            times, sizes = self._tried(waiting[0])
        seconds, n_bytes = float(np.median(times)) * n_rows / n_processes, int(np.mean(sizes) * n_rows)
        n_there = len(self.parts) - len(waiting)
        return MapPlan(len(self.parts), n_there, n_rows, n_bytes, seconds, self.needed_memory)

    def _tried(self, part: Part) -> tuple[list[float], list[float]]:
        """Measure the seconds and the bytes of a row, in a few batches."""
        times, sizes = list[float](), list[float]()
        with tempfile.TemporaryDirectory() as folder:
            file, start = Path(folder, "tried.parquet"), time.perf_counter()
            for columns in islice(self._columns(part, lambda n: None), _TRIED):
                n_rows = max(1, len(columns[_ROW]))
                write_batches(file, [columns], group=n_rows)
                times.append((time.perf_counter() - start) / n_rows)
                sizes.append(file.stat().st_size / n_rows)
                start = time.perf_counter()
        return times[1:] or times, sizes


class Watch:
    """Begins a task, counts the rows that are answered, and tells how far that is."""

    def __init__(self, task: MapTask, progress: Callable[[MapProgress], None] | None) -> None:
        self.task = task.begin()
        self.progress, self.start = progress, time.perf_counter()
        self.waiting, self.n_done = self.task.open_parts, 0
        self.n_rows = sum(part.n_rows for part in self.waiting)

    def add(self, n_rows: int) -> None:
        """Count some more."""
        self.n_done += n_rows
        if self.progress is not None:
            fraction, seconds = self.n_done / max(1, self.n_rows), time.perf_counter() - self.start
            self.progress(MapProgress(min(1.0, fraction), self.n_done, self.n_done / max(seconds, 1e-9)))

    def done(self) -> Mapped:
        """Say what was done."""
        n_parts, seconds = len(self.task.parts), time.perf_counter() - self.start
        return Mapped(self.task.out, n_parts, n_parts - len(self.waiting), self.n_done, seconds)


def map_rows(
    geometry: Geometry,
    X: Any,
    out: AnyPath,
    *,
    what: Sequence[str] = ("dimension",),
    bandwidth: float | None = None,
    dimension: int | None = None,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] | None = None,
    keep: Sequence[str] = (),
    drop_missing: bool = False,
    shard: Sequence[int] = (1, 1),
    memory: int | None = None,
    overwrite: bool = False,
    progress: Callable[[MapProgress], None] | None = None,
) -> Mapped:
    """Answer at all rows of files, and write the answers into files, in memory that does not grow with the rows.

    Every file of the data gets one of Parquet with its name, and its rows in their order, whose column ``row`` says
    which they are; a file of more than two million rows gets several. Each appears when it is complete, and is left
    alone when the same call is made again: that one goes on where the last one was interrupted, to the same bytes.

    Args:
        geometry: The geometry.
        X: What `carre.data.open_source` takes, but for streams.
        out: A folder for the answers.
        what: What to answer: ``"dimension"``, ``"eigenvalues"``, ``"tangent"``, ``"denoised"``, from one forward pass.
        bandwidth: σ; None takes the default scale.
        dimension: How many tangent directions.
        columns: The coordinates, by name or number; None takes those of the fit where both have names, else all.
        drop: Columns that are no coordinates.
        keep: Columns of the data to write beside the answers, such as an id.
        drop_missing: Whether rows with missing cells are left out; else they are refused.
        shard: Which of how many shares to do, from 1: ``(2, 10)`` does the second tenth of the files.
        memory: How many bytes the process may hold; what cannot be done with them is refused before it begins.
        overwrite: Whether to replace the answers that are there.
        progress: Told how far the work is, and how fast.

    Example:
        >>> import carre
        >>> from tempfile import TemporaryDirectory
        >>> X = np.random.default_rng(0).uniform(size=(200, 2))
        >>> geometry = carre.fit(X, max_steps=20, width=16, bandwidth=0.1, random_state=0)
        >>> with TemporaryDirectory() as folder:
        ...     done = carre.map_rows(geometry, X, Path(folder, "out"), what=("dimension", "denoised"))
        ...     done.n_rows, carre.load_table(Path(folder, "out", "array.parquet")).names
        (200, ('row', 'dimension', 'denoised_x0', 'denoised_x1'))
    """
    task = MapTask(
        geometry,
        X,
        out,  # type: ignore[arg-type]
        Asked.of(geometry, what, bandwidth, dimension),
        columns=columns,
        drop=drop,
        keep=tuple(keep),
        drop_missing=drop_missing,
        shard=tuple(shard),  # type: ignore[arg-type]
        memory=memory,
        overwrite=overwrite,
    )
    return task.run(progress)
