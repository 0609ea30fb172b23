"""Text files of rows and columns: csv, tsv and the like, with the delimiter and the header found out."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from carre.data.files import DamagedFileError, reason

# Tried in this order; equal ones: the first.
_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
_SAMPLE_LINES = 50
# Rows that are held as text at a time.
_BLOCK = 20_000
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "-"))
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")
_INDEX = "index"

# Names of the columns, if the file has any, and the columns: floating where all cells are numbers, else text.
Columns = tuple[list[str] | None, list[np.ndarray]]


def read_delimited(file: Path, is_wanted: Callable[[list[str] | None, int], list[bool]]) -> Columns:
    """Read a text file of rows and columns, plain or packed by gzip.

    Args:
        file: The file, in UTF-8.
        is_wanted: Told the names and the number of the columns, says which ones must be numbers if most of their cells
            are. The others may hold anything.

    Returns:
        The names, None if there is no header, and the columns. A first column without a name, as pandas writes its
        index, is called ``index``.
    """
    with _opened(file) as stream:
        sample = list(islice(stream, _SAMPLE_LINES))
        if not any(line.strip() for line in sample):
            raise DamagedFileError(f"{file} is empty; give a file with a row for each sample")
        delimiter = _find_delimiter(sample)
        names = _find_header(_first_rows(sample, delimiter), file)
        stream.seek(0)
        rows = _rows(stream, delimiter)
        if names is not None:
            next(rows)
        return names, _convert(rows, names, is_wanted, f"{file} (separated by {_DELIMITERS[delimiter]})")


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """Open a file for reading; what is wrong with its bytes shows up while it is read."""
    packed = file.suffix.lower() == ".gz"
    try:
        with (
            gzip.open(file, "rt", encoding="utf-8-sig", newline="")
            if packed
            else file.open(encoding="utf-8-sig", newline="") as stream
        ):
            yield stream
    except UnicodeDecodeError as error:
        raise DamagedFileError(
            f"{file} is not text in UTF-8 (byte {error.start}); save it with that encoding"
        ) from error
    except (csv.Error, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedFileError(f"{file} cannot be read as a table ({reason(error)}); save or copy it again") from error


def _rows(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line of each row, and its cells; empty lines are left out."""
    # Of columns that are aligned by spaces, any number of them is one delimiter.
    aligned = (" ".join(line.split()) for line in lines) if delimiter == " " else lines
    reader = csv.reader(aligned, delimiter=delimiter, skipinitialspace=True, strict=True)
    for row in reader:
        if row:
            yield reader.line_num, row


