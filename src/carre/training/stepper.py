"""One optimizer step, on a CPU or as a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend import fused_kernels
from carre.matching import BandwidthDistribution, Perturbation, perturb, perturb_among, probe_jacobian
from carre.matching.bandwidths import stratified_levels
from carre.training.config import TrainingConfig
from carre.training.objective import Objective
from carre.training.weights import prepare_weights

_GRAPH_WARMUP = 3


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
        config, samples, device = self.config, self.samples, self.samples.device
        bandwidth = self.bandwidths.quantile(
            stratified_levels(config.batch_size, generator=self.generator, device=device)
        )
        if config.n_references == 0:
            chosen = torch.randint(len(samples), (config.batch_size,), generator=self.generator, device=device)
            return perturb(samples[chosen], bandwidth, generator=self.generator)
        references, source = samples, torch.arange(config.batch_size, device=device)
        if config.n_references < len(samples):
            size = (max(config.n_references, config.batch_size),)
            references = samples[torch.randint(len(samples), size, generator=self.generator, device=device)]
        else:
            source = torch.randint(len(samples), (config.batch_size,), generator=self.generator, device=device)
        return perturb_among(references, source, bandwidth, n_draws=config.n_draws, generator=self.generator)

    def _run(self, batch: Perturbation) -> None:
        """Compute the losses of a batch, step, and average."""
        device = self.samples.device
        weight = self.config.jacobian_weight
        follows_denoiser = weight > 0 and self.objective.train_mean and self.objective.centered
        # The network gets a copy: it may write into its input, which a leaf of the graph would not allow.
        leaf = batch.points.detach().requires_grad_(follows_denoiser)
        points = leaf.clone() if follows_denoiser else leaf
        with _fast_products(device), fused_kernels(device):
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
