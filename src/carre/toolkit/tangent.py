"""Tangent spaces: bases, projections, angles between them, and steps of curves from one to the next."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.backend import Progress
from carre.fields import Bandwidth, DataField, MetricField
from carre.metric import Metric, principal_angles
from carre.metric.metric import checked_dimension
from carre.toolkit.landing import lengths
from carre.toolkit.question import Question, ask

# At an edge of the data the eigenvalue across it falls to 1 − 2/π = 0.36; gradients should not lose that direction.
TANGENT_ABOVE = 1 / 3
# Directions of two tangent spaces that are at right angles have nothing in common.
_RIGHT_ANGLE = 1e-6


@dataclass(frozen=True, eq=False)
class TangentFrame:
    """The tangent and normal directions of a metric, with their eigenvalues.

    Where the dimension differs from point to point, ``basis`` has as many columns as the largest needs, and zeros in
    those that a point lacks: projections, traces and sums over directions need not know.

    Attributes:
        basis: U, orthonormal columns, or zero where ``present`` is False.
        values: Their eigenvalues λ; 1 where ``present`` is False.
        present: Which columns are directions.
        normals: The other leading eigenvectors, as columns; zero where they are tangent.
        normal_values: Their eigenvalues.
        floor: The eigenvalue of every direction beside the leading ones (the metric's ridge).

    Example:
        >>> from carre.metric import LowRankMetric
        >>> frame = tangent_frame(LowRankMetric(torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.9, 0.0], [0.0, 0.0, 0.1]]])))
        >>> frame.values, frame.normal_values[:, 2]
        (tensor([[1.0000, 0.8100]]), tensor([0.0100]))
        >>> frame.project(torch.tensor([[3.0, 4.0, 5.0]]))
        tensor([[3., 4., 0.]])
    """

    basis: Float[Tensor, "n dim d"]
    values: Float[Tensor, "n d"]
    present: Bool[Tensor, "n d"]
    normals: Float[Tensor, "n dim m"]
    normal_values: Float[Tensor, "n m"]
    floor: float

    def project(self, vectors: Float[Tensor, "n *more dim"]) -> Float[Tensor, "n *more dim"]:
        """Compute UUᵀv for one vector per point, or several."""
        coordinates = torch.einsum("nda,n...d->n...a", self.basis, vectors)
        return torch.einsum("nda,n...a->n...d", self.basis, coordinates)


def tangent_frame(metric: Metric, dimension: int | None = None) -> TangentFrame:
    """Split the eigenvectors of G into tangent and normal ones.

    Args:
        metric: The metric, one matrix per point.
        dimension: The number of tangent directions; None takes, at each point, the eigenvalues above ⅓: at edges of
            the data they fall to 0.36.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Box
        >>> inside_and_corner = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
        >>> metric = ExactField(Box([0.0, 0.0], [1.0, 1.0])).metric(inside_and_corner, 0.1)
        >>> tangent_frame(metric).present  # two directions, also in a corner
        tensor([[True, True],
                [True, True]])
    """
    spectrum = metric.spectrum()
    leading = spectrum.values.shape[-1]
    if dimension is None:
        counts = (spectrum.values.detach() > TANGENT_ABOVE).sum(-1)
        n_lost = int((counts == 0).sum())
        if n_lost:
            warnings.warn(
                f"{n_lost} of {counts.numel()} points have no tangent direction: no eigenvalue is above ⅓. They are "
                "far from the data, or bandwidth is too large; see check. Give dimension to take the leading "
                "directions anyway",
                UserWarning,
                # The caller of a tool: below it are the tool, the question, and the part of it.
                stacklevel=8,
            )
        dimension = max(1, int(counts.max()))
    else:
        remedy = "" if metric.rank >= metric.dim else "Fit with a larger rank to ask for more directions"
        reason = f"rank {metric.rank} in dimension {metric.dim}"
        dimension = checked_dimension(dimension, 1, leading, reason, remedy=remedy)
        counts = torch.full(spectrum.values.shape[:-1], dimension, device=metric.device)
    is_tangent = torch.arange(leading, device=counts.device) < counts[..., None]
    return TangentFrame(
        basis=(spectrum.vectors * is_tangent[..., None, :])[..., :dimension],
        values=torch.where(is_tangent, spectrum.values, 1.0)[..., :dimension],
        present=is_tangent[..., :dimension],
        normals=spectrum.vectors * ~is_tangent[..., None, :],
        normal_values=torch.where(is_tangent, spectrum.floor, spectrum.values),
        floor=spectrum.floor,
    )


def largest_dimension(question: Question, dimension: int | None) -> int:
    """Return how many columns the frames of all points need: the dimension given, or the most eigenvalues above ⅓."""
    if dimension is not None:
        return dimension

    def part(y: Tensor, s: Tensor) -> Int[Tensor, " n"]:
        return (question.field.metric(y, s).eigenvalues() > TANGENT_ABOVE).sum(-1)

    with torch.no_grad():
        counts = question.compute(part, question.points, question.bandwidth)
    return max(1, int(counts.max()))


def tangent_basis(
    field: MetricField | DataField,
    points: Any,
    dimension: int,
    bandwidth: Bandwidth | None = None,
    *,
    progress: Progress | None = None,
) -> Any:
    """Compute orthonormal bases of the tangent spaces, shape (n, D, dimension), leading direction first.

    The sign of a direction says nothing, nor does its order among equal eigenvalues. Of a data frame of pandas they are
    a frame with a row for each column at each point: ``basis.loc[label]`` has the names of the columns.

    Args:
        field: The field.
        points: Points, shape (n, D).
        dimension: The number of directions.
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> (tangent_basis(ExactField(Sphere(2)), pole, 2, 0.1)[0, 2].abs() < 1e-12).all()
        tensor(True)
    """
    question = ask(field, points, bandwidth, task="tangent bases")
    return question.answer(
        lambda y, s: question.field.metric(y, s).tangent_basis(dimension),
        numbers_per_point=32 * question.field.dim,
        as_bases=True,
        progress=progress,
    )


def project(
    field: MetricField | DataField,
    points: Any,
    vectors: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Project a vector at each point onto the tangent space there. Of a Euclidean gradient, this is the intrinsic one.

    Args:
        field: The field.
        points: Points, shape (n, D).
        vectors: One vector per point, shape (n, D).
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the tangent spaces; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole, up = torch.tensor([[[0.0, 0.0, 1.0]], [[1.0, 0.0, 1.0]]], dtype=torch.float64)
        >>> project(ExactField(Sphere(2)), pole, up, 0.1)
        tensor([[1., 0., 0.]], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="project")
    directions = question.beside(vectors, name="vectors")

    def part(y: Tensor, v: Tensor, s: Tensor) -> Tensor:
        return tangent_frame(question.field.metric(y, s), dimension).project(v)

    return question.answer(part, directions, as_points=True, progress=progress)


def tangent_angles(
    field: MetricField | DataField,
    points: Any,
    others: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int,
    progress: Progress | None = None,
) -> Any:
    """Compute the principal angles between the tangent spaces at pairs of points, in radians, ascending.

    Args:
        field: The field.
        points: Points, shape (n, D).
        others: As many points; their tangent spaces are compared with those at ``points``.
        bandwidth: σ, one number or one per pair; None for the default of a geometry.
        dimension: Dimension of the tangent spaces.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> a, b = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]], dtype=torch.float64)
        >>> tangent_angles(ExactField(Sphere(1)), a, b, 0.1, dimension=1).cos()
        tensor([[0.6000]], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="tangent angles")
    partners = question.beside(others, name="others")

    def part(y: Tensor, z: Tensor, s: Tensor) -> Tensor:
        here, there = (question.field.metric(at, s).tangent_basis(dimension) for at in (y, z))
        return principal_angles(here, there)

    return question.answer(part, partners, progress=progress)


