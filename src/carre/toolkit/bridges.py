"""The geometry in the words of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.metric import LowRankMetric
from carre.neighbors import build_index
from carre.neighbors.protocol import checked_count
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.tangent import largest_dim, tangent_frame
from carre.toolkit.values import (
    FEWEST_NEIGHBORS,
    PER_DIMENSION,
    SEARCHED,
    local_slopes,
    neighbor_weights,
    real_values,
)


class DiffusionCarreDuChamp:
    """The carré du champ Γ(f, h) = ⟨∇f, ∇h⟩ of functions that are known at samples, by the tangent spaces of a field.

    What the package DiffusionGeometry (Iolo Jones) takes as ``carre_du_champ`` of its ``ImmersedMarkovTriple``, in the
    place of its own kernel estimate. Normalized as there: Cov/2ρ with the kernel exp(−d²/4ρ) tends to ⟨∇f, ∇h⟩
    without a half. Γ of two coordinates is the tangent projector P, not G, which at finite σ is a little smaller:
    slopes do not shrink with σ.

    The gradient at a sample is a weighted sum over its neighbors (as in `gradient_of_values`), worked out once: each
    call is then a product. It is bilinear and symmetric, and Γ(f, f) is never negative.

    Args:
        field: The field.
        samples: Where functions are known, shape (n, D).
        bandwidth: σ, one number or one per sample.
        dim: Dimension of the data; None counts the eigenvalues above ⅓ at each sample.
        n_neighbors: Samples to take slopes from, at most; by default as for `gradient_of_values`.
        scale: A factor; ½ gives the Γ of the paper, half the generator's.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> angle = np.arange(400) * (2 * np.pi / 400)
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], 1)
        >>> carre_du_champ = DiffusionCarreDuChamp(ExactField(Sphere(1)), circle, 0.05)
        >>> carre_du_champ(circle, circle).shape
        (400, 2, 2)
        >>> bool(np.allclose(carre_du_champ(np.sin(angle), np.sin(angle)), np.cos(angle) ** 2, atol=0.02))
        True
    """

    def __init__(
        self,
        field: MetricField,
        samples: Any,
        bandwidth: Bandwidth,
        *,
        dim: int | None = None,
        n_neighbors: int | None = None,
        scale: float = 1.0,
        progress: Progress | None = None,
    ) -> None:
        if not scale > 0:
            raise ValueError(f"scale must be positive; got {scale}")
        known = as_points(samples, dim=field.dim, name="samples").tensor.detach()
        sigma = as_bandwidth(bandwidth, known)
        self.scale = scale
        with torch.no_grad():
            self._indices, self._weights = _slope_weights(field, known, sigma, dim, n_neighbors, progress)

    def __call__(self, f: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Compute Γ(f, h) at every sample.

        Args:
            f: Values of functions, shape (n, ...); any trailing shape counts them.
            h: Values of other functions, shape (n, ...).

        Returns:
            Shape (n, trailing shape of f, trailing shape of h).
        """
        f, h = np.asarray(f), np.asarray(h)
        left = self._slopes(f, "f")
        right = left if h is f else self._slopes(h, "h")
        product: np.ndarray = (self.scale * torch.einsum("nai,naj->nij", left, right)).cpu().numpy()
        return product.reshape(len(f), *f.shape[1:], *h.shape[1:])

    def _slopes(self, values: np.ndarray, name: str) -> Float[Tensor, "n d k"]:
        """Compute gradients in tangent coordinates."""
        n, d, k = self._weights.shape
        table = real_values(values, self._weights[:, :, 0], name=name).reshape(n, -1)
        slopes: Tensor = in_parts(
            lambda indices, weights: weights @ table[indices],
            self._indices,
            self._weights,
            numbers_per_item=2 * (k + d) * table.shape[1],
        )
        return slopes


