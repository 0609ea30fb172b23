"""The tensors of a geometry by name, in the precision that was asked for, and the model that they fill."""

from __future__ import annotations

import copy
import hashlib
import math
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from carre.arguments import shown
from carre.backend.surroundings import DrawingFrom
from carre.boundary import ArgumentError, is_integer
from carre.fields import NeuralField
from carre.files import check_memory, reason
from carre.geometry import Geometry
from carre.metric import AffineFrame
from carre.networks import FrozenDenoiser, MetricModel, rebuild_model
from carre.networks.denoisers import of_flat_points
from carre.training.checkpoint import state_of

HALF_PRECISION = {"float16": torch.float16, "bfloat16": torch.bfloat16}
PROFILE_ARRAYS = ("bandwidth", "eigenvalues", "idempotency", "gap", "calibration")
_MODEL = "model."
TENSORS = "model.safetensors"
_ARCHITECTURE, _AGAIN = "architecture in config.json", "Copy the folder again"
_MOST_BLOCKS, _MOST_LEVELS, _LARGEST_LAYER, _LARGEST_SPREAD = 1000, 32, 2**24, 1e35
MOST_LANDMARKS = 2**20
_LONGEST_COMPLAINT, _DIGEST = 400, 64
# Of a file of safetensors: where its header begins, and what is more than that of any geometry.
_HEADER_AT, _LARGEST_HEADER = 8, 2**23
_POINTER = b"version https://git-lfs"
# What safetensors raises over kinds of numbers that torch does not have.
_UNPARSED = (ValueError, TypeError, KeyError, AttributeError, RuntimeError)


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


