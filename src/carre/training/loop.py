"""The training loop: its steps, on a CPU or as a CUDA graph, and what a run has come to, kept in a file."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend.modes import fused_operations
from carre.boundary import ArgumentError
from carre.matching import BandwidthDistribution, Perturbation, perturb, perturb_among, probe_jacobian
from carre.matching.bandwidths import stratified_levels
from carre.training._weights import prepare_weights
from carre.training.checkpoint import Checkpoint, digest, fingerprint, postponed
from carre.training.config import TrainingConfig
from carre.training.monitor import Evaluation, HeldOut, History, TrainingDivergedError
from carre.training.objective import Objective

_CHECK_EVERY = 100
_GRAPH_WARMUP = 3
_BEST, _RANDOM = "best.", "random.everywhere"


@dataclass(frozen=True)
class Progress:
    """What a progress callback is told after every step.

    Attributes:
        step: Optimizer steps so far.
        fraction: Share of the budget that is spent, between 0 and 1.
        seconds: Wall-clock time so far.
        evaluation: The latest evaluation on the held-out samples, if there was one.

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
    """Train a model in place; it ends with the averaged weights that were best on the held-out samples.

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
        >>> [evaluation.step for evaluation in history.evaluations], history.stop_reason
        ([5, 10, 15, 20], 'budget spent')
    """
    if len(held_out) == 0:
        raise ArgumentError("held_out", "not be empty; pass the training samples themselves where there are too few")
    start = time.perf_counter()
    facts: dict[str, Any] = {}
    if checkpoint is not None:
        # The samples as they were given, where that is known.
        known = {} if "samples" in checkpoint.facts else {"samples": digest(samples, held_out)}
        facts = checkpoint.facts | known | fingerprint(model, bandwidths, objective, config, samples.device.type)
    run = _Run(checkpoint, facts)
    generator = torch.Generator(samples.device).manual_seed(config.seed)
    monitor = HeldOut(held_out, samples, bandwidths, generator=generator)
    history = run.history
    history.bandwidths, history.kernel_gain = tuple(monitor.levels.tolist()), monitor.kernel_gain
    stepper = Stepper(model, samples, bandwidths, objective, config, generator)
    start -= run.resume(stepper)

    with postponed(wanted=checkpoint is not None) as interruption:
        while not history.stop_reason:
            fraction = _spent(config, history.steps, time.perf_counter() - start)
            stepper.step(_learning_rate(config, history.steps, fraction))
            history.steps += 1
            seconds = time.perf_counter() - start
            fraction = _spent(config, history.steps, seconds)
            is_evaluated = fraction >= (_evaluations_due(config, history) + 1) / config.evaluations

            # Now and then ask whether all went well; on a GPU this also keeps the host from running far ahead.
            if is_evaluated or history.steps % _CHECK_EVERY == 0:
                bad_step = stepper.first_bad_step()
                if bad_step is not None:
                    model.load_state_dict(stepper.average().state_dict())
                    if checkpoint is not None:
                        checkpoint.remove()
                    raise TrainingDivergedError(bad_step, config.learning_rate, model)

            # Evaluations are spaced evenly over the budget, with one at its end.
            if is_evaluated:
                evaluation = monitor.evaluate(stepper.average(), objective, step=history.steps, seconds=seconds)
                run.add(evaluation, stepper.average())
                if config.patience is not None and run.stale >= config.patience:
                    history.stop_reason = "held-out loss stopped improving"
            if fraction >= 1.0 and not history.stop_reason:
                history.stop_reason = "budget spent"
            if is_evaluated or run.is_overdue():
                run.write(stepper, time.perf_counter() - start)
            try:
                if callback is not None:
                    latest = history.evaluations[-1] if history.evaluations else None
                    callback(Progress(history.steps, fraction, seconds, latest))
                interruption.happen()
            except BaseException:
                # The step is whole here, whatever it was that came between.
                run.write(stepper, time.perf_counter() - start)
                raise

    model.load_state_dict(run.best or stepper.average().state_dict())
    history.seconds = time.perf_counter() - start
    return history