def _slope_weights(
    field: MetricField,
    samples: Float[Tensor, "n dim"],
    bandwidth: Float[Tensor, " n"],
    dim: int | None,
    n_neighbors: int | None,
    progress: Progress | None,
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n d k"]]:
    """Find the neighbors of every sample, and what each of their values adds to the slope along each tangent direction.

    The local fit is linear in the values: its weights are the slopes of k values of which one is 1.
    """
    d = largest_dim(field, samples, bandwidth, dim)
    fewest = max(FEWEST_NEIGHBORS, PER_DIMENSION * d)
    count = min(SEARCHED * fewest, len(samples)) if n_neighbors is None else n_neighbors
    count = checked_count(count, len(samples), least=d + 1, reason=f", to fit a slope in {d} dimensions")
    index = build_index(samples)
    one_each = torch.eye(count, dtype=samples.dtype, device=samples.device)

    def part(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        found = index.search(y, count)
        basis = tangent_frame(field.metric(y, s), dim).basis
        basis = nn.functional.pad(basis, (0, d - basis.shape[-1]))
        coordinates = torch.einsum("nda,njd->nja", basis, samples[found.indices] - y[:, None])
        weights = neighbor_weights(found.squared_distances, s, fewest)
        return found.indices, local_slopes(coordinates, one_each.expand(len(y), -1, -1), weights)

    found: tuple[Tensor, Tensor] = in_parts(
        part, samples, bandwidth, numbers_per_item=4 * count * (count + field.dim), progress=progress
    )
    return found


class MetricTensor(nn.Module):
    """The Riemannian metric tensor (1+λ)(G + λI)⁻¹ as a module, for libraries that want ``metric(points)``.

    A step along the data costs its length, a step across them √(1 + 1/λ) times as much: geodesics of this metric in
    the ambient space stay near the data. Differentiable in the points where the field is. Give it as the
    ``metric`` of a stochman ``Manifold``, for instance. Dense: D² numbers per point, by Woodbury's identity from an
    r×r system.

    Args:
        field: The field.
        bandwidth: σ, one number.
        ridge: λ.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> metric = MetricTensor(ExactField(Sphere(1)), 0.05, ridge=0.01)
        >>> metric(torch.tensor([[1.0, 0.0]], dtype=torch.float64)).round(decimals=1)
        tensor([[[89.8000,  0.0000],
                 [ 0.0000,  1.0000]]], dtype=torch.float64)
    """

    def __init__(self, field: MetricField, bandwidth: float, *, ridge: float = 0.01) -> None:
        super().__init__()
        if not ridge > 0:
            raise ValueError(f"ridge must be positive, or directions across the data cost infinity; got {ridge}")
        self.field, self.bandwidth, self.ridge = field, float(bandwidth), ridge

    def forward(self, points: Tensor, return_deriv: bool = False) -> Float[Tensor, "n dim dim"]:
        """Compute the metric tensor at points, shape (n, D). ``return_deriv`` is for stochman, which says False."""
        if return_deriv:
            raise ValueError("return_deriv must be False; use torch.func.jacrev(metric) for derivatives")
        metric = self._regularized(points)
        identity = torch.eye(metric.rank, dtype=metric.factor.dtype, device=metric.factor.device)
        inner = torch.linalg.solve(metric.gram() + metric.ridge * identity, metric.factor)
        outside = torch.eye(metric.dim, dtype=inner.dtype, device=inner.device) - metric.factor.mT @ inner
        tensor: Tensor = (1 + self.ridge) / metric.ridge * outside
        return tensor

    def cometric(self, points: Tensor) -> Float[Tensor, "n dim dim"]:
        """Compute the inverse of the metric tensor, (G + λI)/(1+λ)."""
        return self._regularized(points).dense() / (1 + self.ridge)

    def _regularized(self, points: Tensor) -> LowRankMetric:
        """Compute G + λI."""
        points = as_points(points, dim=self.field.dim).tensor
        metric = self.field.metric(points, self.bandwidth)
        return metric.with_ridge(metric.ridge + self.ridge)
