"""The public boundary: what people give is checked here, once, and given back. Inside, shapes are trusted."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


class ArgumentError(ValueError):
    """An argument that cannot be used, as a value: every face of the library words it for its own users.

    Attributes:
        argument: What the library calls it.
        must: What it must be, after "must".
        got: What was given; None where that says nothing.
        remedy: What to do, as a sentence without its period; empty where ``must`` says it all.

    Example:
        >>> error = ArgumentError("bandwidth", "be positive", got=-1.0, remedy="It is a standard deviation")
        >>> str(error)
        'bandwidth must be positive; got -1.0. It is a standard deviation'
        >>> error.worded("--bandwidth")
        '--bandwidth must be positive; got -1.0. It is a standard deviation'
    """

    def __init__(self, argument: str, must: str, *, got: object = None, remedy: str = "") -> None:
        self.argument, self.must, self.got, self.remedy = argument, must, got, remedy
        super().__init__(self.worded(argument))

    def worded(self, argument: str) -> str:
        """Write the sentence with another name of the argument."""
        got = "" if self.got is None else f"; got {self.got}"
        return f"{argument} must {self.must}{got}{'. ' if self.remedy else ''}{self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _argument_error, (type(self), self.argument, self.must, self.got, self.remedy)


def _argument_error(kind: type[ArgumentError], argument: str, must: str, got: object, remedy: str) -> ArgumentError:
    """Make an error again in another process."""
    return kind(argument, must, got=got, remedy=remedy)


@runtime_checkable
class Names(Protocol):
    """Names of rows and columns that came in, for answers that go out."""

    def dress(self, answer: np.ndarray, *, as_vectors: bool = False) -> Any:
        """Name the rows of an answer, and the columns of vectors."""


@dataclass(frozen=True, eq=False)
class Points:
    """Points as a floating tensor, with the way back to what the caller gave.

    Attributes:
        tensor: The points, float32 or float64.
        is_array: Whether the caller gave a NumPy array (or something like one).
        sample_shape: Channels, height and width, where the caller gave images.
        units: What each column was divided by, where the field is asked in units of its own.
        names: Names of rows and columns, which the answers get.
    """

    tensor: Float[Tensor, "n dim"]
    is_array: bool
    sample_shape: tuple[int, int, int] | None = None
    units: Float[Tensor, " dim"] | None = None
    names: Names | None = None

    def in_units(self, units: Float[Tensor, " dim"] | None) -> Points:
        """Divide each column by a unit; answers are multiplied by it.

        Example:
            >>> given = as_points([[2.0, 30.0]]).in_units(torch.tensor([1.0, 10.0]))
            >>> given.tensor, given.restore_vectors(given.tensor)
            (tensor([[2., 3.]], dtype=torch.float64), array([[ 2., 30.]]))
        """
        return self if units is None else replace(self, tensor=self.tensor / units.to(self.tensor), units=units)

    def _outer(self, result: Tensor, axis: int = -1) -> Tensor:
        """Bring the coordinates along an axis into the caller's units."""
        if self.units is None:
            return result
        shape = [1] * result.ndim
        shape[axis] = -1
        return result * self.units.to(result).reshape(shape)

    def restore(self, result: Tensor) -> Any:
        """Return a result as the caller's kind: an array, with names where they had some, or a tensor on its device."""
        return self._as_given(result)

    def _as_given(self, result: Tensor, *, as_vectors: bool = False) -> Any:
        if not self.is_array:
            return result.to(self.tensor.device)
        answer = result.detach().cpu().numpy()
        return answer if self.names is None else self.names.dress(answer, as_vectors=as_vectors)

    def restore_bases(self, result: Float[Tensor, "*axes dim d"]) -> Any:
        """Return vectors that are columns as the caller's kind, in the caller's units."""
        return self.restore(self._outer(result, -2))

    def restore_vectors(self, result: Float[Tensor, "*axes dim"]) -> Any:
        """Return points or vectors as the caller's kind and units, as images where the caller gave images."""
        result = self._outer(result)
        if self.sample_shape is not None:
            result = result.reshape(*result.shape[:-1], *self.sample_shape)
        return self._as_given(result, as_vectors=True)

    def seen_by(self, function: Any) -> Any:
        """Let a function of the caller see images and units as the points had them; what is no function stays."""
        if not callable(function):
            return function
        if self.units is not None:
            return lambda points: function(self._outer(points))
        if self.sample_shape is None:
            return function
        shape = self.sample_shape

        def of_flat_points(points: Tensor) -> Any:
            answer = function(points.reshape(-1, *shape))
            is_images = tuple(getattr(answer, "shape", ()))[1:] == shape
            return answer.reshape(len(answer), -1) if is_images else answer

        return of_flat_points


