"""Tables: points as the rows of a file, with the columns that are not coordinates beside them; read and written."""

from __future__ import annotations

import csv
import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Float

from carre.boundary import ArgumentError, as_array, listed
from carre.data._delimited import INDEX, CellError, as_written, read_delimited
from carre.data._parquet import PARQUET, import_pyarrow, read_parquet
from carre.data.arrays import array_shapes, mapped_array, read_arrays
from carre.files import AnyPath, DamagedFileError, check_output, existing_file, written_whole

NUMPY = (".npy", ".npz")
_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_REMEDY = f"Give a table: {', '.join((*_TEXT[:3], *PARQUET[:1], *NUMPY))}, or one of the first three with .gz"
_ROWS_AT_ONCE = 2**16
# Where rows are left out, the numbers of the others stand in a column of this name.
_ROW = "row"
# With how many names one that is not there is compared.
_COMPARED = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Points, one per row, and what else was known of them.

    `MetricMatching.fit` takes it as it is, and remembers the names; other methods find columns by their names then.

    Attributes:
        values: The coordinates.
        names: Their names, where the file has any.
        other: The columns that are no coordinates: text, and what was not chosen.
        path: Where it was read.
        dropped: The rows that were left out for want of cells: numbers of lines in text files, else rows from 0.
        numbers: The numbers of the rows in the file, from 0, where some were left out; None where none was.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "plants.csv").write_text("length,width,kind\\n1.5,0.2,a\\n1.3,0.4,b\\n")
        ...     plants = load_table(Path(folder, "plants.csv"))
        >>> plants
        Table('plants', n=2, names=('length', 'width'), other=('kind',))
        >>> plants.values
        array([[1.5, 0.2],
               [1.3, 0.4]])
    """

    values: Float[np.ndarray, "n dim"]
    names: tuple[str, ...] | None = None
    other: Mapping[str, np.ndarray] = field(default_factory=dict)
    path: Path = Path("table")
    dropped: tuple[int, ...] = ()
    numbers: np.ndarray | None = None

    @property
    def name(self) -> str:
        """What to call it in titles."""
        return self.path.name.partition(".")[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and of coordinates."""
        n, dim = self.values.shape
        return n, dim

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        names = f"dim={self.shape[1]}" if self.names is None else f"names={self.names}"
        return f"Table({self.name!r}, n={len(self)}, {names}, other={tuple(self.other)})"


def load_table(
    path: AnyPath,
    *,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] | None = None,
    key: str | None = None,
    drop_missing: bool = False,
) -> Table:
    """Read points from a table: csv, tsv or txt (also with .gz), parquet, npy or npz.

    Text files are in UTF-8; whether cells are separated by commas, tabs, semicolons, bars or spaces, and whether there
    is a header, is found out. A first column without a name, as pandas writes its index, is no coordinate.

    Args:
        path: The file. An npy is not read but mapped into memory. Of an npz the only array with two axes is taken, and
            those with one axis stand beside it.
        columns: The coordinates, by name or by number from 0, in this order; by default all columns of numbers.
        drop: Columns that are no coordinates, by name or number.
        key: Which array of an npz to take; or write ``path::key``.
        drop_missing: Whether rows are left out of which a coordinate is missing: an empty cell, NA, NaN and the like.
            The numbers of the others, from 0, are then in ``other``, as ``row``.

    Raises:
        DamagedFileError: The file is cut off, of another format, or its rows differ in length.
        CellError: A coordinate is missing, or no number.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "plants.csv")
        ...     _ = file.write_text("height,width,kind\\n1.5,2,oak\\n3,0.5,ash\\n")
        ...     load_table(file)
        Table('plants', n=2, names=('height', 'width'), other=('kind',))
    """
    if key is None and isinstance(path, str) and "::" in path and not Path(path).exists():
        path, key = path.rsplit("::", 1)
    file = existing_file(path, _REMEDY)
    if key is not None and file.suffix.lower() != ".npz":
        raise ArgumentError("key", f"be left out for {file}: only an npz has keys", got=repr(key))
    if columns is not None and drop is not None:
        must = "not be given both: what is not among the columns is dropped anyway"
        raise ArgumentError("columns and drop", must)
    choice = Choice(file, columns, drop, drop_missing)
    suffix = "".join(file.suffixes[-2:]).lower() if file.suffix.lower() == ".gz" else file.suffix.lower()
    if suffix in NUMPY:
        return _of_array(*_read_array(file, key), choice)
    if suffix in _TEXT:
        names, columns_of_file, lines = read_delimited(file, choice.indices)
        return _of_columns(names, columns_of_file, choice, lines)
    if suffix in PARQUET:
        return _of_columns(*read_parquet(file), choice)
    raise ArgumentError("path", f"end in one of {', '.join((*_TEXT, *PARQUET, *NUMPY))}", got=file, remedy=_REMEDY)


