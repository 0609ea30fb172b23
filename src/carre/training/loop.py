"""The training loop, and what a run has come to, kept in a file."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from carre.backend.processes import Together, together
from carre.backend.rows import Samples
from carre.backend.surroundings import GlobalDraws
from carre.boundary import ArgumentError, is_integer
from carre.files import alone, reason
from carre.matching import BandwidthDistribution
from carre.networks import MetricModel
from carre.training._schedule import CLEAR_DROP, Evidence, Schedule, is_done, is_hard, is_worse
from carre.training._steps import Polisher, Stepper
from carre.training._weights import Notes
from carre.training.checkpoint import Checkpoint, digest, fingerprint, postponed
from carre.training.config import TrainingConfig
from carre.training.monitor import (
    DONE,
    SPENT,
    TOO_HARD,
    Evaluation,
    HeldOut,
    History,
    TrainingDivergedError,
    linear_phase,
)
from carre.training.objective import Objective

_CHECK_EVERY, _MOST_STEPS = 100, 2**53
_ROUNDING = 1e-12
_BEST, _EVIDENCE = "best.", "evidence."
# Two generators, of training and of what networks draw; those of further processes have a number at the end.
_RANDOM, _RANDOMS = "random.everywhere", ("random.training", "random.everywhere")


@dataclass(frozen=True)
class Progress:
    """What a progress callback is told after every step.

    Attributes:
        step: Optimizer steps so far.
        fraction: Share of the run that is done, between 0 and 1. While it is learning, how long that will take is not
            known: the share is then that of its budget, and the time left is the most that it can be.
        seconds: Wall-clock time so far.
        evaluation: The latest evaluation on the held-out samples, if there was one.
        phase: "learning", "settling" while the learning rate falls to zero, or "polishing".
        likely: Between which times, in seconds from the start, training will probably end: data differ by much in how
            long they are learned from. One time as soon as it settles; None in the first second.

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
    phase: str = "learning"
    likely: tuple[float, float] | None = None


def train(
    model: nn.Module,
    samples: Samples,
    held_out: Samples,
    bandwidths: BandwidthDistribution,
    objective: Objective,
    config: TrainingConfig,
    *,
    callback: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
    refill: Callable[[], None] | None = None,
) -> History:
    """Train a model in place; it ends with the averaged weights that were best on the held-out samples.

    Few samples in many dimensions are learned by heart: the held-out loss falls, and then rises far above where it was.

    Where ``torch.distributed`` is initialized, all its processes train one model: each calls this with samples and
    random numbers of its own, and with the same held-out samples and settings. Whatever is decided is decided by the
    first one.

    Args:
        model: ``model(y, σ) → (mean, factor)``, on the device of the samples.
        samples: Training samples, in the coordinates that the model works in: a tensor, or rows that are read as they
            are drawn.
        held_out: Samples that are never trained on; may be the training samples when there are too few.
        bandwidths: The distribution of σ.
        objective: The losses.
        config: Budget and recipe.
        callback: Told of the progress.
        checkpoint: A file to keep the run in, and to go on from if it is there; on a CPU with a budget of steps, to the
            same bits. The file stays when training is done, and then gives the trained model at once: remove it when
            that is stored.
        refill: Called before every step, to put other samples in the place of those that were used.

    Raises:
        TrainingDivergedError: A loss or gradient was not finite. The model keeps its last good weights.
        CheckpointError: The file is not one of this run.
        ProcessLostError: Another process is gone.

    Example:
        >>> from carre.matching import LogUniform
        >>> from carre.networks import build_model
        >>> samples = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> model = build_model(2, 2, width=8, n_blocks=1, spread=1.0)
        >>> config = TrainingConfig(max_steps=20, batch_size=16, evaluations=4)
        >>> history = train(model, samples[:50], samples[50:], LogUniform(0.1, 1.0), Objective(), config)
        >>> [evaluation.step for evaluation in history.evaluations], history.stop_reason
        ([5, 10, 15, 20], 'budget spent')
    """
    if len(held_out) == 0:
        raise ArgumentError("held_out", "not be empty; pass the training samples themselves where there are too few")
    if held_out.shape[1] != samples.shape[1]:
        must = f"have as many columns as samples, {samples.shape[1]}"
        raise ArgumentError("held_out", must, got=held_out.shape[1])
    start, everyone = time.perf_counter(), together()
    everyone.check(samples.device)
    everyone.check_same("config", (config, checkpoint is None, samples.device.type))
    everyone.check_same("model", [value.shape for value in _tensors_of(model)])
    facts: dict[str, Any] = {}
    if checkpoint is not None:
        # The samples as they were given, where that is known.
        known = {} if "samples" in checkpoint.facts else {"samples": digest(samples, held_out)}
        facts = checkpoint.facts | known | fingerprint(model, bandwidths, objective, config, samples.device.type)
    task = _Task(model, samples, held_out, bandwidths, objective, config)
    wanted = checkpoint is not None or everyone.size > 1
    with ExitStack() as kept, postponed(wanted=wanted) as interruption:
        if checkpoint is not None:
            lock = alone(checkpoint.path, "checkpoint")
            everyone.each(lambda: kept.enter_context(lock) if everyone.is_first else None)
        run = _Run(task, checkpoint, facts, start, everyone)
        while not run.history.stop_reason:
            if refill is not None:
                refill()
            run.step()
            try:
                if callback is not None:
                    callback(run.progress())
                interruption.happen()
            except BaseException as error:
                run.stop(error)
        run.leave_together()
    model.load_state_dict(run.best or run.stepper.average().state_dict())
    # Running statistics of a network are those of the first process.
    everyone.copy_first_(_tensors_of(model))
    run.history.seconds = everyone.agreed(lambda: time.perf_counter() - run.start)
    return run.history


