"""Rows from anywhere, read in blocks: arrays on disk, shards, AnnData, folders of images, datasets of PyTorch."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from carre.boundary import ArgumentError, as_array, as_dense
from carre.data._parquet import PARQUET, pieces_of_parquet
from carre.data._pieces import Piece, pieces_of_array, pieces_of_npy, rows_at_once
from carre.data.frames import matrix_of, opened_anndata
from carre.data.image_dataset import SYMMETRIC, Normalization
from carre.data.image_folders import pieces_of_images
from carre.data.samples import load_samples
from carre.data.table import Choice, Table
from carre.files import AnyPath, MissingFileError, damage, existing_path, needed

_KINDS = (
    "Give an array, a file or a folder of npy or parquet, zarr, AnnData, a Dataset, a DataLoader, or a function that "
    "returns batches"
)
_ROWS = "have rows: shape (n, D), or (n, C, H, W) for images"
_WITHOUT_NAMES = "be left out for what has no columns to choose from"
_ANNDATA, _NPY, _OF_ZARR = ".h5ad", ".npy", ("zarr.json", ".zarray")


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows that were read together.

    Attributes:
        values: The rows, flat, in float32 or float64.
        shard: The file that they are of, or the name of the source.
        rows: Their numbers in it, from 0.
        other: What was asked for beside them, by name.

    Example:
        >>> block = next(open_source(np.eye(3)).blocks())
        >>> block.rows, block.shard
        (array([0, 1, 2]), 'array')
    """

    values: np.ndarray
    shard: str
    rows: np.ndarray
    other: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """Rows that are read in blocks, as often as they are needed; all of them are never held.

    `open_source` makes one of whatever holds rows, and `carre.fit` takes it.

    Attributes:
        name: What it is called.
        pieces: Its parts, each of which can be read by itself, in any order; none of a stream.
        stream: Begins a new pass through a stream of batches; None where there are pieces.
        dim: Numbers of each row.
        names: Of the columns, where they have any.
        sample_shape: Channels, height and width of images; None for tables.
        normalization: What makes values of the pixels of image files; None where values are taken as they are.
        n_rows: How many rows there are; None where only reading them tells.
        drop_missing: Whether rows with missing cells are left out.
        left_out: Columns that are no coordinates, and why.

    Example:
        >>> source = open_source(np.arange(10.0).reshape(5, 2))
        >>> source
        Source('array', n=5, dim=2)
        >>> [block.values.shape for block in source.blocks()]
        [(5, 2)]
    """

    name: str
    pieces: tuple[Piece, ...] = ()
    stream: Callable[[], Iterator[Any]] | None = None
    dim: int = 0
    names: tuple[str, ...] | None = None
    sample_shape: tuple[int, int, int] | None = None
    normalization: Normalization | None = None
    n_rows: int | None = None
    drop_missing: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        what = f"dim={self.dim}" if self.sample_shape is None else f"sample_shape={self.sample_shape}"
        return f"Source({self.name!r}, n={'unknown' if self.n_rows is None else self.n_rows}, {what})"

    @property
    def limits(self) -> str:
        """What it cannot promise, in a sentence; empty where all is well.

        Example:
            >>> open_source(lambda: iter([np.zeros((2, 3))])).limits
            'its length is known only after a pass, and its order is its own: it cannot be shuffled'
        """
        if self.stream is None:
            return ""
        length = "its length is known only after a pass, and " if self.n_rows is None else ""
        return f"{length}its order is its own: it cannot be shuffled"

    def blocks(
        self,
        *,
        order: np.random.Generator | None = None,
        part: tuple[int, int] = (0, 1),
        keep: Sequence[str] = (),
    ) -> Iterator[Block]:
        """Read the rows, block by block, in one pass.

        Args:
            order: Shuffles the pieces; a stream has an order of its own.
            part: Which of how many equal parts to read, as for processes that share the work: of pieces every n-th, of
                a stream every n-th batch.
            keep: Columns of shards to read beside the coordinates.

        Raises:
            ArgumentError: A row is not finite, or of another length than the first.
        """
        which, count = part
        if self.stream is not None:
            batches = (batch for i, batch in enumerate(_batched(self.stream())) if i % count == which)
            start = 0
            for batch in batches:
                yield from self._checked(batch, self.name, start, {})
                start += len(batch)
            return
        places = np.arange(len(self.pieces))
        for place in (places if order is None else order.permutation(places))[which::count]:
            piece = self.pieces[place]
            start = piece.first
            for values, other in piece.read(tuple(keep)):
                yield from self._checked(values, piece.shard, start, other)
                start += len(values)

    def of_shard(self, shard: str) -> Source:
        """Return the rows of one of its files."""
        some = tuple(piece for piece in self.pieces if piece.shard == shard)
        return replace(self, name=shard, pieces=some, n_rows=sum(piece.n_rows for piece in some))

    @property
    def shards(self) -> dict[str, int]:
        """The files that the rows lie in, in order, with the number of rows of each; none of a stream."""
        found: dict[str, int] = {}
        for piece in self.pieces:
            found[piece.shard] = found.get(piece.shard, 0) + piece.n_rows
        return found

    def _checked(self, values: Any, shard: str, start: int, other: Mapping[str, np.ndarray]) -> Iterator[Block]:
        """Bring rows to one form, and refuse what is no row."""
        array = np.asarray(as_dense(values, self.name))
        if self.normalization is not None:
            array = self.normalization.encode(array)
        array = array.reshape(len(array), -1)
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float32 if array.dtype in (np.float16, np.uint8, np.int8, np.bool_) else np.float64)
        if array.shape[1] != self.dim:
            must = f"have {self.dim:,} numbers in each row, as at its beginning"
            raise ArgumentError("X", must, got=f"{array.shape[1]:,} in row {start:,} of {shard}")
        rows = np.arange(start, start + len(array))
        if not math.isfinite(float(array.sum(dtype=np.float64))):
            is_whole = np.isfinite(array).all(1)
            if not (is_whole.all() or (self.drop_missing and not np.isinf(array).any())):
                self._refuse(array, is_whole, shard, start)
            array, rows = array[is_whole], rows[is_whole]
            other = {name: column[is_whole] for name, column in other.items()}
        if len(array):
            yield Block(array, shard, rows, other)

    def _refuse(self, array: np.ndarray, is_whole: np.ndarray, shard: str, start: int) -> None:
        """Say which cell is missing or infinite."""
        row = int(is_whole.argmin())
        column = int(np.isfinite(array[row]).argmin())
        called = column if self.names is None else repr(self.names[column])
        what = "missing" if np.isnan(array[row, column]) else "infinite"
        got = f"row {start + row:,} (from 0) of {shard}, whose column {called} is {what}"
        remedy = "Use drop_missing (--drop-missing) to leave such rows out" if what == "missing" else "Mend that row"
        raise ArgumentError("X", "be finite; it contains NaN or infinity", got=got, remedy=remedy)


