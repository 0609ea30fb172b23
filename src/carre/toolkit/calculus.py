"""Calculus of first order along the data: gradients, and the carré du champ."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.metric import LowRankMetric
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.derivatives import ScalarFunction, check_finite_derivatives, directional, euclidean_gradient
from carre.toolkit.maps import Map, linearize, n_outputs
from carre.toolkit.tangent import tangent_frame


def gradient(
    field: MetricField,
    function: ScalarFunction,
    points: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Compute the gradient of a function along the data: P∂f with P the projector on the tangent space, shape (n, D).

    P is exact where G is only near it: ∇f ≈ G∂f is too short by the eigenvalues of G [THEORY §4.2].

    Args:
        field: The field.
        function: A torch function of points, (n, D) → (n,), that treats them one by one.
        points: Points on the data, shape (n, D).
        bandwidth: σ, one number or one per point.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> east = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        >>> gradient(ExactField(Sphere(1)), lambda y: y.sum(1), east, 0.1)
        tensor([[0., 1.]], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)

    def part(y: Tensor, s: Tensor) -> Tensor:
        return tangent_frame(field.metric(y, s), dim).project(euclidean_gradient(function, y)[1])

    return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=64 * field.dim, progress=progress))


def carre_du_champ(
    field: MetricField,
    left: Map,
    right: Map | None,
    points: Any,
    bandwidth: Bandwidth,
    *,
    progress: Progress | None = None,
) -> Any:
    """Compute the carré du champ Γ(f, h) = ½ ∂fᵀG∂h of functions of the data, by the chain rule [RMM, Eq. 13].

    This is the paper's normalization, Γ = G/2: it tends to half the inner product of the intrinsic gradients. It is
    exact for affine functions, and off by O(σ²) for others [THEORY §1]; `learn_carre_du_champ` learns the definition.

    A function that returns (n,) is a scalar; one that returns (n, k) is k functions, and adds an axis of length k to
    the answer, also where k = 1. Two maps give ½ J_f G J_hᵀ, of shape (n, k, l).

    Args:
        field: The field.
        left: f, a torch function of points, (n, D) → (n,) or (n, k), that treats them one by one.
        right: h, likewise; None for f again.
        points: Points, shape (n, D).
        bandwidth: σ, one number or one per point.
        progress: Told how far the work is.

    Returns:
        Γ(f, h), of shape (n,), (n, k), (n, l) or (n, k, l).

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Gaussian
        >>> line = ExactField(Gaussian(torch.zeros(2).double(), torch.diag(torch.tensor([3.0, 0.0])).double()))
        >>> two = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
        >>> carre_du_champ(line, lambda y: y[:, 0] ** 2, None, two, 1.0).round(decimals=6)  # ½·4·¾·4
        tensor([6.], dtype=torch.float64)
    """
    given = as_points(points, dim=field.dim)
    sigma = as_bandwidth(bandwidth, given.tensor)
    k = n_outputs(left, given.tensor, name="left")
    width = k + (0 if right is None else n_outputs(right, given.tensor, name="right"))

    def part(y: Tensor, s: Tensor) -> Tensor:
        metric = field.metric(y, s)
        first = _in_rank_space(left, y, metric, "left")
        second = first if right is None else _in_rank_space(right, y, metric, "right")
        return paired_rows(first, second)

    numbers = 4 * field.dim * (16 + width) + width**2
    return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=numbers, progress=progress))


def paired_rows(left: Float[Tensor, "n rows ..."], right: Float[Tensor, "n rows ..."]) -> Float[Tensor, "n ..."]:
    """Compute ½AᵀB from the rows of A = F J_fᵀ and B = F J_hᵀ. Scalar functions have no axis for themselves."""
    a, b = "a" * (left.ndim - 2), "b" * (right.ndim - 2)
    return 0.5 * torch.einsum(f"nr{a},nr{b}->n{a}{b}", left, right)


def _in_rank_space(
    function: Map, points: Float[Tensor, "n dim"], metric: LowRankMetric, name: str
) -> Float[Tensor, "n rows ..."]:
    """Compute F Jᵀ, whose products are JGJᵀ; with a ridge, [F; √λ I] stands for F.

    Through the transposed Jacobian, a product per output, or through the Jacobian, a product per row of F: whichever
    are fewer.
    """
    linear = linearize(function, points, name=name)
    is_scalar, keeps_graph = linear.values.ndim == 1, linear.keeps_graph
    if metric.ridge == 0.0 and not is_scalar and linear.values.shape[1] > metric.rank:
        del linear
        # A user's own parameters must not tie the result to a graph.
        with torch.set_grad_enabled(keeps_graph):
            products = torch.stack([directional(function, points, row)[1] for row in metric.factor.unbind(1)], 1)
        check_finite_derivatives(products, name)
        return products
    jacobian = linear.jacobian()
    rows = torch.einsum("nrd,nkd->nrk", metric.factor, jacobian)
    if metric.ridge > 0.0:
        rows = torch.cat([rows, metric.ridge**0.5 * jacobian.mT], 1)
    return rows[..., 0] if is_scalar else rows
