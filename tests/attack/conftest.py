"""Attacks run as users call the library, in a small dose with the other tests and in full by ``make attack``."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attack.kit import Ledger

# Set by experiments/attack/run.py.
IN_FULL, OUT = "CARRE_ATTACK_IN_FULL", "CARRE_ATTACK_OUT"


@pytest.fixture(autouse=True)
def _as_users_call(unchecked: None) -> None:
    """Check no argument types: what people see is the library's own sentence."""


@pytest.fixture(scope="session")
def dose() -> Callable[[int, int], int]:
    """Choose how much to do: the first number in ``make test``, the second in ``make attack``."""
    return lambda small, full: full if os.environ.get(IN_FULL) else small


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """A ledger called after its test, written down for the table where one is made."""
    found = Ledger(request.node.name.removeprefix("test_").replace("_", " "))
    yield found
    folder = os.environ.get(OUT)
    if folder and found.rows:
        found.write(Path(folder))
