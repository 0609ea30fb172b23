"""Calculus along the data: gradients, the carré du champ, divergence, Laplacian, Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.backend import Progress
from carre.boundary import ArgumentError, as_numbers, is_finite
from carre.fields import Bandwidth, DataField, MetricField
from carre.metric import LowRankMetric, batched_eigh
from carre.neighbors import build_index
from carre.neighbors.index import checked_count
from carre.text import infinite_cells
from carre.toolkit.curvature import shape_along
from carre.toolkit.derivatives import (
    Linearization,
    Map,
    ScalarFunction,
    check_finite_derivatives,
    directional,
    euclidean_gradient,
    linearize,
    linearize_gradient,
    output_shape,
)
from carre.toolkit.question import Question, accepted, ask
from carre.toolkit.tangent import TangentFrame, largest_dimension, tangent_frame

# However small σ is, this many neighbors get weight: several per coefficient of the fit, so that noise of the values
# is averaged and not followed. By default eight times as many are searched, for σ to reach.
_FEWEST_NEIGHBORS, _PER_DIMENSION, _SEARCHED = 32, 8, 8
# Directions along which the neighbors spread less than a thousandth of their widest show no slope.
_LEAST_VARIANCE = 1e-6


def gradient(
    field: MetricField | DataField,
    function: ScalarFunction,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Compute the gradient of a function along the data: P∂f with P the projector on the tangent space, shape (n, D).

    P is exact where G is only near it: ∇f ≈ G∂f is too short by the eigenvalues of G [THEORY §4.2].

    Args:
        field: The field.
        function: A torch function of points, (n, D) → (n,), that treats them one by one.
        points: Points on the data, shape (n, D).
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> east = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        >>> gradient(ExactField(Sphere(1)), lambda y: y.sum(1), east, 0.1)
        tensor([[0., 1.]], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="gradient")
    seen = question.given.seen_by(function)

    def part(y: Tensor, s: Tensor) -> Tensor:
        return tangent_frame(question.field.metric(y, s), dimension).project(euclidean_gradient(seen, y)[1])

    return question.answer(part, as_points=True, progress=progress)


def carre_du_champ(
    field: MetricField | DataField,
    left: Map,
    right: Map | None,
    points: Any,
    bandwidth: Bandwidth | None = None,
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
        bandwidth: σ, one number or one per point; None for the default of a geometry.
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
    question = ask(field, points, bandwidth, task="carré du champ")
    maps = {"left": left} if right is None else {"left": left, "right": right}
    maps = {name: question.given.seen_by(function) for name, function in maps.items()}
    shapes = [output_shape(function, question.points, name=name) for name, function in maps.items()]
    width = sum(shape.numel() for shape in shapes)

    def part(y: Tensor, s: Tensor) -> Tensor:
        metric = question.field.metric(y, s)
        if isinstance(metric, LowRankMetric) and metric.ridge == 0.0:
            rows = [_in_rank_space(function, y, metric, name) for name, function in maps.items()]
            product = rows[0].mT @ rows[-1]
        else:
            jacobians = [linearize(function, y, name=name).jacobian() for name, function in maps.items()]
            product = metric.congruence(jacobians[0], jacobians[-1])
        # Scalar functions have no axis for themselves.
        return 0.5 * product.reshape(len(y), *shapes[0], *shapes[-1])

    return question.answer(part, numbers_per_point=4 * question.field.dim * (16 + width) + width**2, progress=progress)


def _in_rank_space(
    function: Map, points: Float[Tensor, "n dim"], metric: LowRankMetric, name: str
) -> Float[Tensor, "n rows k"]:
    """Compute F Jᵀ, whose products are JGJᵀ, by a product per output or per row of F: whichever are fewer."""
    linear = linearize(function, points, name=name)
    if linear.values[0].numel() <= max(1, metric.rank):
        return torch.einsum("nrd,nkd->nrk", metric.factor, linear.jacobian())
    keeps_graph = linear.keeps_graph
    del linear
    # A user's own parameters must not tie the result to a graph.
    with torch.set_grad_enabled(keeps_graph):
        products = torch.stack([directional(function, points, row)[1] for row in metric.factor.unbind(1)], 1)
    check_finite_derivatives(products, name)
    return products


def divergence(
    field: MetricField | DataField,
    vector_field: Map,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Compute the divergence along the data of the tangential part of a vector field, shape (n,).

    div_M(PV) = Σ_i ⟨u_i, D_{u_i}V⟩ + ⟨H⃗, V⟩. The second term accounts for the part of V that is normal to the data,
    and vanishes where there is none.

    Args:
        field: The field.
        vector_field: V, a torch function of points, (n, D) → (n, D), that treats them one by one.
        points: Points on the data, shape (n, D).
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> divergence(ExactField(Sphere(2)), lambda y: 3 * y, pole, 0.1).abs().round(decimals=6)
        tensor([0.], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="divergence")
    inner, given, outer = question.field, question.given, question.given.seen_by(vector_field)
    units = given.units

    def seen(y: Tensor) -> Tensor:
        values: Tensor = outer(y)
        return values if units is None or values.shape != y.shape else values / units.to(y)

    def part(y: Tensor, s: Tensor) -> Tensor:
        linear = linearize(seen, y, name="vector_field")
        if linear.values.shape != y.shape:
            must = f"return one vector per point, shape {tuple(y.shape)}"
            raise ArgumentError("vector_field", must, got=tuple(linear.values.shape))
        return _divergence(linear, inner, y, s, tangent_frame(inner.metric(y, s), dimension))

    return question.answer(part, numbers_per_point=256 * question.field.dim, progress=progress)


def laplacian(
    field: MetricField | DataField,
    function: ScalarFunction,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    weighted: bool = False,
    progress: Progress | None = None,
) -> Any:
    """Compute the Laplace–Beltrami operator of a function, Δf = tr(Uᵀ∂²f U) + ⟨H⃗, ∂f⟩, shape (n,).

    The trace of the `hessian`: negative where f has a maximum. Exact on spheres at any σ [THEORY §4.2].

    Args:
        field: The field.
        function: A torch function of points, (n, D) → (n,), twice differentiable, that treats them one by one.
        points: Points on the data, shape (n, D); denoise noisy ones first.
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
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
    question = ask(field, points, bandwidth, task="Laplacian")
    inner, seen = question.field, question.given.seen_by(function)

    def part(y: Tensor, s: Tensor) -> Tensor:
        frame = tangent_frame(inner.metric(y, s), dimension)
        slope = linearize_gradient(seen, y, name="function")
        result = _divergence(slope, inner, y, s, frame)
        if not weighted:
            return result
        score = (inner.denoise(y, s) - y) / s.square()[:, None]
        return result + 2 * (frame.project(score) * slope.values).sum(-1)

    return question.answer(part, numbers_per_point=256 * question.field.dim, progress=progress)


