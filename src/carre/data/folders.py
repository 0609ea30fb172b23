"""Folders of image files."""

from __future__ import annotations

import numpy as np

from carre.data.dataset import ImageDataset
from carre.data.decoding import list_images, read_pixels, spread
from carre.data.files import AnyPath, existing_folder
from carre.data.normalization import SYMMETRIC, Normalization

_REMEDY = "Give a folder of images (png, jpg, webp, bmp, tif, gif, ppm)"


def load_image_folder(
    folder: AnyPath,
    size: int | None = None,
    *,
    crop: int | None = None,
    mode: str | None = None,
    limit: int | None = None,
    normalization: Normalization = SYMMETRIC,
) -> ImageDataset:
    """Read the images of a folder, in the order of their names. If it has subfolders with images, they are the classes.

    Photographs are turned upright as their camera noted; transparency is ignored.

    Args:
        folder: The folder.
        size: Crop every image to its central square and resize it, antialiased, to size × size. By default images stay
            as they are, and must all have the same size.
        crop: The side of the central square, if not the largest.
        mode: "L" for gray, "RGB" for color; by default gray if all images are.
        limit: Read at most so many images, evenly spaced through the order of the names.
        normalization: What makes the images of a geometry of the pixels; they lie in [−1, 1] by default.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for kind in ("cats", "dogs"):
        ...         Path(folder, kind).mkdir()
        ...         _ = Path(folder, kind, "1.ppm").write_bytes(b"P6 2 2 255 " + bytes(range(12)))
        ...     animals = load_image_folder(folder, size=4)
        >>> animals.sample_shape, animals.labels, animals.class_names
        ((3, 4, 4), array([0, 1]), ('cats', 'dogs'))
    """
    place = existing_folder(folder, _REMEDY)
    files = list_images(place)
    if not files:
        raise FileNotFoundError(f"folder must hold images; there are none in {place}. {_REMEDY}")
    beside = [file for file in files if file.parent == place]
    classes = sorted({file.relative_to(place).parts[0] for file in files if file.parent != place})
    if beside and classes:
        raise ValueError(
            f"folder must hold images either in itself or in subfolders, one for each class; {place} has "
            f"{len(beside)} in itself and others in {', '.join(classes[:3])}. Move them apart"
        )
    chosen = spread(files, limit)
    labels = None
    if classes:
        labels = np.array([classes.index(file.relative_to(place).parts[0]) for file in chosen], dtype=np.int64)
    pixels = read_pixels(chosen, size=size, crop=crop, mode=mode)
    return ImageDataset(pixels, labels, normalization, place.resolve().name, tuple(classes))
