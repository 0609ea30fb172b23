"""The weights of a model in training: their update, and their moving average."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend import are_available
from carre.training.config import TrainingConfig

# What checkpoints call the memory of AdamW, and what torch does.
_MEMORY = {"first": "exp_avg", "second": "exp_avg_sq", "count": "step"}


@runtime_checkable
class Weights(Protocol):
    """What a step needs: a module to differentiate, and a way to apply its gradients.

    Gradients are clipped to norm ``clip_norm`` in groups, one for each child of the model: the mean and the
    factor separately. A step whose loss or gradient is not finite changes nothing.

    Attributes:
        module: The module that a step computes with; its weights may be rounded.
        averaged: A copy of the model that holds the moving average.
    """

    module: nn.Module
    averaged: nn.Module

    def update(self, loss: Float[Tensor, ""], rate: Float[Tensor, ""], pull: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Take one step down the gradient of the loss; return a number that is finite if all went well."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return weights, averages, buffers and the optimizer's memory by name, the same for every kind; not copied."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state, in place: a captured step keeps its addresses."""
        ...


def prepare_weights(model: nn.Module, config: TrainingConfig, device: torch.device) -> Weights:
    """Choose how weights are kept: flat buffers and one kernel on a GPU, PyTorch's own optimizer elsewhere."""
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("model must have trainable parameters; call model.requires_grad_(True) first")
    kinds = {(p.dtype, p.device.type) for p in model.parameters() if p.requires_grad}
    if are_available(device) and kinds == {(torch.float32, "cuda")}:
        return FlatWeights(model, config)
    return ListedWeights(model, config)


