import gc
import os
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

# One thread per test process, and per process that a test starts: two processes of two threads on two cores spend
# their time waiting for one another (ten minutes instead of two).
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)


@pytest.fixture
def rng() -> torch.Generator:
    """A generator with a fixed seed: every draw of a test comes from it."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave argument types unchecked, as outside of the tests: what people see then is the library's own sentence."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(autouse=True)
def _slow_tests_run_as_users_do(request: pytest.FixtureRequest) -> None:
    """Check no argument types in slow tests, of which that would be a fifth: the fast ones see to it."""
    if request.node.get_closest_marker("slow"):
        request.getfixturevalue("unchecked")


@pytest.fixture
def short_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports take about a second, whatever they are told: what they measure is the same, at fewer points."""
    from carre.report import page  # noqa: PLC0415  (after the import hook that checks types)

    measure = page.measure
    monkeypatch.setattr(page, "measure", lambda *given, **options: measure(*given, **{**options, "seconds": 1.0}))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what is imported to no search for garbage, now or later: it stays, and to look through it takes time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
