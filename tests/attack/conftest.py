"""Attacks run as users call the library, in a small dose with the other tests and in full by ``make attack``."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch

import carre
from tests.attack.kit import Ledger
from tests.attack.questions import QUESTIONS, QUICK, X

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


@pytest.fixture(scope="session")
def plain() -> tuple[carre.Geometry, dict[str, dict[str, Any]]]:
    """Fit a tiny geometry in plain surroundings, and ask it everything: of arrays, and of tensors."""
    points = {"array": X, "tensor": torch.tensor(X, dtype=torch.float32)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        geometry = carre.fit(X, **QUICK)
        answers = {
            kind: {name: ask(geometry, given) for name, ask in QUESTIONS.items()} for kind, given in points.items()
        }
    return geometry, answers
