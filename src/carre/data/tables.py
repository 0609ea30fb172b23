"""Tables: points as the rows of a file, with the columns that are not coordinates beside them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float

from carre.data.arrays import read_arrays
from carre.data.delimited import read_delimited
from carre.data.files import AnyPath, DamagedFileError, existing_file, reason
from carre.data.headers import array_shapes
from carre.data.parquet import read_parquet

TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
PARQUET = (".parquet", ".pq")
NUMPY = (".npy", ".npz")
_REMEDY = f"Give a table: {', '.join((*TEXT[:3], *PARQUET[:1], *NUMPY))}, or one of the first three with .gz"
_INDEX = "index"
_ROWS_AT_ONCE = 2**16
_MOST_NAMES = 8


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Points, one per row, and what else was known of them.

    `MetricMatching.fit` takes it as it is, and remembers the names; other methods find columns by their names then.

    Attributes:
        values: The coordinates.
        names: Their names, where the file has any.
        other: The columns that are no coordinates: text, and what was not chosen.
        path: Where it was read.

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

    Raises:
        DamagedFileError: The file is cut off, of another format, or its rows differ in length.

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
        raise ValueError(f"key must be left out for {file}: only an npz has keys; got {key!r}")
    if columns is not None and drop is not None:
        raise ValueError("columns and drop must not be given both: what is not among the columns is dropped anyway")
    chosen = _Choice(file, columns, drop)
    suffix = "".join(file.suffixes[-2:]).lower() if file.suffix.lower() == ".gz" else file.suffix.lower()
    if suffix in NUMPY:
        return _of_array(*_read_array(file, key), chosen)
    if suffix in TEXT:
        return _of_columns(*read_delimited(file, chosen.are_wanted), chosen)
    if suffix in PARQUET:
        return _of_columns(*read_parquet(file), chosen)
    raise ValueError(f"path must end in one of {', '.join((*TEXT, *PARQUET, *NUMPY))}; got {file}. {_REMEDY}")


@dataclass(frozen=True)
class _Choice:
    """Which columns of a file are to be coordinates."""

    file: Path
    columns: Sequence[str | int] | None
    drop: Sequence[str | int] | None

    def indices(self, names: Sequence[str] | None, n_columns: int) -> list[int]:
        """Return the numbers of the columns that may be coordinates, in the order that was asked for."""
        if self.columns is not None:
            found = [self._index(column, names, n_columns, "columns") for column in self.columns]
            if not found or len(set(found)) < len(found):
                raise ValueError(f"columns must be different ones, at least one; got {list(self.columns)}")
            return found
        left_out = {self._index(column, names, n_columns, "drop") for column in self.drop or ()}
        # The index that pandas writes.
        left_out |= {0} if names and names[0] == _INDEX else set()
        return [i for i in range(n_columns) if i not in left_out]

    def are_wanted(self, names: list[str] | None, n_columns: int) -> list[bool]:
        """Say of each column whether it must be numbers if most of it is."""
        indices = set(self.indices(names, n_columns))
        return [i in indices for i in range(n_columns)]

    def _index(self, column: str | int, names: Sequence[str] | None, n_columns: int, argument: str) -> int:
        if names is not None and column in names:
            return names.index(str(column))
        if str(column).isdecimal() and int(column) < n_columns:
            return int(column)
        if str(column).lstrip("-").isdecimal() or names is None:
            known = "" if names is not None else "; it has no header with names"
            raise ValueError(
                f"{argument} must be numbers from 0 to {n_columns - 1} for {self.file}{known}; got {str(column)!r}"
            )
        near = difflib.get_close_matches(str(column), names, 3, 0.5)
        listed = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"There are {listed}"
        raise ValueError(f"{argument} must be among the columns of {self.file}; there is no {str(column)!r}. {hint}")


def _of_columns(names: list[str] | None, columns: list[np.ndarray], chosen: _Choice) -> Table:
    """Make a table of columns that each have their own type."""
    wanted = chosen.indices(names, len(columns))
    called = names or [str(i) for i in range(len(columns))]
    text = [i for i in wanted if columns[i].dtype.kind not in "fiub"]
    if text and chosen.columns is not None:
        example = next((cell for cell in columns[text[0]] if cell), "")
        raise ValueError(
            f"columns must hold numbers; {called[text[0]]!r} of {chosen.file} holds text, like {str(example)!r}. "
            "Choose others"
        )
    numeric = [i for i in wanted if i not in text]
    if not numeric:
        raise ValueError(
            f"path must hold a column of numbers; {chosen.file} has only {', '.join(called[:_MOST_NAMES])}, without any"
        )
    values = np.stack([columns[i] for i in numeric], axis=1)
    other = {called[i]: column for i, column in enumerate(columns) if i not in numeric}
    return _checked(values, None if names is None else tuple(names[i] for i in numeric), other, chosen.file)


def _of_array(values: np.ndarray, other: dict[str, np.ndarray], chosen: _Choice) -> Table:
    """Make a table of an array, which stays as it is if all columns are taken."""
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        remedy = "Reshape it with array.reshape(len(array), -1)" if values.ndim != 2 else "Convert it to numbers"
        remedy = remedy if values.ndim else "A single number is no table"
        raise ValueError(
            f"path must hold an array of numbers of shape (n, D); that of {chosen.file} is {values.dtype} of shape "
            f"{values.shape}. {remedy}"
        )
    wanted = chosen.indices(None, values.shape[1])
    rest = {str(i): values[:, i] for i in range(values.shape[1]) if i not in wanted}
    taken = values if wanted == list(range(values.shape[1])) else values[:, wanted]
    return _checked(taken, None, {**rest, **other}, chosen.file)


def _read_array(file: Path, key: str | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Read the array of coordinates, and those with one axis beside it."""
    shapes = array_shapes(file)
    if list(shapes) == [""]:
        try:
            return np.load(file, mmap_mode="r", allow_pickle=False), {}
        except (ValueError, OSError) as error:
            why = "it holds objects" if "object" in str(error) else reason(error)
            raise DamagedFileError(
                f"{file} cannot be read as numbers ({why}); save it again with numpy.save"
            ) from error
    if not shapes:
        raise ValueError(f"path must hold an array of numbers of shape (n, D); {file} holds no arrays")
    listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if key is None:
        tables = [name for name, shape in shapes.items() if len(shape) == 2]
        if len(tables) != 1:
            raise ValueError(f"key must say which array of {file} to take: {listed}. Give key=…, or write {file}::key")
        key = tables[0]
    if key not in shapes:
        raise ValueError(f"key must be one of those of {file}: {listed}; got {key!r}")
    beside = [name for name, shape in shapes.items() if name != key and shape == shapes[key][:1]]
    arrays = read_arrays(file, only=(key, *beside))
    return arrays[key], {name: arrays[name] for name in beside}


def _checked(values: np.ndarray, names: tuple[str, ...] | None, other: dict[str, np.ndarray], file: Path) -> Table:
    """Refuse what is not finite, and say where it is; text files were checked line by line."""
    if 0 in values.shape:
        raise ValueError(f"path must hold at least one row and one column; {file} has shape {values.shape}")
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    for start in range(0, len(values), _ROWS_AT_ONCE):
        bad = ~np.isfinite(values[start : start + _ROWS_AT_ONCE])
        if bad.any():
            row, column = np.argwhere(bad)[0].tolist()
            called = column if names is None else repr(names[column])
            raise ValueError(
                f"row {start + row} (from 0), column {called} of {file} is empty or not finite. Fill it in, remove the "
                "row, or leave the column out (drop)"
            )
    return Table(values, names, other, file)
