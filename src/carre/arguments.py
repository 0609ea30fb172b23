"""Arguments that are no data: numbers, words, functions, fields. Public calls check them by their annotations."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import os
import reprlib
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
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
_CALLED |= {torch.device: "a device, like 'cpu' or 'cuda'"}
_RENAMED = {"MetricField": "field of metrics", "DataField": "Geometry", "Module": "torch module"}
_MADE_BY = {"Path": "Path.through(nodes) makes one", "Geometry": "carre.fit returns one"}
_MADE_BY |= {"ScaleProfile": "Fits with a given bandwidth have none"}
# What is larger is no index; and in such numbers, by their names, things would not fit into memory, or never end.
_LARGEST, _EXACT = 2**63 - 1, 2**53
_MOST = dict.fromkeys(("width", "rank", "channels", "patch", "size", "crop", "n_outputs"), 2**14)
_MOST |= dict.fromkeys(("n_nodes", "n_steps", "n_probes", "ambient_dim", "oversampling"), 10**5)
_MOST |= dict.fromkeys(("n_blocks", "power_iterations"), 1000) | dict.fromkeys(("batch_size", "polish_batch"), 2**20)
_MOST |= dict.fromkeys(("n", "n_draws"), 10**8) | dict.fromkeys(("max_steps", "max_sweeps"), 10**9)
_LEAST = dict.fromkeys(("width", "n_blocks", "in_features", "out_features", "n_outputs", "n_draws"), 1) | {"n": 0}
_MOST |= dict.fromkeys(("in_features", "out_features", "dim"), 2**24)
_short = reprlib.Repr()
_short.maxother = _short.maxstring = 80


class _Door(threading.local):
    """Whether this thread is inside of a checked call: what the house tells itself is trusted, and costs nothing."""

    is_passed = False


_door = _Door()
_NOTHING = nullcontext()
# Rooms that answer questions. Losses and networks also take part in training of people's own, which may want autocast.
_ANSWERING = ("carre.toolkit", "carre.geometry", "carre.local", "carre.fields")


def check_arguments(call: _Called) -> _Called:
    """Check the arguments of a public call by its annotations; of a class, those of its public calls.

    Numbers, flags, texts, functions and objects come in as Python's own: an ``np.int8(3)`` is a 3. Data, which are
    annotated with ``Any``, are left to the call. Calls inside of a checked one are trusted.

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
        for name, member in list(vars(call).items()):
            inner = getattr(member, "__func__", member)
            if inspect.isfunction(inner) and (name == "__init__" or name[0] != "_") and name != "forward":
                setattr(call, name, check_arguments(inner) if inner is member else type(member)(check_arguments(inner)))
        return call
    if hasattr(call, "is_checked"):
        return call
    names = tuple(inspect.signature(call).parameters)
    kinds: dict[str, tuple[Any, ...]] = {}
    is_answer = call.__module__.startswith(_ANSWERING)

    @wraps(call)
    def _asked(*given: Any, **options: Any) -> Any:
        if _door.is_passed:
            return call(*given, **options)
        if not kinds:
            kinds.update(_kinds_of(call))
        first = [as_kind(value, kinds[name], name=name) for name, value in zip(names, given, strict=False)]
        rest = {name: as_kind(value, kinds.get(name, ()), name=name) for name, value in options.items()}
        _check_sizes({**dict(zip(names, first, strict=False)), **rest}, kinds)
        _door.is_passed = True
        try:
            with _not_rounded() if is_answer else _NOTHING:
                return call(*first, *given[len(names) :], **rest)
        finally:
            _door.is_passed = False

    _asked.is_checked = True  # type: ignore[attr-defined]
    return _asked  # type: ignore[return-value]


