"""Arguments that are no data: numbers, words, functions, fields. Public calls check them by their annotations."""

from __future__ import annotations

import collections.abc
import difflib
import inspect
import math
import operator
import os
import reprlib
from collections.abc import Callable, Collection
from functools import wraps
from numbers import Real
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

from carre.boundary import ArgumentError

_Called = TypeVar("_Called", bound=Callable[..., Any])
_CALLED = {int: "an integer", float: "a finite number", bool: "True or False", str: "text", NoneType: "None"}
_CALLED |= {torch.device: "a device"}
_MADE_BY = {"Path": "Path.through(nodes) makes one", "Geometry": "carre.fit returns one"}
_SEQUENCES = (collections.abc.Sequence, tuple)
# What is larger is no index, and no size of anything that fits into memory.
_LARGEST = 2**63 - 1


class _Short(reprlib.Repr):
    """What was given, in a few words."""

    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = self.maxlong = 80


def _short(value: Any) -> str:
    if isinstance(value, (np.ndarray, Tensor)) and value.ndim > 0:
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    return _Short().repr(value)


def check_arguments(call: _Called) -> _Called:
    """Check the arguments of a public call by its annotations; of a class, when one is made.

    Numbers, flags, texts, functions and objects come in as Python's own: an ``np.int8(3)`` is a 3. Data, which are
    annotated with ``Any``, are left to the call.

    Example:
        >>> @check_arguments
        ... def power(base: float, *, exponent: int = 2) -> float:
        ...     return base**exponent
        >>> power(2.0, exponent=np.int8(100))
        1.2676506002282294e+30
        >>> power(2.0, exponent=3.0)
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: exponent must be an integer; got 3.0. Give 3
    """
    if isinstance(call, type):
        call.__init__ = check_arguments(call.__init__)  # type: ignore[misc]
        return call
    names = tuple(inspect.signature(call).parameters)
    kinds: dict[str, tuple[Any, ...]] = {}

    @wraps(call)
    def _asked(*given: Any, **options: Any) -> Any:
        if not kinds:
            kinds.update(_kinds_of(call))
        first = [as_kind(value, kinds[name], name=name) for name, value in zip(names, given, strict=False)]
        rest = {name: as_kind(value, kinds.get(name, ()), name=name) for name, value in options.items()}
        return call(*first, *given[len(names) :], **rest)

    return _asked  # type: ignore[return-value]


def _kinds_of(call: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """Read what each argument may be; nothing for data, and for words beside other things, which their readers know."""
    call = inspect.unwrap(call)
    found: dict[str, tuple[Any, ...]] = {}
    for name, parameter in inspect.signature(call).parameters.items():
        annotation = parameter.annotation
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, call.__globals__)  # our own source, not what anyone gave
            except NameError:  # imported for type checkers only
                annotation = Any
        kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        is_choice = str in kinds and len(set(kinds) - {NoneType}) > 1
        found[name] = kinds if all(map(_is_known, kinds)) and not is_choice else ()
    return found


def _is_known(kind: Any) -> bool:
    """Say whether something can be told to be of a kind; paths are read in `carre.files`."""
    origin = get_origin(kind)
    if origin in _SEQUENCES:
        return all(item in (int, float, ...) for item in get_args(kind))
    if origin is not None:
        return origin is collections.abc.Callable
    is_class = isinstance(kind, type) and kind not in (Any, object, inspect.Parameter.empty, np.ndarray, Tensor)
    return is_class and not issubclass(kind, os.PathLike) and getattr(kind, "_is_runtime_protocol", True)


def as_kind(value: Any, kinds: Collection[Any], *, name: str) -> Any:
    """Return something as the first of some kinds that it is; without any, as it is."""
    if not kinds or (type(value) in kinds and type(value) not in (int, float)):
        return value
    for kind in kinds:
        read = _READERS.get(kind if isinstance(kind, type) else get_origin(kind), _as_instance)
        try:
            return read(value, kind)
        except (TypeError, OverflowError):
            continue
    *first, last = dict.fromkeys(map(_name_of, kinds))
    called = f"{', '.join(first)} or {last}" if first else last
    raise ArgumentError(name, f"be {called}", got=_short(value), remedy=_remedy(value, kinds))


def _as_integer(value: Any, kind: Any = int) -> int:
    number = operator.index(_plain(value))
    if isinstance(value, bool) or abs(number) > _LARGEST:
        raise TypeError
    return number


def _as_number(value: Any, kind: Any = float) -> float:
    number = _plain(value)
    if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
        raise TypeError
    return number if isinstance(number, (int, float)) else float(number)


