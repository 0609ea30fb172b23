"""MNIST and what looks like it: idx files, or the npz of Keras."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from carre.boundary import ArgumentError
from carre.data.arrays import is_of_numpy, read_arrays
from carre.data.image_dataset import ImageDataset, Normalization, check_choice
from carre.files import (
    AnyPath,
    DamagedFileError,
    MissingFileError,
    check_memory,
    damage,
    existing_file,
    existing_path,
    find_file,
    is_gzip,
    unpacked_size,
)

_REMEDY = "Download the four idx files of MNIST (images and labels, train and t10k; .gz is fine), or mnist.npz, into it"
_NORMALIZATION = Normalization((0.1307,), 0.3081)
_IDX_NAMES = {
    ("train", "images"): ("train-images-idx3-ubyte", "train-images.idx3-ubyte"),
    ("train", "labels"): ("train-labels-idx1-ubyte", "train-labels.idx1-ubyte"),
    ("test", "images"): ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"),
    ("test", "labels"): ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"),
}
# The md5 sums of the idx files, unpacked, as they are published.
_CHECKSUMS = {
    ("train", "images"): "6bbc9ace898e44ae57da46a324031adb",
    ("train", "labels"): "a25bea736e30d166cdddb491f175f624",
    ("test", "images"): "2646ac647ad5339dbf082846283269ea",
    ("test", "labels"): "27ae3e4e09519cfbb04c329615203637",
}
_KERAS_KEYS = {"images": "x", "labels": "y"}
_KERAS_NAME = "mnist.npz"
# Where torchvision puts the files.
_SUBFOLDERS = (".", "raw", "MNIST/raw")
_IDX_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_IDX_BYTE, _MOST_AXES = 8, 8


def load_mnist(folder: AnyPath, split: str = "train", *, verify: bool = True) -> ImageDataset:
    """Read the handwritten digits of MNIST: 28 × 28, gray, ten classes.

    Args:
        folder: Where the idx files lie, plain or as .gz, or mnist.npz; or the path of the latter.
        split: "train" (60,000 images) or "test" (10,000).
        verify: Compare with the published checksums. Switch it off for look-alikes such as Fashion-MNIST; they get
            the normalization of MNIST (mean 0.1307, deviation 0.3081) too.

    Example:
        >>> digits = load_mnist("data/mnist")  # doctest: +SKIP
        >>> digits  # doctest: +SKIP
        ImageDataset('MNIST train', n=60000, sample_shape=(1, 28, 28), classes=10)
    """
    check_choice(split, ("train", "test"))
    path = existing_path(folder, _REMEDY, "folder")
    images, labels = (_read_part(path, split, part, verify) for part in ("images", "labels"))
    if images.ndim != 3 or images.dtype != np.uint8 or labels.ndim != 1 or labels.dtype.kind not in "iu":
        must = "must hold uint8 images of shape (n, H, W) and integer labels of shape (n,)"
        got = f"{images.dtype}, {images.shape} and {labels.dtype}, {labels.shape}"
        raise DamagedFileError(f"{path} {must}; got {got}. {_REMEDY}")
    if len(images) != len(labels):
        raise DamagedFileError(f"{path} has {len(images)} images but {len(labels)} labels for {split!r}. {_REMEDY}")
    name = f"{'MNIST' if verify else path.resolve().name} {split}"
    return ImageDataset(images[:, None], labels, _NORMALIZATION, name)


def read_idx(path: AnyPath) -> np.ndarray:
    """Read an array in the idx format, plain or packed by gzip.

    It is the format of MNIST: two zero bytes, the type, the number of axes, their lengths and the entries, big-endian.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "labels").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
        ...     read_idx(Path(folder, "labels"))
        array([7, 2, 1], dtype=uint8)
    """
    file = existing_file(path, "Give the path of an idx file")
    with damage(f"{file} cannot be unpacked", "Download it again"):
        n_bytes = unpacked_size(file) if is_gzip(file) else file.stat().st_size
        with (gzip.open if is_gzip(file) else open)(file, "rb") as stream:
            return _read_idx(stream, n_bytes, file)


def _read_idx(stream: Any, n_bytes: int, file: Path) -> np.ndarray:
    """Read an array from a stream of so many bytes, once its header asks for as many."""
    begin = stream.read(4)
    if len(begin) < 4 or begin[:2] != b"\0\0" or begin[2] not in _IDX_DTYPES or not 0 < begin[3] <= _MOST_AXES:
        why = f"its first four bytes are {begin.hex(' ')}"
        raise DamagedFileError(f"{file} is no idx file, or is damaged; download it again: {why}")
    dtype, lengths = np.dtype(_IDX_DTYPES[begin[2]]), stream.read(4 * begin[3])
    shape = np.frombuffer(lengths, ">u4").tolist() if len(lengths) == 4 * begin[3] else [0]
    expected = 4 + 4 * begin[3] + dtype.itemsize * math.prod(shape)
    if n_bytes != expected:
        why = f"an array of shape {tuple(shape)} takes {expected} bytes, and there are {n_bytes}"
        raise DamagedFileError(f"{file} is damaged: {why}; download it again")
    check_memory(n_bytes, f"the array of {file}", "Give a part of it")
    # A copy: native byte order, and writable.
    return np.frombuffer(stream.read(), dtype).reshape(shape).astype(dtype.newbyteorder("="))


def holds_mnist(folder: Path) -> bool:
    """Say whether a folder looks like MNIST."""
    names = [name for names in _IDX_NAMES.values() for name in _spellings(names)]
    return find_file(folder, (_KERAS_NAME, *names)) is not None


def _read_part(path: Path, split: str, part: str, verify: bool) -> np.ndarray:
    names = _IDX_NAMES[split, part]
    file = find_file(path, _spellings(names))
    if file is not None:
        array = read_idx(file)
    else:
        file = path / _KERAS_NAME if path.is_dir() else path
        if not file.is_file():
            wanted = f"{names[0]} (or {names[1]}, either also with .gz), or {_KERAS_NAME}"
            raise MissingFileError("folder", f"hold {wanted}; there is none in {path}", remedy=_REMEDY)
        if file == path and not is_of_numpy(file):
            must = f"be that of the idx files, or the path of {_KERAS_NAME}"
            raise ArgumentError("folder", must, got=f"the file {path}")
        key = f"{_KERAS_KEYS[part]}_{split}"
        arrays = read_arrays(file, only=(key,))
        if key not in arrays:
            must = "must hold x_train, y_train, x_test and y_test"
            raise DamagedFileError(f"{file} {must}; there is no {key}. {_REMEDY}")
        array = arrays[key]
    if verify and _idx_checksum(array) != _CHECKSUMS[split, part]:
        remedy = "Download it again, or pass verify=False if it is a look-alike such as Fashion-MNIST"
        raise DamagedFileError(f"{file} does not hold the {part} of MNIST ({split}): its checksum differs. {remedy}")
    return array


def _spellings(names: tuple[str, ...]) -> list[str]:
    return [f"{folder}/{name}{end}" for folder in _SUBFOLDERS for name in names for end in ("", ".gz")]


def _idx_checksum(array: np.ndarray) -> str:
    """Compute the md5 of an array of bytes as an idx file: one list of checksums serves every container."""
    header = struct.pack(f">HBB{array.ndim}I", 0, _IDX_BYTE, array.ndim, *array.shape)
    return hashlib.md5(header + array.tobytes(), usedforsecurity=False).hexdigest()
