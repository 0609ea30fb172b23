"""The exponential map and its inverse: from a point, straight ahead along the data."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.endpoints import as_endpoints
from carre.toolkit.geodesic import geodesic, warn_of_moving
from carre.toolkit.landing import pull
from carre.toolkit.path import Path, checked_integer, examine
from carre.toolkit.shortening import feet
from carre.toolkit.tangent import as_vectors
from carre.toolkit.transport import bases_along

_LANDINGS = 3


@torch.no_grad()
def exponential(
    field: MetricField,
    points: Any,
    velocities: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    n_steps: int = 32,
    progress: Progress | None = None,
) -> Path:
    """Follow geodesics from points for a time of 1: straight on, as far as their initial velocities are long.

    Every step goes on in the direction of the last one, as seen in the tangent space, and lands across the tangent
    space (RATTLE, for a free particle on the data). No derivative of the field is needed, and the curve is the same
    that `geodesic` finds between its ends: P_k(x_{k+1} − 2x_k + x_{k−1}) = 0.

    Args:
        field: The field; its denoiser is needed.
        points: Points on the data, shape (n, D).
        velocities: One vector per point; their tangent parts are taken.
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        n_steps: Steps, at equal distances.
        progress: Told how far the work is.

    Returns:
        The curves, with ``n_steps + 1`` nodes; their last nodes are exp_x(v).

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> quarter = exponential(ExactField(Sphere(1)), [[1.0, 0.0]], [[0.0, torch.pi / 2]], 0.1)
        >>> quarter.nodes[0, -1].round(decimals=4)
        tensor([0., 1.], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    start = given.tensor.detach()
    directions = as_vectors(velocities, given, name="velocities").detach()
    sigma = as_bandwidth(bandwidth, start)
    n_steps = checked_integer(n_steps, name="n_steps", least=1)

    def part(x: Tensor, v: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        nodes = _follow(field, x, v, s, dim, n_steps)
        return nodes, *examine(field, nodes, s)

    numbers = (64 + 16 * n_steps) * field.dim
    nodes, connected, strayed = in_parts(part, start, directions, sigma, numbers_per_item=numbers, progress=progress)
    reasons = tuple(
        "" if on else f"leaves the data, by up to {far:.1f}σ: there is an edge or a gap on its way"
        for on, far in zip(connected.tolist(), strayed.tolist(), strict=True)
    )
    return Path(nodes, connected, connected, strayed, reasons)


@torch.no_grad()
def logarithm(
    field: MetricField,
    points: Any,
    others: Any,
    bandwidth: Bandwidth,
    *,
    samples: Any = None,
    dim: int | None = None,
    n_nodes: int = 33,
    max_sweeps: int = 200,
    tolerance: float = 1e-6,
    progress: Progress | None = None,
) -> Any:
    """Compute the tangent vectors at points whose exponentials are other points: direction and distance of each.

    Points off the data count as their feet: the way onto the data adds nothing.

    Args:
        field: The field; its denoiser is needed.
        points: Points on the data, shape (n, D), or one for all.
        others: Where to, as many points, or one for all.
        bandwidth: σ, one number or one per pair.
        samples: Samples of the data, or a `sample_graph` of them; see `geodesic`.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ along each curve.
        n_nodes: Nodes of every geodesic.
        max_sweeps: Sweeps at most.
        tolerance: Relative change of the energy at rest.
        progress: Told how far the work is.

    Returns:
        One vector per pair, shape (n, D); NaN where no connected curve was found. Warns where curves were still
        shortening.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> logarithm(ExactField(Sphere(1)), [[1.0, 0.0]], [[0.0, 1.0]], 0.1).round(4)
        array([[0.    , 1.5708]])
    """
    given = as_points(points, dim=field.dim)
    ends = as_endpoints(field, points, others, bandwidth, names=("points", "others"))
    start, end = (feet(field, x, ends.bandwidth, dim) for x in (ends.start, ends.end))
    options: dict[str, Any] = {"dim": dim, "n_nodes": n_nodes, "max_sweeps": max_sweeps, "tolerance": tolerance}
    path = geodesic(field, start, end, ends.bandwidth, samples=samples, progress=progress, **options)
    warn_of_moving(path.connected & ~path.arrived, max_sweeps)

    def part(nodes: Tensor, s: Tensor) -> Tensor:
        basis = bases_along(field, nodes, s, dim)[:, 0]
        return _project(basis, nodes[:, 1] - nodes[:, 0])

    # All nodes are asked for their dimension, since the start may lie on an edge.
    first = in_parts(part, path.nodes, ends.bandwidth, numbers_per_item=64 * path.n_nodes * field.dim)
    vectors = normalize(first, dim=-1) * path.arc_length()[:, None]
    return given.restore(torch.where(path.connected[:, None], vectors, torch.nan))


def _follow(
    field: MetricField,
    points: Float[Tensor, "p dim"],
    velocities: Float[Tensor, "p dim"],
    bandwidth: Float[Tensor, " p"],
    dim: int | None,
    n_steps: int,
) -> Float[Tensor, "p nodes dim"]:
    """Take equal steps straight ahead along the data."""
    basis = bases_along(field, points[:, None], bandwidth, dim)[:, 0]
    # The dimension at the start holds all along, also where the curve comes to an edge.
    dims = dim if dim is not None else (basis.square().sum(1) > 0.5).sum(-1)
    tangent = _project(basis, velocities)
    distance = torch.linalg.vector_norm(tangent, dim=-1, keepdim=True) / n_steps
    direction, nodes = normalize(tangent, dim=-1), [points]
    for _ in range(n_steps):
        nodes.append(_step(field, nodes[-1], direction, distance, bandwidth, basis))
        basis = bases_along(field, nodes[-1][:, None], bandwidth, dims)[:, 0]
        direction = normalize(_project(basis, nodes[-1] - nodes[-2]), dim=-1)
    return torch.stack(nodes, 1)


def _step(
    field: MetricField,
    points: Float[Tensor, "p dim"],
    direction: Float[Tensor, "p dim"],
    distance: Float[Tensor, "p 1"],
    bandwidth: Float[Tensor, " p"],
    basis: Float[Tensor, "p dim d"],
) -> Float[Tensor, "p dim"]:
    """Go along an arc of given length that starts in a tangent direction and ends on the data."""
    across, along = torch.zeros_like(points), distance
    for _ in range(_LANDINGS):
        back = pull(field, points + along * direction + across, bandwidth)
        across = across + back - _project(basis, back)
        # An arc that turns by φ goes along by its length times sin φ/φ, and across by tan(φ/2) times as much.
        height = torch.linalg.vector_norm(across, dim=-1, keepdim=True)
        along = distance * torch.sinc(2 / torch.pi * torch.atan2(height, along))
    return points + along * direction + across


def _project(basis: Float[Tensor, "p dim d"], vectors: Float[Tensor, "p dim"]) -> Float[Tensor, "p dim"]:
    return torch.einsum("pda,pa->pd", basis, torch.einsum("pda,pd->pa", basis, vectors))
