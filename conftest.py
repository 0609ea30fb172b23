"""What all tests have in common, also the examples in docstrings."""

import signal

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
