"""One optimizer step, on a CPU or as a CUDA graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.matching import BandwidthDistribution, Perturbation, perturb, perturb_among
from carre.matching.bandwidths import stratified_levels
from carre.training.config import TrainingConfig
from carre.training.objective import Objective

_GRAPH_WARMUP = 3


class Stepper:
    """Draws a batch, takes a gradient step, and averages the weights.

    A step whose loss or gradient is not finite changes nothing: the fused optimizer skips it by the
    flag that loss scaling uses, and the first such step is remembered on the device, so that a GPU
    need not be asked after every step.
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
        self.averaged = copy.deepcopy(model).requires_grad_(False).eval()
        model.train()
        self.groups = _parameter_groups(model)
        self.parameters: list[Tensor] = [p for group in self.groups for p in group]
        names = {id(p): name for name, p in model.named_parameters()}
        shadow = dict(self.averaged.named_parameters())
        self.averages: list[Tensor] = [shadow[names[id(p)]] for p in self.parameters]
        device = samples.device
        self.on_gpu = device.type == "cuda"
        rate: Tensor | float = torch.tensor(0.0, device=device) if self.on_gpu else 0.0
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=self.on_gpu,
        )
        self.is_bad = torch.zeros((), device=device)
        self.bad_step = torch.full((), -1, device=device, dtype=torch.long)
        self.counter = torch.zeros((), device=device, dtype=torch.long)
        self.pull = torch.zeros((), device=device)
        self.n_steps = 0
        self.graph = self._capture() if self.on_gpu and config.cuda_graph else None

    def step(self, learning_rate: float) -> None:
        """Take one step."""
        # The average forgets its beginning at once and then ever more slowly, up to the configured decay.
        self.pull.fill_(1 - min(self.config.averaging, (1 + self.n_steps) / (10 + self.n_steps)))
        self.n_steps += 1
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        if self.graph is None:
            self._run()
        else:
            self.graph.replay()

    def average(self) -> nn.Module:
        """Return the model with averaged weights, and the buffers (running statistics) as they are now."""
        for mine, its in zip(self.averaged.buffers(), self.model.buffers(), strict=True):
            mine.copy_(its)
        return self.averaged

    def first_bad_step(self) -> int | None:
        """Return the first step that was not finite, if any. Waits for the device."""
        step = int(self.bad_step)
        return step if step >= 0 else None

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

    def _run(self) -> None:
        """Compute the losses of a batch, step, and average."""
        batch = self.batch()
        with _fast_products(self.samples.device):
            with torch.autocast(self.samples.device.type, torch.bfloat16, enabled=self.config.mixed_precision):
                mean, factor = self.model(batch.points, batch.bandwidth)
            mean_loss, metric_loss = self.objective.losses(mean, factor, batch)
            loss = (mean_loss + metric_loss).mean()
            self.optimizer.zero_grad(set_to_none=not self.on_gpu)
            loss.backward()  # type: ignore[no-untyped-call]
        norms = [nn.utils.clip_grad_norm_(group, self.config.clip_norm) for group in self.groups]
        finite = torch.isfinite(loss.detach() + sum(norms))
        self.is_bad.copy_((~finite).float())
        self.bad_step.copy_(torch.where((self.bad_step < 0) & ~finite, self.counter, self.bad_step))
        self.counter += 1
        self.optimizer.found_inf = self.is_bad  # type: ignore[attr-defined]
        self.optimizer.step()
        difference = torch._foreach_sub(self.parameters, self.averages)
        torch._foreach_mul_(difference, self.pull)
        torch._foreach_add_(self.averages, difference)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record the step once; the warm-up that this needs runs at learning rate zero."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_GRAPH_WARMUP):
                self._run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=side):
            self._run()
        self.counter.zero_()
        return graph


def _parameter_groups(model: nn.Module) -> list[list[nn.Parameter]]:
    """Split the trainable parameters by child module: each child's gradient is clipped by itself."""
    groups, seen = [], set()
    for part in [*model.children(), model]:
        group = [p for p in part.parameters() if p.requires_grad and id(p) not in seen]
        seen |= {id(p) for p in group}
        groups.append(group)
    if not seen:
        raise ValueError("model must have trainable parameters; call model.requires_grad_(True) first")
    return [group for group in groups if group]


@contextmanager
def _fast_products(device: torch.device) -> Iterator[None]:
    """Let a GPU round the inputs of float32 products to TF32 while stepping; restore the caller's choice."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