def hessian(
    field: MetricField | DataField,
    function: ScalarFunction,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    progress: Progress | None = None,
) -> tuple[Any, Any]:
    """Compute the Hessian of a function along the data, Hess f(u_i, u_k) = u_iᵀ∂²f u_k + ⟨II(u_i, u_k), ∂f⟩.

    Its eigenvalues say how f bends along geodesics. From d Hessian-vector products and d derivatives of the metric;
    nothing of size D×D is formed.

    Args:
        field: The field.
        function: A torch function of points, (n, D) → (n,), twice differentiable, that treats them one by one.
        points: Points on the data, shape (n, D); denoise noisy ones first.
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
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
    question = ask(field, points, bandwidth, task="Hessian")
    inner, seen = question.field, question.given.seen_by(function)
    n_columns = largest_dimension(question, dimension)

    def part(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        frame = tangent_frame(inner.metric(y, s), dimension)
        slope = linearize_gradient(seen, y, name="function")
        rows = []
        for direction in frame.basis.unbind(-1):
            along = torch.einsum("nda,nd->na", frame.basis, slope.pull_back(direction))
            bend = torch.einsum("nad,nd->na", shape_along(inner, y, s, frame, direction), slope.values)
            rows.append(along + bend)
        matrix = torch.stack(rows, 1)
        missing = n_columns - matrix.shape[1]
        padded = torch.nn.functional.pad((matrix + matrix.mT) / 2, (0, missing, 0, missing))
        return padded, torch.nn.functional.pad(frame.basis, (0, missing))

    numbers = question.field.dim * (256 + 8 * n_columns)
    matrix, basis = question.answer(part, numbers_per_point=numbers, as_bases=True, progress=progress)
    return matrix, basis


def _divergence(
    linear: Linearization, field: MetricField, points: Tensor, bandwidth: Tensor, frame: TangentFrame
) -> Float[Tensor, " n"]:
    """Sum ⟨u_i, D_{u_i}V⟩ + ⟨II(u_i, u_i), V⟩ over the directions of the frame."""
    total = torch.zeros_like(bandwidth)
    for i, direction in enumerate(frame.basis.unbind(-1)):
        bend = shape_along(field, points, bandwidth, frame, direction)[:, i]
        total = total + (linear.pull_back(direction) * direction).sum(-1) + (bend * linear.values).sum(-1)
    return total


def gradient_of_values(
    field: MetricField | DataField,
    samples: Any,
    values: Any,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    dimension: int | None = None,
    n_neighbors: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Estimate the gradient along the data of a quantity that was measured at samples, such as a label or an energy.

    Around each point the values of the nearest samples are fitted by a + b·t, where t are tangent coordinates, with
    weights exp(−|x − y|²/2h²). Exact for quantities that are linear in t, also where samples are uneven, as at
    an edge. For a function that can be evaluated anywhere, `gradient` is more exact.

    Args:
        field: The field, which gives the tangent spaces.
        samples: Where the quantity is known, shape (n_s, D).
        values: Its values, shape (n_s,); or those of k quantities, shape (n_s, k).
        points: Where to estimate the gradient, shape (n, D).
        bandwidth: σ, one number or one per point. The weights have h = σ where samples are dense, and more where
            fewer than 32, or 8d, would count. A larger one averages noise out, a smaller one sees finer detail.
        dimension: Dimension d of the data; None counts the eigenvalues above ⅓ at each point.
        n_neighbors: Samples to fit to, at most; by default 256 or 64d, whichever is more.
        progress: Told how far the work is.

    Returns:
        Gradients, shape (n, D), or (n, k, D).

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> angle = torch.arange(500, dtype=torch.float64) * (2 * torch.pi / 500)
        >>> circle = torch.stack([angle.cos(), angle.sin()], 1)
        >>> gradient_of_values(ExactField(Sphere(1)), circle, circle[:, 1], circle[:1], 0.05).round(decimals=2)
        tensor([[0., 1.]], dtype=torch.float64)
    """
    question = ask(field, points, bandwidth, task="gradient of values")
    given = accepted(field, samples, name="samples")
    given.check_order(values, "values", "samples")
    known = given.tensor.detach().to(question.points)
    measured = real_values(values, known, name="values")
    if measured.ndim > 2 or measured[0].numel() == 0:
        must = f"be one number per sample, shape ({len(known)},), or a row of k, shape ({len(known)}, k)"
        raise ArgumentError("values", must, got=tuple(measured.shape))
    table = measured.reshape(len(known), -1)
    fits = LocalFits(question, known, dimension, n_neighbors)

    def part(y: Tensor, s: Tensor) -> Tensor:
        _, basis, slopes = fits.slopes(y, s, lambda indices: table[indices])
        gradients = torch.einsum("nda,nak->nkd", basis, slopes)
        return gradients if measured.ndim == 2 else gradients[:, 0]

    numbers = 4 * question.field.dim * (fits.n_neighbors + 16)
    return question.answer(part, numbers_per_point=numbers, as_points=True, progress=progress)


