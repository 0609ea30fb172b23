"""Writing tables: whole or not at all, in the format that the name asks for."""

from __future__ import annotations

import csv
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from carre.data.files import AnyPath
from carre.data.parquet import pyarrow

Columns = Mapping[str, np.ndarray]


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
    file = check_output(path)
    arrays = {str(name): np.asarray(column) for name, column in columns.items()}
    lengths = {name: len(column) if column.ndim else 0 for name, column in arrays.items()}
    if not arrays or len(set(lengths.values())) > 1:
        raise ValueError(f"columns must be arrays of equal length, at least one; got the lengths {lengths}")
    with written_whole(file) as partial:
        _WRITERS[file.suffix.lower()](partial, arrays)


def check_output(path: AnyPath, suffixes: tuple[str, ...] | None = None) -> Path:
    """Refuse, before any work, an output of unknown format, or one that would replace a folder.

    Args:
        path: Where to write.
        suffixes: What the name may end in; by default any format of `write_table`.
    """
    file = Path(path).expanduser()
    known = suffixes or tuple(_WRITERS)
    if file.suffix.lower() not in known:
        raise ValueError(f"the output must end in {', '.join(known)}; got {str(path)!r}")
    if file.is_dir():
        raise ValueError(f"the output must be a file; {str(path)!r} is a folder. Name a file in it")
    above = next(folder for folder in file.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ValueError(f"the output must lie in a folder; got {str(path)!r}, but {str(above)!r} is a file")
    return file


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """Give a name beside a file to write to; at the end that takes its place, or vanishes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.stem}.{secrets.token_hex(4)}{file.suffix}")
    try:
        yield partial
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def _write_text(file: Path, columns: Columns) -> None:
    _refuse_axes(columns)
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t" if file.suffix.lower() == ".tsv" else ",", lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*map(_as_cells, columns.values()), strict=True))


def _as_cells(column: np.ndarray) -> list[Any]:
    """Return numbers with the digits that their own type needs: 0.1 in single precision is not 0.10000000149."""
    single = column.dtype.kind == "f" and column.dtype.itemsize < 8
    cells: list[Any] = column.astype(np.str_).tolist() if single else column.tolist()
    return cells


def _write_parquet(file: Path, columns: Columns) -> None:
    _refuse_axes(columns)
    arrow = pyarrow()
    arrays = {
        name: arrow.array(column.tolist() if column.dtype.kind in "UO" else column) for name, column in columns.items()
    }
    pyarrow("parquet").write_table(arrow.table(arrays), file)


def _write_json(file: Path, columns: Columns) -> None:
    text = json.dumps({name: column.tolist() for name, column in columns.items()}, ensure_ascii=False, allow_nan=False)
    file.write_text(text + "\n", encoding="utf-8")


def _write_npy(file: Path, columns: Columns) -> None:
    if len(columns) > 1:
        raise ValueError(f"columns must be a single array for .npy; got {', '.join(columns)}. Write .npz instead")
    np.save(file, next(iter(columns.values())), allow_pickle=False)


def _write_npz(file: Path, columns: Columns) -> None:
    np.savez(file, allow_pickle=False, **columns)


def _refuse_axes(columns: Columns) -> None:
    for name, column in columns.items():
        if column.ndim != 1:
            raise ValueError(
                f"columns must have one axis for csv, tsv and parquet; {name!r} has shape {column.shape}. "
                "Write .npy or .npz, or a column for each part"
            )


_WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    ".csv": _write_text,
    ".tsv": _write_text,
    ".parquet": _write_parquet,
    ".json": _write_json,
    ".npy": _write_npy,
    ".npz": _write_npz,
}
