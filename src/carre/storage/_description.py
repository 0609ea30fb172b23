"""config.json: everything about a geometry that is not a tensor, written in strict JSON and read with suspicion."""

from __future__ import annotations

import dataclasses
import inspect
import math
import platform
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from carre import __version__
from carre.data import Normalization
from carre.fields import NeuralField
from carre.fitting import fit
from carre.geometry import Geometry
from carre.metric import AffineFrame
from carre.networks import UNetSettings
from carre.storage.tensors import PROFILE_ARRAYS, LoadError, blueprint, learned_field, rebuild, unpack_landmarks
from carre.toolkit import NoiseEstimate, ScaleProfile
from carre.training import Evaluation, History

FORMAT, FORMAT_VERSION = "carre", 1
# The first release saved its estimator.
_KIND, _KINDS = "Geometry", ("Geometry", "MetricMatching")
# Where other libraries say what they have written.
_FOREIGN = ("format", "library_name", "model_type", "_class_name", "architectures")
# What earlier versions of carre.fit could be told.
_REMOVED = ("patience",)
_SECTIONS = ("class", "parameters", "model", "fitted", "field", "history", "scale_profile", "landmarks", "weights")
# What is called there as it is here.
_FITTED = ("bandwidth", "bandwidth_range", "supported_from", "is_centered", "rank", "sample_shape", "n_samples")
_FIELD = ("ridge", "noise", "mixed_precision")
# They are given again at loading: code is not stored, and neither a device nor a file is part of a geometry.
_NOT_STORED = ("device", "denoiser", "checkpoint")
_REMEDY = "Write what was there before, or copy the folder again"


