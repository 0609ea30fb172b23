"""The metric that knows nothing of the data: all directions are free."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points, is_integer
from carre.fields.denoisers import Denoiser
from carre.fields.protocol import Bandwidth, NoDenoiserError
from carre.metric import ComplementMetric


class IsotropicField:
    """The Euclidean metric G = I at every point and every scale, the baseline of random directions [RMM, Sec. 5.2].

    The metric is a `ComplementMetric` from which nothing is removed: it holds D numbers for each point, never D².

    Args:
        dim: The ambient dimension D.
        denoiser: ``(points, bandwidth) ↦ E[X | Y=y]``, a function of (n, dim) points and (n,) bandwidths; or a
            module, which is copied; or a field, whose denoiser is taken. None for a field that cannot denoise.

    Example:
        >>> import torch
        >>> field = IsotropicField(3)
        >>> field
        IsotropicField(dim=3)
        >>> field.metric(torch.zeros(1, 3), 0.1).eigenvalues()
        tensor([[1., 1., 1.]])
    """

    def __init__(self, dim: int, denoiser: object = None) -> None:
        if not is_integer(dim) or dim < 1:
            raise ValueError(f"dim must be the number of coordinates of a point, at least 1; got {dim!r}")
        self.dim: int = int(dim)
        self._denoiser = None if denoiser is None else Denoiser(denoiser, self.dim)

    def __repr__(self) -> str:
        return f"IsotropicField(dim={self.dim})"

    def metric(self, points: Tensor, bandwidth: Bandwidth) -> ComplementMetric:
        """Return the identity, which depends on neither the points nor σ."""
        points = as_points(points, dim=self.dim).tensor
        as_bandwidth(bandwidth, points)
        # A product, so that derivatives in the points exist: they are zero.
        return ComplementMetric((0 * points).unsqueeze(-2))

    def denoise(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute the denoiser's E[X | Y=y]."""
        points = as_points(points, dim=self.dim).tensor
        sigma = as_bandwidth(bandwidth, points)
        if self._denoiser is None:
            raise NoDenoiserError(
                "this field has no denoiser; give it one with IsotropicField(dim, denoiser), such as a fitted field"
            )
        return self._denoiser(points, sigma)
