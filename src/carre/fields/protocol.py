"""The narrow waist of the library."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from carre.geometry import LowRankMetric

Bandwidth: TypeAlias = float | Tensor
"""σ, a standard deviation in the units of the data: one number, or one per point."""


class NoDenoiserError(ValueError):
    """A field was asked to denoise, and has no denoiser."""


@runtime_checkable
class MetricField(Protocol):
    """Anything that gives a metric at every point and every scale.

    The toolkit, the evaluation and the report know nothing else of a field. Fields take tensors,
    return tensors of the same dtype on the same device, are differentiable where their source is,
    and have no side effects.
    """

    @property
    def dim(self) -> int:
        """The ambient dimension D."""
        ...

    def metric(self, points: Tensor, bandwidth: Bandwidth) -> LowRankMetric:
        """Compute G = Cov[X | Y=y]/σ², which tends to the tangent projector as σ → 0."""
        ...

    def denoise(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute E[X | Y=y]: the pull back onto the data. Raises `NoDenoiserError` where a field has none."""
        ...
