"""What a run has come to: its history, its best weights, and the way into a checkpoint and back."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from carre.training.checkpoint import Checkpoint, Snapshot
from carre.training.monitor import Evaluation, History
from carre.training.stepper import Stepper

_BEST, _RANDOM = "best.", "random.everywhere"


@dataclass
class Run:
    """The part of a run that is not in the stepper.

    Attributes:
        history: The record.
        looks: Looks at the held-out samples that are due or done.
        stale: Looks since the best one.
        best_loss: Of the best look.
        best: The averaged weights of the best look.
    """

    history: History
    looks: int = 0
    stale: int = 0
    best_loss: float = math.inf
    best: dict[str, Tensor] = field(default_factory=dict)

    def add(self, evaluation: Evaluation, average: nn.Module) -> None:
        """Note a look at the held-out samples; keep the weights if it is the best one."""
        self.history.evaluations.append(evaluation)
        self.stale = 0 if evaluation.loss < self.best_loss else self.stale + 1
        if self.stale == 0:
            self.best_loss, self.best = evaluation.loss, copy.deepcopy(average.state_dict())
            self.history.kept = len(self.history.evaluations) - 1


class Keeper:
    """Keeps a run in a file; without one, does nothing.

    Args:
        checkpoint: The file.
        facts: What the run was told.
    """

    def __init__(self, checkpoint: Checkpoint | None, facts: Mapping[str, Any]) -> None:
        self.checkpoint, self.facts = checkpoint, dict(facts)
        self.stored = None if checkpoint is None else checkpoint.read(self.facts)
        self._written_at, self._last = -1, time.monotonic()

    def resume(self, run: Run, stepper: Stepper) -> float:
        """Bring a run to where the file left it; return the seconds that it had taken."""
        if self.stored is None:
            return 0.0
        progress, tensors = dict(self.stored.progress), self.stored.tensors
        # Both are as large as all weights together: only one is needed from here on.
        self.stored = None
        evaluations = [Evaluation(**{**look, "gain": tuple(look["gain"])}) for look in progress["evaluations"]]
        run.history.evaluations, run.history.steps = evaluations, progress["steps"]
        run.history.kept, run.history.stop_reason = progress["kept"], progress["stop_reason"]
        run.looks, run.stale, run.best_loss = progress["looks"], progress["stale"], progress["best_loss"]
        run.best = {name.removeprefix(_BEST): value for name, value in tensors.items() if name.startswith(_BEST)}
        stepper.restore(tensors)
        torch.set_rng_state(tensors[_RANDOM])
        self._written_at = run.history.steps
        return float(progress["seconds"])

    def is_due(self) -> bool:
        """Say whether the last write is long ago."""
        return self.checkpoint is not None and time.monotonic() - self._last >= self.checkpoint.every

    def write(self, run: Run, stepper: Stepper, seconds: float) -> None:
        """Keep the run as it is after a whole step."""
        if self.checkpoint is None or self._written_at == run.history.steps:
            return
        history = run.history
        progress = {
            "steps": history.steps,
            "seconds": seconds,
            "kept": history.kept,
            "stop_reason": history.stop_reason,
            "evaluations": [dataclasses.asdict(look) for look in history.evaluations],
            "looks": run.looks,
            "stale": run.stale,
            "best_loss": run.best_loss,
        }
        best = {_BEST + name: value for name, value in run.best.items()}
        tensors = {**stepper.state(), **best, _RANDOM: torch.get_rng_state()}
        self.checkpoint.write(Snapshot(self.facts, progress, tensors))
        self._written_at, self._last = history.steps, time.monotonic()

    def forget(self) -> None:
        """Remove the file of a run that cannot go on."""
        if self.checkpoint is not None:
            self.checkpoint.remove()
