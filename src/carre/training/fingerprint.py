"""What a run was told, by name: two runs that were told the same are the same run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from carre.matching import BandwidthDistribution
from carre.training.config import TrainingConfig
from carre.training.objective import Objective

# Replaying a step or not gives the same numbers.
_WITHOUT_EFFECT = ("cuda_graph",)
# What comes from the samples may be rounded otherwise by another version of torch.
_TOLERANCE = 1e-6
_BYTES_AT_ONCE = 2**24


def fingerprint(
    model: nn.Module, bandwidths: BandwidthDistribution, objective: Objective, config: TrainingConfig, device: str
) -> dict[str, Any]:
    """Write down what a run was told, all but the samples, as plain values.

    The code of a network, a function or a denoiser of the user's own is known by its name only.

    Example:
        >>> from carre.matching import LogUniform
        >>> facts = fingerprint(nn.Linear(2, 3), LogUniform(0.1, 1.0), Objective(), TrainingConfig(seed=7), "cpu")
        >>> facts["bandwidth_range"], facts["seed"]
        ([0.1, 1.0], 7)

    Raises:
        ValueError: The network keeps something else than tensors, which a checkpoint cannot hold.
    """
    function = objective.function
    losses = {name: value for name, value in vars(objective).items() if name not in ("function", "balance")}
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _WITHOUT_EFFECT}
    return {
        "bandwidth_law": type(bandwidths).__name__,
        "bandwidth_range": [bandwidths.low, bandwidths.high],
        **losses,
        "weights_of_scales": None if objective.balance is None else objective.balance.between(bandwidths),
        "function": None if function is None else _name(function),
        **settings,
        "device": device,
        "network": _network(model),
    }


def digest(*tensors: Tensor) -> str:
    """Hash tensors, with their shapes and dtypes.

    Example:
        >>> digest(torch.zeros(2)) == digest(torch.zeros(2)) != digest(torch.zeros(2, 1))
        True
    """
    found = hashlib.sha256()
    for tensor in tensors:
        update_digest(found, tensor)
    return found.hexdigest()


def update_digest(found: Any, tensor: Tensor) -> None:
    """Go on with a tensor, some of it at a time: a copy of all of it may not fit."""
    found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    for part in torch.split(tensor.detach().reshape(-1), _BYTES_AT_ONCE // tensor.element_size()):
        found.update(part.cpu().contiguous().view(torch.uint8).numpy())


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Say what differs, by name; numbers may be rounded.

    Example:
        >>> compare({"max_steps": 100, "seed": 0}, {"max_steps": 200, "seed": 0})
        {'max_steps': 'max_steps (100 there, 200 here)'}
    """
    plain = json.loads(json.dumps(dict(now)))
    names = [*plain, *(name for name in before if name not in plain)]
    return {
        name: f"{name} ({before.get(name)} there, {plain.get(name)} here)"
        for name in names
        if not _agree(before.get(name), plain.get(name))
    }


def _agree(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=_TOLERANCE)
    return bool(one == other)


def _network(model: nn.Module) -> str:
    """Name a network by the shapes of its weights: their values are in the file."""
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"network must keep nothing but tensors in its state_dict for a checkpoint; got {type(value).__name__} "
                f"in {name!r}. Keep it in the constructor of the network, or in a buffer"
            )
    found = [(name, *value.shape) for name, value in [*model.named_parameters(), *model.named_buffers()]]
    count = sum(value.numel() for value in model.parameters())
    short = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:8]
    return f"{type(model).__name__} of {count:,} weights ({short})"


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
