"""From a point along the data: the exponential map, its inverse, and the transport of vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from carre.backend import Progress
from carre.boundary import ArgumentError, checked_integer
from carre.fields import Bandwidth, DataField, MetricField
from carre.toolkit.geodesic import Geodesic, warn_of_moving
from carre.toolkit.landing import lengths, pull
from carre.toolkit.path import Path, bases_along, checked_nodes, draw_curves, examine, leaving
from carre.toolkit.question import ask, ask_pairs
from carre.toolkit.tangent import polar_factor, projected

_LANDINGS = 3


@torch.no_grad()
def exponential(
    field: MetricField | DataField,
    points: Any,
    velocities: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    n_steps: int = 32,
    progress: Progress | None = None,
) -> Path:
    """Follow geodesics from points for a time of 1: straight on, as far as their initial velocities are long.

    Every step goes on in the direction of the last one, as seen in the tangent space, and lands across the tangent
    space (RATTLE, for a free particle on the data). No derivative of the field is needed, and the curve is the same
    that a `Geodesic` is between its ends: P_k(x_{k+1} − 2x_k + x_{k−1}) = 0.

    Args:
        field: The field; its denoiser is needed.
        points: Points on the data, shape (n, D).
        velocities: One vector per point; their tangent parts are taken.
        bandwidth: σ, one number or one per point; None takes the default of a `carre.Geometry`.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
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
    n_steps = checked_integer(n_steps, name="n_steps", least=1)
    question = ask(field, points, bandwidth, task="exponential").detached()
    directions = question.beside(velocities, name="velocities").detach()

    def part(x: Tensor, v: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        nodes = _follow(question.field, x, v, s, dimension, n_steps)
        connected, *strayed = examine(question.field, nodes, s)
        return nodes, connected, connected, *strayed

    def reason(arrived: bool, connected: bool, strayed: float) -> str:
        return "" if connected else f"{leaving(strayed)}: there is an edge or a gap on its way"

    batches = question.points, directions, question.bandwidth
    numbers = (64 + 16 * n_steps) * question.field.dim
    path = draw_curves(question, part, reason, *batches, n_nodes=n_steps + 1, progress=progress, numbers=numbers)
    return replace(path.to(question.given.tensor.device).in_units(question.given.units), columns=question.columns)


@torch.no_grad()
def logarithm(
    field: MetricField | DataField,
    points: Any,
    others: Any,
    bandwidth: Bandwidth | None = None,
    *,
    samples: Any = None,
    dimension: int | None = None,
    n_nodes: int = 33,
    max_sweeps: int = 200,
    tolerance: float = 1e-6,
    progress: Progress | None = None,
) -> Any:
    """Compute the tangent vectors at points whose exponentials are other points: direction and distance of each.

    Points off the data count as their foot points: the way onto the data adds nothing.

    Args:
        field: The field; its denoiser is needed.
        points: Points on the data, shape (n, D), or one for all.
        others: Where to, as many points, or one for all.
        bandwidth: σ, one number or one per pair; None takes the default of a `carre.Geometry`.
        samples: Samples of the data, or a `sample_graph` of them; see `Geodesic`.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ along each curve.
        n_nodes: Nodes of every geodesic.
        max_sweeps: Sweeps at most.
        tolerance: Relative change of the energy at rest.
        progress: Told how far the work is.

    Returns:
        One vector per pair, in the shape of the points; NaN where no connected curve was found. Warns where curves
        were still shortening.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> logarithm(ExactField(Sphere(1)), [[1.0, 0.0]], [[0.0, 1.0]], 0.1).round(4)
        array([[0.    , 1.5708]])
    """
    geodesic, n_nodes = Geodesic(samples, dimension, max_sweeps, tolerance), checked_nodes(n_nodes)
    pairs = ask_pairs(field, points, others, bandwidth, names=("points", "others"), task="logarithm")
    path = geodesic.draw(pairs, n_nodes, progress)
    warn_of_moving(path.connected & ~path.arrived, max_sweeps)

    def part(nodes: Tensor, s: Tensor) -> Tensor:
        # All nodes are asked for their dimension, since the start may lie on an edge.
        return projected(bases_along(pairs.field, nodes, s, dimension)[:, 0], nodes[:, 1] - nodes[:, 0])

    first = pairs.compute(part, path.nodes, pairs.bandwidth, points_per_item=n_nodes)
    vectors = normalize(first, dim=-1) * path.length()[:, None]
    return pairs.given.restore_vectors(torch.where(path.connected[:, None], vectors, torch.nan))


@torch.no_grad()
def transport(
    field: MetricField | DataField,
    path: Path,
    vectors: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Carry tangent vectors along curves in parallel, without turning them; their lengths and angles stay.

    From one node to the next, the tangent space is turned by the rotation nearest to its projection onto the next one,
    the polar factor of U₂ᵀU₁. Plain projection would shorten vectors. The error is of second order in the distance
    of the nodes.

    Args:
        field: The field.
        path: The curves, on the data.
        vectors: One vector at the start of each curve, shape (paths, D); its tangent part is carried.
        bandwidth: σ, one number or one per curve; None takes the default of a `carre.Geometry`.
        dimension: Dimension of the tangent spaces; None counts the eigenvalues above ⅓ along each curve.
        progress: Told how far the work is.

    Returns:
        The vector at every node, shape (paths, nodes, D), or images where the vectors were; at the end of the curves it
        is ``[:, -1]``.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> angle = torch.linspace(0, torch.pi / 2, 20, dtype=torch.float64)
        >>> quarter = Path.through(torch.stack([angle.cos(), angle.sin()], 1))
        >>> carried = transport(ExactField(Sphere(1)), quarter, [[0.0, 1.0]], 0.1, dimension=1)
        >>> carried[0, -1].round(decimals=6)
        array([-1.,  0.])
    """
    question = ask(field, vectors, bandwidth, name="vectors", task="transport").detached()
    if path.dim != question.field.dim:
        raise ArgumentError("path", f"run in the field's space, dimension {question.field.dim}", got=path.dim)
    if len(question.points) != len(path):
        raise ArgumentError("vectors", f"be one per path, {len(path)}", got=len(question.points))
    units = question.given.units
    nodes = (path.nodes if units is None else path.nodes / units.to(path.nodes)).to(question.points.device)

    def part(nodes: Tensor, v: Tensor, s: Tensor) -> Tensor:
        bases = bases_along(question.field, nodes, s, dimension)
        turns = polar_factor(bases[:, 1:].mT @ bases[:, :-1])
        coordinates = [torch.einsum("pda,pd->pa", bases[:, 0], v)]
        for turn in turns.unbind(1):
            coordinates.append(torch.einsum("pab,pb->pa", turn, coordinates[-1]))
        return torch.einsum("pnda,pna->pnd", bases, torch.stack(coordinates, 1))

    vectors, sigma = question.points.to(nodes), question.bandwidth.to(nodes)
    carried = question.compute(part, nodes, vectors, sigma, points_per_item=path.n_nodes, progress=progress)
    return question.given.restore_vectors(carried)


def _follow(
    field: MetricField, points: Tensor, velocities: Tensor, bandwidth: Tensor, dimension: int | None, n_steps: int
) -> Float[Tensor, "p nodes dim"]:
    """Take equal steps straight ahead along the data: arcs that start in a tangent direction and end on the data."""
    basis = bases_along(field, points[:, None], bandwidth, dimension)[:, 0]
    # The dimension at the start holds all along, also where the curve comes to an edge.
    kept = dimension if dimension is not None else (basis.square().sum(1) > 0.5).sum(-1)
    tangent = projected(basis, velocities)
    distance = lengths(tangent)[:, None] / n_steps
    direction, nodes = normalize(tangent, dim=-1), [points]
    for _ in range(n_steps):
        across, along = torch.zeros_like(points), distance
        for _ in range(_LANDINGS):
            back = pull(field, nodes[-1] + along * direction + across, bandwidth)
            across = across + back - projected(basis, back)
            # An arc that turns by φ goes along by its length times sin φ/φ, and across by tan(φ/2) times as much.
            along = distance * torch.sinc(2 / torch.pi * torch.atan2(lengths(across)[:, None], along))
        nodes.append(nodes[-1] + along * direction + across)
        basis = bases_along(field, nodes[-1][:, None], bandwidth, kept)[:, 0]
        direction = normalize(projected(basis, nodes[-1] - nodes[-2]), dim=-1)
    return torch.stack(nodes, 1)
