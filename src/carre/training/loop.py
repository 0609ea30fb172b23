"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.matching import BandwidthDistribution
from carre.training.checkpoint import Checkpoint
from carre.training.config import TrainingConfig
from carre.training.fingerprint import digest, fingerprint
from carre.training.interruption import postponed
from carre.training.monitor import Evaluation, HeldOut, History, TrainingDivergedError
from carre.training.objective import Objective
from carre.training.run import Keeper, Run
from carre.training.stepper import Stepper

_CHECK_EVERY = 100


@dataclass(frozen=True)
class Progress:
    """What a progress callback is told after every step.

    Attributes:
        step: Optimizer steps so far.
        fraction: Share of the budget that is spent, between 0 and 1.
        seconds: Wall-clock time so far.
        evaluation: The latest look at the held-out samples, if there was one.

    Example:
        >>> def callback(progress: Progress) -> None:
        ...     print(f"{progress.step} steps, {progress.fraction:.0%}")
        >>> callback(Progress(step=50, fraction=0.25, seconds=1.2, evaluation=None))
        50 steps, 25%
    """

    step: int
    fraction: float
    seconds: float
    evaluation: Evaluation | None


def train(
    model: nn.Module,
    samples: Float[Tensor, "n dim"],
    held_out: Float[Tensor, "m dim"],
    bandwidths: BandwidthDistribution,
    objective: Objective,
    config: TrainingConfig,
    *,
    callback: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> History:
    """Train a model in place; it ends with the averaged weights of its best look at the held-out samples.

    Few samples in many dimensions are learned by heart: the held-out loss falls, and then rises far above where it was.

    Args:
        model: ``model(y, σ) → (mean, factor)``, on the device of the samples.
        samples: Training samples, in the coordinates that the model works in.
        held_out: Samples that are never trained on; may be the training samples when there are too few.
        bandwidths: The distribution of σ.
        objective: The losses.
        config: Budget and recipe.
        callback: Told of the progress.
        checkpoint: A file to keep the run in, and to go on from if it is there; on a CPU with a budget of steps, to the
            same bits. The state of torch's global generator on the CPU is part of it. The file stays when training is
            done, and then gives the trained model at once: remove it when that is stored.

    Raises:
        TrainingDivergedError: A loss or gradient was not finite. The model keeps its last good weights.
        CheckpointError: The file is not one of this run.

    Example:
        >>> from carre.matching import LogUniform
        >>> from carre.networks import build_model
        >>> samples = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> model = build_model(2, 2, width=8, n_blocks=1, spread=1.0)
        >>> config = TrainingConfig(max_steps=20, batch_size=16, evaluations=4)
        >>> history = train(model, samples[:50], samples[50:], LogUniform(0.1, 1.0), Objective(), config)
        >>> [look.step for look in history.evaluations], history.stop_reason
        ([5, 10, 15, 20], 'budget spent')
    """
    if len(held_out) == 0:
        raise ValueError("held_out must not be empty; pass the training samples themselves where there are too few")
    start = time.perf_counter()
    keeper = Keeper(checkpoint, _facts(model, samples, held_out, bandwidths, objective, config, checkpoint))
    generator = torch.Generator(samples.device).manual_seed(config.seed)
    monitor = HeldOut(held_out, samples, bandwidths, generator=generator)
    history = History(bandwidths=tuple(monitor.levels.tolist()), kernel_gain=monitor.kernel_gain)
    stepper = Stepper(model, samples, bandwidths, objective, config, generator)
    run = Run(history)
    start -= keeper.resume(run, stepper)

    with postponed(wanted=checkpoint is not None) as interruption:
        while not history.stop_reason:
            fraction = _spent(config, history.steps, time.perf_counter() - start)
            stepper.step(_learning_rate(config, history.steps, fraction))
            history.steps += 1
            seconds = time.perf_counter() - start
            fraction = _spent(config, history.steps, seconds)
            is_look = fraction >= (run.looks + 1) / config.evaluations

            # Now and then ask whether all went well; on a GPU this also keeps the host from running far ahead.
            if is_look or history.steps % _CHECK_EVERY == 0:
                bad_step = stepper.first_bad_step()
                if bad_step is not None:
                    model.load_state_dict(stepper.average().state_dict())
                    keeper.forget()
                    raise TrainingDivergedError(bad_step, config.learning_rate, model)

            # Looks at the held-out samples are spaced evenly over the budget, with one at its end.
            if is_look:
                run.looks = int(fraction * config.evaluations + 1e-9)
                evaluation = monitor.evaluate(stepper.average(), objective, step=history.steps, seconds=seconds)
                run.add(evaluation, stepper.average())
                if config.patience is not None and run.stale >= config.patience:
                    history.stop_reason = "held-out loss stopped improving"
            if fraction >= 1.0 and not history.stop_reason:
                history.stop_reason = "budget spent"
            if is_look or keeper.is_due():
                keeper.write(run, stepper, time.perf_counter() - start)
            try:
                if callback is not None:
                    latest = history.evaluations[-1] if history.evaluations else None
                    callback(Progress(history.steps, fraction, seconds, latest))
                interruption.happen()
            except BaseException:
                # The step is whole here, whatever it was that came between.
                keeper.write(run, stepper, time.perf_counter() - start)
                raise

    model.load_state_dict(run.best or stepper.average().state_dict())
    history.seconds = time.perf_counter() - start
    return history


def _facts(
    model: nn.Module,
    samples: Tensor,
    held_out: Tensor,
    bandwidths: BandwidthDistribution,
    objective: Objective,
    config: TrainingConfig,
    checkpoint: Checkpoint | None,
) -> dict[str, Any]:
    """Write down what the run was told, for a checkpoint; the samples as they were given, where that is known."""
    if checkpoint is None:
        return {}
    found = dict(checkpoint.facts)
    if "samples" not in found:
        found["samples"] = digest(samples, held_out)
    return found | fingerprint(model, bandwidths, objective, config, samples.device.type)


def _spent(config: TrainingConfig, step: int, seconds: float) -> float:
    """Compute the share of the budget that is spent, by steps or by seconds."""
    by_time = 0.0 if config.max_seconds is None else seconds / config.max_seconds
    return min(max(step / config.max_steps, by_time), 1.0)


def _learning_rate(config: TrainingConfig, step: int, fraction: float) -> float:
    """Warm up linearly, then follow a cosine to zero."""
    warmup = min(config.warmup, max(config.max_steps // 10, 1))
    return config.learning_rate * min((step + 1) / warmup, 1.0) * 0.5 * (1 + math.cos(math.pi * fraction))
