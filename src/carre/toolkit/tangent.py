"""Tangent spaces: bases, projections, angles between them."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.boundary import Points, as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.metric import LowRankMetric, principal_angles
from carre.toolkit.batches import Progress, in_parts

# At an edge of the data the eigenvalue across it falls to 1 − 2/π = 0.36; gradients should not lose that direction.
TANGENT_ABOVE = 1 / 3


@dataclass(frozen=True, eq=False)
class TangentFrame:
    """The tangent and normal directions of a metric, with their eigenvalues.

    Where the dimension differs from point to point, ``basis`` has as many columns as the largest needs, and zeros in
    those that a point lacks: projections, traces and sums over directions need not know.

    Attributes:
        basis: U, orthonormal columns, or zero where ``present`` is False.
        values: Their eigenvalues λ; 1 where ``present`` is False.
        present: Which columns are directions.
        normals: The other eigenvectors in the row space of the factor, as columns; zero where they are tangent.
        normal_values: Their eigenvalues.
        floor: The eigenvalue of every direction outside the row space (the metric's ridge).

    Example:
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


def tangent_frame(metric: LowRankMetric, dim: int | None = None) -> TangentFrame:
    """Split the eigenvectors of G into tangent and normal ones.

    Args:
        metric: The metric, one matrix per point.
        dim: The number of tangent directions; None takes, at each point, the eigenvalues above ⅓: at edges of the data
            they fall to 0.36.

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
    if dim is None:
        counts = (spectrum.values.detach() > TANGENT_ABOVE).sum(-1)
        _warn_without_directions(counts)
        dim = max(1, int(counts.max()))
    else:
        dim = _checked_dim(dim, leading, metric)
        counts = torch.full(spectrum.values.shape[:-1], dim, device=metric.factor.device)
    is_tangent = torch.arange(leading, device=counts.device) < counts[..., None]
    return TangentFrame(
        basis=(spectrum.vectors * is_tangent[..., None, :])[..., :dim],
        values=torch.where(is_tangent, spectrum.values, 1.0)[..., :dim],
        present=is_tangent[..., :dim],
        normals=spectrum.vectors * ~is_tangent[..., None, :],
        normal_values=torch.where(is_tangent, spectrum.floor, spectrum.values),
        floor=spectrum.floor,
    )


def largest_dim(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], dim: int | None = None
) -> int:
    """Return how many columns the frames of all points need: ``dim``, or the largest number of eigenvalues above ⅓."""
    if dim is not None:
        return dim
    with torch.no_grad():
        counts = in_parts(
            lambda y, s: (field.metric(y, s).eigenvalues() > TANGENT_ABOVE).sum(-1),
            points,
            bandwidth,
            numbers_per_item=64 * field.dim,
        )
    return max(1, int(counts.max()))


def tangent_basis(
    field: MetricField, points: Any, bandwidth: Bandwidth, *, dim: int, progress: Progress | None = None
) -> Any:
    """Compute orthonormal bases of the tangent spaces, shape (n, D, dim), leading direction first.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> (tangent_basis(ExactField(Sphere(2)), pole, 0.1, dim=2)[0, 2].abs() < 1e-12).all()
        tensor(True)
    """
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)
    return given.restore(
        in_parts(
            lambda y, s: field.metric(y, s).tangent_basis(dim),
            given.tensor,
            sigma,
            numbers_per_item=32 * field.dim,
            progress=progress,
        )
    )


def project(
    field: MetricField,
    points: Any,
    vectors: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Project a vector at each point onto the tangent space there. Of a Euclidean gradient, this is the intrinsic one.

    Args:
        field: The field.
        points: Points, shape (n, D).
        vectors: One vector per point, shape (n, D).
        bandwidth: σ, one number or one per point.
        dim: Dimension of the tangent spaces; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole, up = torch.tensor([[[0.0, 0.0, 1.0]], [[1.0, 0.0, 1.0]]], dtype=torch.float64)
        >>> project(ExactField(Sphere(2)), pole, up, 0.1)
        tensor([[1., 0., 0.]], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    directions = as_vectors(vectors, given, name="vectors")
    sigma = as_bandwidth(bandwidth, given.tensor)

    def part(y: Tensor, v: Tensor, s: Tensor) -> Tensor:
        return tangent_frame(field.metric(y, s), dim).project(v)

    return given.restore(
        in_parts(part, given.tensor, directions, sigma, numbers_per_item=64 * field.dim, progress=progress)
    )


def tangent_angles(
    field: MetricField, points: Any, others: Any, bandwidth: Bandwidth, *, dim: int, progress: Progress | None = None
) -> Any:
    """Compute the principal angles between the tangent spaces at pairs of points, in radians, ascending.

    Args:
        field: The field.
        points: Points, shape (n, D).
        others: As many points; their tangent spaces are compared with those at ``points``.
        bandwidth: σ, one number or one per pair.
        dim: Dimension of the tangent spaces.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> a, b = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]], dtype=torch.float64)
        >>> tangent_angles(ExactField(Sphere(1)), a, b, 0.1, dim=1).cos()
        tensor([[0.6000]], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    partners = as_vectors(others, given, name="others")
    sigma = as_bandwidth(bandwidth, given.tensor)

    def part(y: Tensor, z: Tensor, s: Tensor) -> Tensor:
        return principal_angles(field.metric(y, s).tangent_basis(dim), field.metric(z, s).tangent_basis(dim))

    return given.restore(
        in_parts(part, given.tensor, partners, sigma, numbers_per_item=64 * field.dim, progress=progress)
    )


def as_vectors(vectors: Any, points: Points, *, name: str) -> Float[Tensor, "n dim"]:
    """Accept one finite vector per point, on the device and in the dtype of the points."""
    tensor = as_points(vectors, dim=points.tensor.shape[1], name=name).tensor.to(points.tensor)
    if len(tensor) != len(points.tensor):
        raise ValueError(f"{name} must be as many as the points, {len(points.tensor)}; got {len(tensor)}")
    return tensor


def _checked_dim(dim: Any, leading: int, metric: LowRankMetric) -> int:
    """Check a number of directions."""
    try:
        count: int = operator.index(dim)
    except TypeError as error:
        raise ValueError(
            f"dim must be one integer for all points, or None for the dimension of each; got {dim!r}"
        ) from error
    if not 1 <= count <= leading:
        remedy = "" if metric.rank >= metric.dim else ". Fit with a larger rank to ask for more directions"
        raise ValueError(
            f"dim must lie between 1 and {leading} (rank {metric.rank} in dimension {metric.dim}); got {count}{remedy}"
        )
    return count


def _warn_without_directions(counts: Int[Tensor, "*batch"]) -> None:
    """Warn of points at which nothing is tangent, where every derivative along the data would be zero."""
    n_lost = int((counts == 0).sum())
    if n_lost:
        warnings.warn(
            f"{n_lost} of {counts.numel()} points have no tangent direction: no eigenvalue is above ⅓. They are far "
            "from the data, or bandwidth is too large; see check. Give dim to take the leading directions anyway",
            UserWarning,
            stacklevel=4,
        )
