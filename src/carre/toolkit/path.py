"""Curves as values, and what a field says along them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.backend import Progress
from carre.boundary import ArgumentError, as_dense, as_numbers, as_points, checked_integer
from carre.fields import MetricField
from carre.neighbors import build_index
from carre.sketch import BLUE, ORANGE, Stroke, card, picture
from carre.toolkit.landing import lengths, pull, walked_distance
from carre.toolkit.question import Question
from carre.toolkit.tangent import TANGENT_ABOVE

# Where a segment is asked how far it is from the data. A quarter beside the middle: halfway between two equal sheets
# the denoiser does not know which one to name, and points to neither.
_PROBES = (0.25, 0.5, 0.75)
_NEARLY_HALFWAY, _SURELY_NONE = 0.4, 2 / 3
# A chord whose sagitta is an eighth of its length turns by 56°; what strays further between its ends is a jump. In σ:
# by one and a half a kernel strays for want of samples, ten are a jump for any chord.
_LARGEST_SAGITTA = 1 / 8
_LEAST_JUMP, _SURE_JUMP = 1.5, 10.0
# In σ: inner nodes are landed, or nearly.
_LARGEST_DISTANCE, FAR = 3.0, 2.0
# Of paths, nodes and coordinates, in a picture.
_MOST_DRAWN = (12, 33, 4096)
# What a path knows of each of its curves, as tensors.
_OF_EACH = ("nodes", "arrived", "connected", "strayed", "ends_off")
_NOT_EXAMINED = "not examined: no field was asked"


@dataclass(frozen=True, eq=False, repr=False)
class Path:
    """A batch of polygonal curves, and what is known of them. Tensors throughout; `numpy` gives the nodes as an array.

    Attributes:
        nodes: The nodes of every curve, from its start to its end.
        arrived: Whether the construction came to its goal: the flow at its end, the geodesic at its shortest.
        connected: Whether the curve stays on the data between its ends, wherever these lie (``ends_off``). It does not
            where an inner node is 3σ away, nor where a segment leaves the data: where at a quarter, half or three
            quarters of it they are further away than at its ends, by more than 1.5σ and an eighth of its length, or by
            more than 10σ. A gap below 6σ may not be seen. True, and no evidence, where no field was asked: ``strayed``
            is NaN there, and ``reasons`` says so.
        strayed: The largest distance of the curve from the data in units of σ, over inner nodes and points between
            them, as the denoiser measures it; NaN where no field was asked. Its ends, and the way from them onto the
            data, do not count: where they lie is up to whoever gave them.
        ends_off: How far the start and the end, as they were given, lie from the data in units of σ: noise, or points
            that are elsewhere. A geodesic runs between their foot points; other curves keep them.
        reasons: A sentence on each curve, empty where there is nothing to say.
        units: What each column is divided by where lengths are measured, as by a geometry with scaled columns; None for
            the columns as they are.
        columns: The names of the columns, where they have any.

    Example:
        >>> path = Path.through([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]])
        >>> path
        Path(paths=1, nodes=3, dim=2, arrived=1, connected=unknown)
        >>> path.polygon_length()
        tensor([4.], dtype=torch.float64)
        >>> path(0.5)
        tensor([[[2., 0.]]], dtype=torch.float64)
    """

    nodes: Float[Tensor, "paths nodes dim"]
    arrived: Bool[Tensor, " paths"]
    connected: Bool[Tensor, " paths"]
    strayed: Float[Tensor, " paths"]
    ends_off: Float[Tensor, "paths 2"]
    reasons: tuple[str, ...]
    units: Float[Tensor, " dim"] | None = None
    columns: Any = None

    @classmethod
    def through(cls, nodes: Any) -> Path:
        """Draw curves through given nodes, (nodes, dim) for one curve or (paths, nodes, dim), arrays or tensors.

        No field is asked whether they stay on the data.
        """
        given = as_dense(nodes, "nodes")
        if given.ndim not in (2, 3) or given.shape[-2] < 2:
            raise ArgumentError("nodes", "have shape (paths, nodes, dim) with at least 2 nodes", got=tuple(given.shape))
        flat = as_points(given.reshape(-1, given.shape[-1]), name="nodes").tensor.detach()
        tensor = flat.reshape(-1, *given.shape[-2:])
        known = torch.ones(len(tensor), dtype=torch.bool, device=tensor.device)
        unknown = tensor.new_full((len(tensor), 2), torch.nan)
        return cls(tensor, known, known, unknown[:, 0], unknown, (_NOT_EXAMINED,) * len(tensor))

    @property
    def scaled_nodes(self) -> Float[Tensor, "paths nodes dim"]:
        """The nodes in the units that lengths are measured in."""
        return self.nodes if self.units is None else self.nodes / self.units.to(self.nodes)

    def in_units(self, units: Float[Tensor, " dim"] | None) -> Path:
        """See curves that were drawn in scaled columns in the columns themselves; lengths stay as they are.

        Example:
            >>> path = Path.through([[0.0, 0.0], [3.0, 4.0]]).in_units(torch.tensor([1.0, 100.0]))
            >>> path.nodes[0, 1], path.length()
            (tensor([  3., 400.], dtype=torch.float64), tensor([5.], dtype=torch.float64))
        """
        return self if units is None else replace(self, nodes=self._outer(self.nodes, units), units=units)

    @staticmethod
    def _outer(nodes: Tensor, units: Tensor | None) -> Tensor:
        return nodes if units is None else nodes * units.to(nodes)

    @property
    def n_nodes(self) -> int:
        """The number of nodes of every curve."""
        return self.nodes.shape[1]

    @property
    def dim(self) -> int:
        """The ambient dimension D."""
        return self.nodes.shape[2]

    def __repr__(self) -> str:
        connected = "unknown" if bool(self.strayed.isnan().all()) else int(self.connected.sum())
        counts = f"arrived={int(self.arrived.sum())}, connected={connected}"
        return f"Path(paths={len(self)}, nodes={self.n_nodes}, dim={self.dim}, {counts})"

    def _repr_html_(self) -> str:
        strayed = self.strayed[self.strayed.isfinite()].tolist()
        facts = {
            "on the data": f"{int(self.connected.sum()):,} of {len(self):,}" if strayed else "unknown",
            "arrived": f"{int(self.arrived.sum()):,} of {len(self):,}",
            "strayed": f"by up to {max(strayed):.2g}σ" if strayed else "",
        }
        told = next(filter(None, self.reasons), "")
        return card(f"Paths: {len(self):,} of {self.n_nodes} nodes", facts, self._picture(), doubts=(told,))

    def _picture(self) -> str:
        """Draw some nodes of some paths in their first two principal coordinates; orange ones leave the data."""
        paths, nodes, dim = (-(-count // most) for count, most in zip(self.nodes.shape, _MOST_DRAWN, strict=True))
        some, is_on = self.scaled_nodes[::paths, ::nodes].detach().cpu().double(), self.connected[::paths].tolist()
        if not some.isfinite().all() or dim > 1:
            return ""
        flat = some.flatten(0, 1) - some.mean((0, 1))
        values, axes = torch.linalg.eigh(flat @ flat.mT)
        plane = (axes[:, -2:] * values[-2:].clamp_min(0).sqrt()).flip(-1).reshape(*some.shape[:2], 2).mT.numpy()
        lines = [Stroke(one[0], one[1], BLUE if known else ORANGE) for one, known in zip(plane, is_on, strict=True)]
        starts = [Stroke(one[0, [0, 0]], one[1, [0, 0]], BLUE, 7.0) for one in plane]
        return picture("In two principal coordinates", lines + starts, x_ticks={}, y_ticks={}, is_map=True)

    def __len__(self) -> int:
        return self.nodes.shape[0]

    def __getitem__(self, index: Any) -> Path:
        """Select curves by an integer, a slice, a mask or a list; one curve is still a batch."""
        chosen = np.atleast_1d(np.arange(len(self))[index.cpu().numpy() if isinstance(index, Tensor) else index])
        rows = torch.as_tensor(chosen, device=self.nodes.device)
        found = {name: getattr(self, name)[rows] for name in _OF_EACH}
        return replace(self, **found, reasons=tuple(self.reasons[i] for i in chosen))

    def to(self, device: torch.device) -> Path:
        """Move to a device."""
        return replace(self, **{k: getattr(self, k).to(device) for k in _OF_EACH})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Give NumPy the nodes."""
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def numpy(self) -> np.ndarray:
        """Return the nodes as a NumPy array, shape (paths, nodes, dim)."""
        array: np.ndarray = self.nodes.detach().cpu().numpy()
        return array

    def times(self) -> Float[Tensor, "paths nodes"]:
        """Compute the share of the way that lies behind each node, from 0 to 1.

        Example:
            >>> Path.through([[0.0], [1.0], [4.0]]).times()
            tensor([[0.0000, 0.2500, 1.0000]], dtype=torch.float64)
        """
        reached = torch.nn.functional.pad(lengths(self.scaled_nodes.diff(dim=1)).cumsum(-1), (1, 0))
        return reached / reached[:, -1:].clamp_min(torch.finfo(reached.dtype).tiny)

    def frame(self) -> Any:
        """Return the nodes as a data frame of pandas, by ``node``, or by ``path`` and ``node`` where there are several.

        Its columns are those of the data, and the `times` beside them as ``time``, or as ``time_along`` where a column
        is called so.

        Example:
            >>> frame = Path.through([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]]).frame()
            >>> list(frame.columns), frame.index.name, frame.loc[1].tolist()
            ([0, 1, 'time'], 'node', [3.0, 0.0, 0.75])
        """
        try:
            import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415
        except ImportError as error:
            raise ImportError("A path as a frame needs pandas; run: pip install pandas") from error
        rows = pd.MultiIndex.from_product([range(len(self)), range(self.n_nodes)], names=["path", "node"])
        rows = rows.droplevel("path") if len(self) == 1 else rows
        found = pd.DataFrame(self.numpy().reshape(-1, self.dim), rows, self.columns)
        found["time_along" if "time" in found else "time"] = self.times().detach().cpu().numpy().ravel()
        return found

    def __call__(self, times: Any) -> Float[Tensor, "paths times dim"]:
        """Evaluate the curves; see `evaluate`."""
        return self.evaluate(times)

    def evaluate(self, times: Any) -> Float[Tensor, "paths times dim"]:
        """Compute the points at times between 0 and 1, at constant speed along the polygons.

        Args:
            times: One time, several, or several per path, shape (paths, times).

        Example:
            >>> Path.through([[0.0], [1.0], [4.0]]).evaluate([0.0, 0.5, 1.0])
            tensor([[[0.],
                     [2.],
                     [4.]]], dtype=torch.float64)
        """
        if isinstance(times, (bool, np.bool_)):
            raise ArgumentError("times", "be numbers between 0 and 1", got=repr(times))
        moments = as_numbers(times, "times").to(self.nodes)
        if not bool(((moments >= 0) & (moments <= 1)).all()):
            raise ArgumentError("times", "lie between 0, the start, and 1, the end")
        if moments.ndim > 2 or (moments.ndim == 2 and len(moments) != len(self)):
            must = f"have shape (times,) or ({len(self)}, times)"
            raise ArgumentError("times", must, got=tuple(moments.shape))
        moments = moments[None] if moments.ndim == 0 else moments
        return self._outer(_points_along(self.scaled_nodes, moments.expand(len(self), -1)), self.units)

    def resample(self, n_nodes: int) -> Path:
        """Place nodes at equal distances along the polygons.

        Example:
            >>> Path.through([[0.0], [1.0], [4.0]]).resample(5).numpy()[0, :, 0]
            array([0., 1., 2., 3., 4.])
        """
        return replace(self, nodes=self._outer(evenly_spaced(self.scaled_nodes, checked_nodes(n_nodes)), self.units))

    def reversed(self) -> Path:
        """Run from the end to the start.

        Example:
            >>> Path.through([[0.0], [1.0], [4.0]]).reversed().numpy()[0, :, 0]
            array([4., 1., 0.])
        """
        return replace(self, nodes=self.nodes.flip(1), ends_off=self.ends_off.flip(1))

    def length(self) -> Float[Tensor, " paths"]:
        """Compute the lengths of the smooth curves through the nodes, of which the segments are chords.

        A chord c that turns by φ belongs to an arc of ½φc/sin ½φ: error O(h⁴) instead of the polygon's O(h²).
        Repeated nodes count once. It is the length that `distances` between the same points gives.

        Example:
            >>> angle = torch.linspace(0, torch.pi, 7, dtype=torch.float64)
            >>> half_circle = Path.through(torch.stack([angle.cos(), angle.sin()], 1))
            >>> [round(float(length / torch.pi), 4) for length in (half_circle.length(), half_circle.polygon_length())]
            [1.0, 0.9886]
        """
        return arcs(self.scaled_nodes)[0]

    def polygon_length(self) -> Float[Tensor, " paths"]:
        """Compute the lengths of the polygons through the nodes, which are shorter than smooth curves.

        Example:
            >>> Path.through([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]]).polygon_length()
            tensor([4.], dtype=torch.float64)
        """
        return lengths(self.scaled_nodes.diff(dim=1)).sum(-1)

    def energy(self) -> Float[Tensor, " paths"]:
        """Compute ½∫|ẋ|²dt over [0, 1] with equal times between nodes: half the squared length, if evenly spaced.

        Example:
            >>> Path.through([[0.0], [1.0], [4.0]]).energy(), Path.through([[0.0], [2.0], [4.0]]).energy()
            (tensor([10.], dtype=torch.float64), tensor([8.], dtype=torch.float64))
        """
        return 0.5 * (self.n_nodes - 1) * lengths(self.scaled_nodes.diff(dim=1)).square().sum(-1)

    def start_velocity(self) -> Float[Tensor, "paths dim"]:
        """Compute the velocity at the start, of a curve that takes the time from 0 to 1: its length is the curve's.

        Example:
            >>> Path.through([[0.0, 0.0], [3.0, 0.0], [4.0, 0.0]]).start_velocity()
            tensor([[4., 0.]], dtype=torch.float64)
        """
        first = self.scaled_nodes[:, 1] - self.scaled_nodes[:, 0]
        return self._outer(torch.nn.functional.normalize(first, dim=-1) * self.length()[:, None], self.units)

    def distance_to(self, samples: Any) -> Float[Tensor, "paths nodes"]:
        """Compute the Euclidean distance of every node from the nearest sample.

        Example:
            >>> Path.through([[0.0, 0.0], [3.0, 4.0]]).distance_to([[0.0, 0.0]])
            tensor([[0., 5.]], dtype=torch.float64)
        """
        known = as_points(samples, dim=self.dim, name="samples").in_units(self.units).tensor
        near = build_index(known).search(self.scaled_nodes.flatten(0, 1), 1)
        return near.squared_distances.sqrt().reshape(len(self), self.n_nodes).to(self.nodes)