def open_source(
    given: Any,
    *,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] | None = None,
    key: str | None = None,
    size: int | None = None,
    drop_missing: bool = False,
) -> Source:
    """Make a source of whatever holds rows, without reading more of it than its beginning.

    Args:
        given: A path: of an npy, a parquet file, a zarr array, a file of AnnData (``cells.h5ad::X_pca``), any other
            table, a folder of npy or parquet shards, or of images. Or an object: an array, also of zarr or h5py, an
            AnnData, a dataset of PyTorch with a length or without, a ``DataLoader``, or a function that begins a new
            pass whenever it is called, and returns batches. Of pairs, as of data and labels, the first is taken.
        columns: The coordinates, by name or number, of shards.
        drop: Columns of shards that are no coordinates.
        key: Which matrix of an AnnData.
        size: Height and width to bring image files to.
        drop_missing: Whether rows are left out of which a coordinate is missing.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for i in range(3):
        ...         np.save(Path(folder, f"part{i}.npy"), np.full((4, 2), i))
        ...     source = open_source(folder)
        ...     source.n_rows, [block.values[0, 0].item() for block in source.blocks()], list(source.shards)
        (12, [0.0, 1.0, 2.0], ['part0.npy', 'part1.npy', 'part2.npy'])
    """
    if isinstance(given, Source):
        return given
    if isinstance(given, str | Path):
        path, _, chosen = str(given).partition("::")
        if not path or "\0" in path or not os.path.exists(os.path.expanduser(path)):
            raise MissingFileError("X", "be the path of something that is there", got=repr(given), remedy=_KINDS)
        place, options = existing_path(path, _KINDS), {"columns": columns, "drop": drop, "drop_missing": drop_missing}
        source = _of_path(place, key or chosen or None, size, options)
    else:
        if columns is not None or drop is not None:
            raise ArgumentError("columns and drop", _WITHOUT_NAMES, got=f"them for a {type(given).__name__}")
        source = _of_object(given, key)
    return replace(source, drop_missing=drop_missing)


def is_in_parts(path: AnyPath) -> bool:
    """Say whether a path holds rows that are read in blocks, as there may be any number: shards, or an array of zarr.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "part.npy"), np.eye(2))
        ...     is_in_parts(folder), is_in_parts(Path(folder, "part.npy"))
        (True, False)
    """
    place = Path(path).expanduser()
    if not place.is_dir():
        return False
    return any((place / name).exists() for name in _OF_ZARR) or bool(shards_in(place))


