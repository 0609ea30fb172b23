"""Geodesics: the shortest curves on the data, between pairs of points."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.backend import Progress
from carre.backend.modes import with_gradients
from carre.boundary import ArgumentError, checked_integer
from carre.fields import MetricField
from carre.toolkit.graph import SampleGraph, graph_for, unique_pairs
from carre.toolkit.landing import lengths, pull, walk_back
from carre.toolkit.path import (
    FAR,
    Path,
    bases_along,
    draw_curves,
    evenly_spaced,
    examine,
    examine_landed,
    leaving,
    one_by_one,
    rows_of,
)
from carre.toolkit.question import Pairs, Question, check_number
from carre.toolkit.tangent import inverse_of_second_differences, projected, straightening_step

# Coarse curves only show the finer ones the way.
_COARSE_SWEEPS = 5
_LANDINGS = 2
_SHORTEST_STEP, _SHORTEST_ENERGY_STEP = 1 / 32, 1 / 64


@dataclass(frozen=True, eq=False)
class Geodesic:
    """The shortest curves on the data between pairs of points: locally shortest, from where they start.

    Without samples, curves start as straight lines that are pulled onto the data, from coarse to fine. That is right
    on a sphere or a torus, and wrong on a Swiss roll, where the pull leads onto other sheets: the path then says that
    it is not connected. With samples, curves start as the shortest ways over them. ``arrived`` says whether curves came
    to rest, ``connected`` whether they stay on the data. Curves run between the foot points of their ends, so that
    their lengths are distances along the data, the same as those of `distances`.

    Attributes:
        samples: Samples of the data, or a `sample_graph` of them. None takes the landmarks of a `carre.Geometry`, and
            starts from straight lines in other fields.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ along each curve.
        max_sweeps: Sweeps at most.
        tolerance: Curves are at rest when a sweep changes their energy by less than this, relatively.
        ends: "landed", from foot point to foot point; or "given", from the very points, wherever they lie: the first
            and last segments then lead onto the data, and count in the length.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> from carre.toolkit import path
        >>> samples = Sphere(2).sample(50, generator=torch.Generator().manual_seed(0))
        >>> method = Geodesic(samples=samples, dimension=2)
        >>> path(ExactField(Sphere(2)), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1, method=method).length()
        tensor([1.5708], dtype=torch.float64)
    """

    samples: Any = None
    dimension: int | None = None
    max_sweeps: int = 200
    tolerance: float = 1e-6
    ends: str = "landed"

    default_nodes: ClassVar[int] = 33

    def __post_init__(self) -> None:
        if self.ends not in ("landed", "given"):
            raise ArgumentError("ends", "be 'landed' or 'given'", got=repr(self.ends))
        checked_integer(self.max_sweeps, name="max_sweeps", least=1)
        check_number(self.tolerance, "be at least 0", lambda x: x >= 0, name="tolerance")

    def draw(self, pairs: Pairs, n_nodes: int, progress: Progress | None = None) -> Path:
        """Find first curves, over samples or straight, and shorten them."""
        graph = graph_for(pairs, self.samples)
        start, end = pairs.start, pairs.end
        if self.ends == "landed":
            start, end = (foot_points(pairs, x, pairs.bandwidth, self.dimension) for x in (start, end))
        given_off = torch.stack([lengths(pairs.start - start), lengths(pairs.end - end)], 1) / pairs.bandwidth[:, None]
        routes, weights = start.new_empty((len(start), 0), dtype=torch.long), torch.zeros_like(pairs.bandwidth)
        if graph is not None:
            routes, weights = graph.routes(*unique_pairs(start, end))

        def part(a: Tensor, b: Tensor, s: Tensor, route: Tensor, joined: Tensor, off: Tensor) -> tuple[Tensor, ...]:
            nodes, arrived = self.first_curves(pairs.field, graph, (a, b), s, route, n_nodes), torch.zeros_like(joined)
            rows = joined.nonzero()[:, 0]
            if len(rows) > 0:
                landed = land_inner(pairs.field, nodes[rows], s[rows])
                shortest, arrived[rows] = self._refine(pairs.field, landed, s[rows])
                nodes = nodes.index_copy(0, rows, shortest)
            if self.ends == "landed":
                connected, strayed = examine_landed(pairs.field, nodes, s)
            else:
                connected, strayed, off = examine(pairs.field, nodes, s)
            return nodes, arrived, connected & joined, strayed, off, joined

        def reason(arrived: bool, connected: bool, strayed: float, joined: bool) -> str:
            if not joined:
                return (
                    "start and end lie in different components of the data: no chain of neighboring samples joins "
                    "them. The nodes are those of the straight line"
                )
            if not connected:
                around = "the way leads around a gap: give samples to find it, method=Geodesic(samples=...)"
                return (
                    f"{leaving(strayed)}: start and end may lie in different components, or "
                    f"{around if graph is None else 'the samples leave a gap'}. "
                    f"Or n_nodes={n_nodes} are too few to follow the data: increase n_nodes"
                )
            return "" if arrived else f"still shortening after max_sweeps={self.max_sweeps}"

        batches = start, end, pairs.bandwidth, routes, weights.isfinite(), given_off
        return draw_curves(pairs, part, reason, *batches, n_nodes=n_nodes, progress=progress)

    def first_curves(
        self,
        field: MetricField,
        graph: SampleGraph | None,
        ends: tuple[Tensor, Tensor],
        sigma: Float[Tensor, " p"],
        route: Int[Tensor, "p longest"],
        n_nodes: int,
    ) -> Float[Tensor, "p nodes dim"]:
        """Draw curves from which shortening starts: ways over samples, or straight lines that are pulled."""
        if graph is None:
            return self._unfold(field, torch.stack(ends, 1), sigma, n_nodes)
        return graph.along(*ends, route, n_nodes)

    def _unfold(self, field: MetricField, nodes: Tensor, sigma: Tensor, n_nodes: int) -> Float[Tensor, "p nodes dim"]:
        """Refine curves from their two ends: land the middles of segments, which may be far, shorten, and again."""
        while nodes.shape[1] < n_nodes:
            middles = (nodes[:, 1:] + nodes[:, :-1]) / 2
            near = walk_back(field, *one_by_one(middles, sigma))
            middles = _settle(field, near.reshape(middles.shape), sigma)
            nodes = torch.cat([torch.stack([nodes[:, :-1], middles], 2).flatten(1, 2), nodes[:, -1:]], 1)
            nodes, _ = self.shorten(field, nodes, sigma, _COARSE_SWEEPS)
        return nodes if nodes.shape[1] == n_nodes else evenly_spaced(nodes, n_nodes)

    def _refine(self, field: MetricField, nodes: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Shorten curves; return them, and whether each came to rest."""
        return self.shorten(field, nodes, sigma, self.max_sweeps)

    def shorten(
        self,
        field: MetricField,
        nodes: Float[Tensor, "p n dim"],
        bandwidth: Float[Tensor, " p"],
        max_sweeps: int,
        *,
        for_length: bool = False,
    ) -> tuple[Float[Tensor, "p n dim"], Bool[Tensor, " p"]]:
        """Minimize Σ|x_{k+1} − x_k|² on the data with fixed ends; return the nodes, and whether each curve is at rest.

        Steps along the gradient would need O(n²) sweeps [THEORY §4.7]; here each sweep solves the chain of tangent
        spaces for the step that would straighten the curve if the data were flat, and lands. For a length, which is
        of second order in the step, the last one is not taken.
        """
        nodes, rounding = nodes.clone(), 100 * torch.finfo(nodes.dtype).eps
        energy, step = _energy(nodes), nodes.new_ones(len(nodes))
        arrived = torch.full_like(step, nodes.shape[1] <= 2, dtype=torch.bool)
        active = ~arrived
        for asked in rows_of(active, max_sweeps):
            rows, curve, sigma = asked, nodes[asked], bandwidth[asked]
            bases = bases_along(field, curve[:, 1:-1], sigma, self.dimension)
            move, share = straightening_step(curve, bases)
            # What the step gains on flat data: where that is next to nothing, it is the last one.
            force = curve[:, 2:] - 2 * curve[:, 1:-1] + curve[:, :-2]
            hope = (move * force).sum((1, 2)) / energy[rows].clamp_min(torch.finfo(energy.dtype).tiny)
            is_last = (hope < max(self.tolerance, rounding)) & (share < 1)
            if for_length and bool(is_last.any()):
                arrived[rows[is_last]], active[rows[is_last]] = True, False
                rows, curve, sigma, bases, move, share, is_last = (
                    x[~is_last] for x in (rows, curve, sigma, bases, move, share, is_last)
                )
                if len(rows) == 0:
                    break
            # No longer than a segment.
            inner = curve[:, 1:-1] + (step[rows] / share.clamp_min(1.0))[:, None, None] * move
            trial = _with_inner(curve, _settle(field, inner, sigma, bases))
            reached = _energy(trial)
            gain = (energy[rows] - reached) / energy[rows].clamp_min(torch.finfo(energy.dtype).tiny)
            better = gain > -rounding
            nodes[rows[better]], energy[rows[better]] = trial[better], reached[better]
            step[rows] = torch.where(better, (2 * step[rows]).clamp(max=1.0), step[rows] / 2)
            at_rest = better & (is_last | ((gain < max(self.tolerance, rounding)) & (share < 1)))
            # Where landing undoes the smallest step, the curve is as short as the field lets it be; or it is a point.
            at_rest |= (step[rows] < _SHORTEST_STEP) | (reached < (rounding * sigma).square())
            arrived[rows], active[rows] = at_rest, ~at_rest
        return nodes, arrived


