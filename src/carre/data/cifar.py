"""CIFAR-10, as pickles of Python 2 or as binary records, in a folder or in the archive."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np

from carre.data.dataset import ImageDataset
from carre.data.files import AnyPath, DamagedFileError, check_choice, existing_path, reason
from carre.data.normalization import SYMMETRIC
from carre.data.unpickling import unpickle_arrays

_REMEDY = "Download CIFAR-10 (the Python or the binary version) and give the archive, or the folder it was unpacked to"
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
_SUBFOLDERS = ("", "cifar-10-batches-py", "cifar-10-batches-bin")
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
    check_choice("split", split, _BATCHES)
    path = existing_path(folder, _REMEDY, "folder")
    files = _read_files(path, _BATCHES[split])
    parts = []
    for batch in _BATCHES[split]:
        file, content = files.pop(batch)
        records = _from_binary(content, file) if file.endswith(".bin") else _from_pickle(content, file)
        if verify and hashlib.sha1(records.tobytes(), usedforsecurity=False).hexdigest() != _CHECKSUMS[batch]:
            raise DamagedFileError(
                f"{file} does not hold the {batch} of CIFAR-10: its checksum differs. Download it again, or pass "
                "verify=False if it is meant to be other data"
            )
        parts.append(records)
    records = np.concatenate(parts)
    pixels = records[:, 1:].reshape(-1, *_SHAPE)
    name = f"{'CIFAR-10' if verify else path.resolve().name} {split}"
    return ImageDataset(pixels, records[:, 0].astype(np.int64), SYMMETRIC, name, _CLASSES)


def holds_cifar10(folder: Path) -> bool:
    """Say whether a folder looks like CIFAR-10."""
    batches = (batch for split in _BATCHES.values() for batch in split)
    return _find_archive(folder) is not None or any(_find(folder, batch) for batch in batches)


def _find(folder: Path, batch: str) -> Path | None:
    candidates = (folder / sub / f"{batch}{end}" for sub in _SUBFOLDERS for end in ("", ".bin"))
    return next((file for file in candidates if file.is_file()), None)


def _find_archive(folder: Path) -> Path | None:
    return next((folder / name for name in _ARCHIVES if (folder / name).is_file()), None)


def _read_files(path: Path, batches: tuple[str, ...]) -> dict[str, tuple[str, bytes]]:
    """Return the name and the content of the file of each batch."""
    archive = path if path.is_file() else _find_archive(path)
    found = {batch: _find(path, batch) for batch in batches}
    if archive is not None and None in found.values():
        return _read_archive(archive, batches)
    for batch, file in found.items():
        if file is None:
            raise FileNotFoundError(
                f"folder must hold {batch} or {batch}.bin, in itself or in {' or '.join(_SUBFOLDERS[1:])}, or the "
                f"archive {' or '.join(_ARCHIVES)}; there is none in {path}. {_REMEDY}"
            )
    return {batch: (str(file), file.read_bytes()) for batch, file in found.items() if file is not None}


def _read_archive(archive: Path, batches: tuple[str, ...]) -> dict[str, tuple[str, bytes]]:
    """Read the batches without unpacking anything to the disk."""
    found = {}
    try:
        with tarfile.open(archive) as members:
            for member in members:
                name = PurePosixPath(member.name).name
                is_wanted = member.isfile() and name.removesuffix(".bin") in batches
                stream = members.extractfile(member) if is_wanted else None
                if stream is not None:
                    found[name.removesuffix(".bin")] = f"{archive}/{name}", stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DamagedFileError(f"{archive} cannot be unpacked ({reason(error)}). {_REMEDY}") from error
    missing = [batch for batch in batches if batch not in found]
    if missing:
        raise DamagedFileError(f"{archive} does not hold {', '.join(missing)} of CIFAR-10. {_REMEDY}")
    return found


def _from_binary(content: bytes, file: str) -> np.ndarray:
    """Cut the content into records of a label and 3,072 pixel values."""
    if not content or len(content) % (1 + _VALUES):
        raise DamagedFileError(
            f"{file} is damaged: it must consist of records of {1 + _VALUES} bytes; got {len(content)} bytes. "
            "Download it again"
        )
    return _checked_labels(np.frombuffer(content, np.uint8).reshape(-1, 1 + _VALUES), file)


def _from_pickle(content: bytes, file: str) -> np.ndarray:
    """Read a pickled batch as the records of the binary version."""
    data, labels = unpickle_arrays(content, ("data", "labels"), file)
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _VALUES or labels.dtype.kind not in "iu":
        raise DamagedFileError(
            f"{file} must hold data (uint8, n × {_VALUES}) and labels (integers); got {data.dtype}, {data.shape} and "
            f"{labels.dtype}, {labels.shape}. Download it again"
        )
    if labels.shape != data.shape[:1]:
        raise DamagedFileError(f"{file} has {len(data)} images but {labels.size} labels; download it again")
    # Clipped, so that a label beyond a byte stays a wrong one.
    return _checked_labels(np.column_stack([labels.astype(np.int64).clip(-1, 255).astype(np.uint8), data]), file)


def _checked_labels(records: np.ndarray, file: str) -> np.ndarray:
    if len(records) and records[:, 0].max() >= len(_CLASSES):
        raise DamagedFileError(f"{file} is damaged: labels must lie between 0 and 9; got {records[:, 0].max()}")
    return records