def is_source(given: Any) -> bool:
    """Say whether something has to be read in blocks, or does not hold its rows as an array.

    Example:
        >>> is_source(np.zeros((2, 2))), is_source(lambda: iter([]))
        (False, True)
    """
    if isinstance(given, Source | str | Path) or hasattr(given, "__next__"):
        return True
    if callable(given) and not hasattr(given, "shape"):
        return True
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(given).__mro__}
    return bool(kinds & {"torch.Dataset", "torch.DataLoader", "zarr.Array", "h5py.Dataset"})


def _of_path(place: Path, key: str | None, size: int | None, options: dict[str, Any]) -> Source:
    """Open a path, with what is told of the columns of a table."""
    suffix, every = place.suffix.lower(), options["columns"] is None and options["drop"] is None
    is_zarr = any((place / name).exists() for name in _OF_ZARR)
    # Of zarr every chunk is a file, of which there may be millions.
    files = [place] if place.is_file() else [] if is_zarr else shards_in(place)
    if not every and (suffix == _ANNDATA or not files):
        raise ArgumentError("columns and drop", _WITHOUT_NAMES, got=f"them for {place}")
    if suffix == _ANNDATA:
        return _of_array(matrix_of(opened_anndata(place), key, place)[0], place.name)
    if is_zarr:
        zarr = needed("zarr", "Arrays of zarr need zarr", "zarr")
        with damage(f"{place} cannot be read as an array of zarr", "Save or copy it again"):
            return _of_array(zarr.open_array(place, mode="r"), place.name)
    if files and files[0].suffix.lower() in PARQUET:
        choice = Choice(files[0], options["columns"], options["drop"], drop_missing=False)
        pieces, names, left_out = pieces_of_parquet(files, place, choice.indices)
        return replace(_of_pieces(place.name, pieces, (len(names),)), names=names, left_out=left_out)
    if files and files[0].suffix.lower() == _NPY and every:
        return _of_pieces(place.name, *pieces_of_npy(files, place))
    if place.is_dir() and not files:
        return replace(_of_pieces(place.name, *pieces_of_images(place, size)), normalization=SYMMETRIC)
    return _of_table(place, key, size, options)


def _of_table(place: Path, key: str | None, size: int | None, options: dict[str, Any]) -> Source:
    """Read a file that has to be read whole."""
    samples = load_samples(place if key is None else f"{place}::{key}", size=size, **options)
    if isinstance(samples, Table):
        values, other = _with_gaps(samples)
        return replace(_of_array(values, place.name, other), names=samples.names)
    return replace(_of_array(samples.images, place.name), normalization=samples.normalization)


def _with_gaps(table: Table) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    """Put rows where they are in their file, with gaps for those that were left out: all keep their numbers."""
    if table.numbers is None:
        return table.values, table.other
    n_rows = len(table) + len(table.dropped)
    values = np.full((n_rows, table.shape[1]), np.nan, dtype=table.values.dtype)
    values[table.numbers] = table.values
    other = {name: np.zeros(n_rows, dtype=column.dtype) for name, column in table.other.items()}
    for name, column in table.other.items():
        other[name][table.numbers] = column
    return values, other


def shards_in(folder: Path) -> list[Path]:
    """List the files of npy or parquet in a folder and those below it, by name; hidden ones are none.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "b.npy"), np.eye(2)), np.save(Path(folder, "a.npy"), np.eye(2))
        ...     [file.name for file in shards_in(Path(folder))]
        (None, None)
        ['a.npy', 'b.npy']
    """
    found = [
        file
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in (_NPY, *PARQUET)
        and file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    ]
    if len({file.suffix.lower() == _NPY for file in found}) > 1:
        must = "hold shards of one kind, npy or parquet"
        raise ArgumentError("folder", must, got=f"both in {folder}", remedy="Move them apart")
    return found


def _of_object(given: Any, key: str | None) -> Source:
    if hasattr(given, "obsm") and hasattr(given, "layers"):
        return _of_array(matrix_of(given, key, Path(key or "X"))[0], key or "X")
    if len(getattr(given, "shape", ())) > 1 and hasattr(given, "__getitem__"):
        return _of_array(given, getattr(given, "name", None) or "array")
    name = type(given).__name__
    if hasattr(given, "__next__"):
        must = "be something that can be read more than once"
        raise ArgumentError("X", must, got=f"a {name}", remedy="Give the function that makes it")
    is_function = callable(given) and not hasattr(given, "forward")
    if is_function and not hasattr(given, "__getitem__") and not hasattr(given, "__iter__"):
        return _of_stream(partial(_called, given), getattr(given, "__name__", name), None)
    if isinstance(given, Mapping) or hasattr(given, "shape"):
        raise ArgumentError("X", _ROWS, got=f"a {name}", remedy=_KINDS)
    if hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        return _of_dataset(given, name)
    if hasattr(given, "__iter__"):
        return _of_stream(partial(iter, given), name, _length(given))
    raise ArgumentError("X", "hold rows", got=f"a {name}", remedy=_KINDS)


