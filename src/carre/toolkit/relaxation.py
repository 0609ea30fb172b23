"""Curves of least metric energy."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.fields import MetricField

_SMALLEST_STEP = 1 / 64


def relax(
    field: MetricField,
    nodes: Float[Tensor, "p n dim"],
    bandwidth: Float[Tensor, " p"],
    *,
    ridge: float,
    max_sweeps: int,
    tolerance: float,
) -> tuple[Float[Tensor, "p n dim"], Bool[Tensor, " p"]]:
    """Minimize E = (1 + λ)(n/2)Σ d_kᵀ(G(mid_k) + λI)⁻¹d_k over curves with fixed ends [THEORY §4.7].

    G keeps its own ridge, if it has one. Directions along the data cost 1, directions across (1 + λ)/λ: no landing is
    needed, but curves sag inwards by about (3/16)λθ²R. The gradient is preconditioned by B(T⁻¹ ⊗ I)B with
    B = (G + λI)^½ at the nodes and T the chain of second differences, which makes the number of sweeps independent of
    λ and of the number of nodes.

    Returns:
        The nodes, and whether each curve came to rest.
    """
    nodes = nodes.clone()
    tolerance = max(tolerance, 100 * torch.finfo(nodes.dtype).eps)
    energy, slope = metric_energy(field, nodes, bandwidth, ridge)
    step = nodes.new_ones(len(nodes))
    arrived = torch.full_like(step, nodes.shape[1] <= 2, dtype=torch.bool)
    active = ~arrived
    for _ in range(max_sweeps):
        rows = active.nonzero()[:, 0]
        if len(rows) == 0:
            break
        move = _precondition(field, nodes[rows], bandwidth[rows], ridge, slope[rows])
        trial = nodes[rows]
        trial[:, 1:-1] -= step[rows, None, None] * move
        reached, steepness = metric_energy(field, trial, bandwidth[rows], ridge)
        gain = (energy[rows] - reached) / energy[rows].clamp_min(torch.finfo(energy.dtype).tiny)
        better = gain >= 0
        kept = rows[better]
        nodes[kept], energy[kept], slope[kept] = trial[better], reached[better], steepness[better]
        step[rows] = torch.where(better, (1.5 * step[rows]).clamp(max=1.0), step[rows] / 2)
        at_rest = (better & (gain < tolerance)) | (step[rows] < _SMALLEST_STEP)
        arrived[rows], active[rows] = at_rest, ~at_rest
    return nodes, arrived


def metric_energy(
    field: MetricField, nodes: Float[Tensor, "p n dim"], bandwidth: Float[Tensor, " p"], ridge: float
) -> tuple[Float[Tensor, " p"], Float[Tensor, "p inner dim"]]:
    """Compute E, and its gradient in the inner nodes."""
    segments = nodes.shape[1] - 1
    sigma = bandwidth.repeat_interleave(segments)
    with torch.enable_grad():
        free = nodes.detach().requires_grad_()
        middles = (free[:, 1:] + free[:, :-1]) / 2
        steps = free.diff(dim=1).flatten(0, 1)
        metric = field.metric(middles.flatten(0, 1), sigma)
        metric = metric.with_ridge(metric.ridge + ridge)
        parts = (steps * metric.solve(steps)).sum(-1).reshape(len(nodes), segments)
        energy = 0.5 * (1 + ridge) * segments * parts.sum(-1)
        (slope,) = torch.autograd.grad(energy.sum(), free)
    return energy.detach(), slope[:, 1:-1]


def _precondition(
    field: MetricField,
    nodes: Float[Tensor, "p n dim"],
    bandwidth: Float[Tensor, " p"],
    ridge: float,
    slope: Float[Tensor, "p inner dim"],
) -> Float[Tensor, "p inner dim"]:
    """Compute the step that would end at the minimum if G were the same everywhere."""
    count = slope.shape[1]
    spectrum = field.metric(nodes[:, 1:-1].flatten(0, 1), bandwidth.repeat_interleave(count)).spectrum()
    vectors = spectrum.vectors.reshape(*slope.shape, -1)
    floor = math.sqrt(spectrum.floor + ridge)
    roots = ((spectrum.values + ridge).sqrt() - floor).reshape(len(nodes), count, -1)

    def root(v: Tensor) -> Tensor:
        coordinates = torch.einsum("pnda,pnd->pna", vectors, v)
        return floor * v + torch.einsum("pnda,pna->pnd", vectors, roots * coordinates)

    ones = torch.ones(count - 1, dtype=slope.dtype, device=slope.device)
    second = 2 * torch.eye(count).to(slope) - torch.diag(ones, 1) - torch.diag(ones, -1)
    smooth = torch.einsum("nm,pmd->pnd", torch.linalg.inv(second), root(slope))
    move: Tensor = root(smooth) / ((1 + ridge) * (count + 1))
    return move
