"""The public boundary: what people give is checked here, once, and given back. Inside, shapes are trusted."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from numbers import Real
from types import NoneType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.text import infinite_cells

_MOST_GOT = 400


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
        said = " ".join(str(self.got).split())
        got = "" if self.got is None else f"; got {said[:_MOST_GOT]}{'…' * (len(said) > _MOST_GOT)}"
        return f"{argument} must {self.must}{got}{'. ' if self.remedy else ''}{self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), got=self.got, remedy=self.remedy), (self.argument, self.must)


# What NumPy, and what only looks like an array, raise where there is none.
_UNREADABLE = (TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError, LookupError, OSError)
_MOST_SAID = 150
# Of points, whose squares are summed over columns; and of σ, whose squares and their reciprocals are numbers.
_MOST = {torch.float32: 1e17, torch.float64: 1e150}
_SCALES = {torch.float32: (1e-18, 1e18), torch.float64: (1e-150, 1e150)}
# More numbers than that are not copied: they may fill the memory, or lie in a file. They are read some at a time.
LARGE = 2**22


@dataclass(frozen=True, eq=False)
class Points:
    """Points as a floating tensor, with the way back to what the caller gave.

    Attributes:
        tensor: The points, float32 or float64.
        is_array: Whether the caller gave a NumPy array (or something like one).
        sample_shape: Channels, height and width, where the caller gave images.
        units: What each column was divided by, where the field is asked in units of its own.
        names: Names of rows and columns, which the answers get (`carre.data.frames.FrameNames`), or None.
    """

    tensor: Float[Tensor, "n dim"]
    is_array: bool
    sample_shape: tuple[int, int, int] | None = None
    units: Float[Tensor, " dim"] | None = None
    names: Any = None

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

    def restore_between(self, result: Float[Tensor, "n m"], others: Points) -> Any:
        """Return a number for each of these points and each of others: rows of these names, columns of those."""
        return self._as_given(result, None if others.names is None else others.names.index)

    def named(self, answer: np.ndarray) -> Any:
        """Name the rows of an array, where those of the points have names."""
        return answer if self.names is None else self.names.dress(answer)

    def check_order(self, beside: Any, name: str, of: str = "points") -> None:
        """Refuse what has the labels of the rows in another order: its rows would be taken for those of others."""
        own: Any = getattr(self.names, "index", None)
        other: Any = getattr(beside, "index", None)
        if not (hasattr(own, "equals") and hasattr(other, "equals")) or len(own) != len(other) or own.equals(other):
            return
        if own.difference(other).empty:
            must, remedy = f"have its rows in the order of {of}", f"Use {name}.loc[{of}.index]"
            raise ArgumentError(name, must, got="the same labels in another order", remedy=remedy)

    def _as_given(self, result: Tensor, columns: Any = None) -> Any:
        if not self.is_array:
            return result.to(self.tensor.device)
        answer = result.detach().cpu().numpy()
        return answer if self.names is None else self.names.dress(answer, columns)

    def restore_bases(self, result: Float[Tensor, "*axes dim d"], *, by_name: bool = False) -> Any:
        """Return vectors that are columns as the caller's kind, in the caller's units; with names where asked for."""
        columns = self.names.columns if by_name and self.names is not None else None
        return self._as_given(self._outer(result, -2), columns)

    def restore_vectors(self, result: Float[Tensor, "*axes dim"]) -> Any:
        """Return points or vectors as the caller's kind and units, as images where the caller gave images."""
        result = self._outer(result)
        if self.sample_shape is not None:
            result = result.reshape(*result.shape[:-1], *self.sample_shape)
        return self._as_given(result, None if self.names is None or result.ndim != 2 else self.names.columns)

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


def listed(names: Sequence[str], most: int = 8) -> str:
    """Write the first of many names.

    Example:
        >>> listed(["x", "y", "z"], 2)
        'x, y, …'
    """
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


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


def checked_integer(value: Any, *, name: str, least: int, most: int | float = math.inf, reason: str = "") -> int:
    """Check that an option is an integer within bounds."""
    try:
        count = operator.index(value)
    except TypeError as error:
        raise ArgumentError(name, "be an integer", got=repr(value)) from error
    if not least <= count <= most:
        bound = f"be at least {least}{reason}" if count < least else f"be at most {most:,}"
        raise ArgumentError(name, bound, got=count)
    return count


