"""Ctrl-C at the right moment: between two steps, not in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether somebody has asked to stop."""

    def __init__(self) -> None:
        self.is_asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Remember the first time; raise at once when asked again."""
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True

    def happen(self) -> None:
        """Raise now what was asked for before."""
        if self.is_asked:
            self.is_asked = False
            raise KeyboardInterrupt


@contextmanager
def postponed(*, wanted: bool = True) -> Iterator[Interruption]:
    """Postpone Ctrl-C until the work is at a point where it can go on later; a second Ctrl-C is not postponed.

    Where Ctrl-C means something else already, and in threads, which never see it, nothing changes.

    Example:
        >>> with postponed() as interruption:
        ...     signal.raise_signal(signal.SIGINT)  # somebody presses Ctrl-C
        ...     try:
        ...         interruption.happen()
        ...     except KeyboardInterrupt:
        ...         print("here")
        here
    """
    interruption = Interruption()
    is_main = threading.current_thread() is threading.main_thread()
    if not (wanted and is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield interruption
        return
    signal.signal(signal.SIGINT, interruption.ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    interruption.happen()
