"""Arrays that NumPy saved, and the images in them."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Container, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from carre.boundary import ArgumentError
from carre.data.image_dataset import SYMMETRIC, ImageDataset, Normalization
from carre.files import AnyPath, DamagedFileError, check_memory, check_unpacked, damage, existing_file

_IMAGE_KEYS = ("images", "x", "X", "pixels", "data")
_LABEL_KEYS = ("labels", "y")
_CHANNELS = (1, 3)
# Of an npy, and of an archive as npz is one.
_BEGINNINGS = (b"\x93NUMPY", b"PK")
_SAVE_AGAIN = "Save it again with numpy.save or numpy.savez"
# NumPy refuses longer headers; who saves more arrays than this saves them wrongly.
_LONGEST_HEADER, _MOST_ARRAYS = 2**14, 10_000


def load_arrays(path: AnyPath, *, normalization: Normalization = SYMMETRIC) -> ImageDataset:
    """Read images from a file of NumPy: npy, or npz with labels under `labels` or `y`, if there are any.

    Args:
        path: A file with images of shape (n, H, W), (n, C, H, W) or (n, H, W, C), C being 1 or 3. In an npz they are
            called `images`, `x`, `X`, `pixels` or `data`, or are the only array beside the labels. They are uint8, or
            floating and in [0, 1]; the latter are rounded to the 256 levels of a byte.
        normalization: What makes the images of a geometry of the pixels; they lie in [−1, 1] by default.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "squares.npz")
        ...     np.savez(file, images=np.zeros((5, 8, 8, 3), dtype=np.uint8), labels=np.arange(5))
        ...     load_arrays(file)
        ImageDataset('squares', n=5, sample_shape=(3, 8, 8), classes=5)
    """
    file = existing_file(path, "Give a file that numpy.save or numpy.savez wrote")
    arrays = read_arrays(file)
    labels = next((arrays.pop(key) for key in _LABEL_KEYS if key in arrays), None)
    key = next((key for key in _IMAGE_KEYS if key in arrays), None)
    if key is None and len(arrays) != 1:
        must = f"hold images under one of the keys {', '.join(_IMAGE_KEYS)}, or a single array beside the labels"
        remedy = "Save them by numpy.savez(file, images=…, labels=…)"
        raise ArgumentError("path", f"{must}; {file} has {', '.join(arrays) or 'none'}", remedy=remedy)
    pixels = _as_pixels(arrays[key] if key is not None else next(iter(arrays.values())), file)
    if labels is not None and labels.size != len(pixels):
        raise DamagedFileError(f"{file} has {len(pixels)} images but {labels.size} labels; save it again")
    return ImageDataset(pixels, None if labels is None else labels.reshape(-1), normalization, file.stem)


def read_arrays(file: Path, only: Container[str] | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of an npz by their keys, all or some, or the one of an npy; pickled objects are refused."""
    with _opened(file) as content:
        if isinstance(content, np.ndarray):
            check_memory(content.nbytes, f"what {file} holds", "Save a part of it")
            return {"images": np.array(content)}
        return {key: content[key] for key in content.files if only is None or key in only}


def mapped_array(file: Path) -> np.ndarray:
    """Map the array of an npy into memory."""
    with _opened(file) as content:
        array: np.ndarray = content
        return array


def array_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of an npz by their keys, without reading them; that of an npy has the key ``""``.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.savez(Path(folder, "data.npz"), points=np.zeros((5, 3)), labels=np.arange(5))
        ...     array_shapes(Path(folder, "data.npz"))
        {'points': (5, 3), 'labels': (5,)}
    """
    if not is_of_numpy(file):
        raise DamagedFileError(f"{file} is no file of NumPy (npy, npz). Give one, or {_SAVE_AGAIN.lower()}")
    with damage(f"{file} cannot be read as arrays of numbers", _SAVE_AGAIN):
        if is_of_numpy(file, npz=False):
            with file.open("rb") as stream:
                return {"": _shape(stream, file.stat().st_size)}
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            check_unpacked(file, sum(member.file_size for member in members))
            if len(members) > _MOST_ARRAYS:
                raise ValueError(f"it holds {len(members):,} arrays; at most {_MOST_ARRAYS:,} are read")
            shapes = {}
            for member in members:
                with archive.open(member) as stream:
                    shapes[member.filename.removesuffix(".npy")] = _shape(stream, member.file_size)
            return shapes


def _shape(stream: Any, n_bytes: int) -> tuple[int, ...]:
    """Read the shape of an array from its header, which may claim no more than there are bytes."""
    # NumPy itself would read a header of any length before it refuses it.
    start = io.BytesIO(stream.read(_LONGEST_HEADER))
    is_first = npy.read_magic(start) == (1, 0)
    header = npy.read_array_header_1_0(start) if is_first else npy.read_array_header_2_0(start)
    shape, _, dtype = header
    there = n_bytes - start.tell()
    if min(shape, default=0) < 0 or (not dtype.hasobject and math.prod(shape) * dtype.itemsize > there):
        raise ValueError(f"its header tells of {dtype} of shape {shape}, and there are {there:,} bytes")
    return tuple(shape)


def is_of_numpy(file: Path, *, npz: bool = True) -> bool:
    """Say whether a file begins like an npy, or an npz."""
    with file.open("rb") as stream:
        return stream.read(6).startswith(_BEGINNINGS if npz else _BEGINNINGS[:1])


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Open a file of NumPy: an npy is mapped into memory, of an npz the list of contents is read."""
    array_shapes(file)
    with damage(f"{file} cannot be read as arrays of numbers", _SAVE_AGAIN):
        try:
            content = np.load(file, mmap_mode="r", allow_pickle=False)
            with nullcontext() if isinstance(content, np.ndarray) else content:
                yield content
        except ValueError as error:
            # NumPy would advise to load pickles, which could run any code.
            has_objects = any(word in str(error) for word in ("pickle", "object"))
            raise ValueError("it holds objects, or is damaged" if has_objects else error) from error


def _as_pixels(images: np.ndarray, file: Path) -> np.ndarray:
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[3] in _CHANNELS and images.shape[1] not in _CHANNELS:
        images = images.transpose(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in _CHANNELS or 0 in images.shape:
        must = "hold images of shape (n, H, W), (n, C, H, W) or (n, H, W, C), with 1 or 3 channels C"
        remedy = "Reshape them, or make an ImageDataset yourself for other numbers of channels"
        raise ArgumentError("path", f"{must}; {file} has shape {images.shape}", remedy=remedy)
    must = f"hold uint8 images, or floating ones in [0, 1]; those of {file}"
    if images.dtype.kind == "f":
        if not bool(((images >= 0) & (images <= 1)).all()):
            got = f"lie between {float(images.min())} and {float(images.max())}"
            raise ArgumentError("path", f"{must} {got}", remedy="Shift and divide them before saving")
        images = np.rint(images * 255).astype(np.uint8)
    if images.dtype != np.uint8:
        remedy = "Convert them with images.astype(numpy.uint8) if they lie between 0 and 255"
        raise ArgumentError("path", f"{must} are {images.dtype}", remedy=remedy)
    return np.ascontiguousarray(images)
