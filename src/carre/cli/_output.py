"""What people and programs read: facts, JSON, warnings and progress. Arguments of the library are options here."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any

import typer

import carre
from carre.progress import progress_bar
from carre.text import visible

# The command line as it was given, for pages and advice to quote.
COMMAND: ContextVar[str] = ContextVar("COMMAND", default="carre")
# When it was given, of `time.perf_counter`: a budget is for all of it.
BEGAN: ContextVar[float] = ContextVar("BEGAN")
# What arguments of the library are called here.
OPTIONS = {
    **dict.fromkeys(("path", "X", "samples", "points"), "DATA"),
    **{name: f"--{name}" for name in ("columns", "drop", "size", "device", "labels", "rank", "memory")},
    "columns and drop": "--columns and --drop",
    "name_or_folder": "MODEL",
    "key": "the key of DATA",
    "folder": "--out",
    "pairs": "--pair",
    "image_shape": "--image-shape",
    "bandwidth": "--sigma",
    **{name: f"--{name}" for name in ("noise", "scale")},
    "drop_missing": "--drop-missing",
    "n_nodes": "--nodes",
}
# What warnings and remedies of the library advise to do with arguments, and what to do here.
ADVICE = {
    "X has only": "DATA has only",
    "Leave it out": "Leave it out with --drop",
    "bandwidth lies outside": "--sigma lies outside",
    "a wider bandwidth_range": "wider --sigma-min and --sigma-max",
    "raise max_steps or max_seconds": "give more --steps or --budget",
    "Raise rank": "Raise --rank",
    "Pass size=…": "Give --size",
    "increase n_nodes": "increase --nodes",
    "Use method='geodesic'": "Use --method geodesic",
    "overwrite=True": "--overwrite",
    "Choose the columns": "Choose some with --columns or --drop",
    "scale='standardize'": "--scale standardize",
    " or None": " or left out",
    "with a checkpoint, training goes on from there": "with --resume, training goes on from its last checkpoint",
}
_SHOWN = (UserWarning, RuntimeWarning)


def say(text: str) -> None:
    """Write a line to stderr, where everything goes that is not the answer; work goes on where nobody reads that."""
    with suppress(OSError):
        typer.echo(_as_line(text), err=True)


def open_streams() -> None:
    """Make the standard streams fit for anything that may be written to them.

    Where one was closed (``>&-``), the next file that is opened would take its place, and what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Letters that a terminal does not have, and names of files that are no text.
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def stopped_like_ctrl_c() -> Iterator[None]:
    """Take for Ctrl-C what asks a process to end, unless it is to be ignored (``nohup``)."""
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _as_line(text: str) -> str:
    """Write on one line, whatever names of columns and files are in it, and where nothing moves the cursor."""
    return visible(text).replace("\n", " ")


def show(facts: Mapping[str, Any], results: Mapping[str, Any], *, as_json: bool, quiet: bool = False) -> None:
    """Print an answer: results as one JSON object for programs, or facts in words for people who are not quiet."""
    if as_json:
        typer.echo(visible(json.dumps(_plain(results), ensure_ascii=False, allow_nan=False)))
    elif not quiet:
        width = max(map(len, facts))
        for name, value in facts.items():
            # Bold on a terminal only. Long lines are the terminal's to wrap: commands and paths can be copied whole.
            typer.echo(f"{typer.style(f'{name:<{width}}', bold=True)}  {_as_line(str(value))}".rstrip())


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


def counted(count: int, thing: str) -> str:
    """Say how many there are of something.

    Example:
        >>> counted(1, "coordinate"), counted(1200, "coordinate")
        ('1 coordinate', '1,200 coordinates')
    """
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def in_options(sentence: str) -> str:
    """Name options where the library advises on arguments.

    Example:
        >>> in_options("train longer (raise max_steps or max_seconds)")
        'train longer (give more --steps or --budget)'
    """
    sentence = " ".join(sentence.split())
    for advice, here in ADVICE.items():
        sentence = sentence.replace(advice, here)
    return sentence


def worded(error: Exception) -> str:
    """Say what an error says, with the option that an argument of the library is here."""
    # Asked for what it has and not for its class, which torch comes with: a slip of the pen should not wait for that.
    argument, sentence = getattr(error, "argument", None), getattr(error, "worded", None)
    return in_options(str(error) if argument is None or sentence is None else sentence(OPTIONS.get(argument, argument)))


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors call arguments of the library by what they stand for here, where that is not what they mostly do."""
    try:
        yield
    except carre.ArgumentError as error:
        error.argument = names.get(error.argument, error.argument)
        raise


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Write a warning of the library as one line, and once; those for developers are left out."""
    written: set[str] = set()

    def write(
        message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
    ) -> None:
        sentence = in_options(str(message))
        if issubclass(category, _SHOWN) and sentence not in written:
            written.add(sentence)
            say(f"warning: {sentence}")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = write
        yield


@contextmanager
def progress(task: str, *, quiet: bool = False) -> Iterator[Callable[[Any], None]]:
    """Give a function to tell how far a task is: a bar on a terminal, a line now and then in a log.

    It is told a share of the work, or the record of a training run. Work that takes no more than a moment leaves
    neither bar nor line.
    """
    with nullcontext(lambda told: None) if quiet else progress_bar(task, write=say) as tell:
        yield tell
