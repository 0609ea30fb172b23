"""Which format a path is in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carre.data.arrays import load_arrays
from carre.data.cifar import holds_cifar10, load_cifar10
from carre.data.dataset import ImageDataset
from carre.data.faces import holds_celeba, holds_ffhq, load_celeba, load_ffhq
from carre.data.files import AnyPath, existing_path
from carre.data.folders import load_image_folder
from carre.data.mnist import holds_mnist, load_mnist

_REMEDY = "Give a folder of images, the folder of MNIST, CIFAR-10, CelebA or FFHQ, or a file of NumPy (npy, npz)"


def load_images(path: AnyPath, **options: Any) -> ImageDataset:
    """Read images from wherever they are: an array file, a dataset that is recognized, or a folder of images.

    Args:
        path: A file of NumPy, the archive of CIFAR-10, the folder of MNIST, CIFAR-10, CelebA or FFHQ, or any folder of
            image files.
        options: Passed to the reader: `load_arrays`, `load_cifar10`, `load_mnist`, `load_celeba`, `load_ffhq` or
            `load_image_folder`.

    Example:
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "squares.npy"), np.zeros((5, 8, 8), dtype=np.uint8))
        ...     load_images(Path(folder, "squares.npy"))
        ImageDataset('squares', n=5, sample_shape=(1, 8, 8))
    """
    place = existing_path(path, _REMEDY)
    if place.is_dir():
        recognized = (
            (holds_mnist, load_mnist),
            (holds_cifar10, load_cifar10),
            (holds_celeba, load_celeba),
            (holds_ffhq, load_ffhq),
        )
        for holds, load in recognized:
            if holds(place):
                return _read(load, place, options)
        return _read(load_image_folder, place, options)
    if place.name == "mnist.npz":
        return _read(load_mnist, place, options)
    if place.suffix in (".npy", ".npz"):
        return _read(load_arrays, place, options)
    if place.name.endswith((".tar.gz", ".tgz", ".tar")):
        return _read(load_cifar10, place, options)
    raise ValueError(f"path must be a folder, or a file that ends in .npy, .npz or .tar.gz; got {place}. {_REMEDY}")


def _read(load: Callable[..., ImageDataset], place: Path, options: dict[str, Any]) -> ImageDataset:
    """Refuse options that the reader does not have, which was chosen by what lies there, not by the caller."""
    _, *known = inspect.signature(load).parameters
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"options must be those of {load.__name__}, {', '.join(known)}, since that is what reads {place}; "
            f"got {', '.join(unknown)}"
        )
    return load(place, **options)