@dataclass(frozen=True, eq=False)
class EnergyGeodesic(Geodesic):
    """The curves of least energy in the metric (G + λI)⁻¹, which also exists off the data.

    They start from the shortened curves, need derivatives of G, and sag inwards by about (3/16)λθ²R on an arc of angle
    θ and radius R.

    Attributes:
        samples: As for `Geodesic`.
        dimension: As for `Geodesic`.
        max_sweeps: Sweeps at most, of shortening and of the energy.
        tolerance: Curves are at rest when a sweep changes their energy by less than this, relatively.
        ridge: λ.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> from carre.toolkit import path
        >>> start, end, method = [[1.0, 0.0]], [[0.0, 1.0]], EnergyGeodesic(ridge=0.1)
        >>> energy = path(ExactField(Sphere(1)), start, end, 0.1, method=method, n_nodes=9)
        >>> energy.nodes.norm(dim=-1).min().round(decimals=2)  # about 1 − (3/16)·0.1·(π/2)²
        tensor(0.9600, dtype=torch.float64)
    """

    ridge: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.ridge, "be positive, or G could not be inverted", lambda x: x > 0, name="ridge")

    def _refine(self, field: MetricField, nodes: Tensor, bandwidth: Tensor) -> tuple[Tensor, Tensor]:
        """Minimize E = (1 + λ)(n/2)Σ d_kᵀ(G(mid_k) + λI)⁻¹d_k over curves with fixed ends [THEORY §4.7].

        G keeps its own ridge, if it has one. Directions along the data cost 1, directions across (1 + λ)/λ: no landing
        is needed. The gradient is preconditioned by B(T⁻¹ ⊗ I)B with B = (G + λI)^½ at the nodes and T the chain of
        second differences, which makes the number of sweeps independent of λ and of the number of nodes.
        """
        nodes, _ = super()._refine(field, nodes, bandwidth)
        tolerance = max(self.tolerance, 100 * torch.finfo(nodes.dtype).eps)
        energy, slope = self._energy_and_slope(field, nodes, bandwidth)
        step = nodes.new_ones(len(nodes))
        arrived = torch.full_like(step, nodes.shape[1] <= 2, dtype=torch.bool)
        active = ~arrived
        for rows in rows_of(active, self.max_sweeps):
            curve, sigma = nodes[rows], bandwidth[rows]
            move = self._preconditioned(field, curve, sigma, slope[rows])
            trial = _with_inner(curve, curve[:, 1:-1] - step[rows, None, None] * move)
            reached, steepness = self._energy_and_slope(field, trial, sigma)
            gain = (energy[rows] - reached) / energy[rows].clamp_min(torch.finfo(energy.dtype).tiny)
            better = gain >= 0
            kept = rows[better]
            nodes[kept], energy[kept], slope[kept] = trial[better], reached[better], steepness[better]
            step[rows] = torch.where(better, (1.5 * step[rows]).clamp(max=1.0), step[rows] / 2)
            at_rest = (better & (gain < tolerance)) | (step[rows] < _SHORTEST_ENERGY_STEP)
            arrived[rows], active[rows] = at_rest, ~at_rest
        return nodes, arrived

    def _energy_and_slope(
        self, field: MetricField, nodes: Float[Tensor, "p n dim"], bandwidth: Float[Tensor, " p"]
    ) -> tuple[Float[Tensor, " p"], Float[Tensor, "p inner dim"]]:
        """Compute E, and its gradient in the inner nodes."""
        segments = nodes.shape[1] - 1
        with with_gradients():
            free = nodes.detach().clone().requires_grad_()
            middles = (free[:, 1:] + free[:, :-1]) / 2
            steps = free.diff(dim=1).flatten(0, 1)
            metric = field.metric(*one_by_one(middles, bandwidth))
            metric = metric.with_ridge(metric.ridge + self.ridge)
            parts = (steps * metric.solve(steps)).sum(-1).reshape(len(nodes), segments)
            energy = 0.5 * (1 + self.ridge) * segments * parts.sum(-1)
            (slope,) = torch.autograd.grad(energy.sum(), free)
        return energy.detach(), slope[:, 1:-1]

    def _preconditioned(
        self, field: MetricField, nodes: Tensor, bandwidth: Tensor, slope: Float[Tensor, "p inner dim"]
    ) -> Float[Tensor, "p inner dim"]:
        """Compute the step that would end at the minimum if G were the same everywhere."""
        count = slope.shape[1]
        spectrum = field.metric(*one_by_one(nodes[:, 1:-1], bandwidth)).spectrum()
        vectors = spectrum.vectors.reshape(*slope.shape, -1)
        floor = math.sqrt(spectrum.floor + self.ridge)
        roots = ((spectrum.values + self.ridge).sqrt() - floor).reshape(len(nodes), count, -1)

        def root(v: Tensor) -> Tensor:
            coordinates = torch.einsum("pnda,pnd->pna", vectors, v)
            return floor * v + torch.einsum("pnda,pna->pnd", vectors, roots * coordinates)

        smooth = torch.einsum("nm,pmd->pnd", inverse_of_second_differences(slope), root(slope))
        return root(smooth) / ((1 + self.ridge) * (count + 1))