class ListedWeights:
    """One tensor per weight, PyTorch's fused AdamW, and a list of averages."""

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        self.module, self.config = model, config
        self.averaged = _average_of(model)
        self.groups = _parameter_groups(model)
        self.parameters: list[Tensor] = [p for group in self.groups for p in group]
        self.averages: list[Tensor] = _counterparts(model, self.averaged, self.parameters)
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

    def update(self, loss: Float[Tensor, ""], rate: Float[Tensor, ""], pull: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Take one step down the gradient of the loss; return a number that is finite if all went well."""
        # A parameter that took no part has no gradient, and stays as it is.
        for parameter, gradient in zip(self.parameters, _gradients(loss, self.parameters), strict=True):
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
            optimizer.grad_scale = (norm / self.config.clip_norm).clamp_min(1)  # type: ignore[attr-defined]
            optimizer.found_inf = bad  # type: ignore[attr-defined]
            optimizer.step()
        difference = torch._foreach_sub(self.parameters, self.averages)
        torch._foreach_mul_(difference, pull * (1 - bad))
        torch._foreach_add_(self.averages, difference)
        return total

    def state(self) -> dict[str, Tensor]:
        """Return weights, averages, buffers and the optimizer's memory by name."""
        found = _values_of(self.module, self.averaged, self.module)
        for name, memory in self._memories():
            found |= {f"{kind}.{name}": memory[key] for kind, key in _MEMORY.items() if key in memory}
        return found

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state, in place."""
        _fill(self.module, self.averaged, self.module, state)
        parameters = dict(self.module.named_parameters())
        for name, memory in self._memories():
            for kind, key in _MEMORY.items():
                # Where nothing was stored the parameter has taken no part yet.
                if f"{kind}.{name}" in state:
                    value, like = state[f"{kind}.{name}"], parameters[name]
                    if key not in memory:
                        # As torch makes them: moments lie in memory like their parameter, the count is one number.
                        memory[key] = torch.empty_like(value if kind == "count" else like, device=like.device)
                    memory[key].copy_(value)

    def _memories(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Go through what the optimizers remember of each parameter."""
        names = _names(self.module)
        for optimizer, group in zip(self.optimizers, self.groups, strict=True):
            yield from ((names[id(p)], optimizer.state[p]) for p in group)


class FlatWeights:
    """All weights of a group in one buffer, of which the model's parameters are views; one kernel updates it.

    PyTorch's multi-tensor kernels cut six million weights into a hundred pieces, fewer than a GPU has
    processors; the flat update is six times as fast. With mixed precision the step computes with a copy in
    bfloat16, which the same kernel writes, and the weights themselves stay in float32.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        from carre.backend.adam import averaged_adamw  # noqa: PLC0415  (needs Triton)

        self._kernel, self.config, self.model = averaged_adamw, config, model
        self.averaged = _average_of(model)
        self.module = copy.deepcopy(model) if config.mixed_precision else model
        self.groups = _parameter_groups(model)
        self.leaves = [_counterparts(model, self.module, group) for group in self.groups]
        self.values: list[Tensor] = []
        self.n_steps = torch.zeros((), device=self.groups[0][0].device)

    def _lay_out(self, takes_part: list[bool]) -> None:
        """Move the weights that have a gradient into flat buffers; the others stay as they are."""
        flags = iter(takes_part)
        kept = [[i for i in range(len(group)) if next(flags)] for group in self.groups]
        self.groups = [[group[i] for i in places] for group, places in zip(self.groups, kept, strict=True) if places]
        self.leaves = [[group[i] for i in places] for group, places in zip(self.leaves, kept, strict=True) if places]
        self.values = [_flatten(group) for group in self.groups]
        self.averages = [_flatten(_counterparts(self.model, self.averaged, group)) for group in self.groups]
        rounded = self.config.mixed_precision
        self.working = [_flatten(group, torch.bfloat16) if rounded else None for group in self.leaves]
        self.moments = [(torch.zeros_like(v), torch.zeros_like(v)) for v in self.values]

    def update(self, loss: Float[Tensor, ""], rate: Float[Tensor, ""], pull: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Take one step down the gradient of the loss; return a number that is finite if all went well."""
        found = _gradients(loss, [leaf for group in self.leaves for leaf in group])
        if not self.values:
            self._lay_out([gradient is not None for gradient in found])
        gradients, flat = iter([gradient for gradient in found if gradient is not None]), []
        for group in self.leaves:
            flat.append(torch.cat([next(gradients).reshape(-1) for _ in group]))
        norms = [torch.linalg.vector_norm(part, dtype=torch.float32) for part in flat]
        total = sum(norms, loss.detach())
        self.n_steps += 1
        for i, part in enumerate(flat):
            self._kernel(
                self.values[i],
                part,
                *self.moments[i],
                self.averages[i],
                self.working[i],
                norm=norms[i],
                rate=rate,
                pull=pull,
                total=total,
                n_steps=self.n_steps,
                clip_norm=self.config.clip_norm,
                decay=self.config.weight_decay,
                betas=self.config.betas,
            )
        return total

    def state(self) -> dict[str, Tensor]:
        """Return weights, averages, buffers and the optimizer's memory by name."""
        found = _values_of(self.model, self.averaged, self.module)
        for name, first, second in self._memories():
            found |= {f"first.{name}": first, f"second.{name}": second, f"count.{name}": self.n_steps}
        return found

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state, in place; before the first gradient the state says which weights take part."""
        names = _names(self.model)
        if not self.values:
            self._lay_out([f"first.{names[id(p)]}" in state for group in self.groups for p in group])
        _fill(self.model, self.averaged, self.module, state)
        for name, first, second in self._memories():
            first.copy_(state[f"first.{name}"])
            second.copy_(state[f"second.{name}"])
            self.n_steps.copy_(state[f"count.{name}"])

    def _memories(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Go through the moments of each parameter, as views of the flat buffers."""
        names = _names(self.model)
        for group, moments in zip(self.groups, self.moments if self.values else (), strict=True):
            sizes = [p.numel() for p in group]
            for p, first, second in zip(group, *(torch.split(moment, sizes) for moment in moments), strict=True):
                yield names[id(p)], first.view_as(p), second.view_as(p)


def _values_of(model: nn.Module, averaged: nn.Module, module: nn.Module) -> dict[str, Tensor]:
    """Name the weights, their averages, and the buffers, which are those of the module that steps compute with."""
    found = {f"weights.{name}": value.detach() for name, value in model.named_parameters()}
    found |= {f"averages.{name}": value for name, value in averaged.named_parameters()}
    return found | {f"buffers.{name}": value for name, value in module.named_buffers()}


def _fill(model: nn.Module, averaged: nn.Module, module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Write values into a model, its average and its working copy."""
    for kind, target in (("weights", model), ("weights", module), ("averages", averaged)):
        for name, value in target.named_parameters():
            value.copy_(state[f"{kind}.{name}"])
    for name, buffer in module.named_buffers():
        buffer.copy_(state[f"buffers.{name}"])


def _names(model: nn.Module) -> dict[int, str]:
    return {id(p): name for name, p in model.named_parameters()}


def _average_of(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).requires_grad_(False).eval()


def _parameter_groups(model: nn.Module) -> list[list[Tensor]]:
    """Split the trainable parameters by child module: each child's gradient is clipped by itself."""
    groups: list[list[Tensor]] = []
    seen: set[int] = set()
    for part in [*model.children(), model]:
        group: list[Tensor] = [p for p in part.parameters() if p.requires_grad and id(p) not in seen]
        seen |= {id(p) for p in group}
        groups.append(group)
    return [group for group in groups if group]


def _counterparts(model: nn.Module, other: nn.Module, parameters: list[Tensor]) -> list[Tensor]:
    """Find the parameters of a copy of the model that correspond to some of the model's own."""
    names = _names(model)
    others = dict(other.named_parameters())
    return [others[names[id(p)]] for p in parameters]


def _flatten(parameters: list[Tensor], dtype: torch.dtype | None = None) -> Float[Tensor, " total"]:
    """Move parameters into one buffer, of which they become views."""
    flat = torch.cat([p.detach().reshape(-1) for p in parameters]).to(dtype)
    start = 0
    for parameter in parameters:
        parameter.data = flat[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return flat


def _gradients(loss: Float[Tensor, ""], parameters: list[Tensor]) -> list[Tensor | None]:
    """Compute the gradients; None for a parameter that took no part."""
    return list(torch.autograd.grad(loss, parameters, allow_unused=True))