def _as_flag(value: Any, kind: Any = bool) -> bool:
    flag = _plain(value)
    if not isinstance(flag, bool) and not (isinstance(flag, int) and flag in (0, 1)):
        raise TypeError
    return bool(flag)


def _as_function(value: Any, kind: Any) -> Any:
    """Accept what can be called with as many arguments as it will be."""
    if not callable(value):
        raise TypeError
    wanted = get_args(kind)[0]
    if wanted is not ... and not isinstance(value, torch.nn.Module):
        try:
            signature = inspect.signature(value)
        except ValueError:  # functions of C may have none
            return value
        signature.bind(*wanted)
    return value


def _as_numbers(value: Any, kind: Any) -> tuple[Any, ...]:
    """Accept several numbers, as many as a tuple has."""
    if isinstance(value, (str, bytes, dict)) or getattr(value, "is_meta", False):
        raise TypeError
    values = value.tolist() if isinstance(value, (np.ndarray, Tensor)) else list(value)
    read, sizes = (_as_integer if int in get_args(kind) else _as_number), get_args(kind)
    if get_origin(kind) is tuple and ... not in sizes and len(values) != len(sizes):
        raise TypeError
    return tuple(read(item) for item in values)


def _as_instance(value: Any, kind: Any) -> Any:
    fits = (
        _is_array(value, kind) if hasattr(kind, "dim_str") else isinstance(value, kind) and not isinstance(value, type)
    )
    if not fits:
        raise TypeError
    return value


def _is_array(value: Any, kind: Any) -> bool:
    """Say whether something is a tensor of a kind of numbers with the right number of axes."""
    if not isinstance(value, kind.array_type):
        return False
    axes = kind.dim_str.split()
    is_open = any(axis.startswith(("*", "...")) for axis in axes)
    return str(value.dtype).removeprefix("torch.") in kind.dtypes and (is_open or value.ndim == len(axes))


def _plain(value: Any) -> Any:
    """Return a number of NumPy or torch as one of Python."""
    is_scalar = isinstance(value, np.generic) or (isinstance(value, (np.ndarray, Tensor)) and value.ndim == 0)
    return value.item() if is_scalar and not getattr(value, "is_meta", False) else value


_READERS: dict[Any, Callable[[Any, Any], Any]] = {int: _as_integer, float: _as_number, bool: _as_flag}
_READERS |= dict.fromkeys(_SEQUENCES, _as_numbers)
_READERS[collections.abc.Callable] = _as_function


def _name_of(kind: Any) -> str:
    """Say what a kind is called in a sentence."""
    if kind in _CALLED:
        return _CALLED[kind]
    if hasattr(kind, "dim_str"):
        shape = ", ".join(kind.dim_str.split())
        return f"{'an array' if kind.array_type is np.ndarray else 'a tensor'} of shape ({shape})"
    if get_origin(kind) is collections.abc.Callable:
        wanted = get_args(kind)[0]
        return "a function" if wanted is ... else f"a function of {len(wanted)} argument{'s' * (len(wanted) > 1)}"
    if get_origin(kind) in _SEQUENCES:
        return "a sequence of integers" if int in get_args(kind) else "a sequence of finite numbers"
    name = {"MetricField": "field of metrics", "DataField": "Geometry", "Module": "torch module"}.get(kind.__name__)
    name = name or kind.__name__
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


def _remedy(value: Any, kinds: Collection[Any]) -> str:
    """Say what to give instead, where that is plain."""
    if isinstance(value, float) and value.is_integer() and int in kinds:
        return f"Give {int(value)}"
    if isinstance(value, str) and {int, float} & set(kinds):
        return "Give a number, without quotes"
    if hasattr(value, "get_params") and any(kind.__name__ in ("DataField", "Geometry") for kind in kinds):
        return "Give its geometry_" if hasattr(value, "geometry_") else "Fit it, and give its geometry_"
    return next((_MADE_BY[kind.__name__] for kind in kinds if kind.__name__ in _MADE_BY), "")


def as_choice(value: Any, choices: Collection[str], *, name: str) -> Any:
    """Accept one of some words, and suggest one where it seems misspelled.

    Example:
        >>> as_choice("joined", ("joint", "two-stage"), name="method")
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: method must be one of joint, two-stage; got 'joined'. Did you mean 'joint'?
    """
    if isinstance(value, str) and value in choices:
        return value
    near = difflib.get_close_matches(value, choices, 1) if isinstance(value, str) else ()
    remedy = f"Did you mean {near[0]!r}?" if near else ""
    raise ArgumentError(name, f"be one of {', '.join(choices)}", got=_short(value), remedy=remedy)
