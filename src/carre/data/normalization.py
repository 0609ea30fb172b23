"""From pixels to the numbers that a geometry is learned on, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


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
            raise ValueError(f"mean must be finite numbers, one for each channel or one for all; got {self.mean!r}")
        deviation = _numbers((self.deviation,))
        if not deviation or not 0 < deviation[0] < math.inf:
            raise ValueError(f"deviation must be positive and finite, one number for all; got {self.deviation!r}")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "deviation", deviation[0])

    def encode(self, pixels: Any) -> Any:
        """Turn pixels of shape (…, C, H, W) into normalized images, in float32.

        Args:
            pixels: Whole numbers 0 … 255 if they are uint8, numbers in [0, 1] if they are floating; an array or a
                tensor. They are left as they are.
        """
        values = pixels if isinstance(pixels, Tensor) else np.asarray(pixels)
        mean = self._mean_of(values)
        is_byte = values.dtype == (torch.uint8 if isinstance(values, Tensor) else np.uint8)
        if not is_byte and not _is_floating(values):
            raise ValueError(f"pixels must be uint8 (0 to 255) or floating (0 to 1); got {values.dtype}. Convert them")
        if not is_byte and not bool(((values >= 0) & (values <= 1)).all()):
            raise ValueError(
                f"pixels must lie in [0, 1] where they are {values.dtype}; got values between {float(values.min())} "
                f"and {float(values.max())}. Divide by the largest possible value, or give uint8"
            )
        images: Any = values.to(torch.float32, copy=True) if isinstance(values, Tensor) else values.astype(np.float32)
        # In place on the copy: a dataset may fill a good part of the memory.
        images /= 255 if is_byte else 1
        images -= mean
        images /= self.deviation
        return images

    def decode(self, images: Any, *, clip: bool = False) -> Any:
        """Turn normalized images back into pixel values, which lie in [0, 1] if they were encoded from pixels.

        Args:
            images: An array or a tensor of shape (…, C, H, W); of any shape if there is a single mean.
            clip: Bring values outside of [0, 1] back into it, as for showing an image.
        """
        values = images if isinstance(images, Tensor) else np.asarray(images)
        if not _is_floating(values):
            raise ValueError(f"images must be floating, as encode returns them; got {values.dtype}")
        mean = self._mean_of(values)
        pixels = values * self.deviation + mean
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
            raise ValueError(f"values must have the keys 'mean' and 'deviation'; got {sorted(values)}")
        mean = values["mean"]
        return cls(tuple(mean) if isinstance(mean, list) else mean, values["deviation"])

    def _mean_of(self, images: Any) -> Any:
        """Return the mean as something that broadcasts against images, of their kind, device and dtype."""
        if len(self.mean) == 1:
            return self.mean[0]
        if images.ndim < 3 or images.shape[-3] != len(self.mean):
            raise ValueError(
                f"images must have shape (…, {len(self.mean)}, H, W), with a channel for each mean; "
                f"got {tuple(images.shape)}. Move the channels before height and width"
            )
        dtype = images.dtype if _is_floating(images) else None
        if isinstance(images, Tensor):
            return torch.tensor(self.mean, dtype=dtype or torch.float32, device=images.device)[:, None, None]
        return np.array(self.mean, dtype=dtype or np.float32)[:, None, None]


def _numbers(values: Any) -> tuple[float, ...]:
    """Turn one or several numbers into a tuple; what is none of them into an empty one."""
    try:
        several = (values,) if np.ndim(values) == 0 else tuple(values)
        # Python would take "1" for a number.
        is_text = any(isinstance(value, (str, bytes)) for value in several)
        return () if is_text else tuple(float(value) for value in several)
    except (TypeError, ValueError, RuntimeError):
        return ()


def _is_floating(values: Any) -> bool:
    return values.is_floating_point() if isinstance(values, Tensor) else values.dtype.kind == "f"


# Pixels in [−1, 1].
SYMMETRIC = Normalization((0.5,), 0.5)
