"""What the examples of the estimator's methods have at hand: a geometry, fitted once, and its samples."""

import inspect
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# A shell that starts tests in the background lets them ignore Ctrl-C, and whatever they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ESTIMATOR = Path(__file__).parent / "src" / "carre" / "estimator"


@pytest.fixture(scope="session")
def names_of_examples() -> dict[str, Any]:
    """Run the code block that the docstring of `QueryMethods` ends with: the examples are about what it says."""
    from carre.estimator.queries import QueryMethods  # noqa: PLC0415  (after the import hook that checks types)

    names: dict[str, Any] = {}
    exec(inspect.cleandoc(str(inspect.getdoc(QueryMethods)).split("::\n")[1]), names)
    return names


@pytest.fixture(autouse=True)
def _names(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> Iterator[None]:
    """Give the names to the examples of that room, and to no others: these have to define what they use."""
    if not (isinstance(request.node, pytest.DoctestItem) and ESTIMATOR in request.node.path.parents):
        yield
        return
    names = request.getfixturevalue("names_of_examples")
    doctest_namespace.update(names)
    yield
    for name in names:
        del doctest_namespace[name]
