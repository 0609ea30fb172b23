"""Parquet files, by pyarrow, which is imported when first needed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from carre.data.files import DamagedFileError, reason

# As pandas stores an index without a name.
_INDEX = "__index_level_0__"


def read_parquet(file: Path) -> tuple[list[str], list[np.ndarray]]:
    """Read the names and the columns of a file; cells that are missing become NaN in numbers, and "" in text."""
    arrow, module = pyarrow(), pyarrow("parquet")
    try:
        table = module.read_table(file)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DamagedFileError(f"{file} cannot be read as Parquet ({reason(error)}); save or copy it again") from error
    names = ["index" if name == _INDEX else name for name in table.column_names]
    return names, [_as_array(column, arrow) for column in table.columns]


def pyarrow(module: str | None = None) -> Any:
    """Import pyarrow or a part of it; say how to install it if it is missing."""
    try:
        return importlib.import_module("pyarrow" if module is None else f"pyarrow.{module}")
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow; run: pip install 'carre[data]'") from error


def _as_array(column: Any, arrow: Any) -> np.ndarray:
    """Turn a column into numbers, where it holds some, and into text otherwise."""
    kind, types = column.type, arrow.types
    if types.is_decimal(kind) or (types.is_boolean(kind) and column.null_count):
        column = column.cast(arrow.float64())
        kind = column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        numbers: np.ndarray = column.to_numpy()
        return numbers
    return np.array(["" if cell is None else str(cell) for cell in column.to_pylist()], dtype=np.str_)
