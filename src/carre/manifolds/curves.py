"""Curves given by any parametrization, uniform in arc length."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend.modes import forward_mode
from carre.boundary import ArgumentError
from carre.manifolds.finite import FiniteSet
from carre.manifolds.manifold import Manifold, Options, Posterior, checked_points

# Gauss–Legendre nodes per panel of an open curve.
_PANEL = 16
_NEWTON_STEPS = 12

Parametrization = Callable[[Tensor], Tensor]


class Curve(Manifold):
    """The arc-length-uniform distribution on a curve γ: [low, high] → R^D.

    The posterior is a quadrature over nodes that are built once: Gauss–Legendre panels, or the
    trapezoid rule where the curve is closed. It is exact to about 1e-10 while the nodes are closer
    than σ/2, and refuses smaller bandwidths.

    Args:
        function: γ as a torch function of a batch of parameters, (n,) → (n, D).
        low: The first parameter.
        high: The last parameter.
        closed: Whether γ is periodic with period high − low.
        n_nodes: The number of nodes, rounded up to whole panels of 16.

    Example:
        >>> parabola = Curve(lambda t: torch.stack([t, t**2], dim=-1), -1.0, 1.0)
        >>> parabola.distance(torch.tensor([[0.0, -0.2], [0.0, 1.0]]))  # the second is √3/2
        tensor([0.2000, 0.8660])
    """

    def __init__(
        self, function: Parametrization, low: float, high: float, *, closed: bool = False, n_nodes: int = 4096
    ) -> None:
        if not -math.inf < low < high < math.inf:
            raise ArgumentError("high", "be larger than low, and both finite", got=f"low={low}, high={high}")
        if n_nodes < 2 * _PANEL:
            raise ArgumentError("n_nodes", f"be at least {2 * _PANEL}", got=n_nodes)
        self.function, self.low, self.high, self.closed = function, low, high, closed
        shares, weights = (torch.arange(n_nodes).double() / n_nodes, 1.0) if closed else _gauss_legendre(n_nodes)
        self._parameters = low + (high - low) * shares
        nodes, velocity = self._evaluate(self._parameters)
        if nodes.ndim != 2 or len(nodes) != len(self._parameters):
            raise ArgumentError("function", "map parameters (n,) to points (n, D)", got=tuple(nodes.shape))
        super().__init__(nodes.shape[1], 1)
        self._quadrature = FiniteSet(nodes, weights * torch.linalg.vector_norm(velocity, dim=-1))
        ring = torch.cat([nodes, nodes[:1]]) if closed else nodes
        self.spacing = float(torch.linalg.vector_norm(ring.diff(dim=0), dim=-1).max())
        self._arc = self._arc_lengths(n_nodes)

    def _sample(self, n: int, options: Options) -> Tensor:
        uniform = torch.rand(n, **{**options, "dtype": torch.float64})
        parameters, arc = (array.to(uniform.device) for array in self._arc)
        target = uniform * arc[-1]
        right = torch.searchsorted(arc, target, right=True).clamp(1, len(arc) - 1)
        share = (target - arc[right - 1]) / (arc[right] - arc[right - 1])
        drawn = parameters[right - 1] + share * (parameters[right] - parameters[right - 1])
        return self.function(drawn).to(options["dtype"])

    def parameter(self, points: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
        """Find the parameter of each point: of the nearest node, improved by Gauss–Newton steps.

        The steps converge quadratically at points on the curve, and linearly off it. On the outer side of a bend,
        farther than its radius, whole steps lead away: one that does is not taken, and later ones are half as long.
        """
        points = checked_points(points, self.ambient_dim)
        nodes = self._quadrature.samples.to(points)
        nearest = torch.cat([torch.cdist(part, nodes).argmin(-1) for part in torch.split(points, 1024)])
        parameters = self._parameters.to(points)[nearest]
        position, velocity = self._evaluate(parameters)
        share = torch.ones_like(parameters)
        for _ in range(_NEWTON_STEPS):
            step = (velocity * (points - position)).sum(-1) / velocity.square().sum(-1)
            moved = parameters + share * step
            moved = moved if self.closed else moved.clamp(self.low, self.high)
            there, speed = self._evaluate(moved)
            nearer = (points - there).square().sum(-1) <= (points - position).square().sum(-1)
            share = torch.where(nearer, share, 0.5 * share)
            parameters = torch.where(nearer, moved, parameters)
            position = torch.where(nearer[:, None], there, position)
            velocity = torch.where(nearer[:, None], speed, velocity)
        return parameters

    def _evaluate(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Compute γ and γ′ by one forward-mode pass: each row depends on its own parameter only."""
        with forward_mode:
            result = torch.func.jvp(self.function, (parameters,), (torch.ones_like(parameters),))
        return result[0], result[1]

    def _arc_lengths(self, n_nodes: int) -> tuple[Tensor, Tensor]:
        """Tabulate parameters and the arc length up to them, by the trapezoid rule."""
        parameters = torch.linspace(self.low, self.high, n_nodes + 1, dtype=torch.float64)
        speed = torch.linalg.vector_norm(self._evaluate(parameters)[1], dim=-1)
        lengths = torch.cumulative_trapezoid(speed, parameters)
        return parameters, torch.cat([torch.zeros(1, dtype=torch.float64), lengths])

    def _tangent_basis(self, points: Tensor) -> Tensor:
        _, velocity = self._evaluate(self.parameter(points))
        return torch.nn.functional.normalize(velocity, dim=-1).unsqueeze(-1)

    def _distance(self, points: Tensor) -> Tensor:
        nearest = self.function(self.parameter(points))
        distance: Tensor = torch.linalg.vector_norm(points - nearest, dim=-1)
        return distance

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        check_resolution(bandwidth, self.spacing)
        return self._quadrature._posterior(points, bandwidth)


class ClosedCurve(Curve):
    """The arc-length-uniform distribution on a closed curve γ: [0, 2π) → R^D.

    Args:
        function: γ, with period 2π, as a torch function of a batch of parameters, (n,) → (n, D).
        n_nodes: The number of nodes of the quadrature.

    Example:
        >>> ellipse = ClosedCurve(lambda t: torch.stack([2 * t.cos(), t.sin()], dim=-1))
        >>> ellipse.tangent_basis(torch.tensor([[2.0, 0.0]]).double()).abs().squeeze()
        tensor([0., 1.], dtype=torch.float64)
    """

    def __init__(self, function: Parametrization, *, n_nodes: int = 4096) -> None:
        super().__init__(function, 0.0, 2 * math.pi, closed=True, n_nodes=n_nodes)


def check_resolution(bandwidth: Tensor, spacing: float) -> None:
    """Check that the nodes of a quadrature resolve the kernel."""
    smallest = float(bandwidth.min())
    if smallest < 2 * spacing:
        must = f"be at least {2 * spacing:.3g}, twice the spacing of the quadrature"
        remedy = f"Increase n_nodes by a factor of {math.ceil(2 * spacing / smallest)}"
        raise ArgumentError("bandwidth", must, got=f"{smallest:.3g}", remedy=remedy)


def _gauss_legendre(n_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the nodes and weights of Gauss–Legendre panels on [0, 1]."""
    n_panels = math.ceil(n_nodes / _PANEL)
    nodes, weights = (torch.from_numpy(array) for array in np.polynomial.legendre.leggauss(_PANEL))
    starts = torch.arange(n_panels, dtype=torch.float64).unsqueeze(-1)
    return ((starts + 0.5 * (nodes + 1)) / n_panels).flatten(), weights.repeat(n_panels)
