"""Several processes that compute one thing together, over ``torch.distributed``; or one, for which all this is nothing.

Whoever calls a method here does so on every process, in the same order: each one waits for all others.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from carre.boundary import ArgumentError
from carre.files import reason

Answer = TypeVar("Answer")
_SEEDS = 2**63


class ProcessLostError(RuntimeError):
    """Another process of several that train together is gone; what was learned until the last checkpoint is kept.

    Example:
        >>> raise ProcessLostError(2, RuntimeError("Connection closed by peer"))
        Traceback (most recent call last):
            ...
        carre.backend.processes.ProcessLostError: another of the 2 processes ended, or can no longer be reached \
(Connection closed by peer). Start all of them again: with a checkpoint, training goes on from there
    """

    def __init__(self, size: int, error: Exception) -> None:
        super().__init__(
            f"another of the {size} processes ended, or can no longer be reached ({reason(error)}). Start all of them "
            "again: with a checkpoint, training goes on from there"
        )
        self.size, self.error = size, error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.size, self.error)


@dataclass(frozen=True)
class Together:
    """This process among those that compute with it.

    Attributes:
        rank: Its number, from 0.
        size: How many there are.

    Example:
        >>> Together().agreed(lambda: 7), Together(rank=1, size=4).share(10)
        (7, 3)
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that decides, writes and speaks."""
        return self.rank == 0

    def share(self, total: int) -> int:
        """Divide a number among all, rounded up: shares are equal, so that their mean is that of all."""
        return -(-total // self.size)

    def seed(self, seed: int, step: int = 0) -> int:
        """Return a seed of its own for each process, and for each step that it may begin at; one alone keeps its seed.

        Example:
            >>> Together(0, 2).seed(5), Together(1, 2).seed(5) == Together(1, 2).seed(5, step=7)
            (5, False)
        """
        if self.is_first and step == 0:
            return seed
        found = hashlib.sha256(f"{seed} {step} {self.rank}".encode()).digest()
        return int.from_bytes(found[:8], "little") % _SEEDS

    def check(self, device: torch.device) -> None:
        """Refuse a device between whose tensors the processes cannot talk."""
        if self.size > 1 and f"{device.type}:" not in dist.get_backend_config():
            known = dist.get_backend_config()
            must = f"be one that the process group reaches, which is {known}"
            remedy = "Initialize it with backend='cpu:gloo,cuda:nccl'"
            raise ArgumentError("device", must, got=device.type, remedy=remedy)

    def can_be_captured(self) -> bool:
        """Say whether what the processes add up on a GPU can be part of a CUDA graph: NCCL knows how."""
        return self.size == 1 or "cuda:nccl" in dist.get_backend_config()

    def add_(self, numbers: Tensor) -> None:
        """Replace numbers by their sum over all processes; to the bit the same everywhere."""
        if self.size > 1:
            with self._reached():
                dist.all_reduce(numbers)

    @torch.no_grad()
    def copy_first_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        for tensor in tensors if self.size > 1 else ():
            sent = tensor.detach().contiguous()
            with self._reached():
                dist.broadcast(sent, 0)
            tensor.copy_(sent)

    def gather(self, value: Answer) -> list[Answer]:
        """Return what every process gave, by rank."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with self._reached():
            dist.all_gather_object(found, value)
        return found

    def agreed(self, work: Callable[[], Answer]) -> Answer:
        """Do something on the first process; all return its answer, or raise its error."""
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]
        if self.is_first:
            outcome = list(_outcome(work))
        with self._reached():
            dist.broadcast_object_list(outcome, 0)
        answer, error = outcome
        if error is not None:
            raise error
        return answer  # type: ignore[no-any-return]

    def each(self, work: Callable[[], Answer]) -> Answer:
        """Do something on every process, without a word to the others; an error of one is an error of all."""
        if self.size == 1:
            return work()
        answer, error = _outcome(work)
        errors = [other for other in self.gather(error) if other is not None]
        if errors:
            raise error or errors[0]
        return answer  # type: ignore[return-value]

    def check_same(self, name: str, told: object) -> None:
        """Refuse processes that were told different things."""
        if len(set(self.gather(repr(told)))) > 1:
            raise ArgumentError(name, "be the same in all processes that train together")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Make a sentence of what is raised when another process does not answer."""
        try:
            yield
        except RuntimeError as error:
            raise ProcessLostError(self.size, error) from error


ALONE = Together()


def together() -> Together:
    """Return this process among those of the default group of ``torch.distributed``; without one it is alone.

    Example:
        >>> together()
        Together(rank=0, size=1)
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return Together(dist.get_rank(), dist.get_world_size())
    return ALONE


def _outcome(work: Callable[[], Answer]) -> tuple[Answer | None, BaseException | None]:
    """Do something; return the answer or the error, in a form that can be sent."""
    try:
        return work(), None
    except BaseException as error:
        return None, portable(error)


def portable(error: BaseException) -> BaseException:
    """Return an error in a form that can be sent to another process; those of other libraries may refuse to be copied.

    Example:
        >>> portable(ValueError("too large"))
        ValueError('too large')
    """
    try:
        pickle.loads(pickle.dumps(error))  # our own error, which never left this process
    except Exception:  # whatever a stranger's way to copy itself raises
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
