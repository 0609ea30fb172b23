"""Curvature from derivatives of the metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend import Progress
from carre.boundary import checked_answer
from carre.fields import Bandwidth, DataField, MetricField
from carre.toolkit.derivatives import metric_derivative
from carre.toolkit.question import Question, ask
from carre.toolkit.tangent import TangentFrame, largest_dimension, tangent_frame


def shape_along(
    field: MetricField, points: Tensor, bandwidth: Tensor, frame: TangentFrame, directions: Float[Tensor, "n dim"]
) -> Float[Tensor, "n d dim"]:
    """Compute II(v, u_k) for one tangent direction v per point and every column u_k of the frame.

    II(v, u_k)·n_j = n_jᵀ(D_v G)u_k / (λ_k − λ_j) for every normal eigenvector n_j [THEORY §4.3]: without the gap in
    the denominator the result is too small wherever σ is not.
    """
    change = metric_derivative(field, points, bandwidth, directions, frame.basis.mT)
    normal = change - frame.project(change)
    inside = torch.einsum("ndj,nkd->nkj", frame.normals, normal)
    values, least = frame.values[:, :, None], torch.finfo(points.dtype).eps
    gap, floor_gap = ((values - other).clamp_min(least) for other in (frame.normal_values[:, None, :], frame.floor))
    # Normal directions outside the row space have the eigenvalue of the floor; those inside their own.
    correction = inside * (1 / gap - 1 / floor_gap)
    form = normal / floor_gap + torch.einsum("ndj,nkj->nkd", frame.normals, correction)
    return form * frame.present[:, :, None]


def second_fundamental_form(
    field: MetricField | DataField,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    progress: Progress | None = None,
) -> tuple[Any, Any]:
    """Compute how the data bend: II(u_i, u_k), the normal part of the derivative of u_k along u_i.

    Args:
        field: The field.
        points: Points on the data; denoise noisy ones first, or the answer scatters by O(σ).
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
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
    question = ask(field, points, bandwidth, task="curvature")
    form, basis = _of_form(question, dimension, progress, lambda form, basis: (form, basis))
    given = question.given
    # As images these have one axis only.
    return replace(given, sample_shape=None).restore_vectors(form), given.restore_bases(basis)


@dataclass(frozen=True, eq=False, repr=False)
class Curvature:
    """How the data are curved at points, from one pass over them.

    Attributes:
        mean: The mean curvature vectors H⃗ = Σ_i II(u_i, u_i), the trace and not the average, shape (n, D).
        ricci: The Ricci tensors in the tangent bases, shape (n, d, d), with
            Ric(v, w) = Σ_i ⟨II(v, w), II(e_i, e_i)⟩ − ⟨II(v, e_i), II(w, e_i)⟩.
        basis: The bases, shape (n, D, d).
        scalar: The scalar curvature |H⃗|² − |II|² (Gauss), twice the Gauss curvature of a surface, shape (n,).

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> curvature(ExactField(Sphere(2, radius=0.5)), [[0.0, 0.0, 0.5]], 0.01).scalar.round(6)
        array([8.])
    """

    mean: Any
    ricci: Any
    basis: Any
    scalar: Any

    def __repr__(self) -> str:
        n, dim, dimension = self.basis.shape
        return f"Curvature({n} points in {dim} coordinates, tangent spaces of {dimension})"


def curvature(
    field: MetricField | DataField,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    progress: Progress | None = None,
) -> Curvature:
    """Compute the mean, the Ricci and the scalar curvature of the data.

    Args:
        field: The field.
        points: Points on the data; denoise noisy ones first, or the answer scatters by O(σ).
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> found = curvature(ExactField(Sphere(2)), pole, 0.1)
        >>> found.scalar.round(decimals=6), found.mean.round(decimals=6)
        (tensor([2.], dtype=torch.float64), tensor([[ 0.,  0., -2.]], dtype=torch.float64))
    """

    def contract(form: Tensor, basis: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = torch.einsum("niid->nd", form)
        ricci = torch.einsum("nvwd,nd->nvw", form, mean) - torch.einsum("nvid,nwid->nvw", form, form)
        return mean, ricci, basis

    question = ask(field, points, bandwidth, task="curvature")
    mean, ricci, basis = _of_form(question, dimension, progress, contract)
    given = question.given
    scalar = given.restore(ricci.diagonal(0, 1, 2).sum(-1))
    return Curvature(given.restore_vectors(mean), given.restore(ricci), given.restore_bases(basis), scalar)


def sectional_curvature(
    field: MetricField | DataField,
    points: Any,
    left: Any,
    right: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
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
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole, a, b = torch.eye(3, dtype=torch.float64)[:, None]
        >>> sectional_curvature(ExactField(Sphere(2, radius=1.0)), pole, a + b, b + pole.roll(2), 0.1).round(decimals=6)
        tensor([1.], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="curvature")
    sides = question.beside(left, name="left"), question.beside(right, name="right")
    return question.given.restore(_of_form(question, dimension, progress, _sectional, *sides))


def _sectional(
    form: Float[Tensor, "n d d dim"], basis: Float[Tensor, "n dim d"], left: Tensor, right: Tensor
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
    question: Question,
    dimension: int | None,
    progress: Progress | None,
    reduce: Callable[..., Any],
    *vectors: Float[Tensor, "n dim"],
) -> Any:
    """Reduce (form, basis, *vectors) part by part, so that the form need not be held as a whole."""
    field, columns = question.field, largest_dimension(question, dimension)

    def part(y: Tensor, *beside: Tensor) -> Any:
        *some, s = beside
        frame = tangent_frame(field.metric(y, s), dimension)
        form = torch.stack([shape_along(field, y, s, frame, u) for u in frame.basis.unbind(-1)], 1)
        # Parts without the largest dimension have fewer columns.
        missing = columns - frame.basis.shape[-1]
        padded = torch.nn.functional.pad((form + form.transpose(1, 2)) / 2, (0, 0, 0, missing, 0, missing))
        checked_answer(padded, "curvature")
        return reduce(padded, torch.nn.functional.pad(frame.basis, (0, missing)), *some)

    numbers = 8 * field.dim * (columns**2 + 16)
    return question.compute(part, question.points, *vectors, question.bandwidth, numbers=numbers, progress=progress)
