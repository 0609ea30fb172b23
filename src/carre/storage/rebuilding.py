"""From a trained model to what is written about it, and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from carre.fitting.models import of_flat_points
from carre.metric import AffineFrame
from carre.networks import FactorNetwork, FilmMLP, FrozenDenoiser, MetricModel, UNet, rebuild_model
from carre.networks.model import BLOCKS
from carre.storage.errors import LoadError

_LONGEST_COMPLAINT = 400


def blueprint(model: nn.Module) -> dict[str, Any]:
    """Say how to build a model again: its architecture, and which argument of `load` has to bring the rest.

    Example:
        >>> blueprint(nn.Linear(2, 3))
        {'architecture': None, 'needs': 'network', 'class': 'Linear'}
    """
    if isinstance(model, MetricModel) and model.architecture is not None:
        return {"architecture": model.architecture, "needs": None, "class": type(model).__name__}
    if isinstance(model, MetricModel) and isinstance(model.mean, FrozenDenoiser):
        architecture = _architecture_of(model.factor)
        if architecture is not None:
            return {"architecture": architecture, "needs": "denoiser", "class": type(model).__name__}
    return {"architecture": None, "needs": "network", "class": type(model).__name__}


def rebuild(
    plan: Mapping[str, Any],
    frame: AffineFrame,
    weights: Mapping[str, Tensor],
    *,
    sample_shape: tuple[int, int, int] | None,
    network: nn.Module | None,
    denoiser: Callable[[Tensor, Tensor], Tensor] | None,
) -> nn.Module:
    """Build a model from its blueprint, in float32, and fill in its weights; every name and shape has to agree.

    Raises:
        LoadError: Something only the user has is missing or too much, or the weights are of another model.
    """
    for name, given in (("network", network), ("denoiser", denoiser)):
        if plan["needs"] == name and given is None:
            raise LoadError(
                f"{name} must be given: this geometry was fitted with a {name} of the user's own (in a "
                f"{plan['class']}), whose code is not stored. Pass it as from_pretrained(..., {name}=...)"
            )
        if plan["needs"] != name and given is not None:
            raise LoadError(f"{name} must be None: this geometry is not one around a {name} of the user's own")
    # The weights that are drawn here do not stay; the caller's random numbers do.
    with torch.random.fork_rng(devices=[]):
        model = copy.deepcopy(network) if network is not None else rebuild_model(plan["architecture"])
    if denoiser is not None and isinstance(model, MetricModel):
        # A model of its own: with this mean it is no longer what its architecture says.
        model = MetricModel(FrozenDenoiser(of_flat_points(denoiser, sample_shape), frame), model.factor)
    model = model.to("cpu", torch.float32)
    try:
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        details = " ".join(line.strip() for line in str(error).splitlines()[1:])
        shorter = details if len(details) <= _LONGEST_COMPLAINT else details[:_LONGEST_COMPLAINT] + " …"
        source = "architecture in config.json" if plan["needs"] is None else f"{plan['needs']} that was given"
        raise LoadError(f"the weights in model.safetensors do not fit the {source}: {shorter}") from error
    return model


def _architecture_of(factor: nn.Module) -> dict[str, Any] | None:
    """Describe a factor network of ours that stands beside a user's denoiser, as a model without a mean."""
    trunk = factor.trunk if isinstance(factor, FactorNetwork) else None
    if not isinstance(factor, FactorNetwork) or not isinstance(trunk, (FilmMLP, UNet)):
        return None
    common = {"rank": factor.rank, "spread": factor.spread, "with_mean": False}
    if isinstance(trunk, UNet):
        shape, settings = list(trunk.sample_shape), trunk.settings.to_dict()
        return {"kind": "unet", "sample_shape": shape, "settings": settings, **common}
    sizes = {"dim": trunk.inlet.in_features, "width": trunk.inlet.out_features, "n_blocks": len(trunk.blocks)}
    block = next(name for name, kind in BLOCKS.items() if kind is type(trunk.blocks[0]))
    return {"kind": "mlp", **sizes, "block": block, **common}
