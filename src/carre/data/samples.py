"""Images, or points and images, from wherever they are: what lies there decides on the reader."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

from carre.boundary import ArgumentError
from carre.data.arrays import array_shapes, load_arrays
from carre.data.cifar import holds_cifar10, load_cifar10
from carre.data.frames import load_anndata
from carre.data.image_dataset import ImageDataset, Normalization
from carre.data.image_folders import holds_celeba, holds_ffhq, load_celeba, load_ffhq, load_image_folder
from carre.data.mnist import holds_mnist, load_mnist
from carre.data.table import NUMPY, Table, load_table
from carre.files import AnyPath, existing_path

_IMAGES = "Give a folder of images, the folder of MNIST, CIFAR-10, CelebA or FFHQ, or a file of NumPy (npy, npz)"
_SAMPLES = (
    "Give a table (csv, tsv, txt, parquet, npy, npz), a folder of images, or that of MNIST, CIFAR-10, CelebA or FFHQ"
)
_ANNDATA = ".h5ad"
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_RECOGNIZED = (
    (holds_mnist, load_mnist),
    (holds_cifar10, load_cifar10),
    (holds_celeba, load_celeba),
    (holds_ffhq, load_ffhq),
)


def load_images(
    path: AnyPath,
    *,
    split: str | None = None,
    size: int | None = None,
    crop: int | None = None,
    mode: str | None = None,
    limit: int | None = None,
    normalization: Normalization | None = None,
    verify: bool | None = None,
) -> ImageDataset:
    """Read images from wherever they are: an array file, a dataset that is recognized, or a folder of images.

    What lies there decides which of the options there are; None leaves each to its reader: `load_arrays`,
    `load_cifar10`, `load_mnist`, `load_celeba`, `load_ffhq` or `load_image_folder`.

    Args:
        path: A file of NumPy, the archive of CIFAR-10, the folder of MNIST, CIFAR-10, CelebA or FFHQ, or any folder of
            image files.
        split: Which part of a known dataset.
        size: Height and width to bring pictures to.
        crop: Side of the square in the middle to cut out first.
        mode: ``"L"`` for gray, ``"RGB"`` for color.
        limit: How many pictures to read at most.
        normalization: What makes values to train on of pixels.
        verify: Whether to check known files by their digests.

    Example:
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "squares.npy"), np.zeros((5, 8, 8), dtype=np.uint8))
        ...     load_images(Path(folder, "squares.npy"))
        ImageDataset('squares', n=5, sample_shape=(1, 8, 8))
    """
    told = {"split": split, "size": size, "crop": crop, "mode": mode, "limit": limit, "verify": verify}
    given = {name: value for name, value in (told | {"normalization": normalization}).items() if value is not None}
    place = existing_path(path, _IMAGES)
    load = _reader(place)
    _, *known = inspect.signature(load).parameters
    for name in given.keys() - known:
        must = f"be left out: {load.__name__} reads {place}, and its options are {', '.join(known)}"
        raise ArgumentError(name, must, got=repr(given[name]))
    return load(place, **given)


def load_samples(
    path: AnyPath,
    *,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] | None = None,
    size: int | None = None,
    drop_missing: bool = False,
) -> Table | ImageDataset:
    """Read a table or images, whatever lies there: folders and arrays with three axes or more hold images.

    Args:
        path: What `load_table` or `load_images` reads; or a file of AnnData, with ``::key`` for a matrix that is not X.
        columns: Of a table, the coordinates by name or number; by default all columns of numbers.
        drop: Of a table, the columns that are no coordinates.
        size: Of a folder of image files, the height and width to bring them to.
        drop_missing: Of a table, whether rows are left out of which a coordinate is missing.

    Example:
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "points.npy"), np.zeros((5, 8)))
        ...     np.save(Path(folder, "squares.npy"), np.zeros((5, 8, 8), dtype=np.uint8))
        ...     load_samples(Path(folder, "points.npy")), load_samples(Path(folder, "squares.npy"))
        (Table('points', n=5, dim=8, other=()), ImageDataset('squares', n=5, sample_shape=(1, 8, 8)))
    """
    file, _, key = str(path).partition("::")
    if file.lower().endswith(_ANNDATA):
        if columns is not None or drop is not None:
            must = "be left out for AnnData, of which a matrix is taken whole"
            raise ArgumentError("columns and drop", must, remedy=f"Write {file}::key to choose it")
        return load_anndata(file, key or None, drop_missing=drop_missing)
    if not _holds_images(path):
        return load_table(path, columns=columns, drop=drop, drop_missing=drop_missing)
    if columns is not None or drop is not None:
        raise ArgumentError("columns and drop", "be left out for images, which have none", got=f"them for {path}")
    if drop_missing:
        raise ArgumentError("drop_missing", "be left out for images, of which no pixel is missing", got=True)
    place = existing_path(path, _SAMPLES)
    is_resized = "size" in inspect.signature(_reader(place)).parameters
    return load_images(place, size=size if is_resized else None)


def _holds_images(path: AnyPath) -> bool:
    if isinstance(path, str) and "::" in path:
        return False
    place = existing_path(path, _SAMPLES)
    if place.is_dir() or place.name.endswith(_ARCHIVES):
        return True
    return place.suffix.lower() in NUMPY and max(map(len, array_shapes(place).values()), default=0) > 2


def _reader(place: Path) -> Callable[..., ImageDataset]:
    """Choose who reads the images that lie somewhere."""
    if place.is_dir():
        return next((load for holds, load in _RECOGNIZED if holds(place)), load_image_folder)
    if place.name == "mnist.npz":
        return load_mnist
    if place.suffix in NUMPY:
        return load_arrays
    if place.name.endswith(_ARCHIVES):
        return load_cifar10
    raise ArgumentError("path", "be a folder, or a file that ends in .npy, .npz or .tar.gz", got=place, remedy=_IMAGES)