def _first_rows(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the rows of the first lines, the last of which may be cut in a quoted cell."""
    rows = []
    try:
        for row in _rows(lines, delimiter):
            rows.append(row)
    except csv.Error:
        pass
    return rows


def _find_delimiter(lines: Sequence[str]) -> str:
    """Choose the delimiter that cuts most rows into equally many cells, two or more, and that leaves most numbers."""

    def quality(delimiter: str) -> tuple[float, float]:
        rows = [row for _, row in _first_rows(lines, delimiter)]
        if not rows:
            return 0.0, 0.0
        widths = [len(row) for row in rows]
        usual = max(set(widths), key=widths.count)
        cells = [cell for row in rows for cell in row]
        numbers = sum(_is_number(cell) or _DECIMAL_COMMA.fullmatch(cell) is not None for cell in cells) / len(cells)
        return (widths.count(usual) / len(widths) if usual > 1 else 0.0), numbers

    return max(_DELIMITERS, key=quality)


def _find_header(rows: Sequence[tuple[int, list[str]]], file: Path) -> list[str] | None:
    """Return the names in the first row, if that is what stands there."""
    (_, first), rest = rows[0], [row for _, row in rows[1:]]
    numbers = [_is_number(cell) for cell in first]
    below = [any(_is_number(row[i]) for row in rest if i < len(row)) for i in range(len(first))]
    named = [
        not is_number and cell.strip().lower() not in _MISSING for cell, is_number in zip(first, numbers, strict=True)
    ]
    counted = [str(i) for i in range(len(first))]
    # Words above numbers; words throughout; or 0, 1, 2, … as pandas writes columns without names.
    is_header = any(a and b for a, b in zip(named, below, strict=True)) or not any(numbers)
    if not is_header and not (len(first) > 1 and first in (counted, ["", *counted[:-1]]) and rest):
        return None
    names = [name.strip() for name in first]
    names[0] = names[0].removeprefix("#").strip() or _INDEX
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DamagedFileError(f"{file} must have different names in its header; {twice!r} occurs twice. Rename one")
    return names


def _convert(
    rows: Iterator[tuple[int, list[str]]],
    names: list[str] | None,
    is_wanted: Callable[[list[str] | None, int], list[bool]],
    place: str,
) -> list[np.ndarray]:
    """Turn rows of text into columns, block by block."""
    blocks: list[list[np.ndarray | list[str]]] = []
    wanted: list[bool] = []
    width = 0 if names is None else len(names)
    while block := list(islice(rows, _BLOCK)):
        if not blocks:
            width = width or len(block[0][1])
            wanted = is_wanted(names, width)
            blocks = [[] for _ in range(width)]
        for line, row in block:
            if len(row) != width:
                raise DamagedFileError(f"line {line} of {place} has {len(row)} cells, the others {width}; correct it")
        for i, cells in enumerate(zip(*(row for _, row in block), strict=True)):
            column = blocks[i]
            if not wanted[i] or (column and isinstance(column[0], list)):
                column.append(list(cells))
                continue
            numbers = _as_numbers(cells)
            if numbers is None and not column and not _are_meant_as_numbers(cells):
                _refuse_decimal_commas(block, i, names, place)
                column.append(list(cells))
                continue
            if numbers is None:
                raise _bad_cell(block, i, names, place)
            column.append(numbers)
    if not blocks:
        raise DamagedFileError(f"{place} has a header and no rows; give a file with a row for each sample")
    return [_joined(parts) for parts in blocks]


def _joined(parts: list[np.ndarray | list[str]]) -> np.ndarray:
    """Join the blocks of a column: numbers, if all its cells are, whole ones if all are; else text."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    cells = [cell for part in parts for cell in part]
    numbers = _as_numbers(cells)
    if numbers is None:
        return np.array(cells, dtype=np.str_)
    try:
        return np.array([int(cell) for cell in cells])
    except (ValueError, OverflowError):
        return numbers


def _as_numbers(cells: Sequence[str]) -> np.ndarray | None:
    """Turn cells into finite numbers; None if one is none."""
    try:
        numbers = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    # Python takes 1_000 for a number, which in a table is a name.
    return None if "_" in "".join(cells) or not np.isfinite(numbers).all() else numbers


def _are_meant_as_numbers(cells: Sequence[str]) -> bool:
    """Say whether most of the cells that are not missing are numbers."""
    present = [cell for cell in cells if cell.strip().lower() not in _MISSING]
    return sum(map(_is_number, present)) > len(present) / 2


def _is_number(cell: str) -> bool:
    return _as_numbers((cell,)) is not None


def _refuse_decimal_commas(block: list[tuple[int, list[str]]], i: int, names: list[str] | None, place: str) -> None:
    """Refuse a column of numbers that are written with a comma, instead of taking them for text."""
    if all(_DECIMAL_COMMA.fullmatch(row[i]) or _is_number(row[i]) for _, row in block):
        raise _bad_cell(block, i, names, place)


def _bad_cell(block: list[tuple[int, list[str]]], i: int, names: list[str] | None, place: str) -> ValueError:
    """Say which cell of a column is no number, and what to do."""
    line, cell = next((line, row[i]) for line, row in block if not _is_number(row[i]))
    where = f"line {line}, column {repr(names[i]) if names else i} of {place}"
    if _DECIMAL_COMMA.fullmatch(cell):
        return DamagedFileError(
            f"{where} has a decimal comma: {cell!r}. Write numbers with a point, like {cell.replace(',', '.')}"
        )
    if cell.strip().lower() in _MISSING:
        what = "is empty" if not cell.strip() else f"is missing ({cell!r})"
        return ValueError(f"{where} {what}. Fill it in, remove the row, or leave the column out (drop)")
    return ValueError(
        f"{where} must be a finite number, like most cells of it; got {cell!r}. Correct it, or leave the column out "
        "(drop)"
    )
