"""Directions along which the data extend, counted from the eigenvalues of G: also those across which the data end."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.fields import NoDenoiserError
from carre.metric import LowRankMetric, Metric
from carre.metric.spectrum import batched_eigh, count_above
from carre.networks.pointwise import is_one_value

TANGENT_ABOVE = 0.5
# At the edge of flat data the eigenvalue λ across the edge falls to 1 − 2/π = 0.36, to 0.2 one σ beyond it; what it
# lacks is in the mean, whose squared displacement makes it at least 0.72 again. Curvature displaces the mean, too, but
# by σ²; in 2m(σ/√2) − m(σ) that cancels, and of the edge this is left, in units of σ: at least 0.6 of 2.4(½ − λ), and
# 0.07 where the eigenvalue alone is just below ½ [THEORY §4.4].
_EDGE_ABOVE, _EDGE_TOGETHER, _EDGE_SHIFT, _LEAST_SHIFT = 0.2, 0.7, 1.5, 0.05
# Noise gives all normal directions such an eigenvalue, and moves points along some. At an edge most others are 0.
_UNEXPLAINED = 0.5
# The denoiser is also asked at a scale that is smaller by this factor.
FINER = 2**0.5


def count_directions(
    metric: Metric, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], denoise: Callable[..., Tensor]
) -> Int[Tensor, " n"]:
    """Count the directions along which the data extend from each point, given G there.

    Only where an eigenvalue may be one across an edge, a denoiser ``(y, σ) ↦ E[X | Y=y]`` and eigenvectors are asked.
    """
    counts, is_open = _settled(metric)
    rows = is_open.nonzero()[:, 0]
    if len(rows):
        there = rows.to(points.device)
        counts[rows] = _count_at_edges(metric[rows], points[there], _of_rows(bandwidth, there), denoise)
    return counts


def _settled(metric: Metric) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """Count the eigenvalues above ½, and say where eigenvectors have to be looked at, or eigenvalues one by one."""
    if not isinstance(metric, LowRankMetric) or metric.rank > metric.dim:
        n_rows, device = len(metric), metric.device
        return torch.zeros(n_rows, dtype=torch.long, device=device), torch.ones(n_rows, dtype=torch.bool, device=device)
    gram = metric.gram()
    counts, is_sure = count_above(gram, TANGENT_ABOVE - metric.ridge)
    at_edges, is_sure_too = count_above(gram, _EDGE_ABOVE - metric.ridge)
    return counts, (at_edges > counts) | ~(is_sure & is_sure_too)


def _of_rows(bandwidth: Float[Tensor, " n"], rows: Int[Tensor, " m"]) -> Float[Tensor, " m"]:
    # A single σ stays one, which a network embeds only once.
    return bandwidth[:1].expand(len(rows)) if is_one_value(bandwidth) else bandwidth[rows]


def _count_at_edges(
    metric: Metric, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], denoise: Callable[..., Tensor]
) -> Int[Tensor, " n"]:
    """Count the eigenvalues above ½, and those that are lower because the data end there."""
    values, components = _decomposed(metric)
    is_tangent = values > TANGENT_ABOVE
    is_between = ~is_tangent & (values > _EDGE_ABOVE)
    counts, rows = is_tangent.sum(-1), is_between.any(-1).nonzero()[:, 0]
    if len(rows) == 0:
        return counts
    there = rows.to(points.device)
    y, s = points[there], _of_rows(bandwidth, there)
    finer = (s[:1] / FINER).expand(len(rows)) if is_one_value(s) else s / FINER
    try:
        shifts = edge_shifts(y, s, denoise(y, s), denoise(y, finer))
    except NoDenoiserError:
        # An uncentered field has no denoiser; its metric holds the displacement already.
        return counts
    displaced, uncurved = components(rows, torch.stack(shifts, -1).to(values)).abs().unbind(-1)
    values, is_between = values[rows], is_between[rows]
    is_edge = is_between & (values + displaced.square() > _EDGE_TOGETHER)
    is_edge &= uncurved > (_EDGE_SHIFT * (TANGENT_ABOVE - values)).clamp_min(_LEAST_SHIFT)
    n_edges = is_edge.sum(-1)
    n_unexplained = is_between.sum(-1) - n_edges
    counts[rows] += torch.where(n_unexplained <= _UNEXPLAINED * n_edges, n_edges, 0)
    return counts


def _decomposed(metric: Metric) -> tuple[Float[Tensor, "n k"], Callable[[Tensor, Tensor], Tensor]]:
    """Return the eigenvalues λ of G, descending, and what finds components along their eigenvectors at some points.

    Of a factor F in rank space, by FFᵀ = VΛVᵀ: those of w are Λ^(−½)VᵀFw, accurate where λ is far from 0.
    """
    if not isinstance(metric, LowRankMetric) or metric.rank > metric.dim:
        spectrum = metric.spectrum()
        return spectrum.values, lambda rows, vectors: spectrum.vectors[rows].mT @ vectors
    squares, inner = batched_eigh(metric.gram())
    squares, inner = squares.flip(-1), inner.flip(-1)

    def components(rows: Tensor, vectors: Tensor) -> Tensor:
        lengths = squares[rows].clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
        return inner[rows].mT @ (metric.factor[rows] @ vectors) / lengths[..., None]

    return squares + metric.ridge, components


def edge_shifts(
    points: Float[Tensor, "n dim"],
    bandwidth: Float[Tensor, " n"],
    mean: Float[Tensor, "n dim"],
    finer: Float[Tensor, "n dim"],
) -> tuple[Float[Tensor, "n dim"], Float[Tensor, "n dim"]]:
    """Compute how far m(y; σ) is displaced, in σ, and 2m(y; σ/√2) − m(y; σ), in which curvature cancels.

    Example:
        >>> from carre.manifolds import Interval, Sphere
        >>> def lengths(manifold, point):
        ...     y, s = torch.tensor([point]).double(), torch.tensor([0.2]).double()
        ...     shifts = edge_shifts(y, s, manifold.posterior(y, s).mean, manifold.posterior(y, s / FINER).mean)
        ...     return [round(float(shift.norm()), 2) for shift in shifts]
        >>> lengths(Interval(0.0, 1.0), [0.0]), lengths(Sphere(2), [1.0, 0.0, 0.0])
        ([0.8, 0.33], [0.2, 0.0])
    """
    return (mean - points) / bandwidth[:, None], (2 * finer - mean - points) / bandwidth[:, None]
