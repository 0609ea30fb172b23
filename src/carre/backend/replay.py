"""A few points at a time on a GPU: what is computed is recorded once per shape, and then replayed.

Such an evaluation is bound by its hundreds of launches, not by their arithmetic; a CUDA graph launches them as one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# More points keep a GPU busy by themselves; every recording holds the memory of its intermediate results.
_MOST_POINTS, _MOST_RECORDINGS = 8, 8
_WARMUP = 3


@dataclass(eq=False)
class _Recording:
    """A captured evaluation, with the memory that its inputs and its output have."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Tensor


class Replays:
    """Recordings of pure functions of tensors on a GPU, one for each shape that they were asked with.

    Example:
        >>> replays = Replays()
        >>> replays.can_replay(torch.zeros(1, 3))  # on a CPU there is nothing to gain
        False
    """

    def __init__(self) -> None:
        self._recordings: OrderedDict[Hashable, _Recording] = OrderedDict()
        self._lock = threading.Lock()
        self._done: torch.cuda.Event | None = None

    def can_replay(self, points: Tensor) -> bool:
        """Say whether an evaluation at so few points is to be replayed; not while something else is recorded."""
        if not points.is_cuda or len(points) > _MOST_POINTS or torch.compiler.is_compiling():
            return False
        return not torch.cuda.is_current_stream_capturing()

    def __call__(self, name: Hashable, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Evaluate a function that is always the same under a name, by a replay; recorded at the first time."""
        modes = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        key = name, modes, *((tuple(each.shape), each.dtype, each.device) for each in inputs)
        with self._lock, torch.cuda.device(inputs[0].device), torch.no_grad():
            if key not in self._recordings:
                self._recordings[key] = _record(function, inputs)
                if len(self._recordings) > _MOST_RECORDINGS:
                    self._recordings.popitem(last=False)
            self._recordings.move_to_end(key)
            recording, stream = self._recordings[key], torch.cuda.current_stream()
            # A replay on another stream may still be reading what this one writes.
            if self._done is not None:
                stream.wait_event(self._done)
            for mine, given in zip(recording.inputs, inputs, strict=True):
                mine.copy_(given)
            recording.graph.replay()
            result = recording.output.clone()
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._done.record(stream)
            return result

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


def _record(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> _Recording:
    """Capture an evaluation; what it needs to have been called before, it is called for on a stream of its own."""
    kept = tuple(each.detach().clone() for each in inputs)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARMUP):
            function(*kept)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        output = function(*kept)
    return _Recording(graph, kept, output)