class _Run:
    """A run beside its stepper: the record, the best averaged weights, and the file that it is kept in, if any."""

    def __init__(self, checkpoint: Checkpoint | None, facts: dict[str, Any]) -> None:
        self.history, self.best = History(), dict[str, Tensor]()
        self.checkpoint, self.facts = checkpoint, facts
        # Read at once, so that a file of another run is refused before anything is computed.
        self._stored = None if checkpoint is None else checkpoint.read(facts)
        self._written_at, self._last = -1, time.monotonic()

    @property
    def stale(self) -> int:
        """Evaluations since the best one."""
        return len(self.history.evaluations) - 1 - self.history.kept

    def add(self, evaluation: Evaluation, average: nn.Module) -> None:
        """Note an evaluation; keep the weights if it is the best one."""
        evaluations, kept = self.history.evaluations, self.history.kept
        if evaluation.loss < (math.inf if kept < 0 else evaluations[kept].loss):
            self.history.kept, self.best = len(evaluations), copy.deepcopy(average.state_dict())
        evaluations.append(evaluation)

    def resume(self, stepper: Stepper) -> float:
        """Bring the run to where the file left it; return the seconds that it had taken."""
        if self._stored is None:
            return 0.0
        progress, tensors = self._stored
        # Both are as large as all weights together: only one is needed from here on.
        self._stored = None
        history = self.history
        history.evaluations = [Evaluation(**{**one, "gain": tuple(one["gain"])}) for one in progress["evaluations"]]
        history.steps, history.kept, history.stop_reason = (progress[key] for key in ("steps", "kept", "stop_reason"))
        self.best = {name.removeprefix(_BEST): value for name, value in tensors.items() if name.startswith(_BEST)}
        stepper.restore(tensors)
        torch.set_rng_state(tensors[_RANDOM])
        self._written_at = history.steps
        return float(progress["seconds"])

    def is_overdue(self) -> bool:
        """Say whether the last write is long ago."""
        return self.checkpoint is not None and time.monotonic() - self._last >= self.checkpoint.every

    def write(self, stepper: Stepper, seconds: float) -> None:
        """Keep the run as it is after a whole step."""
        if self.checkpoint is None or self._written_at == self.history.steps:
            return
        best = {_BEST + name: value for name, value in self.best.items()}
        tensors = {**stepper.state(), **best, _RANDOM: torch.get_rng_state()}
        self.checkpoint.write(self.facts, dataclasses.asdict(self.history) | {"seconds": seconds}, tensors)
        self._written_at, self._last = self.history.steps, time.monotonic()


def _spent(config: TrainingConfig, step: int, seconds: float) -> float:
    """Compute the share of the budget that is spent, by steps or by seconds."""
    by_time = 0.0 if config.max_seconds is None else seconds / config.max_seconds
    return min(max(step / config.max_steps, by_time), 1.0)


def _evaluations_due(config: TrainingConfig, history: History) -> int:
    """Count the evaluations that were due at the latest one; more than were made, where single steps take long."""
    if not history.evaluations:
        return 0
    latest = history.evaluations[-1]
    return int(_spent(config, latest.step, latest.seconds) * config.evaluations + 1e-9)