class LocalFits:
    """Fits of v ≈ a + b·t around points, in tangent coordinates t, to values v at their nearest samples."""

    def __init__(
        self, question: Question, samples: Float[Tensor, "n dim"], dimension: int | None, n_neighbors: int | None
    ) -> None:
        self.field, self.samples, self.dimension = question.field, samples, dimension
        d = largest_dimension(question, dimension)
        if len(samples) <= d:
            must = f"be more than the dimension of the data, {d}, to fit a slope in every direction"
            raise ArgumentError("samples", must, got=len(samples), remedy="Give more samples or a smaller dimension")
        self.n_directions, self.fewest = d, max(_FEWEST_NEIGHBORS, _PER_DIMENSION * d)
        count = min(_SEARCHED * self.fewest, len(samples)) if n_neighbors is None else n_neighbors
        reason = f", to fit a slope in {d} dimensions"
        self.n_neighbors = checked_count(count, len(samples), least=d + 1, reason=reason)
        self.index = build_index(samples)

    def slopes(
        self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], values: Callable[[Tensor], Tensor]
    ) -> tuple[Int[Tensor, "n j"], Float[Tensor, "n dim d"], Float[Tensor, "n d k"]]:
        """Find the neighbors of points, tangent bases, and the slopes b of the values that the neighbors have.

        Weights have the scale σ, but at least half the distance to the last of the fewest that should count: the fit
        is never left to the two or three nearest.
        """
        found = self.index.search(points.detach(), self.n_neighbors)
        basis = tangent_frame(self.field.metric(points, bandwidth), self.dimension).basis
        coordinates = torch.einsum("nda,njd->nja", basis, self.samples[found.indices] - points[:, None])
        last = found.squared_distances[:, min(self.fewest, self.n_neighbors) - 1]
        variance = torch.maximum(bandwidth.square(), last / 4)
        weights = torch.softmax(-found.squared_distances / (2 * variance[:, None]), 1)
        return found.indices, basis, _least_squares(coordinates, values(found.indices), weights)


