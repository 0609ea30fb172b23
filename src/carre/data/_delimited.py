"""Text files of rows and columns: csv, tsv and the like, with the delimiter and the header found out."""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from carre.files import DamagedFileError, check_memory, damage, reason, unpacked_size

# What a first column without a name is called.
INDEX = "index"

# Tried in this order; equal ones: the first.
_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
# Of lines that are long, fewer are enough, and of these the first cells.
_SAMPLE_LINES, _FEWEST_LINES, _SAMPLE_LETTERS, _SAMPLE_CELLS = 50, 4, 2**20, 1000
# Rows that are held as text at a time: fewer of long ones, but enough to tell numbers from text.
_BLOCK, _BLOCK_CELLS, _FEWEST_ROWS = 20_000, 2**21, 10
# Letters of a line: enough for a million numbers with all their digits.
_LONGEST_LINE = 2**25
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "-"))
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")

# Told the names and the number of the columns, says which ones are to be coordinates.
Wanted = Callable[[list[str] | None, int], Iterable[int]]
# What a spreadsheet would take for a formula, after any number of the apostrophes that keep it from doing so.
_FORMULA = re.compile(r"'*(\s*[=+\-@＝＋－＠]|[\t\r\n])")


class CellError(DamagedFileError):
    """A cell of a table where a number should be, as a value: each face says in its words how to leave a column out.

    Attributes:
        cell: Which one it is, and what is wrong with it.
        is_missing: Whether there is nothing in it, so that its row can be left out.

    Example:
        >>> error = CellError("line 3, column 'x' is missing", is_missing=True)
        >>> error.worded("choose other columns", rows="--drop-missing")
        "line 3, column 'x' is missing. Fill it in, leave such rows out (--drop-missing), or choose other columns"
    """

    def __init__(self, cell: str, *, is_missing: bool = False) -> None:
        self.cell, self.is_missing = cell, is_missing
        super().__init__(self.worded("leave the column out (drop)", rows="drop_missing=True"))

    def worded(self, otherwise: str, *, rows: str) -> str:
        """Write the sentence with other ways out: for a column, and for the rows of missing cells."""
        remedy = f"Fill it in, leave such rows out ({rows})" if self.is_missing else "Correct it"
        return f"{self.cell}. {remedy}, or {otherwise}"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), is_missing=self.is_missing), (self.cell,)


def as_written(cell: str) -> str:
    """Keep a spreadsheet from running a text as a formula: by an apostrophe before it. Numbers stay as they are.

    Example:
        >>> as_written("=1+1"), as_written("-1.5"), as_written("oak"), as_read(as_written("=1+1"))
        ("'=1+1", '-1.5', 'oak', '=1+1')
    """
    return f"'{cell}" if _FORMULA.match(cell) and not (_is_number(cell) or _is_missing(cell)) else cell


