"""Folders of image files, decoded by Pillow: any of them, and two collections of faces, CelebA and FFHQ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from carre.boundary import ArgumentError, as_count
from carre.data._pieces import Piece, pieces_of_array, rows_at_once
from carre.data.image_dataset import SYMMETRIC, ImageDataset, Normalization, check_choice
from carre.files import (
    AnyPath,
    DamagedFileError,
    MissingFileError,
    check_memory,
    check_unpacked,
    damage,
    existing_folder,
    find_file,
    needed,
)
from carre.progress import progress_bar

_REMEDY = "Give a folder of images (png, jpg, webp, bmp, tif, gif, ppm)"
_SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
# What Pillow may take a file for, whatever it is called: for other formats it would call other programs.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_BYTES = 2**27
_GRAY_MODES = ("1", "L", "LA")
# Images that a thread reads at a time: enough that handing them out costs nothing, few enough for the bar to move.
_CHUNK = 16
# Images of a folder that say whether all are gray, where they are read piece by piece.
_LOOKED_AT = 256

_CELEBA_REMEDY = (
    "Download the aligned and cropped images of CelebA (img_align_celeba) and list_eval_partition.txt into one folder"
)
_LONGEST_LINE = 100
_CELEBA_IMAGES = "img_align_celeba"
_PARTITIONS = ("list_eval_partition.txt", "list_eval_partition.csv", "Eval/list_eval_partition.txt")
_CELEBA_SPLITS = {"train": "0", "validation": "1", "valid": "1", "test": "2"}

_FFHQ_REMEDY = "Download images1024x1024 or thumbnails128x128 of FFHQ, as png, into one folder"
_FFHQ_FOLDERS = ("images1024x1024", "thumbnails128x128")
_THUMBNAIL_SIZE = 128
# The numbers of the images of each part: from the first one, up to but without the second.
_FFHQ_SPLITS = {None: (0, math.inf), "train": (0, 60_000), "validation": (60_000, math.inf)}


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

    Photographs are turned upright as their camera noted; transparency is ignored. Of an animation, or a file of several
    pages, the first picture is taken.

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
    files = _list_images(place)
    if not files:
        raise MissingFileError("folder", f"hold images; there are none in {place}", remedy=_REMEDY)
    beside = [file for file in files if file.parent == place]
    classes = sorted({file.relative_to(place).parts[0] for file in files if file.parent != place})
    if beside and classes:
        must = "hold images either in itself or in subfolders, one for each class"
        both = f"{len(beside)} in itself and others in {', '.join(classes[:3])}"
        raise ArgumentError("folder", f"{must}; {place} has {both}", remedy="Move them apart")
    chosen = _spread(files, limit)
    labels = np.array([classes.index(file.relative_to(place).parts[0]) for file in chosen]) if classes else None
    pixels = _read_pixels(chosen, size=size, crop=crop, mode=mode)
    return ImageDataset(pixels, labels, normalization, place.resolve().name, tuple(classes))


def pieces_of_images(place: Path, size: int | None) -> tuple[tuple[Piece, ...], tuple[int, int, int]]:
    """Cut the images of a folder into pieces that are read when they are needed; return these, and the shape of one."""
    files = _list_images(place)
    if not files:
        raise MissingFileError("folder", f"hold images, or shards of npy or parquet; there are none in {place}")
    mode = "L" if all(map(_is_gray, files[:_LOOKED_AT])) else "RGB"
    shape = _read(files[0], size, None, mode).shape

    def read(some: slice) -> np.ndarray:
        chosen = files[some]
        check_memory(len(chosen) * math.prod(shape), "images", "Give a smaller size")
        return _filled(chosen, shape, lambda file: _read(file, size, None, mode))

    pieces = pieces_of_array(read, len(files), place.name, at_most=rows_at_once(math.prod(shape)))
    return pieces, (shape[0], shape[1], shape[2])


def load_celeba(
    folder: AnyPath, split: str = "train", size: int | None = 64, *, crop: int | None = 148, limit: int | None = None
) -> ImageDataset:
    """Read the faces of CelebA, aligned and cropped; pixels in [−1, 1].

    Args:
        folder: Where img_align_celeba and list_eval_partition.txt (or .csv) lie.
        split: "train" (162,770 images), "validation" or "valid" (19,867), or "test" (19,962).
        size: Height and width after resizing; None leaves the crop as it is.
        crop: The side of the central square that is kept; 148 of 178 × 218, as is usual.
        limit: Read at most so many images, evenly spaced.

    Example:
        >>> faces = load_celeba("data/celeba", limit=20_000)  # doctest: +SKIP
        >>> faces  # doctest: +SKIP
        ImageDataset('CelebA train', n=20000, sample_shape=(3, 64, 64))
    """
    check_choice(split, _CELEBA_SPLITS)
    place = existing_folder(folder, _CELEBA_REMEDY)
    if place.name == _CELEBA_IMAGES and not (place / _CELEBA_IMAGES).is_dir():
        place = place.parent
    if not holds_celeba(place):
        raise MissingFileError("folder", f"hold {_CELEBA_IMAGES}; there is none in {place}", remedy=_CELEBA_REMEDY)
    files = {file.name: file for file in _list_images(place / _CELEBA_IMAGES)}
    partition_file, partition = _read_partition(place)
    missing = sorted(files.keys() - partition.keys())
    if missing:
        why = f"it has no line for {missing[0]} ({len(missing)} such images). {_CELEBA_REMEDY}"
        raise DamagedFileError(f"{partition_file} must say which split each image belongs to; {why}")
    names = sorted(name for name, part in partition.items() if part == _CELEBA_SPLITS[split])
    lost = [name for name in names if name not in files]
    if lost or not names:
        must = f"{place / _CELEBA_IMAGES} must hold all images of the split {split!r}"
        first = f", the first being {lost[0]}" if lost else ""
        raise DamagedFileError(f"{must}; {len(lost)} of {len(names)} are missing{first}. {_CELEBA_REMEDY}")
    pixels = _read_pixels(_spread([files[name] for name in names], limit), size=size, crop=crop, mode="RGB")
    return ImageDataset(pixels, None, SYMMETRIC, f"CelebA {split}")


def load_ffhq(
    folder: AnyPath, size: int | None = None, split: str | None = None, *, limit: int | None = None
) -> ImageDataset:
    """Read the faces of FFHQ; pixels in [−1, 1].

    Args:
        folder: Where images1024x1024 or thumbnails128x128 lie, or one of these. If both are there, the thumbnails are
            read for sizes up to 128 and the large images otherwise.
        size: Height and width after resizing; None leaves images as they are (3 MB each for the large ones: 220 GB in
            all).
        split: "train" for the images numbered below 60,000, "validation" for the rest, None for all.
        limit: Read at most so many images, evenly spaced.

    Example:
        >>> faces = load_ffhq("data/ffhq", size=64, split="train")  # doctest: +SKIP
        >>> faces  # doctest: +SKIP
        ImageDataset('FFHQ train', n=60000, sample_shape=(3, 64, 64))
    """
    check_choice(split, _FFHQ_SPLITS)
    above = existing_folder(folder, _FFHQ_REMEDY)
    names = _FFHQ_FOLDERS if size is None or size > _THUMBNAIL_SIZE else _FFHQ_FOLDERS[::-1]
    place = _find_ffhq(above, names)
    if place is None:
        must = f"hold {' or '.join(names)}; there is neither in {above}"
        raise MissingFileError("folder", must, remedy=_FFHQ_REMEDY)
    numbers = {file: _number(file) for file in _list_images(place)}
    first, end = _FFHQ_SPLITS[split]
    files = sorted((file for file, number in numbers.items() if first <= number < end), key=numbers.__getitem__)
    if not files:
        which = f"the images of FFHQ{f' for the split {split!r}' if split else ''}"
        must = f"hold {which}; there are none in {place} (of {len(numbers)} images)"
        raise MissingFileError("folder", must, remedy=_FFHQ_REMEDY)
    pixels = _read_pixels(_spread(files, limit), size=size, crop=None, mode="RGB")
    return ImageDataset(pixels, None, SYMMETRIC, f"FFHQ {split}" if split else "FFHQ")


def holds_celeba(folder: Path) -> bool:
    """Say whether a folder looks like CelebA."""
    return (folder / _CELEBA_IMAGES).is_dir()


def holds_ffhq(folder: Path) -> bool:
    """Say whether a folder looks like FFHQ."""
    return _find_ffhq(folder, _FFHQ_FOLDERS) is not None


def _read_partition(folder: Path) -> tuple[Path, dict[str, str]]:
    """Read which split each image belongs to: lines `000001.jpg 0`, or with a comma and a heading."""
    file = find_file(folder, _PARTITIONS)
    if file is None:
        must = f"hold {_PARTITIONS[0]} or {_PARTITIONS[1]}; there is neither in {folder}"
        raise MissingFileError("folder", must, remedy=_CELEBA_REMEDY)
    partition = {}
    if file.stat().st_size > _MOST_BYTES:
        raise DamagedFileError(f"{file} is far too large for a list of images. {_CELEBA_REMEDY}")
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words or words == ["image_id", "partition"]:
            continue
        if len(words) != 2 or words[1] not in _CELEBA_SPLITS.values():
            must = "must have lines like '000001.jpg 0', with 0, 1 or 2"
            raise DamagedFileError(f"{file} {must}; line {number} is {line[:_LONGEST_LINE]!r}. {_CELEBA_REMEDY}")
        partition[words[0]] = words[1]
    return file, partition


def _find_ffhq(folder: Path, names: Sequence[str]) -> Path | None:
    places = [folder] if folder.name in names else [folder / name for name in names]
    return next((place for place in places if place.is_dir()), None)


def _number(file: Path) -> int:
    if not file.stem.isdecimal():
        must = "be named by numbers, as in 00000/00042.png"
        remedy = "Remove it, or read the folder with load_image_folder"
        raise ArgumentError("the images of FFHQ", must, got=file, remedy=remedy)
    return int(file.stem)


def _list_images(folder: Path) -> list[Path]:
    """List the image files below a folder by name, folder by folder; hidden ones are left out."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
    parts = {file: file.relative_to(folder).parts for file in files}
    return sorted(
        (file for file in parts if not any(part.startswith(".") for part in parts[file])), key=parts.__getitem__
    )