def arcs(nodes: Float[Tensor, "paths nodes dim"]) -> tuple[Float[Tensor, " paths"], Float[Tensor, " paths"]]:
    """Compute the lengths of smooth curves through nodes, and the largest angle by which each turns at a node."""
    segments, limits = nodes.diff(dim=1), torch.finfo(nodes.dtype)
    chords = lengths(segments)
    if nodes.shape[1] < 3:
        return chords.sum(-1), torch.zeros_like(chords[:, 0])
    # Between repeated nodes there is no direction: such segments go to the end, where they turn by nothing.
    is_still = chords <= 4 * limits.eps * nodes.abs().amax((1, 2))[:, None]
    order = is_still.byte().argsort(dim=1, stable=True)
    chords, moves = chords.gather(1, order), ~is_still.gather(1, order)
    rows = torch.arange(len(nodes), device=order.device)[:, None]
    directions = segments[rows, order] / chords.clamp_min(limits.tiny)[..., None]
    half = 0.5 * lengths(directions.diff(dim=1))
    turning = torch.where(moves[:, 1:], 4 * half.clamp(max=1).asin().square(), 0)
    before = torch.cat([turning[:, :1], turning], 1)
    # The last segment turns at its end as at its start.
    after = torch.where(moves[:, 1:], turning, before[:, :-1])
    after = torch.cat([after, before[:, -1:]], 1)
    # torch's sinc has a π in it.
    return (chords / torch.sinc(((before + after) / 8).sqrt() / torch.pi)).sum(-1), turning.amax(-1).sqrt()


