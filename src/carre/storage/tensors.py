"""The tensors of a geometry by name, in the precision that was asked for, and the model that they fill."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from carre.backend.surroundings import DrawingFrom
from carre.boundary import ArgumentError, is_integer
from carre.fields import NeuralField
from carre.fitting import of_flat_points
from carre.geometry import Geometry
from carre.metric import AffineFrame
from carre.networks import FactorNetwork, FilmMLP, FrozenDenoiser, MetricModel, UNet, rebuild_model
from carre.networks.model import BLOCKS

HALF_PRECISION = {"float16": torch.float16, "bfloat16": torch.bfloat16}
PROFILE_ARRAYS = ("bandwidth", "eigenvalues", "idempotency", "gap", "calibration")
_MODEL = "model."
_LONGEST_COMPLAINT = 400


class LoadError(ValueError):
    """A geometry cannot be loaded. The message says what is wrong with which file, and what to do.

    Example:
        >>> import carre
        >>> carre.load("nowhere")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        carre.storage.tensors.LoadArgumentError: name_or_folder must be the path of an existing folder, ...
        >>> issubclass(carre.storage.tensors.LoadArgumentError, carre.LoadError)
        True
    """


class LoadArgumentError(LoadError, ArgumentError):
    """An argument of `load` does not go with what is there: a name of nothing, a network that is not asked for."""


def learned_field(geometry: Geometry) -> NeuralField:
    """Return the network of a geometry; a geometry around another field has none to store."""
    if not isinstance(geometry.field, NeuralField):
        got = f"one of a {type(geometry.field).__name__}, which is not learned"
        raise ArgumentError("geometry", "be one of a NeuralField, such as a fit returns", got=got)
    return geometry.field


def pack(geometry: Geometry, *, dtype: str | None, n_landmarks: int | None) -> dict[str, Tensor]:
    """Collect the tensors of a geometry: weights and landmarks in half precision if asked, statistics exactly."""
    if dtype is not None and dtype not in HALF_PRECISION:
        raise ArgumentError("dtype", "be None, 'float16' or 'bfloat16'", got=repr(dtype))
    if n_landmarks is not None and not (is_integer(n_landmarks) and n_landmarks >= 1):
        raise ArgumentError("n_landmarks", "be a positive integer, or None for all", got=repr(n_landmarks))
    field = learned_field(geometry)
    frame, landmarks = field.frame, geometry.landmarks[:n_landmarks].detach()
    tensors = {"frame.center": frame.center, "landmarks": landmarks}
    if frame.basis is not None:
        tensors["frame.basis"] = frame.basis
    if dtype is not None:
        inner = landmarks if geometry.units is None else landmarks / geometry.units.to(landmarks)
        tensors["landmarks"] = _narrow(_relative(inner, frame), dtype)
    if geometry.units is not None:
        tensors["units"] = geometry.units
    weights = {name for name, _ in field.model.named_parameters(remove_duplicate=False)}
    for name, value in field.model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ArgumentError(
                "network",
                "keep nothing but tensors in its state_dict to be saved",
                got=f"{type(value).__name__} in {name!r}",
                remedy="Keep it in the constructor of the network, or in a buffer",
            )
        tensors[_MODEL + name] = value if dtype is None or name not in weights else _narrow(value, dtype)
    if geometry.scale_profile is not None:
        arrays = {name: getattr(geometry.scale_profile, name) for name in PROFILE_ARRAYS}
        tensors |= {f"scale_profile.{name}": torch.from_numpy(array.copy()) for name, array in arrays.items()}
    # Tensors of their own: weights may be tied, or be views of one buffer, and live anywhere.
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


def unpack_landmarks(stored: Tensor, frame: AffineFrame, dtype: str, units: Tensor | None = None) -> Tensor:
    """Return landmarks as they were; from half precision, in the units and the dtype that they had."""
    wanted: torch.dtype = getattr(torch, dtype)
    if stored.dtype not in HALF_PRECISION.values():
        return stored.to(wanted)
    inner = frame.center.to(torch.float64) + frame.scale * stored.to(torch.float64)
    return (inner if units is None else inner * units.to(inner)).to(wanted)


def blueprint(model: nn.Module) -> dict[str, Any]:
    """Say how to build a model again: its architecture, and which argument of `load` has to bring the rest.

    Example:
        >>> blueprint(nn.Linear(2, 3))
        {'architecture': None, 'needs': 'network', 'class': 'Linear'}
    """
    architecture: dict[str, Any] | None = None
    needs: str | None = "network"
    if isinstance(model, MetricModel) and model.architecture is not None:
        architecture, needs = model.architecture, None
    elif isinstance(model, MetricModel) and isinstance(model.mean, FrozenDenoiser):
        architecture = _architecture_of(model.factor)
        needs = "network" if architecture is None else "denoiser"
    return {"architecture": architecture, "needs": needs, "class": type(model).__name__}


def rebuild(
    plan: Mapping[str, Any],
    frame: AffineFrame,
    tensors: Mapping[str, Tensor],
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
            must = (
                f"be given: this geometry was fitted with a {name} of the user's own (in a {plan['class']}), whose "
                "code is not stored"
            )
            raise LoadArgumentError(name, must, remedy=f"Pass it as load(..., {name}=...)")
        if plan["needs"] != name and given is not None:
            raise LoadArgumentError(name, f"be None: this geometry is not one around a {name} of the user's own")
    # The weights that are drawn here do not stay; the caller's random numbers do.
    with DrawingFrom(torch.Generator()):
        model = copy.deepcopy(network) if network is not None else rebuild_model(plan["architecture"])
    if denoiser is not None and isinstance(model, MetricModel):
        # A model of its own: with this mean it is no longer what its architecture says.
        model = MetricModel(FrozenDenoiser(of_flat_points(denoiser, sample_shape), frame), model.factor)
    model = model.to("cpu", torch.float32)
    weights = {name.removeprefix(_MODEL): value for name, value in tensors.items() if name.startswith(_MODEL)}
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


def _relative(landmarks: Tensor, frame: AffineFrame) -> Tensor:
    """Take landmarks relative to the frame: far from the origin, half precision would not tell them apart."""
    return (landmarks.to("cpu", torch.float64) - frame.center.to(torch.float64)) / frame.scale


def _narrow(value: Tensor, dtype: str) -> Tensor:
    """Round to half precision; integers stay, and what would become infinite is refused."""
    if not value.is_floating_point():
        return value
    narrow, largest = HALF_PRECISION[dtype], float(value.abs().amax()) if value.numel() else 0.0
    if largest > torch.finfo(narrow).max:
        raise ArgumentError("dtype", f"be 'bfloat16' or None here: {largest:.3g} is beyond the range of {dtype}")
    return value.to(narrow)
