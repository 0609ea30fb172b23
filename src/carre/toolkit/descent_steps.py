"""The steps of a descent along the data: direction, landing, line search."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.fields import MetricField
from carre.metric import LowRankMetric
from carre.toolkit.batches import Progress
from carre.toolkit.distance import noise_reach, walk_back
from carre.toolkit.landing import pull
from carre.toolkit.objective import Objective
from carre.toolkit.tangent import TANGENT_ABOVE, TangentFrame, tangent_frame

REASONS = ("step limit", "converged", "step too small", "left the data", "function not finite")
_LIMIT, _CONVERGED, _TOO_SMALL, _LEFT, _NOT_FINITE = range(len(REASONS))

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


@dataclass(frozen=True, eq=False)
class Look:
    """What a descent knows at its current points.

    Attributes:
        points: x.
        base: f at the landing of x itself: what a step of length 0 gives.
        direction: v = −[(1−δ)PG + δI]∂f.
        velocity: What landing leaves of v to first order, v − α(I−P)v.
        slope: velocityᵀ∂f ≤ 0, the rate at which f falls along landed steps.
        steepness: |∂f|.
        reach: How far from the data noise of deviation σ would carry a point here.
        on_data: Whether the data have a tangent direction here.
    """

    points: Float[Tensor, "n dim"]
    base: Float[Tensor, " n"]
    direction: Float[Tensor, "n dim"]
    velocity: Float[Tensor, "n dim"]
    slope: Float[Tensor, " n"]
    steepness: Float[Tensor, " n"]
    reach: Float[Tensor, " n"]
    on_data: Bool[Tensor, " n"]

    def norms(self) -> Float[Tensor, " n"]:
        """Compute the lengths of the velocities."""
        norms: Tensor = torch.linalg.vector_norm(self.velocity, dim=-1)
        return norms

    def at(self, index: Tensor) -> Look:
        """Select points."""
        return Look(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Descent:
    """A descent of one function along the data of one field.

    Attributes:
        field: The field.
        objective: The function.
        dim: Dimension of the data, or None.
        ridge: δ.
        landing: α.
        tolerance: Of the gradient along the data, relative to ∂f at the start.
    """

    field: MetricField
    objective: Objective
    dim: int | None
    ridge: float
    landing: float
    tolerance: float = 1e-4

    def run(
        self,
        starts: Float[Tensor, "n dim"],
        bandwidth: Float[Tensor, " n"],
        step: float | None,
        max_steps: int,
        keep_path: bool,
        progress: Progress,
    ) -> tuple[Tensor, ...]:
        """Descend; return points, values, gradient norms, step counts, codes of reasons, and the path."""
        frame = self._frame(self.field.metric(starts, bandwidth))
        walked = self._walked(starts, bandwidth)
        near = walked <= _FAR_START * noise_reach(bandwidth, self.field.dim - frame.present.sum(-1))
        # Data may be noisier than σ: wherever starts are is near enough.
        leash = _STRETCH * walked
        points = torch.where(near[:, None], self.land(starts, bandwidth, frame), starts)
        values, norms = self.objective.values(points), torch.full_like(bandwidth, torch.nan)
        counts, codes = (torch.zeros(len(points), dtype=torch.long, device=points.device) for _ in range(2))
        path = points[:, None].repeat(1, max_steps + 1 if keep_path else 1, 1)
        codes[~torch.isfinite(values)] = _NOT_FINITE
        codes[~near] = _LEFT
        active = torch.nonzero(codes == _LIMIT)[:, 0]
        if len(active) == 0:
            progress(1.0)
            return points, values, norms, counts, codes, path
        here = self.look(points[active], bandwidth[active])
        scale, eta = here.steepness, self._first_step(here, bandwidth[active], step)
        longest = torch.zeros_like(bandwidth)
        for taken in range(max_steps + 1):
            norms[active] = here.norms()
            codes[active] = self._verdict(here, scale, is_start=taken == 0)
            going = codes[active] == _LIMIT
            if taken == max_steps or not bool(going.any()):
                break
            active, here, scale, eta = active[going], here.at(going), scale[going], eta[going]
            shortest = _SHORTEST * longest[active]
            there, fallen, eta, codes[active] = self._search(here, bandwidth[active], eta, shortest, leash[active])
            moved = codes[active] == _LIMIT
            active, before, scale, eta = active[moved], here.at(moved), scale[moved], eta[moved]
            points[active], values[active] = there[moved], fallen[moved]
            longest[active] = torch.maximum(longest[active], eta)
            counts[active] += 1
            if keep_path:
                path[active, taken + 1 :] = points[active, None]
            if len(active) == 0:
                break
            here = self.look(points[active], bandwidth[active])
            eta = _next_step(before, here, eta)
            progress((taken + 1) / max_steps)
        progress(1.0)
        return points, values, norms, counts, codes, path

    def look(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], *, valued: bool = True) -> Look:
        """Find the way down at points."""
        metric = self.field.metric(points, bandwidth)
        frame = self._frame(metric)
        slopes = self.objective.slopes(points, bandwidth, frame.basis)
        # Of G only the tangent part: at finite σ its small normal eigenvalues would lead off the data, step by step.
        direction = -(1 - self.ridge) * frame.project(metric.apply(slopes)) - self.ridge * slopes
        velocity = direction - self.landing * (direction - frame.project(direction))
        base = self.objective.values(self.land(points, bandwidth, frame)) if valued else torch.zeros_like(bandwidth)
        return Look(
            points,
            base,
            direction,
            velocity,
            (velocity * slopes).sum(-1),
            torch.linalg.vector_norm(slopes, dim=-1),
            noise_reach(bandwidth, self.field.dim - frame.present.sum(-1)),
            frame.present.any(-1),
        )

    def land(
        self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], frame: TangentFrame | None = None
    ) -> Float[Tensor, "n dim"]:
        """Move points by the share α of the way back to the data.

        Across the data only: along them the denoiser drifts to where they are denser, which would compete with f.
        """
        if self.landing == 0.0 or len(points) == 0:
            return points
        back = pull(self.field, points, bandwidth)
        frame = self._frame(self.field.metric(points, bandwidth)) if frame is None else frame
        return points + self.landing * (back - frame.project(back))

    def _frame(self, metric: LowRankMetric) -> TangentFrame:
        """Compute tangent frames without the directions that lead over an edge of the data, also where dim counts them.

        Beyond an edge the eigenvalue across it falls: ½ at σ/2 inside, 0.36 at the edge, 0.2 at σ outside [THEORY §1].
        """
        frame = tangent_frame(metric, min(metric.rank, metric.dim) if self.dim is None else self.dim)
        present = frame.values > TANGENT_ABOVE
        # Eigenvalues descend: beyond the most that any point has, columns are zero.
        most = max(1, int(present.sum(-1).max()))
        basis = (frame.basis * present[:, None, :])[..., :most]
        return replace(frame, basis=basis, values=frame.values[:, :most], present=present[:, :most])

    def _walked(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Measure the way back to the data."""
        walked: Tensor = torch.linalg.vector_norm(walk_back(self.field, points, bandwidth) - points, dim=-1)
        return walked

    def _verdict(self, here: Look, scale: Float[Tensor, " n"], *, is_start: bool) -> Int[Tensor, " n"]:
        """Decide which descents are over before another step."""
        codes = torch.full_like(here.on_data, _LIMIT, dtype=torch.long)
        codes[here.norms() <= self.tolerance * scale] = _CONVERGED
        # Later on, no direction left means a corner of the data, where the descent has arrived.
        codes[~here.on_data & is_start] = _LEFT
        codes[~torch.isfinite(here.slope + here.base)] = _NOT_FINITE
        return codes

    def _first_step(self, here: Look, bandwidth: Tensor, step: float | None) -> Float[Tensor, " n"]:
        speed = torch.linalg.vector_norm(here.direction, dim=-1).clamp_min(torch.finfo(bandwidth.dtype).tiny)
        return bandwidth / speed if step is None else torch.full_like(bandwidth, step)

    def _search(
        self, here: Look, bandwidth: Tensor, eta: Tensor, shortest: Tensor, leash: Tensor
    ) -> tuple[Tensor, ...]:
        """Halve each step until it lowers f enough and stays on the data; return points, values, steps and codes."""
        rounding = torch.finfo(bandwidth.dtype).eps
        speed = torch.linalg.vector_norm(here.direction, dim=-1)
        eta = torch.minimum(torch.maximum(eta, shortest), _LONGEST_STEP * bandwidth / speed)
        points, values = here.points.clone(), here.base.clone()
        codes = torch.full_like(here.on_data, _TOO_SMALL, dtype=torch.long)
        pending = torch.arange(len(eta), device=eta.device)
        for _ in range(_MOST_HALVINGS):
            if len(pending) == 0:
                break
            now, sigma = here.at(pending), bandwidth[pending]
            trial = self.land(now.points + eta[pending, None] * now.direction, sigma)
            found = self.objective.values(trial)
            near = self._walked(trial, sigma) <= torch.maximum(now.reach, leash[pending])
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


def _next_step(before: Look, here: Look, eta: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Guess the next η by Barzilai and Borwein, |Δx|²/⟨Δx, Δgradient⟩; where f is not convex, let it grow."""
    moved = here.points - before.points
    bent = (moved * (before.velocity - here.velocity)).sum(-1)
    guess = moved.square().sum(-1) / bent
    usable = (bent > 0) & torch.isfinite(guess)
    return torch.where(usable, guess, _GROWTH * eta).clamp_max(_GROWTH * eta).clamp_min(eta / _GROWTH)
