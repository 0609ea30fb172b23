"""Images with their labels, as a value."""

from __future__ import annotations

import operator
import reprlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float32, Integer, UInt8
from torch import Tensor

from carre.data.normalization import SYMMETRIC, Normalization


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """Images as they are stored, in a byte for each value, with the way to the numbers that are learned from.

    Attributes:
        pixels: The images.
        labels: The class of each image as int64, or None.
        normalization: What makes `images` of `pixels`.
        name: What to call it in titles.
        class_names: The name of each class, where it is known; the label is its index.

    Example:
        >>> pixels = np.zeros((4, 1, 8, 8), dtype=np.uint8)
        >>> dataset = ImageDataset(pixels, np.array([0, 1, 0, 1]), name="squares")
        >>> dataset
        ImageDataset('squares', n=4, sample_shape=(1, 8, 8), classes=2)
        >>> dataset.images.shape, dataset.images.dtype, float(dataset.images[0, 0, 0, 0])
        ((4, 1, 8, 8), dtype('float32'), -1.0)
        >>> len(dataset[:3]), len(dataset[dataset.labels == 1]), len(dataset[2]), dataset.of_class(0).labels
        (3, 2, 1, array([0, 0]))
    """

    pixels: UInt8[np.ndarray, "n channels height width"]
    labels: Integer[np.ndarray, " n"] | None = None
    normalization: Normalization = SYMMETRIC
    name: str = "images"
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.pixels, np.ndarray) or self.pixels.dtype != np.uint8 or self.pixels.ndim != 4:
            got = getattr(self.pixels, "dtype", type(self.pixels).__name__), np.shape(self.pixels)
            raise ValueError(
                f"pixels must be a uint8 array of shape (n, C, H, W); got {got[0]}, {got[1]}. "
                "load_arrays reads other layouts"
            )
        if not isinstance(self.normalization, Normalization):
            raise ValueError(f"normalization must be a Normalization(mean, deviation); got {self.normalization!r}")
        if len(self.normalization.mean) not in (1, self.pixels.shape[1]):
            raise ValueError(
                f"normalization must have a single mean, or one for each channel of the pixels "
                f"({self.pixels.shape[1]}); got {len(self.normalization.mean)} means"
            )
        if self.labels is None:
            return
        labels = np.asarray(self.labels)
        if labels.shape != self.pixels.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"labels must be {len(self.pixels)} integers, one for each image; got {labels.dtype}, {labels.shape}"
            )
        if self.class_names and len(labels) and not 0 <= labels.min() <= labels.max() < len(self.class_names):
            raise ValueError(
                f"labels must lie between 0 and {len(self.class_names) - 1}, as there are {len(self.class_names)} "
                f"class_names; got values between {labels.min()} and {labels.max()}"
            )
        object.__setattr__(self, "labels", labels.astype(np.int64, copy=False))

    @property
    def images(self) -> Float32[np.ndarray, "n channels height width"]:
        """Return the normalized images: four times the memory of the pixels, computed at each call."""
        images: np.ndarray = self.normalization.encode(self.pixels)
        return images

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """Return the shape (C, H, W) of an image."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    def of_class(self, label: int) -> ImageDataset:
        """Select the images of a class."""
        if self.labels is None:
            raise ValueError(f"labels must be known for a class to be selected; {self.name!r} has none")
        mask = self.labels == label
        if not mask.any():
            raise ValueError(f"label must be one of {np.unique(self.labels).tolist()}; got {label!r}")
        return self[mask]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: Any) -> ImageDataset:
        """Select images by an index, a slice, a mask or a list of indices. A slice shares memory, others copy."""
        given = index.cpu().numpy() if isinstance(index, Tensor) else index
        try:
            # One index as a list: what comes back is a dataset, of a single image.
            rows = [operator.index(given)] if np.ndim(given) == 0 and not isinstance(given, slice) else given
            if isinstance(rows, tuple) or (not isinstance(rows, slice) and np.ndim(rows) != 1):
                raise TypeError("an index of several axes")
            pixels, labels = self.pixels[rows], None if self.labels is None else self.labels[rows]
        except (IndexError, TypeError, ValueError) as error:
            kind = IndexError if isinstance(error, IndexError) else TypeError
            raise kind(
                f"index must be an integer from {-len(self)} to {len(self) - 1}, a slice, a mask of {len(self)} or a "
                f"list of integers, for there are {len(self)} images; got {reprlib.repr(index)}"
            ) from error
        return replace(self, pixels=pixels, labels=labels)

    def __repr__(self) -> str:
        classes = "" if self.labels is None else f", classes={len(np.unique(self.labels))}"
        return f"ImageDataset({self.name!r}, n={len(self)}, sample_shape={self.sample_shape}{classes})"
