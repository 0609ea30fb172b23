"""The tensors of a geometry by name, in the precision that was asked for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from carre.metric import AffineFrame
from carre.storage.state import GeometryState

HALF_PRECISION = {"float16": torch.float16, "bfloat16": torch.bfloat16}
PROFILE_ARRAYS = ("bandwidth", "eigenvalues", "idempotency", "gap", "calibration")
_MODEL = "model."


def pack(state: GeometryState, *, dtype: str | None, n_landmarks: int | None) -> dict[str, Tensor]:
    """Collect the tensors of a geometry: weights and landmarks in half precision if asked, statistics exactly."""
    if dtype is not None and dtype not in HALF_PRECISION:
        raise ValueError(f"dtype must be None, 'float16' or 'bfloat16'; got {dtype!r}")
    is_integer = isinstance(n_landmarks, (int, np.integer)) and not isinstance(n_landmarks, bool)
    if n_landmarks is not None and not (is_integer and n_landmarks >= 1):
        raise ValueError(f"n_landmarks must be a positive integer, or None for all; got {n_landmarks!r}")
    frame, landmarks = state.field.frame, state.landmarks[:n_landmarks].detach()
    tensors = {"frame.center": frame.center, "landmarks": landmarks}
    if frame.basis is not None:
        tensors["frame.basis"] = frame.basis
    if dtype is not None:
        tensors["landmarks"] = _narrow(_relative(landmarks, frame), dtype)
    weights = {name for name, _ in state.field.model.named_parameters(remove_duplicate=False)}
    for name, value in state.field.model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"network must keep nothing but tensors in its state_dict to be saved; got {type(value).__name__} in "
                f"{name!r}. Keep it in the constructor of the network, or in a buffer"
            )
        tensors[_MODEL + name] = value if dtype is None or name not in weights else _narrow(value, dtype)
    if state.scale_profile is not None:
        arrays = {name: getattr(state.scale_profile, name) for name in PROFILE_ARRAYS}
        tensors |= {f"scale_profile.{name}": torch.from_numpy(array.copy()) for name, array in arrays.items()}
    # Tensors of their own: weights may be tied, or be views of one buffer, and live anywhere.
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


def weights_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the state of the model."""
    return {name.removeprefix(_MODEL): value for name, value in tensors.items() if name.startswith(_MODEL)}


def unpack_landmarks(stored: Tensor, frame: AffineFrame, dtype: str) -> Tensor:
    """Return landmarks as they were; from half precision, in the units and the dtype that they had."""
    wanted: torch.dtype = getattr(torch, dtype)
    if stored.dtype not in HALF_PRECISION.values():
        return stored.to(wanted)
    return (frame.center.to(torch.float64) + frame.scale * stored.to(torch.float64)).to(wanted)


def _relative(landmarks: Tensor, frame: AffineFrame) -> Tensor:
    """Take landmarks relative to the frame: far from the origin, half precision would not tell them apart."""
    return (landmarks.to("cpu", torch.float64) - frame.center.to(torch.float64)) / frame.scale


def _narrow(value: Tensor, dtype: str) -> Tensor:
    """Round to half precision; integers stay, and what would become infinite is refused."""
    if not value.is_floating_point():
        return value
    narrow, largest = HALF_PRECISION[dtype], float(value.abs().amax()) if value.numel() else 0.0
    if largest > torch.finfo(narrow).max:
        raise ValueError(f"dtype must be 'bfloat16' or None here: {largest:.3g} is beyond the range of {dtype}")
    return value.to(narrow)
