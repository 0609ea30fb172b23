"""Data frames, of pandas or polars, and AnnData: columns by name, and answers with the names that came in."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from carre.boundary import ArgumentError, listed
from carre.data.table import Table, checked
from carre.files import AnyPath, DamagedFileError, check_memory, check_unpacked, damage, existing_file
from carre.text import infinite_cells, like

_MOST_NAMES = 5
# Arrays and groups in a file of AnnData.
_MOST_PARTS = 10_000
_AGAIN = "Save or copy it again"


@dataclass(frozen=True, eq=False)
class FrameNames:
    """The names of the rows and columns of a data frame, of pandas or polars, for answers of the same kind.

    Attributes:
        index: Of the rows; those of polars have numbers only.
        columns: Of the columns.
        kind: Whose frame it was.

    Example:
        >>> import pandas as pd
        >>> names = FrameNames(pd.Index(["ann", "bob"]), pd.Index(["height"]))
        >>> names.dress(np.array([1, 2])).loc["bob"], list(names.dress(np.zeros((2, 1)), names.columns).columns)
        (np.int64(2), ['height'])
        >>> names.dress(np.ones((2, 1, 1)), names.columns).loc["bob"].to_dict()
        {0: {'height': 1.0}}
    """

    index: Any
    columns: Any
    kind: str = "pandas"

    def dress(self, answer: np.ndarray, columns: Any = None) -> Any:
        """Return one number per row as a Series, several as a frame, whose columns have names where they are given.

        Vectors that are columns, (n, D, d), are a frame of pandas with a row for each of D columns, by two levels.
        What is not one answer per row stays an array.
        """
        most = 2 if columns is None or self.kind == "polars" else 3
        if answer.shape[:1] != (len(self.index),) or answer.ndim > most:
            return answer
        library = sys.modules[self.kind]
        if answer.ndim == 1:
            return library.Series(answer) if self.kind == "polars" else library.Series(answer, self.index)
        if self.kind == "polars":
            names = range(answer.shape[1]) if columns is None else columns
            return library.DataFrame(answer, [str(name) for name in names], orient="row")
        if answer.ndim == 2:
            return library.DataFrame(answer, self.index, columns)
        rows = library.MultiIndex.from_product([self.index, columns])
        return library.DataFrame(answer.reshape(len(rows), -1), rows)


def is_frame(given: Any) -> bool:
    """Say whether something is a data frame, with columns and rows, or a Series, which is one of either.

    Example:
        >>> import pandas as pd
        >>> is_frame(pd.DataFrame({"x": [1.0]})), is_frame(np.zeros((1, 1)))
        (True, False)
    """
    return (hasattr(given, "columns") or hasattr(given, "to_frame")) and not hasattr(given, "obsm")


def as_row(given: Any) -> Any:
    """Return a Series of pandas as a frame of one row, and one of polars, which has no labels, as an array."""
    if not hasattr(given, "to_frame"):
        return given
    return given.to_frame().T if hasattr(given, "index") else np.asarray(given)


def names_of(frame: Any, name: str = "X") -> tuple[str, ...] | None:
    """Return the names of the columns of a frame, if they are text and differ.

    Example:
        >>> import pandas as pd
        >>> names_of(pd.DataFrame({"x": [1.0], "y": [2.0]})), names_of(pd.DataFrame(np.zeros((1, 2))))
        (('x', 'y'), None)
    """
    labels, counts = tuple(frame.columns), Counter(frame.columns)
    if len(counts) < len(labels):
        (twice, _), *_ = counts.most_common(1)
        raise ArgumentError(name, "have different names of columns", got=f"{twice!r} twice", remedy="Rename one")
    return labels if all(isinstance(label, str) for label in labels) else None


def refuse_columns(known: Sequence[str], wanted: Sequence[str], name: str) -> None:
    """Refuse columns among which some of the fit are missing, and suggest which one may be meant."""
    missing = [column for column in wanted if column not in known]
    if missing:
        must, got = f"have the columns of the fit, {listed(wanted)}", f"none called {listed(missing)}"
        near = like(missing[0], [column for column in known if column not in wanted])
        remedy = f"Is it {near[0]!r}? Rename that" if near else "Add them, or rename its columns"
        raise ArgumentError(name, must, got=got, remedy=remedy)


def read_frame(frame: Any, wanted: Sequence[str] | None, *, name: str) -> tuple[np.ndarray, FrameNames]:
    """Return the columns of a frame as numbers, in the order that is wanted, and how to name answers.

    Columns are found by their names; further ones are left out.

    Args:
        frame: Of pandas or polars.
        wanted: Names of columns; None for all.
        name: What errors call the frame.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"x": [1.0], "kind": ["oak"], "y": [2]})
        >>> read_frame(frame, ["y", "x"], name="X")[0]
        array([[2., 1.]])
        >>> list(read_frame(frame[["x", "y"]], None, name="X")[1].columns)
        ['x', 'y']
    """
    kind = _kind(frame)
    if kind is None:
        must, got = "be a data frame of pandas or polars, in memory", f"a {type(frame).__name__}"
        remedy = "Use its to_pandas() or collect(), if it has one"
        if hasattr(frame, "to_frame"):
            must, remedy = "have rows and columns", f"Give {name}.to_frame(), transposed if it is a row"
        raise ArgumentError(name, must, got=got, remedy=remedy)
    if names_of(frame, name) is not None and wanted is not None:
        refuse_columns(list(frame.columns), wanted, name)
        frame = frame[list(wanted)]
    columns = list(frame.columns)
    if not columns or not len(frame):
        raise ArgumentError(name, "not be empty", got=f"a frame of {len(frame)} rows and {len(columns)} columns")
    values = [_numbers(frame[column]) for column in columns]
    text = [column for column, numbers in zip(columns, values, strict=True) if numbers is None]
    if text:
        rest = [column for column in columns if column not in text]
        remedy = f"Choose columns of numbers, as with {name}[{rest[:_MOST_NAMES]!r}{' …' * (len(rest) > _MOST_NAMES)}]"
        got = f"text or other things in {listed(list(map(repr, text)), _MOST_NAMES)}"
        raise ArgumentError(name, "hold numbers", got=got, remedy=remedy if rest else "It has none")
    table = np.stack([numbers for numbers in values if numbers is not None], 1)
    index = frame.index if kind == "pandas" else range(len(table))
    if not np.isfinite(table.sum()):
        _check_missing(table, columns, index, name, kind)
    return table, FrameNames(index, frame.columns, kind)


def _kind(frame: Any) -> str | None:
    """Say whose frame it is: of pandas or polars; None for what only looks like one."""
    for kind in ("pandas", "polars"):
        if kind in sys.modules and isinstance(frame, sys.modules[kind].DataFrame):
            return kind
    return None


def _numbers(column: Any) -> np.ndarray | None:
    """Return a column as floating numbers, NaN where one is missing; None where it holds something else.

    Categories are no numbers, even where they are called by numbers.
    """
    if str(column.dtype).lower().startswith(("categor", "enum")):
        return None
    values = np.asarray(column)
    if values.dtype.kind in "fiub":
        return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    # The nullable kinds of pandas come as objects, and say what they are.
    kind = getattr(column.dtype, "kind", "")
    if values.dtype == object and all(value is None or isinstance(value, (Real, Decimal)) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values])
    return column.to_numpy(dtype=np.float64, na_value=np.nan) if kind in "fiub" and kind else None


def _check_missing(values: np.ndarray, columns: Sequence[Any], index: Any, name: str, kind: str) -> None:
    """Say which cells are missing or infinite, and how to leave their rows out."""
    if np.isfinite(values).all():
        return
    is_finite = "np.isfinite(X).all(axis=1)" if kind == "pandas" else "pl.all_horizontal(pl.all().is_finite())"
    keeping = f"X[{is_finite}]" if kind == "pandas" else f"X.filter({is_finite})"
    easy = {"pandas": "X.dropna()", "polars": "X.drop_nulls().drop_nans()"}[kind]
    remedy = f"Leave such rows out, as with {keeping if np.isinf(values).any() else easy}, or fill them in"
    got = infinite_cells(values, columns, index)
    raise ArgumentError(name, "be finite; it contains NaN or infinity", got=got, remedy=remedy.replace("X", name))


def refuse_anndata(given: Any, name: str) -> None:
    """Refuse an AnnData as it is, which holds several matrices, and say how to choose one."""
    if hasattr(given, "obsm") and hasattr(given, "layers"):
        keys = ", ".join(map(repr, given.obsm)) or "there is none"
        remedy = f"Use carre.data.from_anndata({name}, key), with a key of obsm ({keys}) or a layer, or without for X"
        raise ArgumentError(name, "be a matrix", got="an AnnData with several", remedy=remedy)


def from_anndata(annotated: Any, key: str | None = None, *, drop_missing: bool = False) -> Table:
    """Take a matrix of an AnnData as a table: one of ``obsm``, such as principal components, a layer, or X.

    Args:
        annotated: The AnnData, in memory or backed.
        key: Which matrix: a key of ``obsm`` or of ``layers``; None for X. Counts of thousands of genes have no useful
            scale: principal components (``"X_pca"``) have.
        drop_missing: Whether rows with NaN are left out, as in `load_table`.

    Returns:
        A table whose names are those of the variables, or the key with a number, and whose other columns are ``obs``,
        with the names of the observations, where these are no numbers, as ``obs_names``.

    Example:
        >>> from types import SimpleNamespace
        >>> import pandas as pd
        >>> cells = SimpleNamespace(obsm={"X_pca": np.zeros((2, 3))}, layers={}, obs=pd.DataFrame({"day": [1, 2]}))
        >>> from_anndata(cells, "X_pca")
        Table('X_pca', n=2, names=('X_pca0', 'X_pca1', 'X_pca2'), other=('day',))
    """
    if not hasattr(annotated, "obsm"):
        raise ArgumentError("annotated", "be an AnnData", got=f"a {type(annotated).__name__}")
    return _as_table(annotated, key, Path(key or "X"), drop_missing=drop_missing)


def matrix_of(annotated: Any, key: str | None, file: Path) -> tuple[Any, tuple[str, ...] | None]:
    """Return a matrix of an AnnData as it lies there, maybe on disk, and the names of its columns, if they have any."""
    known = [*map(str, annotated.obsm), *map(str, annotated.layers)]
    names: tuple[str, ...] | None
    if key is None:
        matrix, names = annotated.X, tuple(map(str, annotated.var_names))
    elif key in annotated.obsm:
        matrix = annotated.obsm[key]
        names = tuple(map(str, matrix.columns)) if is_frame(matrix) else None
    elif key in annotated.layers:
        matrix, names = annotated.layers[key], tuple(map(str, annotated.var_names))
    else:
        must = f"be one of {', '.join(known)}, or None for X" if known else "be None: there is only X"
        raise ArgumentError("key", must, got=repr(key))
    if matrix is None:
        must = f"be given: X is empty; there are {', '.join(known)}" if known else "name a matrix; there is none"
        raise ArgumentError("key", must, got="None")
    if is_frame(matrix):
        matrix, _ = read_frame(matrix, None, name=f"obsm[{key!r}]")
    n_rows, shape = len(annotated.obs), tuple(matrix.shape)
    n_columns = shape[-1] if names is None else len(names)
    kind = getattr(getattr(matrix, "dtype", None), "kind", "")
    if shape != (n_rows, n_columns) or kind not in "fiub" or not kind:
        must = f"name a matrix of numbers of shape ({n_rows}, {n_columns})"
        raise ArgumentError("key", must, got=f"{getattr(matrix, 'dtype', 'one')} of shape {shape} in {file}")
    return matrix, tuple(f"{key}{i}" for i in range(n_columns)) if names is None else names


def _as_table(annotated: Any, key: str | None, file: Path, *, drop_missing: bool) -> Table:
    """Take a matrix of an AnnData, which errors call by its file."""
    matrix, names = matrix_of(annotated, key, file)
    matrix = matrix[:] if hasattr(matrix, "file") or hasattr(matrix, "backend") else matrix
    if hasattr(matrix, "toarray"):
        n_bytes, remedy = math.prod(matrix.shape) * matrix.dtype.itemsize, "Take one of obsm, such as X_pca"
        check_memory(n_bytes, f"the matrix of {file}", remedy)
        matrix = matrix.toarray()
    values, columns = np.asarray(matrix), annotated.obs
    other = {str(column): np.asarray(columns[column]) for column in columns.columns}
    other = {name: column if column.dtype.kind in "fiubU" else column.astype(str) for name, column in other.items()}
    own, index = np.asarray(columns.index).astype(str), str(columns.index.name or "obs_names")
    if index not in other and not all(name.isdecimal() for name in own):
        other = {index: own, **other}
    return checked(values, names, other, file, drop_missing=drop_missing)


def opened_anndata(path: AnyPath, *, is_held: bool = False) -> Any:
    """Open a file of AnnData, whose X stays on disk; unless it will be held, which it has to have room for."""
    file = existing_file(path, "Give a file that ends in .h5ad")
    try:
        import anndata  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("Files of AnnData need anndata; run: pip install 'carre[anndata]'") from error
    with damage(f"{file} cannot be read as AnnData", _AGAIN, Exception):
        _check_tree(file, is_held=is_held)
        return anndata.read_h5ad(file, backed="r")


def load_anndata(path: AnyPath, key: str | None = None, *, drop_missing: bool = False) -> Table:
    """Read a matrix of an AnnData from a file, which stays on disk but for that matrix (`from_anndata`).

    Args:
        path: A file that ends in .h5ad.
        key: Which matrix: a key of ``obsm`` or of ``layers``; None for X.
        drop_missing: Whether rows with NaN are left out, as in `load_table`.

    Example:
        >>> import anndata
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     anndata.AnnData(np.eye(3), obsm={"X_pca": np.eye(3)[:, :2]}).write_h5ad(f"{folder}/cells.h5ad")
        ...     load_anndata(f"{folder}/cells.h5ad", "X_pca").values.shape
        (3, 2)
    """
    annotated = opened_anndata(path, is_held=True)
    file = Path(path).expanduser()
    # What a reader of other people's raises over a damaged file is not known before.
    with damage(f"{file} cannot be read as AnnData", _AGAIN, Exception), closing(annotated.file):
        return _as_table(annotated, key, file, drop_missing=drop_missing)


def _check_tree(file: Path, *, is_held: bool) -> None:
    """Refuse what a file of HDF5 may hold and AnnData never writes, before anything is read of it.

    These are links, which may lead to other files, or round in a circle, and arrays of which other files hold the
    parts, or that nobody ever wrote, of any size.
    """
    import h5py  # type: ignore[import-untyped]  # noqa: PLC0415  (it came with anndata)

    with h5py.File(file) as content:
        groups, count, n_bytes = [content], 0, 0
        while groups:
            group = groups.pop()
            for name in group:
                item, count = group[name], count + 1
                if count > _MOST_PARTS:
                    raise DamagedFileError(f"{file} holds more than {_MOST_PARTS:,} parts, or one of them in itself")
                is_array = isinstance(item, h5py.Dataset)
                if not isinstance(group.get(name, getlink=True), h5py.HardLink) or (
                    is_array and (item.is_virtual or item.external)
                ):
                    must = f"hold all that it is about itself; {item.name!r} of {file} lies elsewhere"
                    raise ArgumentError("path", must, remedy="Save it by AnnData's write_h5ad")
                if is_array:
                    n_bytes += item.size * item.dtype.itemsize if item.size else 0
                else:
                    groups.append(item)
    check_unpacked(file, n_bytes, is_held=is_held)


def columns_of(table: Table, wanted: tuple[str, ...] | None, name: str) -> np.ndarray:
    """Return the columns of a table in the order of the fit, found by their names where both have some.

    Further columns are left out.
    """
    names = table.names
    if wanted is None or names is None or names == wanted:
        return table.values
    refuse_columns(names, wanted, name)
    places = {column: i for i, column in enumerate(names)}
    return table.values[:, [places[column] for column in wanted]]