class TensorFile:
    """model.safetensors, asked twice: what it says that it holds, which costs nothing, and what it holds.

    Attributes:
        shapes: Of all tensors, by name, as the header claims.
    """

    def __init__(self, file: Path, expected: Any, *, verify: bool) -> None:
        size = expected.get("bytes") if isinstance(expected, Mapping) else None
        if not isinstance(size, int) or not isinstance(expected.get("sha256"), str):
            must = "must have 'bytes' and 'sha256' in 'weights'"
            raise LoadError(f"config.json {must}; it was cut or edited. Copy it again")
        self.file, self.said, self.verify = file, {"bytes": size, "sha256": expected["sha256"]}, verify
        found = size_of(file)
        with reading(file), file.open("rb") as stream:
            start = stream.read(_HEADER_AT)
            if found < size:
                is_pointer = (start + stream.read(len(_POINTER))).startswith(_POINTER)
                remedy = "It is a pointer of Git LFS: run `git lfs pull`" if is_pointer else "Copy it again"
                raise LoadError(f"{file.name} is truncated: {found} of {size} bytes. {remedy}")
            if verify and found > size:
                raise self._changed(f"it has {found:,} bytes, config.json says {size:,}")
        length = int.from_bytes(start, "little")
        if length > _LARGEST_HEADER:
            raise self._damaged(f"its header would have {length:,} bytes")
        self.size, self.shapes = found, self._shapes()

    def read(self) -> dict[str, Tensor]:
        """Read the tensors, from exactly those bytes that were checked."""
        from safetensors import SafetensorError  # noqa: PLC0415
        from safetensors.torch import load as parse  # noqa: PLC0415

        check_memory(2 * self.size, f"what {self.file} holds", "Load it where there is more memory")
        with reading(self.file), self.file.open("rb") as stream:
            if self.verify:
                # What is not that file is not held in memory.
                self._check_digest(hashlib.file_digest(stream, "sha256").hexdigest())
                stream.seek(0)
            content = stream.read(self.size)
        if self.verify:
            self._check_digest(fingerprint(content)["sha256"])
        try:
            # Copies lie in memory as torch likes it: how sums are rounded can depend on that.
            tensors = {name: tensor.clone() for name, tensor in parse(content).items()}
        except (SafetensorError, *_UNPARSED) as error:
            raise self._damaged(reason(error)) from error
        if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != self.shapes:
            raise self._changed("it was written to meanwhile")
        return tensors

    def _check_digest(self, found: str) -> None:
        if found != self.said["sha256"]:
            raise self._changed(f"its SHA-256 is {found}, config.json says {self.said['sha256'][:_DIGEST]}")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Read names and shapes from the header, whose tensors have to be all that the rest of the file is."""
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415

        try:
            with reading(self.file), safe_open(self.file, "np") as content:
                return {name: tuple(content.get_slice(name).get_shape()) for name in sorted(content.keys())}
        except (SafetensorError, *_UNPARSED) as error:
            raise self._damaged(reason(error)) from error

    def _damaged(self, why: str) -> LoadError:
        return LoadError(f"{self.file.name} must be a file of safetensors; it is damaged ({why}). Copy it again")

    def _changed(self, why: str) -> LoadError:
        remedy = "Copy both files again, or pass verify=False if you changed it yourself"
        return LoadError(f"{self.file.name} is not the file that was saved: {why}. {remedy}")


def fingerprint(content: bytes) -> dict[str, Any]:
    """Say by what the bytes of a file are known again."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def size_of(file: Path) -> int:
    """Return the bytes of a file of a saved geometry; refuse one that is missing, and what may never end."""
    with reading(file):
        about = file.stat()
    if not stat.S_ISREG(about.st_mode):
        raise LoadError(f"{str(file)!r} must be a file; it is a folder, a pipe or a device. Copy the whole folder")
    return about.st_size


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Word what the system says when a file of a saved geometry cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        must = f"{str(file.parent)!r} must hold a saved geometry"
        raise LoadError(f"{must}; it has no {file.name}. Copy the whole folder") from error
    except OSError as error:
        raise LoadError(f"{str(file)!r} cannot be read ({error.strerror or reason(error)}). Copy it again") from error


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
    if len(landmarks) > MOST_LANDMARKS:
        raise ArgumentError("n_landmarks", f"be at most {MOST_LANDMARKS:,}", got=f"{len(landmarks):,}")
    tensors = {"frame.center": frame.center, "landmarks": landmarks}
    if frame.basis is not None:
        tensors["frame.basis"] = frame.basis
    if dtype is not None:
        inner = landmarks if geometry.units is None else landmarks / geometry.units.to(landmarks)
        # Relative to the frame: far from the origin, half precision would not tell them apart.
        relative = (inner.to("cpu", torch.float64) - frame.center.to(torch.float64)) / frame.scale
        tensors["landmarks"] = _narrow(relative, dtype)
    if geometry.units is not None:
        tensors["units"] = geometry.units
    weights = {name for name, _ in field.model.named_parameters(remove_duplicate=False)}
    for name, value in state_of(field.model, "to be saved").items():
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
    architecture = model.architecture if isinstance(model, MetricModel) else None
    has_denoiser = isinstance(model, MetricModel) and isinstance(model.mean, FrozenDenoiser)
    needs = "network" if architecture is None else "denoiser" if has_denoiser else None
    return {"architecture": architecture, "needs": needs, "class": type(model).__name__}


def check_shapes(plan: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], *, dim: int) -> None:
    """Hold the weights that a file claims against the network that a description asks for, before either is made.

    Of a network, or a denoiser, of the user's own, the code is not known here: only of the factor beside a denoiser.

    Raises:
        LoadError: The network would have more layers than there are weights, or other weights.
    """
    architecture = plan["architecture"]
    if not isinstance(architecture, Mapping):
        return
    weights = {name.removeprefix(_MODEL): shape for name, shape in shapes.items() if name.startswith(_MODEL)}
    _check_sizes(architecture, weights, dim)
    if plan["needs"] is not None:
        weights = {name: shape for name, shape in weights.items() if name.startswith("factor.")}
    with torch.device("meta"):
        model = rebuild_model(dict(architecture))
        _fill(model, {name: torch.empty(shape) for name, shape in weights.items()}, _ARCHITECTURE)