def _learning_rate(config: TrainingConfig, step: int, fraction: float) -> float:
    """Warm up linearly, then follow a cosine to zero."""
    warmup = min(config.warmup, max(config.max_steps // 10, 1))
    return config.learning_rate * min((step + 1) / warmup, 1.0) * 0.5 * (1 + math.cos(math.pi * fraction))


class Stepper:
    """Draws a batch, takes a gradient step, and averages the weights.

    A step whose loss or gradient is not finite changes nothing, and the first such step is remembered on the
    device, so that a GPU need not be asked after every step.
    """

    def __init__(
        self,
        model: nn.Module,
        samples: Float[Tensor, "n dim"],
        bandwidths: BandwidthDistribution,
        objective: Objective,
        config: TrainingConfig,
        generator: torch.Generator,
    ) -> None:
        self.model, self.samples, self.bandwidths = model, samples, bandwidths
        self.objective, self.config, self.generator = objective, config, generator
        model.train()
        device = samples.device
        self.weights = prepare_weights(model, config, device)
        self.all_well = torch.ones((), device=device)
        self.n_well = torch.zeros((), device=device)
        self.rate = torch.zeros((), device=device)
        self.pull = torch.zeros((), device=device)
        self.n_steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.drawn: Perturbation | None = None
        if device.type == "cuda" and config.cuda_graph:
            with torch.cuda.device(device):
                self.graph = self._capture()

    def step(self, learning_rate: float) -> None:
        """Take one step."""
        # The average forgets its beginning at once and then ever more slowly, up to the configured decay.
        self.pull.fill_(1 - min(self.config.averaging, (1 + self.n_steps) / (10 + self.n_steps)))
        self.rate.fill_(learning_rate)
        self.n_steps += 1
        if self.graph is None:
            self._run(self.batch())
        else:
            self.graph.replay()

    def average(self) -> nn.Module:
        """Return the model with averaged weights, and the buffers (running statistics) as they are now."""
        for mine, its in zip(self.weights.averaged.buffers(), self.weights.module.buffers(), strict=True):
            mine.copy_(its)
        return self.weights.averaged

    def first_bad_step(self) -> int | None:
        """Return the first step that was not finite, if any. Waits for the device."""
        return None if bool(self.all_well) else int(self.n_well)

    def state(self) -> dict[str, Tensor]:
        """Return all that the next steps depend on, by name; not copied."""
        own = {"stepper.all_well": self.all_well, "stepper.n_well": self.n_well}
        own |= {"stepper.n_steps": torch.tensor(self.n_steps), "random.training": self.generator.get_state()}
        return {**self.weights.state(), **own}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state, in place: a captured step keeps its addresses."""
        self.weights.restore(state)
        self.all_well.copy_(state["stepper.all_well"])
        self.n_well.copy_(state["stepper.n_well"])
        self.n_steps = int(state["stepper.n_steps"])
        self.generator.set_state(state["random.training"])
        if self.drawn is not None:
            # A captured step begins with the batch that the one before has drawn.
            torch._foreach_copy_(self.drawn.tensors(), self.batch().tensors())

    def batch(self) -> Perturbation:
        """Draw samples and bandwidths, and perturb."""
        config, samples, random, device = self.config, self.samples, self.generator, self.samples.device
        levels = stratified_levels(config.batch_size, generator=random, device=device)
        bandwidth = self.bandwidths.quantile(levels)

        def draw(count: int) -> Tensor:
            return torch.randint(len(samples), (count,), generator=random, device=device)

        if config.n_references == 0:
            return perturb(samples[draw(config.batch_size)], bandwidth, generator=random)
        references, source = samples, torch.arange(config.batch_size, device=device)
        if config.n_references < len(samples):
            references = samples[draw(max(config.n_references, config.batch_size))]
        else:
            source = draw(config.batch_size)
        return perturb_among(references, source, bandwidth, n_draws=config.n_draws, generator=random)

    def _run(self, batch: Perturbation) -> None:
        """Compute the losses of a batch, step, and average."""
        device = self.samples.device
        weight = self.config.jacobian_weight
        follows_denoiser = weight > 0 and self.objective.train_mean and self.objective.centered
        # The network gets a copy: it may write into its input, which a leaf of the graph would not allow.
        leaf = batch.points.detach().requires_grad_(follows_denoiser)
        points = leaf.clone() if follows_denoiser else leaf
        with _fast_products(device), fused_operations(device):
            with torch.autocast(device.type, torch.bfloat16, enabled=self.config.mixed_precision):
                mean, factor = self.weights.module(points, batch.bandwidth)
            probe = None
            if follows_denoiser and mean is not None:
                probe = probe_jacobian(mean, leaf, weight=weight, generator=self.generator)
            mean_loss, metric_loss = self.objective.losses(mean, factor, batch, probe)
            total = self.weights.update((mean_loss + metric_loss).mean(), self.rate, self.pull)
        self.all_well.mul_(total.abs() < math.inf)
        self.n_well += self.all_well

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record the step once; the warm-up that this needs runs at learning rate zero.

        While a step computes, the batch of the next one is drawn beside it.
        """
        main, beside = torch.cuda.Stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        main.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(main):
            for _ in range(_GRAPH_WARMUP):
                self._run(self.batch())
            current = self.batch()
        torch.cuda.current_stream().wait_stream(main)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=main):
            beside.wait_stream(main)
            with torch.cuda.stream(beside):
                following = self.batch()
            self._run(current)
            main.wait_stream(beside)
            torch._foreach_copy_(current.tensors(), following.tensors())
        self.n_well.zero_()
        self.drawn = current
        return graph


@contextmanager
def _fast_products(device: torch.device) -> Iterator[None]:
    """Let a GPU round the inputs of float32 products to TF32, and try which convolutions are fastest, while stepping.

    Every step has the same shapes, so that trying pays; the caller's choices are restored.
    """
    precision, tries = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = tries
