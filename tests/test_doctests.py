"""Every public name shows in its docstring how it is used, by an example that is run with the tests."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import carre

ROOMS = ["carre"] + [
    f"carre.{room.name}"
    for room in pkgutil.iter_modules(carre.__path__)
    # The kernels are an implementation of formulas that stand elsewhere; the commands show their use by --help.
    if room.name not in ("backend", "cli")
]
# Their examples are shown and not run, for the reasons given. All of them are run by tests of their own.
NOT_RUN = {
    "carre.benchmarks.run_sphere": "takes minutes",
    "carre.benchmarks.measure_cost": "times a machine",
    "carre.evaluation.inception_features": "needs files that have to be downloaded",
    "carre.load_mnist": "needs files that have to be downloaded",
    "carre.load_cifar10": "needs files that have to be downloaded",
    "carre.data.load_celeba": "needs files that have to be downloaded",
    "carre.data.load_ffhq": "needs files that have to be downloaded",
    "carre.neighbors.FaissIndex": "needs faiss, which is optional",
}


def public_names() -> dict[str, object]:
    """List the public classes and functions once each, by the first room that has them, and the estimator's methods."""
    found: dict[int, tuple[str, object]] = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(id(value), (f"{room}.{name}", value))
    names = dict(found.values())
    for name, method in inspect.getmembers(carre.MetricMatching, inspect.isroutine):
        if not name.startswith("_") and method.__module__.startswith("carre."):
            names[f"carre.MetricMatching.{name}"] = method
    return names


NAMES = public_names()


def test_there_are_names_to_look_at():
    assert len(NAMES) > 200
    assert {"carre.MetricMatching", "carre.MetricMatching.geodesic", "carre.toolkit.geodesic"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name):
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(NAMES[name]) or "")
    assert examples, f"{name} has no example; write one under 'Example:' in its docstring"
    is_run = any(example.want and not example.options.get(doctest.SKIP) for example in examples)
    assert is_run or name in NOT_RUN, f"no example of {name} is run and compared with what it should say"


def test_what_is_not_run_is_public():
    assert set(NOT_RUN) <= set(NAMES)