def foot_points(
    question: Question, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], dimension: int | None
) -> Float[Tensor, "n dim"]:
    """Land points across their tangent spaces: near an edge of the data they are not pulled away from it."""
    field = question.field

    def part(y: Tensor, s: Tensor) -> Tensor:
        far = (lengths(pull(field, y, s)) > FAR * s).nonzero()[:, 0]
        if len(far) > 0:
            y = y.index_copy(0, far, walk_back(field, y[far], s[far]))
        return _settle(field, y[:, None], s, bases_along(field, y[:, None], s, dimension))[:, 0]

    landed: Tensor = question.compute(part, points, bandwidth)
    return landed


def warn_of_moving(is_moving: Bool[Tensor, " p"], max_sweeps: int) -> None:
    """Warn of curves that were not at rest, for whoever asked only for their lengths."""
    if bool(is_moving.any()):
        warnings.warn(
            f"{int(is_moving.sum())} of {len(is_moving)} pairs were still shortening after max_sweeps={max_sweeps}: "
            "their distances are too long. Increase max_sweeps, or tolerance if they are good enough",
            UserWarning,
            stacklevel=5,
        )


def _with_inner(curve: Float[Tensor, "p n dim"], inner: Float[Tensor, "p inner dim"]) -> Float[Tensor, "p n dim"]:
    """Replace all nodes but the ends."""
    return torch.cat([curve[:, :1], inner, curve[:, -1:]], 1)


def land_inner(field: MetricField, nodes: Tensor, sigma: Tensor) -> Float[Tensor, "p n dim"]:
    """Land the inner nodes of curves that are next to the data."""
    return _with_inner(nodes, _settle(field, nodes[:, 1:-1], sigma))


def _settle(
    field: MetricField, points: Tensor, bandwidth: Tensor, bases: Float[Tensor, "p n dim d"] | None = None
) -> Float[Tensor, "p n dim"]:
    """Land the nodes of curves; with tangent bases, across them only: near an edge, the denoiser also pulls along."""
    for _ in range(_LANDINGS if points.shape[1] > 0 else 0):
        step = pull(field, *one_by_one(points, bandwidth)).reshape(points.shape)
        points = points + (step if bases is None else step - projected(bases, step))
    return points


def _energy(nodes: Float[Tensor, "p n dim"]) -> Float[Tensor, " p"]:
    # In float64, so that the small gains of the last sweeps can be seen.
    return nodes.double().diff(dim=1).square().sum((-2, -1))
