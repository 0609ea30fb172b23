"""Processes that torchrun started to carry out one command: the first one speaks for all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from typing import Any, NoReturn

from carre.cli._output import say, worded

# What one process alone does as well, the others of a launch would do again.
_SHARED_COMMANDS = ("fit",)
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# A process that is gone is noticed at once; one that is cut off after so long. To read large files takes minutes.
_PATIENCE = timedelta(minutes=30)
_SAID, _HEARD, _WITHIN = "carre.said", "carre.heard", timedelta(seconds=5)
_FAILED = 1


class Crew:
    """This process among those that carry out a command; alone unless torchrun says otherwise.

    Example:
        >>> Crew(["fit", "data.csv"]).size
        1
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        told = os.environ
        is_shared = bool(arguments) and arguments[0] in _SHARED_COMMANDS and all(name in told for name in _NEEDED)
        self.size = int(told["WORLD_SIZE"]) if is_shared else 1
        self.rank = int(told["RANK"]) if self.size > 1 else 0
        # How the command was begun, for advice to quote; of several hosts each has its own words for it.
        is_here = self.size > 1 and told.get("LOCAL_WORLD_SIZE") == told["WORLD_SIZE"]
        self.program = ["torchrun", "--nproc-per-node", str(self.size), "-m", "carre"] if is_here else ["carre"]
        self._store: Any = None

    def join(self) -> None:
        """Meet the others, or end this process with a sentence."""
        if self.size == 1:
            return
        try:
            import torch  # noqa: PLC0415  (only here)
            from torch import distributed  # noqa: PLC0415
            from torch.distributed.rendezvous import rendezvous  # noqa: PLC0415

            self._store = next(rendezvous("env://", timeout=_PATIENCE))[0]
            on_gpus = torch.cuda.is_available()
            if on_gpus:
                torch.cuda.set_device(_own_gpu())
            backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
            options: Any = {"store": self._store, "rank": self.rank, "world_size": self.size, "timeout": _PATIENCE}
            distributed.init_process_group(backend, **options)
        except (RuntimeError, ValueError, ImportError) as error:
            say(f"error: process {self.rank} of {self.size} does not reach the others: {worded(error)}")
            sys.exit(_FAILED)

    def leave(self) -> None:
        """Part when all are done. After an error nobody waits: processes that end are noticed by the others."""
        if self.size > 1:
            from torch import distributed  # noqa: PLC0415

            from carre.backend.processes import together  # noqa: PLC0415

            together().gather(None)
            distributed.destroy_process_group()

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Leave what is to be said while all goes well to the first process."""
        with ExitStack() as quiet:
            if self.rank > 0:
                nowhere = quiet.enter_context(open(os.devnull, "w", encoding="utf-8"))
                quiet.enter_context(redirect_stdout(nowhere))
                quiet.enter_context(redirect_stderr(nowhere))
            yield

    def say(self, sentence: str, *, is_own: bool = False) -> None:
        """Say how this process fails; what all say alike is said by the first one."""
        if self.rank > 0 and (is_own or not self._is_said(sentence)):
            say(f"{sentence} (process {self.rank} of {self.size})")
        elif self.rank == 0:
            say(sentence)
            if self._store is not None and not is_own:
                self._tell(sentence)

    def exit(self, code: int) -> NoReturn:
        """End this process; one of several at once, as threads that wait for the others can abort it at its end."""
        if self.size > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        sys.exit(code)

    def _tell(self, sentence: str) -> None:
        """Let the others know what was said; they ask this process, unless torchrun keeps the store."""
        with suppress(RuntimeError):
            self._store.set(_SAID, sentence)
            if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
                self._store.wait([f"{_HEARD}.{rank}" for rank in range(1, self.size)], _WITHIN)

    def _is_said(self, sentence: str) -> bool:
        """Wait for what the first process says, if anything."""
        said = None
        with suppress(RuntimeError):
            self._store.wait([_SAID], _WITHIN)
            said = self._store.get(_SAID).decode()
            self._store.set(f"{_HEARD}.{self.rank}", "")
        return bool(said == sentence)


def own_device(device: str | None) -> str | None:
    """Return the GPU of this process where several compute on GPUs; what was told otherwise.

    Example:
        >>> own_device("cuda")
        'cuda'
    """
    import torch  # noqa: PLC0415

    from carre.backend.processes import together  # noqa: PLC0415

    if together().size == 1 or device not in (None, "cuda") or not torch.cuda.is_available():
        return device
    return f"cuda:{_own_gpu()}"


def _own_gpu() -> int:
    import torch  # noqa: PLC0415

    return int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
