"""The weights of a model in training: their update, and their moving average."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend.modes import are_available
from carre.backend.processes import ALONE, Together
from carre.boundary import ArgumentError
from carre.training.config import TrainingConfig

# What checkpoints call the memory of AdamW, and what torch does.
_MEMORY = {"first": "exp_avg", "second": "exp_avg_sq", "count": "step"}


class Notes(NamedTuple):
    """What processes tell each other beside their gradients, as numbers: their sum is what all hear.

    Attributes:
        stop: Whether this one is to stop.
        overdue: Whether the first one should write.
        seconds: How long the first one has been training.
    """

    stop: float = 0.0
    overdue: float = 0.0
    seconds: float = 0.0


class Weights(ABC):
    """What a step needs: a module to differentiate, and a way to apply its gradients.

    Gradients are clipped to norm ``clip_norm`` in groups, one for each child of the model: the mean and the
    factor separately. A step whose loss or gradient is not finite changes nothing.

    Attributes:
        module: The module that a step computes with; its weights may be rounded.
        averaged: A copy of the model that holds the moving average.
    """

    def __init__(
        self, model: nn.Module, config: TrainingConfig, everyone: Together = ALONE, *, rounded: bool = False
    ) -> None:
        self.model, self.config, self.everyone = model, config, everyone
        self.module = copy.deepcopy(model) if rounded else model
        self.averaged = copy.deepcopy(model).requires_grad_(False).eval()
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
        self.groups = _parameter_groups(model)
        # Where they are always the same: a captured step keeps their addresses.
        self._told = torch.zeros(len(Notes._fields), device=self.groups[0][0].device)
        self._heard = torch.zeros_like(self._told)

    def tell(self, notes: Notes) -> None:
        """Say what the next steps tell the other processes."""
        self._told.copy_(torch.tensor(notes))

    def hear(self) -> Notes:
        """Return what all processes told in the last step, as sums. Waits for the device."""
        return Notes(*self._heard.tolist())

    def _averaged(
        self, loss: Float[Tensor, ""], gradients: Sequence[Tensor | None]
    ) -> tuple[Float[Tensor, ""], Sequence[Tensor | None]]:
        """Take the mean of loss and gradients over all processes, whose batches are of one size, in one operation."""
        if self.everyone.size == 1:
            return loss, gradients
        parts = [part for part in (*gradients, loss.detach()) if part is not None]
        flat = torch.cat([*(part.reshape(-1) for part in parts), self._told])
        self.everyone.add_(flat)
        sums, heard = flat[: -len(self._told)], flat[-len(self._told) :]
        self._heard.copy_(heard)
        means = torch.split(sums.div_(self.everyone.size), [part.numel() for part in parts])
        *present, mean_loss = (mean.to(part.dtype).view(part.shape) for mean, part in zip(means, parts, strict=True))
        found = iter(present)
        return mean_loss, [None if gradient is None else next(found) for gradient in gradients]

    @abstractmethod
    def update(self, loss: Float[Tensor, ""], rate: Float[Tensor, ""], pull: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Take one step down the gradient of the loss; return a number that is finite if all went well."""

    def state(self) -> dict[str, Tensor]:
        """Return weights, averages, buffers and the optimizer's memory by name, the same for every kind; not copied."""
        return dict(self._named())

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state, in place: a captured step keeps its addresses."""
        self._make_room(state)
        for name, value in self._named():
            value.copy_(state[name])
        for rounded, weight in zip(self.module.parameters(), self.model.parameters(), strict=True):
            rounded.copy_(weight)

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from ((f"weights.{name}", value.detach()) for name, value in self.model.named_parameters())
        yield from ((f"averages.{name}", value) for name, value in self.averaged.named_parameters())
        # Running statistics are those of the module that steps compute with.
        yield from ((f"buffers.{name}", value) for name, value in self.module.named_buffers())
        yield from self._memories()

    @abstractmethod
    def _memories(self) -> Iterator[tuple[str, Tensor]]:
        """Go through what the optimizer remembers of each parameter that takes part: two moments and a count."""

    @abstractmethod
    def _make_room(self, state: Mapping[str, Tensor]) -> None:
        """Have memory for those parameters that a state has memory of, where no step has been taken yet."""

    def _counterparts(self, copied: nn.Module, parameters: list[Tensor]) -> list[Tensor]:
        """Find the parameters of a copy of the model that correspond to some of the model's own."""
        others = dict(copied.named_parameters())
        return [others[self.names[p]] for p in parameters]


