"""What a process is set to around us, kept out; and random numbers that do not come from what threads share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_default_dtype_is_ours = threading.Lock()
_inside: list[torch.dtype] = []


@contextmanager
def plain_surroundings() -> Iterator[None]:
    """Compute as in a new process, whatever this one is set to; afterwards it is set as before.

    With gradients and outside of inference mode, without autocast, in float32 and on the CPU where nothing else is
    said, with NumPy's own way to treat overflow.

    Example:
        >>> with torch.no_grad(), plain_surroundings():
        ...     torch.is_grad_enabled()
        True
    """
    with ExitStack() as entered:
        for mode in (torch.inference_mode(False), torch.enable_grad(), np.errstate(all="warn", under="ignore")):
            entered.enter_context(mode)
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                entered.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            entered.enter_context(torch.device("cpu"))
        entered.enter_context(_single_precision())
        yield


@contextmanager
def _single_precision() -> Iterator[None]:
    """Make float32 the default dtype; there is one for all threads, so that the last to leave restores it."""
    with _default_dtype_is_ours:
        _inside.append(torch.get_default_dtype() if not _inside else _inside[0])
        torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        with _default_dtype_is_ours:
            before = _inside.pop()
            if not _inside:
                torch.set_default_dtype(before)


class DrawingFrom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Let what draws random numbers on the CPU without a generator draw from this one; the global one stays as it is.

    For the initialization of networks, which PyTorch draws from the global generator.

    Example:
        >>> with DrawingFrom(torch.Generator().manual_seed(0)):
        ...     one = torch.nn.Linear(2, 2)
        >>> with DrawingFrom(torch.Generator().manual_seed(0)):
        ...     bool((torch.nn.Linear(2, 2).weight == one.weight).all())
        True
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, with the generator where it takes one and has none."""
        told = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and told.get("generator") is None:
            # ``randn`` and its like have a form of their own with a generator.
            if not any(argument.name == "generator" for argument in func._schema.arguments):
                func = getattr(func.overloadpacket, "generator", func)
            told = {**told, "generator": self.generator}
        return func(*args, **told)


class GlobalDraws:
    """Torch's global random numbers on the CPU as one run sees them: networks with dropout draw from no others.

    Each run has a state of its own, which is there in its turns only. One that draws nothing in its first turn takes no
    others, so that nobody has to wait.

    Attributes:
        state: The state of the generator between two turns.
    """

    _turn = threading.RLock()

    def __init__(self, seed: int) -> None:
        self.state = torch.Generator("cpu").manual_seed(seed).get_state()
        self._are_drawn: bool | None = None

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the global generator go on where this run left it; restore it afterwards."""
        if self._are_drawn is False:
            yield
            return
        with self._turn:
            before = torch.get_rng_state()
            torch.set_rng_state(self.state)
            try:
                yield
            finally:
                after = torch.get_rng_state()
                self._are_drawn = self._are_drawn or not torch.equal(after, self.state)
                self.state = after
                torch.set_rng_state(before)
