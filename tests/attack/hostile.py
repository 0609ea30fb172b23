"""Values that are given where others are meant, and what may come of them."""

import datetime
import enum
import inspect
import math
import numbers
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch

from carre import fields, manifolds, metric, toolkit
from tests.attack.calls import world


class _Kind(enum.Enum):
    A = 1


@cache
def values() -> dict[str, Any]:
    """Hostile values, by what they are called."""
    w = world()
    found: dict[str, Any] = {
        repr(value): value for value in ("0", "nonsense", "", b"1", None, True, math.nan, math.inf)
    }
    found |= {repr(value): value for value in (-math.inf, -1, 0, -0.0, 1.5, 1e9, 1e-9, 10**12, 1j, (), [], {}, ...)}
    found |= {repr(value): value for value in (Decimal(1), Fraction(1, 2), [1], ["a"], [None], {"a": 1}, {1}, range(3))}
    found |= {"10**400": 10**400, "-(10**400)": -(10**400), "2**63": 2**63, "an object": object(), "int": int}
    found |= {"a generator": (i for i in range(3)), "a date": datetime.date(2026, 1, 1), "an enum": _Kind.A}
    found |= {"no argument": lambda: 0, "zeros": lambda *given: 0, "np.nan": np.float32("nan"), "a module": sys}
    found |= {"np.array(None)": np.array(None), "an array": np.array([1.0, 2.0]), "np.True_": np.bool_(True)}
    found |= {"a meta tensor": torch.tensor(1.0, device="meta"), "complex": np.complex64(1), "bytes": np.bytes_(b"1")}
    found |= {"an estimator": w.estimator, "a field": w.field, "a geometry": w.geometry, "another geometry": w.flat}
    found |= {"a path": toolkit.Path.through(torch.zeros(1, 3, 5)), "a metric": w.metric, "a class": fields.ExactField}
    found |= {"another field": fields.ExactField(manifolds.Sphere(4)), "a device": torch.device("cpu")}
    found |= {"a wide tensor": torch.ones(4, 7).double(), "a thin tensor": torch.ones(2).double()}
    found |= {"a dtype": torch.float32, "a network": torch.nn.Linear(2, 2), "'cuda'": "cuda", "'a/b\\0'": "a/b\0"}
    return found


def same(value: Any) -> dict[str, Any]:
    """Write a value in other ways, which mean the same."""
    if isinstance(value, bool):
        return {"np.bool_": np.bool_(value), "an array": np.array(value), "a tensor": torch.tensor(value)}
    if isinstance(value, int) and -128 <= value < 128:
        return {"np.int8": np.int8(value), "an array": np.array(value), "a tensor": torch.tensor(value)}
    if isinstance(value, float) and math.isfinite(value):
        again = {"np.float64": np.float64(value), "an array": np.array(value), "Fraction": Fraction(value)}
        return again | {"a tensor": torch.tensor(value, dtype=torch.float64)}
    return {"np.str_": np.str_(value)} if isinstance(value, str) else {}


# Texts that may be anything, and arguments that are anything by their nature.
_FREE = {"title", "label", "card", "command", "name", "names", "ends", "revision", "token", "y", "facts", "parameters"}
_FREE |= {
    "color",
    "other",
    "labels",
    "class_names",
    "concerns",
    "feature_names",
    "path",
    "folder",
    "architecture",
    "reasons",
}
_MANY = ("Samples", "Sequence", "tuple", "list", "Any", "Bandwidth", "np.ndarray", "Float[", "Int[", "Mapping", "dict")


_FUNCTIONS = ("Module", "Callable", "Map", "Progress", "ScalarFunction", "Parametrization")


def is_function(parameter: inspect.Parameter, value: Any) -> bool:
    """Say whether a value is a function where one is meant: what it raises is its own."""
    return callable(value) and any(mark in str(parameter.annotation) for mark in _FUNCTIONS)


def may_be(argument: str, parameter: inspect.Parameter, value: Any) -> bool:
    """Say whether an argument may be a value, by its annotation, so that an answer is no wonder."""
    text = str(parameter.annotation)
    parts = [part.strip() for part in text.split("|")]
    is_denoiser = "object" in parts and (callable(value) or hasattr(value, "denoise"))
    if argument in _FREE or is_denoiser or is_function(parameter, value):
        fits = True
    elif value is None:
        fits = bool({"None", "Any", "object"} & set(parts)) or parameter.default is None
    elif isinstance(value, (bool, np.bool_)):
        fits = "bool" in parts
    elif isinstance(value, numbers.Integral):
        fits = bool({"int", "float", "Bandwidth", "Any"} & set(parts)) or ("bool" in parts and value == 0)
    elif isinstance(value, numbers.Real):
        fits = math.isfinite(value) and bool({"float", "Bandwidth", "Any"} & set(parts))
    elif isinstance(value, str):
        fits = "AnyPath" in parts or "os.PathLike" in text
    elif (
        isinstance(value, (list, tuple, set, dict, range)) or hasattr(value, "__array__") or inspect.isgenerator(value)
    ):
        # A metric can be read as an array, too.
        fits = any(mark in text for mark in _MANY) or (isinstance(value, metric.Metric) and "Metric" in text)
    else:
        fits = any(kind.__name__ in text for kind in type(value).__mro__[:-1])
        fits = fits or "MetricField" in text
    return fits


def call(thing: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call with arguments by their names, where they have some."""
    parameters = inspect.signature(thing).parameters.values()
    if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return thing(**arguments)
    return thing(*arguments.values())
