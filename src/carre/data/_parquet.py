"""Parquet: whole files as columns, and their groups of rows as pieces that are read one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from carre.boundary import ArgumentError, listed
from carre.data._delimited import INDEX
from carre.data._pieces import Piece, Reader, relative_name, rows_at_once
from carre.files import DamagedFileError, check_memory, check_unpacked, damage, needed

PARQUET = (".parquet", ".pq")
# As pandas stores an index without a name.
_PARQUET_INDEX = "__index_level_0__"
# Enough for a million columns.
_LONGEST_FOOTER = 2**28
# Bytes of a column that are read together: without a bound pyarrow holds those of a whole group of rows.
_AT_A_TIME = 2**16
# From the names of columns, and their number, to those that may be coordinates.
Choose: TypeAlias = Callable[[Sequence[str], int], list[int]]


def read_parquet(file: Path) -> tuple[list[str], list[np.ndarray]]:
    """Read the names and the columns of a file; cells that are missing become NaN in numbers, and "" in text."""
    with _opened(file) as content:
        schema = content.schema.to_arrow_schema()
    # A text that is written once for many cells is held once, until it is known how much room they take.
    texts = [field.name for field in schema if str(field.type).removeprefix("large_") in ("string", "binary")]
    with _opened(file, read_dictionary=texts) as content:
        told, leaves = content.metadata, content.schema
        n_cells = told.num_rows * told.num_columns
        # Of lists, a row may hold any number. What is told of other columns is not asked for: where that is damaged,
        # pyarrow ends the process.
        lists = [k for k in range(told.num_columns) if leaves.column(k).max_repetition_level]
        n_cells += sum(told.row_group(i).column(k).num_values for i in range(told.num_row_groups) for k in lists)
        check_unpacked(file, 8 * n_cells)
        table = content.read()
        names = [INDEX if name == _PARQUET_INDEX else name for name in table.column_names]
        return names, [_from_arrow(table[i], f"{name!r} of {file}") for i, name in enumerate(names)]


@contextmanager
def _opened(file: Path, **options: Any) -> Iterator[Any]:
    """Open a file for reading; what is wrong with it shows up now, or while it is read."""
    arrow, parquet = import_pyarrow(), import_pyarrow(".parquet")
    with damage(f"{file} cannot be read as Parquet", "Save or copy it again", arrow.ArrowException):
        _check_footer(file)
        with parquet.ParquetFile(file, **options) as content:
            yield content


def _from_arrow(column: Any, name: str) -> np.ndarray:
    """Turn a column into numbers, where it holds some, and into text otherwise."""
    arrow, types = import_pyarrow(), import_pyarrow(".types")
    if types.is_decimal(column.type) or (types.is_boolean(column.type) and column.null_count):
        column = column.cast(arrow.float64())
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type):
        numbers: np.ndarray = column.to_numpy()
        return numbers
    if not types.is_dictionary(column.type):
        cells = ["" if cell is None else str(cell) for cell in column.to_pylist()]
        return _as_text(cells, np.arange(len(cells)), name)
    column = column.unify_dictionaries()
    known = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
    # The last one stands for what is missing.
    places = [chunk.indices.cast(arrow.int64()).fill_null(len(known)).to_numpy() for chunk in column.chunks]
    return _as_text([*map(str, known), ""], np.concatenate([np.zeros(0, int), *places]), name)


def _as_text(known: Sequence[str], places: np.ndarray, name: str) -> np.ndarray:
    """Return the text of every cell, of which some are the same; NumPy gives each the room of the longest one."""
    check_memory(4 * len(places) * max(map(len, known), default=0), f"column {name}", "Shorten its longest cell")
    cells: np.ndarray = np.array(known, dtype=np.str_)[places]
    return cells


def import_pyarrow(part: str = "") -> Any:
    """Import pyarrow or a part of it when it is needed."""
    return needed(f"pyarrow{part}", "Parquet files need pyarrow", "data")


def _check_footer(file: Path) -> None:
    """Refuse what claims a list of contents of no sensible length."""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 8))
        n_bytes = int.from_bytes(stream.read(4), "little")
    if n_bytes > _LONGEST_FOOTER:
        raise ValueError(f"its footer should have {n_bytes:,} bytes")


def pieces_of_parquet(
    files: Sequence[Path], root: Path, choose: Choose
) -> tuple[tuple[Piece, ...], tuple[str, ...], dict[str, str]]:
    """Make a piece of every group of rows; return these, the coordinates, and why other columns are none."""
    found, names, left_out = list[Piece](), tuple[str, ...](), dict[str, str]()
    for file in files:
        sizes, every, numeric = _contents(file)
        if not names:
            names = tuple(name for i in choose(every, len(every)) if (name := every[i]) in numeric)
            if not names:
                must = f"hold a column of numbers; {file} has {listed(every)}, without any that is left"
                raise ArgumentError("X", must)
            rest = (name for name in every if name not in names)
            left_out = {name: "not chosen" if name in numeric else "text" for name in rest}
        lost = [name for name in names if name not in numeric]
        if lost:
            raise DamagedFileError(f"{file} must have numbers in the columns of {files[0]}; not so in {listed(lost)}")
        first = 0
        for group, n_rows in enumerate(sizes):
            found.append(Piece(relative_name(file, root), first, n_rows, _group_reader(file, group, names)))
            first += n_rows
    return tuple(found), names, left_out


def _contents(file: Path) -> tuple[list[int], list[str], list[str]]:
    """Read the sizes of the groups of rows, the names of the columns, and those of the numeric ones."""
    with _opened(file) as content:
        told, schema = content.metadata, content.schema_arrow
        sizes = [told.row_group(i).num_rows for i in range(told.num_row_groups)]
    kinds = import_pyarrow(".types")
    is_number = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
    numeric = [field.name for field in schema if any(check(field.type) for check in is_number)]
    names = [INDEX if name == _PARQUET_INDEX else name for name in schema.names]
    return sizes, names, [name for name in numeric if name != _PARQUET_INDEX]


def _group_reader(file: Path, group: int, names: tuple[str, ...]) -> Reader:
    """Read a group of rows some at a time, by one thread: whoever reads beside training leaves the cores to it."""

    def read(keep: tuple[str, ...]) -> Iterator[tuple[np.ndarray, Mapping[str, np.ndarray]]]:
        with _opened(file, pre_buffer=False, buffer_size=_AT_A_TIME) as content:
            lost = [name for name in keep if name not in content.schema_arrow.names]
            if lost:
                raise ArgumentError("keep", f"be columns of {file}; there is no {listed(lost)}")
            wanted, size = list(dict.fromkeys((*names, *keep))), rows_at_once(len(names))
            for batch in content.iter_batches(size, row_groups=[group], columns=wanted, use_threads=False):
                table = import_pyarrow().Table.from_batches([batch])
                found = {name: _from_arrow(table[name], f"{name!r} of {file}") for name in wanted}
                yield np.stack([found[name] for name in names], 1), {name: found[name] for name in keep}

    return read
