"""Two collections of faces: CelebA and FFHQ."""

from __future__ import annotations

from pathlib import Path

from carre.data.dataset import ImageDataset
from carre.data.decoding import list_images, read_pixels, spread
from carre.data.files import AnyPath, DamagedFileError, check_choice, existing_folder
from carre.data.normalization import SYMMETRIC

_CELEBA_REMEDY = (
    "Download the aligned and cropped images of CelebA (img_align_celeba) and list_eval_partition.txt into one folder"
)
_CELEBA_IMAGES = "img_align_celeba"
_PARTITIONS = ("list_eval_partition.txt", "list_eval_partition.csv", "Eval/list_eval_partition.txt")
_CELEBA_SPLITS = {"train": "0", "validation": "1", "valid": "1", "test": "2"}

_FFHQ_REMEDY = "Download images1024x1024 or thumbnails128x128 of FFHQ, as png, into one folder"
_FFHQ_IMAGES, _FFHQ_THUMBNAILS = "images1024x1024", "thumbnails128x128"
_THUMBNAIL_SIZE = 128
_FFHQ_TRAINING_IMAGES = 60_000


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
    check_choice("split", split, _CELEBA_SPLITS)
    place = existing_folder(folder, _CELEBA_REMEDY)
    if place.name == _CELEBA_IMAGES and not (place / _CELEBA_IMAGES).is_dir():
        place = place.parent
    if not holds_celeba(place):
        raise FileNotFoundError(f"folder must hold {_CELEBA_IMAGES}; there is none in {place}. {_CELEBA_REMEDY}")
    files = {file.name: file for file in list_images(place / _CELEBA_IMAGES)}
    partition_file, partition = _read_partition(place)
    missing = sorted(files.keys() - partition.keys())
    if missing:
        raise DamagedFileError(
            f"{partition_file} must say which split each image belongs to; it has no line for {missing[0]} "
            f"({len(missing)} such images). {_CELEBA_REMEDY}"
        )
    names = sorted(name for name, part in partition.items() if part == _CELEBA_SPLITS[split])
    lost = [name for name in names if name not in files]
    if lost or not names:
        raise DamagedFileError(
            f"{place / _CELEBA_IMAGES} must hold all images of the split {split!r}; {len(lost)} of {len(names)} are "
            f"missing{f', the first being {lost[0]}' if lost else ''}. {_CELEBA_REMEDY}"
        )
    pixels = read_pixels(spread([files[name] for name in names], limit), size=size, crop=crop, mode="RGB")
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
    check_choice("split", split, (None, "train", "validation"))
    place = _ffhq_images(existing_folder(folder, _FFHQ_REMEDY), size)
    numbers = {file: _number(file) for file in list_images(place)}
    wanted = {None: (True, False), "train": (True,), "validation": (False,)}[split]
    files = [file for file, number in numbers.items() if (number < _FFHQ_TRAINING_IMAGES) in wanted]
    if not files:
        raise FileNotFoundError(
            f"folder must hold the images of FFHQ{f' for the split {split!r}' if split else ''}; there are none in "
            f"{place} (of {len(numbers)} images). {_FFHQ_REMEDY}"
        )
    files.sort(key=numbers.__getitem__)
    pixels = read_pixels(spread(files, limit), size=size, crop=None, mode="RGB")
    return ImageDataset(pixels, None, SYMMETRIC, f"FFHQ {split}" if split else "FFHQ")


def holds_celeba(folder: Path) -> bool:
    """Say whether a folder looks like CelebA."""
    return (folder / _CELEBA_IMAGES).is_dir()


def holds_ffhq(folder: Path) -> bool:
    """Say whether a folder looks like FFHQ."""
    names = (_FFHQ_IMAGES, _FFHQ_THUMBNAILS)
    return folder.name in names or any((folder / name).is_dir() for name in names)


def _read_partition(folder: Path) -> tuple[Path, dict[str, str]]:
    """Read which split each image belongs to: lines `000001.jpg 0`, or with a comma and a heading."""
    file = next((folder / name for name in _PARTITIONS if (folder / name).is_file()), None)
    if file is None:
        raise FileNotFoundError(
            f"folder must hold {_PARTITIONS[0]} or {_PARTITIONS[1]}; there is neither in {folder}. {_CELEBA_REMEDY}"
        )
    partition = {}
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words or words == ["image_id", "partition"]:
            continue
        if len(words) != 2 or words[1] not in _CELEBA_SPLITS.values():
            raise DamagedFileError(
                f"{file} must have lines like '000001.jpg 0', with 0, 1 or 2; line {number} is {line!r}. "
                f"{_CELEBA_REMEDY}"
            )
        partition[words[0]] = words[1]
    return file, partition


def _ffhq_images(folder: Path, size: int | None) -> Path:
    small = size is not None and size <= _THUMBNAIL_SIZE
    names = (_FFHQ_THUMBNAILS, _FFHQ_IMAGES) if small else (_FFHQ_IMAGES, _FFHQ_THUMBNAILS)
    if folder.name in names:
        return folder
    for name in names:
        if (folder / name).is_dir():
            return folder / name
    raise FileNotFoundError(f"folder must hold {names[0]} or {names[1]}; there is neither in {folder}. {_FFHQ_REMEDY}")


def _number(file: Path) -> int:
    if not file.stem.isdecimal():
        raise ValueError(
            f"the images of FFHQ must be named by numbers, as in 00000/00042.png; got {file}. Remove it, or read the "
            "folder with load_image_folder"
        )
    return int(file.stem)
