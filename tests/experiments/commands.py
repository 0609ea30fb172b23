"""Commands of experiments, run in this process."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass


@dataclass
class Outcome:
    """What a command said, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self):
        return self.stdout + self.stderr


def invoke(main, *arguments):
    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    return Outcome(code, stdout.getvalue(), stderr.getvalue())
