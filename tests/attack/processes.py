"""Commands in forked processes: started warm, with streams of their own, and ended at any moment."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carre.cli import app
from tests.attack.kit import isolated

# What reaches the disk, or a name on it, goes through one of these.
DISK = ("fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "open")


def start(call: Callable[[], Any], *, out: int | Path = Path(os.devnull), err: int | Path = Path(os.devnull)) -> int:
    """Make a call in a forked process, which exits with what it returns; return the number of the process.

    Args:
        call: The call.
        out: Its standard output, a file or a descriptor; -1 closes it.
        err: Its standard error, likewise.
    """
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        for number, name in ((1, out), (2, err)):
            opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if isinstance(name, Path) else name
            os.close(number) if opened == -1 else os.dup2(opened, number)
        # As Python makes them at its start.
        streams = [None if name == -1 else os.fdopen(number, "w") for number, name in ((1, out), (2, err))]
        sys.stdout, sys.stderr = streams
        sys.__stdout__, sys.__stderr__ = streams
        code = call() or 0
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except SystemExit as left:
        code = left.code
    finally:
        os._exit(code)


def command(*arguments: str | os.PathLike[str]) -> Callable[[], int]:
    """Return a call of the command line, which returns its exit code."""
    return lambda: app([os.fspath(argument) for argument in arguments], standalone_mode=False)


def wait(child: int) -> int:
    """Wait for a process; return its exit code, or minus its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(*arguments: str | os.PathLike[str], **streams: Any) -> int:
    """Run a command in a forked process; return its exit code."""
    return wait(start(command(*arguments), **streams))


def kill_after(child: int, seconds: float) -> int:
    """Kill a process after some time, unless it has ended before; return its exit code, or minus its signal."""
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return wait(child)


def dying(call: Callable[[], Any], event: float) -> Callable[[], int]:
    """Return a call that kills its process before it reaches for the disk so many times, else counts them."""

    def dies() -> int:
        count = 0

        def watched(real: Callable[..., Any]) -> Callable[..., Any]:
            def reach(*given: Any, **options: Any) -> Any:
                nonlocal count
                count += 1
                if count >= event:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **options)

            return reach

        for name in DISK:
            setattr(os, name, watched(getattr(os, name)))
        call()
        return count

    return dies


def count_events(call: Callable[[], Any]) -> int:
    """Count how often a call reaches for the disk."""
    return int(isolated(dying(call, math.inf), seconds=60.0).answer)