def as_dense(values: Any, name: str) -> np.ndarray | Tensor:
    """Return something as a plain array or tensor whose numbers are all there, and refuse what is none.

    The one place that knows the kinds of arrays there are: an answer never depends on what a mask, a sparse or a nested
    layout hides.

    Args:
        values: An array, a tensor, nested lists, or what has ``__array__``.
        name: What errors call it.

    Example:
        >>> as_dense([[1.0, 2.0]], "X").shape
        (1, 2)
        >>> as_dense(np.ma.masked_greater([1.0, 1e6], 10.0), "X")
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: X must not be masked; got 1 masked value. Leave such rows out, or fill them in
        >>> as_dense(torch.eye(2).to_sparse(), "X")
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: X must be dense; got a tensor of layout torch.sparse_coo. Use X.to_dense()
    """
    if isinstance(values, Tensor):
        return _plain_tensor(values, name)
    if hasattr(values, "toarray"):
        raise ArgumentError(name, "be dense", got="a sparse matrix", remedy=f"Use {name}.toarray()")
    kinds = getattr(values, "dtypes", ())
    if any("categor" in str(kind).lower() for kind in (kinds if np.iterable(kinds) else [kinds])):
        raise ArgumentError(name, "be numeric", got="categories", remedy="Choose columns of numbers")
    try:
        array = np.asanyarray(values)
    except _UNREADABLE as error:
        said = " ".join(str(error).split())[:_MOST_SAID] or type(error).__name__
        got = _uneven(values) or f"a {type(values).__name__} that NumPy cannot read ({said})"
        remedy = "Rows must be equally long; use torch.stack for a list of tensors"
        raise ArgumentError(name, "be an array, a tensor or nested lists of numbers", got=got, remedy=remedy) from error
    array = _unmasked(values, array, name)
    if array.dtype == object and array.ndim > 0:
        return _from_objects(array, name)
    if array.dtype.kind == "c":
        raise ArgumentError(name, "be real; Complex data not supported")
    if array.dtype.kind not in "fiub":
        got = f"dtype {array.dtype}" if array.dtype != object else f"a {type(values).__name__}"
        if array.dtype.kind in "US" and array.size:
            got = f"text, {'such as ' * (array.ndim > 0)}{array.flat[0].item()!r}"
        raise ArgumentError(name, "be numeric", got=got, remedy="Give an array of numbers")
    return array


def _uneven(values: Any) -> str:
    """Say which of several rows has another length than the first, if one has."""
    is_rows = isinstance(values, list) and all(isinstance(row, (list, tuple)) for row in values)
    lengths = list(map(len, values)) if is_rows else []
    row = next((i for i, length in enumerate(lengths) if length != lengths[0]), 0)
    return f"{lengths[row]} in row {row} (from 0), and {lengths[0]} in the first" if row else ""


def as_array(values: Any, name: str) -> np.ndarray:
    """Return anything that NumPy reads as an array, but for masked values, of which only the mask knows.

    Example:
        >>> as_array(["a", "b"], "labels")
        array(['a', 'b'], dtype='<U1')
    """
    if isinstance(values, Tensor):
        values = _plain_tensor(values, name).detach().cpu()
    return _unmasked(values, np.asanyarray(values), name)


def _unmasked(values: Any, array: np.ndarray, name: str) -> np.ndarray:
    hidden = _hidden(array) or (_hidden(values) if isinstance(values, (list, tuple)) else 0)
    if hidden:
        got = f"{hidden:,} masked value{'s' * (hidden > 1)}"
        raise ArgumentError(name, "not be masked", got=got, remedy="Leave such rows out, or fill them in")
    return np.asarray(array)


class NoNumberError(ArgumentError, TypeError):
    """An array that holds other things than numbers; of both kinds, as scikit-learn wants it.

    Example:
        >>> try:
        ...     as_dense([[1.0, {}]], "X")
        ... except NoNumberError as error:
        ...     print(error.got)
        a dict at (0, 1)
    """


