"""The narrow waist of the library: what a field is, and how it is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend.memory import check_room_for_all
from carre.boundary import Points, as_bandwidth, as_points, checked_answer
from carre.metric import Metric

Bandwidth: TypeAlias = int | float | np.ndarray | Tensor
"""σ, a standard deviation in the units of the data: one number, or one per point."""


class NoDenoiserError(ValueError):
    """A field was asked to denoise, and has no denoiser.

    Example:
        >>> from carre.fields import IsotropicField
        >>> try:
        ...     IsotropicField(2).denoise([[0.0, 0.0]], 0.1)
        ... except NoDenoiserError as error:
        ...     print(error)
        this field has no denoiser; give it one with IsotropicField(dim, denoiser), such as a fitted field
    """


@runtime_checkable
class MetricField(Protocol):
    """Anything that gives a metric at every point and every scale.

    The toolkit, the evaluation and the report know nothing else of a field. Fields take tensors,
    return tensors of the same dtype on the same device, are differentiable where their source is,
    and have no side effects.

    Example:
        >>> import torch
        >>> from carre.metric import LowRankMetric
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

    def metric(self, points: Tensor, bandwidth: Bandwidth) -> Metric:
        """Compute G = Cov[X | Y=y]/σ², which tends to the tangent projector as σ → 0."""
        ...

    def denoise(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute E[X | Y=y]: the pull back onto the data. Raises `NoDenoiserError` where a field has none."""
        ...


class Field(ABC):
    """A field of this library: its public calls check points and σ, its inner ones trust them.

    A subclass says what `_metric` and `_denoise` are, of points (n, dim) and σ (n,) that have been checked. Whoever has
    checked them already asks the `trusted` field.

    Example:
        >>> from carre.metric import LowRankMetric
        >>> class Line(Field):
        ...     dim = 2
        ...     def _metric(self, points, bandwidth):
        ...         return LowRankMetric(points.new_tensor([[1.0, 0.0]]).expand(len(points), 1, 2))
        ...     def _denoise(self, points, bandwidth):
        ...         return points * points.new_tensor([1.0, 0.0])
        >>> Line().denoise([[1.0, 2.0]], 0.1), Line().metric([[1.0, 2.0]], 0.1).trace()
        (tensor([[1., 0.]], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """

    dim: int

    def metric(self, points: Any, bandwidth: Bandwidth) -> Metric:
        """Compute G at points, shape (n, dim), at a σ for all or one for each."""
        return metric_in_parts(self, *self._checked(points, bandwidth))

    def denoise(self, points: Any, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute E[X | Y=y] at points, shape (n, dim), at a σ for all or one for each."""
        return denoised_in_parts(self, *self._checked(points, bandwidth))

    def points_at_once(self, points: Float[Tensor, "n dim"]) -> int | None:
        """Return how many points to ask the inner calls for at once; None for any number."""
        return None

    @abstractmethod
    def _metric(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Metric: ...

    @abstractmethod
    def _denoise(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]: ...

    def _checked(self, points: Any, bandwidth: Bandwidth) -> tuple[Float[Tensor, "n dim"], Float[Tensor, " n"]]:
        tensor = as_points(points, dim=self.dim).tensor
        return tensor, as_bandwidth(bandwidth, tensor)


@dataclass(eq=False)
class _Trusted:
    """A field of ours without its checks."""

    field: Field

    @property
    def dim(self) -> int:
        return self.field.dim

    @property
    def noise(self) -> float:
        return getattr(self.field, "noise", 0.0)

    def metric(self, points: Tensor, bandwidth: Bandwidth) -> Metric:
        return self.field._metric(points, _per_point(bandwidth, points))

    def denoise(self, points: Tensor, bandwidth: Bandwidth) -> Tensor:
        return self.field._denoise(points, _per_point(bandwidth, points))


def _per_point(bandwidth: Bandwidth, points: Tensor) -> Tensor:
    return bandwidth if isinstance(bandwidth, Tensor) else as_bandwidth(bandwidth, points)


def trusted(field: MetricField) -> MetricField:
    """Return a field that is asked without checks, by those who have made them.

    The field itself, if it is not one of ours or says for itself what its public calls do.

    Example:
        >>> from carre.fields import IsotropicField
        >>> trusted(IsotropicField(2)).metric(torch.zeros(1, 2), 0.1).trace()
        tensor([2.])
    """
    kind = type(field)
    is_ours = isinstance(field, Field) and kind.metric is Field.metric and kind.denoise is Field.denoise
    return _Trusted(field) if is_ours else field  # type: ignore[arg-type]


def metric_in_parts(field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Metric:
    """Compute G at checked points, no more of them at once than the field holds."""
    parts = list[Metric]()
    for y, s in _parts(field, points, bandwidth):
        parts.append(trusted(field).metric(y, s))
        if len(parts) == 1 and len(y) < len(points):
            check_room_for_all([parts[0]._rows], len(y), len(points))
    found = parts[0] if len(parts) == 1 else parts[0].joined(*parts[1:])
    checked_answer(found._rows, "metric", squared=True)
    return found


def denoised_in_parts(
    field: MetricField, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]
) -> Float[Tensor, "n dim"]:
    """Compute E[X | Y=y] at checked points, no more of them at once than the field holds."""
    parts = [trusted(field).denoise(y, s) for y, s in _parts(field, points, bandwidth)]
    return checked_answer(parts[0] if len(parts) == 1 else torch.cat(parts), "mean")


def _parts(field: MetricField, points: Tensor, bandwidth: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
    most = field.points_at_once(points) if isinstance(field, Field) and len(points) > 1 else None
    if most is None or len(points) <= most:
        return [(points, bandwidth)]
    return zip(torch.split(points, most), torch.split(bandwidth, most), strict=True)


class DataField(ABC):
    """A field that knows the data it belongs to: how their points are given, where it computes, and at which scale.

    `carre.Geometry` is one. What asks a field at points (`carre.toolkit`) takes its defaults from here.

    Attributes:
        field: The field itself, of flat tensors.
        bandwidth: The default σ.
        bandwidth_range: The σ at which the field is known.
        device: Where the field computes.
        verbose: Whether long work draws a progress bar.

    Example:
        >>> import carre
        >>> samples = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
        >>> square = carre.Geometry(carre.KernelField(samples), 0.1, (0.05, 0.5), landmarks=samples, rank=2)
        >>> square.accept([[1.0, 2.0]]).tensor, square.scale_at(None, samples[:2])
        (tensor([[1., 2.]], dtype=torch.float64), tensor([0.1000, 0.1000]))
        >>> len(square.samples()), type(square.sample_graph(0.1)).__name__
        (50, 'SampleGraph')
    """

    field: MetricField
    bandwidth: float
    bandwidth_range: tuple[float, float]
    device: torch.device
    verbose: bool

    @abstractmethod
    def accept(self, points: Any, *, name: str = "points", single: bool = False) -> Points:
        """Check points as people give them: arrays, tensors, tables, images; if asked, one of them for a batch."""

    @abstractmethod
    def scale_at(self, bandwidth: Any, points: Float[Tensor, "n dim"]) -> Float[Tensor, " n"]:
        """Return σ at every point: the one given, or the default."""

    @abstractmethod
    def sample_graph(self, bandwidth: float) -> Any:
        """Return a graph of samples between which paths find their way; None where no samples are known."""

    @abstractmethod
    def samples(self) -> Tensor | None:
        """Return samples of the data where the field computes, if some are known."""
