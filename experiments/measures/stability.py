"""How far features of an image move when it moves along a metric, and along which of two less [RMM, Sec. 5.2]."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from jaxtyping import Bool, Float
from scipy.stats import t as student
from torch import Tensor

from carre.boundary import as_bandwidth, as_images, as_points, is_integer
from carre.fields import Bandwidth, MetricField

Features = Callable[[Tensor], Tensor]
"""From a batch of images, in the units of the geometry, to a batch of feature vectors."""


@dataclass(frozen=True, eq=False)
class Stability:
    """How far features moved: ‖Φ(x + v) − Φ(x)‖ for every radius ‖v‖, every image x and every draw of v.

    Attributes:
        radii: The lengths ‖v‖ of the perturbations.
        shifts: How far the features moved, on the CPU.
        images: A fingerprint of every image, so that two results can be paired image by image.

    Example:
        >>> stability = Stability((1.0, 2.0), torch.tensor([[[1.0, 3.0]], [[4.0, 4.0]]]), ("x",))
        >>> stability.mean, stability.deviation
        (tensor([2., 4.]), tensor([1., 0.]))
    """

    radii: tuple[float, ...]
    shifts: Float[Tensor, "radii images draws"]
    images: tuple[str, ...]

    @property
    def mean(self) -> Float[Tensor, " radii"]:
        """The mean over images and draws, the quality of a metric: less is better."""
        return self.shifts.mean((1, 2))

    @property
    def deviation(self) -> Float[Tensor, " radii"]:
        """The standard deviation over images and draws, as the bars in the paper's figure."""
        return self.shifts.std((1, 2), correction=0)

    @property
    def of_images(self) -> Float[Tensor, "radii images"]:
        """The mean over the draws at each image, which are the independent cases."""
        return self.shifts.mean(2)


def feature_stability(
    field: MetricField,
    images: Any,
    features: Features,
    radii: Sequence[float],
    n_draws: int = 8,
    *,
    bandwidth: Bandwidth,
    seed: int = 0,
    batch_size: int = 64,
    progress: Callable[[float], None] | None = None,
) -> Stability:
    """Perturb images along a metric and measure how far their features move.

    At each image x, vectors v ~ N(0, G_x) are drawn and brought to every radius: only directions count, so that a
    metric of low rank has no advantage in size. Where nothing is known of the true geometry, a metric is the better the
    less ‖Φ(x + v) − Φ(x)‖ is: features of content barely change along the data. Each draw serves all radii. Nothing is
    clipped: x + v may leave the range of pixels.

    Args:
        field: Where the metric comes from.
        images: Images of shape (n, channels, height, width), or points of shape (n, dim), in the units of the field.
        features: Φ, any function from a batch shaped like the images to one feature vector for each, such as
            `inception_features` or `wavelet_features`.
        radii: The lengths ‖v‖, in the units of the images.
        n_draws: Draws of v at each image.
        bandwidth: σ of the metric, one for all images or one for each.
        seed: Seed of the draws.
        batch_size: Images that are worked on at once.
        progress: Told the share that is done.

    Example:
        >>> from carre import IsotropicField
        >>> images = torch.zeros(5, 1, 2, 2)
        >>> stability = feature_stability(IsotropicField(4), images, lambda x: 3 * x, [1.0, 2.0], bandwidth=0.1)
        >>> stability.mean.round(decimals=4)
        tensor([3., 6.], dtype=torch.float64)
    """
    given = as_images(images) if getattr(images, "ndim", 2) == 4 else as_points(images, dim=field.dim, name="images")
    points, shape = given.tensor, given.tensor.shape[1:] if given.sample_shape is None else given.sample_shape
    if points.shape[1] != field.dim:
        raise ValueError(f"images must have {field.dim} values each, like the field; got shape {tuple(images.shape)}")
    lengths = _checked_radii(radii)
    for name, value in (("n_draws", n_draws), ("batch_size", batch_size)):
        if not is_integer(value) or value < 1:
            raise ValueError(f"{name} must be a positive integer; got {value!r}")
    if not is_integer(seed) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number between 0 and 2⁶³ − 1; got {seed!r}")
    if not callable(features):
        raise ValueError(f"features must be a function of images, such as wavelet_features makes; got {features!r}")
    generator = torch.Generator(points.device).manual_seed(int(seed))
    sigmas = as_bandwidth(bandwidth, points)
    pairs = list(zip(torch.split(points, batch_size), torch.split(sigmas, batch_size), strict=True))
    parts = []
    for done, (x, sigma) in enumerate(pairs, start=1):
        with torch.no_grad():
            directions = _directions(field, x, sigma, n_draws, generator)
            parts.append(_shifts(_Checked(features, tuple(shape)), x, directions, lengths, batch_size))
        if progress is not None:
            progress(done / len(pairs))
    return Stability(lengths, torch.cat(parts, 1), fingerprints(points))


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
        >>> from carre import IsotropicField
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