def projected(
    basis: Float[Tensor, "*batch dim d"], vectors: Float[Tensor, "*batch dim"]
) -> Float[Tensor, "*batch dim"]:
    """Compute UUᵀv, for one vector and one basis of a tangent space each."""
    return torch.einsum("...da,...a->...d", basis, torch.einsum("...da,...d->...a", basis, vectors))


def polar_factor(matrices: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """Compute the orthogonal matrix nearest to each; directions that a matrix sends to zero stay there.

    Example:
        >>> polar_factor(torch.tensor([[2.0, 0.0], [0.0, 0.5]]))
        tensor([[1., 0.],
                [0., 1.]])
    """
    left, values, right = torch.linalg.svd(matrices)
    rotations: Tensor = (left * (values > _RIGHT_ANGLE)[..., None, :]) @ right
    return rotations


def straightening_step(
    curve: Float[Tensor, "p n dim"], bases: Float[Tensor, "p inner dim d"]
) -> tuple[Float[Tensor, "p inner dim"], Float[Tensor, " p"]]:
    """Compute the step of the inner nodes that would straighten curves if the data were flat, with even spaces.

    Returns also its largest length in units of the mean segment.
    """
    force = curve[:, 2:] - 2 * curve[:, 1:-1] + curve[:, :-2]
    wanted = torch.einsum("pnda,pnd->pna", bases, force)
    # Where the data bend, UᵀU is short of a rotation. The rotation makes the step exact on whatever can be unrolled.
    carried = [torch.eye(bases.shape[-1], dtype=curve.dtype, device=curve.device).expand(len(curve), -1, -1)]
    for turn in polar_factor(bases[:, :-1].mT @ bases[:, 1:]).unbind(1):
        carried.append(carried[-1] @ turn)
    unrolled = torch.stack(carried, 1)
    alike = torch.einsum("pnab,pnb->pna", unrolled, wanted)
    solved = torch.einsum("nm,pma->pna", inverse_of_second_differences(force), alike)
    # Directions that are lost on the way are on their own.
    lost = wanted - torch.einsum("pnba,pnb->pna", unrolled, alike)
    move = torch.einsum("pnda,pna->pnd", bases, torch.einsum("pnba,pnb->pna", unrolled, solved) + lost / 2)
    segment = lengths(curve.diff(dim=1)).mean(-1)
    return move, lengths(move).amax(-1) / segment.clamp_min(torch.finfo(segment.dtype).tiny)


def inverse_of_second_differences(inner: Float[Tensor, "p inner dim"]) -> Float[Tensor, "inner inner"]:
    """Invert the matrix that takes inner nodes to 2x_k − x_{k+1} − x_{k−1}, with zeros beyond the ends."""
    place = torch.arange(1, inner.shape[1] + 1, dtype=inner.dtype, device=inner.device)
    nearer, farther = torch.minimum(place[:, None], place), torch.maximum(place[:, None], place)
    return nearer * (1 - farther / (inner.shape[1] + 1))
