"""Steps of training, on a CPU or as a CUDA graph: of mean and factor together, and of the factor alone."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend.modes import fused_operations
from carre.backend.processes import ALONE, Together
from carre.backend.rows import Samples
from carre.backend.surroundings import GlobalDraws
from carre.matching import (
    BandwidthDistribution,
    JacobianProbe,
    Perturbation,
    backward_probe,
    denoise_along,
    perturb,
    perturb_among,
    probe_loss,
    vectors_in_range,
)
from carre.matching.bandwidths import stratified_levels
from carre.networks import MetricModel
from carre.training._weights import prepare_weights
from carre.training.config import TrainingConfig
from carre.training.objective import Objective, probe_above, probed

_GRAPH_WARMUP = 3
# Of the points that the factor alone is taught at, these are clean.
_CLEAN_SHARE = 0.3
_N_TYPICAL = 4096


class Stepper:
    """Draws a batch, takes a gradient step, and averages the weights.

    A step whose loss or gradient is not finite changes nothing, and the first such step is remembered on the
    device, so that a GPU need not be asked after every step. Of several processes each draws its share of the batch.
    """

    def __init__(
        self,
        model: nn.Module,
        samples: Samples,
        bandwidths: BandwidthDistribution,
        objective: Objective,
        config: TrainingConfig,
        generator: torch.Generator,
        everyone: Together = ALONE,
    ) -> None:
        self.model, self.samples, self.bandwidths, self.everyone = model, samples, bandwidths, everyone
        self.objective, self.config, self.generator = objective, config, generator
        model.train()
        device = samples.device
        self.weights = prepare_weights(model, config, device, everyone)
        self.probing = self._probing()
        self.all_well = torch.ones((), device=device)
        self.n_well = torch.zeros((), device=device)
        self.rate = torch.zeros((), device=device)
        self.pull = torch.zeros((), device=device)
        self.n_steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.drawn: Perturbation | None = None
        if device.type == "cuda" and config.cuda_graph and everyone.can_be_captured():
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
        batch_size = self.everyone.share(config.batch_size)
        levels = stratified_levels(batch_size, generator=random, device=device)
        bandwidth = self.bandwidths.quantile(levels)

        def draw(count: int) -> Tensor:
            return torch.randint(len(samples), (count,), generator=random, device=device)

        if config.n_references == 0:
            return perturb(samples[draw(batch_size)], bandwidth, generator=random)
        source = torch.arange(batch_size, device=device)
        if config.n_references < len(samples):
            references = samples[draw(max(config.n_references, batch_size))]
        else:
            references, source = samples[:], draw(batch_size)
        return perturb_among(references, source, bandwidth, n_draws=config.n_draws, generator=random)

    def _run(self, batch: Perturbation) -> None:
        """Compute the losses of a batch, step, and average."""
        device = self.samples.device
        with _fast_products(device), fused_operations(device):
            with torch.autocast(device.type, torch.bfloat16, enabled=self.config.mixed_precision):
                mean, factor, probe = self.outputs(batch)
            total = self.weights.update(self.loss(mean, factor, batch, probe), self.rate, self.pull)
        self.all_well.mul_(total.abs() < math.inf)
        self.n_well += self.all_well

    def loss(
        self, mean: Tensor | None, factor: Tensor, batch: Perturbation, probe: JacobianProbe | None
    ) -> Float[Tensor, ""]:
        """Compute what a step minimizes."""
        mean_loss, metric_loss = self.objective.losses(mean, factor, batch, probe)
        return (mean_loss + metric_loss).mean()

    def outputs(self, batch: Perturbation) -> tuple[Tensor | None, Tensor, JacobianProbe | None]:
        """Ask the model for mean and factor, and its denoiser what it makes of vectors in the range of the factor."""
        model, y, s = self.weights.module, batch.points, batch.bandwidth
        if self.probing is None:
            return *model(y, s), None
        weight = self.config.jacobian_weight
        if self.probing == "forward":
            return probed(model, batch, self._vectors, weight)
        # The network gets a copy: it may write into its input, which a leaf of the graph would not allow.
        leaf = y.detach().requires_grad_()
        mean, factor = model(leaf.clone(), s)
        vectors, products = backward_probe(mean, leaf, generator=self.generator)
        return mean, factor, None if products is None else JacobianProbe(vectors, products.float(), weight)

    def _vectors(self, factor: Tensor) -> Float[Tensor, "batch dim"]:
        """Draw vectors to multiply by the Jacobian."""
        return vectors_in_range(factor, self.config.probe_floor, generator=self.generator)

    def _probing(self) -> str | None:
        """Find out how the Jacobian of the denoiser can be had, if at all: forward, or else backward."""
        objective, model = self.objective, self.weights.module
        if not (self.config.jacobian_weight > 0 and objective.centered and objective.function is None):
            return None
        if self.config.probes == "backward":
            return "backward"
        y = self.samples[:2]
        s = y.new_full((len(y),), self.bandwidths.low)
        device = self.samples.device
        was_training = model.training
        try:
            # Evaluating, so that no running statistics change.
            with torch.no_grad(), fused_operations(device):
                mean = denoise_along(
                    lambda point, sigma: model.eval()(point.clone(), sigma)[0], y, s, torch.ones_like(y)
                )[1]
            return None if mean is None else "forward"
        except (RuntimeError, NotImplementedError, TypeError):
            return "backward" if objective.train_mean else None
        finally:
            model.train(was_training)

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
        # Another thread watches over what processes say to each other: it may ask the device meanwhile.
        watched = "global" if self.everyone.size == 1 else "thread_local"
        with torch.cuda.graph(graph, stream=main, capture_error_mode=watched):
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


class Polisher(Stepper):
    """Steps of the factor alone, taught by a denoiser that is done [THEORY §10].

    The target has no noise, and people ask at clean points: a third of those that it is taught at are clean, the others
    have some share of their noise.
    """

    def __init__(self, model: MetricModel, *rest: Any) -> None:
        assert model.mean is not None
        model.mean.requires_grad_(False)
        # Per coordinate, of as many samples as tell.
        self.energy = rest[0][:_N_TYPICAL].square().mean()
        super().__init__(model, *rest)

    def batch(self) -> Perturbation:
        """Draw samples, from clean to noisy."""
        samples, random, device = self.samples, self.generator, self.samples.device
        count = self.everyone.share(self.config.polish_batch)
        bandwidth = self.bandwidths.quantile(stratified_levels(count, generator=random, device=device))
        drawn = samples[torch.randint(len(samples), (count,), generator=random, device=device)]
        levels = torch.rand((count, 2), generator=random, device=device, dtype=samples.dtype)
        share = levels[:, 0].sqrt() * (levels[:, 1] > _CLEAN_SHARE)
        # Where noise in all coordinates is as large as the data, the denoiser has seen nothing like a clean point.
        least = bandwidth.square() / (self.energy + bandwidth.square())
        noisy = perturb(drawn, bandwidth * (least + (1 - least) * share), generator=random)
        return Perturbation(noisy.points, bandwidth, noisy.displacement, drawn)

    def loss(
        self, mean: Tensor | None, factor: Tensor, batch: Perturbation, probe: JacobianProbe | None
    ) -> Float[Tensor, ""]:
        """Compute how far the metric is from the Jacobian."""
        metric, floor = self.objective.above_floor(factor, batch.bandwidth)
        probe = probe_above(probe, floor)
        assert probe is not None
        loss = probe_loss(metric, probe)
        balance = self.objective.balance
        return (loss if balance is None else balance(batch.bandwidth) * loss).mean() / factor.shape[1]


def seconds_per_step(
    model: nn.Module,
    samples: Samples,
    bandwidths: BandwidthDistribution,
    objective: Objective,
    config: TrainingConfig,
    *,
    seconds: float = 1.0,
) -> float:
    """Measure how long a step takes, in some steps that change nothing.

    Args:
        model: The model.
        samples: Its samples.
        bandwidths: The distribution of σ.
        objective: The losses.
        config: The recipe.
        seconds: How long to measure, about.

    Example:
        >>> from carre.matching import LogUniform
        >>> from carre.networks import build_model
        >>> model = build_model(2, 2, width=8, n_blocks=1, spread=1.0)
        >>> config = TrainingConfig(batch_size=8, cuda_graph=False)
        >>> seconds_per_step(model, torch.randn(50, 2), LogUniform(0.1, 1.0), Objective(), config, seconds=0.01) < 10
        True
    """
    generator = torch.Generator(samples.device).manual_seed(config.seed)
    with GlobalDraws(config.seed).in_turn():
        stepper = Stepper(model, samples, bandwidths, objective, config, generator)
        stepper.step(0.0)
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < seconds:
            stepper.step(0.0)
            # Waits for the device.
            stepper.first_bad_step()
            count += 1
    return (time.perf_counter() - start) / count
