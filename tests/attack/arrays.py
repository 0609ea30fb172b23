"""Arrays of every kind that people hand over, made of one plain array whose numbers are all 0 or 1.

Every dtype holds these numbers exactly, so that a kind that is accepted must give exactly what the plain array gives.
"""

from __future__ import annotations

import array
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import torch
from torch import Tensor


class Kind(NamedTuple):
    """A way to hand over numbers.

    Attributes:
        name: What it is called.
        build: Makes it of a plain float64 array.
        must_refuse: Whether no answer can be right.
    """

    name: str
    build: Callable[[np.ndarray], Any]
    must_refuse: bool = False


class Answering:
    """Something like an array."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values


class Failing:
    """Something like an array, until it is read."""

    shape = (4, 3)
    ndim = 2

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise self.error


class Interface:
    """An array by its address."""

    def __init__(self, values: np.ndarray) -> None:
        self.kept, self.__array_interface__ = values, values.__array_interface__


class OwnTensor(Tensor):
    """A subclass."""


class OwnArray(np.ndarray):
    """A subclass."""


def _negated_view(values: np.ndarray) -> Tensor:
    """Make a tensor whose sign is a bit beside its numbers."""
    view = torch.complex(torch.zeros(values.shape).double(), -torch.tensor(values)).conj().imag
    assert view.is_neg()
    return view


def _inference(values: np.ndarray) -> Tensor:
    with torch.inference_mode():
        return torch.tensor(values) + 0


def _unaligned(values: np.ndarray) -> np.ndarray:
    raw = np.empty(values.nbytes + 1, dtype=np.uint8)[1:]
    found = raw.view(np.float64).reshape(values.shape)
    found[:] = values
    return found


def _mapped(values: np.ndarray) -> np.ndarray:
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "points.npy"), values)
        return np.load(Path(folder, "points.npy"), mmap_mode="r")


def _structured(values: np.ndarray) -> np.ndarray:
    rows = [tuple(row) for row in np.atleast_2d(values.T).T.tolist()]
    return np.array(rows, dtype=[(f"x{i}", float) for i in range(len(rows[0]))])


def _hidden(values: np.ndarray) -> np.ma.MaskedArray:
    mask = np.zeros(values.shape, dtype=bool)
    mask.flat[0] = True
    return np.ma.array(values, mask=mask)


def _ragged(values: np.ndarray) -> list[Any]:
    found = values.tolist()
    return [*found[:-1], [0.0] if values.ndim > 1 else [0.0, 0.0]]


def _itself(values: np.ndarray) -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _torch_dtype(dtype: torch.dtype) -> Kind:
    return Kind(f"torch {dtype}"[6:], lambda values: torch.tensor(values).to(dtype), dtype.is_complex)


def _numpy_dtype(name: str) -> Kind:
    return Kind(f"numpy {name}", lambda values: values.astype(name), name.startswith("complex"))


_DTYPES = "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_NUMPY = "float64 float32 float16 longdouble >f8 >f4 >i4 <i2 int8 int64 uint8 uint64 bool complex64 complex128"

TENSORS = (
    *(_torch_dtype(getattr(torch, name)) for name in [*_DTYPES.split(), "bool", "complex32", "complex64"]),
    Kind("meta", lambda values: torch.tensor(values, device="meta"), True),
    Kind("sparse coo", lambda values: torch.tensor(values).to_sparse()),
    Kind("sparse csr", lambda values: torch.tensor(np.atleast_2d(values)).to_sparse_csr()),
    Kind("sparse csc", lambda values: torch.tensor(np.atleast_2d(values)).to_sparse_csc()),
    Kind("sparse bsr", lambda values: torch.tensor(np.atleast_2d(values)).to_sparse_bsr((1, 1))),
    Kind("quantized", lambda values: torch.quantize_per_tensor(torch.tensor(values).float(), 0.5, 0, torch.quint8)),
    Kind("nested", lambda values: torch.nested.nested_tensor([torch.tensor(row) for row in np.atleast_2d(values)])),
    Kind(
        "nested, jagged",
        lambda values: torch.nested.nested_tensor(
            [torch.tensor(row) for row in np.atleast_2d(values)], layout=torch.jagged
        ),
    ),
    Kind("mkldnn", lambda values: torch.tensor(values).float().to_mkldnn()),
    Kind("masked tensor", lambda values: torch.masked.masked_tensor(torch.tensor(values), torch.tensor(values) > 0)),
    Kind("requires grad", lambda values: torch.tensor(values, requires_grad=True)),
    Kind("inference", _inference),
    Kind("parameter", lambda values: torch.nn.Parameter(torch.tensor(values))),
    Kind("subclass of Tensor", lambda values: torch.tensor(values).as_subclass(OwnTensor)),
    Kind(
        "not contiguous", lambda values: torch.tensor(values.T.copy()).mT if values.ndim > 1 else torch.tensor(values)
    ),
    Kind("strided", lambda values: torch.tensor(values).repeat_interleave(2, 0)[::2]),
    Kind("neg view", _negated_view),
    Kind("conj view", lambda values: torch.tensor(values).to(torch.complex64).conj(), True),
    Kind("real of complex", lambda values: torch.tensor(values).to(torch.complex128).conj().real),
)

ARRAYS = (
    *(_numpy_dtype(name) for name in _NUMPY.split()),
    Kind("object of floats", lambda values: values.astype(object)),
    Kind(
        "object with None",
        lambda values: np.where(np.arange(values.size).reshape(values.shape) > 0, values, None),
        True,
    ),
    Kind("object of text", lambda values: values.astype(str).astype(object), True),
    Kind("text", lambda values: values.astype(str), True),
    Kind("bytes", lambda values: values.astype("S"), True),
    Kind("datetime64", lambda values: values.astype("datetime64[s]"), True),
    Kind("timedelta64", lambda values: values.astype("timedelta64[s]"), True),
    Kind("void", lambda values: values.view("V8"), True),
    Kind("structured", _structured, True),
    Kind("recarray", lambda values: _structured(values).view(np.recarray), True),
    Kind("matrix", np.matrix),
    Kind("subclass of ndarray", lambda values: values.view(OwnArray)),
    Kind("masked, nothing hidden", np.ma.array),
    Kind("masked", _hidden, True),
    Kind("masked whole", lambda values: np.ma.array(values, mask=True), True),
    Kind("list of masked", lambda values: list(_hidden(values)), True),
    Kind("tuple of masked", lambda values: tuple(_hidden(values)), True),
    Kind("masked in an object", lambda values: Answering(_hidden(values)), True),
    Kind("masked integers", lambda values: _hidden(values.astype(int)), True),
    Kind("negative strides", lambda values: np.ascontiguousarray(values[::-1])[::-1]),
    Kind("fortran order", np.asfortranarray),
    Kind("read-only", lambda values: np.frombuffer(values.tobytes()).reshape(values.shape)),
    Kind("unaligned", _unaligned),
    Kind("memory-mapped", _mapped),
    Kind("with NaN", lambda values: np.where(values > 0, np.nan, values), True),
    Kind("with infinity", lambda values: np.where(values > 0, np.inf, values), True),
    Kind("with -infinity", lambda values: np.where(values > 0, -np.inf, values), True),
    Kind("scipy csr", scipy.sparse.csr_matrix),
    Kind("scipy coo array", scipy.sparse.coo_array),
    Kind("Series", lambda values: pd.Series(values.ravel())),
    Kind("polars Series", lambda values: pl.Series(values.ravel())),
    Kind("list", lambda values: values.tolist()),
    Kind("tuple", lambda values: tuple(values.tolist())),
    Kind("list of arrays", list),
    Kind("list of tensors", lambda values: list(torch.tensor(values))),
    Kind("list of tensors with grad", lambda values: list(torch.tensor(values, requires_grad=True))),
    Kind("array.array", lambda values: array.array("d", values.ravel().tolist())),
    Kind("memoryview", memoryview),
    Kind("like an array", Answering),
    Kind("like an array, returning a list", lambda values: Answering(values.tolist())),
    Kind("like an array, failing", lambda values: Failing(OSError("the connection\nwas lost")), True),
    Kind("like an array, failing silently", lambda values: Failing(KeyError()), True),
    Kind("array interface", Interface),
    Kind("Decimals", lambda values: [[Decimal(float(v)) for v in row] for row in np.atleast_2d(values)]),
    Kind("huge integers", lambda values: (values.astype(int).astype(object) * 10**400).tolist(), True),
    Kind("ragged", _ragged, True),
    Kind("a list in itself", _itself, True),
    Kind("generator", lambda values: (row for row in values), True),
    Kind("iterator", lambda values: iter(values.tolist()), True),
    Kind("dict", lambda values: dict(enumerate(values.tolist())), True),
    Kind("set", lambda values: set(values.ravel().tolist()), True),
    Kind("a string", str, True),
    Kind("a path", lambda values: Path("points.npy"), True),
    Kind("None in a list", lambda values: [None] * len(values), True),
    Kind("a function", lambda values: len, True),
    Kind("a class", lambda values: np.ndarray, True),
    Kind("a module", lambda values: np, True),
    Kind("Ellipsis", lambda values: ..., True),
    Kind("an object", lambda values: object(), True),
    Kind("no elements", lambda values: [], True),
    Kind("0 rows", lambda values: values[:0], True),
    Kind("0 columns", lambda values: np.zeros((4, 0)), True),
    Kind("0 tensors", lambda values: torch.zeros(0), True),
    Kind("0 × 0", lambda values: torch.zeros(0, 0), True),
    Kind("5 axes", lambda values: np.zeros((1, 1, 1, 1, 1)), True),
    Kind("60 axes", lambda values: torch.zeros((1,) * 60), True),
)


def _frame(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])


FRAMES = (
    Kind("DataFrame", _frame),
    Kind("DataFrame, numbered", pd.DataFrame),
    Kind("DataFrame of float32", lambda values: _frame(values).astype(np.float32)),
    Kind("DataFrame, nullable", lambda values: _frame(values).astype("Float64")),
    Kind("DataFrame, nullable integers", lambda values: _frame(values).astype("Int8")),
    Kind("DataFrame, nullable truths", lambda values: _frame(values).astype("boolean")),
    Kind("DataFrame of Arrow", lambda values: _frame(values).astype("double[pyarrow]")),
    Kind("DataFrame of Arrow Booleans", lambda values: _frame(values).astype("bool[pyarrow]")),
    Kind("DataFrame, NA", lambda values: _frame(values).astype("Int64").where(values > 0), True),
    Kind("DataFrame of Arrow, NA", lambda values: _frame(values).astype("double[pyarrow]").where(values > 0), True),
    Kind("DataFrame, NaN", lambda values: _frame(values).where(values > 0), True),
    Kind("DataFrame, sparse", lambda values: _frame(values).astype(pd.SparseDtype("float64", 0.0))),
    Kind("DataFrame, categories", lambda values: _frame(values).astype("category"), True),
    Kind(
        "DataFrame, ordered categories",
        lambda values: _frame(values).apply(lambda c: pd.Categorical(c, ordered=True)),
        True,
    ),
    Kind("DataFrame of dates", lambda values: _frame(values).apply(pd.to_datetime), True),
    Kind("DataFrame of dates with a zone", lambda values: _frame(values).apply(pd.to_datetime, utc=True), True),
    Kind("DataFrame of durations", lambda values: _frame(values).apply(pd.to_timedelta), True),
    Kind(
        "DataFrame of periods",
        lambda values: _frame(values).apply(lambda c: pd.PeriodIndex.from_ordinals(c.astype(int), freq="D")),
        True,
    ),
    Kind(
        "DataFrame of intervals",
        lambda values: _frame(values).apply(lambda c: pd.arrays.IntervalArray.from_arrays(c, c + 1)),
        True,
    ),
    Kind("DataFrame of text", lambda values: _frame(values).astype(str), True),
    Kind("DataFrame of complex", lambda values: _frame(values).astype(complex), True),
    Kind("DataFrame of Decimals", lambda values: _frame(values).map(Decimal)),
    Kind("DataFrame of objects", lambda values: _frame(values).astype(object)),
    Kind("DataFrame of lists", lambda values: _frame(values).map(lambda value: [value]), True),
    Kind(
        "DataFrame, MultiIndex rows",
        lambda values: _frame(values).set_index([["a"] * len(values), list(range(len(values)))]),
    ),
    Kind(
        "DataFrame, MultiIndex columns",
        lambda values: pd.DataFrame(values, columns=pd.MultiIndex.from_product([["a"], range(values.shape[1])])),
    ),
    Kind("DataFrame, columns twice", lambda values: pd.DataFrame(values, columns=["a"] * values.shape[1])),
    Kind("DataFrame, no rows", lambda values: _frame(values)[:0], True),
    Kind("DataFrame, no columns", lambda values: _frame(values)[[]], True),
    Kind("polars", lambda values: pl.DataFrame(_frame(values).to_dict("list"))),
    Kind("polars, lazy", lambda values: pl.DataFrame(_frame(values).to_dict("list")).lazy(), True),
    Kind(
        "polars, nulls",
        lambda values: pl.DataFrame({f"x{i}": [None, *c[1:]] for i, c in enumerate(values.T.tolist())}),
        True,
    ),
    Kind(
        "polars, dates",
        lambda values: pl.DataFrame({f"x{i}": c.astype("datetime64[us]") for i, c in enumerate(values.T)}),
    ),
    Kind(
        "polars, Decimals",
        lambda values: pl.DataFrame({f"x{i}": list(map(Decimal, c)) for i, c in enumerate(values.T.tolist())}),
    ),
    Kind(
        "polars, lists",
        lambda values: pl.DataFrame({f"x{i}": [[v] for v in c] for i, c in enumerate(values.T.tolist())}),
        True,
    ),
    Kind("Arrow table", lambda values: pa.table({f"x{i}": c for i, c in enumerate(values.T)})),
)


@contextmanager
def in_silence() -> Iterator[None]:
    """Let libraries warn of their own kinds of arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
