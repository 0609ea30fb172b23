"""Between what people give and get, arrays or tensors, points or images, and what the toolkit works on."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from carre.boundary import Points
from carre.data import Table
from carre.toolkit import Path

# Of the records of the toolkit, the columns that are points.
_POINTS = ("points", "path")


def is_dataset(points: Any) -> bool:
    """Say whether something is a dataset of images, with their normalization beside them."""
    # Looked up without asking for them: images may be computed at each call.
    return hasattr(points, "normalization") and inspect.getattr_static(points, "images", None) is not None


def coordinates(table: Table, wanted: Any, name: str) -> np.ndarray:
    """Return the columns of a table in the order of those of the fit, found by their names where both have some.

    Args:
        table: The table; further columns are left out.
        wanted: The names of the columns of the fit; None if it had none.
        name: What errors call the table.

    Example:
        >>> coordinates(Table(np.array([[1.0, 2.0, 3.0]]), ("height", "age", "weight")), ["weight", "height"], "X")
        array([[3., 1.]])
    """
    if wanted is None or table.names is None:
        return table.values
    missing = [str(column) for column in wanted if column not in table.names]
    if missing:
        raise ValueError(
            f"{name} must have the columns of the fit, {', '.join(map(str, wanted))}; {table.path} lacks "
            f"{', '.join(missing)}. Add them, or rename its columns"
        )
    order = [table.names.index(column) for column in wanted]
    return table.values if order == list(range(len(table.names))) else table.values[:, order]


def shape_of(points: Any) -> tuple[int, ...]:
    """Return the shape of an array, a tensor, a table or nested lists."""
    return tuple(points.shape if hasattr(points, "shape") else np.shape(points))


def is_whole(values: Any) -> bool:
    """Say whether an array or a tensor holds whole numbers by its type, or truth values."""
    if isinstance(values, Tensor):
        return not (values.is_floating_point() or values.is_complex())
    return np.asarray(values).dtype.kind in "iub"


def as_batch(points: Any, sample_shape: tuple[int, ...] | None) -> Any:
    """Take a vector, or a single image, for a batch of one point."""
    if is_dataset(points) or (len(shape_of(points)) != 1 and shape_of(points) != sample_shape):
        return points
    return points[None] if isinstance(points, Tensor) else np.asarray(points)[None]


def of_arrays(function: Any, gradient: Any, starts: Any) -> tuple[Any, Any]:
    """Let functions without autograd see arrays where the caller works with arrays, wherever the fit computes."""
    if gradient is None or isinstance(starts, Tensor):
        return function, gradient

    def convert(black_box: Callable[[np.ndarray], Any]) -> Callable[[Tensor], Any]:
        return lambda points: black_box(points.detach().cpu().numpy())

    return tuple(convert(box) if callable(box) else box for box in (function, gradient))  # type: ignore[return-value]


def of_images(function: Any, sample_shape: tuple[int, ...] | None) -> Any:
    """Let a function of the caller see images where the points were given as images; what is no function stays."""
    if sample_shape is None or not callable(function):
        return function

    def of_flat_points(points: Tensor) -> Any:
        answer = function(points.reshape(-1, *sample_shape))
        is_images = tuple(getattr(answer, "shape", ()))[1:] == sample_shape
        return answer.reshape(len(answer), -1) if is_images else answer

    return of_flat_points


def brought_back(result: Any, points: Points, *, vectors: bool = False) -> Any:
    """Return what a tool answered as the caller's kind: arrays or tensors, alone or in a record.

    Args:
        result: The answer.
        points: What the caller gave.
        vectors: Whether tensors are points or vectors, to be seen as images where the points were; in records that
            is known of each column.
    """
    if isinstance(result, Tensor):
        return points.restore_vectors(result) if vectors else points.restore(result)
    if isinstance(result, Path):
        return converted(result, lambda _, tensor: tensor.to(points.tensor.device))
    if dataclasses.is_dataclass(result):
        return converted(
            result, lambda name, tensor: (points.restore_vectors if name in _POINTS else points.restore)(tensor)
        )
    return tuple(brought_back(part, points, vectors=vectors) for part in result)


def converted(record: Any, convert: Callable[[str, Tensor], Any]) -> Any:
    """Copy a record with its tensors converted, each by its name and value."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return dataclasses.replace(
        record, **{name: convert(name, v) for name, v in values.items() if isinstance(v, Tensor)}
    )