def as_read(cell: str) -> str:
    """Take off the apostrophe of `as_written`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell


def read_delimited(file: Path, wanted: Wanted) -> tuple[list[str] | None, list[np.ndarray], np.ndarray]:
    """Read a text file in UTF-8, plain or packed by gzip: names (None if there is no header), columns, lines of rows.

    Columns are floating where all cells are numbers, else text; those that are wanted must be numbers if most of their
    cells are, and NaN where one is missing. A first column without a name, as pandas writes its index, is called
    ``index``.
    """
    with _opened(file) as stream:
        lines = _lines(stream, file)
        sample = _sample(lines)
        if not any(line.strip() for line in sample):
            raise DamagedFileError(f"{file} is empty; give a file with a row for each sample")
        delimiter = _find_delimiter(sample)
        rows = _rows(chain(sample, lines), delimiter)
        names = _find_header(_first_rows(sample, delimiter))
        if names is not None:
            next(rows)
        return names, *_read_columns(rows, names, wanted, f"{file} (separated by {_DELIMITERS[delimiter]})")


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """Open a file for reading; what is wrong with its bytes shows up while it is read."""
    is_packed = file.suffix.lower() == ".gz"
    opened = gzip.open if is_packed else open
    with damage(f"{file} cannot be read as a table", "Save or copy it again"):
        if is_packed:
            unpacked_size(file)
        try:
            with opened(file, "rt", encoding="utf-8-sig", newline="") as stream:
                yield stream
        except UnicodeDecodeError as error:
            why = f"is not text in UTF-8 (byte {error.start}); save it with that encoding"
            raise DamagedFileError(f"{file} {why}") from error


def _lines(stream: Any, file: Path) -> Iterator[str]:
    """Yield the lines of a text, which have an end."""
    number = 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        if "\0" in line:
            why = "holds a NUL character, so that it is no text in UTF-8; save it with that encoding"
            raise DamagedFileError(f"line {number} of {file} {why}")
        if len(line) == _LONGEST_LINE:
            why = f"has {_LONGEST_LINE:,} letters or more; save so many numbers by numpy.save"
            raise DamagedFileError(f"line {number} of {file} {why}")
        yield line


def _sample(lines: Iterator[str]) -> list[str]:
    """Take the first lines, which tell what the others are like."""
    sample, letters = list[str](), 0
    for line in lines:
        sample.append(line)
        letters += len(line)
        if len(sample) == _SAMPLE_LINES or (letters > _SAMPLE_LETTERS and len(sample) >= _FEWEST_LINES):
            break
    return sample


def _rows(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line of each row, and its cells; empty lines are left out."""
    # Of columns that are aligned by spaces, any number of them is one delimiter.
    aligned = (" ".join(line.split()) for line in lines) if delimiter == " " else lines
    reader = csv.reader(aligned, delimiter=delimiter, skipinitialspace=True, strict=True)
    start = 1
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise csv.Error(f"line {start}: {reason(error)}") from error