def _tensors_of(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _check_progress(progress: dict[str, Any]) -> None:
    """Refuse counters and times that no run has: with them it might never end."""
    steps, kept, looks = progress["steps"], progress["kept"], progress["evaluations"]
    counts = [one["step"] for one in looks] + [steps]
    is_counted = all(is_integer(count) and 0 <= count <= _MOST_STEPS for count in counts)
    numbers = [progress[name] for name in ("gained", "gained_noise", "settled", "worsened")]
    numbers += [value for one in looks for name, value in one.items() if name not in ("step", "gain")]
    numbers += [value for one in looks for value in one["gain"]]
    are_numbers = all(value is None or type(value) in (int, float) for value in numbers)
    shares = [progress[name] for name in ("settled", "worsened") if progress[name] is not None]
    are_numbers = are_numbers and all(0 <= share <= 1 for share in shares)
    if not (is_counted and are_numbers and is_integer(kept) and -1 <= kept < len(looks)):
        raise ValueError("its counters are none")
    if not 0 <= progress["seconds"] < math.inf or type(progress["is_polishing"]) is not bool:
        raise ValueError("its times are none")
    if progress["stop_reason"] not in ("", DONE, SPENT, TOO_HARD):
        raise ValueError("its end is none")


class _Task(NamedTuple):
    """What is to be trained on what."""

    model: nn.Module
    samples: Samples
    held_out: Samples
    bandwidths: BandwidthDistribution
    objective: Objective
    config: TrainingConfig


class _Run:
    """A run: its steps, its record, the best averaged weights, and the file that it is kept in, if any."""

    def __init__(
        self, task: _Task, checkpoint: Checkpoint | None, facts: dict[str, Any], start: float, everyone: Together
    ) -> None:
        self.task, self.checkpoint, self.facts, self.start, self.everyone = task, checkpoint, facts, start, everyone
        # Read at once, so that a file of another run is refused before anything is computed.
        stored = None if checkpoint is None else everyone.agreed(lambda: checkpoint.read(facts))
        everyone.copy_first_(_tensors_of(task.model))
        self.history, self.best = History(trains_mean=task.objective.train_mean), dict[str, Tensor]()
        self.evidence = Evidence()
        seed = everyone.seed(task.config.seed)
        self.generator = torch.Generator(task.samples.device).manual_seed(seed)
        self.monitor = HeldOut(task.held_out, task.samples, task.bandwidths, generator=self.generator)
        self.history.bandwidths = tuple(self.monitor.levels.tolist())
        self.history.kernel_gain = everyone.agreed(lambda: self.monitor.kernel_gain)
        # What a network draws from the global generator, as dropout does: nothing of that is drawn while it is tried.
        self.draws = GlobalDraws(seed)
        with GlobalDraws(seed).in_turn():
            self.stepper = Stepper(
                task.model, task.samples, task.bandwidths, task.objective, task.config, self.generator, everyone
            )
        polishes = isinstance(task.model, MetricModel) and self.stepper.probing == "forward"
        self.schedule = Schedule(task.config, polishes=polishes)
        self.seconds = 0.0
        # When the first step of this process was done: those after it take their usual time.
        self._begun: tuple[int, float] | None = None
        self._written_at, self._last = -1, time.monotonic()
        self._heard, self._wish = Notes(), list[BaseException]()
        # On a GPU the host would have to wait for every step to hear what the others say in it.
        self._talks_every = _CHECK_EVERY if task.samples.device.type == "cuda" else 1
        if stored is not None and checkpoint is not None:
            try:
                self._resume(*stored)
            except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, AssertionError) as error:
                raise checkpoint.damaged(reason(error)) from error

    @property
    def is_polishing(self) -> bool:
        """Whether the mean is done."""
        return isinstance(self.stepper, Polisher)

    def progress(self) -> Progress:
        """Say how far the run is."""
        history = self.history
        spent = self.schedule.spent(history.steps, self.seconds)
        phase = "polishing" if self.is_polishing else "learning" if spent < self.schedule.decay_from else "settling"
        done = 1.0 if history.stop_reason else min(spent / self.schedule.end, 1.0)
        latest = history.evaluations[-1] if history.evaluations else None
        self._begun = self._begun or (history.steps, self.seconds)
        steps, seconds = history.steps - self._begun[0], self.seconds - self._begun[1]
        likely = None if seconds < 1 else self.schedule.likely(history.steps, self.seconds, seconds / max(steps, 1))
        return Progress(history.steps, done, self.seconds, latest, phase, likely)

    def step(self) -> None:
        """Take one step, and what is due after it: an evaluation, the next phase, a write."""
        history, schedule = self.history, self.schedule
        spent = schedule.spent(history.steps, self.seconds)
        rate = schedule.polish_rate(spent) if self.is_polishing else schedule.rate(history.steps, spent)
        with self.draws.in_turn(), self._talking():
            self.stepper.step(rate)
        history.steps += 1
        spent = schedule.spent(history.steps, self.seconds)
        is_last = spent >= (schedule.end if self.is_polishing else schedule.polish_from) - _ROUNDING
        latest = history.evaluations[-1].step if history.evaluations else 0
        is_evaluated = is_last or (not self.is_polishing and schedule.evaluates(history.steps, latest, spent))
        # Now and then ask whether all went well; on a GPU this also keeps the host from running far ahead.
        if (is_evaluated or history.steps % _CHECK_EVERY == 0) and not self._is_well():
            # What was learned before a polish that went astray is kept.
            is_evaluated, is_last = False, True
        if is_evaluated:
            self._evaluate(spent)
        if is_last or (schedule.worsened == spent and not history.stop_reason):
            self._finish_phase()
        # As the first process sees it.
        if is_evaluated or (self._is_late() if self.everyone.size == 1 else self._heard.overdue):
            self.write()
        if self._heard.stop:
            self.write()
            self.leave_together()

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Let a step tell and hear what processes cannot know of each other; one alone looks at its own clock."""
        if self.everyone.size == 1:
            yield
            self.seconds = time.perf_counter() - self.start
            return
        is_heard, weights = (self.history.steps + 1) % self._talks_every == 0, self.stepper.weights
        if is_heard:
            now = (self._is_late(), time.perf_counter() - self.start) if self.everyone.is_first else (False, 0.0)
            weights.tell(Notes(bool(self._wish), *now))
        yield
        self._heard = weights.hear() if is_heard else Notes()
        self.seconds = self._heard.seconds if is_heard else self.seconds

    def stop(self, error: BaseException) -> None:
        """Stop after this step, which is whole whatever it was that came between; or soon, with all other processes."""
        if self.everyone.size == 1:
            self.write()
            raise error
        self._wish.append(error)

    def leave_together(self) -> None:
        """Raise what one of the processes wished to be raised, if any, in all of them."""

        def leave() -> None:
            if self._wish:
                raise self._wish[0]

        self.everyone.each(leave)

    def _is_well(self) -> bool:
        """Say whether all losses and gradients were finite; while learning, stop there with the last good weights."""
        bad_step = self.stepper.first_bad_step()
        if bad_step is not None and not self.is_polishing:
            self.task.model.load_state_dict(self.stepper.average().state_dict())
            if self.checkpoint is not None and self.everyone.is_first:
                self.checkpoint.remove()
            raise TrainingDivergedError(bad_step, self.task.config.learning_rate, self.task.model)
        return bad_step is None

    def _evaluate(self, spent: float) -> None:
        """Note an evaluation, keep the weights if it is the best one, and decide how to go on."""
        history, schedule, config, average = self.history, self.schedule, self.task.config, self.stepper.average()
        evaluation, values = self.everyone.agreed(lambda: self._look(average))
        found = self.evidence.add(history.steps, values)
        if found is not None:
            evaluation = dataclasses.replace(evaluation, improvement=found.value, noise=found.noise)
        # A polish is kept unless it does harm: it is for directions, which this score hardly sees.
        allowed = 0.005 * max(1.0, abs(evaluation.loss)) if self.is_polishing else 0.0
        if history.kept < 0 or evaluation.loss < history.evaluations[history.kept].loss + allowed:
            history.kept, self.best = len(history.evaluations), copy.deepcopy(average.state_dict())
        history.evaluations.append(evaluation)
        if found is None or self.is_polishing:
            return
        if schedule.settled is None and spent < schedule.decay_from:
            history.gained, history.gained_noise = found.value, found.noise
            # Where a kernel sees more than the network, the network has only to find it: long plateaus are usual.
            # A mean that is given, or none of the points, has no linear phase to leave; nor has flat data.
            is_ahead = not history.trains_mean or linear_phase(history) is None
            has_phase = self.task.objective.train_mean and bool(evaluation.gain) and not config.fills_hull
            is_clear = not has_phase or evaluation.drop >= CLEAR_DROP
            if config.until_done and is_ahead and is_done(config, history.steps, found, is_clear=is_clear):
                schedule.settled = spent
            elif config.gives_up and is_hard(history.steps, found.value):
                history.stop_reason = TOO_HARD
        elif config.until_done and schedule.has_cooled(spent) and is_worse(config, history.steps, found):
            schedule.worsened = spent
            history.gained, history.gained_noise = found.value, found.noise

    def _look(self, average: nn.Module) -> tuple[Evaluation, Tensor]:
        """Evaluate a model on the held-out pairs."""
        objective, seconds = self.task.objective, self.seconds
        with self.draws.in_turn():
            evaluation, values = self.monitor.evaluate(average, objective, step=self.history.steps, seconds=seconds)
        return evaluation, values.cpu()

    def _finish_phase(self) -> None:
        """Go on with the polish, or end."""
        history, schedule = self.history, self.schedule
        if schedule.polish_from < schedule.end and not self.is_polishing:
            self._polish()
        else:
            is_done_early = schedule.settled is not None or schedule.worsened is not None
            history.stop_reason = DONE if is_done_early else SPENT

    def _polish(self) -> None:
        """Freeze the mean, and go on with the factor alone."""
        model, samples, _, bandwidths, objective, config = self.task
        model.load_state_dict(self.best)
        assert isinstance(model, MetricModel)
        self.generator.manual_seed(self.everyone.seed(config.seed + 1))
        with GlobalDraws(config.seed).in_turn():
            self.stepper = Polisher(model, samples, bandwidths, objective, config, self.generator, self.everyone)

    def _resume(self, progress: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Bring the run to where the file left it."""
        history = self.history
        _check_progress(progress)
        tensors = {**tensors, **self._own_randoms(tensors, progress["steps"])}
        history.evaluations = [Evaluation(**{**one, "gain": tuple(one["gain"])}) for one in progress["evaluations"]]
        for key in ("steps", "kept", "stop_reason", "gained", "gained_noise"):
            setattr(history, key, progress[key])
        self.schedule.settled, self.schedule.worsened = progress["settled"], progress["worsened"]
        self.best = {name.removeprefix(_BEST): value for name, value in tensors.items() if name.startswith(_BEST)}
        past = {name.removeprefix(_EVIDENCE): value for name, value in tensors.items() if name.startswith(_EVIDENCE)}
        self.evidence.values = {int(step): past[step] for step in sorted(past, key=int)}
        if progress["is_polishing"]:
            self._polish()
        self.stepper.restore(tensors)
        wanted = {name: value.shape for name, value in self.stepper.state().items()} | {_RANDOM: self.draws.state.shape}
        if any(tensors[name].shape != shape for name, shape in wanted.items()) or not self._are_evidence(past):
            raise ValueError("its tensors have other shapes")
        self.draws.state = tensors[_RANDOM]
        self._written_at = history.steps
        self.seconds = float(progress["seconds"])
        self.start -= self.seconds

    def _own_randoms(self, tensors: dict[str, Tensor], step: int) -> dict[str, Tensor]:
        """Find the generators of this process in a file; after one of another number of processes they begin anew."""
        size, rank = self.everyone.size, self.everyone.rank
        if size == 1 + sum(name.startswith(_RANDOM + ".") for name in tensors):
            return {name: tensors[f"{name}.{rank}"] for name in _RANDOMS} if rank > 0 else {}
        seed, device = self.everyone.seed(self.task.config.seed, step), self.generator.device
        fresh = (torch.Generator(device).manual_seed(seed).get_state(), GlobalDraws(seed).state)
        return dict(zip(_RANDOMS, fresh, strict=True))

    def _are_evidence(self, past: dict[str, Tensor]) -> bool:
        """Say whether tensors are what all held-out pairs said, at every scale."""
        pairs = (len(self.monitor.levels), len(self.monitor.pairs[0].points))
        shapes = {value.shape for value in past.values()}
        return not shapes or (len(shapes) == 1 and shapes.pop()[:-1] == pairs)

    def _is_late(self) -> bool:
        """Say whether the last write is long ago."""
        return self.checkpoint is not None and time.monotonic() - self._last >= self.checkpoint.every

    def write(self) -> None:
        """Keep the run as it is after a whole step."""
        if self.checkpoint is None or self._written_at == self.history.steps:
            return
        best = {_BEST + name: value for name, value in self.best.items()}
        past = {f"{_EVIDENCE}{step}": value for step, value in self.evidence.values.items()}
        tensors = {**self.stepper.state(), **best, **past, _RANDOM: self.draws.state}
        progress = dataclasses.asdict(self.history) | {"seconds": time.perf_counter() - self.start}
        progress |= {"settled": self.schedule.settled, "worsened": self.schedule.worsened}
        progress |= {"is_polishing": self.is_polishing}
        randoms = self.everyone.gather([self.generator.get_state(), self.draws.state])
        for rank, states in enumerate(randoms[1:], 1):
            tensors |= {f"{name}.{rank}": state for name, state in zip(_RANDOMS, states, strict=True)}
        if self.everyone.is_first:
            self.checkpoint.write(self.facts, progress, tensors)
        self._written_at, self._last = self.history.steps, time.monotonic()
