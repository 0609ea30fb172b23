"""Curves as values: what interpolations, geodesics and exponential maps return."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.boundary import as_points
from carre.fields import MetricField
from carre.neighbors import build_index
from carre.toolkit.distance import distance_from_data
from carre.toolkit.landing import straying

# Where a segment is asked how far it is from the data. A quarter beside the middle: halfway between two equal sheets
# the denoiser does not know which one to name, and points to neither.
_PROBES = (0.25, 0.5, 0.75)
# A chord whose sagitta is an eighth of its length turns by 56°; what strays further between its ends is a jump. In σ:
# by one and a half a kernel strays for want of samples, ten are a jump for any chord.
_LARGEST_SAGITTA = 1 / 8
_LEAST_JUMP, _SURE_JUMP = 1.5, 10.0
# In σ: inner nodes are landed, or nearly.
_LARGEST_DISTANCE = 3.0
_FAR = 2.0
_NOT_EXAMINED = "not examined: no field was asked"


@dataclass(frozen=True, eq=False, repr=False)
class Path:
    """A batch of polygonal curves, and what is known of them. Tensors throughout; `numpy` gives the nodes as an array.

    Attributes:
        nodes: The nodes of every curve, from its start to its end.
        arrived: Whether the construction came to its goal: the flow at its end, the geodesic at its shortest.
        connected: Whether the curve stays on the data. It does not where an inner node is 3σ away, nor where a segment
            leaves the data: where at a quarter, half or three quarters of it they are further away than at its ends,
            by more than 1.5σ and an eighth of its length, or by more than 10σ. A gap below 6σ may not be seen. True,
            and no evidence, where no field was asked: ``strayed`` is NaN there, and ``reasons`` says so.
        strayed: The largest distance of the curve from the data in units of σ, over nodes and points between them,
            as the denoiser measures it; NaN where no field was asked.
        reasons: A sentence on each curve, empty where there is nothing to say.

    Example:
        >>> path = Path.through([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]])
        >>> path
        Path(paths=1, nodes=3, dim=2, arrived=1, connected=unknown)
        >>> path.length()
        tensor([4.], dtype=torch.float64)
        >>> path(0.5)
        tensor([[[2., 0.]]], dtype=torch.float64)
    """

    nodes: Float[Tensor, "paths nodes dim"]
    arrived: Bool[Tensor, " paths"]
    connected: Bool[Tensor, " paths"]
    strayed: Float[Tensor, " paths"]
    reasons: tuple[str, ...]

    @classmethod
    def through(cls, nodes: Any) -> Path:
        """Draw curves through given nodes, (nodes, dim) for one curve or (paths, nodes, dim), arrays or tensors.

        No field is asked whether they stay on the data.
        """
        shape = nodes.shape if isinstance(nodes, Tensor) else np.shape(nodes)
        if len(shape) not in (2, 3) or shape[-2] < 2:
            raise ValueError(f"nodes must have shape (paths, nodes, dim) with at least 2 nodes; got {tuple(shape)}")
        flat = nodes if isinstance(nodes, Tensor) else np.asarray(nodes)
        tensor = as_points(flat.reshape(-1, shape[-1]), name="nodes").tensor.detach()
        tensor = tensor.reshape(-1, *shape[-2:])
        known = torch.ones(len(tensor), dtype=torch.bool, device=tensor.device)
        return cls(tensor, known, known, tensor.new_full((len(tensor),), torch.nan), (_NOT_EXAMINED,) * len(tensor))

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

    def __len__(self) -> int:
        return self.nodes.shape[0]

    def __getitem__(self, index: Any) -> Path:
        """Select curves by an integer, a slice, a mask or a list; one curve is still a batch."""
        chosen = np.atleast_1d(np.arange(len(self))[index.cpu().numpy() if isinstance(index, Tensor) else index])
        rows = torch.as_tensor(chosen, device=self.nodes.device)
        reasons = tuple(self.reasons[i] for i in chosen)
        return Path(self.nodes[rows], self.arrived[rows], self.connected[rows], self.strayed[rows], reasons)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Give NumPy the nodes."""
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def numpy(self) -> np.ndarray:
        """Return the nodes as a NumPy array, shape (paths, nodes, dim)."""
        array: np.ndarray = self.nodes.detach().cpu().numpy()
        return array

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
        moments = torch.as_tensor(times, dtype=self.nodes.dtype, device=self.nodes.device)
        if not bool(((moments >= 0) & (moments <= 1)).all()):
            raise ValueError("times must lie between 0, the start, and 1, the end")
        if moments.ndim > 2 or (moments.ndim == 2 and len(moments) != len(self)):
            raise ValueError(f"times must have shape (times,) or ({len(self)}, times); got {tuple(moments.shape)}")
        moments = moments[None] if moments.ndim == 0 else moments
        moments = moments.expand(len(self), -1)
        lengths = self._segment_lengths()
        reached = torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))
        target = (moments * reached[:, -1:]).contiguous()
        segment = torch.searchsorted(reached[:, 1:-1].contiguous(), target, right=True)
        share = (target - reached.gather(1, segment)) / lengths.gather(1, segment).clamp_min(_tiny(lengths))
        rows = torch.arange(len(self), device=segment.device)[:, None]
        return torch.lerp(self.nodes[rows, segment], self.nodes[rows, segment + 1], share.clamp(0, 1)[..., None])

    def resample(self, n_nodes: int) -> Path:
        """Place nodes at equal distances along the polygons.

        Example:
            >>> Path.through([[0.0], [1.0], [4.0]]).resample(5).numpy()[0, :, 0]
            array([0., 1., 2., 3., 4.])
        """
        n_nodes = checked_nodes(n_nodes)
        inner = self.evaluate(torch.linspace(0, 1, n_nodes, dtype=torch.float64)[1:-1])
        return replace(self, nodes=torch.cat([self.nodes[:, :1], inner, self.nodes[:, -1:]], 1))

    def reversed(self) -> Path:
        """Run from the end to the start.

        Example:
            >>> Path.through([[0.0], [1.0], [4.0]]).reversed().numpy()[0, :, 0]
            array([4., 1., 0.])
        """
        return replace(self, nodes=self.nodes.flip(1))

    def length(self) -> Float[Tensor, " paths"]:
        """Compute the lengths of the polygons."""
        return self._segment_lengths().sum(-1)

    def arc_length(self) -> Float[Tensor, " paths"]:
        """Compute the lengths of the smooth curves through the nodes, of which the segments are chords.

        A chord c that turns by φ belongs to an arc of c(1 + φ²/24): error O(h⁴) instead of the polygon's O(h²).
        Repeated nodes count once.

        Example:
            >>> angle = torch.linspace(0, torch.pi, 7, dtype=torch.float64)
            >>> half_circle = Path.through(torch.stack([angle.cos(), angle.sin()], 1))
            >>> half_circle.arc_length() / torch.pi, half_circle.length() / torch.pi
            (tensor([0.9999], dtype=torch.float64), tensor([0.9886], dtype=torch.float64))
        """
        if self.n_nodes < 3:
            return self.length()
        lengths = self._segment_lengths()
        # Between repeated nodes there is no direction: such segments go to the end, where they turn by nothing.
        is_still = lengths <= 4 * torch.finfo(lengths.dtype).eps * self.nodes.abs().amax((1, 2))[:, None]
        order = is_still.byte().argsort(dim=1, stable=True)
        lengths, moves = lengths.gather(1, order), ~is_still.gather(1, order)
        rows = torch.arange(len(self), device=order.device)[:, None]
        directions = self.nodes.diff(dim=1)[rows, order] / lengths.clamp_min(_tiny(lengths))[..., None]
        half = 0.5 * torch.linalg.vector_norm(directions.diff(dim=1), dim=-1)
        turning = torch.where(moves[:, 1:], 4 * half.clamp(max=1).asin().square(), 0)
        before = torch.cat([turning[:, :1], turning], 1)
        # The last segment turns at its end as at its start.
        after = torch.where(moves[:, 1:], turning, before[:, :-1])
        after = torch.cat([after, before[:, -1:]], 1)
        return (lengths * (1 + (before + after) / 48)).sum(-1)

    def energy(self) -> Float[Tensor, " paths"]:
        """Compute ½∫|ẋ|²dt over [0, 1] with equal times between nodes: half the squared length, if evenly spaced.

        Example:
            >>> Path.through([[0.0], [1.0], [4.0]]).energy(), Path.through([[0.0], [2.0], [4.0]]).energy()
            (tensor([10.], dtype=torch.float64), tensor([8.], dtype=torch.float64))
        """
        return 0.5 * (self.n_nodes - 1) * self._segment_lengths().square().sum(-1)

    def start_velocity(self) -> Float[Tensor, "paths dim"]:
        """Compute the velocity at the start, of a curve that takes the time from 0 to 1: its length is the curve's.

        Example:
            >>> Path.through([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]]).start_velocity()
            tensor([[4., 0.]], dtype=torch.float64)
        """
        first = self.nodes[:, 1] - self.nodes[:, 0]
        return torch.nn.functional.normalize(first, dim=-1) * self.length()[:, None]

    def distance_to(self, samples: Any) -> Float[Tensor, "paths nodes"]:
        """Compute the Euclidean distance of every node from the nearest sample.

        Example:
            >>> Path.through([[0.0, 0.0], [3.0, 4.0]]).distance_to([[0.0, 0.0]])
            tensor([[0., 5.]], dtype=torch.float64)
        """
        near = build_index(as_points(samples, dim=self.dim, name="samples").tensor).search(self.nodes.flatten(0, 1), 1)
        return near.squared_distances.sqrt().reshape(len(self), self.n_nodes).to(self.nodes)

    def _segment_lengths(self) -> Float[Tensor, "paths segments"]:
        lengths: Tensor = torch.linalg.vector_norm(self.nodes.diff(dim=1), dim=-1)
        return lengths