def evenly_spaced(nodes: Float[Tensor, "paths nodes dim"], n_nodes: int) -> Float[Tensor, "paths new_nodes dim"]:
    """Place nodes at equal distances along polygons; the ends stay."""
    moments = torch.linspace(0, 1, n_nodes, dtype=torch.float64, device=nodes.device)[1:-1].to(nodes)
    inner = _points_along(nodes, moments.expand(len(nodes), -1))
    return torch.cat([nodes[:, :1], inner, nodes[:, -1:]], 1)


def _points_along(
    nodes: Float[Tensor, "paths nodes dim"], moments: Float[Tensor, "paths times"]
) -> Float[Tensor, "paths times dim"]:
    """Compute the points at times between 0 and 1, at constant speed along the polygons."""
    chords = lengths(nodes.diff(dim=1))
    reached = torch.nn.functional.pad(chords.cumsum(-1), (1, 0))
    target = (moments * reached[:, -1:]).contiguous()
    segment = torch.searchsorted(reached[:, 1:-1].contiguous(), target, right=True)
    share = (target - reached.gather(1, segment)) / chords.gather(1, segment).clamp_min(torch.finfo(nodes.dtype).tiny)
    rows = torch.arange(len(nodes), device=segment.device)[:, None]
    return torch.lerp(nodes[rows, segment], nodes[rows, segment + 1], share.clamp(0, 1)[..., None])