def is_integer(value: Any) -> bool:
    """Say whether something is a whole number, Python's or NumPy's, and not a truth value.

    Example:
        >>> is_integer(np.int64(2)), is_integer(2.0), is_integer(True)
        (True, False, False)
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def as_count(value: Any, *, name: str, must: str = "be a positive integer") -> int:
    """Accept 1, 2, 3, … and refuse anything else with a sentence."""
    if not is_integer(value) or value < 1:
        raise ArgumentError(name, must, got=repr(value))
    return int(value)


def checked_integer(value: Any, *, name: str, least: int, most: float = math.inf, reason: str = "") -> int:
    """Check that an option is an integer within bounds."""
    try:
        count = operator.index(value)
    except TypeError as error:
        raise ArgumentError(name, "be an integer", got=repr(value)) from error
    if not least <= count <= most:
        bound = f"be at least {least}{reason}" if count < least else f"be at most {most:,}"
        raise ArgumentError(name, bound, got=count)
    return count


def as_array(values: Any, name: str) -> np.ndarray:
    """Return something as an array; masked values, of which only the mask knows, are refused.

    Example:
        >>> as_array([[1.0, 2.0]], "X").shape
        (1, 2)
        >>> as_array(np.ma.masked_greater([1.0, 1e6], 10.0), "X")
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: X must not be masked; got 1 masked value. Leave such rows out, or fill them in
    """
    if np.ma.is_masked(values):
        count = int(np.ma.getmaskarray(values).sum())
        got = f"{count:,} masked value{'s' * (count > 1)}"
        raise ArgumentError(name, "not be masked", got=got, remedy="Leave such rows out, or fill them in")
    return np.asarray(values)


def as_points(points: Any, *, dim: int | None = None, name: str = "points") -> Points:
    """Accept an array, a tensor or nested lists of shape (n, dim); refuse anything else with a sentence.

    Integers and half precision become float32 or float64; the input is never modified.
    """
    is_array = not isinstance(points, Tensor)
    tensor = points if isinstance(points, Tensor) else _from_array(points, name)
    if tensor.is_complex():
        raise ArgumentError(name, "be real; Complex data not supported")
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else torch.float64)
    if tensor.ndim != 2:
        remedy = "Reshape a single point with point[None, :]"
        raise ArgumentError(name, f"have shape (n, {dim or 'dim'})", got=tuple(tensor.shape), remedy=remedy)
    if dim is not None and tensor.shape[1] != dim:
        raise ArgumentError(name, f"have {dim} columns, like the samples of the fit", got=tensor.shape[1])
    if tensor.shape[0] == 0 or tensor.shape[1] == 0:
        raise ArgumentError(name, "not be empty", got=f"shape {tuple(tensor.shape)}")
    if not is_finite(tensor):
        raise ArgumentError(name, "be finite; it contains NaN or infinity", remedy="Drop or impute those rows")
    return Points(tensor, is_array)


def is_finite(tensor: Tensor) -> bool:
    """Say whether all numbers are finite: where their sum is, in one pass; the sum of large ones may overflow.

    Example:
        >>> is_finite(torch.tensor([1e308, 1e308], dtype=torch.float64)), is_finite(torch.tensor([torch.nan]))
        (True, False)
    """
    return math.isfinite(tensor.detach().sum().item()) or bool(torch.isfinite(tensor).all())


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
            remedy = "Give a single image as image[None]"
        elif len(shape) == 3 and (sample_shape is None or (1, *shape[1:]) == sample_shape):
            remedy = f"Add an axis for the channel with {name}[:, None]"
        must = f"have shape (n, {', '.join(map(str, wanted))}) for images"
        raise ArgumentError(name, must, got=shape, remedy=remedy)
    if 0 in shape:
        raise ArgumentError(name, "not be empty", got=f"shape {shape}")
    n, channels, height, width = shape
    if sample_shape is not None and (channels, height, width) != sample_shape:
        raise ArgumentError(name, f"be images of shape {sample_shape}, like the samples of the fit", got=shape[1:])
    flat = given.reshape(n, -1)
    if isinstance(flat, Tensor) and not (flat.is_floating_point() or flat.is_complex()):
        flat = flat.to(torch.float32)
    elif isinstance(flat, np.ndarray) and flat.dtype.kind in "iub":
        flat = flat.astype(np.float32)
    return Points(as_points(flat, name=name).tensor, is_array, (channels, height, width))


def _from_array(points: Any, name: str) -> Tensor:
    array = np.asarray(points)
    if array.dtype.kind not in "fiub":
        raise ArgumentError(name, "be numeric", got=f"dtype {array.dtype}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    flags = array.flags
    if flags.c_contiguous and flags.writeable and array.dtype.isnative:
        return torch.from_numpy(array)
    # Read-only, non-contiguous and byte-swapped arrays are copied; torch would refuse or warn.
    array = np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "W"])
    return torch.from_numpy(array)


def as_bandwidth(bandwidth: Any, points: Float[Tensor, "n dim"], *, name: str = "bandwidth") -> Float[Tensor, " n"]:
    """Broadcast a bandwidth to one positive σ per point, on the device and in the dtype of the points."""
    if isinstance(bandwidth, float) and 0 < bandwidth < math.inf:
        return points.new_full((), bandwidth).expand(len(points))
    try:
        sigma = torch.as_tensor(bandwidth, dtype=points.dtype, device=points.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(name, "be a number, or one per point", got=repr(bandwidth)) from error
    if sigma.ndim > 1 or (sigma.ndim == 1 and len(sigma) not in (1, len(points))):
        raise ArgumentError(name, f"be a number or have shape ({len(points)},)", got=tuple(sigma.shape))
    if not bool((torch.isfinite(sigma) & (sigma > 0)).all()):
        raise ArgumentError(name, "be positive and finite (it is a standard deviation)", got=bandwidth)
    return sigma.expand(len(points))
