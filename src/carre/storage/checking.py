"""Values of config.json that somebody may have edited: of the right kind, and in agreement with the network."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from carre.storage.errors import LoadError

_REMEDY = "Write what was there before, or copy the folder again"


def check_values(fitted: Mapping[str, Any], field: Mapping[str, Any], *, ambient: int) -> None:
    """Refuse numbers that no fit can give, and shapes that are not those of the tensors.

    Args:
        fitted: The section of that name, decoded.
        field: The section of that name, decoded.
        ambient: The coordinates of a point, as the tensors have it.

    Raises:
        LoadError: A value is of another kind, or out of its range.
    """
    for values, rules in ((fitted, _FITTED), (field, _FIELD)):
        for name, (is_right, kind) in rules.items():
            if not is_right(values[name]):
                raise LoadError(f"{name} in config.json must be {kind}; got {values[name]!r}. {_REMEDY}")
    shape, columns, names = fitted["sample_shape"], fitted["n_features_in"], fitted["feature_names_in"]
    _agree("n_features_in", columns, ambient, "the center of the frame in model.safetensors")
    if names is not None and len(names) != columns:
        raise LoadError(f"feature_names_in in config.json must be {columns} names; got {len(names)}. {_REMEDY}")
    if shape is not None and math.prod(shape) != columns:
        raise LoadError(
            f"sample_shape in config.json must have {columns} numbers in all, as n_features_in says; got {shape}, "
            f"which has {math.prod(shape)}. {_REMEDY}"
        )


def check_architecture(fitted: Mapping[str, Any], architecture: Mapping[str, Any] | None) -> None:
    """Refuse a rank, or a shape of images, that is not the one of the network; of a user's own, neither is known.

    Raises:
        LoadError: They differ.
    """
    if architecture is None:
        return
    _agree("rank", fitted["rank"], architecture["rank"], "the architecture of the network")
    if "sample_shape" in architecture:
        shape = architecture["sample_shape"]
        _agree("sample_shape", fitted["sample_shape"], shape, "the architecture of the network")


def _agree(name: str, value: Any, wanted: Any, source: str) -> None:
    if value != wanted:
        raise LoadError(f"{name} in config.json must be {wanted!r}, like that of {source}; got {value!r}. {_REMEDY}")


def _is_number(value: Any) -> bool:
    # Neither NaN nor infinity, nor an integer beyond all floating numbers.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_not_negative(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_range(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_positive, value)) and value[0] < value[1]


def _is_size(value: Any) -> bool:
    return _is_positive(value) and isinstance(value, int)


def _is_shape(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and len(value) == 3 and all(map(_is_size, value)))


def _is_names(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and all(isinstance(name, str) for name in value))


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


_Rules = dict[str, tuple[Callable[[Any], bool], str]]
_FITTED: _Rules = {
    "bandwidth": (_is_positive, "a positive number"),
    "bandwidth_range": (_is_range, "two positive numbers [low, high] with low < high"),
    # Samples that occur several times have neighbors at every scale.
    "supported_from": (_is_not_negative, "a number that is not negative"),
    "is_centered": (_is_switch, "true or false"),
    "rank": (_is_size, "a positive integer"),
    "n_features_in": (_is_size, "a positive integer"),
    "feature_names_in": (_is_names, "a list of strings, or null"),
    "sample_shape": (_is_shape, "three positive integers [channels, height, width], or null"),
}
_FIELD: _Rules = {
    "scale": (_is_positive, "a positive number"),
    "ridge": (_is_not_negative, "a number that is not negative"),
    "mixed_precision": (_is_switch, "true or false"),
}
