"""How far work is, for people: a bar in a notebook or on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import math
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from carre.text import span

_LOG = logging.getLogger("carre")
# Work that takes no longer than this leaves no trace; lines are as far apart.
_SECONDS, _PERCENT = 2.0, 10
# While a network learns, there is no time left to show: what is likely is said in words.
_LEARNING, _KNOWN = "{l_bar}{bar}| {elapsed}{postfix}", "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"


@contextmanager
def progress_bar(task: str, *, write: Callable[[str], Any] = _LOG.info) -> Iterator[Callable[[Any], None]]:
    """Show how far work is that takes more than a moment; give a function to tell it.

    It is told a share of the work, or the record of a training run, which has a ``fraction`` and an ``evaluation``.
    In a notebook and on a terminal there is a bar, elsewhere lines, which the library sends to its logger ``"carre"``
    at the level INFO: a program that wants them asks for them.

    Args:
        task: What is done, in a word.
        write: What takes a line.

    Example:
        >>> with progress_bar("count") as tell:
        ...     for number in range(10):
        ...         tell(number / 10)
    """
    kind, start, bars = _kind_of_bar(), time.monotonic(), list[Any]()

    def draw(told: Any) -> None:
        if not bars and time.monotonic() - start < _SECONDS:
            return
        if not bars:
            bars.append(kind(total=100, desc=task, bar_format=_KNOWN))
            bars[0].start_t -= time.monotonic() - start
        bars[0].set_postfix_str(_note(told), refresh=False)
        bars[0].bar_format = _LEARNING if getattr(told, "phase", "") == "learning" else _KNOWN
        bars[0].update(max(0, int(100 * getattr(told, "fraction", told)) - bars[0].n))

    try:
        yield _lines_on(task, write) if kind is None else draw
        # What is done is done, whatever was told last.
        for bar in bars:
            bar.update(bar.total - bar.n)
    finally:
        for bar in bars:
            bar.close()


def _kind_of_bar() -> Any:
    """Find the bar for this place; None where nobody would see one move, as in a log or in a worker process."""
    # A program without a console has no stderr, or a closed one.
    is_lost = sys.stderr is None or getattr(sys.stderr, "closed", False)
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_seen = getattr(shell, "kernel", None) is not None or (not is_lost and sys.stderr.isatty())
    if is_lost or not is_seen or multiprocessing.parent_process() is not None:
        return None
    with warnings.catch_warnings():
        # A notebook without widgets gets a bar of text, and needs no advice about that.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm  # noqa: PLC0415  (it looks where it is when it is imported)
    return tqdm


def _lines_on(task: str, write: Callable[[str], Any]) -> Callable[[Any], None]:
    """Return a function that writes a line every ten percent, two seconds apart at least; first, how long is likely."""
    start = latest = time.monotonic()
    due = 0

    def tell(told: Any) -> None:
        nonlocal latest, due
        percent, now = int(100 * getattr(told, "fraction", told)), time.monotonic()
        # Of training, what is likely is worth a line before there is much to tell.
        least = due if getattr(told, "likely", None) else max(due, _PERCENT)
        if percent >= least and now - latest >= _SECONDS:
            latest, due = now, (percent // _PERCENT + 1) * _PERCENT
            write(", ".join(filter(None, (f"{task}: {percent}% after {now - start:.0f} s", _note(told)))))

    return tell


def _note(told: Any) -> str:
    """Say what is known of the work beside its share."""
    found, phase, likely = (getattr(told, name, None) for name in ("evaluation", "phase", "likely"))
    parts = [] if found is None else [f"loss {found.loss:.3f}, gain {max(found.gain, default=math.nan):.2f}"]
    parts += [phase] if phase else []
    parts += [f"likely {span(*likely)} of training"] if likely and phase == "learning" else []
    return getattr(told, "note", "") or ", ".join(parts)
