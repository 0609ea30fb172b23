"""config.json: everything about a geometry that is not a tensor, written in strict JSON and read with suspicion."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from carre import __version__
from carre.arguments import shown
from carre.boundary import is_integer
from carre.data import Normalization
from carre.fields import NeuralField
from carre.files import reason
from carre.fitting import fit
from carre.fitting.settings import MOST_RIDGE
from carre.geometry import Geometry
from carre.metric import AffineFrame
from carre.networks import UNetSettings
from carre.storage.tensors import (
    MOST_LANDMARKS,
    PROFILE_ARRAYS,
    TENSORS,
    LoadError,
    TensorFile,
    blueprint,
    check_shapes,
    learned_field,
    rebuild,
    unpack_landmarks,
)
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
_FLOATING = ("float16", "bfloat16", "float32", "float64")
_LONGEST, _LONGEST_TEXT = 40, 4000
# Of numbers whose squares and reciprocals are numbers, of the size of data, and of products of orthonormal columns.
_LARGEST, _LARGEST_SCALE, _ROUNDING = 1e150, 1e35, 1e-4


def describe(geometry: Geometry, *, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Write down a geometry, all but its tensors, and what is to be said of the file of these."""
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
        hint = "".join(f" ({name} {shown(config[name])})" for name in kinds[:1])
        raise LoadError(f"config.json must describe a geometry of carre; this is one of something else{hint}")
    version = config.get("format_version")
    if not isinstance(version, int):
        raise LoadError(
            f"config.json must have a whole number 'format_version'; got {shown(version)}. Copy the folder again"
        )
    if version > FORMAT_VERSION:
        about = config.get("versions")
        by = about.get("carre") if isinstance(about, dict) else None
        written = f"written by carre {by[:_LONGEST]}" if isinstance(by, str) else "written"
        reads = f"carre {__version__} reads up to format {FORMAT_VERSION}. Upgrade carre"
        raise LoadError(f"by its config.json this geometry was {written} in format {shown(version)}; {reads}")
    missing = [name for name in _SECTIONS if name not in config]
    if missing:
        raise LoadError(f"config.json must have {', '.join(map(repr, missing))}; it was cut or edited. Copy it again")
    kind = config["class"]
    if kind not in _KINDS:
        other = shown(kind).strip("'")
        raise LoadError(f"by its config.json this folder holds a {other}, not a {_KIND}; load it with {other}")