@dataclass(frozen=True)
class Choice:
    """Which columns of a file are to be coordinates."""

    file: Path
    columns: Sequence[str | int] | None
    drop: Sequence[str | int] | None
    drop_missing: bool

    def indices(self, names: Sequence[str] | None, n_columns: int) -> list[int]:
        """Return the numbers of the columns that may be coordinates, in the order that was asked for."""
        twice = next((name for name, count in Counter(names or ()).items() if count > 1), None)
        if twice is not None:
            must = "must have different names in its header"
            raise DamagedFileError(f"{self.file} {must}; {twice!r} occurs twice. Rename one")
        places = {name: i for i, name in enumerate(names or ())}
        if self.columns is not None:
            found = [self._index(column, places, n_columns, "columns") for column in self.columns]
            if not found or len(set(found)) < len(found):
                raise ArgumentError("columns", "be different ones, at least one", got=list(self.columns))
            return found
        left_out = {self._index(column, places, n_columns, "drop") for column in self.drop or ()}
        # The index that pandas writes.
        left_out |= {0} if names and names[0] == INDEX else set()
        return [i for i in range(n_columns) if i not in left_out]

    def _index(self, column: str | int, places: Mapping[str, int], n_columns: int, argument: str) -> int:
        if column in places:
            return places[str(column)]
        if str(column).isdecimal() and int(column) < n_columns:
            return int(column)
        if str(column).lstrip("-").isdecimal() or not places:
            known = "" if places else "; it has no header with names"
            must = f"be numbers from 0 to {n_columns - 1} for {self.file}{known}"
            raise ArgumentError(argument, must, got=repr(str(column)))
        near = difflib.get_close_matches(str(column), [*places][:_COMPARED], 3, 0.5)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"There are {listed([*places])}"
        must = f"be among the columns of {self.file}; there is no {str(column)!r}"
        raise ArgumentError(argument, must, remedy=hint)


def _of_columns(
    names: list[str] | None, columns: list[np.ndarray], choice: Choice, lines: np.ndarray | None = None
) -> Table:
    """Make a table of columns that each have their own type."""
    wanted = choice.indices(names, len(columns))
    called = names or [str(i) for i in range(len(columns))]
    text = {i for i in wanted if columns[i].dtype.kind not in "fiub"}
    if text and choice.columns is not None:
        first = next(i for i in wanted if i in text)
        example = next((cell for cell in columns[first] if cell), "")
        held = f"text, like {str(example)!r}" if example else "nothing: every cell is missing"
        must = f"hold numbers; {called[first]!r} of {choice.file} holds {held}"
        raise ArgumentError("columns", must, remedy="Choose others")
    numeric = [i for i in wanted if i not in text]
    if not numeric:
        raise ArgumentError("path", f"hold a column of numbers; {choice.file} has only {listed(called)}, without any")
    values, taken_out = np.stack([columns[i] for i in numeric], axis=1), set(numeric)
    other = {called[i]: column for i, column in enumerate(columns) if i not in taken_out}
    taken = None if names is None else tuple(names[i] for i in numeric)
    return checked(values, taken, other, choice.file, lines, drop_missing=choice.drop_missing)


def _of_array(values: np.ndarray, other: dict[str, np.ndarray], choice: Choice) -> Table:
    """Make a table of an array, which stays as it is if all columns are taken."""
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        remedies = {0: "A single number is no table", 2: "Convert it to numbers"}
        remedy = remedies.get(values.ndim, "Reshape it with array.reshape(len(array), -1)")
        must = f"hold an array of numbers of shape (n, D); that of {choice.file} is {values.dtype} of shape"
        raise ArgumentError("path", f"{must} {values.shape}", remedy=remedy)
    wanted = choice.indices(None, values.shape[1])
    rest = {str(i): values[:, i] for i in sorted({*range(values.shape[1])} - {*wanted})}
    taken = values if wanted == list(range(values.shape[1])) else values[:, wanted]
    return checked(taken, None, {**rest, **other}, choice.file, drop_missing=choice.drop_missing)