def _least_squares(
    coordinates: Float[Tensor, "n j d"], values: Float[Tensor, "n j k"], weights: Float[Tensor, "n j"]
) -> Float[Tensor, "n d k"]:
    """Solve for b in v ≈ a + b·t; zero along directions that no neighbor shows."""
    coordinates = coordinates - (weights[:, :, None] * coordinates).sum(1, keepdim=True)
    values = values - (weights[:, :, None] * values).sum(1, keepdim=True)
    weighted = weights[:, :, None] * coordinates
    variances, axes = batched_eigh(weighted.mT @ coordinates)
    is_seen = variances > _LEAST_VARIANCE * variances[:, -1:].clamp_min(torch.finfo(variances.dtype).tiny)
    inverse = torch.where(is_seen, 1 / torch.where(is_seen, variances, 1.0), 0.0)
    return axes @ (inverse[:, :, None] * (axes.mT @ (weighted.mT @ values)))


def real_values(values: Any, samples: Float[Tensor, "n dim"], *, name: str) -> Float[Tensor, "n ..."]:
    """Accept finite numbers, one row per sample, on the device and in the dtype of the samples."""
    tensor = as_numbers(values, name).detach().to(samples)
    n = len(samples)
    if tensor.ndim == 0 or len(tensor) != n:
        raise ArgumentError(name, f"have one row per sample, shape ({n}, ...)", got=tuple(tensor.shape))
    if not is_finite(tensor):
        got = infinite_cells(tensor.reshape(n, -1).cpu().numpy())
        raise ArgumentError(name, "be finite", got=got, remedy="Leave those samples out")
    return tensor
