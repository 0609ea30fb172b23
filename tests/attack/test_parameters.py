"""Hostile parameters and wrong objects, in every argument of every public callable."""

import hashlib
import inspect
import random
import resource
import signal
from contextlib import contextmanager
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from tests.attack.calls import world
from tests.attack.hostile import call, is_function, may_be, same, values
from tests.attack.kit import Verdict
from tests.attack.more_calls import CALLS
from tests.attack.public import attacked

# What errors call an argument that comes from elsewhere.
ALSO = {
    "low": ("bandwidth range",),
    "high": ("bandwidth range",),
    "drawing": ("axes",),
    "kind": ("index",),
    "bandwidth_range": ("bandwidth range",),
}
ALSO |= {"path": ("the output", "file", "folder"), "name_or_folder": ("folder", "path")}
# Of another kind or size than what stands beside it: the sentence may name either.
EITHER = {
    "field",
    "geometry",
    "self",
    "samples",
    "values",
    "model",
    "manifold",
    "metric",
    "index",
    "profile",
    "bandwidths",
    "denoiser",
    "X",
}
# Kept for later, and checked when a curve is drawn; columns of a table; and NaN is an answer where there is no plane.
KEPT = {
    ("Normalization", "mean"),
    ("sectional_curvature", "bandwidth"),
    ("sectional_curvature", "field"),
    ("choose_bandwidth", "calibrated"),
    ("Geodesic", "samples"),
    ("EnergyGeodesic", "samples"),
    ("Thread", "finest"),
    ("Table", "numbers"),
}
_MOST_BYTES, _SECONDS, _LONGEST_WAIT = 3e9, 20, 600
# All values in all arguments take minutes: they are asked in parts, which several processes share.
_PARTS, _SMALL_DOSE = 8, 152


class _HungError(BaseException):
    """It is for the one who waits, whatever a call makes of errors."""


@contextmanager
def bounded():
    """End a call that computes for too long, or waits for much longer, and refuse it more memory than this."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_AS, (int(size + _MOST_BYTES), limits[1]))

    def end(number, frame):
        raise _HungError

    before = {number: signal.signal(number, end) for number in (signal.SIGPROF, signal.SIGALRM)}
    # By the time that it takes of a processor: others may be at work on the machine.
    signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    signal.alarm(_LONGEST_WAIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def arrays_of(thing, depth=0):
    """Find the arrays of numbers in an answer; numbers of their own may be seconds."""
    if isinstance(thing, torch.Tensor):
        return [] if thing.is_sparse or thing.is_meta else [thing.detach().numpy()]
    if isinstance(thing, np.ndarray) or (depth == 0 and isinstance(thing, (float, int))):
        return [np.asarray(thing)] if np.asarray(thing).dtype.kind in "fiub" else []
    inner = thing if isinstance(thing, (tuple, list)) else vars(thing).values() if hasattr(thing, "__dict__") else ()
    return [array for item in inner for array in arrays_of(item, depth + 1)] if depth < 3 else []


def is_finite(answer):
    return all(np.isfinite(array).all() for array in arrays_of(answer) if array.dtype.kind == "f")


def is_equal(answer, other):
    pairs = zip(arrays_of(answer), arrays_of(other), strict=False)
    return all(a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def digest(w):
    """Sum up the arrays that all calls share."""
    found = hashlib.sha256()
    for name in ("points", "others", "samples", "sigma", "vectors", "several", "X", "near", "pixels"):
        found.update(np.ascontiguousarray(getattr(w, name)).tobytes())
    return found.hexdigest()


def test_no_public_callable_is_left_out():
    assert set(attacked()) == set(CALLS)


@cache
def cases():
    """List all values in all arguments of all callables, in an order that is always the same and has no system."""
    found = []
    for name, thing in attacked().items():
        good = CALLS[name](world())
        for argument, parameter in inspect.signature(thing).parameters.items():
            if argument in ("self", "args", "kwargs") or argument not in good or (name, argument) in KEPT:
                continue
            found += [(name, argument, parameter, label, value, False) for label, value in values().items()]
            found += [(name, argument, parameter, f"{k} of it", v, True) for k, v in same(good[argument]).items()]
    random.Random(0).shuffle(found)
    return found


@cache
def good_answer(name):
    """Ask with good arguments."""
    torch.manual_seed(0)
    return call(attacked()[name], CALLS[name](world()))


def ask(ledger, name, argument, parameter, label, value, is_same):
    """Make a call in which one argument is replaced, and write down what came of it."""
    thing = attacked()[name]

    def verdict(answer):
        if is_same:
            return Verdict.RIGHT if is_equal(answer, good_answer(name)) else Verdict.WRONG
        if not may_be(argument, parameter, value):
            return Verdict.WRONG
        is_odd = inspect.isfunction(thing) and not is_finite(answer) and is_finite(good_answer(name))
        return Verdict.INFINITE if is_odd else Verdict.RIGHT

    case, names = f"{name}({argument}={label})", () if argument in EITHER else (argument, *ALSO.get(argument, ()))
    given = CALLS[name](world()) | {argument: value}
    torch.manual_seed(0)
    try:
        with bounded():
            ledger.ask(case, lambda: call(thing, given), names=names, verdict=verdict)
    except _HungError:
        ledger.note(case, Verdict.HUNG)
    # What a function raises that was given where one is meant is its own.
    if ledger.rows[-1][1] is Verdict.UNCLEAR and is_function(parameter, value):
        ledger.rows[-1] = (case, Verdict.RIGHT, "its own error")
    plt.close("all")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(_PARTS))
def test_parameters(ledger, dose, monkeypatch, tmp_path, part):
    """Every value is taken for what it is, or refused by a sentence that names the argument."""
    monkeypatch.chdir(tmp_path)
    before, random_numbers = digest(world()), torch.random.get_rng_state()
    asked = cases()[: dose(_SMALL_DOSE, len(cases()))][part::_PARTS]
    for case in asked:
        ask(ledger, *case)
    torch.random.set_rng_state(random_numbers)
    assert digest(world()) == before, "a call changed what it was given"
    ledger.check(least=len(asked))
