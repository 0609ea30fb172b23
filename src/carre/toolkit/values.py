"""Gradients along the data of quantities that are known at samples only."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.metric import batched_eigh
from carre.neighbors import build_index
from carre.neighbors.protocol import checked_count
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.tangent import largest_dim, tangent_frame

# However small σ is, this many neighbors get weight: several per coefficient of the fit, so that noise of the values
# is averaged and not followed. By default eight times as many are searched, for σ to reach.
FEWEST_NEIGHBORS, PER_DIMENSION, SEARCHED = 32, 8, 8
# Directions along which the neighbors spread less than a thousandth of their widest show no slope.
_LEAST_VARIANCE = 1e-6


def gradient_of_values(
    field: MetricField,
    samples: Any,
    values: Any,
    points: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
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
        dim: Dimension d of the data; None counts the eigenvalues above ⅓ at each point.
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
    given = as_points(points, dim=field.dim)
    y = given.tensor
    sigma = as_bandwidth(bandwidth, y)
    known = as_points(samples, dim=field.dim, name="samples").tensor.detach().to(y)
    measured = real_values(values, known, name="values")
    if measured.ndim > 2 or measured[0].numel() == 0:
        raise ValueError(
            f"values must be one number per sample, shape ({len(known)},), or a row of k, shape ({len(known)}, k); "
            f"got {tuple(measured.shape)}"
        )
    table = measured.reshape(len(known), -1)
    d = largest_dim(field, y, sigma, dim)
    if len(known) <= d:
        raise ValueError(
            f"samples must be more than the dimension of the data, {d}, to fit a slope in every direction; "
            f"got {len(known)}. Give more samples or a smaller dim"
        )
    fewest = max(FEWEST_NEIGHBORS, PER_DIMENSION * d)
    count = min(SEARCHED * fewest, len(known)) if n_neighbors is None else n_neighbors
    count = checked_count(count, len(known), least=d + 1, reason=f", to fit a slope in {d} dimensions")
    index = build_index(known)

    def part(y: Tensor, s: Tensor) -> Tensor:
        found = index.search(y.detach(), count)
        basis = tangent_frame(field.metric(y, s), dim).basis
        coordinates = torch.einsum("nda,njd->nja", basis, known[found.indices] - y[:, None])
        weights = neighbor_weights(found.squared_distances, s, fewest)
        slopes = local_slopes(coordinates, table[found.indices], weights)
        return torch.einsum("nda,nak->nkd", basis, slopes)

    numbers = 4 * field.dim * (count + 16)
    result = in_parts(part, y, sigma, numbers_per_item=numbers, progress=progress)
    return given.restore(result if measured.ndim == 2 else result[:, 0])


def neighbor_weights(
    squared_distances: Float[Tensor, "n j"], bandwidth: Float[Tensor, " n"], fewest: int
) -> Float[Tensor, "n j"]:
    """Compute normalized Gaussian weights of the neighbors.

    Of scale σ, but at least half the distance to the last of the fewest that should count: these then have at least
    e⁻² of the weight of a sample at the point itself, and the fit is never left to the two or three nearest.
    """
    last = squared_distances[:, min(fewest, squared_distances.shape[1]) - 1]
    variance = torch.maximum(bandwidth.square(), last / 4)
    return torch.softmax(-squared_distances / (2 * variance[:, None]), 1)


def local_slopes(
    coordinates: Float[Tensor, "n j d"], values: Float[Tensor, "n j k"], weights: Float[Tensor, "n j"]
) -> Float[Tensor, "n d k"]:
    """Solve the weighted least squares for b in v ≈ a + b·t; zero along directions that no neighbor shows."""
    coordinates = coordinates - (weights[:, :, None] * coordinates).sum(1, keepdim=True)
    values = values - (weights[:, :, None] * values).sum(1, keepdim=True)
    weighted = weights[:, :, None] * coordinates
    variances, axes = batched_eigh(weighted.mT @ coordinates)
    is_seen = variances > _LEAST_VARIANCE * variances[:, -1:].clamp_min(torch.finfo(variances.dtype).tiny)
    inverse = torch.where(is_seen, 1 / torch.where(is_seen, variances, 1.0), 0.0)
    return axes @ (inverse[:, :, None] * (axes.mT @ (weighted.mT @ values)))


def real_values(values: Any, samples: Float[Tensor, "n dim"], *, name: str) -> Float[Tensor, "n ..."]:
    """Accept finite numbers, one row per sample, on the device and in the dtype of the samples."""
    array = values.detach() if isinstance(values, Tensor) else np.asarray(values)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be real numbers; got dtype {array.dtype}")
    tensor = torch.as_tensor(array).to(samples)
    n = len(samples)
    if tensor.ndim == 0 or len(tensor) != n:
        raise ValueError(f"{name} must have one row per sample, shape ({n}, ...); got {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite; got NaN or infinity. Drop those samples")
    return tensor
