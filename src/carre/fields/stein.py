"""The Stein-score metric: only the direction of the score is not free."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields.denoisers import Denoiser
from carre.fields.protocol import Bandwidth
from carre.metric import ComplementMetric


class SteinField:
    """The cometric G = I − λssᵀ/(1 + λ|s|²) of Azeglio and Di Bernardo's metric g = I + λssᵀ [THEORY §5].

    The score s = (m − y)/σ² points across the data, so g makes that one direction expensive; all others
    count as tangent. At clean points s nearly vanishes and G is nearly the identity. It is a baseline: it
    does not tend to the tangent projector, and its leading directions are not unique.

    Args:
        denoiser: ``(points, bandwidth) ↦ E[X | Y=y]``, a function of (n, dim) points and (n,) bandwidths; or a
            module, which is copied; or a field, whose denoiser is taken.
        dim: The ambient dimension D; None asks the field.
        strength: λ in units of σ²: λ = strength·σ², so that λ|s|² is a number without units and G does not
            depend on those of the data. For the authors' fixed λ at one σ, take strength = λ/σ².

    Example:
        >>> import torch
        >>> field = SteinField(lambda points, bandwidth: points * torch.tensor([1.0, 0.0]), 2)
        >>> field.metric(torch.tensor([[5.0, 0.3]]), 0.1).dense()
        tensor([[[1.0000, 0.0000],
                 [0.0000, 0.1000]]])
    """

    def __init__(self, denoiser: object, dim: int | None = None, *, strength: float = 1.0) -> None:
        if not 0.0 <= strength < float("inf"):
            raise ValueError(f"strength must be at least 0 and finite; got {strength}")
        self._denoiser = Denoiser(denoiser, dim)
        self.strength = strength

    @property
    def dim(self) -> int:
        """The ambient dimension D."""
        return self._denoiser.dim

    def metric(self, points: Tensor, bandwidth: Bandwidth) -> ComplementMetric:
        """Compute G = I − hhᵀ with h = √λ s/√(1 + λ|s|²)."""
        points = as_points(points, dim=self.dim).tensor
        sigma = as_bandwidth(bandwidth, points)
        scaled = self.strength**0.5 * (self._denoiser(points, sigma) - points) / sigma.unsqueeze(-1)
        return ComplementMetric((scaled / (1 + scaled.square().sum(-1, keepdim=True)).sqrt()).unsqueeze(-2))

    def denoise(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute the denoiser's E[X | Y=y]."""
        points = as_points(points, dim=self.dim).tensor
        return self._denoiser(points, as_bandwidth(bandwidth, points))

    def score(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute s = (m − y)/σ² = ∇ log p_σ(y), Tweedie's formula."""
        points = as_points(points, dim=self.dim).tensor
        sigma = as_bandwidth(bandwidth, points)
        return (self._denoiser(points, sigma) - points) / sigma.square().unsqueeze(-1)
