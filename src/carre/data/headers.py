"""What lies in files of NumPy, without reading it."""

from __future__ import annotations

import tokenize
import zipfile
from pathlib import Path
from typing import Any

from numpy.lib import format as npy

from carre.data.arrays import is_of_numpy
from carre.data.files import DamagedFileError, reason

_FAILURES = (ValueError, OSError, EOFError, SyntaxError, KeyError, tokenize.TokenError, zipfile.BadZipFile)


def array_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of an npz by their keys; that of an npy has the key ``""``.

    Example:
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.savez(Path(folder, "data.npz"), points=np.zeros((5, 3)), labels=np.arange(5))
        ...     array_shapes(Path(folder, "data.npz"))
        {'points': (5, 3), 'labels': (5,)}
    """
    if not is_of_numpy(file):
        raise DamagedFileError(f"{file} is no file of NumPy (npy, npz); save it again with numpy.save or numpy.savez")
    try:
        if not zipfile.is_zipfile(file):
            with file.open("rb") as stream:
                return {"": _shape(stream)}
        with zipfile.ZipFile(file) as archive:
            shapes = {}
            for name in archive.namelist():
                with archive.open(name) as stream:
                    shapes[name.removesuffix(".npy")] = _shape(stream)
            return shapes
    except _FAILURES as error:
        raise DamagedFileError(f"{file} cannot be read ({reason(error)}); save it again with numpy") from error


def _shape(stream: Any) -> tuple[int, ...]:
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape: tuple[int, ...] = read(stream)[0]
    return shape
