"""Denoisers of every kind behind one call, and the fields that know little more: the identity, and the Stein score."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend import untransformed
from carre.backend.modes import differentiable
from carre.boundary import ArgumentError, is_integer
from carre.fields.field import Bandwidth, Field, MetricField, NoDenoiserError
from carre.fields.neural import NeuralField, is_ours
from carre.metric import ComplementMetric
from carre.networks.denoisers import checked_mean, checked_shape, of_flat_points


class Denoiser:
    """A function (y, σ) ↦ E[X | Y=y] of (n, dim) points and (n,) bandwidths, in the units of the data.

    A module is copied, frozen, and evaluated in the dtype and on the device of the points. Any other
    function is called with the points as they are. Of a field, its own denoiser is taken. A denoiser that has a
    ``sample_shape``, or is given one, sees samples (n, *sample_shape); any other one flat points.

    Example:
        >>> shrink = Denoiser(lambda points, bandwidth: points / (1 + bandwidth[:, None] ** 2), 2)
        >>> shrink(torch.ones(1, 2), torch.ones(1))
        tensor([[0.5000, 0.5000]])
    """

    def __init__(self, source: object, dim: int | None, sample_shape: tuple[int, ...] | None = None) -> None:
        shape = getattr(source, "sample_shape", None) if sample_shape is None else checked_shape(sample_shape)
        if isinstance(source, MetricField):
            if dim not in (None, source.dim):
                raise ArgumentError("dim", f"be that of the field, {source.dim}", got=dim)
            dim = source.dim
        elif not callable(source):
            must = "be a function (points, bandwidth) → points, a module, or a field (a `Geometry` is one)"
            raise ArgumentError("denoiser", must, got=type(source).__name__)
        elif dim is None and shape is not None:
            dim = math.prod(shape)
        if dim is None or dim < 1:
            must = "be the number of coordinates of a point, at least 1; or give sample_shape"
            raise ArgumentError("dim", must, got=str(dim))
        self.dim: int = dim
        function: Any = source
        if isinstance(source, nn.Module):
            function = copy.deepcopy(source).eval().requires_grad_(False)
        is_field = isinstance(source, MetricField)
        # Networks of ours are spelled out themselves, and faster so.
        self._is_spelled_out = isinstance(source, NeuralField) and is_ours(source.model, "mean")
        self._function = function.denoise if is_field else of_flat_points(function, sample_shape, dim)
        self._copies: dict[tuple[torch.device, torch.dtype], nn.Module] = {}

    def __call__(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
        """Estimate E[X | Y=y], and check the shape of the answer."""
        with nullcontext() if self._is_spelled_out else differentiable(points):
            mean = self._at(points)(points, bandwidth)
        return checked_mean(mean, points).to(points.dtype)

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


class IsotropicField(Field):
    """The Euclidean metric G = I at every point and every scale, the baseline of random directions [RMM, Sec. 5.2].

    The metric is a `ComplementMetric` from which nothing is removed: it holds D numbers for each point, never D².

    Args:
        dim: The ambient dimension D.
        denoiser: ``(points, bandwidth) ↦ E[X | Y=y]``, a function of (n, dim) points and (n,) bandwidths; or a
            module, which is copied; or a field, whose denoiser is taken. None for a field that cannot denoise.

    Example:
        >>> import torch
        >>> field = IsotropicField(3)
        >>> field
        IsotropicField(dim=3)
        >>> field.metric(torch.zeros(1, 3), 0.1).eigenvalues()
        tensor([[1., 1., 1.]])
    """

    def __init__(self, dim: int, denoiser: object = None) -> None:
        if not is_integer(dim) or dim < 1:
            raise ArgumentError("dim", "be the number of coordinates of a point, at least 1", got=repr(dim))
        self.dim: int = int(dim)
        self._denoiser = None if denoiser is None else Denoiser(denoiser, self.dim)

    def __repr__(self) -> str:
        return f"IsotropicField(dim={self.dim})"

    def _metric(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> ComplementMetric:
        # A product, so that derivatives in the points exist: they are zero.
        return ComplementMetric((0 * points).unsqueeze(-2))

    def _denoise(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
        if self._denoiser is None:
            raise NoDenoiserError(
                "this field has no denoiser; give it one with IsotropicField(dim, denoiser), such as a fitted field"
            )
        return self._denoiser(points, bandwidth)


class SteinField(Field):
    """The cometric G = I − λssᵀ/(1 + λ|s|²) of Azeglio and Di Bernardo's metric g = I + λssᵀ [THEORY §5].

    The score s = (m − y)/σ² points across the data, so g makes that one direction expensive; all others
    count as tangent. At clean points s nearly vanishes and G is nearly the identity. It is a baseline: it
    does not tend to the tangent projector, and its leading directions are not unique.

    Args:
        denoiser: ``(points, bandwidth) ↦ E[X | Y=y]``, a function of (n, dim) points and (n,) bandwidths; or a
            module, which is copied; or a field, whose denoiser is taken.
        dim: The ambient dimension D; None asks the field, or the shape of the samples.
        sample_shape: What the denoiser sees instead of flat points, such as images (channels, height, width). A
            denoiser with a ``sample_shape`` of its own, as `carre.DiffusionDenoiser`, is shown that.
        strength: λ in units of σ²: λ = strength·σ², so that λ|s|² is a number without units and G does not
            depend on those of the data. For the authors' fixed λ at one σ, take strength = λ/σ².

    Example:
        >>> import torch
        >>> field = SteinField(lambda points, bandwidth: points * torch.tensor([1.0, 0.0]), 2)
        >>> field.metric(torch.tensor([[5.0, 0.3]]), 0.1).dense()
        tensor([[[1.0000, 0.0000],
                 [0.0000, 0.1000]]])
    """

    def __init__(
        self,
        denoiser: object,
        dim: int | None = None,
        *,
        sample_shape: tuple[int, ...] | None = None,
        strength: float = 1.0,
    ) -> None:
        if not 0.0 <= strength < float("inf"):
            raise ArgumentError("strength", "be at least 0 and finite", got=strength)
        self._denoiser = Denoiser(denoiser, dim, sample_shape)
        self.dim, self.strength = self._denoiser.dim, strength

    def _metric(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> ComplementMetric:
        """Compute G = I − hhᵀ with h = √λ s/√(1 + λ|s|²)."""
        scaled = self.strength**0.5 * (self._denoiser(points, bandwidth) - points) / bandwidth.unsqueeze(-1)
        return ComplementMetric((scaled / (1 + scaled.square().sum(-1, keepdim=True)).sqrt()).unsqueeze(-2))

    def _denoise(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
        return self._denoiser(points, bandwidth)

    def score(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute s = (m − y)/σ² = ∇ log p_σ(y), Tweedie's formula."""
        points, sigma = self._checked(points, bandwidth)
        return (self._denoiser(points, sigma) - points) / sigma.square().unsqueeze(-1)