def understand(
    config: Mapping[str, Any],
    stored: TensorFile,
    *,
    device: torch.device,
    network: nn.Module | None = None,
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Geometry:
    """Make a geometry from its description and its tensors, which are read when their sizes make sense.

    Raises:
        LoadError: A value is missing, makes no sense, or does not go with the others.
    """
    try:
        columns = stored.shapes["frame.center"][0] if stored.shapes["frame.center"] else 0
        # The first release did not look at columns, nor for noise.
        numbers = {"noise": 0.0, **decode(config["field"])}
        unknown: dict[str, Any] = {"concerns": (), "noise_estimate": {}, "n_samples": None}
        plan, fitted = decode(config["model"]), unknown | decode(config["fitted"])
        _check_values(fitted, numbers, ambient=columns)
        _check_claims(stored.shapes, columns, config["scale_profile"])
        hull_dim = stored.shapes.get("frame.basis", (columns, columns))[1]
        check_shapes(plan, stored.shapes, dim=columns if fitted["sample_shape"] is not None else hull_dim)
        # Later than the weights: an architecture that does not fit them is the better reason.
        _check_architecture(fitted, plan["architecture"], hull_dim)
        history, profile = _history(decode(config["history"])), decode(config["scale_profile"])
        noise, parameters = _noise(fitted["noise_estimate"], numbers["noise"]), _parameters(config["parameters"])
        normalization, landmark_dtype = fitted["normalization"], config["landmarks"]["dtype"]
        if landmark_dtype not in _FLOATING:
            raise LoadError(f"dtype of landmarks in config.json must be one of {', '.join(_FLOATING)}. {_REMEDY}")
        tensors = stored.read()
        _check_tensors(tensors)
        frame = AffineFrame(tensors["frame.center"], numbers["scale"], tensors.get("frame.basis"))
        shape, brought = fitted["sample_shape"], {"network": network, "denoiser": denoiser}
        model = rebuild(plan, frame, tensors, sample_shape=shape, network=network, denoiser=denoiser)
        return Geometry(
            NeuralField(model, frame, **{name: numbers[name] for name in _FIELD}),
            **{name: fitted[name] for name in _FITTED},
            landmarks=unpack_landmarks(tensors["landmarks"], frame, landmark_dtype, tensors.get("units")),
            units=tensors.get("units"),
            history=history,
            scale_profile=None if profile is None else _profile(profile, tensors),
            normalization=None if normalization is None else Normalization.from_dict(normalization),
            feature_names=fitted["feature_names_in"],
            concerns=fitted["concerns"],
            noise_estimate=noise,
            parameters=parameters | {name: given for name, given in brought.items() if given is not None},
            device=device,
            verbose=parameters.get("verbose", True),
        )
    except LoadError:
        raise
    except KeyError as error:
        raise LoadError(f"the folder must hold {error}, in config.json or {TENSORS}; copy it again") from error
    except (TypeError, ValueError, AttributeError, RuntimeError, LookupError, ArithmeticError) as error:
        must = "config.json must be as it was written; one of its values is not understood"
        raise LoadError(f"{must}: {reason(error)}. {_REMEDY}") from error


def _check_claims(shapes: Mapping[str, tuple[int, ...]], columns: int, profile: Any) -> None:
    """Refuse tensors beside the weights that are none of a geometry, or of other sizes than the others."""
    scales = shapes["scale_profile.bandwidth"] if profile is not None else (0,)
    n_landmarks, hull_dim = shapes["landmarks"][:1] or (0,), shapes.get("frame.basis", (0, 1))[-1]
    wanted = {"frame.center": (columns,), "frame.basis": (columns, hull_dim), "units": (columns,)}
    wanted["landmarks"] = (*n_landmarks, columns)
    if profile is not None:
        wanted |= {f"scale_profile.{name}": scales for name in PROFILE_ARRAYS}
        levels = shapes["scale_profile.eigenvalues"][-1:]
        wanted["scale_profile.eigenvalues"] = (*scales, *levels)
    others = {name: shape for name, shape in shapes.items() if not name.startswith("model.")}
    for name, shape in others.items():
        if name not in wanted:
            raise LoadError(f"{TENSORS} must hold the tensors of a geometry; {shown(name)} is none. {_REMEDY}")
        if shape != wanted[name] or 0 in shape or hull_dim > columns or n_landmarks[0] > MOST_LANDMARKS:
            raise LoadError(f"{name} in {TENSORS} must have shape {wanted[name]}; got {shape}. {_REMEDY}")


def _check_tensors(tensors: Mapping[str, Tensor]) -> None:
    """Refuse what is no number, and what is no basis, no unit and no grid."""
    for name, tensor in tensors.items():
        is_kept = not name.startswith("model.")
        if is_kept and str(tensor.dtype).removeprefix("torch.") not in _FLOATING:
            raise LoadError(f"{name} in {TENSORS} must hold floating numbers; got {tensor.dtype}. {_REMEDY}")
        may_lack = name in ("scale_profile.calibration", "scale_profile.gap", "scale_profile.idempotency")
        if not may_lack and tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise LoadError(f"{name} in {TENSORS} must be finite; it holds NaN or infinity. {_REMEDY}")
    basis, units, grid = (tensors.get(name) for name in ("frame.basis", "units", "scale_profile.bandwidth"))
    if basis is not None:
        gram = basis.double().mT @ basis.double()
        if float((gram - torch.eye(len(gram), dtype=gram.dtype)).abs().max()) > _ROUNDING:
            raise LoadError(f"frame.basis in {TENSORS} must have orthonormal columns. {_REMEDY}")
    if units is not None and not bool((units > 0).all()):
        raise LoadError(f"units in {TENSORS} must be {len(units)} positive numbers. {_REMEDY}")
    if grid is not None and not bool((grid > 0).all() & (grid.diff() > 0).all()):
        raise LoadError(f"scale_profile.bandwidth in {TENSORS} must be positive and ascending. {_REMEDY}")


def _parameters(stored: Any) -> dict[str, Any]:
    """Return what the fit was told; where it kept its checkpoint is no business of this machine."""
    told = {name: value for name, value in decode(stored).items() if name not in (*_REMOVED, *_NOT_STORED)}
    kinds = get_type_hints(fit)
    unknown = sorted(told.keys() - kinds.keys())
    if unknown:
        raise LoadError(f"config.json has parameters that carre.fit does not know: {shown(unknown)}. Upgrade carre")
    _check_kinds(told, kinds, "parameters")
    return told


def _check_kinds(values: Any, kinds: Mapping[str, Any], what: str) -> None:
    """Refuse what is no record, and values in it that are of other kinds than its fields."""
    if not isinstance(values, Mapping):
        raise LoadError(f"{what} in config.json must be a record; got {shown(values)}. {_REMEDY}")
    for name, value in values.items():
        if name not in kinds or not _is_a(value, kinds[name]):
            raise LoadError(f"{shown(name)} of {what} in config.json must not be {shown(value)}. {_REMEDY}")


def _is_a(value: Any, kind: Any) -> bool:
    """Say whether something that was read is of a kind, by its annotation; what is not stored is of none."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_a(value, part) for part in parts)
    if origin in (tuple, list, Sequence):
        return isinstance(value, tuple) and all(_is_a(one, parts[0]) for one in value)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str) and len(value) <= _LONGEST_TEXT
    return kind is Any or (isinstance(kind, type) and type(value) is kind)


def _noise(values: Mapping[str, Any], noise: float) -> NoiseEstimate:
    _check_kinds(values, get_type_hints(NoiseEstimate), "noise_estimate")
    found = NoiseEstimate(**values)
    _agree("noise", noise, found.value, "noise_estimate")
    if not (found.standard_error >= 0 and (found.n_directions is None or found.n_directions > 0)):
        raise LoadError(f"noise_estimate in config.json must not be {shown(values)}. {_REMEDY}")
    return found


def _history(values: Mapping[str, Any]) -> History:
    kinds = get_type_hints(History) | {"evaluations": Sequence[dict]}  # type: ignore[type-arg]
    _check_kinds(values, kinds, "history")
    for one in values["evaluations"]:
        _check_kinds(one, get_type_hints(Evaluation), "evaluations of history")
    history = History(**{**values, "evaluations": [Evaluation(**one) for one in values["evaluations"]]})
    n_scales, gains = len(history.bandwidths), [one.gain for one in history.evaluations]
    is_whole = all(len(gain) in (0, n_scales) for gain in (*gains, history.kernel_gain))
    if not is_whole or not _are(_is_positive, history.bandwidths):
        raise LoadError(f"bandwidths of history in config.json must be positive, with a gain for each. {_REMEDY}")
    if not -1 <= history.kept < len(history.evaluations):
        raise LoadError(f"kept of history in config.json must be the number of an evaluation. {_REMEDY}")
    return history


def _profile(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ScaleProfile:
    _check_kinds(values, {"chosen": int, "reason": str}, "scale_profile")
    arrays = {name: tensors[f"scale_profile.{name}"].numpy() for name in PROFILE_ARRAYS}
    if not 0 <= values["chosen"] < len(arrays["bandwidth"]):
        raise LoadError(f"chosen of scale_profile in config.json must be the number of a scale. {_REMEDY}")
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
    # Neither NaN nor infinity, nor one whose square is none of floating numbers.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value >= 1 / _LARGEST


def _is_size(value: Any) -> bool:
    return is_integer(value) and value > 0


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
    "scale": (
        f"{_POSITIVE[0]}, at most {_LARGEST_SCALE:g}",
        lambda value: _is_positive(value) and value <= _LARGEST_SCALE,
    ),
    "ridge": (
        f"{_NOT_NEGATIVE[0]}, at most {MOST_RIDGE:g}",
        lambda value: _NOT_NEGATIVE[1](value) and value <= MOST_RIDGE,
    ),
    "noise": _NOT_NEGATIVE,
    "mixed_precision": _SWITCH,
}


def _check_values(fitted: Mapping[str, Any], field: Mapping[str, Any], *, ambient: int) -> None:
    """Refuse numbers that no fit can give, and shapes that are not those of the tensors: somebody has edited them."""
    values = {**fitted, **field}
    for name, (kind, is_right) in _RULES.items():
        if not is_right(values[name]):
            raise LoadError(f"{name} in config.json must be {kind}; got {shown(values[name])}. {_REMEDY}")
    shape, columns, names = fitted["sample_shape"], fitted["n_features_in"], fitted["feature_names_in"]
    _agree("n_features_in", columns, ambient, "the center of the frame in model.safetensors")
    if names is not None and len(names) != columns:
        raise LoadError(f"feature_names_in in config.json must be {columns} names; got {len(names)}. {_REMEDY}")
    if shape is not None and math.prod(shape) != columns:
        raise LoadError(
            f"sample_shape in config.json must have {columns} numbers in all, as n_features_in says; got {shape}, "
            f"which has {math.prod(shape)}. {_REMEDY}"
        )


def _check_architecture(fitted: Mapping[str, Any], architecture: Mapping[str, Any] | None, hull_dim: int) -> None:
    """Refuse a rank, or a shape of images, that is not the one of the network; of a user's own, neither is known."""
    for name in ("rank", "sample_shape"):
        if architecture is not None and name in architecture:
            _agree(name, fitted[name], architecture[name], "the architecture of the network")
    if architecture is not None and architecture.get("dim", hull_dim) != hull_dim:
        raise LoadError(f"dim in config.json must be {hull_dim}, the coordinates of the frame in {TENSORS}. {_REMEDY}")


def _agree(name: str, value: Any, wanted: Any, source: str) -> None:
    if value != wanted:
        must = f"be {shown(wanted)}, like that of {source}"
        raise LoadError(f"{name} in config.json must {must}; got {shown(value)}. {_REMEDY}")
