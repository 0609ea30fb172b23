"""Images with their labels, as a value; and the way from pixels to the numbers that a geometry is learned on."""

from __future__ import annotations

import inspect
import math
import operator
import reprlib
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Integer, UInt8
from torch import Tensor

from carre.arguments import as_kind, check_arguments
from carre.boundary import ArgumentError, as_array, as_dense

# Pixels are taken for not normalized where black would be a number below this.
_BLACK = -0.1


@dataclass(frozen=True)
class Normalization:
    """The similarity x ↦ (x − mean)/deviation of pixel values in [0, 1].

    There is one deviation for all channels, never one for each: stretching channels by different factors would change
    angles and the ratios of distances, hence tangent spaces and the metric. A mean for each channel is only a shift.
    A distance between encoded images is that between pixels in [0, 1], divided by the deviation; so is a bandwidth.

    Attributes:
        mean: One mean for each channel, or a single one for all; a number stands for the tuple of it.
        deviation: The number that everything is divided by.

    Example:
        >>> normalization = Normalization(mean=(0.5,), deviation=0.5)
        >>> images = normalization.encode(np.array([[[[0, 51, 255]]]], dtype=np.uint8))
        >>> images
        array([[[[-1. , -0.6,  1. ]]]], dtype=float32)
        >>> normalization.decode(images).round(3)
        array([[[[0. , 0.2, 1. ]]]], dtype=float32)
    """

    mean: tuple[float, ...]
    deviation: float

    def __post_init__(self) -> None:
        mean = _numbers(self.mean)
        if not mean or not all(map(math.isfinite, mean)):
            raise ArgumentError("mean", "be finite numbers, one for each channel or one for all", got=repr(self.mean))
        deviation = _numbers((self.deviation,))
        if not deviation or not 0 < deviation[0] < math.inf:
            raise ArgumentError("deviation", "be positive and finite, one number for all", got=repr(self.deviation))
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "deviation", deviation[0])

    def encode(self, pixels: Any) -> Any:
        """Turn pixels of shape (…, C, H, W) into normalized images, in float32.

        Args:
            pixels: Whole numbers 0 … 255 if they are uint8, numbers in [0, 1] if they are floating; an array or a
                tensor. They are left as they are.
        """
        values: Any = as_dense(pixels, "pixels") if isinstance(pixels, Tensor) else as_array(pixels, "pixels")
        mean = self._mean_of(values)
        is_byte = values.dtype == (torch.uint8 if isinstance(values, Tensor) else np.uint8)
        if not is_byte and not _is_floating(values):
            must = "be uint8 (0 to 255) or floating (0 to 1)"
            raise ArgumentError("pixels", must, got=values.dtype, remedy="Convert them")
        if not is_byte and not bool(((values >= 0) & (values <= 1)).all()):
            must, got = f"lie in [0, 1] where they are {values.dtype}", (float(values.min()), float(values.max()))
            remedy = "Divide by the largest possible value, or give uint8"
            raise ArgumentError("pixels", must, got=f"values between {got[0]} and {got[1]}", remedy=remedy)
        images: Any = values.to(torch.float32, copy=True) if isinstance(values, Tensor) else values.astype(np.float32)
        # In place on the copy: a dataset may fill a good part of the memory.
        images /= 255 if is_byte else 1
        images -= mean
        images /= self.deviation
        return images

    @check_arguments
    def decode(self, images: Any, *, clip: bool = False) -> Any:
        """Turn normalized images back into pixel values, which lie in [0, 1] if they were encoded from pixels.

        Args:
            images: An array or a tensor of shape (…, C, H, W); of any shape if there is a single mean.
            clip: Bring values outside of [0, 1] back into it, as for showing an image.
        """
        values: Any = as_dense(images, "images") if isinstance(images, Tensor) else as_array(images, "images")
        if not _is_floating(values):
            raise ArgumentError("images", "be floating, as encode returns them", got=values.dtype)
        if not math.isfinite(float(values.sum())) and not bool(((values - values) == 0).all()):
            raise ArgumentError("images", "be finite", got="NaN or infinity among them")
        pixels = values * self.deviation + self._mean_of(values)
        return pixels.clip(0, 1) if clip else pixels

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes, in terms that JSON knows.

        Example:
            >>> Normalization((0.5,), 0.5).to_dict()
            {'mean': [0.5], 'deviation': 0.5}
        """
        return {"mean": list(self.mean), "deviation": self.deviation}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normalization:
        """Make a normalization from what `to_dict` returned."""
        if set(values) != {"mean", "deviation"}:
            raise ArgumentError("values", "have the keys 'mean' and 'deviation'", got=sorted(values))
        mean = values["mean"]
        return cls(tuple(mean) if isinstance(mean, list) else mean, values["deviation"])

    def _mean_of(self, images: Any) -> Any:
        """Return the mean as something that broadcasts against images, of their kind, device and dtype."""
        if len(self.mean) == 1:
            return self.mean[0]
        if images.ndim < 3 or images.shape[-3] != len(self.mean):
            must = f"have shape (…, {len(self.mean)}, H, W), with a channel for each mean"
            remedy = "Move the channels before height and width"
            raise ArgumentError("images", must, got=tuple(images.shape), remedy=remedy)
        dtype = images.dtype if _is_floating(images) else None
        if isinstance(images, Tensor):
            return torch.tensor(self.mean, dtype=dtype or torch.float32, device=images.device)[:, None, None]
        return np.array(self.mean, dtype=dtype or np.float32)[:, None, None]


def _numbers(values: Any) -> tuple[float, ...]:
    """Turn one or several numbers into a tuple; what is none of them into an empty one."""
    try:
        several = (values,) if np.ndim(values) == 0 else tuple(values)
        # Python would take "1" and True for numbers.
        is_other = any(isinstance(value, bool) or not isinstance(value, (Real, Tensor)) for value in several)
        return () if is_other else tuple(float(value) for value in several)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return ()


def _is_floating(values: Any) -> bool:
    return values.is_floating_point() if isinstance(values, Tensor) else values.dtype.kind == "f"


# Pixels in [−1, 1].
SYMMETRIC = Normalization((0.5,), 0.5)


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
            got = f"{getattr(self.pixels, 'dtype', type(self.pixels).__name__)}, {np.shape(self.pixels)}"
            must = "be a uint8 array of shape (n, C, H, W)"
            raise ArgumentError("pixels", must, got=got, remedy="load_arrays reads other layouts")
        object.__setattr__(self, "pixels", as_array(self.pixels, "pixels"))
        if not isinstance(self.normalization, Normalization):
            raise ArgumentError("normalization", "be a Normalization(mean, deviation)", got=repr(self.normalization))
        if len(self.normalization.mean) not in (1, self.pixels.shape[1]):
            must = f"have a single mean, or one for each channel of the pixels ({self.pixels.shape[1]})"
            raise ArgumentError("normalization", must, got=f"{len(self.normalization.mean)} means")
        object.__setattr__(
            self, "class_names", tuple(as_kind(self.class_names, (tuple[str, ...],), name="class_names"))
        )
        if self.labels is not None:
            object.__setattr__(self, "labels", self._checked(as_array(self.labels, "labels")))

    def _checked(self, labels: np.ndarray) -> np.ndarray:
        """Return the labels as int64; refuse those that do not belong to the images or the classes."""
        if labels.shape != self.pixels.shape[:1] or labels.dtype.kind not in "iu":
            must = f"be {len(self.pixels)} integers, one for each image"
            raise ArgumentError("labels", must, got=f"{labels.dtype}, {labels.shape}")
        n_classes = len(self.class_names)
        if n_classes and len(labels) and not 0 <= labels.min() <= labels.max() < n_classes:
            must = f"lie between 0 and {n_classes - 1}, as there are {n_classes} class_names"
            raise ArgumentError("labels", must, got=f"values between {labels.min()} and {labels.max()}")
        return labels.astype(np.int64, copy=False)

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
            raise ArgumentError("labels", f"be known for a class to be selected; {self.name!r} has none")
        is_label = isinstance(label, (str, int, float, np.generic))
        mask = self.labels == label if is_label else np.zeros(len(self), dtype=bool)
        if not mask.any():
            raise ArgumentError("label", f"be one of {np.unique(self.labels).tolist()}", got=repr(label))
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


def check_choice(value: object, choices: Collection[object], *, name: str = "split") -> None:
    """Refuse what is none of the choices."""
    if value not in choices:
        raise ArgumentError(name, f"be one of {', '.join(map(repr, choices))}", got=repr(value))


def is_dataset(points: Any) -> bool:
    """Say whether something is a dataset of images, with their normalization beside them."""
    # Looked up without asking for them: images may be computed at each call.
    return hasattr(points, "normalization") and inspect.getattr_static(points, "images", None) is not None


def images_like(dataset: Any, normalization: Normalization | None, name: str) -> Any:
    """Return the images of a dataset, if they are normalized as the samples of a fit were."""
    if dataset.normalization == normalization:
        return dataset.images
    if normalization is None:
        must = "be an array or a tensor, like the samples of the fit, which had no normalization"
        remedy = f"Fit on a dataset, or give {name}.images if you normalized alike"
        raise ArgumentError(name, must, got=f"a dataset with {dataset.normalization}", remedy=remedy)
    must = f"be normalized like the samples of the fit, by {normalization}"
    remedy = "Make a dataset with that normalization, or give its images"
    raise ArgumentError(name, must, got=dataset.normalization, remedy=remedy)


def check_normalized(values: np.ndarray | Tensor, normalization: Normalization, channels: int, name: str) -> None:
    """Refuse whole numbers, and warn of numbers in [0, 1], where the samples of a fit were normalized pixels."""
    whole = not (values.is_floating_point() or values.is_complex()) if isinstance(values, Tensor) else False
    must, remedy = "be normalized like the samples of the fit", f"Use geometry.normalization.encode({name})"
    if whole or (isinstance(values, np.ndarray) and values.dtype.kind in "iub"):
        raise ArgumentError(name, must, got="whole numbers", remedy=remedy)
    is_real = not values.is_complex() if isinstance(values, Tensor) else values.dtype.kind == "f"
    if not is_real or 0 in values.shape or not (values.min() >= 0 and values.max() <= 1):
        return
    if normalization.encode(np.zeros((channels, 1, 1))).max() < _BLACK:
        error = ArgumentError(name, must, got="pixels in [0, 1]", remedy=remedy)
        warnings.warn(str(error), UserWarning, stacklevel=5)
