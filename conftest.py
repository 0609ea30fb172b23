"""What all tests have in common, also the examples in docstrings."""

import signal
from pathlib import Path

import jaxtyping
import pytest

# A shell that starts tests in the background lets them ignore Ctrl-C, and whatever they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _examples_run_as_users_run_them(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check no argument types in examples: people who type them do not, and the tests see to it."""
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let benchmarks be asked for."""
    about = "measure how good default fits are (tests/benchmark), and nothing else"
    parser.addoption("--bm", action="store_true", help=about)
    parser.addoption("--bm-accept", action="store_true", help="hold later runs of --bm against what this one finds")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Measure when asked to, and then do nothing else."""
    if collection_path.is_dir() or collection_path.suffix != ".py":
        return None
    is_benchmark = "benchmark" in collection_path.relative_to(config.rootpath).parts
    return True if is_benchmark != bool(config.getoption("--bm")) else None
