"""The methods that are compared, all on one denoiser."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from carre.fields import Bandwidth, IsotropicField, MetricField, ScoreField, SteinField
from carre.metric import Metric
from experiments.measures.speed import wait
from experiments.stability.settings import StabilitySettings

OURS, UNCENTERED = "metric matching", "metric matching, uncentered"
RANDOM, STEIN = "random directions", "Stein score"
FULL, RANDOMIZED = "score Jacobian, full", "score Jacobian, randomized"
# Beyond so many pixels the full Jacobian is left out.
_LARGEST_FULL = 4096


@dataclass(frozen=True, eq=False)
class Method:
    """A metric with its settings to search, and how much of the images it can afford.

    Attributes:
        name: What to call it.
        make: Makes the field, given the settings other than σ by name.
        grids: The values to try of σ (``bandwidth``) and of other settings; none where nothing depends on any.
        n_validation: Images that settings are searched on.
        n_images: Test images.
        batch_size: Images at once.
    """

    name: str
    make: Callable[..., MetricField]
    grids: Mapping[str, tuple[float, ...]]
    n_validation: int
    n_images: int
    batch_size: int

    def settings(self) -> Iterator[dict[str, float]]:
        """Go through all combinations of the grids."""
        for values in itertools.product(*self.grids.values()):
            yield dict(zip(self.grids, values, strict=True))


def methods_on(
    own: MetricField,
    settings: StabilitySettings,
    uncentered: MetricField | None = None,
    extra: Mapping[str, MetricField] | None = None,
) -> list[Method]:
    """List the methods: random directions first, by which others are judged, then ours, then its rivals."""
    usual: dict[str, Any] = {
        "n_validation": settings.n_validation,
        "n_images": settings.n_images,
        "batch_size": settings.batch_size,
    }
    few: dict[str, Any] = {
        "n_validation": min(settings.n_full_validation, settings.n_validation),
        "n_images": min(settings.n_full, settings.n_images),
        "batch_size": settings.full_batch_size,
    }
    scales = {"bandwidth": settings.bandwidths}
    rank = min(settings.rank, own.dim)
    methods = [
        Method(RANDOM, lambda: IsotropicField(own.dim, own), {}, **usual),
        Method(OURS, lambda: own, scales, **usual),
        Method(
            STEIN,
            lambda strength: SteinField(own, strength=strength),
            scales | {"strength": settings.strengths},
            **usual,
        ),
        Method(RANDOMIZED, lambda: ScoreField(own, rank=rank), scales, **usual),
    ]
    if uncentered is not None:
        methods.append(Method(UNCENTERED, lambda: uncentered, scales, **usual))
    methods += [Method(name, lambda given=given: given, {}, **usual) for name, given in (extra or {}).items()]
    if own.dim <= _LARGEST_FULL:
        methods.append(Method(FULL, lambda: ScoreField(own), scales, **few))
    return methods


@dataclass(eq=False)
class Timed:
    """A field that notes how long each call of its metric takes, per point.

    Attributes:
        inner: The field.
        seconds: Seconds per point, call by call.
    """

    inner: MetricField
    seconds: list[float] = field(default_factory=list)

    @property
    def dim(self) -> int:
        """The ambient dimension."""
        return self.inner.dim

    def metric(self, points: Float[Tensor, "n dim"], bandwidth: Bandwidth) -> Metric:
        """Compute the metric, from an idle device to an idle device."""
        wait(points.device)
        start = time.perf_counter()
        metric = self.inner.metric(points, bandwidth)
        wait(points.device)
        self.seconds.append((time.perf_counter() - start) / len(points))
        return metric

    def denoise(self, points: Float[Tensor, "n dim"], bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Denoise, untimed."""
        return self.inner.denoise(points, bandwidth)