def prepare_weights(
    model: nn.Module, config: TrainingConfig, device: torch.device, everyone: Together = ALONE
) -> Weights:
    """Choose how weights are kept: flat buffers and one fused operation on a GPU, PyTorch's own optimizer elsewhere."""
    if not any(p.requires_grad for p in model.parameters()):
        raise ArgumentError("model", "have trainable parameters; call model.requires_grad_(True) first")
    kinds = {(p.dtype, p.device.type) for p in model.parameters() if p.requires_grad}
    if are_available(device) and kinds == {(torch.float32, "cuda")}:
        return FlatWeights(model, config, everyone)
    return ListedWeights(model, config, everyone)


class ListedWeights(Weights):
    """One tensor per weight, PyTorch's fused AdamW, and a list of averages."""

    def __init__(self, model: nn.Module, config: TrainingConfig, everyone: Together = ALONE) -> None:
        super().__init__(model, config, everyone)
        self.parameters: list[Tensor] = [p for group in self.groups for p in group]
        self.averages = self._counterparts(self.averaged, self.parameters)
        on_gpu = self.parameters[0].is_cuda
        self.optimizers = [
            torch.optim.AdamW(
                group,
                lr=torch.tensor(0.0, device=group[0].device) if on_gpu else 0.0,
                betas=config.betas,
                weight_decay=config.weight_decay,
                fused=True,
                capturable=on_gpu,
            )
            for group in self.groups
        ]
        pairs = zip(self.optimizers, self.groups, strict=True)
        self.memory = {self.names[p]: optimizer.state[p] for optimizer, group in pairs for p in group}

    def update(self, loss: Float[Tensor, ""], rate: Float[Tensor, ""], pull: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Take one step down the gradient of the loss; return a number that is finite if all went well."""
        # A parameter that took no part has no gradient, and stays as it is.
        loss, gradients = self._averaged(loss, torch.autograd.grad(loss, self.parameters, allow_unused=True))
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        present = [[p.grad for p in group if p.grad is not None] for group in self.groups]
        norms = [nn.utils.get_total_norm(gradients) for gradients in present]
        total = sum(norms, loss.detach())
        bad = (~torch.isfinite(total)).float()
        # The flags of loss scaling do the rest inside the fused optimizer: gradients are divided by the first, so
        # that their norm is at most `clip_norm`, and nothing changes where the second is set.
        for optimizer, norm in zip(self.optimizers, norms, strict=True):
            group = optimizer.param_groups[0]
            # A captured step reads the rate from the device.
            group["lr"] = group["lr"].copy_(rate) if isinstance(group["lr"], Tensor) else float(rate)
            optimizer.grad_scale = (norm / self.config.clip_norm).clamp_min(1).float()  # type: ignore[attr-defined]
            optimizer.found_inf = bad  # type: ignore[attr-defined]
            optimizer.step()
        # Without a graph: it would grow by every step, and hold itself in memory for good.
        with torch.no_grad():
            difference = torch._foreach_sub(self.parameters, self.averages)
            torch._foreach_mul_(difference, pull * (1 - bad))
            torch._foreach_add_(self.averages, difference)
        return total

    def _memories(self) -> Iterator[tuple[str, Tensor]]:
        for name, memory in self.memory.items():
            yield from ((f"{kind}.{name}", memory[key]) for kind, key in _MEMORY.items() if key in memory)

    def _make_room(self, state: Mapping[str, Tensor]) -> None:
        for parameter in self.parameters:
            memory, count = self.memory[self.names[parameter]], state.get(f"count.{self.names[parameter]}")
            if count is not None and not memory:
                # As torch makes them: moments lie in memory like their parameter, the count is one number.
                memory["step"] = torch.empty((), dtype=count.dtype, device=parameter.device)
                memory["exp_avg"], memory["exp_avg_sq"] = torch.empty_like(parameter), torch.empty_like(parameter)


class FlatWeights(Weights):
    """All weights of a group in one buffer, of which the model's parameters are views; one operation updates it.

    PyTorch's operations on lists of tensors cut six million weights into a hundred pieces, fewer than a GPU has
    processors; the flat update is six times as fast. With mixed precision the step computes with a copy in
    bfloat16, which the same operation writes, and the weights themselves stay in float32.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, everyone: Together = ALONE) -> None:
        super().__init__(model, config, everyone, rounded=config.mixed_precision)
        self.leaves = [self._counterparts(self.module, group) for group in self.groups]
        # Filled at the first gradient, which shows what takes part.
        self.values: list[Tensor] = []
        self.moments: list[tuple[Tensor, Tensor]] = []
        self.n_steps = torch.zeros((), device=self.groups[0][0].device)

    def _lay_out(self, takes_part: list[bool]) -> None:
        """Move the weights that have a gradient into flat buffers; the others stay as they are."""
        flags = iter(takes_part)
        kept = [[p for p in group if next(flags)] for group in self.groups]
        self.groups = [group for group in kept if group]
        self.leaves = [self._counterparts(self.module, group) for group in self.groups]
        self.values = [_flatten(group) for group in self.groups]
        self.averages = [_flatten(self._counterparts(self.averaged, group)) for group in self.groups]
        rounded = self.config.mixed_precision
        self.working = [_flatten(group, torch.bfloat16) if rounded else None for group in self.leaves]
        self.moments = [(torch.zeros_like(v), torch.zeros_like(v)) for v in self.values]

    def update(self, loss: Float[Tensor, ""], rate: Float[Tensor, ""], pull: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Take one step down the gradient of the loss; return a number that is finite if all went well."""
        from carre.backend.triton_training import averaged_adamw  # noqa: PLC0415  (needs Triton)

        config = self.config
        leaves = [leaf for group in self.leaves for leaf in group]
        loss, found = self._averaged(loss, torch.autograd.grad(loss, leaves, allow_unused=True))
        if not self.values:
            self._lay_out([gradient is not None for gradient in found])
        gradients = iter([gradient.reshape(-1) for gradient in found if gradient is not None])
        flat = [torch.cat([next(gradients) for _ in group]) for group in self.leaves]
        norms = [torch.linalg.vector_norm(part, dtype=torch.float32) for part in flat]
        total = sum(norms, loss.detach())
        self.n_steps += 1
        shared: dict[str, Any] = {"rate": rate, "pull": pull, "total": total, "n_steps": self.n_steps}
        shared |= {"clip_norm": config.clip_norm, "decay": config.weight_decay, "betas": config.betas}
        for i, part in enumerate(flat):
            buffers = self.values[i], part, *self.moments[i], self.averages[i]
            averaged_adamw(*buffers, self.working[i], norm=norms[i], **shared)
        return total

    def _memories(self) -> Iterator[tuple[str, Tensor]]:
        for group, moments in zip(self.groups, self.moments, strict=bool(self.values)):
            sizes = [p.numel() for p in group]
            for p, first, second in zip(group, *(torch.split(moment, sizes) for moment in moments), strict=True):
                yield f"first.{self.names[p]}", first.view_as(p)
                yield f"second.{self.names[p]}", second.view_as(p)
                yield f"count.{self.names[p]}", self.n_steps

    def _make_room(self, state: Mapping[str, Tensor]) -> None:
        if not self.values:
            self._lay_out([f"first.{self.names[p]}" in state for group in self.groups for p in group])


def _parameter_groups(model: nn.Module) -> list[list[Tensor]]:
    """Split the trainable parameters by child module: each child's gradient is clipped by itself."""
    groups: list[list[Tensor]] = []
    seen: set[Tensor] = set()
    for part in [*model.children(), model]:
        groups.append([p for p in part.parameters() if p.requires_grad and p not in seen])
        seen.update(groups[-1])
    return [group for group in groups if group]


def _flatten(parameters: list[Tensor], dtype: torch.dtype | None = None) -> Float[Tensor, " total"]:
    """Move parameters into one buffer, of which they become views."""
    flat = torch.cat([p.detach().reshape(-1) for p in parameters]).to(dtype)
    start = 0
    for parameter in parameters:
        parameter.data = flat[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return flat