def _check_sizes(architecture: Mapping[str, Any], weights: Mapping[str, tuple[int, ...]], dim: int) -> None:
    """Refuse more layers than there are weights, and layers that are larger than all of them."""
    inner = architecture.get("settings")
    told = {**architecture, **(inner if isinstance(inner, Mapping) else {})}
    levels: Any = told.get("multipliers", (1,))
    shape, spread = told.get("sample_shape", (dim,)), told.get("spread", 1.0)
    if not isinstance(spread, (int, float)) or not 1 / _LARGEST_SPREAD < spread < _LARGEST_SPREAD:
        raise LoadError(f"spread in config.json must be a positive number; got {shown(spread)}. {_AGAIN}")
    if not _are_sizes(levels) or len(levels) > _MOST_LEVELS:
        raise LoadError(f"multipliers in config.json must be up to {_MOST_LEVELS} positive integers. {_AGAIN}")
    if not _are_sizes(shape) or math.prod(shape) != dim:
        raise LoadError(f"sample_shape of the architecture in config.json must have {dim} numbers in all. {_AGAIN}")
    largest = min(max((max(one, default=0) for one in weights.values()), default=0), _LARGEST_LAYER)
    most = {"n_blocks": min(len(weights) // len(levels), _MOST_BLOCKS), "channels": largest // max(levels)}
    most |= dict.fromkeys(("dim", "rank", "width", "head_channels", "patch"), largest)
    for name, limit in most.items():
        if is_integer(told.get(name)) and told[name] > limit:
            must = f"be at most {limit:,}, by the weights in {TENSORS}"
            raise LoadError(f"{name} in config.json must {must}; got {shown(told[name])}. {_AGAIN}")


def _are_sizes(values: Any) -> bool:
    return isinstance(values, tuple) and len(values) > 0 and all(is_integer(one) and one > 0 for one in values)


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
            around = f"a {name} of the user's own (in a {shown(plan['class'])})"
            must = f"be given: this geometry was fitted with {around}, whose code is not stored"
            raise LoadArgumentError(name, must, remedy=f"Pass it as load(..., {name}=...)")
        if plan["needs"] != name and given is not None:
            raise LoadArgumentError(name, f"be None: this geometry is not one around a {name} of the user's own")
    # The weights that are drawn here do not stay; the caller's random numbers do.
    with DrawingFrom(torch.Generator()):
        model = copy.deepcopy(network) if network is not None else rebuild_model(plan["architecture"])
    if denoiser is not None and isinstance(model, MetricModel):
        of_points = of_flat_points(denoiser, sample_shape, len(frame.center))
        model = MetricModel(FrozenDenoiser(of_points, frame), model.factor, architecture=model.architecture)
    model = model.to("cpu", torch.float32)
    weights = {name.removeprefix(_MODEL): value for name, value in tensors.items() if name.startswith(_MODEL)}
    _fill(model, weights, _ARCHITECTURE if plan["needs"] is None else f"{plan['needs']} that was given")
    return model


def _fill(model: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Fill weights into a model; all of its names and shapes, and their kinds of numbers, have to be there."""
    try:
        for name, value in model.state_dict().items():
            found = weights.get(name, value)
            if found.is_floating_point() != value.is_floating_point() or found.is_complex():
                raise RuntimeError(f"\n{name} is of {found.dtype}")
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        details = " ".join(line.strip() for line in str(error).splitlines()[1:])
        shorter = details if len(details) <= _LONGEST_COMPLAINT else details[:_LONGEST_COMPLAINT] + " …"
        raise LoadError(f"the weights in {TENSORS} do not fit the {source}: {shorter}") from error


def _narrow(value: Tensor, dtype: str) -> Tensor:
    """Round to half precision; integers stay, and what would become infinite is refused."""
    if not value.is_floating_point():
        return value
    narrow, largest = HALF_PRECISION[dtype], float(value.abs().amax()) if value.numel() else 0.0
    if largest > torch.finfo(narrow).max:
        raise ArgumentError("dtype", f"be 'bfloat16' or None here: {largest:.3g} is beyond the range of {dtype}")
    return value.to(narrow)
