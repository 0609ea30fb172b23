"""What a person or a program reads: facts, JSON, warnings and progress."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import typer

from carre.cli.wording import in_options

# The command line as it was given, for pages and advice to quote.
COMMAND: ContextVar[str] = ContextVar("COMMAND", default="carre")
# A bar of tqdm: "\rfit:  12%|█▏        | 12/100 [00:01<00:08, 9.5%/s]".
_BAR = re.compile(r"\r(?P<task>[^:\r]*): +(?P<percent>\d+)%\|")
_LINE_EVERY_PERCENT, _LINE_EVERY_SECONDS = 10, 2.0
_SHOWN = (UserWarning, RuntimeWarning)


def say(text: str) -> None:
    """Write a line to stderr, where everything goes that is not the answer."""
    typer.echo(text, err=True)


def show(facts: Mapping[str, Any], results: Mapping[str, Any], *, as_json: bool, quiet: bool = False) -> None:
    """Print an answer: facts in words for people, or results as one JSON object for programs.

    Args:
        facts: What people read, by name.
        results: What programs read.
        as_json: Whether a program asks.
        quiet: Whether people want to read nothing.
    """
    if as_json:
        typer.echo(json.dumps(_plain(results), ensure_ascii=False, allow_nan=False))
    elif not quiet:
        _show_facts({name: str(value) for name, value in facts.items()})


def _show_facts(facts: Mapping[str, str]) -> None:
    if not sys.stdout.isatty():
        width = max(map(len, facts))
        typer.echo("\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in facts.items()))
        return
    from rich.console import Console  # noqa: PLC0415  (a pipe does not need it)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(name), Text(value))
    Console(soft_wrap=False).print(table)


def _plain(value: Any) -> Any:
    """Turn arrays, paths and NaN into what JSON knows."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Write a warning of the library as one line, and once; those for developers are left out."""
    written: set[str] = set()

    def write(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        sentence = in_options(" ".join(str(message).split()))
        if issubclass(category, _SHOWN) and sentence not in written:
            written.add(sentence)
            say(f"warning: {sentence}")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        # Columns are matched by name before the library sees them, as an array.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.showwarning = write
        yield


@contextmanager
def bars_as_lines() -> Iterator[None]:
    """Off a terminal, turn progress bars into a line now and then."""
    stream = sys.stderr
    if stream.isatty():
        yield
        return
    sys.stderr = lines = BarLines(stream)
    try:
        yield
    finally:
        # Others may have put theirs in its place, and will take it away.
        if sys.stderr is lines:
            sys.stderr = stream


class BarLines(io.TextIOBase):
    """A stream that bars take for a terminal, and that writes a line of them every ten percent.

    Lines are two seconds apart at least: short work leaves none.

    Example:
        >>> stream = io.StringIO()
        >>> lines = BarLines(stream, seconds=0.0)
        >>> for percent in (0, 5, 12, 15, 20):
        ...     _ = lines.write(f"\\rfit: {percent:3}%|#   | {percent}/100 [00:01<00:08]")
        >>> _ = lines.write("\\n"), lines.write("done\\n")
        >>> print(re.sub("[0-9]+ s", "1 s", stream.getvalue()), end="")
        fit: 12% after 1 s
        fit: 20% after 1 s
        done
    """

    def __init__(self, stream: Any, *, seconds: float = _LINE_EVERY_SECONDS) -> None:
        self._stream, self._seconds = stream, seconds
        self._task, self._percent, self._is_bar = "", 0, False
        self._start = self._latest = 0.0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return that of the stream behind it."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Say yes, so that bars are drawn."""
        return True

    def flush(self) -> None:
        """Flush the stream behind it."""
        self._stream.flush()

    def write(self, text: str) -> int:
        """Write text as it is, and of bars a line where there is news."""
        bar = _BAR.match(text)
        if bar is not None:
            self._note(bar["task"], int(bar["percent"]))
        # A bar that ends moves to the next line, or is wiped out.
        elif not (self._is_bar and not text.strip()) and not text.startswith("\r"):
            self._stream.write(text)
        self._is_bar = bar is not None or (self._is_bar and not text.strip())
        return len(text)

    def _note(self, task: str, percent: int) -> None:
        now = time.monotonic()
        if task != self._task or percent < self._percent:
            self._task, self._percent, self._start, self._latest = task, 0, now, now
        is_news = percent // _LINE_EVERY_PERCENT > self._percent // _LINE_EVERY_PERCENT
        if is_news and now - self._latest >= self._seconds:
            self._percent, self._latest = percent, now
            self._stream.write(f"{task}: {percent}% after {now - self._start:.0f} s\n")
            self._stream.flush()