def _spread(files: Sequence[Path], limit: int | None) -> list[Path]:
    """Choose at most `limit` files, evenly spaced, so that all classes have their share."""
    _check_count("limit", limit)
    n = len(files) if limit is None else min(limit, len(files))
    return [files[i * len(files) // n] for i in range(n)]


def _read_pixels(files: Sequence[Path], *, size: int | None, crop: int | None, mode: str | None) -> np.ndarray:
    """Read images into one uint8 array of shape (n, C, H, W), with a bar if it takes long."""
    _check_count("size", size)
    _check_count("crop", crop)
    check_choice(mode, (None, "L", "RGB"), name="mode")
    if mode is None:
        mode = "L" if all(map(_is_gray, files)) else "RGB"
    channels, remedy = len(mode) if mode == "RGB" else 1, "Give a smaller size, or a limit"
    check_memory(len(files) * channels * (size or 1) ** 2, "images", remedy)
    first = _read(files[0], size, crop, mode)
    check_memory(len(files) * first.size, "images", remedy)
    return _filled(files, first.shape, lambda file: _read(file, size, crop, mode))


def _filled(files: Sequence[Path], shape: tuple[int, ...], read: Callable[[Path], np.ndarray]) -> np.ndarray:
    """Read images of one shape, several at a time, with a bar if it takes long."""
    pixels = np.empty((len(files), *shape), np.uint8)

    def fill(start: int) -> None:
        chunk = files[start : start + _CHUNK]
        for i, file in enumerate(chunk, start):
            image = read(file)
            if image.shape != shape:
                must = f"all have the same size; {file} is {image.shape[2]} × {image.shape[1]}, and {files[0].name} is"
                remedy = "Pass size=… to crop and resize them"
                raise ArgumentError("images", f"{must} {shape[2]} × {shape[1]}", remedy=remedy)
            pixels[i] = image

    # Pillow decodes and resizes outside of the interpreter's lock: threads help.
    with progress_bar("reading images") as tell, ThreadPoolExecutor() as pool:
        for done, _ in enumerate(pool.map(fill, range(0, len(files), _CHUNK)), 1):
            tell(min(1.0, done * _CHUNK / len(files)))
    return pixels


def _check_count(name: str, value: int | None) -> None:
    if value is not None:
        as_count(value, name=name, must="be a positive integer, or None")


def _read(file: Path, size: int | None, crop: int | None, mode: str) -> np.ndarray:
    """Read one image of shape (C, H, W), turned upright if the camera noted how it was held."""
    with _opened(file) as opened:
        if opened.mode.startswith(("I", "F")):
            must = f"have 8 bits for each value; {file} has more (mode {opened.mode})"
            raise ArgumentError("images", must, remedy="Convert it")
        image = _pillow("ImageOps").exif_transpose(opened).convert(mode)
    if size is not None or crop is not None:
        side = min(image.size) if crop is None else crop
        if side > min(image.size):
            raise ArgumentError("crop", f"be at most {min(image.size)}, the smaller side of {file}", got=crop)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    if size is not None:
        # Pillow widens the filter where it shrinks an image, so that nothing is aliased.
        image = image.resize((size, size), _pillow().Resampling.LANCZOS)
    array = np.asarray(image)
    return np.moveaxis(array.reshape(*array.shape[:2], -1), 2, 0)


def _is_gray(file: Path) -> bool:
    # The beginning of the file says so; its pixels are not read.
    with _opened(file) as image:
        return bool(image.mode in _GRAY_MODES)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Open an image file; what is wrong with it shows up now, or when its pixels are read."""
    image_module, n_bytes = _pillow(), file.stat().st_size
    what, remedy = f"{file} cannot be decoded as an image", "Copy it again, or remove it"
    with damage(what, remedy, image_module.DecompressionBombError):
        if n_bytes > _MOST_BYTES:
            raise ValueError(f"it has {n_bytes / 1e6:,.0f} MB; at most {_MOST_BYTES / 1e6:,.0f} MB are read")
        with image_module.open(file, formats=_FORMATS) as image:
            # Of an animation, or several pages, this is the first one.
            check_unpacked(file, image.width * image.height * len(image.getbands()))
            yield image


def _pillow(module: str = "Image") -> Any:
    return needed(f"PIL.{module}", "image files need Pillow", "images")
