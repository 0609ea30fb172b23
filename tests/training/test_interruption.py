"""Ctrl-C is heard between two steps; whoever presses it twice is heard at once."""

import signal
import threading

import pytest

from carre.training.interruption import postponed


def press():
    signal.raise_signal(signal.SIGINT)


def test_it_waits_until_it_may_happen():
    with postponed() as interruption:
        press()
        with pytest.raises(KeyboardInterrupt):
            interruption.happen()
        interruption.happen()


def work(*, presses=1, fails=False, done=None):
    with postponed():
        for _ in range(presses):
            press()
        if fails:
            raise ZeroDivisionError
        if done is not None:
            done.append("the work")


def test_it_happens_at_the_end_at_the_latest():
    done = []
    with pytest.raises(KeyboardInterrupt):
        work(done=done)
    assert done == ["the work"]


def test_the_second_time_it_happens_at_once():
    done = []
    with pytest.raises(KeyboardInterrupt):
        work(presses=2, done=done)
    assert done == []


def test_another_error_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        work(fails=True)


def test_the_former_handler_is_back_afterwards():
    with postponed():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_somebody_else_is_left_alone():
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with postponed():
            press()
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_nothing_changes_where_it_is_not_wanted_and_in_threads():
    with postponed(wanted=False):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    found = []

    def look():
        with postponed():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