def _not_rounded() -> AbstractContextManager[object]:
    """Switch autocast off, where somebody around us has switched it on: an answer does not depend on that."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    if not kinds:
        return _NOTHING
    stack = ExitStack()
    for kind in kinds:
        stack.enter_context(torch.autocast(kind, enabled=False))
    return stack


def check_room(name: str, *, but: Collection[str] = ()) -> None:
    """Check the arguments of all public calls of a room at its door, but of records that it makes itself."""
    room = sys.modules[name]
    for public in set(room.__all__).difference(but):
        thing = getattr(room, public)
        is_class = inspect.isclass(thing) and not issubclass(thing, Exception) and not getattr(thing, "_is_protocol", 0)
        if is_class or inspect.isfunction(thing):
            setattr(room, public, check_arguments(thing))
            setattr(sys.modules[thing.__module__], public, getattr(room, public))


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
        kinds = _parts(annotation)
        is_choice = str in kinds and len(set(kinds) - {NoneType}) > 1
        is_several = parameter.kind is parameter.VAR_POSITIONAL
        found[name] = kinds if all(map(_is_known, kinds)) and not is_choice and not is_several else ()
    return found


def _parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _is_known(kind: Any) -> bool:
    """Say whether something can be told to be of a kind; paths are read in `carre.files`."""
    origin = get_origin(kind)
    if origin in (Sequence, tuple):
        return all(part is ... or _is_known(part) for item in get_args(kind) for part in _parts(item))
    if origin is not None:
        return origin in (Callable, Mapping)
    is_class = isinstance(kind, type) and kind not in (Any, object, inspect.Parameter.empty, np.ndarray, Tensor)
    return is_class and not issubclass(kind, os.PathLike) and getattr(kind, "_is_runtime_protocol", True)


def as_kind(value: Any, kinds: Collection[Any], *, name: str) -> Any:
    """Return something as the first of some kinds that it is; without any, as it is."""
    if not kinds:
        return value
    try:
        found = _read(value, kinds)
    except (TypeError, OverflowError) as error:
        *first, last = dict.fromkeys(map(_name_of, kinds))
        called = f"{', '.join(first)} or {last}" if first else last
        raise ArgumentError(name, f"be {called}", got=shown(value), remedy=_remedy(value, kinds)) from error
    if int in kinds and found is not None and not _LEAST.get(name, -_LARGEST) <= found <= _MOST.get(name, _LARGEST):
        must = "be a positive integer" if found < 1 else f"be at most {_MOST.get(name, _LARGEST):,}"
        raise ArgumentError(name, must, got=shown(value))
    return found


def _read(value: Any, kinds: Collection[Any]) -> Any:
    """Return something as the first of some kinds that it is, or raise a TypeError."""
    for kind in kinds:
        read = _READERS.get(get_origin(kind) or kind, _as_instance)
        try:
            return read(value, kind)
        except (TypeError, OverflowError):
            continue
    raise TypeError


def _as_integer(value: Any, kind: Any) -> int:
    plain = _plain(value)
    number = operator.index(plain)
    if isinstance(plain, bool) or abs(number) > _LARGEST:
        raise TypeError
    return number


def _as_number(value: Any, kind: Any) -> float:
    number = _plain(value)
    if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
        raise TypeError
    return number if isinstance(number, float) or (isinstance(number, int) and abs(number) < _EXACT) else float(number)


def _as_flag(value: Any, kind: Any) -> bool:
    flag = _plain(value)
    if not isinstance(flag, int) or flag not in (0, 1):
        raise TypeError
    return bool(flag)


def _as_function(value: Any, kind: Any) -> Any:
    """Accept what can be called with as many arguments as it will be."""
    wanted = get_args(kind)[0]
    if not callable(value):
        raise TypeError
    code = getattr(value, "__code__", None)
    if wanted is ... or isinstance(value, torch.nn.Module):
        return value
    if code is None or (code.co_argcount, code.co_kwonlyargcount) != (len(wanted), 0):
        try:
            signature = inspect.signature(value)
        except ValueError:  # functions of C may have none
            return value
        signature.bind(*wanted)
    return value


def _as_several(value: Any, kind: Any) -> tuple[Any, ...]:
    """Accept several items, as many as a tuple has."""
    if isinstance(value, (str, bytes, Mapping, set)) or getattr(value, "is_meta", False):
        raise TypeError
    values = value.tolist() if isinstance(value, (np.ndarray, Tensor)) else list(value)
    item, *others = get_args(kind)
    if others and others[0] is not ... and len(values) != 1 + len(others):
        raise TypeError
    return tuple(_read(one, _parts(item)) for one in values)


def _as_mapping(value: Any, kind: Any) -> Any:
    if not hasattr(value, "keys"):  # data frames have them, and are no Mapping
        raise TypeError
    return value


def as_device(value: Any, *, name: str = "device") -> torch.device:
    """Accept a device that computes here.

    Example:
        >>> as_device("cpu")
        device(type='cpu')
    """
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(name, "be one of torch's, like 'cpu' or 'cuda'", got=shown(value)) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ArgumentError(name, "be 'cpu' or None: there is no CUDA device here")
    computes = {"mps": torch.backends.mps.is_available(), "xpu": torch.xpu.is_available(), "cpu": True, "cuda": True}
    if not computes.get(device.type, False):
        raise ArgumentError(name, "be one that computes here, 'cpu' or 'cuda', or None to choose", got=shown(value))
    return device


def _as_instance(value: Any, kind: Any) -> Any:
    if (type(value), kind) not in _instances:
        is_array = hasattr(kind, "dim_str")
        if isinstance(value, type) or not (_is_array if is_array else isinstance)(value, kind):
            raise TypeError
        # To ask whether something is like a field takes long.
        if not is_array:
            _instances.add((type(value), kind))
    return value


_instances: set[tuple[type, Any]] = set()


def _is_array(value: Any, kind: Any) -> bool:
    """Say whether something is a tensor of a kind of numbers with the right number of axes."""
    if not isinstance(value, kind.array_type):
        return False
    axes = [axis for axis in kind.dim_str.split() if not axis.startswith(("*", "..."))]
    is_open = len(axes) < len(kind.dim_str.split())
    fits = value.ndim >= len(axes) if is_open else value.ndim == len(axes)
    return fits and str(value.dtype).removeprefix("torch.") in kind.dtypes


def _check_sizes(given: Mapping[str, Any], kinds: Mapping[str, tuple[Any, ...]]) -> None:
    """Check that tensors which name an axis alike have as many numbers along it; a metric has its own ``dim``."""
    arrays = [(name, given[name], kind) for name in given for kind in kinds.get(name, ()) if hasattr(kind, "dim_str")]
    if not arrays:
        return
    sizes = {"dim": (getattr(given.get("self"), "dim", None), "the metric")} if "self" in given else {}
    for name, array, kind in arrays:
        if isinstance(array, kind.array_type):
            for axis, size in zip(reversed(kind.dim_str.split()), reversed(array.shape), strict=False):
                if not axis.isidentifier() or axis == "_":
                    break
                wanted, other = sizes.setdefault(axis, (size, name))
                if wanted not in (size, None):
                    must = f"have as many numbers along its axis {axis!r} as {other}, {wanted}"
                    raise ArgumentError(name, must, got=f"shape {tuple(array.shape)}")


def _plain(value: Any) -> Any:
    """Return a number of NumPy or torch as one of Python."""
    is_scalar = isinstance(value, np.generic) or (isinstance(value, (np.ndarray, Tensor)) and value.ndim == 0)
    return value.item() if is_scalar and not getattr(value, "is_meta", False) else value


_READERS: dict[Any, Callable[[Any, Any], Any]] = {int: _as_integer, float: _as_number, bool: _as_flag}
_READERS |= {torch.device: lambda value, kind: value if isinstance(value, kind) else as_device(value)}
_READERS |= {Sequence: _as_several, tuple: _as_several}
_READERS |= {Callable: _as_function, Mapping: _as_mapping}


def shown(value: Any) -> str:
    """Write what was given in a few words, on one line."""
    if isinstance(value, (np.ndarray, Tensor)) and value.ndim > 0:
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    return " ".join(_short.repr(value).split())


def _name_of(kind: Any) -> str:
    """Say what a kind is called in a sentence."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _CALLED:
        return _CALLED[kind]
    if hasattr(kind, "dim_str"):
        shape = ", ".join(kind.dim_str.split())
        return f"{'an array' if kind.array_type is np.ndarray else 'a tensor'} of numbers of shape ({shape})"
    if origin is Callable:
        return "a function" if inner[0] is ... else f"a function of {len(inner[0])} argument{'s' * (len(inner[0]) > 1)}"
    if origin in (Sequence, tuple):
        return f"a sequence, each item {' or '.join(map(_name_of, _parts(inner[0])))}"
    if origin is Mapping:
        return "a mapping"
    name = _RENAMED.get(kind.__name__, kind.__name__)
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


def _remedy(value: Any, kinds: Collection[Any]) -> str:
    """Say what to give instead, where that is plain."""
    if isinstance(value, float) and value.is_integer() and int in kinds:
        return f"Give {int(value)}"
    if isinstance(value, str) and {int, float} & set(kinds):
        return "Give a number, without quotes"
    names = [getattr(kind, "__name__", "") for kind in kinds]
    if hasattr(value, "get_params") and {"DataField", "Geometry"} & set(names):
        return "Give its geometry_" if hasattr(value, "geometry_") else "Fit it, and give its geometry_"
    return next((_MADE_BY[name] for name in names if name in _MADE_BY), "")


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
    raise ArgumentError(name, f"be one of {', '.join(choices)}", got=shown(value), remedy=remedy)
