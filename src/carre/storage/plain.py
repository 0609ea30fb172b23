"""Plain values in strict JSON, which has neither NaN nor infinity, nor NumPy's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from carre.networks import UNetSettings


def encode(value: Any) -> Any:
    """Turn numbers, strings, sizes of a U-Net, and sequences and mappings of them into what JSON can hold exactly.

    Raises:
        TypeError: The value is something else.

    Example:
        >>> encode({"range": (np.float64(0.1), math.inf)})
        {'range': [0.1, {'float': 'inf'}]}
    """
    if isinstance(value, (np.generic, np.ndarray)):
        return encode(value.tolist())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(value)}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, UNetSettings):
        return {"unet": encode(value.to_dict())}
    if isinstance(value, (list, tuple)):
        return [encode(part) for part in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: encode(part) for name, part in value.items()}
    raise TypeError(f"{value!r} is not a plain value")


def decode(value: Any) -> Any:
    """Return what was encoded; sequences come back as tuples.

    Example:
        >>> decode({"range": [0.1, {"float": "inf"}]})
        {'range': (0.1, inf)}
    """
    if isinstance(value, list):
        return tuple(decode(part) for part in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"}:
        return float(value["float"])
    decoded = {name: decode(part) for name, part in value.items()}
    return UNetSettings(**decoded["unet"]) if value.keys() == {"unet"} else decoded


def plain_only(values: Mapping[str, Any]) -> dict[str, Any]:
    """Encode those values that are plain, and leave out the others.

    Example:
        >>> plain_only({"rank": 3, "network": object()})
        {'rank': 3}
    """
    encoded = {}
    for name, value in values.items():
        try:
            encoded[name] = encode(value)
        except TypeError:
            continue
    return encoded