def _from_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Return numbers that came as objects, such as Decimals; None is a missing one. Text is none, whatever it shows."""
    kinds = (Real, Decimal, np.bool_, NoneType)
    other = next((i for i, value in enumerate(array.flat) if not isinstance(value, kinds)), None)
    if other is not None:
        value, place = array.flat[other], tuple(map(int, np.unravel_index(other, array.shape)))
        what = f"the text {value!r}" if isinstance(value, str) else f"a {type(value).__name__}"
        remedy = "The argument must be no string but numbers"
        raise NoNumberError(name, "be numeric", got=f"{what} at {place}", remedy=remedy)
    try:
        return array.astype(np.float64)
    except OverflowError as error:
        raise ArgumentError(name, "be finite", got="a whole number beyond those of float64") from error


def _plain_tensor(tensor: Tensor, name: str) -> Tensor:
    """Refuse tensors without values of their own in memory, or of which only some count."""
    dense = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized or tensor.is_meta)
    if tensor.is_complex():
        raise ArgumentError(name, "be real; Complex data not supported")
    if dense and type(tensor) is Tensor:
        return tensor.resolve_neg()
    if not dense:
        got = "a nested" if tensor.is_nested else "a quantized" if tensor.is_quantized else "a meta"
        got = (
            f"{got} tensor" if tensor.layout in (torch.strided, torch.jagged) else f"a tensor of layout {tensor.layout}"
        )
        remedy = "Use X.dequantize()" if tensor.is_quantized else "Use X.to_dense()"
        remedy = "Give one with values" if tensor.is_meta or tensor.is_nested else remedy.replace("X", name)
        raise ArgumentError(name, "be dense", got=got, remedy=remedy)
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        # As of torch.masked: a tensor that holds others, and has a meaning of its own.
        got, remedy = f"a {type(tensor).__name__}", "Give a plain tensor of the values that count"
        raise ArgumentError(name, "be an array or a plain tensor", got=got, remedy=remedy)
    return tensor.as_subclass(Tensor)


def _hidden(values: Any) -> int:
    """Count the values that masks hide, also those of arrays in a list, which NumPy would show."""
    if isinstance(values, (list, tuple)):
        return sum(_hidden(value) for value in values if isinstance(value, (list, tuple, np.ma.MaskedArray)))
    return int(np.ma.getmaskarray(values).sum()) if np.ma.is_masked(values) else 0


def as_points(
    points: Any, *, dim: int | None = None, name: str = "points", columns: Sequence[str] | None = None
) -> Points:
    """Accept an array, a tensor or nested lists of shape (n, dim); refuse anything else with a sentence.

    Integers and half precision become float32 or float64; the input is never modified. Errors call the points, and
    their columns, by the names given.
    """
    is_array = not isinstance(points, Tensor)
    tensor = as_numbers(points, name)
    if tensor.ndim != 2:
        remedy = "Reshape a single point with point[None, :]" if tensor.ndim else "Give points, not their numbers"
        raise ArgumentError(name, f"have shape (n, {dim or 'dim'})", got=tuple(tensor.shape), remedy=remedy)
    if dim is not None and tensor.shape[1] != dim:
        must = f"have {dim} columns, like the samples of the fit"
        must += f" ({listed(columns)})" if columns is not None and len(columns) == dim else ""
        raise ArgumentError(name, must, got=tensor.shape[1])
    if tensor.shape[0] == 0 or tensor.shape[1] == 0:
        of = "sample" if tensor.shape[0] == 0 else "feature"
        got = f"0 {of}(s) (shape={tuple(tensor.shape)}) while a minimum of 1 is required"
        raise ArgumentError(name, "not be empty", got=got, remedy="Give some")
    if not is_finite(tensor):
        remedy = "Leave such rows out, or fill them in"
        remedy += f"; numpy.isfinite({name}).all(axis=1) finds the others" if len(tensor) > 1 else ""
        got = infinite_cells(tensor.detach().cpu().numpy(), columns)
        raise ArgumentError(name, "be finite; it contains NaN or infinity", got=got, remedy=remedy)
    return Points(tensor, is_array)


def check_size(samples: Tensor, name: str) -> None:
    """Refuse numbers whose squares would overflow."""
    most = _MOST[samples.dtype]
    if not is_finite(samples, most):
        must = f"lie within ±{most:g} in {_in_words(samples)}: squares would overflow"
        got = f"{float(samples.detach().abs().amax()):g}"
        raise ArgumentError(name, must, got=got, remedy="Divide it by a constant")


def is_finite(tensor: Tensor, most: float = math.inf) -> bool:
    """Say whether all numbers are finite, and lie within bounds: where their norm does, in one pass.

    Example:
        >>> is_finite(torch.tensor([1e308, 1e308], dtype=torch.float64)), is_finite(torch.tensor([torch.nan]))
        (True, False)
        >>> is_finite(torch.tensor([3.0, 4.0]), 4.0), is_finite(torch.tensor([3.0, 5.0]), 4.0)
        (True, False)
    """
    norm = torch.linalg.vector_norm(tensor.detach()).item()
    # The norm of large numbers may overflow, and that of many is larger than each.
    return norm < most or bool((torch.isfinite(tensor) & (tensor.abs() <= most)).all())


def checked_answer(answer: Tensor, task: str, *, squared: bool = False) -> Tensor:
    """Return an answer whose numbers, or their squares, are all finite, and say what to do where they are not.

    Example:
        >>> try:
        ...     checked_answer(torch.tensor([torch.inf]), "gradient")
        ... except ArgumentError as error:
        ...     print(error)
        bandwidth must suit the points; got a gradient with NaN or infinity. Raise it, or ask nearer to the data
    """
    if answer.is_floating_point() and not is_finite(answer, _MOST[answer.dtype] if squared else math.inf):
        got, remedy = f"a {task} with NaN or infinity", "Raise it, or ask nearer to the data"
        raise ArgumentError("bandwidth", "suit the points", got=got, remedy=remedy)
    return answer


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
    given = as_dense(images, name)
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


def as_numbers(values: Any, name: str) -> Tensor:
    """Return something as a real tensor of any shape, float32 or float64; memory is shared where it can be.

    Example:
        >>> as_numbers(np.array([1, 2], dtype=">i2"), "values")
        tensor([1., 2.], dtype=torch.float64)
    """
    given = as_dense(values, name)
    tensor = given if isinstance(given, Tensor) else _from_array(given)
    if tensor.dtype not in _MOST:
        tensor = tensor.to(torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else torch.float64)
    return tensor


def _from_array(array: np.ndarray) -> Tensor:
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    flags = array.flags
    if flags.c_contiguous and flags.writeable and flags.aligned and array.dtype.isnative:
        return torch.from_numpy(array)
    # Read-only, non-contiguous and byte-swapped arrays are copied; torch would refuse or warn.
    is_plain = flags.aligned and array.dtype.isnative
    if array.size > LARGE and is_plain and all(step >= 0 and step % array.itemsize == 0 for step in array.strides):
        return torch.from_numpy(np.asarray(_Borrowed(array)))
    array = np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "W", "A"])
    return torch.from_numpy(array)


class _Borrowed:
    """Memory that is not to be written to, such as a mapped file, without saying so: torch would warn of it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, place = array, array.__array_interface__
        self.__array_interface__ = place | {"data": (place["data"][0], False)}


