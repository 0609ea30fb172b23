"""config.json: everything about a geometry that is not a tensor."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from carre import __version__
from carre.data import Normalization
from carre.fields import NeuralField
from carre.metric import AffineFrame
from carre.storage.checking import check_architecture, check_values
from carre.storage.errors import LoadError
from carre.storage.plain import decode, encode, plain_only
from carre.storage.rebuilding import blueprint, rebuild
from carre.storage.state import GeometryState
from carre.storage.tensors import PROFILE_ARRAYS, unpack_landmarks, weights_of
from carre.toolkit import ScaleProfile
from carre.training import Evaluation, History

FORMAT, FORMAT_VERSION = "carre", 1
_NUMBERS = ("bandwidth", "bandwidth_range", "supported_from", "is_centered", "rank", "n_features_in", "sample_shape")
# Where other libraries say what they have written.
_FOREIGN = ("format", "library_name", "model_type", "_class_name", "architectures")
_SECTIONS = ("class", "parameters", "model", "fitted", "field", "history", "scale_profile", "landmarks", "weights")


def describe(state: GeometryState, *, kind: str, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Write down a geometry, all but its tensors.

    Args:
        state: The geometry.
        kind: The class that it belongs to.
        weights: What to say about the file of the tensors.
    """
    field, profile, names = state.field, state.scale_profile, state.feature_names_in
    versions = {"carre": __version__, "torch": str(torch.__version__), "numpy": np.__version__}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "class": kind,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions, "python": platform.python_version()},
        "parameters": plain_only(state.parameters),
        "model": encode(blueprint(field.model)),
        "fitted": {
            **encode({name: getattr(state, name) for name in _NUMBERS}),
            "feature_names_in": None if names is None else [str(name) for name in names],
            "normalization": None if state.normalization is None else encode(state.normalization.to_dict()),
        },
        "field": encode(
            {"scale": field.frame.scale, "ridge": field.ridge, "mixed_precision": field.mixed_precision},
        ),
        "history": encode(dataclasses.asdict(state.history)),
        "scale_profile": None if profile is None else encode({"chosen": profile.chosen, "reason": profile.reason}),
        "landmarks": {"dtype": str(state.landmarks.dtype).removeprefix("torch.")},
        "weights": dict(weights),
    }


def check(config: Any, *, kind: str) -> None:
    """Refuse what is not a description of such a geometry, or was written by a later version."""
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
    if config["class"] != kind:
        raise LoadError(f"this folder holds a {config['class']}, not a {kind}; load it with {config['class']}")


def understand(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    network: nn.Module | None = None,
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> GeometryState:
    """Make a geometry from its description and its tensors."""
    try:
        center, numbers, weights = tensors["frame.center"], decode(config["field"]), weights_of(tensors)
        plan, fitted = decode(config["model"]), decode(config["fitted"])
        check_values(fitted, numbers, ambient=len(center))
        frame = AffineFrame(center, numbers["scale"], tensors.get("frame.basis"))
        options = {name: numbers[name] for name in ("ridge", "mixed_precision")}
        shape = fitted["sample_shape"]
        model = rebuild(plan, frame, weights, sample_shape=shape, network=network, denoiser=denoiser)
        # Later than the weights: an architecture that does not fit them is the better reason.
        check_architecture(fitted, plan["architecture"])
        names, normalization = fitted.pop("feature_names_in"), fitted.pop("normalization")
        return GeometryState(
            field=NeuralField(model, frame, **options),
            landmarks=unpack_landmarks(tensors["landmarks"], frame, config["landmarks"]["dtype"]),
            history=_history(decode(config["history"])),
            scale_profile=_profile(config["scale_profile"], tensors),
            feature_names_in=None if names is None else np.array(names, dtype=object),
            normalization=None if normalization is None else Normalization.from_dict(normalization),
            parameters=decode(config["parameters"]),
            **{name: fitted[name] for name in _NUMBERS},
        )
    except LoadError:
        raise
    except KeyError as error:
        raise LoadError(f"the folder must hold {error}, in config.json or model.safetensors; copy it again") from error
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise LoadError(
            f"config.json must be as it was written; one of its values is not understood: {error}"
        ) from error


def _history(values: Mapping[str, Any]) -> History:
    evaluations = [Evaluation(**evaluation) for evaluation in values["evaluations"]]
    return History(**{**values, "evaluations": evaluations})


def _profile(values: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]) -> ScaleProfile | None:
    if values is None:
        return None
    arrays = {name: tensors[f"scale_profile.{name}"].numpy() for name in PROFILE_ARRAYS}
    return ScaleProfile(**arrays, chosen=values["chosen"], reason=values["reason"])