def one_by_one(
    nodes: Float[Tensor, "paths nodes dim"], bandwidth: Float[Tensor, " paths"]
) -> tuple[Float[Tensor, "n dim"], Float[Tensor, " n"]]:
    """Give all nodes of all curves, each with the σ of its curve."""
    return nodes.flatten(0, 1), bandwidth.repeat_interleave(nodes.shape[1])


def examine(
    field: MetricField, nodes: Float[Tensor, "paths nodes dim"], bandwidth: Float[Tensor, " paths"]
) -> tuple[Bool[Tensor, " paths"], Float[Tensor, " paths"], Float[Tensor, "paths 2"]]:
    """Measure whether curves are connected, how far they stray, and their ends: see `Path`. Asks 4 points per node."""
    paths, count, dim = nodes.shape
    probes = torch.lerp(nodes[:, :-1, None], nodes[:, 1:, None], nodes.new_tensor(_PROBES)[:, None])
    points, sigma = one_by_one(torch.cat([nodes, probes.reshape(paths, -1, dim)], 1), bandwidth)
    away = lengths(pull(field, points, sigma))
    # A learned denoiser underestimates how far away far points are: they walk back.
    far = (away > FAR * sigma).nonzero()[:, 0]
    if len(far) > 0:
        away = away.index_copy(0, far, torch.maximum(walked_distance(field, points[far], sigma[far]), away[far]))
    away = away.reshape(paths, -1) / bandwidth[:, None]
    at_nodes, between = away[:, :count], away[:, count:].reshape(paths, count - 1, len(_PROBES)).amax(-1)
    bulge = (between - torch.maximum(at_nodes[:, :-1], at_nodes[:, 1:])).clamp_min(0)
    # The way from an end that was given off the data is that end's.
    strayed = torch.cat([at_nodes[:, 1:-1], between[:, 1:-1], bulge[:, [0, -1]]], 1).amax(-1)
    chords = lengths(nodes.diff(dim=1)) / bandwidth[:, None]
    is_jump = bulge > _largest_bulge(chords)
    is_off = at_nodes[:, 1:-1] > _LARGEST_DISTANCE
    # Where a field answers with NaN, nothing is known to be on the data.
    connected = away.isfinite().all(-1) & ~(is_jump.any(-1) | is_off.any(-1))
    return connected, strayed, at_nodes[:, [0, -1]]


