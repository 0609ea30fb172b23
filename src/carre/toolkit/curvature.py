"""Curvature from derivatives of the metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.derivatives import metric_derivative
from carre.toolkit.tangent import TangentFrame, as_vectors, largest_dim, tangent_frame


def shape_along(
    field: MetricField,
    points: Float[Tensor, "n dim"],
    bandwidth: Float[Tensor, " n"],
    frame: TangentFrame,
    directions: Float[Tensor, "n dim"],
) -> Float[Tensor, "n d dim"]:
    """Compute II(v, u_k) for one tangent direction v per point and every column u_k of the frame.

    II(v, u_k)·n_j = n_jᵀ(D_v G)u_k / (λ_k − λ_j) for every normal eigenvector n_j [THEORY §4.3]: without the gap in
    the denominator the result is too small wherever σ is not.
    """
    change = metric_derivative(field, points, bandwidth, directions, frame.basis.mT)
    normal = change - frame.project(change)
    inside = torch.einsum("ndj,nkd->nkj", frame.normals, normal)
    floor_gap = (frame.values - frame.floor).clamp_min(torch.finfo(points.dtype).eps)
    gap = frame.values[:, :, None] - frame.normal_values[:, None, :]
    gap = gap.clamp_min(torch.finfo(points.dtype).eps)
    # Normal directions outside the row space have the eigenvalue of the floor; those inside their own.
    correction = inside * (1 / gap - 1 / floor_gap[:, :, None])
    form = normal / floor_gap[:, :, None] + torch.einsum("ndj,nkj->nkd", frame.normals, correction)
    return form * frame.present[:, :, None]


def second_form(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], frame: TangentFrame
) -> Float[Tensor, "n d d dim"]:
    """Compute II(u_i, u_k) for all columns of the frame: d derivatives of the factor."""
    columns = [shape_along(field, points, bandwidth, frame, u) for u in frame.basis.unbind(-1)]
    form = torch.stack(columns, 1)
    return (form + form.transpose(1, 2)) / 2


def second_fundamental_form(
    field: MetricField,
    points: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    progress: Progress | None = None,
) -> tuple[Any, Any]:
    """Compute how the data bend: II(u_i, u_k), the normal part of the derivative of u_k along u_i.

    Args:
        field: The field.
        points: Points on the data; denoise noisy ones first, or the answer scatters by O(σ).
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Returns:
        The form, shape (n, d, d, D), and the basis (n, D, d) it refers to. Where a point has fewer than d dimensions,
        its last columns and their entries are zero.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> north = torch.tensor([[0.0, 2.0]], dtype=torch.float64)
        >>> form, _ = second_fundamental_form(ExactField(Sphere(1, radius=2.0)), north, 0.1)
        >>> form[0, 0, 0].round(decimals=6)
        tensor([ 0.0000, -0.5000], dtype=torch.float64)
    """
    form, basis = _of_form(field, points, bandwidth, dim, progress, lambda form, basis: (form, basis))
    return form, basis


def mean_curvature(
    field: MetricField, points: Any, bandwidth: Bandwidth, *, dim: int | None = None, progress: Progress | None = None
) -> Any:
    """Compute the mean curvature vector H⃗ = Σ_i II(u_i, u_i), the trace and not the average, shape (n, D).

    Args:
        field: The field.
        points: Points on the data.
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> mean_curvature(ExactField(Sphere(2)), pole, 0.1).round(decimals=6)
        tensor([[ 0.,  0., -2.]], dtype=torch.float64)
    """
    return _of_form(field, points, bandwidth, dim, progress, lambda form, _: torch.einsum("niid->nd", form))


def scalar_curvature(
    field: MetricField, points: Any, bandwidth: Bandwidth, *, dim: int | None = None, progress: Progress | None = None
) -> Any:
    """Compute the scalar curvature |H⃗|² − |II|² (Gauss), twice the Gauss curvature of a surface, shape (n,).

    Args:
        field: The field.
        points: Points on the data.
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> scalar_curvature(ExactField(Sphere(2)), pole, 0.1).round(decimals=6)
        tensor([2.], dtype=torch.float64)
    """
    return _of_form(field, points, bandwidth, dim, progress, lambda form, _: torch.einsum("nii->n", ricci_of(form)))


def ricci_curvature(
    field: MetricField, points: Any, bandwidth: Bandwidth, *, dim: int | None = None, progress: Progress | None = None
) -> tuple[Any, Any]:
    """Compute the Ricci tensor in the tangent basis, shape (n, d, d), and that basis, shape (n, D, d).

    Ric(v, w) = Σ_i ⟨II(v, w), II(e_i, e_i)⟩ − ⟨II(v, e_i), II(w, e_i)⟩.

    Args:
        field: The field.
        points: Points on the data.
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> ricci_curvature(ExactField(Sphere(2)), pole, 0.1)[0].diagonal(dim1=1, dim2=2).round(decimals=6)
        tensor([[1., 1.]], dtype=torch.float64)
    """
    ricci, basis = _of_form(field, points, bandwidth, dim, progress, lambda form, basis: (ricci_of(form), basis))
    return ricci, basis


def sectional_curvature(
    field: MetricField,
    points: Any,
    left: Any,
    right: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Compute the curvature of the plane that two vectors span at each point, shape (n,).

    K(v, w) = ⟨II(v, v), II(w, w)⟩ − |II(v, w)|² for orthonormal tangent v, w; other vectors are projected and
    orthonormalized first. NaN where they span no plane.

    Args:
        field: The field.
        points: Points on the data.
        left: One vector per point.
        right: Another one.
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole, a, b = torch.eye(3, dtype=torch.float64)[:, None]
        >>> sectional_curvature(ExactField(Sphere(2, radius=1.0)), pole, a + b, b + pole.roll(2), 0.1).round(decimals=6)
        tensor([1.], dtype=torch.float64)
    """
    vectors = {"left": left, "right": right}
    return _of_form(field, points, bandwidth, dim, progress, _sectional, vectors=vectors)


