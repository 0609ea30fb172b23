"""Derivatives of what a user gives, and of fields, with the errors that people make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend.modes import forward_mode, with_gradients
from carre.boundary import ArgumentError, is_finite
from carre.fields import MetricField

ScalarFunction: TypeAlias = Callable[[Tensor], Tensor]
"""A torch function of a batch of points, (n, D) → (n,), that treats them one by one."""
Map: TypeAlias = Callable[[Tensor], Tensor]
"""A torch function of a batch of points, (n, D) → (n,) or (n, k), that treats them one by one."""

_REMEDY = "Write it with torch operations, without detach, no_grad or NumPy"
_REMEDIES = (
    f"{_REMEDY}; for values known at samples only, use gradient_of_values; to minimize a black box, pass "
    "gradient='differences'"
)


def _check_tensor(values: object, points: Tensor, name: str, remedy: str) -> Tensor:
    """Refuse what a function returned and nothing can be computed of."""
    if not isinstance(values, Tensor):
        raise ArgumentError(name, "return a torch tensor", got=type(values).__name__, remedy=remedy)
    if values.is_complex() or values.layout != torch.strided or values.device != points.device:
        got = f"{values.dtype}, {values.layout}, on {values.device}"
        raise ArgumentError(name, "return a dense tensor of real numbers where the points are", got=got)
    return values


def check_finite_derivatives(derivatives: Tensor, name: str) -> None:
    """Refuse derivatives that are NaN or infinite."""
    if not is_finite(derivatives):
        raise ArgumentError(name, "have finite derivatives at the points", got="NaN or infinity")


def values_of(function: ScalarFunction, points: Float[Tensor, "n dim"], *, name: str = "function") -> Tensor:
    """Evaluate a scalar function, and check the shape of the answer."""
    values = _check_tensor(function(points), points, name, _REMEDIES)
    if values.shape == (len(points), 1):
        values = values[:, 0]
    if values.shape != (len(points),):
        must = f"map points of shape {tuple(points.shape)} to one value each, shape ({len(points)},)"
        raise ArgumentError(name, must, got=tuple(values.shape))
    return values


def euclidean_gradient(
    function: ScalarFunction, points: Float[Tensor, "n dim"], *, name: str = "function", finite: bool = True
) -> tuple[Float[Tensor, " n"], Float[Tensor, "n dim"]]:
    """Compute the values and ∂f of a scalar function at every point; refuse ∂f that is not finite, unless told not to.

    Differentiable in the points where they ask for gradients.
    """
    create_graph = torch.is_grad_enabled() and points.requires_grad
    with with_gradients():
        # Adding zero gives every caller's points, also inside a transformation, a place to differentiate at.
        shift = torch.zeros_like(points, requires_grad=True)
        values = values_of(function, points + shift, name=name)
        if not values.requires_grad:
            raise ArgumentError(name, "be differentiable in its points", remedy=_REMEDIES)
        (slope,) = torch.autograd.grad(values.sum(), shift, create_graph=create_graph, allow_unused=True)
    if slope is None:
        raise ArgumentError(name, "depend on its points; its derivative does not exist", remedy=_REMEDIES)
    if finite:
        check_finite_derivatives(slope, name)
    return (values if create_graph else values.detach()), slope


@dataclass(frozen=True, eq=False)
class Linearization:
    """A map at points, ready for products with the transpose of its Jacobian J, which is never formed of a batch.

    Attributes:
        traced: What the map returned, with its graph.
        shift: The zeros that were added to the points, to differentiate in.
        keeps_graph: Whether values and products are differentiable in the points.
        name: What errors call the map.
    """

    traced: Float[Tensor, "n ..."]
    shift: Float[Tensor, "n dim"]
    keeps_graph: bool
    name: str

    @property
    def values(self) -> Float[Tensor, "n ..."]:
        """What the map returned."""
        return self.traced if self.keeps_graph else self.traced.detach()

    def pull_back(self, covectors: Float[Tensor, "n ..."]) -> Float[Tensor, "n dim"]:
        """Compute Jᵀw for one covector w per point."""
        if not self.traced.requires_grad:
            return torch.zeros_like(self.shift)
        with with_gradients():
            (product,) = torch.autograd.grad(
                self.traced, self.shift, covectors, retain_graph=True, create_graph=self.keeps_graph, allow_unused=True
            )
        if product is None:
            return torch.zeros_like(self.shift)
        check_finite_derivatives(product, self.name)
        return product

    def jacobian(self) -> Float[Tensor, "n k dim"]:
        """Compute the rows of J, by one product per output."""
        if self.values.ndim == 1:
            return self.pull_back(torch.ones_like(self.values))[:, None]
        axes = torch.eye(self.values.shape[1], dtype=self.values.dtype, device=self.values.device)
        return torch.stack([self.pull_back(axis.expand_as(self.values)) for axis in axes], 1)


def linearize(function: Map, points: Float[Tensor, "n dim"], *, name: str) -> Linearization:
    """Evaluate a map once, such that it can be differentiated, and check what it returns."""
    linear = _trace(function, points, name)
    if not linear.traced.requires_grad:
        raise ArgumentError(name, "be differentiable in its points, and depend on them", remedy=_REMEDY)
    return linear


def linearize_gradient(function: ScalarFunction, points: Float[Tensor, "n dim"], *, name: str) -> Linearization:
    """Linearize ∂f of a scalar function: its products are Hessian-vector products. Those of a linear f are zero."""
    return _trace(lambda y: euclidean_gradient(function, y, name=name)[1], points, name)


def _trace(function: Map, points: Float[Tensor, "n dim"], name: str) -> Linearization:
    """Evaluate a map at points + 0, where the zeros ask for derivatives in place of the caller's points."""
    keeps_graph = torch.is_grad_enabled() and points.requires_grad
    with with_gradients():
        shift = torch.zeros_like(points, requires_grad=True)
        values = checked_values(function(points + shift), points, name=name)
    return Linearization(values, shift, keeps_graph, name)


