"""Derivatives of what a user gives, and of fields, with the errors that people make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from carre.fields import MetricField

ScalarFunction: TypeAlias = Callable[[Tensor], Tensor]
"""A torch function of a batch of points, (n, D) → (n,), that treats them one by one."""

_REMEDY = (
    "Write it with torch operations, without detach, no_grad or NumPy; for values known at samples only, use "
    "gradient_of_values; to minimize a black box, pass gradient='differences'"
)


def check_callable(function: object, name: str) -> None:
    """Refuse what is not a function."""
    if not callable(function):
        raise ValueError(f"{name} must be callable, a function of points; got {type(function).__name__}")


def check_finite_derivatives(derivatives: Tensor, name: str) -> None:
    """Refuse derivatives that are NaN or infinite."""
    if not bool(torch.isfinite(derivatives).all()):
        raise ValueError(f"{name} must have finite derivatives at the points; got NaN or infinity")


def values_of(function: ScalarFunction, points: Float[Tensor, "n dim"], *, name: str = "function") -> Tensor:
    """Evaluate a scalar function, and check the shape of the answer."""
    check_callable(function, name)
    values = function(points)
    if not isinstance(values, Tensor):
        raise ValueError(f"{name} must return a torch tensor; got {type(values).__name__}. {_REMEDY}")
    if values.shape == (len(points), 1):
        values = values[:, 0]
    if values.shape != (len(points),):
        raise ValueError(
            f"{name} must map points of shape {tuple(points.shape)} to one value each, shape ({len(points)},); "
            f"got {tuple(values.shape)}"
        )
    return values


def euclidean_gradient(
    function: ScalarFunction, points: Float[Tensor, "n dim"], *, name: str = "function", finite: bool = True
) -> tuple[Float[Tensor, " n"], Float[Tensor, "n dim"]]:
    """Compute the values and ∂f of a scalar function at every point.

    Differentiable in the points where they ask for gradients. Raises ValueError where ∂f is not finite, unless
    ``finite`` is False.
    """
    create_graph = torch.is_grad_enabled() and points.requires_grad
    with torch.enable_grad():
        # Adding zero gives every caller's points, also inside a transformation, a place to differentiate at.
        shift = torch.zeros_like(points, requires_grad=True)
        values = values_of(function, points + shift, name=name)
        if not values.requires_grad:
            raise ValueError(f"{name} must be differentiable in its points. {_REMEDY}")
        (slope,) = torch.autograd.grad(values.sum(), shift, create_graph=create_graph, allow_unused=True)
    if slope is None:
        raise ValueError(f"{name} must depend on its points; its derivative does not exist. {_REMEDY}")
    if finite:
        check_finite_derivatives(slope, name)
    return (values if create_graph else values.detach()), slope


def directional(
    function: Callable[[Tensor], Tensor], points: Float[Tensor, "n dim"], directions: Float[Tensor, "n dim"]
) -> tuple[Tensor, Tensor]:
    """Compute a function of points and its derivative along one direction per point.

    Forward mode; where an operation has none, twice backward.
    """
    try:
        result = torch.func.jvp(function, (points,), (directions,))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        # What has no forward derivative raises this (NotImplementedError is one); an error of another kind comes again.
        result = _twice_backward(function, points, directions)
    return result[0], result[1]


def _twice_backward(function: Callable[[Tensor], Tensor], points: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Compute Jv as the derivative of wᵀJ in w."""
    with torch.enable_grad():
        shift = torch.zeros_like(points, requires_grad=True)
        value = function(points.detach() + shift)
        if not value.requires_grad:
            raise ValueError("function must be differentiable in its points. " + _REMEDY)
        weight = torch.zeros_like(value, requires_grad=True)
        (slope,) = torch.autograd.grad(value, shift, weight, create_graph=True)
        (product,) = torch.autograd.grad(slope, weight, directions)
    return value.detach(), product


def metric_derivative(
    field: MetricField,
    points: Float[Tensor, "n dim"],
    bandwidth: Float[Tensor, " n"],
    directions: Float[Tensor, "n dim"],
    vectors: Float[Tensor, "n k dim"],
) -> Float[Tensor, "n k dim"]:
    """Compute (D_u G)w for one direction u and several vectors w per point, from one derivative of the factor.

    D_u G·w = (D_u F)ᵀFw + Fᵀ(D_u F)w [THEORY §4.3].
    """
    factor, slope = directional(lambda y: field.metric(y, bandwidth).factor, points, directions)
    left = torch.einsum("nrd,nkr->nkd", slope, torch.einsum("nrd,nkd->nkr", factor, vectors))
    right = torch.einsum("nrd,nkr->nkd", factor, torch.einsum("nrd,nkd->nkr", slope, vectors))
    return left + right
