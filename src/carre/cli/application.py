"""The application: what all commands share, and how it speaks of errors."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import time
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from carre import __version__
from carre.cli._output import BEGAN, COMMAND, open_streams, say, stopped_like_ctrl_c, warnings_as_lines, worded
from carre.cli._together import Crew

# Typer brings its own copy of click, or uses click, depending on its version.
_USAGE_ERROR: Any = typer.BadParameter.__bases__[0]
_WRONG_INPUT = (ValueError, ImportError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_FAILED, _WRONG, _INTERRUPTED = 1, 2, 130
TRACEBACK = "CARRE_TRACEBACK"


class Commands(TyperGroup):
    """Commands whose errors are one sentence on stderr.

    They exit with 0 when all is well, 1 after a failure while working (without a word where nobody reads what they
    print), 2 for wrong input, 130 when interrupted, by Ctrl-C or by who asks the process to end.
    """

    def main(self, args: Any = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        """Run the command line; without arguments, show the help."""
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        crew = Crew(arguments)
        BEGAN.set(time.perf_counter())
        COMMAND.set(shlex.join([*crew.program, *arguments]))
        open_streams()
        # Before signals wait for anything: until all are there, whoever asks it to end ends it.
        crew.join()
        with warnings_as_lines(), stopped_like_ctrl_c():
            try:
                with crew.silenced():
                    code = super().main(arguments, standalone_mode=False, **extra)
                    crew.leave()
            except (KeyboardInterrupt, typer.Abort):
                crew.say("interrupted")
                code = _INTERRUPTED
            except Exception as error:
                # Whatever it is: at the face of the program it becomes a sentence.
                if os.environ.get(TRACEBACK):
                    traceback.print_exc()
                sentence, code = describe(error)
                crew.say(f"error: {sentence}", is_own=type(error).__name__ == "ProcessLostError")
        if not standalone_mode:
            return code
        return crew.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an interruption that it has no word for gets one here."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(_INTERRUPTED) from None


def describe(error: Exception) -> tuple[str, int]:
    """Turn an error into a sentence and an exit code."""
    if isinstance(error, _USAGE_ERROR):
        return _usage(error), _WRONG
    sentence = worded(error)
    if isinstance(error, OSError) and error.strerror:
        sentence = f"{error.strerror[0].lower()}{error.strerror[1:]}: {error.filename or 'nothing could be written'}"
    # A place that nothing can be written to is wrong input; a disk that is full is none.
    failed = error.__cause__ if type(error).__name__ == "UnwritableError" else error
    if isinstance(failed, _WRONG_INPUT) or getattr(failed, "errno", None) == errno.ENAMETOOLONG:
        return sentence, _WRONG
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "there is not enough memory; give fewer samples, or another --device", _FAILED
    if isinstance(error, OSError) or type(error).__module__.startswith("carre."):
        return sentence, _FAILED
    return f"{type(error).__name__}: {sentence}. Run with {TRACEBACK}=1 for details", _FAILED


def _usage(error: Any) -> str:
    """Say what is wrong with the command line, and where to look."""
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "carre"
    option = getattr(error, "option_name", "")
    negative = option.lstrip("-")[:1].isdigit() if isinstance(option, str) else False
    hint = "; write -- before numbers that begin with a minus" if negative else ""
    return f"{message[:1].lower()}{message[1:]}{hint}; see '{command} --help'"


app = typer.Typer(
    name="carre", cls=Commands, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"carre {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn the Riemannian geometry of a dataset from samples, and use it.

    \b
    carre demo                                        two kinds of real data; a report on each
    carre fit data.csv --out model                    learn a geometry
    carre dimension model data.csv                    how many dimensions
    carre report model data.csv -o report.html        everything on one page
    """
