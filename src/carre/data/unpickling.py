"""Arrays from pickles of any age, without running what a pickle may contain."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from carre.data.files import DamagedFileError

# A damaged pickle is a program of random instructions: it can fail in any of these ways.
_FAILURES = (
    *(pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError),
    *(LookupError, MemoryError, TypeError, ValueError),
)


def unpickle_arrays(content: bytes, keys: tuple[str, ...], file: str) -> list[np.ndarray]:
    """Return what a pickled dictionary holds under some keys, as arrays; lists become arrays too."""
    try:
        values = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        named = {key.decode() if isinstance(key, bytes) else key: value for key, value in values.items()}
        found = (named[key] for key in keys)
        return [value.values if isinstance(value, _PickledArray) else np.asarray(value) for value in found]
    except _ForbiddenContentError as error:
        raise DamagedFileError(
            f"{file} was not loaded: it asks for {error}, which arrays have no need of and which could run any code. "
            "Download it again from a source you trust"
        ) from error
    except _FAILURES as error:
        raise DamagedFileError(f"{file} cannot be read as a pickled batch ({error!r}); download it again") from error


class _ForbiddenContentError(Exception):
    pass


class _PickledType:
    """Stands for the type of a pickled array, which must be one of integers."""

    def __init__(self, code: Any) -> None:
        self.dtype = np.dtype(code.decode() if isinstance(code, bytes) else str(code))
        if self.dtype.kind not in "iu":
            raise ValueError(f"an array is of {self.dtype}")

    def __setstate__(self, state: Any) -> None:
        byte_order = state[1].decode() if isinstance(state[1], bytes) else str(state[1])
        self.dtype = np.dtype(byte_order + self.dtype.str[1:])


class _PickledArray:
    """Stands for a pickled array. NumPy itself, which trusts what it restores, does not get to see its state."""

    values: np.ndarray = np.zeros(0)

    def __setstate__(self, state: Any) -> None:
        _, *parts = state
        self.values = _restored(*parts)


def _restored(shape: Any, kind: _PickledType, is_fortran: bool, content: Any) -> np.ndarray:
    return np.frombuffer(content, kind.dtype).reshape(shape, order="F" if is_fortran else "C")


class _ArrayUnpickler(pickle.Unpickler):
    """Restores arrays of integers, lists, dictionaries, strings and numbers; refuses every other class and function.

    What pickled arrays refer to by name is replaced by functions made afresh at each call: there is nothing in reach
    that a pickle could use for something else, or change for those who come later.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in for one of the few things that pickled arrays refer to."""
        match module.replace("numpy._core.", "numpy.core."), name:
            case "numpy", "ndarray":
                return None
            case "numpy", "dtype":
                return lambda code, *_: _PickledType(code)
            case "numpy.core.multiarray", "_reconstruct":
                return lambda *_: _PickledArray()
            case "numpy.core.numeric", "_frombuffer":
                return lambda content, kind, shape, order: _restored(shape, kind, order == "F", content)
            case "_codecs", "encode":
                return lambda text, _: text.encode("latin1")
        raise _ForbiddenContentError(f"{module}.{name}")
