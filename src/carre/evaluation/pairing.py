"""Which of two metrics keeps features more stable, image by image."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.evaluation.stability import Stability


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """How much less one metric moves features than another, on the same images and at the same radii.

    Attributes:
        radii: The lengths of the perturbations.
        difference: The mean over the images of the first shift minus the second; negative where the first is better.
        low: The lower ends of the confidence intervals of the difference.
        high: Their upper ends.
        ratio: The mean of the first over the mean of the second.
        share: The share of the images at which the first moved less.
        level: The probability with which the intervals of all radii hold together.
        n_images: How many images both have in common.

    Example:
        >>> first = Stability((1.0,), torch.tensor([[[1.0], [2.0], [3.0]]]), ("a", "b", "c"))
        >>> second = Stability((1.0,), torch.tensor([[[2.1], [3.0], [3.9]]]), ("a", "b", "c"))
        >>> compared = compare_stability(first, second)
        >>> compared.difference.round(decimals=3), compared.wins, compared.loses
        (tensor([-1.]), tensor([True]), tensor([False]))
    """

    radii: tuple[float, ...]
    difference: Float[Tensor, " radii"]
    low: Float[Tensor, " radii"]
    high: Float[Tensor, " radii"]
    ratio: Float[Tensor, " radii"]
    share: Float[Tensor, " radii"]
    level: float
    n_images: int

    @property
    def wins(self) -> Bool[Tensor, " radii"]:
        """Where the whole interval lies below zero: there the first is better beyond chance."""
        return self.high < 0

    @property
    def loses(self) -> Bool[Tensor, " radii"]:
        """Where the whole interval lies above zero: there the second is better beyond chance."""
        return self.low > 0


def compare_stability(first: Stability, second: Stability, *, level: float = 0.95) -> PairedDifference:
    """Compare two metrics by their differences at each image.

    Draws are averaged first: images are the independent cases. The intervals are Student's, widened by Bonferroni's
    rule so that those of all radii hold together. Images that only one of the two has seen are left out.

    Args:
        first: What `feature_stability` found for one field.
        second: The same for another field, at the same radii and on some of the same images.
        level: The probability with which all intervals hold together.

    Example:
        >>> import torch
        >>> from carre import IsotropicField
        >>> from carre.evaluation import feature_stability
        >>> images = torch.randn(10, 1, 2, 2, generator=torch.Generator().manual_seed(0))
        >>> def measure(gain): return feature_stability(
        ...     IsotropicField(4), images, lambda x: gain * x, [1.0], bandwidth=0.1)
        >>> compare_stability(measure(1.0), measure(2.0)).ratio.round(decimals=3)
        tensor([0.5000], dtype=torch.float64)
    """
    if first.radii != second.radii:
        raise ValueError(f"second must have the radii of first, {list(first.radii)}; got {list(second.radii)}")
    if not isinstance(level, Real) or not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1; got {level!r}")
    places = {name: place for place, name in enumerate(second.images)}
    common = [(i, places[name]) for i, name in enumerate(first.images) if name in places]
    if len(common) < 2:
        raise ValueError(
            f"second must have seen at least 2 of the images of first; it has seen {len(common)}. Measure both on the "
            "same images"
        )
    mine, theirs = (torch.tensor(side) for side in zip(*common, strict=True))
    ours, others = first.of_images[:, mine], second.of_images[:, theirs]
    differences = ours - others
    mean, half_width = differences.mean(1), _half_width(differences, 1 - (1 - level) / len(first.radii))
    return PairedDifference(
        radii=first.radii,
        difference=mean,
        low=mean - half_width,
        high=mean + half_width,
        ratio=ours.mean(1) / others.mean(1),
        share=(differences < 0).to(differences.dtype).mean(1),
        level=level,
        n_images=len(common),
    )


def _half_width(values: Float[Tensor, "k n"], level: float) -> Float[Tensor, " k"]:
    """Compute Student's half width of the confidence interval of the mean of each row."""
    from scipy.stats import t  # noqa: PLC0415

    n = values.shape[1]
    half_width: Tensor = values.std(1) * float(t.ppf((1 + level) / 2, n - 1)) / n**0.5
    return half_width