def describe(geometry: Geometry, *, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Write down a geometry, all but its tensors.

    Args:
        geometry: The geometry.
        weights: What to say about the file of the tensors.
    """
    field, profile, normalization = learned_field(geometry), geometry.scale_profile, geometry.normalization
    versions = {"carre": __version__, "torch": str(torch.__version__), "numpy": np.__version__}
    told = {name: value for name, value in geometry.parameters.items() if name not in _NOT_STORED}
    fitted = {name: getattr(geometry, name) for name in _FITTED}
    fitted |= {"n_features_in": geometry.dim, "feature_names_in": geometry.feature_names}
    fitted["concerns"] = geometry.concerns
    fitted["noise_estimate"] = dataclasses.asdict(geometry.noise_estimate)
    fitted["normalization"] = None if normalization is None else normalization.to_dict()
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "class": _KIND,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions, "python": platform.python_version()},
        "parameters": plain_only(told),
        "model": encode(blueprint(field.model)),
        "fitted": encode(fitted),
        "field": encode({"scale": field.frame.scale, **{name: getattr(field, name) for name in _FIELD}}),
        "history": encode(dataclasses.asdict(geometry.history)),
        "scale_profile": None if profile is None else encode({"chosen": profile.chosen, "reason": profile.reason}),
        "landmarks": {"dtype": str(geometry.landmarks.dtype).removeprefix("torch.")},
        "weights": dict(weights),
    }


def check(config: Any) -> None:
    """Refuse what is not a description of a geometry, or was written by a later version."""
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        kinds = [] if not isinstance(config, dict) else [name for name in _FOREIGN if name in config]
        hint = "".join(f" ({name} {config[name]!r})" for name in kinds[:1])
        raise LoadError(f"config.json must describe a geometry of carre; this is one of something else{hint}")
    version = config.get("format_version")
    if not isinstance(version, int):
        raise LoadError(
            f"config.json must have a whole number 'format_version'; got {version!r}. Copy the folder again"
        )
    if version > FORMAT_VERSION:
        written = config.get("versions")
        by = f" by carre {written['carre']}" if isinstance(written, dict) and "carre" in written else ""
        raise LoadError(
            f"this geometry was written{by} in format {version}; carre {__version__} reads up to format "
            f"{FORMAT_VERSION}. Upgrade carre"
        )
    missing = [name for name in _SECTIONS if name not in config]
    if missing:
        raise LoadError(f"config.json must have {', '.join(map(repr, missing))}; it was cut or edited. Copy it again")
    kind = config["class"]
    if kind not in _KINDS:
        raise LoadError(f"this folder holds a {kind}, not a {_KIND}; load it with {kind}")


def understand(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    device: torch.device,
    network: nn.Module | None = None,
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Geometry:
    """Make a geometry from its description and its tensors.

    Raises:
        LoadError: A value is missing, makes no sense, or does not go with the others.
    """
    try:
        # The first release did not look at columns, nor for noise.
        center, numbers = tensors["frame.center"], {"noise": 0.0, **decode(config["field"])}
        unknown: dict[str, Any] = {"concerns": (), "noise_estimate": {}, "n_samples": None}
        plan, fitted = decode(config["model"]), unknown | decode(config["fitted"])
        _check_values(fitted, numbers, ambient=len(center))
        frame, shape = AffineFrame(center, numbers["scale"], tensors.get("frame.basis")), fitted["sample_shape"]
        model = rebuild(plan, frame, tensors, sample_shape=shape, network=network, denoiser=denoiser)
        # Later than the weights: an architecture that does not fit them is the better reason.
        _check_architecture(fitted, plan["architecture"])
        normalization, parameters = fitted["normalization"], _parameters(config["parameters"], network, denoiser)
        return Geometry(
            NeuralField(model, frame, **{name: numbers[name] for name in _FIELD}),
            **{name: fitted[name] for name in _FITTED},
            landmarks=unpack_landmarks(tensors["landmarks"], frame, config["landmarks"]["dtype"], tensors.get("units")),
            units=_units(tensors.get("units"), ambient=len(center)),
            history=_history(decode(config["history"])),
            scale_profile=_profile(config["scale_profile"], tensors),
            normalization=None if normalization is None else Normalization.from_dict(normalization),
            feature_names=fitted["feature_names_in"],
            concerns=fitted["concerns"],
            noise_estimate=_noise(fitted["noise_estimate"], numbers["noise"]),
            parameters=parameters,
            device=device,
            verbose=parameters.get("verbose", True),
        )
    except LoadError:
        raise
    except KeyError as error:
        raise LoadError(f"the folder must hold {error}, in config.json or model.safetensors; copy it again") from error
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise LoadError(
            f"config.json must be as it was written; one of its values is not understood: {error}"
        ) from error


def _parameters(
    stored: Any, network: nn.Module | None, denoiser: Callable[[Tensor, Tensor], Tensor] | None
) -> dict[str, Any]:
    """Return what the fit was told: what is stored, and what was brought along."""
    parameters: dict[str, Any] = {name: value for name, value in decode(stored).items() if name not in _REMOVED}
    unknown = sorted(parameters.keys() - inspect.signature(fit).parameters.keys())
    if unknown:
        raise LoadError(f"config.json has parameters that carre.fit does not know: {unknown}. Upgrade carre")
    brought = {"network": network, "denoiser": denoiser}
    return parameters | {name: given for name, given in brought.items() if given is not None}


def _units(units: Tensor | None, *, ambient: int) -> Tensor | None:
    if units is not None and not (units.shape == (ambient,) and bool((torch.isfinite(units) & (units > 0)).all())):
        raise LoadError(f"units in model.safetensors must be {ambient} positive numbers. {_REMEDY}")
    return units


def _noise(values: Mapping[str, Any], noise: float) -> NoiseEstimate:
    found = NoiseEstimate(**values)
    _agree("noise", noise, found.value, "noise_estimate")
    return found


def _history(values: Mapping[str, Any]) -> History:
    evaluations = [Evaluation(**evaluation) for evaluation in values["evaluations"]]
    return History(**{**values, "evaluations": evaluations})


def _profile(values: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]) -> ScaleProfile | None:
    if values is None:
        return None
    arrays = {name: tensors[f"scale_profile.{name}"].numpy() for name in PROFILE_ARRAYS}
    return ScaleProfile(**arrays, chosen=values["chosen"], reason=values["reason"])


def encode(value: Any) -> Any:
    """Turn numbers, strings, sizes of a U-Net, and sequences and mappings of them into what JSON can hold exactly.

    Strict JSON has neither NaN nor infinity, nor NumPy's numbers.

    Raises:
        TypeError: The value is something else.

    Example:
        >>> encode({"range": (np.float64(0.1), math.inf)})
        {'range': [0.1, {'float': 'inf'}]}
    """
    if isinstance(value, (np.generic, np.ndarray)):
        return encode(value.tolist())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(value)}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, UNetSettings):
        return {"unet": encode(value.to_dict())}
    if isinstance(value, (list, tuple)):
        return [encode(part) for part in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: encode(part) for name, part in value.items()}
    raise TypeError(f"{value!r} is not a plain value")


def decode(value: Any) -> Any:
    """Return what was encoded; sequences come back as tuples.

    Example:
        >>> decode({"range": [0.1, {"float": "inf"}]})
        {'range': (0.1, inf)}
    """
    if isinstance(value, list):
        return tuple(decode(part) for part in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"}:
        return float(value["float"])
    decoded = {name: decode(part) for name, part in value.items()}
    return UNetSettings(**decoded["unet"]) if value.keys() == {"unet"} else decoded


def plain_only(values: Mapping[str, Any]) -> dict[str, Any]:
    """Encode those values that are plain, and leave out the others.

    Example:
        >>> plain_only({"rank": 3, "network": object()})
        {'rank': 3}
    """
    encoded = {}
    for name, value in values.items():
        try:
            encoded[name] = encode(value)
        except TypeError:
            continue
    return encoded


def _is_number(value: Any) -> bool:
    # Neither NaN nor infinity, nor an integer beyond all floating numbers.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_size(value: Any) -> bool:
    return _is_positive(value) and isinstance(value, int)


def _are(is_one: Callable[[Any], bool], values: Any) -> bool:
    return isinstance(values, tuple) and all(map(is_one, values))


# What a value has to be, and how to tell.
_POSITIVE = ("a positive number", _is_positive)
_NOT_NEGATIVE = ("a number that is not negative", lambda value: _is_number(value) and value >= 0)
_SIZE = ("a positive integer", _is_size)
_SWITCH = ("true or false", lambda value: isinstance(value, bool))
_RANGE = (
    "two positive numbers [low, high] with low < high",
    lambda value: _are(_is_positive, value) and len(value) == 2 and value[0] < value[1],
)
_SHAPE = (
    "three positive integers [channels, height, width], or null",
    lambda value: value is None or (_are(_is_size, value) and len(value) == 3),
)
_NAMES = ("a list of strings, or null", lambda value: value is None or _are(lambda name: isinstance(name, str), value))
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bandwidth": _POSITIVE,
    "bandwidth_range": _RANGE,
    # Samples that occur several times have neighbors at every scale.
    "supported_from": _NOT_NEGATIVE,
    "is_centered": _SWITCH,
    "rank": _SIZE,
    "n_samples": (f"{_SIZE[0]}, or null", lambda value: value is None or _SIZE[1](value)),
    "n_features_in": _SIZE,
    "feature_names_in": _NAMES,
    "concerns": ("a list of strings", lambda value: _are(lambda sentence: isinstance(sentence, str), value)),
    "sample_shape": _SHAPE,
    "scale": _POSITIVE,
    "ridge": _NOT_NEGATIVE,
    "noise": _NOT_NEGATIVE,
    "mixed_precision": _SWITCH,
}


def _check_values(fitted: Mapping[str, Any], field: Mapping[str, Any], *, ambient: int) -> None:
    """Refuse numbers that no fit can give, and shapes that are not those of the tensors: somebody has edited them."""
    values = {**fitted, **field}
    for name, (kind, is_right) in _RULES.items():
        if not is_right(values[name]):
            raise LoadError(f"{name} in config.json must be {kind}; got {values[name]!r}. {_REMEDY}")
    shape, columns, names = fitted["sample_shape"], fitted["n_features_in"], fitted["feature_names_in"]
    _agree("n_features_in", columns, ambient, "the center of the frame in model.safetensors")
    if names is not None and len(names) != columns:
        raise LoadError(f"feature_names_in in config.json must be {columns} names; got {len(names)}. {_REMEDY}")
    if shape is not None and math.prod(shape) != columns:
        raise LoadError(
            f"sample_shape in config.json must have {columns} numbers in all, as n_features_in says; got {shape}, "
            f"which has {math.prod(shape)}. {_REMEDY}"
        )


def _check_architecture(fitted: Mapping[str, Any], architecture: Mapping[str, Any] | None) -> None:
    """Refuse a rank, or a shape of images, that is not the one of the network; of a user's own, neither is known."""
    for name in ("rank", "sample_shape"):
        if architecture is not None and name in architecture:
            _agree(name, fitted[name], architecture[name], "the architecture of the network")


def _agree(name: str, value: Any, wanted: Any, source: str) -> None:
    if value != wanted:
        raise LoadError(f"{name} in config.json must be {wanted!r}, like that of {source}; got {value!r}. {_REMEDY}")
