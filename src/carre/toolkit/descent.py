"""Minimizing functions along the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.descent_steps import REASONS, Descent
from carre.toolkit.distance import distance_from_data
from carre.toolkit.objective import Objective


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where descents ended, and why, one per start.

    Attributes:
        points: The last points, shape (n, D).
        values: The function there, shape (n,).
        gradient_norms: The length of its gradient along the data there, shape (n,).
        n_steps: Steps taken, shape (n,).
        reasons: Why each descent stopped. "converged": the gradient along the data is small. "step too small": not even
            a step 4,000 times shorter than expected lowers the function; an edge of the data is in the way, or the
            gradient is as small as the errors of the field and of the function allow, or wrong. "step limit": raise
            ``max_steps``. "left the data": the start is not on the data, the way down leads off them, or σ is too large
            for them to have a tangent direction. "function not finite".
        strayed: Distances from the data, shape (n,).
        path: The points after every step, shape (n, steps + 1, D), or None. A descent that has stopped stays in place.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> starts = [[1.0, 0.0], [0.0, 1.01], [3.0, 0.0]]  # the last is far from the circle
        >>> lowest = minimize(ExactField(Sphere(1)), lambda x: x[:, 0], starts, 0.1, tolerance=0.01)
        >>> lowest.converged
        array([ True,  True, False])
        >>> round(float(lowest.values[lowest.best]), 2)
        -1.0
    """

    points: Any
    values: Any
    gradient_norms: Any
    n_steps: Any
    reasons: tuple[str, ...]
    strayed: Any
    path: Any = None

    @property
    def converged(self) -> np.ndarray:
        """Which descents converged."""
        return np.array([reason == "converged" for reason in self.reasons])

    @property
    def best(self) -> int:
        """The index of the lowest value among the descents that ended on the data."""
        values = np.asarray(torch.as_tensor(self.values).cpu(), dtype=float)
        lost = np.isin(self.reasons, ("left the data", "function not finite"))
        values = np.where(np.isnan(values), np.inf, values)
        return int(np.argmin(values if lost.all() else np.where(lost, np.inf, values)))

    def __repr__(self) -> str:
        counts = {reason: self.reasons.count(reason) for reason in REASONS if reason in self.reasons}
        told = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        return f"Minimum({len(self.reasons)} starts: {told}; best value {float(self.values[self.best]):.6g})"