def checked(
    values: np.ndarray,
    names: tuple[str, ...] | None,
    other: dict[str, np.ndarray],
    file: Path,
    lines: np.ndarray | None = None,
    *,
    drop_missing: bool,
) -> Table:
    """Refuse what is not finite, and say where it is; leave rows with missing cells out, where that was asked."""
    if 0 in values.shape:
        raise ArgumentError("path", f"hold at least one row and one column; {file} has shape {values.shape}")
    is_usual = values.dtype.kind == "f" and values.dtype.itemsize <= 8
    # What is in the order of this machine, a mapped file for example, stays as it is.
    values = values.astype(values.dtype.newbyteorder("=") if is_usual else np.float64, copy=False)
    places = np.arange(len(values)) if lines is None else lines
    is_whole, n_missing = np.ones(len(values), dtype=bool), 0
    for start in range(0, len(values), _ROWS_AT_ONCE):
        part = values[start : start + _ROWS_AT_ONCE]
        if np.isfinite(part.sum()):
            continue
        missing = np.isnan(part)
        is_whole[start : start + len(part)], n_missing = ~missing.any(1), n_missing + int(missing.sum())
        if np.isinf(part).any():
            row, column = np.argwhere(np.isinf(part))[0].tolist()
            raise CellError(f"{_where(int(places[start + row]), column, names, lines)} of {file} is infinite")
    if is_whole.all():
        return Table(values, names, other, file)
    dropped = tuple(places[~is_whole].tolist())
    if not drop_missing:
        column = int(np.isnan(values[is_whole.argmin()]).argmax())
        cell = f"{_where(dropped[0], column, names, lines)} of {file} is missing"
        raise CellError(cell + _how_many(n_missing, dropped, lines), is_missing=True)
    if not is_whole.any():
        raise ArgumentError("path", f"hold a row in which no cell is missing; {file} has none. Leave columns out")
    other = {name: column[is_whole] for name, column in other.items()}
    numbers = np.flatnonzero(is_whole)
    if _ROW not in {*(names or ()), *other}:
        other[_ROW] = numbers
    return Table(values[is_whole], names, other, file, dropped, numbers)


def _where(place: int, column: int, names: tuple[str, ...] | None, lines: np.ndarray | None) -> str:
    """Say which cell is meant."""
    row = f"row {place} (from 0)" if lines is None else f"line {place}"
    return f"{row}, column {column if names is None else repr(names[column])}"


def _how_many(n_missing: int, dropped: tuple[int, ...], lines: np.ndarray | None) -> str:
    """Count all cells that are missing, and say where they are."""
    if n_missing == 1:
        return ""
    rows = f"{len(dropped):,} row{'s' * (len(dropped) > 1)}"
    named = f"{'number' if lines is None else 'line'}{'s' * (len(dropped) > 1)}"
    named += f" {listed([str(place) for place in dropped])}"
    return f", as {'is' if n_missing == 2 else 'are'} {n_missing - 1:,} more; all are in {rows}, {named}"


