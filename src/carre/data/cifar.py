"""CIFAR-10, as pickles of Python 2 or as binary records, in a folder or in the archive.

Pickles of any age are read without running what they may contain.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import operator
import pickle
import tarfile
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from carre.data.image_dataset import SYMMETRIC, ImageDataset, check_choice
from carre.files import (
    AnyPath,
    DamagedFileError,
    MissingFileError,
    damage,
    existing_path,
    find_file,
    is_gzip,
    unpacked_size,
)

_REMEDY = "Download CIFAR-10 (the Python or the binary version) and give the archive, or the folder it was unpacked to"
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
_SUBFOLDERS = (".", "cifar-10-batches-py", "cifar-10-batches-bin")
_ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz")
_SHAPE = (3, 32, 32)
_VALUES = 3 * 32 * 32
# The sha1 sums of the binary batches, as they are published. Both versions hold the same labels and pixels in the same
# order, so that a pickle is compared by what it holds: the file may have been written again by a newer Python.
_CHECKSUMS = {
    "data_batch_1": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch": "67eb016db431130d61cd03c7ad570b013799c88c",
}

# Of a batch; those of CIFAR-10 have 31 MB.
_MOST_BYTES = 2**27
# Opcodes of pickles.
_OF_SETS = {code[0] for code in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)}
_OF_DICTIONARIES = {code[0] for code in (pickle.SETITEM, pickle.SETITEMS, pickle.DICT)}


def load_cifar10(folder: AnyPath, split: str = "train", *, verify: bool = True) -> ImageDataset:
    """Read the photographs of CIFAR-10: 32 × 32, color, ten classes; pixels in [−1, 1].

    Pickles are read without running what they may contain: anything but arrays and plain values is refused.

    Args:
        folder: The folder of the batches, the one above it, or the archive (.tar.gz).
        split: "train" (50,000 images) or "test" (10,000).
        verify: Compare labels and pixels with the published checksums. Switch it off for other data in this format.

    Example:
        >>> photographs = load_cifar10("data")  # doctest: +SKIP
        >>> photographs  # doctest: +SKIP
        ImageDataset('CIFAR-10 train', n=50000, sample_shape=(3, 32, 32), classes=10)
    """
    check_choice(split, _BATCHES)
    path = existing_path(folder, _REMEDY, "folder")
    files = _read_files(path, _BATCHES[split])
    parts = []
    for batch in _BATCHES[split]:
        file, content = files.pop(batch)
        records = _from_binary(content, file) if file.endswith(".bin") else _from_pickle(content, file)
        if records[:, 0].max(initial=0) >= len(_CLASSES):
            raise DamagedFileError(f"{file} is damaged: labels must lie between 0 and 9; got {records[:, 0].max()}")
        if verify and hashlib.sha1(records.tobytes(), usedforsecurity=False).hexdigest() != _CHECKSUMS[batch]:
            remedy = "Download it again, or pass verify=False if it is meant to be other data"
            raise DamagedFileError(f"{file} does not hold the {batch} of CIFAR-10: its checksum differs. {remedy}")
        parts.append(records)
    records = np.concatenate(parts)
    pixels = records[:, 1:].reshape(-1, *_SHAPE)
    name = f"{'CIFAR-10' if verify else path.resolve().name} {split}"
    return ImageDataset(pixels, records[:, 0].astype(np.int64), SYMMETRIC, name, _CLASSES)


def holds_cifar10(folder: Path) -> bool:
    """Say whether a folder looks like CIFAR-10."""
    names = [name for split in _BATCHES.values() for batch in split for name in _spellings(batch)]
    return find_file(folder, (*_ARCHIVES, *names)) is not None


def _spellings(batch: str) -> list[str]:
    return [f"{folder}/{batch}{end}" for folder in _SUBFOLDERS for end in ("", ".bin")]


def _read_files(path: Path, batches: tuple[str, ...]) -> dict[str, tuple[str, bytes]]:
    """Return the name and the content of the file of each batch."""
    found = {batch: file for batch in batches if (file := find_file(path, _spellings(batch))) is not None}
    if len(found) == len(batches):
        for file in found.values():
            _check_size(file.stat().st_size, str(file))
        return {batch: (str(file), file.read_bytes()) for batch, file in found.items()}
    archive = path if path.is_file() else find_file(path, _ARCHIVES)
    if archive is None:
        missing = next(batch for batch in batches if batch not in found)
        which = f"{missing} or {missing}.bin, in itself or in {' or '.join(_SUBFOLDERS[1:])}"
        must = f"hold {which}, or the archive {' or '.join(_ARCHIVES)}; there is none in {path}"
        raise MissingFileError("folder", must, remedy=_REMEDY)
    return _read_archive(archive, batches)


def _check_size(n_bytes: int, name: str) -> None:
    if n_bytes > _MOST_BYTES:
        why = f"has {n_bytes / 1e6:,.0f} MB; at most {_MOST_BYTES / 1e6:,.0f} MB of a batch are read"
        raise DamagedFileError(f"{name} {why}, four times as much as those of CIFAR-10. Cut it into smaller ones")


class _Pieces(io.BufferedReader):
    """A file of which nobody takes too much at once, whatever a header in it tells of its own length."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read so many bytes."""
        if size is not None and size > _MOST_BYTES:
            raise tarfile.ReadError(f"a part of it should have {size:,} bytes")
        return super().read(size)