def examine_landed(
    field: MetricField, nodes: Float[Tensor, "paths nodes dim"], bandwidth: Float[Tensor, " paths"]
) -> tuple[Bool[Tensor, " paths"], Float[Tensor, " paths"]]:
    """Measure as `examine` does for curves whose ends should be on the data, too."""
    connected, strayed, ends_off = examine(field, nodes, bandwidth)
    farther = ends_off.amax(-1)
    return connected & (farther <= _LARGEST_DISTANCE), torch.maximum(strayed, farther)


def stay(
    field: MetricField, nodes: Float[Tensor, "paths nodes dim"], bandwidth: Float[Tensor, " paths"]
) -> Bool[Tensor, " paths"]:
    """Say whether curves that were landed are connected, as `examine` does, which is asked about few of them."""
    # Nearly halfway, where an eighth of the questions settles most: chords do not even come near a jump.
    points, sigma = one_by_one(torch.lerp(nodes[:, :-1], nodes[:, 1:], _NEARLY_HALFWAY), bandwidth)
    away = (lengths(field.denoise(points, sigma) - points) / sigma).reshape(len(nodes), -1)
    connected = (away < _SURELY_NONE * _largest_bulge(lengths(nodes.diff(dim=1)) / bandwidth[:, None])).all(-1)
    rows = (~connected).nonzero()[:, 0]
    if len(rows) > 0:
        connected[rows] = examine_landed(field, nodes[rows], bandwidth[rows])[0]
    return connected