def fingerprints(points: Float[Tensor, "n dim"]) -> tuple[str, ...]:
    """Name every point by its values; equal ones are numbered, so that each is paired with one."""
    rows = points.detach().cpu().contiguous().numpy()
    digests = [hashlib.sha1(row.tobytes(), usedforsecurity=False).hexdigest()[:16] for row in rows]
    seen: Counter[str] = Counter()
    names = []
    for digest in digests:
        names.append(f"{digest}.{seen[digest]}" if seen[digest] else digest)
        seen[digest] += 1
    return tuple(names)


def _checked_radii(radii: Sequence[float]) -> tuple[float, ...]:
    try:
        lengths = tuple(float(radius) for radius in radii)
    except (TypeError, ValueError):
        lengths = ()
    if not lengths or not all(0 < length < math.inf for length in lengths):
        raise ValueError(f"radii must be positive lengths, at least one; got {radii}. Give a list like [1.0, 2.0]")
    return lengths


def _directions(
    field: MetricField, points: Tensor, sigma: Tensor, n_draws: int, generator: torch.Generator
) -> Float[Tensor, "draws n dim"]:
    """Draw v ~ N(0, G) and bring it to length 1."""
    draws: Tensor = field.metric(points, sigma).sample(n_draws, generator=generator)
    lengths: Tensor = draws.norm(dim=-1, keepdim=True)
    if not bool(((lengths > 0) & torch.isfinite(lengths)).all()):
        raise ValueError(
            "field must have a direction at every image; its metric is zero or not finite at some. "
            "Ask at a larger bandwidth"
        )
    return draws / lengths


class _Checked:
    """Features of flat points: shows them as images, and checks the answer."""

    def __init__(self, features: Features, shape: tuple[int, ...]) -> None:
        self.features, self.shape = features, shape

    def __call__(self, points: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        answer = self.features(points.reshape(-1, *self.shape))
        if not isinstance(answer, Tensor) or answer.ndim < 2 or len(answer) != len(points):
            got = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise ValueError(f"features must return a tensor of shape ({len(points)}, k) for as many images; got {got}")
        if not bool(torch.isfinite(answer).all()):
            raise ValueError("features must be finite; they are NaN or infinite at some images. Check their scale")
        return answer.flatten(1)


def _shifts(
    features: _Checked, points: Tensor, directions: Float[Tensor, "draws n dim"], radii: tuple[float, ...], batch: int
) -> Float[Tensor, "radii n draws"]:
    """Measure ‖Φ(x + v) − Φ(x)‖ at every radius along every direction."""
    origin = features(points)
    shifts = torch.empty(len(radii), len(points), len(directions), dtype=torch.float64)
    for i, radius in enumerate(radii):
        moved = (points + radius * directions).flatten(0, 1)
        answers = torch.cat([features(part) for part in torch.split(moved, batch)])
        distances = (answers.reshape(len(directions), len(points), -1) - origin).double().norm(dim=-1)
        shifts[i] = distances.mT.cpu()
    return shifts


def _half_width(values: Float[Tensor, "k n"], level: float) -> Float[Tensor, " k"]:
    """Compute Student's half width of the confidence interval of the mean of each row."""
    n = values.shape[1]
    half_width: Tensor = values.std(1) * float(student.ppf((1 + level) / 2, n - 1)) / n**0.5
    return half_width
