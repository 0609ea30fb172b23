"""The geometry in the words of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend import Progress, in_parts
from carre.boundary import ArgumentError, as_array
from carre.fields import Bandwidth, DataField, MetricField
from carre.metric import Metric
from carre.toolkit.calculus import LocalFits, real_values
from carre.toolkit.question import ask, check_number


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
        bandwidth: σ, one number or one per sample; None for the default of a geometry.
        dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each sample.
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
        field: MetricField | DataField,
        samples: Any,
        bandwidth: Bandwidth | None = None,
        *,
        dimension: int | None = None,
        n_neighbors: int | None = None,
        scale: float = 1.0,
        progress: Progress | None = None,
    ) -> None:
        check_number(scale, "be positive", lambda x: x > 0, name="scale")
        question = ask(field, samples, bandwidth, name="samples", task="carré du champ").detached()
        self.scale, samples = scale, question.points
        with torch.no_grad():
            fits = LocalFits(question, samples, dimension, n_neighbors)
            # The fit is linear in the values: its weights are the slopes of k values of which one is 1.
            one_each = torch.eye(fits.n_neighbors, dtype=samples.dtype, device=samples.device)

            def part(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
                indices, _, weights = fits.slopes(y, s, lambda indices: one_each.expand(len(indices), -1, -1))
                # Parts without the largest dimension have fewer directions.
                return indices, nn.functional.pad(weights, (0, 0, 0, fits.n_directions - weights.shape[1]))

            numbers = 4 * fits.n_neighbors * (fits.n_neighbors + question.field.dim)
            found = question.compute(part, samples, question.bandwidth, numbers=numbers, progress=progress)
            self._indices, self._weights = found

    def __call__(self, f: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Compute Γ(f, h) at every sample.

        Args:
            f: Values of functions, shape (n, ...); any trailing shape counts them.
            h: Values of other functions, shape (n, ...).

        Returns:
            Shape (n, trailing shape of f, trailing shape of h).
        """
        f, h = as_array(f, "f"), as_array(h, "h")
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


class MetricTensor(nn.Module):
    """The Riemannian metric tensor (1+λ)(G + λI)⁻¹ as a module, for libraries that want ``metric(points)``.

    A step along the data costs its length, a step across them √(1 + 1/λ) times as much: geodesics of this metric in the
    ambient space stay near the data. Differentiable in the points where the field is. Give it as the ``metric`` of a
    stochman ``Manifold``, for instance. Dense: D² numbers per point, by Woodbury's identity from an r×r system.

    Args:
        field: The field.
        bandwidth: σ, one number; None for the default of a geometry.
        ridge: λ.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> metric = MetricTensor(ExactField(Sphere(1)), 0.05, ridge=0.01)
        >>> metric(torch.tensor([[1.0, 0.0]], dtype=torch.float64)).round(decimals=1)
        tensor([[[89.8000,  0.0000],
                 [ 0.0000,  1.0000]]], dtype=torch.float64)
    """

    def __init__(self, field: MetricField | DataField, bandwidth: float | None = None, *, ridge: float = 0.01) -> None:
        super().__init__()
        must = "be positive, or directions across the data cost infinity"
        check_number(ridge, must, lambda x: x > 0, name="ridge")
        self.field, self.bandwidth, self.ridge = field, bandwidth, ridge

    def forward(self, points: Any, return_deriv: bool = False) -> Any:
        """Compute the metric tensor at points, shape (n, D, D). ``return_deriv`` is for stochman, which says False."""
        if return_deriv:
            raise ArgumentError("return_deriv", "be False; use torch.func.jacrev(metric) for derivatives")

        def inverse(metric: Metric) -> Float[Tensor, "n dim dim"]:
            identity = torch.eye(metric.dim, dtype=metric.dtype, device=metric.device)
            return metric.solve(identity.expand(len(metric), -1, -1))

        return (1 + self.ridge) * self._of_regularized(points, inverse, power=-1)

    def cometric(self, points: Any) -> Any:
        """Compute the inverse of the metric tensor, (G + λI)/(1+λ)."""
        return self._of_regularized(points, lambda metric: metric.dense(), power=1) / (1 + self.ridge)

    def _of_regularized(self, points: Any, matrices: Callable[[Metric], Tensor], *, power: int) -> Any:
        """Compute matrices of G + λI in the units of the points: multiplied by the units on either side, or divided."""
        question = ask(self.field, points, self.bandwidth, task="metric tensor")
        units = question.given.units

        def part(y: Tensor, s: Tensor) -> Tensor:
            metric = question.field.metric(y, s)
            found = matrices(metric.with_ridge(metric.ridge + self.ridge))
            return found if units is None else found * torch.outer(units, units).to(found) ** power

        return question.answer(part, numbers_per_point=4 * question.field.dim**2)
