"""Maps that a user gives, linearized at points: products with their Jacobians, never the Jacobian of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from carre.toolkit.derivatives import (
    ScalarFunction,
    check_callable,
    check_finite_derivatives,
    euclidean_gradient,
)

Map: TypeAlias = Callable[[Tensor], Tensor]
"""A torch function of a batch of points, (n, D) → (n,) or (n, k), that treats them one by one."""

_REMEDY = "Write it with torch operations, without detach, no_grad or NumPy"


@dataclass(frozen=True, eq=False)
class Linearization:
    """A map at points, ready for products with the transpose of its Jacobian J.

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
        with torch.enable_grad():
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
        raise ValueError(f"{name} must be differentiable in its points, and depend on them. {_REMEDY}")
    return linear


def linearize_gradient(function: ScalarFunction, points: Float[Tensor, "n dim"], *, name: str) -> Linearization:
    """Linearize ∂f of a scalar function: its products are Hessian-vector products. Those of a linear f are zero."""
    return _trace(lambda y: euclidean_gradient(function, y, name=name)[1], points, name)


def n_outputs(function: Map, points: Float[Tensor, "n dim"], *, name: str) -> int:
    """Ask how many values a map has per point, at the first of them."""
    check_callable(function, name)
    with torch.no_grad():
        return checked_values(function(points[:1]), points[:1], name=name)[0].numel()


def checked_values(values: object, points: Float[Tensor, "n dim"], *, name: str) -> Float[Tensor, "n ..."]:
    """Check that a map returned one value, or one row of values, per point."""
    if not isinstance(values, Tensor):
        raise ValueError(f"{name} must return a torch tensor; got {type(values).__name__}. {_REMEDY}")
    n = len(points)
    if values.ndim not in (1, 2) or len(values) != n or values[0].numel() == 0:
        raise ValueError(
            f"{name} must map points of shape {tuple(points.shape)} to shape ({n},), or ({n}, k) for k functions; "
            f"got {tuple(values.shape)}"
        )
    return values


def _trace(function: Map, points: Float[Tensor, "n dim"], name: str) -> Linearization:
    """Evaluate a map at points + 0, where the zeros ask for derivatives in place of the caller's points."""
    check_callable(function, name)
    keeps_graph = torch.is_grad_enabled() and points.requires_grad
    with torch.enable_grad():
        shift = torch.zeros_like(points, requires_grad=True)
        values = checked_values(function(points + shift), points, name=name)
    return Linearization(values, shift, keeps_graph, name)
