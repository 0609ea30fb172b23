"""Checks at the public boundary, and their messages. Inside the library, shapes are trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Points:
    """Points as a floating tensor, with the way back to what the caller gave.

    Attributes:
        tensor: The points, float32 or float64.
        is_array: Whether the caller gave a NumPy array (or something like one).
        sample_shape: Channels, height and width, where the caller gave images.
    """

    tensor: Float[Tensor, "n dim"]
    is_array: bool
    sample_shape: tuple[int, int, int] | None = None

    def restore(self, result: Tensor) -> Any:
        """Return a result as the caller's kind: a NumPy array, or a tensor on the caller's device."""
        if self.is_array:
            return result.detach().cpu().numpy()
        return result.to(self.tensor.device)

    def restore_vectors(self, result: Float[Tensor, "*axes dim"]) -> Any:
        """Return points or vectors as the caller's kind, as images where the caller gave images."""
        if self.sample_shape is not None:
            result = result.reshape(*result.shape[:-1], *self.sample_shape)
        return self.restore(result)


def is_integer(value: Any) -> bool:
    """Say whether something is a whole number, Python's or NumPy's, and not a truth value.

    Example:
        >>> is_integer(np.int64(2)), is_integer(2.0), is_integer(True)
        (True, False, False)
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def as_points(points: Any, *, dim: int | None = None, name: str = "points") -> Points:
    """Accept an array, a tensor or nested lists of shape (n, dim); refuse anything else with a sentence.

    Integers and half precision become float32 or float64; the input is never modified.
    """
    is_array = not isinstance(points, Tensor)
    tensor = points if isinstance(points, Tensor) else _from_array(points, name)
    if tensor.is_complex():
        raise ValueError(f"{name} must be real; Complex data not supported")
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else torch.float64)
    if tensor.ndim != 2:
        raise ValueError(
            f"{name} must have shape (n, {dim or 'dim'}); got {tuple(tensor.shape)}. "
            "Reshape a single point with point[None, :]"
        )
    if dim is not None and tensor.shape[1] != dim:
        raise ValueError(f"{name} must have {dim} columns, like the samples of the fit; got {tensor.shape[1]}")
    if tensor.shape[0] == 0 or tensor.shape[1] == 0:
        raise ValueError(f"{name} must not be empty; got shape {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite; it contains NaN or infinity. Drop or impute those rows")
    return Points(tensor, is_array)


def as_images(images: Any, *, sample_shape: tuple[int, int, int] | None = None, name: str = "images") -> Points:
    """Accept images of shape (n, channels, height, width), and see them as flat points.

    Integers and half precision become float32; the input is never modified.

    Args:
        images: An array, a tensor or nested lists.
        sample_shape: The channels, height and width that they must have; None for any.
        name: What errors call them.

    Example:
        >>> as_images(np.zeros((5, 1, 8, 8), dtype=np.uint8)).tensor.shape
        torch.Size([5, 64])
    """
    is_array = not isinstance(images, Tensor)
    given = images if isinstance(images, Tensor) else np.asarray(images)
    shape = tuple(given.shape)
    if len(shape) != 4:
        wanted = ("channels", "height", "width") if sample_shape is None else sample_shape
        remedy = ""
        if shape == sample_shape:
            remedy = ". Give a single image as image[None]"
        elif len(shape) == 3 and (sample_shape is None or (1, *shape[1:]) == sample_shape):
            remedy = f". Add an axis for the channel with {name}[:, None]"
        raise ValueError(f"{name} must have shape (n, {', '.join(map(str, wanted))}) for images; got {shape}{remedy}")
    if 0 in shape:
        raise ValueError(f"{name} must not be empty; got shape {shape}")
    n, channels, height, width = shape
    if sample_shape is not None and (channels, height, width) != sample_shape:
        raise ValueError(f"{name} must be images of shape {sample_shape}, like the samples of the fit; got {shape[1:]}")
    flat = given.reshape(n, -1)
    if isinstance(flat, Tensor) and not (flat.is_floating_point() or flat.is_complex()):
        flat = flat.to(torch.float32)
    elif isinstance(flat, np.ndarray) and flat.dtype.kind in "iub":
        flat = flat.astype(np.float32)
    return Points(as_points(flat, name=name).tensor, is_array, (channels, height, width))


def _from_array(points: Any, name: str) -> Tensor:
    array = np.asarray(points)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numeric; got dtype {array.dtype}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    # Read-only, non-contiguous and byte-swapped arrays are copied; torch would refuse or warn.
    array = np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "W"])
    return torch.from_numpy(array)


def as_bandwidth(bandwidth: Any, points: Float[Tensor, "n dim"]) -> Float[Tensor, " n"]:
    """Broadcast a bandwidth to one positive σ per point, on the device and in the dtype of the points."""
    try:
        sigma = torch.as_tensor(bandwidth, dtype=points.dtype, device=points.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"bandwidth must be a number, or one per point; got {bandwidth!r}") from error
    if sigma.ndim > 1 or (sigma.ndim == 1 and len(sigma) not in (1, len(points))):
        raise ValueError(f"bandwidth must be a number or have shape ({len(points)},); got {tuple(sigma.shape)}")
    if not bool((torch.isfinite(sigma) & (sigma > 0)).all()):
        raise ValueError(f"bandwidth must be positive and finite (it is a standard deviation); got {bandwidth}")
    return sigma.expand(len(points))
