"""What the comparison is told."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carre.boundary import is_integer

_COUNTS = {
    "n_validation": 2,
    "n_validation_draws": 1,
    "n_images": 2,
    "n_draws": 1,
    "rank": 1,
    "n_full_validation": 2,
    "n_full": 2,
    "batch_size": 1,
    "full_batch_size": 1,
    "seed": 0,
}


@dataclass(frozen=True)
class StabilitySettings:
    """Images, perturbations and the grids of every method.

    Every method has its settings searched on the same validation images and is then measured on the same test images,
    with the same seed of the draws. σ and the radii are in the units of the images, as the geometry was fitted on them.

    Attributes:
        radii: Lengths ‖v‖ of the perturbations.
        bandwidths: The grid of σ.
        strengths: The grid of λ/σ² of the Stein-score metric.
        rank: Of the randomized Jacobian.
        n_validation: Images that settings are searched on.
        n_validation_draws: Draws at each of them.
        n_images: Test images.
        n_draws: Draws at each of them.
        n_full_validation: Validation images for the full Jacobian, which costs as many products as there are pixels.
        n_full: Test images for it.
        batch_size: Images that are worked on at once.
        full_batch_size: The same for the full Jacobian, which holds a D×D matrix for each.
        level: The probability with which the intervals of all radii of a comparison hold together.
        seed: Of the draws.

    Example:
        >>> from dataclasses import replace
        >>> from experiments.stability.settings import MNIST_STABILITY
        >>> replace(MNIST_STABILITY, n_images=100).n_images
        100
    """

    radii: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    bandwidths: tuple[float, ...] = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
    strengths: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    rank: int = 100
    n_validation: int = 128
    n_validation_draws: int = 4
    n_images: int = 1000
    n_draws: int = 8
    n_full_validation: int = 64
    n_full: int = 256
    batch_size: int = 64
    full_batch_size: int = 8
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("radii", "bandwidths", "strengths"):
            values = _numbers(getattr(self, name))
            if not values or len(set(values)) < len(values) or not all(0 < value < math.inf for value in values):
                raise ValueError(f"{name} must be different positive numbers, at least one; got {getattr(self, name)}")
            object.__setattr__(self, name, values)
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if not is_integer(value) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
        if not isinstance(self.level, (int, float)) or not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1; got {self.level!r}")

    def within(self, low: float, high: float) -> StabilitySettings:
        """Leave out the σ that a model was not trained on.

        Example:
            >>> StabilitySettings(bandwidths=(0.1, 1.0, 10.0)).within(0.5, 20.0).bandwidths
            (1.0, 10.0)
        """
        inside = tuple(sigma for sigma in self.bandwidths if low <= sigma <= high)
        if not inside:
            raise ValueError(
                f"bandwidths must have some within {low:g} to {high:g}, the σ that the model was trained on; "
                f"got {', '.join(f'{sigma:g}' for sigma in self.bandwidths)}"
            )
        return dataclasses.replace(self, bandwidths=inside)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings in terms that JSON knows.

        Example:
            >>> StabilitySettings(radii=(1.0, 3.0)).to_dict()["radii"]
            [1.0, 3.0]
        """
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _numbers(values: Sequence[float]) -> tuple[float, ...]:
    """Turn numbers into a tuple; what is none into an empty one."""
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        return ()


MNIST_STABILITY = StabilitySettings(
    radii=(0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    bandwidths=(0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0),
    strengths=(1.0, 1000.0),
    n_validation=64,
    n_validation_draws=3,
    n_images=400,
    n_draws=4,
    n_full_validation=16,
    n_full=128,
    batch_size=128,
    full_batch_size=16,
)
"""For MNIST, whose normalized digits have a norm of 28 (root mean square)."""

CIFAR10_STABILITY = StabilitySettings(
    radii=(0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    bandwidths=(0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    strengths=(1.0, 1000.0),
    n_validation=30,
    n_validation_draws=3,
    n_images=200,
    n_draws=4,
    n_full_validation=4,
    n_full=24,
    batch_size=128,
    full_batch_size=4,
)
"""For CIFAR-10 with pixels in [−1, 1], where the norm is about as large."""

QUICK_STABILITY = StabilitySettings(
    radii=(1.0, 2.0, 4.0),
    bandwidths=(0.5, 1.0, 2.0),
    strengths=(1.0, 100.0),
    rank=6,
    n_validation=32,
    n_validation_draws=2,
    n_images=64,
    n_draws=4,
    n_full_validation=8,
    n_full=16,
)
"""For the synthetic images of `draw_blobs`, on any machine."""
