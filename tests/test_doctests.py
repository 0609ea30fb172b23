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
    # The commands show their use by --help.
    if room.name != "cli"
]
# Their examples are shown and not run, for the reasons given. All of them are run by tests of their own.
NOT_RUN = {
    "carre.load_mnist": "needs files that have to be downloaded",
    "carre.load_cifar10": "needs files that have to be downloaded",
    "carre.data.load_celeba": "needs files that have to be downloaded",
    "carre.data.load_ffhq": "needs files that have to be downloaded",
    "carre.neighbors.FaissIndex": "needs faiss, which is optional",
    "carre.mapping.map_on_ray": "needs Ray, which is optional, and takes seconds to begin",
}


# People work with these: their methods are public names, too.
FACES = (carre.Geometry, carre.Local, carre.MetricMatching)


def public_names() -> dict[str, object]:
    """List the public classes and functions once each, by the first room that has them, and the methods of the faces.

    The tools that a geometry has as methods are listed in the toolkit, where their docstrings are.
    """
    found: dict[int, tuple[str, object]] = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(id(value), (f"{room}.{name}", value))
    for face in FACES:
        for name, method in inspect.getmembers(face, inspect.isroutine):
            if not name.startswith("_") and method.__module__.startswith("carre."):
                found.setdefault(id(method), (f"carre.{face.__name__}.{name}", method))
    return dict(found.values())


def examples_of(name: str) -> list[doctest.Example]:
    """Find the examples of a name: its own, or those that show a method in the docstring of its class, or of a base."""
    parse = doctest.DocTestParser().get_examples
    own = parse(inspect.getdoc(NAMES[name]) or "")
    owner, _, method = name.removeprefix("carre.").rpartition(".")
    if own or owner not in {face.__name__ for face in FACES}:
        return own
    of_classes = [parse(part.__doc__ or "") for part in getattr(carre, owner).__mro__]
    return next((found for found in of_classes if any(f".{method}(" in example.source for example in found)), [])


NAMES = public_names()


def test_there_are_names_to_look_at():
    assert len(NAMES) > 200
    assert {"carre.Geometry", "carre.Geometry.at", "carre.MetricMatching.score", "carre.toolkit.path"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name):
    examples = examples_of(name)
    assert examples, f"{name} has no example; write one under 'Example:' in its docstring"
    is_run = any(example.want and not example.options.get(doctest.SKIP) for example in examples)
    assert is_run or name in NOT_RUN, f"no example of {name} is run and compared with what it should say"


def test_what_is_not_run_is_public():
    assert set(NOT_RUN) <= set(NAMES)
