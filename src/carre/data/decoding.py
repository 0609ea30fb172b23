"""From image files to pixels, by Pillow, which is imported when first needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from carre.data.files import DamagedFileError, check_choice, check_positive_integer

T = TypeVar("T")

_SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
_GRAY_MODES = ("1", "L", "LA")
_BAR_AFTER_SECONDS = 2.0
# Images that a thread reads at a time: enough that handing them out costs nothing, few enough for the bar to move.
_CHUNK = 16


def list_images(folder: Path) -> list[Path]:
    """List the image files below a folder by name, folder by folder; hidden ones are left out."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
    parts = {file: file.relative_to(folder).parts for file in files}
    return sorted(
        (file for file in parts if not any(part.startswith(".") for part in parts[file])), key=parts.__getitem__
    )


def spread(files: Sequence[Path], limit: int | None) -> list[Path]:
    """Choose at most `limit` files, evenly spaced, so that all classes have their share."""
    check_positive_integer("limit", limit)
    n = len(files) if limit is None else min(limit, len(files))
    return [files[i * len(files) // n] for i in range(n)]


def read_pixels(files: Sequence[Path], *, size: int | None, crop: int | None, mode: str | None) -> np.ndarray:
    """Read images into one uint8 array of shape (n, C, H, W), with a bar on a terminal if it takes long.

    Args:
        files: The files, at least one.
        size: Bring every image to this height and width; None leaves them as they are.
        crop: The side of the central square that is kept; by default the largest if there is a size, everything if not.
        mode: "L" for gray, "RGB" for color; None is gray if all images are.
    """
    check_positive_integer("size", size)
    check_positive_integer("crop", crop)
    check_choice("mode", mode, (None, "L", "RGB"))
    if mode is None:
        mode = "L" if all(map(_is_gray, files)) else "RGB"
    first = _read(files[0], size, crop, mode)
    pixels = np.empty((len(files), *first.shape), np.uint8)

    def fill(start: int) -> int:
        chunk = files[start : start + _CHUNK]
        for i, file in enumerate(chunk, start):
            image = _read(file, size, crop, mode)
            if image.shape != first.shape:
                raise ValueError(
                    f"images must all have the same size; {file} is {image.shape[2]} × {image.shape[1]}, and "
                    f"{files[0].name} is {first.shape[2]} × {first.shape[1]}. Pass size=… to crop and resize them"
                )
            pixels[i] = image
        return len(chunk)

    # Pillow decodes and resizes outside of the interpreter's lock: threads help.
    bar = tqdm(total=len(files), desc="reading images", unit="image", delay=_BAR_AFTER_SECONDS, disable=None)
    with bar, ThreadPoolExecutor() as pool:
        for n_read in pool.map(fill, range(0, len(files), _CHUNK)):
            bar.update(n_read)
    return pixels


def _read(file: Path, size: int | None, crop: int | None, mode: str) -> np.ndarray:
    """Read one image of shape (C, H, W), turned upright if the camera noted how it was held."""
    image = _opened(file, _pillow("ImageOps").exif_transpose)
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"images must have 8 bits for each value; {file} has more (mode {image.mode}). Convert it")
    image = image.convert(mode)
    if size is not None or crop is not None:
        side = min(image.size) if crop is None else crop
        if side > min(image.size):
            raise ValueError(f"crop must be at most {min(image.size)}, the smaller side of {file}; got {crop}")
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    if size is not None:
        # Pillow widens the filter where it shrinks an image, so that nothing is aliased.
        image = image.resize((size, size), _pillow().Resampling.LANCZOS)
    array = np.asarray(image)
    return np.moveaxis(array.reshape(*array.shape[:2], -1), 2, 0)


def _is_gray(file: Path) -> bool:
    # The beginning of the file says so; its pixels are not read.
    return _opened(file, lambda image: image.mode in _GRAY_MODES)


def _opened(file: Path, use: Callable[[Any], T]) -> T:
    """Return what is wanted of an image file."""
    image_module = _pillow()
    try:
        with image_module.open(file) as image:
            return use(image)
    except (OSError, SyntaxError, ValueError, EOFError, image_module.DecompressionBombError) as error:
        raise DamagedFileError(
            f"{file} cannot be decoded as an image ({error}). Copy it again, or remove it"
        ) from error


def _pillow(module: str = "Image") -> Any:
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise ImportError("image files need Pillow; run: pip install 'carre[images]'") from error
