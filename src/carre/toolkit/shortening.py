"""Curve shortening on the data, by Newton steps in the tangent spaces."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.fields import MetricField
from carre.toolkit.batches import in_parts
from carre.toolkit.landing import pull
from carre.toolkit.transport import bases_along, polar_factor

_LANDINGS = 2
_SMALLEST_STEP = 1 / 32


def shorten(
    field: MetricField,
    nodes: Float[Tensor, "p n dim"],
    bandwidth: Float[Tensor, " p"],
    *,
    dim: int | None,
    max_sweeps: int,
    tolerance: float,
) -> tuple[Float[Tensor, "p n dim"], Bool[Tensor, " p"]]:
    """Shorten curves on the data with fixed ends until their lengths change by less than a relative tolerance.

    Minimizes Σ|x_{k+1} − x_k|² on the data [THEORY §4.7]. Steps along the gradient P_k(x_{k+1} − 2x_k + x_{k−1}) would
    need O(n²) sweeps; here each sweep solves the chain of tangent spaces for the step that would straighten the
    curve if the data were flat, and lands. A step is as long as a segment at most, and is halved where it does not
    shorten.

    Returns:
        The nodes, and whether each curve came to rest.
    """
    nodes = nodes.clone()
    rounding = 100 * torch.finfo(nodes.dtype).eps
    energy, step = _energy(nodes), nodes.new_ones(len(nodes))
    arrived = torch.zeros(len(nodes), dtype=torch.bool, device=nodes.device)
    active = torch.full_like(arrived, nodes.shape[1] > 2)
    for _ in range(max_sweeps):
        rows = active.nonzero()[:, 0]
        if len(rows) == 0:
            break
        curve, sigma = nodes[rows], bandwidth[rows]
        bases = bases_along(field, curve[:, 1:-1], sigma, dim)
        move, share = _newton_step(curve, bases)
        inner = curve[:, 1:-1] + (step[rows] / share.clamp_min(1.0))[:, None, None] * move
        trial = torch.cat([curve[:, :1], settle(field, inner, sigma, bases), curve[:, -1:]], 1)
        reached = _energy(trial)
        gain = (energy[rows] - reached) / energy[rows].clamp_min(torch.finfo(energy.dtype).tiny)
        better = gain > -rounding
        nodes[rows[better]], energy[rows[better]] = trial[better], reached[better]
        step[rows] = torch.where(better, (2 * step[rows]).clamp(max=1.0), step[rows] / 2)
        at_rest = better & (gain < max(tolerance, rounding)) & (share < 1)
        # Where landing undoes the smallest step, the curve is as short as the field lets it be; or it is a point.
        at_rest |= (step[rows] < _SMALLEST_STEP) | (reached < (rounding * sigma).square())
        arrived[rows], active[rows] = at_rest, ~at_rest
    return nodes, arrived | (nodes.shape[1] <= 2)


def settle(
    field: MetricField,
    points: Float[Tensor, "p n dim"],
    bandwidth: Float[Tensor, " p"],
    bases: Float[Tensor, "p n dim d"] | None = None,
    *,
    n_steps: int = _LANDINGS,
) -> Float[Tensor, "p n dim"]:
    """Land the nodes of curves; with tangent bases, across them only.

    At an edge of the data, or where their density varies, the denoiser also pulls along the data.
    """
    sigma = bandwidth.repeat_interleave(points.shape[1])
    for _ in range(n_steps if points.shape[1] > 0 else 0):
        step = pull(field, points.flatten(0, 1), sigma).reshape(points.shape)
        if bases is not None:
            step = step - torch.einsum("pnda,pna->pnd", bases, torch.einsum("pnda,pnd->pna", bases, step))
        points = points + step
    return points


def feet(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], dim: int | None
) -> Float[Tensor, "n dim"]:
    """Land points across their tangent spaces: near an edge of the data they are not pulled away from it."""

    def part(y: Tensor, s: Tensor) -> Tensor:
        return settle(field, y[:, None], s, bases_along(field, y[:, None], s, dim))[:, 0]

    foot: Tensor = in_parts(part, points, bandwidth, numbers_per_item=64 * field.dim)
    return foot


def _newton_step(
    curve: Float[Tensor, "p n dim"], bases: Float[Tensor, "p inner dim d"]
) -> tuple[Float[Tensor, "p inner dim"], Float[Tensor, " p"]]:
    """Compute the step of the inner nodes, and its largest length in units of the mean segment."""
    force = curve[:, 2:] - 2 * curve[:, 1:-1] + curve[:, :-2]
    # Where the data bend, UᵀU is short of a rotation. The rotation makes the step exact on whatever can be unrolled.
    coupling = polar_factor(bases[:, :-1].mT @ bases[:, 1:])
    coordinates = _solve_chain(coupling, torch.einsum("pnda,pnd->pna", bases, force))
    move = torch.einsum("pnda,pna->pnd", bases, coordinates)
    segment = torch.linalg.vector_norm(curve.diff(dim=1), dim=-1).mean(-1)
    largest = torch.linalg.vector_norm(move, dim=-1).amax(-1)
    return move, largest / segment.clamp_min(torch.finfo(segment.dtype).tiny)


def _solve_chain(
    coupling: Float[Tensor, "p links d d"], right: Float[Tensor, "p inner d"]
) -> Float[Tensor, "p inner d"]:
    """Solve 2a_k − C_k a_{k+1} − C_{k−1}ᵀ a_{k−1} = b_k, with a = 0 beyond the ends, by block elimination."""
    identity = torch.eye(right.shape[-1]).to(right)
    carried, values = [], [right[:, 0] / 2]
    pivot = 2 * identity.expand(len(right), -1, -1)
    for k in range(coupling.shape[1]):
        carried.append(torch.linalg.solve(pivot, coupling[:, k]))
        pivot = 2 * identity - coupling[:, k].mT @ carried[-1]
        known = right[:, k + 1] + torch.einsum("pba,pb->pa", coupling[:, k], values[-1])
        values.append(torch.linalg.solve(pivot, known))
    for k in reversed(range(coupling.shape[1])):
        values[k] = values[k] + torch.einsum("pab,pb->pa", carried[k], values[k + 1])
    return torch.stack(values, 1)


def _energy(nodes: Float[Tensor, "p n dim"]) -> Float[Tensor, " p"]:
    # In float64, so that the small gains of the last sweeps can be seen.
    return nodes.double().diff(dim=1).square().sum((-2, -1))