def _largest_bulge(chords: Float[Tensor, "paths segments"]) -> Float[Tensor, "paths segments"]:
    return (_LARGEST_SAGITTA * chords).clamp(_LEAST_JUMP, _SURE_JUMP)


def rows_of(active: Bool[Tensor, " p"], most: int) -> Iterator[Int[Tensor, " rows"]]:
    """Give the rows that are still active, as long as there are any, and at most so many times."""
    for _ in range(most):
        rows = active.nonzero()[:, 0]
        if len(rows) == 0:
            return
        yield rows


def draw_curves(
    question: Question,
    part: Callable[..., tuple[Tensor, ...]],
    reason: Callable[..., str],
    *batches: Tensor,
    n_nodes: int,
    progress: Progress | None,
    numbers: int | None = None,
) -> Path:
    """Draw curves part by part, and write a sentence on each from all that is known of it, its nodes excepted."""
    # A metric at every node, and points between them when curves are examined.
    numbers = numbers or 64 * n_nodes * question.field.dim
    found = question.compute(part, *batches, numbers=numbers, points_per_item=4 * n_nodes, progress=progress)
    nodes, arrived, connected, strayed, ends_off, *more = found
    rows = zip(*(column.tolist() for column in (arrived, connected, strayed, *more)), strict=True)
    return Path(nodes, arrived, connected, strayed, ends_off, tuple(reason(*row) for row in rows))


def leaving(strayed: float) -> str:
    """Say that a curve leaves the data."""
    if not math.isfinite(strayed):
        return "leaves what the field knows: its answers on the way are NaN or infinite"
    return f"leaves the data, by up to {strayed:.1f}σ"


def bases_along(
    field: MetricField, nodes: Float[Tensor, "p n dim"], bandwidth: Tensor, dimension: int | Int[Tensor, " p"] | None
) -> Float[Tensor, "p n dim d"]:
    """Compute the tangent basis at every node of curves, of one dimension for each curve; others have columns of zeros.

    Where the dimension is not given, the eigenvalues above ⅓, averaged along the curve, are counted: at an edge of the
    data the one across it falls to 1 − 2/π, which is no reason for a curve to stop there.
    """
    metric = field.metric(*one_by_one(nodes, bandwidth))
    if not (dimension is None or isinstance(dimension, Tensor)):
        return metric.tangent_basis(dimension).reshape(*nodes.shape, -1)
    spectrum = metric.spectrum()
    if dimension is None:
        dimension = (spectrum.values.reshape(*nodes.shape[:2], -1).mean(1) > TANGENT_ABOVE).sum(-1)
    width = max(1, int(dimension.max()))
    is_tangent = torch.arange(width, device=nodes.device) < dimension[:, None]
    return spectrum.vectors[..., :width].reshape(*nodes.shape, -1) * is_tangent[:, None, None]


def checked_nodes(n_nodes: Any) -> int:
    """Check a number of nodes."""
    return checked_integer(n_nodes, name="n_nodes", least=2, reason=", the start and the end")