def output_shape(function: Map, points: Float[Tensor, "n dim"], *, name: str) -> torch.Size:
    """Ask for the shape of what a map returns for a point, () or (k,), at the first of them."""
    with torch.no_grad():
        return checked_values(function(points[:1].clone()), points[:1], name=name)[0].shape


def checked_values(values: object, points: Float[Tensor, "n dim"], *, name: str) -> Float[Tensor, "n ..."]:
    """Check that a map returned one value, or one row of values, per point."""
    values, n = _check_tensor(values, points, name, _REMEDY), len(points)
    if values.ndim not in (1, 2) or len(values) != n or values[0].numel() == 0:
        must = f"map points of shape {tuple(points.shape)} to shape ({n},), or ({n}, k) for k functions"
        raise ArgumentError(name, must, got=tuple(values.shape))
    return values


def directional(
    function: Callable[[Tensor], Tensor], points: Float[Tensor, "n dim"], directions: Float[Tensor, "n dim"]
) -> tuple[Tensor, Tensor]:
    """Compute a function of points and its derivative along one direction per point.

    Forward mode; where an operation has none, twice backward.
    """
    try:
        with forward_mode:
            result = torch.func.jvp(function, (points,), (directions,))
        return result[0], result[1]
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        # What has no forward derivative raises this (NotImplementedError is one); an error of another kind comes again.
        pass
    # Jv is the derivative of wᵀJ in w.
    with with_gradients():
        shift = torch.zeros_like(points, requires_grad=True)
        value = function(points.detach() + shift)
        if not value.requires_grad:
            raise ArgumentError("function", "be differentiable in its points", remedy=_REMEDIES)
        weight = torch.zeros_like(value, requires_grad=True)
        (slope,) = torch.autograd.grad(value, shift, weight, create_graph=True)
        (product,) = torch.autograd.grad(slope, weight, directions)
    return value.detach(), product


def metric_derivative(
    field: MetricField, points: Tensor, bandwidth: Tensor, directions: Float[Tensor, "n dim"], vectors: Tensor
) -> Float[Tensor, "n k dim"]:
    """Compute (D_u G)w for one direction u and several vectors w per point [THEORY §4.3]."""
    return directional(lambda y: field.metric(y, bandwidth)[:, None].apply(vectors), points, directions)[1]