def ricci_of(form: Float[Tensor, "n d d dim"]) -> Float[Tensor, "n d d"]:
    """Contract the second fundamental form to the Ricci tensor (Gauss)."""
    mean = torch.einsum("niid->nd", form)
    return torch.einsum("nvwd,nd->nvw", form, mean) - torch.einsum("nvid,nwid->nvw", form, form)


def _sectional(
    form: Float[Tensor, "n d d dim"],
    basis: Float[Tensor, "n dim d"],
    left: Float[Tensor, "n dim"],
    right: Float[Tensor, "n dim"],
) -> Float[Tensor, " n"]:
    """Compute the curvature of the plane that the projections of two vectors span; NaN where it is none."""
    coordinates = torch.stack([torch.einsum("nda,nd->na", basis, v) for v in (left, right)], -1)
    along = torch.einsum("niad,nip,naq->npqd", form, coordinates, coordinates)
    curvature = (along[:, 0, 0] * along[:, 1, 1]).sum(-1) - along[:, 0, 1].square().sum(-1)
    gram = coordinates.mT @ coordinates
    area, bound = torch.linalg.det(gram), gram[:, 0, 0] * gram[:, 1, 1]
    is_plane = area > 100 * torch.finfo(area.dtype).eps * bound
    return curvature / torch.where(is_plane, area, torch.nan)


def _of_form(
    field: MetricField,
    points: Any,
    bandwidth: Bandwidth,
    dim: int | None,
    progress: Progress | None,
    reduce: Callable[..., Any],
    *,
    vectors: dict[str, Any] | None = None,
) -> Any:
    """Reduce (form, basis, vectors) part by part, so that the form need not be held as a whole."""
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)
    further = [as_vectors(v, given, name=name) for name, v in (vectors or {}).items()]
    columns = largest_dim(field, given.tensor, sigma, dim)

    def part(y: Tensor, s: Tensor, *beside: Tensor) -> Any:
        frame = tangent_frame(field.metric(y, s), dim)
        form = second_form(field, y, s, frame)
        # Parts without the largest dimension have fewer columns.
        missing = columns - frame.basis.shape[-1]
        padded = torch.nn.functional.pad(form, (0, 0, 0, missing, 0, missing))
        return reduce(padded, torch.nn.functional.pad(frame.basis, (0, missing)), *beside)

    numbers = 8 * field.dim * (columns**2 + 16)
    result = in_parts(part, given.tensor, sigma, *further, numbers_per_item=numbers, progress=progress)
    return tuple(given.restore(r) for r in result) if isinstance(result, tuple) else given.restore(result)