def as_bandwidth(bandwidth: Any, points: Float[Tensor, "n dim"], *, name: str = "bandwidth") -> Float[Tensor, " n"]:
    """Broadcast a bandwidth to one positive σ per point, on the device and in the dtype of the points."""
    least, most = _SCALES[points.dtype]
    if isinstance(bandwidth, float) and least <= bandwidth <= most:
        return points.new_full((), bandwidth).expand(len(points))
    if isinstance(bandwidth, (bool, np.bool_)):
        raise ArgumentError(name, "be a number, or one per point", got=repr(bandwidth))
    sigma = as_numbers(bandwidth, name)
    if sigma.ndim > 1 or (sigma.ndim == 1 and len(sigma) not in (1, len(points))):
        raise ArgumentError(name, f"be a number or have shape ({len(points)},)", got=tuple(sigma.shape))
    if not bool(((sigma >= least) & (sigma <= most)).all()):
        low, high = float(sigma.min()), float(sigma.max())
        got = repr(bandwidth) if sigma.ndim == 0 else f"{low:g}" if low == high else f"values from {low:g} to {high:g}"
        if not 0 < low <= high < math.inf:
            raise ArgumentError(name, "be positive and finite (it is a standard deviation)", got=got)
        must = f"lie between {least:g} and {most:g} in {_in_words(points)}, where its square is a number"
        raise ArgumentError(name, must, got=got, remedy="Give points in float64, or in other units")
    return sigma.to(points).expand(len(points))


def _in_words(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
