"""The narrow waist of the library."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from carre.metric import LowRankMetric

Bandwidth: TypeAlias = float | Tensor
"""σ, a standard deviation in the units of the data: one number, or one per point."""


class NoDenoiserError(ValueError):
    """A field was asked to denoise, and has no denoiser.

    Example:
        >>> import torch
        >>> from carre.fields import NeuralField
        >>> from carre.metric import AffineFrame
        >>> from carre.networks import build_model
        >>> model = build_model(2, 1, width=4, n_blocks=1, spread=1.0, with_mean=False)
        >>> field = NeuralField(model, AffineFrame(torch.zeros(2), 1.0))
        >>> try:
        ...     field.denoise(torch.zeros(1, 2), 0.1)
        ... except NoDenoiserError as error:
        ...     print(error)
        this field was trained uncentered and has no denoiser; fit with method='joint'
    """


@runtime_checkable
class MetricField(Protocol):
    """Anything that gives a metric at every point and every scale.

    The toolkit, the evaluation and the report know nothing else of a field. Fields take tensors,
    return tensors of the same dtype on the same device, are differentiable where their source is,
    and have no side effects.

    Example:
        >>> import torch
        >>> from carre.toolkit import gradient, local_dimension
        >>> class Plane:
        ...     dim = 3
        ...     def metric(self, points, bandwidth):
        ...         return LowRankMetric(torch.eye(3)[:2].expand(len(points), 2, 3))
        ...     def denoise(self, points, bandwidth):
        ...         return points * torch.tensor([1.0, 1.0, 0.0])
        >>> isinstance(Plane(), MetricField)
        True
        >>> local_dimension(Plane(), torch.zeros(1, 3), 0.1)
        tensor([2])
        >>> gradient(Plane(), lambda x: x.sum(1), torch.zeros(1, 3), 0.1)
        tensor([[1., 1., 0.]])
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
