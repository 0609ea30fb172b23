"""The judges are judged: each verdict is given for what deserves it."""

import os
import signal
import time

import numpy as np
import pytest

from carre.boundary import as_points, is_finite
from tests.attack.kit import Ledger, Verdict, is_sentence, isolated


def _error_of(call):
    with pytest.raises(Exception) as caught:  # noqa: PT011  (any: it is judged)
        call()
    return caught.value


def test_a_sentence_is_ours_and_names_the_argument():
    ours = _error_of(lambda: as_points(np.zeros(3), name="X"))
    assert is_sentence(ours, ("X",))
    assert not is_sentence(ours, ("bandwidth",))
    assert not is_sentence(_error_of(lambda: is_finite("text")), ())


def _raw():
    return np.zeros((2, 3)) @ np.zeros((2, 3))


def test_what_happens_in_a_process_of_its_own_is_seen():
    assert isolated(lambda: 3).answer == 3
    assert isolated(lambda: as_points(np.zeros(3))).verdict is Verdict.CLEAR
    assert isolated(_raw).verdict is Verdict.UNCLEAR
    assert isolated(lambda: os.kill(os.getpid(), signal.SIGKILL)).verdict is Verdict.CRASHED
    assert isolated(lambda: time.sleep(9), seconds=0.2).verdict is Verdict.HUNG
    hungry = isolated(lambda: float(np.ones(10**7).sum()))
    assert 7e7 < hungry.peak < 1.2e8


def test_a_ledger_fails_for_each_fault():
    ledger = Ledger("corpus")
    ledger.ask("right", lambda: 1)
    ledger.take("refused", isolated(lambda: as_points(np.zeros(3))), most_bytes=10**8)
    ledger.check(least=2)
    with pytest.raises(AssertionError, match="only 2 cases"):
        ledger.check(least=3)
    ledger.take("large", isolated(lambda: float(np.ones(10**7).sum())), most_bytes=10**6)
    ledger.take("taken", isolated(lambda: 3), must_refuse=True)
    ledger.ask("raw", _raw)
    assert [verdict for _, verdict, _ in ledger.faults()] == [Verdict.OVERSIZED, Verdict.WRONG, Verdict.UNCLEAR]
    with pytest.raises(AssertionError, match="3 of 5 cases went wrong"):
        ledger.check()