def _read_archive(archive: Path, batches: tuple[str, ...]) -> dict[str, tuple[str, bytes]]:
    """Read the batches without unpacking anything to the disk."""
    found = {}
    with damage(f"{archive} cannot be unpacked", _REMEDY):
        is_packed = is_gzip(archive) and unpacked_size(archive) > 0
        opened: Any = (gzip.open if is_packed else open)(archive, "rb")
        with opened, _Pieces(opened) as stream, tarfile.open(fileobj=stream, mode="r:") as members:
            for member in members:
                name = PurePosixPath(member.name).name
                is_wanted = member.isfile() and name.removesuffix(".bin") in batches
                content = members.extractfile(member) if is_wanted else None
                if content is not None:
                    _check_size(member.size, f"{archive}/{name}")
                    found[name.removesuffix(".bin")] = f"{archive}/{name}", content.read()
    missing = [batch for batch in batches if batch not in found]
    if missing:
        raise DamagedFileError(f"{archive} does not hold {', '.join(missing)} of CIFAR-10. {_REMEDY}")
    return found


def _from_binary(content: bytes, file: str) -> np.ndarray:
    """Cut the content into records of a label and 3,072 pixel values."""
    if not content or len(content) % (1 + _VALUES):
        why = f"it must consist of records of {1 + _VALUES} bytes; got {len(content)} bytes"
        raise DamagedFileError(f"{file} is damaged: {why}. Download it again")
    return np.frombuffer(content, np.uint8).reshape(-1, 1 + _VALUES)


def _from_pickle(content: bytes, file: str) -> np.ndarray:
    """Read a pickled batch as the records of the binary version."""
    data, labels = _unpickled(content, file)
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _VALUES or labels.dtype.kind not in "iu":
        must = f"must hold data (uint8, n × {_VALUES}) and labels (integers)"
        got = f"{data.dtype}, {data.shape} and {labels.dtype}, {labels.shape}"
        raise DamagedFileError(f"{file} {must}; got {got}. Download it again")
    if labels.shape != data.shape[:1]:
        raise DamagedFileError(f"{file} has {len(data)} images but {labels.size} labels; download it again")
    # Clipped, so that a label beyond a byte stays a wrong one.
    return np.column_stack([labels.astype(np.int64).clip(-1, 255).astype(np.uint8), data])


def _unpickled(content: bytes, file: str) -> list[np.ndarray]:
    """Return the data and the labels of a pickled dictionary as arrays; lists become arrays, too."""
    with damage(f"{file} cannot be read as a pickled batch", "Download it again"):
        values = _ArrayUnpickler(content, file).load()
        named = {key.decode() if isinstance(key, bytes) else key: value for key, value in values.items()}
        found = (named["data"], named["labels"])
        arrays = [value.values if isinstance(value, _PickledArray) else value for value in found]
        # Of a list whose parts are lists, one in the other many times, NumPy would make an array without end.
        return [
            value if isinstance(value, np.ndarray) else np.fromiter(map(operator.index, value), np.int64)
            for value in arrays
        ]


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


def _by_names(unpickler: Any, opcode: int) -> None:
    """Set items of a dictionary by names only: to hash tuples of tuples of tuples can take for ever."""
    keys = unpickler.stack[-2:-1] if opcode == pickle.SETITEM[0] else unpickler.stack[::2]
    if not all(isinstance(key, (str, bytes)) for key in keys):
        raise unpickler.refusal("dictionaries of other things than names")
    pickle._Unpickler.dispatch[opcode](unpickler)


class _ArrayUnpickler(pickle._Unpickler):
    """Restores arrays of integers, lists, dictionaries, strings and numbers; refuses every other class and function.

    What pickled arrays refer to by name is replaced by functions made afresh at each call: there is nothing in reach
    that a pickle could use for something else, or change for those who come later. It is the one written in Python, as
    that in C takes as much memory as a pickle likes for its notes.
    """

    dispatch = {code: load for code, load in pickle._Unpickler.dispatch.items() if code not in _OF_SETS} | {
        code: partial(_by_names, opcode=code) for code in _OF_DICTIONARIES
    }

    def __init__(self, content: bytes, file: str) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.file = file

    def refusal(self, what: str) -> DamagedFileError:
        """Say what a pickle must not hold."""
        why = f"it asks for {what}, which arrays have no need of and which could run any code"
        return DamagedFileError(f"{self.file} was not loaded: {why}. Download it again from a source you trust")

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
        raise self.refusal(f"{module}.{name}")
