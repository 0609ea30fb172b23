"""Arrays that NumPy saved."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Container
from pathlib import Path

import numpy as np

from carre.data.dataset import ImageDataset
from carre.data.files import AnyPath, DamagedFileError, existing_file, reason
from carre.data.normalization import SYMMETRIC, Normalization

_IMAGE_KEYS = ("images", "x", "X", "pixels", "data")
_LABEL_KEYS = ("labels", "y")
_CHANNELS = (1, 3)
# Of an npy, and of an archive as npz is one.
_BEGINNINGS = (b"\x93NUMPY", b"PK")
_SAVE_AGAIN = "save it again with numpy.save or numpy.savez"
# What NumPy, its reader of headers and the unpacking raise over damaged files.
_FAILURES = (
    *(ValueError, OSError, EOFError, SyntaxError, MemoryError, NotImplementedError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


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
        raise ValueError(
            f"path must hold images under one of the keys {', '.join(_IMAGE_KEYS)}, or a single array beside the "
            f"labels; {file} has {', '.join(arrays) or 'none'}. Save them by numpy.savez(file, images=…, labels=…)"
        )
    pixels = _as_pixels(arrays[key] if key is not None else next(iter(arrays.values())), file)
    if labels is not None and labels.size != len(pixels):
        raise DamagedFileError(f"{file} has {len(pixels)} images but {labels.size} labels; save it again")
    return ImageDataset(pixels, None if labels is None else labels.reshape(-1), normalization, file.stem)


def read_arrays(file: Path, only: Container[str] | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of an npz by their keys, all or some, or the one of an npy; pickled objects are refused."""
    if not is_of_numpy(file):
        raise DamagedFileError(f"{file} is no file of NumPy (npy, npz); give one, or {_SAVE_AGAIN}")
    try:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"images": content}
        with content:
            return {key: content[key] for key in content.files if only is None or key in only}
    except _FAILURES as error:
        # NumPy would advise to load pickles, which could run any code.
        why = "it holds objects, or is damaged" if "pickle" in str(error) else reason(error)
        raise DamagedFileError(f"{file} cannot be read as arrays of numbers ({why}); {_SAVE_AGAIN}") from error


def is_of_numpy(file: Path) -> bool:
    """Say whether a file begins like an npy or an npz."""
    with file.open("rb") as stream:
        return stream.read(6).startswith(_BEGINNINGS)


def _as_pixels(images: np.ndarray, file: Path) -> np.ndarray:
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[3] in _CHANNELS and images.shape[1] not in _CHANNELS:
        images = images.transpose(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in _CHANNELS or 0 in images.shape:
        raise ValueError(
            f"path must hold images of shape (n, H, W), (n, C, H, W) or (n, H, W, C), with 1 or 3 channels C; {file} "
            f"has shape {images.shape}. Reshape them, or make an ImageDataset yourself for other numbers of channels"
        )
    if images.dtype.kind == "f":
        if not bool(((images >= 0) & (images <= 1)).all()):
            raise ValueError(
                f"path must hold uint8 images, or floating ones in [0, 1]; those of {file} lie between "
                f"{float(images.min())} and {float(images.max())}. Shift and divide them before saving"
            )
        images = np.rint(images * 255).astype(np.uint8)
    if images.dtype != np.uint8:
        raise ValueError(
            f"path must hold uint8 images, or floating ones in [0, 1]; those of {file} are {images.dtype}. "
            "Convert them with images.astype(numpy.uint8) if they lie between 0 and 255"
        )
    return np.ascontiguousarray(images)
