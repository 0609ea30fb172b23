"""Calculus of second order along the data: divergence, Hessian, Laplacian."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.curvature import shape_along
from carre.toolkit.derivatives import ScalarFunction
from carre.toolkit.maps import Linearization, Map, linearize, linearize_gradient
from carre.toolkit.tangent import TangentFrame, largest_dim, tangent_frame


def divergence(
    field: MetricField,
    vector_field: Map,
    points: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Compute the divergence along the data of the tangential part of a vector field, shape (n,).

    div_M(PV) = Σ_i ⟨u_i, D_{u_i}V⟩ + ⟨H⃗, V⟩. The second term accounts for the part of V that is normal to the data,
    and vanishes where there is none.

    Args:
        field: The field.
        vector_field: V, a torch function of points, (n, D) → (n, D), that treats them one by one.
        points: Points on the data, shape (n, D).
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> divergence(ExactField(Sphere(2)), lambda y: 3 * y, pole, 0.1).abs().round(decimals=6)
        tensor([0.], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)

    def part(y: Tensor, s: Tensor) -> Tensor:
        linear = linearize(vector_field, y, name="vector_field")
        if linear.values.shape != y.shape:
            raise ValueError(
                f"vector_field must return one vector per point, shape {tuple(y.shape)}; "
                f"got {tuple(linear.values.shape)}"
            )
        return _divergence(linear, field, y, s, tangent_frame(field.metric(y, s), dim))

    return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=256 * field.dim, progress=progress))


def laplacian(
    field: MetricField,
    function: ScalarFunction,
    points: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    weighted: bool = False,
    progress: Progress | None = None,
) -> Any:
    """Compute the Laplace–Beltrami operator of a function, Δf = tr(Uᵀ∂²f U) + ⟨H⃗, ∂f⟩, shape (n,).

    The trace of the `hessian`: negative where f has a maximum. Exact on spheres at any σ [THEORY §4.2].

    Args:
        field: The field.
        function: A torch function of points, (n, D) → (n,), twice differentiable, that treats them one by one.
        points: Points on the data, shape (n, D); denoise noisy ones first.
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        weighted: Add 2⟨∇log p, ∇f⟩, for the density p of the data: the generator 2(E[f(X) | Y=x] − f(x))/σ², in the
            limit σ → 0, of the walk that blurs and denoises. ∇log p is estimated by P(m − x)/σ².
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> laplacian(ExactField(Sphere(2)), lambda y: y[:, 2], pole, 0.1).round(decimals=6)
        tensor([-2.], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)

    def part(y: Tensor, s: Tensor) -> Tensor:
        frame = tangent_frame(field.metric(y, s), dim)
        slope = linearize_gradient(function, y, name="function")
        result = _divergence(slope, field, y, s, frame)
        if not weighted:
            return result
        score = (field.denoise(y, s) - y) / s.square()[:, None]
        return result + 2 * (frame.project(score) * slope.values).sum(-1)

    return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=256 * field.dim, progress=progress))


def hessian(
    field: MetricField,
    function: ScalarFunction,
    points: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    progress: Progress | None = None,
) -> tuple[Any, Any]:
    """Compute the Hessian of a function along the data, Hess f(u_i, u_k) = u_iᵀ∂²f u_k + ⟨II(u_i, u_k), ∂f⟩.

    Its eigenvalues say how f bends along geodesics. From d Hessian-vector products and d derivatives of the metric;
    nothing of size D×D is formed.

    Args:
        field: The field.
        function: A torch function of points, (n, D) → (n,), twice differentiable, that treats them one by one.
        points: Points on the data, shape (n, D); denoise noisy ones first.
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Returns:
        The Hessian, shape (n, d, d), and the basis (n, D, d) it refers to. Where a point has fewer than d dimensions,
        its last columns and their entries are zero.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> hessian(ExactField(Sphere(2)), lambda y: y[:, 2], pole, 0.1)[0].diagonal(dim1=1, dim2=2).round(decimals=6)
        tensor([[-1., -1.]], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)
    n_columns = largest_dim(field, given.tensor, sigma, dim)

    def part(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        frame = tangent_frame(field.metric(y, s), dim)
        slope = linearize_gradient(function, y, name="function")
        rows = []
        for direction in frame.basis.unbind(-1):
            along = torch.einsum("nda,nd->na", frame.basis, slope.pull_back(direction))
            bend = torch.einsum("nad,nd->na", shape_along(field, y, s, frame, direction), slope.values)
            rows.append(along + bend)
        matrix = torch.stack(rows, 1)
        missing = n_columns - matrix.shape[1]
        padded = torch.nn.functional.pad((matrix + matrix.mT) / 2, (0, missing, 0, missing))
        return padded, torch.nn.functional.pad(frame.basis, (0, missing))

    numbers = field.dim * (256 + 8 * n_columns)
    matrix, basis = in_parts(part, given.tensor, sigma, numbers_per_item=numbers, progress=progress)
    return given.restore(matrix), given.restore(basis)


def _divergence(
    linear: Linearization, field: MetricField, points: Tensor, bandwidth: Tensor, frame: TangentFrame
) -> Float[Tensor, " n"]:
    """Sum ⟨u_i, D_{u_i}V⟩ + ⟨II(u_i, u_i), V⟩ over the directions of the frame."""
    total = torch.zeros_like(bandwidth)
    for i, direction in enumerate(frame.basis.unbind(-1)):
        bend = shape_along(field, points, bandwidth, frame, direction)[:, i]
        total = total + (linear.pull_back(direction) * direction).sum(-1) + (bend * linear.values).sum(-1)
    return total
