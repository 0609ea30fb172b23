"""Checks of arguments at the boundary of the room, and their messages."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def checked_points(points: Tensor, ambient_dim: int) -> Tensor:
    """Check that points are a batch in R^D."""
    if points.ndim != 2 or points.shape[1] != ambient_dim:
        raise ValueError(f"points must have shape (batch, {ambient_dim}); got {tuple(points.shape)}")
    if not points.is_floating_point():
        raise ValueError(f"points must be floating point; got {points.dtype}")
    return points


def checked_bandwidth(bandwidth: float | Tensor, points: Tensor) -> Float[Tensor, " batch"]:
    """Check a bandwidth and return one value per point."""
    values = torch.as_tensor(bandwidth, dtype=points.dtype, device=points.device)
    if values.shape not in ((), points.shape[:1]):
        raise ValueError(
            f"bandwidth must be a number or have shape ({points.shape[0]},), one per point; "
            f"got shape {tuple(values.shape)}"
        )
    if not bool((values > 0).all()):
        raise ValueError(f"bandwidth must be positive; got {float(values.min())}")
    return values.expand(points.shape[:1])


def checked_positive(name: str, value: float) -> float:
    """Check that a length given to a constructor is positive and finite."""
    if not 0.0 < value < float("inf"):
        raise ValueError(f"{name} must be positive; got {value}")
    return float(value)


def checked_orthonormal(name: str, basis: Float[Tensor, "dim rank"]) -> Float[Tensor, "dim rank"]:
    """Check that the columns of a basis are orthonormal, and return it in float64."""
    wide = basis.double()
    gram = wide.mT @ wide
    error = float((gram - torch.eye(len(gram)).to(gram)).abs().max())
    if not error < 1e-6:
        raise ValueError(f"{name} must have orthonormal columns (take torch.linalg.qr); got an error of {error:.1e}")
    return wide
