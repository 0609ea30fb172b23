"""Geodesics: the shortest curves on the data, and their lengths."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.distance import walk_back
from carre.toolkit.endpoints import Endpoints, as_endpoints
from carre.toolkit.graph import as_graph
from carre.toolkit.path import Path, checked_integer, checked_nodes, examine
from carre.toolkit.relaxation import relax
from carre.toolkit.shortening import feet, settle, shorten

_METHODS = ("shortening", "energy")
# Coarse curves only show the finer ones the way.
_COARSE_SWEEPS = 5


@torch.no_grad()
def geodesic(
    field: MetricField,
    start: Any,
    end: Any,
    bandwidth: Bandwidth,
    *,
    samples: Any = None,
    n_nodes: int = 33,
    method: str = "shortening",
    ridge: float = 1e-3,
    dim: int | None = None,
    max_sweeps: int = 200,
    tolerance: float = 1e-6,
    progress: Progress | None = None,
) -> Path:
    """Find the shortest curves on the data between pairs of points: locally shortest, from where they start.

    Without samples, curves start as straight lines that are pulled onto the data, from coarse to fine. That is right
    on a sphere or a torus, and wrong on a Swiss roll, where the pull leads onto other sheets: the path then says that
    it is not connected. With samples, curves start as the shortest ways over them.

    Args:
        field: The field; its denoiser is needed.
        start: Where curves start, shape (n, D), or one point for all.
        end: Where they end, as many points, or one for all.
        bandwidth: σ, one number or one per pair.
        samples: Samples of the data, or a `sample_graph` of them. None starts from straight lines.
        n_nodes: Nodes of every curve, ends included.
        method: "shortening" minimizes the length on the data themselves. "energy" minimizes the length in the metric
            (G + λI)⁻¹, which also exists off the data; it starts from the shortened curve, needs derivatives of
            G, and sags inwards by about (3/16)λθ²R on an arc of angle θ and radius R.
        ridge: λ of the energy.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ along each curve.
        max_sweeps: Sweeps at most.
        tolerance: Curves are at rest when a sweep changes their energy by less than this, relatively.
        progress: Told how far the work is.

    Returns:
        The curves. ``arrived`` says whether they came to rest, ``connected`` whether they stay on the data. Ends that
        lie off the data are kept, and the first and last segments lead onto them.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> path = geodesic(ExactField(Sphere(2)), [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]], 0.1)
        >>> path.arc_length()
        tensor([1.5708], dtype=torch.float64)
    """
    _check_options(method, ridge, tolerance)
    n_nodes, max_sweeps = checked_nodes(n_nodes), checked_integer(max_sweeps, name="max_sweeps", least=1)
    ends = as_endpoints(field, start, end, bandwidth, names=("start", "end"))
    curves, is_joined = _first_curves(field, ends, samples, n_nodes)

    def part(first: Tensor, joined: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        nodes = first if samples is not None else _unfold(field, first, s, n_nodes, dim, tolerance)
        arrived = torch.zeros_like(joined)
        rows = joined.nonzero()[:, 0]
        if len(rows) > 0:
            options: dict[str, Any] = {"max_sweeps": max_sweeps, "tolerance": tolerance}
            found = _land_inner(field, nodes[rows], s[rows])
            found, arrived[rows] = shorten(field, found, s[rows], dim=dim, **options)
            if method == "energy":
                found, arrived[rows] = relax(field, found, s[rows], ridge=ridge, **options)
            nodes = nodes.index_copy(0, rows, found)
        connected, strayed = examine(field, nodes, s)
        return nodes, arrived, connected & joined, strayed

    numbers = 64 * n_nodes * field.dim
    nodes, arrived, connected, strayed = in_parts(
        part, curves, is_joined, ends.bandwidth, numbers_per_item=numbers, progress=progress
    )
    flags = zip(is_joined.tolist(), connected.tolist(), arrived.tolist(), strayed.tolist(), strict=True)
    known: dict[str, Any] = {"with_samples": samples is not None, "n_nodes": n_nodes, "max_sweeps": max_sweeps}
    reasons = tuple(_reason(*flag, **known) for flag in flags)
    return Path(nodes, arrived, connected, strayed, reasons)


@torch.no_grad()
def geodesic_distances(
    field: MetricField,
    points: Any,
    others: Any,
    bandwidth: Bandwidth,
    *,
    samples: Any = None,
    n_nodes: int = 33,
    dim: int | None = None,
    max_sweeps: int = 200,
    tolerance: float = 1e-6,
    progress: Progress | None = None,
) -> Any:
    """Compute the geodesic distances between all pairs of two sets of points, shape (n, m).

    Points off the data count as their feet: the way onto the data adds nothing.

    Args:
        field: The field; its denoiser is needed.
        points: Points on the data, shape (n, D).
        others: Other points, shape (m, D); None takes the distances among ``points``, each pair once.
        bandwidth: σ.
        samples: Samples of the data, or a `sample_graph` of them; see `geodesic`.
        n_nodes: Nodes of every geodesic.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ along each curve.
        max_sweeps: Sweeps at most.
        tolerance: Relative change of the energy at rest.
        progress: Told how far the work is.

    Returns:
        The distances; infinity where no connected curve was found. Warns where curves were still shortening.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> axes = torch.eye(3, dtype=torch.float64)
        >>> geodesic_distances(ExactField(Sphere(2)), axes[:1], axes[1:], 0.1)
        tensor([[1.5708, 1.5708]], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    first = given.tensor.detach()
    second = first if others is None else as_points(others, dim=field.dim, name="others").tensor.detach().to(first)
    sigma = as_bandwidth(bandwidth, first[:1])
    first, second = (feet(field, x, sigma.expand(len(x)), dim) for x in (first, second))
    graph = None if samples is None else as_graph(field, samples, sigma, first)
    n_nodes = checked_nodes(n_nodes)
    options: dict[str, Any] = {"n_nodes": n_nodes, "dim": dim, "max_sweeps": max_sweeps, "tolerance": tolerance}
    shape = (len(first), len(second))
    rows, columns = torch.ones(shape, device=first.device).triu(1 if others is None else -len(first)).nonzero().T
    distances = first.new_zeros(shape)
    if len(rows) == 0:
        return given.restore(distances)

    def part(i: Tensor, j: Tensor) -> tuple[Tensor, ...]:
        path = geodesic(field, first[i], second[j], sigma, samples=graph, **options)
        return torch.where(path.connected, path.arc_length(), torch.inf), path.connected & ~path.arrived

    numbers = 64 * n_nodes * field.dim
    lengths, is_moving = in_parts(part, rows, columns, numbers_per_item=numbers, progress=progress)
    warn_of_moving(is_moving, max_sweeps)
    distances[rows, columns] = lengths
    return given.restore(torch.maximum(distances, distances.mT) if others is None else distances)


def warn_of_moving(is_moving: Bool[Tensor, " p"], max_sweeps: int) -> None:
    """Warn of curves that were not at rest, for whoever asked only for their lengths."""
    if bool(is_moving.any()):
        warnings.warn(
            f"{int(is_moving.sum())} of {len(is_moving)} pairs were still shortening after max_sweeps={max_sweeps}: "
            "their distances are too long. Increase max_sweeps, or tolerance if they are good enough",
            UserWarning,
            stacklevel=4,
        )


def _first_curves(
    field: MetricField, ends: Endpoints, samples: Any, n_nodes: int
) -> tuple[Float[Tensor, "p nodes dim"], Bool[Tensor, " p"]]:
    """Give the curves to start from, and whether there is a way at all: over samples, or just the ends."""
    if samples is None:
        joined = torch.ones(len(ends.start), dtype=torch.bool, device=ends.start.device)
        return torch.stack([ends.start, ends.end], 1), joined
    return as_graph(field, samples, ends.bandwidth, ends.start).curves(ends.start, ends.end, n_nodes)


def _unfold(
    field: MetricField,
    nodes: Float[Tensor, "p n dim"],
    bandwidth: Float[Tensor, " p"],
    n_nodes: int,
    dim: int | None,
    tolerance: float,
) -> Float[Tensor, "p nodes dim"]:
    """Refine curves from their two ends: land the middles of segments, shorten, and again."""
    while nodes.shape[1] < n_nodes:
        middles = _land_far(field, (nodes[:, 1:] + nodes[:, :-1]) / 2, bandwidth)
        pairs = torch.stack([nodes[:, :-1], middles], 2).flatten(1, 2)
        nodes = torch.cat([pairs, nodes[:, -1:]], 1)
        nodes, _ = shorten(field, nodes, bandwidth, dim=dim, max_sweeps=_COARSE_SWEEPS, tolerance=tolerance)
    return nodes if nodes.shape[1] == n_nodes else Path.through(nodes).resample(n_nodes).nodes


def _land_inner(
    field: MetricField, nodes: Float[Tensor, "p n dim"], bandwidth: Float[Tensor, " p"]
) -> Float[Tensor, "p n dim"]:
    """Land all nodes but the ends."""
    return torch.cat([nodes[:, :1], settle(field, nodes[:, 1:-1], bandwidth), nodes[:, -1:]], 1)


def _land_far(
    field: MetricField, points: Float[Tensor, "p n dim"], bandwidth: Float[Tensor, " p"]
) -> Float[Tensor, "p n dim"]:
    """Land points that may be many σ away."""
    near = walk_back(field, points.flatten(0, 1), bandwidth.repeat_interleave(points.shape[1]))
    return settle(field, near.reshape(points.shape), bandwidth)


def _reason(
    joined: bool, connected: bool, arrived: bool, strayed: float, *, with_samples: bool, n_nodes: int, max_sweeps: int
) -> str:
    if not joined:
        return (
            "start and end lie in different components of the data: no chain of neighboring samples joins them. "
            "The nodes are those of the straight line"
        )
    if not connected:
        remedy = (
            "or the samples leave a gap" if with_samples else "or the way leads around a gap: give samples to find it"
        )
        return (
            f"leaves the data, by up to {strayed:.1f}σ: start and end may lie in different components, {remedy}. "
            f"Or n_nodes={n_nodes} are too few to follow the data: increase n_nodes"
        )
    if not arrived:
        return f"still shortening after max_sweeps={max_sweeps}"
    return ""


def _check_options(method: str, ridge: float, tolerance: float) -> None:
    if method not in _METHODS:
        raise ValueError(f"method must be 'shortening' or 'energy'; got {method!r}")
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, or G could not be inverted; got {ridge}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0; got {tolerance}")