def minimize(
    field: MetricField,
    function: Callable[[Any], Any],
    starts: Any,
    bandwidth: Bandwidth,
    *,
    gradient: str | Callable[[Any], Any] | None = None,
    spacing: float = 0.1,
    dim: int | None = None,
    ridge: float = 0.0,
    landing: float = 1.0,
    step: float | None = None,
    max_steps: int = 200,
    tolerance: float = 1e-4,
    keep_path: bool = False,
    progress: Progress | None = None,
) -> Minimum:
    """Minimize a function along the data, from many starts at once.

    Each step goes down the gradient along the data, x ← x − η[(1−δ)G + δI]∂f, and is landed on them by the
    denoiser, x ← x + α·pull [THEORY §4.6]. Every start has its own η, a Barzilai–Borwein guess that is halved until the
    function, after landing, has fallen enough (Armijo). No step is longer than 3σ, which is as far as a field can be
    trusted to know the way back. Minima are local: give many starts.

    Args:
        field: The field.
        function: A function of a batch of points, (n, D) → (n,), that treats them one by one. By default it is a torch
            function and gets tensors. With ``gradient`` it is a black box and gets what ``starts`` are: arrays or
            tensors.
        starts: Where to begin, shape (n, D). Noisy starts are landed first.
        bandwidth: σ, one number or one per start.
        gradient: None for autograd; "differences" for central differences along the tangent directions only, at 2d
            evaluations per step; or a function (n, D) → (n, D), the Euclidean gradient ∂f.
        spacing: Half the distance between the two points of a difference, in σ. Raise it to about 1 for functions that
            are noisy or piecewise constant, like forests.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        ridge: δ, the share of the Euclidean gradient.
        landing: α, the share of the way back to the data after a step: 1 lands wholly, 0 not at all.
        step: The first η to try; None takes a step of length σ.
        max_steps: Steps per start, at most.
        tolerance: Converged when the gradient along the data is this small, relative to ∂f at the start.
        keep_path: Whether to return every point on the way.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> starts = Sphere(2).sample(5, generator=torch.Generator().manual_seed(0))
        >>> lowest = minimize(ExactField(Sphere(2)), lambda x: x[:, 2], starts, 0.1)
        >>> lowest
        Minimum(5 starts: 5 converged; best value -1)
    """
    given = as_points(starts, dim=field.dim, name="starts")
    sigma = as_bandwidth(bandwidth, given.tensor)
    objective = Objective(function, gradient, spacing, wants_arrays=given.is_array)
    descent = Descent(
        field, objective, dim, checked_share(ridge, "ridge"), checked_share(landing, "landing"), tolerance
    )
    _check_numbers(max_steps, tolerance, step, name="max_steps")
    begun = 0

    def part(x: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        nonlocal begun
        before, begun = begun, begun + len(x)

        def tell(fraction: float) -> None:
            if progress is not None:
                progress((before + fraction * len(x)) / len(given.tensor))

        return descent.run(x, s, step, max_steps, keep_path, tell)

    with torch.no_grad():
        numbers = 64 * field.dim + keep_path * max_steps * field.dim
        points, values, norms, counts, codes, path = in_parts(
            part, given.tensor.detach(), sigma.detach(), numbers_per_item=numbers
        )
    return Minimum(
        given.restore(points),
        given.restore(values),
        given.restore(norms),
        given.restore(counts),
        tuple(REASONS[code] for code in codes.tolist()),
        given.restore(distance_from_data(field, points, sigma)),
        given.restore(path[:, : int(counts.max()) + 1]) if keep_path else None,
    )


def gradient_flow(
    field: MetricField,
    function: Callable[[Any], Any],
    starts: Any,
    bandwidth: Bandwidth,
    *,
    step: float,
    n_steps: int,
    gradient: str | Callable[[Any], Any] | None = None,
    spacing: float = 0.1,
    dim: int | None = None,
    ridge: float = 0.0,
    landing: float = 1.0,
    progress: Progress | None = None,
) -> Any:
    """Follow the gradient of a function down along the data by steps of fixed η, shape (n, n_steps + 1, D).

    x ← x − η[(1−δ)G + δI]∂f, then x ← x + α·pull. Stable for η < 2/L, with L the largest curvature of the function
    along the data. Without landing the points drift off by about ½ηκ∫|v|ds [THEORY §4.6].

    Args:
        field: The field.
        function: As for `minimize`.
        starts: Where to begin, shape (n, D).
        bandwidth: σ, one number or one per start.
        step: η.
        n_steps: How many.
        gradient: As for `minimize`.
        spacing: As for `minimize`.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        ridge: δ, the share of the Euclidean gradient.
        landing: α, the share of the way back to the data after a step.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> east = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        >>> flow = gradient_flow(ExactField(Sphere(1)), lambda x: x[:, 1], east, 0.1, step=0.2, n_steps=40)
        >>> flow[0, -1].round(decimals=2)
        tensor([ 0., -1.], dtype=torch.float64)
    """
    given = as_points(starts, dim=field.dim, name="starts")
    sigma = as_bandwidth(bandwidth, given.tensor)
    objective = Objective(function, gradient, spacing, wants_arrays=given.is_array)
    descent = Descent(field, objective, dim, checked_share(ridge, "ridge"), checked_share(landing, "landing"))
    _check_numbers(n_steps, 1.0, step, name="n_steps")

    def part(x: Tensor, s: Tensor) -> Float[Tensor, "n nodes dim"]:
        nodes = [x]
        for taken in range(n_steps):
            here = descent.look(nodes[-1], s, valued=False)
            if not bool(torch.isfinite(here.steepness).all()):
                raise ValueError(
                    f"function must have finite derivatives along the flow; got NaN or infinity after step {taken}. "
                    "Lower step, or start where the function is finite"
                )
            nodes.append(descent.land(nodes[-1] + step * here.direction, s))
        return torch.stack(nodes, 1)

    with torch.no_grad():
        return given.restore(
            in_parts(
                part,
                given.tensor.detach(),
                sigma.detach(),
                numbers_per_item=(64 + n_steps) * field.dim,
                progress=progress,
            )
        )


def checked_share(share: float, name: str) -> float:
    """Check that a number lies between 0 and 1."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{name} must lie between 0 and 1; got {share}")
    return share


def _check_numbers(n_steps: int, tolerance: float, step: float | None, *, name: str) -> None:
    if not (isinstance(n_steps, (int, np.integer)) and not isinstance(n_steps, bool) and n_steps >= 1):
        raise ValueError(f"{name} must be a positive integer; got {n_steps!r}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive; got {tolerance}")
    if step is not None and not step > 0:
        raise ValueError(f"step must be positive; got {step}. Negate the function to go uphill")