def _read_array(file: Path, key: str | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Read the array of coordinates, and those with one axis beside it."""
    shapes = array_shapes(file)
    if list(shapes) == [""]:
        return mapped_array(file), {}
    if not shapes:
        raise ArgumentError("path", f"hold an array of numbers of shape (n, D); {file} holds no arrays")
    listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if key is None:
        tables = [name for name, shape in shapes.items() if len(shape) == 2]
        if len(tables) != 1:
            must = f"say which array of {file} to take: {listed}"
            raise ArgumentError("key", must, remedy=f"Write {file}::key")
        key = tables[0]
    if key not in shapes:
        raise ArgumentError("key", f"be one of those of {file}: {listed}", got=repr(key))
    beside = [name for name, shape in shapes.items() if name != key and shape == shapes[key][:1]]
    arrays = read_arrays(file, only=(key, *beside))
    return arrays[key], {name: arrays[name] for name in beside}


def write_table(path: AnyPath, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length to a file; one that is there is replaced when the new one is complete.

    Args:
        path: Its ending says the format: .csv, .tsv, .parquet, .json (an object of lists), .npz, or .npy for a single
            array. Numbers are written with all their digits.
        columns: Arrays by name. With several axes they go into .npy, .npz and .json only.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_table(Path(folder, "points.csv"), {"x": np.array([0.1, 1 / 3]), "kind": np.array(["a", "b"])})
        ...     print(Path(folder, "points.csv").read_text().strip())
        x,kind
        0.1,a
        0.3333333333333333,b
    """
    file = check_output(path, WRITTEN)
    suffix = file.suffix.lower()
    arrays = {str(name): as_array(column, str(name)) for name, column in columns.items()}
    lengths = {name: len(column) if column.ndim else 0 for name, column in arrays.items()}
    if not arrays or len(set(lengths.values())) > 1:
        raise ArgumentError("columns", "be arrays of equal length, at least one", got=f"the lengths {lengths}")
    if suffix == ".npy" and len(arrays) > 1:
        remedy = "Write .npz instead"
        raise ArgumentError("columns", "be a single array for .npy", got=", ".join(arrays), remedy=remedy)
    deep = next((name for name, column in arrays.items() if column.ndim != 1), None)
    if suffix in (".csv", ".tsv", ".parquet") and deep is not None:
        must = f"have one axis for csv, tsv and parquet; {deep!r} has shape {arrays[deep].shape}"
        raise ArgumentError("columns", must, remedy="Write .npy or .npz, or a column for each part")
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(file) as partial:
        _WRITERS[suffix](partial, arrays)


def _write_text(file: Path, columns: Mapping[str, np.ndarray]) -> None:
    # Numbers with the digits that their own type needs: 0.1 in single precision is not 0.10000000149.
    single = {name for name, column in columns.items() if column.dtype.kind == "f" and column.dtype.itemsize < 8}
    cells = [(column.astype(np.str_) if name in single else column).tolist() for name, column in columns.items()]
    for place, column in enumerate(columns.values()):
        if column.dtype.kind not in "fiub":
            cells[place] = [as_written(cell) if isinstance(cell, str) else cell for cell in cells[place]]
    with file.open("w", encoding="utf-8", newline="") as stream:
        # Told that lines end in both, Python quotes cells with either; they end in a new line here.
        lines = SimpleNamespace(write=lambda line: stream.write(f"{line[:-2]}\n"))
        writer = csv.writer(lines, delimiter="\t" if file.suffix.lower() == ".tsv" else ",", lineterminator="\r\n")
        writer.writerow(map(as_written, columns))
        writer.writerows(zip(*cells, strict=True))


def _write_parquet(file: Path, columns: Mapping[str, np.ndarray]) -> None:
    arrow, parquet = import_pyarrow(), import_pyarrow(".parquet")
    parquet.write_table(arrow.table({name: _as_arrow(column, arrow) for name, column in columns.items()}), file)


def write_batches(file: Path, batches: Iterable[Mapping[str, np.ndarray]], *, group: int) -> int:
    """Write columns as Parquet while they come, in groups of at least so many rows; return the number of all rows.

    What is written depends on the columns alone: the same ones give the same bytes.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "squares.parquet")
        ...     n = write_batches(file, ({"row": np.arange(i, i + 2)} for i in (0, 2)), group=3)
        ...     n, load_table(file).values[:, 0].tolist()
        (4, [0.0, 1.0, 2.0, 3.0])
    """
    arrow, parquet = import_pyarrow(), import_pyarrow(".parquet")
    waiting: list[Any] = []
    n_rows = n_waiting = 0
    with ExitStack() as stack:
        writer: Any = None
        for batch in batches:
            table = arrow.table({name: _as_arrow(column, arrow) for name, column in batch.items()})
            if writer is None:
                text = [name for name, column in batch.items() if column.dtype.kind not in "fiub"]
                writer = stack.enter_context(parquet.ParquetWriter(file, table.schema, use_dictionary=text))
            waiting.append(table)
            n_rows, n_waiting = n_rows + len(table), n_waiting + len(table)
            if n_waiting >= group:
                writer.write_table(arrow.concat_tables(waiting), row_group_size=n_waiting)
                waiting, n_waiting = [], 0
        if n_waiting:
            writer.write_table(arrow.concat_tables(waiting), row_group_size=n_waiting)
    return n_rows


def _as_arrow(column: np.ndarray, arrow: Any) -> Any:
    return arrow.array(column.tolist() if column.dtype.kind in "UO" else column)


def _write_json(file: Path, columns: Mapping[str, np.ndarray]) -> None:
    text = json.dumps({name: column.tolist() for name, column in columns.items()}, ensure_ascii=False, allow_nan=False)
    file.write_text(text + "\n", encoding="utf-8")


def _write_arrays(file: Path, columns: Mapping[str, np.ndarray]) -> None:
    # Into an open file: NumPy would add its ending to a name that ends in .NPY.
    with file.open("wb") as stream:
        if file.suffix.lower() == ".npy":
            np.save(stream, next(iter(columns.values())), allow_pickle=False)
        else:
            np.savez(stream, allow_pickle=False, **columns)


_WRITERS: dict[str, Callable[[Path, Mapping[str, np.ndarray]], None]] = {
    ".csv": _write_text,
    ".tsv": _write_text,
    ".parquet": _write_parquet,
    ".json": _write_json,
    ".npy": _write_arrays,
    ".npz": _write_arrays,
}
# What the name of a table that is written may end in.
WRITTEN = tuple(_WRITERS)
