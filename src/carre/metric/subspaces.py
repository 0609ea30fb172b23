"""Distances between subspaces, each given by an orthonormal basis in its columns."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def projector_distance(
    left: Float[Tensor, "*batch dim k"], right: Float[Tensor, "*batch dim l"]
) -> Float[Tensor, "*batch"]:
    """Compute ‖UUᵀ − VVᵀ‖_F of the projectors on two subspaces: the tangent error of the paper.

    Evaluated from the residuals, ‖V − U(UᵀV)‖² + ‖U − V(VᵀU)‖², which is accurate down to rounding;
    the expanded form 2d − 2‖UᵀV‖² has a floor near 1e-3 in float32.

    Example:
        >>> line = torch.tensor([[1.0], [0.0]])
        >>> projector_distance(line, torch.tensor([[0.0], [1.0]]))
        tensor(1.4142)
    """
    cross = left.mT @ right
    squares = (right - left @ cross).square().sum((-2, -1)) + (left - right @ cross.mT).square().sum((-2, -1))
    return squares.sqrt()


def principal_angles(
    left: Float[Tensor, "*batch dim k"], right: Float[Tensor, "*batch dim l"]
) -> Float[Tensor, "*batch m"]:
    """Compute the min(k, l) principal angles between two subspaces, in radians, ascending.

    Small angles are taken from their sines and large ones from their cosines, so that both are
    accurate (Björck and Golub).

    Example:
        >>> angle = torch.tensor(0.3)
        >>> floor = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> ramp = torch.tensor([[1.0, 0.0], [0.0, angle.cos()], [0.0, angle.sin()]])
        >>> principal_angles(floor, ramp)
        tensor([0.0000, 0.3000])
    """
    if left.shape[-1] < right.shape[-1]:
        left, right = right, left
    cross = left.mT @ right
    cosines = torch.linalg.svdvals(cross).clamp(max=1.0)
    sines = torch.linalg.svdvals(right - left @ cross).flip(-1).clamp(max=1.0)
    return torch.where(cosines.square() > 0.5, torch.asin(sines), torch.acos(cosines))