def examine(
    field: MetricField, nodes: Float[Tensor, "paths nodes dim"], bandwidth: Float[Tensor, " paths"]
) -> tuple[Bool[Tensor, " paths"], Float[Tensor, " paths"]]:
    """Measure whether curves are connected, and how far they stray: see `Path`."""
    paths, count, dim = nodes.shape
    starts, ends = nodes[:, :-1, None], nodes[:, 1:, None]
    weights = nodes.new_tensor(_PROBES)[:, None]
    probes = torch.lerp(starts, ends, weights)
    points = torch.cat([nodes, probes.reshape(paths, -1, dim)], 1)
    sigma = bandwidth.repeat_interleave(points.shape[1])
    away = _distances(field, points.flatten(0, 1), sigma).reshape(paths, -1) / bandwidth[:, None]
    at_nodes, between = away[:, :count], away[:, count:].reshape(paths, count - 1, len(_PROBES)).amax(-1)
    bulge = between - torch.maximum(at_nodes[:, :-1], at_nodes[:, 1:])
    chords = torch.linalg.vector_norm(nodes.diff(dim=1), dim=-1) / bandwidth[:, None]
    is_jump = bulge > (_LARGEST_SAGITTA * chords).clamp(_LEAST_JUMP, _SURE_JUMP)
    is_off = at_nodes[:, 1:-1] > _LARGEST_DISTANCE
    # Where a field answers with NaN, nothing is known to be on the data.
    return away.isfinite().all(-1) & ~(is_jump.any(-1) | is_off.any(-1)), away.amax(-1)


def _distances(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """Measure how far points are from the data; far ones, which a learned denoiser underestimates, by walking back."""
    away = straying(field, points, bandwidth)
    far = (away > _FAR * bandwidth).nonzero()[:, 0]
    if len(far) == 0:
        return away
    walked = distance_from_data(field, points[far], bandwidth[far])
    return away.index_copy(0, far, torch.maximum(walked, away[far]))


def checked_integer(value: Any, *, name: str, least: int, reason: str = "") -> int:
    """Check that an option is an integer, and large enough."""
    try:
        count = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name} must be an integer; got {value!r}") from error
    if count < least:
        raise ValueError(f"{name} must be at least {least}{reason}; got {count}")
    return count


def checked_nodes(n_nodes: Any) -> int:
    """Check a number of nodes."""
    return checked_integer(n_nodes, name="n_nodes", least=2, reason=", the start and the end")


def _tiny(values: Tensor) -> float:
    return torch.finfo(values.dtype).tiny
