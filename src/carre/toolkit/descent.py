"""Minimizing functions along the data: slopes of the function, direction, landing, line search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.arguments import shown
from carre.backend import Progress, in_parts
from carre.boundary import ArgumentError, Points, as_array, as_count
from carre.fields import Bandwidth, DataField, MetricField
from carre.metric import Metric
from carre.toolkit.derivatives import euclidean_gradient, values_of
from carre.toolkit.landing import lengths, noise_reach, pull, walk_back, walked_distance
from carre.toolkit.question import ask, check_number, telling
from carre.toolkit.tangent import TANGENT_ABOVE, TangentFrame, tangent_frame

_REASONS = ("step limit", "converged", "step too small", "left the data", "function not finite")
_LIMIT, _CONVERGED, _TOO_SMALL, _LEFT, _NOT_FINITE = range(len(_REASONS))

# Armijo: the share of the promised decrease that a step must keep.
_SUFFICIENT = 1e-4
_GROWTH = 4.0
_MOST_HALVINGS = 12
# In the longest η before: an end of the data can be approached forever.
_SHORTEST = 1e-6
# In what noise would do: farther starts are not on the data. And how much farther than its start a descent may go.
_FAR_START, _STRETCH = 2.0, 1.25
# In σ.
_LONGEST_STEP = 3.0
_DIFFERENCES = "differences"


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
        counts = {reason: self.reasons.count(reason) for reason in _REASONS if reason in self.reasons}
        told = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        return f"Minimum({len(self.reasons)} starts: {told}; best value {float(self.values[self.best]):.6g})"


def minimize(
    field: MetricField | DataField,
    function: Callable[[Any], Any],
    starts: Any,
    bandwidth: Bandwidth | None = None,
    *,
    gradient: str | Callable[[Any], Any] | None = None,
    spacing: float = 0.1,
    dimension: int | None = None,
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
        bandwidth: σ, one number or one per start; None for the default of a geometry.
        gradient: None for autograd; "differences" for central differences along the tangent directions only, at 2d
            evaluations per step; or a function (n, D) → (n, D), the Euclidean gradient ∂f.
        spacing: Half the distance between the two points of a difference, in σ. Raise it to about 1 for functions that
            are noisy or piecewise constant, like forests.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
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
    question = ask(field, starts, bandwidth, name="starts", task="minimize").detached()
    as_count(max_steps, name="max_steps")
    check_number(tolerance, "be positive", lambda x: x > 0, name="tolerance")
    objective = _Objective(question.given, function, gradient, spacing)
    descent = _Descent(question.field, objective, dimension, ridge, landing, step)
    count = len(question.points)
    with torch.no_grad(), telling(field, progress, question.task) as told:

        def part(x: Tensor, s: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
            def tell(fraction: float) -> None:
                if told is not None:
                    told((int(rows[0]) + fraction * len(rows)) / count)

            ended = descent.run(x, s, max_steps, tolerance, keep_path, tell)
            return *ended, walked_distance(question.field, ended[0], s)

        numbers = (64 + keep_path * max_steps) * question.field.dim
        points, values, norms, counts, codes, path, strayed = question.compute(
            part, question.points, question.bandwidth, torch.arange(count, device="cpu"), numbers=numbers, progress=told
        )
    restore, restore_vectors = question.given.restore, question.given.restore_vectors
    return Minimum(
        restore_vectors(points),
        restore(values),
        restore(norms),
        restore(counts),
        tuple(_REASONS[code] for code in codes.tolist()),
        restore(strayed),
        restore_vectors(path[:, : int(counts.max()) + 1]) if keep_path else None,
    )


def gradient_flow(
    field: MetricField | DataField,
    function: Callable[[Any], Any],
    starts: Any,
    bandwidth: Bandwidth | None = None,
    *,
    step: float,
    n_steps: int,
    gradient: str | Callable[[Any], Any] | None = None,
    spacing: float = 0.1,
    dimension: int | None = None,
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
        bandwidth: σ, one number or one per start; None for the default of a geometry.
        step: η.
        n_steps: How many.
        gradient: As for `minimize`.
        spacing: As for `minimize`.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
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
    question = ask(field, starts, bandwidth, name="starts", task="gradient flow").detached()
    as_count(n_steps, name="n_steps")
    objective = _Objective(question.given, function, gradient, spacing)
    descent = _Descent(question.field, objective, dimension, ridge, landing, step)

    def part(x: Tensor, s: Tensor) -> Float[Tensor, "n nodes dim"]:
        nodes = [x]
        for taken in range(n_steps):
            _, slopes, direction = descent.way_down(nodes[-1], s)
            if not bool(torch.isfinite(slopes).all()):
                must, got = "have finite derivatives along the flow", f"NaN or infinity after step {taken}"
                remedy = "Lower step, or start where the function is finite"
                raise ArgumentError("function", must, got=got, remedy=remedy)
            nodes.append(descent.land(nodes[-1] + step * direction, s))
        return torch.stack(nodes, 1)

    with torch.no_grad():
        numbers = (64 + n_steps) * question.field.dim
        return question.answer(part, numbers_per_point=numbers, as_points=True, progress=progress)


class _Objective:
    """A scalar function of points with its gradient along the data: by autograd, by differences, or by a function.

    The caller's functions see images, and black boxes arrays, where the starts were.
    """

    def __init__(self, starts: Points, function: Any, gradient: Any, spacing: float) -> None:
        if not (gradient is None or callable(gradient) or (isinstance(gradient, str) and gradient == _DIFFERENCES)):
            must = f"be None (autograd), {_DIFFERENCES!r}, or a function of points"
            raise ArgumentError("gradient", must, got=shown(gradient))
        check_number(spacing, "be positive", lambda x: x > 0, name="spacing")

        def seen(caller: Any) -> Any:
            if gradient is not None and starts.is_array and callable(caller):
                return starts.seen_by(lambda points: caller(points.cpu().numpy()))
            return starts.seen_by(caller)

        self.function, self.gradient, self.spacing = seen(function), seen(gradient), spacing
        self.units = starts.units

    def values(self, points: Float[Tensor, "n dim"]) -> Float[Tensor, " n"]:
        """Evaluate the function."""
        if self.gradient is None:
            return values_of(self.function, points.clone()).to(points)
        return _asked(self.function, points, (len(points),), "function")

    def slopes(
        self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], basis: Float[Tensor, "n dim d"]
    ) -> Float[Tensor, "n dim"]:
        """Compute ∂f, or from differences its part in the span of a basis."""
        if self.gradient is None:
            return euclidean_gradient(self.function, points, finite=False)[1].to(points)
        if self.gradient != _DIFFERENCES:
            slopes = _asked(self.gradient, points, tuple(points.shape), "gradient")
            return slopes if self.units is None else slopes * self.units.to(points)
        numbers = 4 * points.shape[1] * basis.shape[-1]
        found: Tensor = in_parts(self._differences, points, bandwidth, basis, numbers_per_item=numbers)
        return found

    def _differences(self, points: Tensor, bandwidth: Tensor, basis: Tensor) -> Tensor:
        """Compute Σ_a u_a (f(x + hu_a) − f(x − hu_a))/2h with all evaluations in one batch."""
        n, dim, d = basis.shape
        shift = (self.spacing * bandwidth)[:, None, None] * basis.mT
        around = torch.stack([points[:, None] + shift, points[:, None] - shift])
        ahead, behind = self.values(around.reshape(-1, dim)).reshape(2, n, d)
        slope = (ahead - behind) / (2 * self.spacing * bandwidth)[:, None]
        return torch.einsum("nda,na->nd", basis, slope)


def _asked(function: Callable[[Any], Any], points: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """Ask a black box about a copy, which it may write into, and check the shape of the answer."""
    answer = function(points.clone())
    if not isinstance(answer, Tensor):
        array = as_array(answer, name)
        if array.dtype.kind not in "fiub":
            raise ArgumentError(name, "return real numbers", got=f"{type(answer).__name__} of dtype {array.dtype}")
        # A copy: answers may be read-only arrays.
        answer = torch.tensor(array, device="cpu")
    if answer.is_complex() or answer.layout != torch.strided or answer.is_meta:
        raise ArgumentError(name, "return dense real numbers", got=f"{answer.dtype}, {answer.layout}")
    tensor = answer.detach().to(points)
    if tensor.shape == (*shape, 1):
        tensor = tensor[..., 0]
    if tensor.shape != shape:
        must = f"map points of shape {tuple(points.shape)} to shape {shape}"
        raise ArgumentError(name, must, got=tuple(tensor.shape))
    return tensor


class _State(NamedTuple):
    """What a descent knows at its current points x."""

    points: Float[Tensor, "n dim"]
    # f at the landing of x itself: what a step of length 0 gives.
    base: Float[Tensor, " n"]
    # v = −[(1−δ)PG + δI]∂f, what landing leaves of it to first order, v − α(I−P)v, and how fast f falls along that.
    direction: Float[Tensor, "n dim"]
    velocity: Float[Tensor, "n dim"]
    slope: Float[Tensor, " n"]
    # |∂f|.
    steepness: Float[Tensor, " n"]
    # How far from the data noise of deviation σ would carry a point, and whether they have a tangent direction here.
    reach: Float[Tensor, " n"]
    on_data: Bool[Tensor, " n"]

    def at(self, index: Tensor) -> _State:
        """Select points."""
        return _State(*(column[index] for column in self))


@dataclass(frozen=True)
class _Descent:
    """A descent of one function along the data of one field, with the options of `minimize`."""

    field: MetricField
    objective: _Objective
    dimension: int | None
    ridge: float
    landing: float
    step: float | None

    def __post_init__(self) -> None:
        for name in ("ridge", "landing"):
            check_number(getattr(self, name), "lie between 0 and 1", lambda x: 0 <= x <= 1, name=name)
        if self.step is not None:
            remedy = "Negate the function to go uphill"
            check_number(self.step, "be positive", lambda x: x > 0, name="step", remedy=remedy)

    def run(
        self, starts: Tensor, bandwidth: Tensor, max_steps: int, tolerance: float, keep_path: bool, progress: Progress
    ) -> tuple[Tensor, ...]:
        """Descend; return points, values, gradient norms, step counts, codes of reasons, and the path."""
        frame = self._frame(self.field.metric(starts, bandwidth))
        walked = lengths(walk_back(self.field, starts, bandwidth) - starts)
        near = walked <= _FAR_START * noise_reach(bandwidth, self.field.dim - frame.present.sum(-1))
        points = torch.where(near[:, None], self.land(starts, bandwidth, frame), starts)
        values, norms = self.objective.values(points), torch.full_like(bandwidth, torch.nan)
        counts, codes = (torch.zeros(len(points), dtype=torch.long, device=points.device) for _ in range(2))
        path = points[:, None].repeat(1, max_steps + 1 if keep_path else 1, 1)
        codes[~torch.isfinite(values)] = _NOT_FINITE
        codes[~near] = _LEFT
        active = torch.nonzero(codes == _LIMIT)[:, 0]
        scale, eta, longest = (torch.zeros_like(walked) for _ in range(3))
        before, velocity = points.clone(), torch.zeros_like(points)
        for taken in range(max_steps + 1):
            if len(active) == 0:
                break
            here = self._state(points[active], bandwidth[active])
            if taken == 0:
                speed = lengths(here.direction).clamp_min(torch.finfo(eta.dtype).tiny)
                scale[active], eta[active] = here.steepness, self.step or bandwidth[active] / speed
            else:
                eta[active] = _next_step(here.points - before[active], velocity[active] - here.velocity, eta[active])
                progress(taken / max_steps)
            norms[active] = lengths(here.velocity)
            codes[active] = _verdict(here, tolerance * scale[active], is_start=taken == 0)
            going = codes[active] == _LIMIT
            if taken == max_steps or not bool(going.any()):
                break
            active, here = active[going], here.at(going)
            before[active], velocity[active] = here.points, here.velocity
            # Data may be noisier than σ: wherever starts are is near enough.
            reach = torch.maximum(here.reach, _STRETCH * walked[active])
            found = self._search(here, bandwidth[active], eta[active], _SHORTEST * longest[active], reach)
            there, fallen, eta[active], codes[active] = found
            moved = codes[active] == _LIMIT
            active = active[moved]
            points[active], values[active] = there[moved], fallen[moved]
            longest[active] = torch.maximum(longest[active], eta[active])
            counts[active] += 1
            if keep_path:
                path[active, taken + 1 :] = points[active, None]
        progress(1.0)
        return points, values, norms, counts, codes, path

    def way_down(self, points: Tensor, bandwidth: Tensor) -> tuple[TangentFrame, Tensor, Tensor]:
        """Compute tangent frames, slopes ∂f and directions at points."""
        metric = self.field.metric(points, bandwidth)
        frame = self._frame(metric)
        slopes = self.objective.slopes(points, bandwidth, frame.basis)
        # Of G only the tangent part: at finite σ its small normal eigenvalues would lead off the data, step by step.
        return frame, slopes, -(1 - self.ridge) * frame.project(metric.apply(slopes)) - self.ridge * slopes

    def land(self, points: Tensor, bandwidth: Tensor, frame: TangentFrame | None = None) -> Float[Tensor, "n dim"]:
        """Move points by the share α of the way back to the data.

        Across the data only: along them the denoiser drifts to where they are denser, which would compete with f.
        """
        if self.landing == 0.0 or len(points) == 0:
            return points
        back = pull(self.field, points, bandwidth)
        frame = self._frame(self.field.metric(points, bandwidth)) if frame is None else frame
        return points + self.landing * (back - frame.project(back))

    def _frame(self, metric: Metric) -> TangentFrame:
        """Compute tangent frames without the directions that lead over an edge of the data, whatever the dimension.

        Beyond an edge the eigenvalue across it falls: ½ at σ/2 inside, 0.36 at the edge, 0.2 at σ outside [THEORY §1].
        """
        frame = tangent_frame(metric, min(metric.rank, metric.dim) if self.dimension is None else self.dimension)
        present = frame.values > TANGENT_ABOVE
        # Eigenvalues descend: beyond the most that any point has, columns are zero.
        most = max(1, int(present.sum(-1).max()))
        basis = (frame.basis * present[:, None, :])[..., :most]
        return replace(frame, basis=basis, values=frame.values[:, :most], present=present[:, :most])

    def _state(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> _State:
        frame, slopes, direction = self.way_down(points, bandwidth)
        velocity = direction - self.landing * (direction - frame.project(direction))
        return _State(
            points,
            self.objective.values(self.land(points, bandwidth, frame)),
            direction,
            velocity,
            (velocity * slopes).sum(-1),
            lengths(slopes),
            noise_reach(bandwidth, self.field.dim - frame.present.sum(-1)),
            frame.present.any(-1),
        )

    def _search(
        self, here: _State, bandwidth: Tensor, eta: Tensor, shortest: Tensor, reach: Tensor
    ) -> tuple[Tensor, ...]:
        """Halve each step until it lowers f enough and stays on the data; return points, values, steps and codes."""
        rounding = torch.finfo(bandwidth.dtype).eps
        eta = torch.minimum(torch.maximum(eta, shortest), _LONGEST_STEP * bandwidth / lengths(here.direction))
        points, values = here.points.clone(), here.base.clone()
        codes = torch.full_like(here.on_data, _TOO_SMALL, dtype=torch.long)
        pending = torch.arange(len(eta), device=eta.device)
        for _ in range(_MOST_HALVINGS):
            if len(pending) == 0:
                break
            now, sigma = here.at(pending), bandwidth[pending]
            trial = self.land(now.points + eta[pending, None] * now.direction, sigma)
            found = self.objective.values(trial)
            near = lengths(walk_back(self.field, trial, sigma) - trial) <= reach[pending]
            promised = now.base + _SUFFICIENT * eta[pending] * now.slope
            lower = found <= promised + 10 * rounding * now.base.abs()
            points[pending], values[pending] = trial, found
            codes[pending] = torch.where(near, _TOO_SMALL, _LEFT)
            codes[pending[near & ~torch.isfinite(found)]] = _NOT_FINITE
            codes[pending[near & lower]] = _LIMIT
            pending = pending[~(near & lower)]
            eta[pending] /= 2
            pending = pending[eta[pending] >= shortest[pending]]
        return points, values, eta, codes


def _verdict(here: _State, smallest: Float[Tensor, " n"], *, is_start: bool) -> Int[Tensor, " n"]:
    """Decide which descents are over before another step."""
    codes = torch.full_like(here.on_data, _LIMIT, dtype=torch.long)
    codes[lengths(here.velocity) <= smallest] = _CONVERGED
    # Later on, no direction left means a corner of the data, where the descent has arrived.
    codes[~here.on_data & is_start] = _LEFT
    codes[~torch.isfinite(here.slope + here.base)] = _NOT_FINITE
    return codes


def _next_step(moved: Float[Tensor, "n dim"], slowed: Float[Tensor, "n dim"], eta: Tensor) -> Float[Tensor, " n"]:
    """Guess the next η by Barzilai and Borwein, |Δx|²/⟨Δx, Δgradient⟩; where f is not convex, let it grow."""
    bent = (moved * slowed).sum(-1)
    guess = moved.square().sum(-1) / bent
    usable = (bent > 0) & torch.isfinite(guess)
    return torch.where(usable, guess, _GROWTH * eta).clamp_max(_GROWTH * eta).clamp_min(eta / _GROWTH)