def _first_rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """Return the cells of the first lines, the last of which may be cut in a quoted cell."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(row for _, row in _rows(lines, delimiter))
    return rows


def _find_delimiter(lines: Sequence[str]) -> str:
    """Choose the delimiter that cuts most rows into equally many cells, two or more, and that leaves most numbers."""

    def quality(delimiter: str) -> tuple[float, float]:
        rows = _first_rows(lines, delimiter)
        if not rows:
            return 0.0, 0.0
        widths = [len(row) for row in rows]
        usual = max(set(widths), key=widths.count)
        cells = [cell for row in rows for cell in row[:_SAMPLE_CELLS]]
        numbers = sum(map(_looks_like_a_number, cells)) / len(cells)
        return (widths.count(usual) / len(widths) if usual > 1 else 0.0), numbers

    return max(_DELIMITERS, key=quality)


def _find_header(rows: Sequence[list[str]]) -> list[str] | None:
    """Return the names in the first row, if that is what stands there."""
    first, *rest = rows
    numbers = [_is_number(cell) for cell in first]
    words_above_numbers = any(
        not numbers[i] and not _is_missing(cell) and any(_is_number(row[i]) for row in rest if i < len(row))
        for i, cell in enumerate(first)
    )
    counted = [str(i) for i in range(len(first))]
    # 0, 1, 2, … as pandas writes columns without names.
    is_counted = len(first) > 1 and bool(rest) and first in (counted, ["", *counted[:-1]])
    if any(numbers) and not words_above_numbers and not is_counted:
        return None
    names = [as_read(name).strip() for name in first]
    names[0] = names[0].removeprefix("#").strip() or INDEX
    return names


def _read_columns(
    rows: Iterator[tuple[int, list[str]]], names: list[str] | None, wanted: Wanted, place: str
) -> tuple[list[np.ndarray], np.ndarray]:
    """Turn rows of text into columns, block by block; return also on which line each row ends."""
    columns, numbers, first = list[_Column](), list[int](), list(islice(rows, 1))
    rows_at_once = min(_BLOCK, max(_FEWEST_ROWS, _BLOCK_CELLS // len(first[0][1]))) if first else 1
    while block := [*first, *islice(rows, rows_at_once - len(first))]:
        if not columns:
            called: Sequence[str | int] = names or range(len(block[0][1]))
            coordinates = set(wanted(names, len(called)))
            columns = [_Column(name, place, i in coordinates) for i, name in enumerate(called)]
        first = []
        for line, row in block:
            if len(row) != len(columns):
                why = f"has {len(row)} cells, the others {len(columns)}; correct it"
                raise DamagedFileError(f"line {line} of {place} {why}")
        lines, cells = zip(*block, strict=True)
        for column, part in zip(columns, zip(*cells, strict=True), strict=True):
            column.append(part, lines)
        numbers.extend(lines)
    if not columns:
        raise DamagedFileError(f"{place} has a header and no rows; give a file with a row for each sample")
    return [column.joined() for column in columns], np.array(numbers)


class _Column:
    """A column while it is read. Its first block decides whether it is one of numbers; later ones have to comply."""

    def __init__(self, name: str | int, place: str, is_wanted: bool) -> None:
        self.name, self.place, self.is_numeric = name, place, is_wanted
        self.parts: list[np.ndarray | tuple[str, ...]] = []

    def append(self, cells: tuple[str, ...], lines: Sequence[int]) -> None:
        """Add a block: refuse what is no number among numbers, instead of taking the column for text."""
        numbers = _as_numbers(cells) if self.is_numeric else None
        has_numbers = any(isinstance(part, np.ndarray) for part in self.parts)
        # A block in which all is missing says nothing yet: its text is kept until another block does.
        if self.is_numeric and numbers is None and (has_numbers or not all(map(_is_missing, cells))):
            if has_numbers or _are_meant_as_numbers(cells):
                numbers = _as_numbers(["nan" if _is_missing(cell) else cell for cell in cells], finite=False)
                if numbers is None:
                    raise self._bad_cell(cells, lines)
            else:
                self.is_numeric = False
        self.parts.append(cells if numbers is None else numbers)

    def joined(self) -> np.ndarray:
        """Join the blocks. What was not wanted is whole numbers or numbers, if all cells are, and text otherwise."""
        if self.is_numeric and any(isinstance(part, np.ndarray) for part in self.parts):
            blanks = (part if isinstance(part, np.ndarray) else np.full(len(part), np.nan) for part in self.parts)
            return np.concatenate(list(blanks))
        cells = [cell for part in self.parts for cell in part]
        numbers = _as_numbers(cells)
        if numbers is None:
            # NumPy gives every cell the room of the longest one.
            n_bytes, remedy = 4 * len(cells) * max(map(len, cells)), "Shorten its longest cell"
            check_memory(n_bytes, f"column {self.name!r} of {self.place}", remedy)
            return np.array([as_read(cell) for cell in cells], dtype=np.str_)
        try:
            return np.array([int(cell) for cell in cells])
        except (ValueError, OverflowError):
            return numbers

    def _bad_cell(self, cells: Sequence[str], lines: Sequence[int]) -> ValueError:
        """Say which cell is no number, and what to do."""
        line, cell = next(
            (line, cell) for line, cell in zip(lines, cells, strict=True) if not (_is_missing(cell) or _is_number(cell))
        )
        where = f"line {line}, column {self.name!r} of {self.place}"
        if _DECIMAL_COMMA.fullmatch(cell):
            return DamagedFileError(
                f"{where} has a decimal comma: {cell!r}. Write numbers with a point, like {cell.replace(',', '.')}"
            )
        return CellError(f"{where} must be a finite number, like most cells of it; got {cell!r}")


def _as_numbers(cells: Sequence[str], *, finite: bool = True) -> np.ndarray | None:
    """Turn cells into numbers, finite ones or missing ones; None if one is none."""
    try:
        numbers = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    # Python takes 1_000 for a number, which in a table is a name.
    unfit = ~np.isfinite(numbers) if finite else np.isinf(numbers)
    return None if "_" in "".join(cells) or unfit.any() else numbers


def _are_meant_as_numbers(cells: Sequence[str]) -> bool:
    """Say whether most of the cells that are not missing are numbers, or all are with a comma instead of a point."""
    present = [cell for cell in cells if not _is_missing(cell)]
    return sum(map(_is_number, present)) > len(present) / 2 or all(map(_looks_like_a_number, cells))


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return False


def _looks_like_a_number(cell: str) -> bool:
    return _is_number(cell) or _DECIMAL_COMMA.fullmatch(cell) is not None


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in _MISSING