def _called(function: Callable[[], Any]) -> Iterator[Any]:
    """Begin a pass through the batches that a function returns."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        must = "be a function without arguments, which returns batches"
        raise ArgumentError("X", must, got=repr(function), remedy=_KINDS) from error
    found = function()
    if not isinstance(found, Iterable):
        must, got = "return batches, one after the other, each time it is called", f"a {type(found).__name__}"
        raise ArgumentError("X", must, got=got, remedy="Use yield in it, or return an iterator")
    return iter(found)


def _length(given: Any) -> int | None:
    """Ask for the number of rows: of a loader that of its dataset."""
    dataset = getattr(given, "dataset", None)
    try:
        return None if dataset is None or getattr(given, "drop_last", False) else len(dataset)
    except TypeError:
        return None


def _of_array(array: Any, name: str, other: Mapping[str, np.ndarray] = MappingProxyType({})) -> Source:
    """Read rows of an array, which may lie anywhere, some at a time."""
    n_rows, *shape = array.shape
    if n_rows == 0 or 0 in shape or len(shape) > 3:
        raise ArgumentError("X", _ROWS, got=tuple(array.shape))
    at_most = rows_at_once(math.prod(shape))
    pieces = pieces_of_array(lambda some: _dense(array[some]), n_rows, name, at_most=at_most, other=other)
    return _of_pieces(name, pieces, shape)


def _dense(rows: Any) -> Any:
    # Of a sparse matrix on disk, some rows.
    return rows.toarray() if hasattr(rows, "toarray") else rows


def _of_pieces(name: str, pieces: tuple[Piece, ...], shape: Sequence[int]) -> Source:
    """Make a source of pieces whose rows have a shape."""
    images = (1, *shape) if len(shape) == 2 else tuple(shape) if len(shape) == 3 else None
    n_rows = sum(piece.n_rows for piece in pieces)
    if n_rows == 0:
        raise ArgumentError("X", "have rows", got=f"none in {name}")
    return Source(name, pieces, dim=math.prod(shape), sample_shape=images, n_rows=n_rows)  # type: ignore[arg-type]


def _of_dataset(dataset: Any, name: str) -> Source:
    """Read a dataset that knows its length, item by item."""
    n_rows = len(dataset)
    if n_rows == 0:
        raise ArgumentError("X", "have rows", got=f"a {name} of length 0")
    first = _array_of(dataset[0])

    def read(some: slice) -> np.ndarray:
        return np.stack([_array_of(dataset[i]) for i in range(some.start, some.stop)])

    return _of_pieces(name, pieces_of_array(read, n_rows, name, at_most=rows_at_once(first.size)), first.shape)


def _of_stream(begin: Callable[[], Iterator[Any]], name: str, n_rows: int | None) -> Source:
    """Read batches, or single items, as they come."""
    first = next(_batched(begin()), None)
    if first is None or first.size == 0:
        raise ArgumentError("X", "have rows", got=f"a {name} without any")
    shape: Any = first.shape[1:]
    images = shape if len(shape) == 3 else None
    return Source(name, stream=begin, dim=math.prod(shape), sample_shape=images, n_rows=n_rows)


def _batched(items: Iterator[Any]) -> Iterator[np.ndarray]:
    """Make batches of batches, or of items: which they are, the number of axes says."""
    kept: list[np.ndarray] = []
    for item in items:
        array = _array_of(item)
        # One row has one axis, or three as an image; batches have one more.
        if array.ndim in (2, 4):
            yield array
            continue
        kept.append(array)
        if len(kept) >= rows_at_once(array.size):
            yield np.stack(kept)
            kept = []
    if kept:
        yield np.stack(kept)


def _array_of(item: Any) -> np.ndarray:
    """Take the data of an item or a batch: of a pair the first; of a dictionary nobody knows which."""
    if isinstance(item, Mapping):
        must, got = "yield arrays, or pairs whose first is one", f"a dictionary of {', '.join(map(str, item))}"
        remedy = "Give a function that yields the one to learn: lambda: (batch['…'] for batch in X)"
        raise ArgumentError("X", must, got=got, remedy=remedy)
    if isinstance(item, list | tuple) and len(item) and len(getattr(item[0], "shape", ())) > 0:
        item = item[0]
    array = as_array(as_dense(item, "X"), "X")
    if not 1 <= array.ndim <= 4 or array.size == 0:
        must = "yield rows of shape (D,), images (C, H, W), or batches of either"
        raise ArgumentError("X", must, got=f"shape {array.shape}")
    return array
