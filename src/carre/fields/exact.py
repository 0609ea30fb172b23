"""The metric of a distribution that is known."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from carre.fields.field import Field
from carre.manifolds import Manifold
from carre.metric import LowRankMetric


class ExactField(Field):
    """The exact G and posterior mean of a manifold, or of a finite dataset (`FiniteSet`).

    Args:
        manifold: The distribution.

    Example:
        >>> import torch
        >>> from carre.manifolds import Sphere
        >>> field = ExactField(Sphere(2))
        >>> pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
        >>> field.metric(pole, 0.1).eigenvalues().round(decimals=3)
        tensor([[0.9900, 0.9900, 0.0100]], dtype=torch.float64)
    """

    def __init__(self, manifold: Manifold) -> None:
        self.manifold, self.dim = manifold, manifold.ambient_dim

    def __repr__(self) -> str:
        return f"ExactField({self.manifold!r})"

    def _metric(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> LowRankMetric:
        return self.manifold.posterior(points, bandwidth).metric

    def _denoise(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
        return self.manifold.posterior(points, bandwidth).mean
