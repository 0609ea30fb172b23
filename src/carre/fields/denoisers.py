"""Denoisers of every kind, behind one call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.fields.protocol import MetricField
from carre.neighbors.transformations import untransformed


class Denoiser:
    """A function (y, σ) ↦ E[X | Y=y] of (n, dim) points and (n,) bandwidths, in the units of the data.

    A module is copied, frozen, and evaluated in the dtype and on the device of the points. Any other
    function is called with the points as they are. Of a field, its own denoiser is taken.

    Args:
        source: A function, a module, or a field.
        dim: D; None asks the field.

    Example:
        >>> shrink = Denoiser(lambda points, bandwidth: points / (1 + bandwidth[:, None] ** 2), 2)
        >>> shrink(torch.ones(1, 2), torch.ones(1))
        tensor([[0.5000, 0.5000]])
    """

    def __init__(self, source: object, dim: int | None) -> None:
        if isinstance(source, MetricField):
            if dim not in (None, source.dim):
                raise ValueError(f"dim must be that of the field, {source.dim}; got {dim}")
            dim, function = source.dim, source.denoise
        elif isinstance(source, nn.Module):
            function = copy.deepcopy(source).eval().requires_grad_(False)
        elif callable(source):
            function = source
        else:
            raise ValueError(
                "denoiser must be a function (points, bandwidth) → points, a module, or a field (a fitted "
                f"MetricMatching has one: field_); got {type(source).__name__}"
            )
        if dim is None or dim < 1:
            raise ValueError(f"dim must be the number of coordinates of a point, at least 1; got {dim}")
        self.dim: int = dim
        self._function = cast(Callable[[Tensor, Tensor], Tensor], function)
        self._copies: dict[tuple[torch.device, torch.dtype], nn.Module] = {}

    def __call__(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
        """Estimate E[X | Y=y], and check the shape of the answer."""
        mean = self._at(points)(points, bandwidth)
        if not isinstance(mean, Tensor) or mean.shape != points.shape:
            got = tuple(mean.shape) if isinstance(mean, Tensor) else type(mean).__name__
            raise ValueError(
                f"denoiser must return one point per input, a tensor of shape {tuple(points.shape)}; got {got}"
            )
        return mean.to(points.dtype)

    def _at(self, points: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the function in the dtype and on the device of the points, if it is a module."""
        if not isinstance(self._function, nn.Module):
            return self._function
        key = (points.device, points.dtype)
        if key not in self._copies:
            with untransformed():
                self._copies[key] = copy.deepcopy(self._function).to(points.device, points.dtype)
        return self._copies[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copies": {}}
