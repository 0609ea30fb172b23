"""Points or images, from wherever they are."""

from __future__ import annotations

from collections.abc import Sequence

from carre.data.cifar import holds_cifar10
from carre.data.dataset import ImageDataset
from carre.data.files import AnyPath, existing_path
from carre.data.headers import array_shapes
from carre.data.mnist import holds_mnist
from carre.data.recognition import load_images
from carre.data.tables import NUMPY, Table, load_table

_REMEDY = (
    "Give a table (csv, tsv, txt, parquet, npy, npz), a folder of images, or that of MNIST, CIFAR-10, CelebA or FFHQ"
)
_ARCHIVES = (".tar.gz", ".tgz", ".tar")


def load_samples(
    path: AnyPath,
    *,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] | None = None,
    size: int | None = None,
) -> Table | ImageDataset:
    """Read a table or images, whatever lies there: folders and arrays with three axes or more hold images.

    Args:
        path: What `load_table` or `load_images` reads.
        columns: Of a table, the coordinates by name or number; by default all columns of numbers.
        drop: Of a table, the columns that are no coordinates.
        size: Of a folder of image files, the height and width to bring them to.

    Example:
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "points.npy"), np.zeros((5, 8)))
        ...     np.save(Path(folder, "squares.npy"), np.zeros((5, 8, 8), dtype=np.uint8))
        ...     load_samples(Path(folder, "points.npy")), load_samples(Path(folder, "squares.npy"))
        (Table('points', n=5, dim=8, other=()), ImageDataset('squares', n=5, sample_shape=(1, 8, 8)))
    """
    if not _holds_images(path):
        return load_table(path, columns=columns, drop=drop)
    if columns is not None or drop is not None:
        raise ValueError(f"columns and drop must be left out for images, which have none; got them for {path}")
    place = existing_path(path, _REMEDY)
    resized = place.is_dir() and not (holds_mnist(place) or holds_cifar10(place))
    return load_images(place, **({"size": size} if resized and size is not None else {}))


def _holds_images(path: AnyPath) -> bool:
    if isinstance(path, str) and "::" in path:
        return False
    place = existing_path(path, _REMEDY)
    if place.is_dir() or place.name.endswith(_ARCHIVES):
        return True
    return place.suffix.lower() in NUMPY and max(map(len, array_shapes(place).values()), default=0) > 2
