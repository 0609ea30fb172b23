"""Can a geometry be relied on: at a point, and on held-out samples?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carre.backend import Progress
from carre.fields import Bandwidth, DataField, KernelField, MetricField, NeuralField, trusted
from carre.fields.neural import observed_scale
from carre.matching import perturb, predictive_loss
from carre.metric import LowRankMetric, Metric
from carre.neighbors import build_index
from carre.sketch import card
from carre.toolkit.landing import noise_reach, walked_distance
from carre.toolkit.question import Question, accepted, ask, bare, samples_of

# At distance t from data of curvature κ an eigenvalue is 1/(1 − tκ) [THEORY §1]: 1.5 a third of the way to the center
# of curvature. Between two parts of the data it is larger.
_LARGEST_EIGENVALUE = 1.5
# Halfway between normal and tangent, to count dimensions. Derivatives take directions from ⅓ on, to keep those across
# an edge; at an edge the dimension is not clear, and is said not to be.
_COUNTED_ABOVE = 0.5
_CLEAR_GAP = 0.4
# A learned metric may differ from a kernel's by this much, and by three times the error of sampling: a direction that
# one of them lacks makes 1.
_DISAGREEMENT, _SAMPLING_ERRORS = 0.4, 3.0
_FEWEST_NEIGHBORS = 20
# Up to this many samples a kernel sums over all, beyond over its nearest.
_SUMMED = 2048
_LEAST_TRUNCATION = 0.9
_N_SPACINGS, _N_DISTANCES = 1024, 256
_RARE, _SPARSE = 0.99, 2.0


@dataclass(frozen=True, eq=False)
class Validity:
    """What speaks for and against the geometry at each point. Arrays or tensors of shape (n,), as the points were.

    Attributes:
        bandwidth: σ.
        distance: How far the point is from the data; infinity where the field's answer is not finite.
        reach: How far noise of deviation σ would carry it, or that of the samples if it is more.
        dimension: The number of eigenvalues above ½.
        largest_eigenvalue: The largest eigenvalue of G, near 1 on the data.
        gap: The largest drop between consecutive eigenvalues, clipped to [0, 1].
        disagreement: ‖G − G of a kernel‖ (Frobenius), NaN where a kernel has too few samples to tell; None without
            samples.
        expected_disagreement: The most that sampling explains; None without samples.
        nearest: The distance to the nearest sample; None without samples.
        expected_nearest: The most that is usual among samples, with noise; None without samples.
        reasons: A sentence on each point that is not valid, empty where it is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> found = check(ExactField(Sphere(2)), [[0.0, 0.0, 1.0], [0.0, 0.0, 1.5]], 0.05)
        >>> found.near_data, found.clear_spectrum
        (array([ True, False]), array([ True,  True]))
    """

    bandwidth: Any
    distance: Any
    reach: Any
    dimension: Any
    largest_eigenvalue: Any
    gap: Any
    disagreement: Any
    expected_disagreement: Any
    nearest: Any
    expected_nearest: Any
    reasons: tuple[str, ...]

    @property
    def relative_distance(self) -> Any:
        """The distance from the data in units of σ."""
        return self.distance / self.bandwidth

    @property
    def near_data(self) -> Any:
        """Whether a point is no farther from the data than noise would carry it, and from their samples."""
        near = self.distance <= self.reach
        return near if self.nearest is None else near & (self.nearest <= self.expected_nearest)

    @property
    def clear_spectrum(self) -> Any:
        """Whether eigenvalues are in range, and fall into tangent and normal ones."""
        in_range = (self.dimension > 0) & (self.largest_eigenvalue <= _LARGEST_EIGENVALUE)
        return in_range & (self.gap >= _CLEAR_GAP)

    @property
    def agrees(self) -> Any:
        """Whether a kernel on the samples agrees, or cannot tell."""
        if self.disagreement is None:
            return self.distance == self.distance
        # NaN, where it cannot tell, is above all numbers for polars, infinity too, and above none for others.
        return ~((self.disagreement > self.expected_disagreement) & (self.disagreement <= math.inf))

    @property
    def valid(self) -> Any:
        """Whether nothing speaks against a point."""
        return self.near_data & self.clear_spectrum & self.agrees

    def summary(self) -> str:
        """Say in a few lines how many points are valid, and what is wrong with the others."""
        n, n_valid = len(self.reasons), int(self.valid.sum())
        counts = {
            "far from the data": int((~self.near_data).sum()),
            "without a clear spectrum": int((~self.clear_spectrum).sum()),
            "where a kernel on the samples disagrees": int((~self.agrees).sum()),
        }
        wrong = [f"  {count} {what}" for what, count in counts.items() if count]
        return "\n".join([f"The geometry is valid at {n_valid} of {n} points.", *wrong])

    def __repr__(self) -> str:
        return f"Validity({int(self.valid.sum())} of {len(self.reasons)} points valid)"

    def _repr_html_(self) -> str:
        told = [reason for reason in self.reasons if reason][:3]
        title, *counts = self.summary().splitlines()
        return card(title, {line.split()[0]: line.split(maxsplit=1)[1] for line in counts}, doubts=told)


def check(
    field: MetricField | DataField,
    points: Any,
    bandwidth: Bandwidth | None = None,
    *,
    samples: Any = None,
    progress: Progress | None = None,
) -> Validity:
    """Check whether a field's geometry is valid at points, before relying on it there.

    Three questions. Is the point as near to the data as noise of deviation σ would leave it, σ(√(D−d) + 3)? Are its
    eigenvalues in range, with a gap between tangent and normal ones? And given samples: are there as many nearby as
    usual, and does the metric agree with the classical estimate from them, as far as sampling allows
    [THEORY §4.5]? Far from the data a network's answers may look right; how many steps of its denoiser lead back tells.

    Args:
        field: The field; its denoiser is needed.
        points: Points, shape (n, D).
        bandwidth: σ, one number or one per point; None for the default of a geometry.
        samples: Samples of the data, shape (n_s, D), to compare with; None for those that a geometry knows.
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> found = check(ExactField(Sphere(2)), [[0.0, 0.0, 1.0], [0.0, 0.0, 1.5]], 0.05)
        >>> found.valid
        array([ True, False])
        >>> found.reasons[1]
        'the data are 10.0σ away, farther than noise would carry a point (4.0σ)'
    """
    question = ask(field, points, bandwidth, task="check").detached()
    with torch.no_grad():
        known = samples_of(field) if samples is None else accepted(field, samples, name="samples").tensor
        judge = None if known is None else _Samples(question, known.detach().to(question.points))
        asked = bare(question.asked)
        hull_dim = asked.frame.hull_dim if isinstance(asked, NeuralField) else 0

        def part(y: Tensor, s: Tensor) -> tuple[Tensor, ...]:
            metric, is_known = question.field.metric(y, s).cleaned()
            distance = walked_distance(question.field, y, s)
            # Where the field's answer is NaN or infinite, the data are infinitely far, and nothing is tangent.
            is_known = is_known & torch.isfinite(distance)
            distance = torch.where(is_known, distance, torch.inf)
            eigenvalues = torch.where(is_known[:, None], metric.eigenvalues(), 0.0)
            dimension = (eigenvalues > _COUNTED_ABOVE).sum(-1)
            clipped = torch.nn.functional.pad(eigenvalues.clamp(0, 1), (0, 1))
            drops = clipped[:, :-1] - clipped[:, 1:]
            # What lies beyond the rank of a network is unknown, not 0.
            drops[:, -1] *= eigenvalues.shape[1] >= hull_dim
            gap = drops.amax(-1)
            reach = noise_reach(s, question.field.dim - dimension)
            reach = reach if judge is None else reach.clamp_min(judge.usual_distance)
            own = (distance, reach, dimension, eigenvalues[:, 0], gap)
            return own if judge is None else (*own, *judge.compare(y, s, metric, is_known, dimension, reach))

        numbers = 64 * question.field.dim + (0 if judge is None else judge.numbers_per_point)
        found = question.compute(part, question.points, question.bandwidth, numbers=numbers, progress=progress)
    names = [column.name for column in fields(Validity) if column.name != "reasons"]
    # Without samples the last columns are unknown.
    columns = dict.fromkeys(names) | dict(zip(names, (question.bandwidth, *found), strict=False))
    reasons = _reasons(Validity(**columns, reasons=()))
    restored = {name: None if column is None else question.given.restore(column) for name, column in columns.items()}
    return Validity(**restored, reasons=reasons)


class _Samples:
    """What samples say about points."""

    def __init__(self, question: Question, samples: Float[Tensor, "n dim"]) -> None:
        field = bare(question.asked)
        self.noise, self.hull_dim = 0.0, field.dim
        self.inside: Callable[[Tensor], Tensor] = lambda points: points
        if isinstance(field, NeuralField) and field.noise > 0:
            self.noise, self.hull_dim = field.noise, field.frame.hull_dim
            self.inside = field.frame.to(samples).project
            samples = self.inside(samples)
        self.index = build_index(samples)
        count = None if len(samples) <= _SUMMED else _SUMMED // 2
        # A point may be one of the samples: counting it would shrink G.
        self.kernel = KernelField(samples, n_neighbors=count, self_neighbor="drop", index=self.index)
        some = samples[:: max(1, len(samples) // _N_SPACINGS)]
        spacings = self.index.search(some, 2).squared_distances[:, 1].sqrt()
        self.spacing = _SPARSE * float(spacings.quantile(_RARE))
        # Samples that are noisier than σ are all far from the data as σ sees them, and right where they are.
        some = samples[:: max(1, len(samples) // _N_DISTANCES)]
        sigma = question.bandwidth.median().expand(len(some))
        distances = question.compute(lambda y, s: walked_distance(question.field, y, s), some, sigma)
        self.usual_distance = float(torch.where(torch.isfinite(distances), distances, 0.0).quantile(_RARE))

    @property
    def numbers_per_point(self) -> int:
        """The kernel's factor, its copy, and the Gram matrices of its rows."""
        n_rows = min(self.kernel.n_neighbors or self.kernel.n_samples, self.kernel.dim)
        return 2 * n_rows * (self.kernel.dim + n_rows)

    def compare(
        self, y: Tensor, sigma: Tensor, metric: Metric, is_known: Tensor, dimension: Tensor, reach: Tensor
    ) -> tuple[Tensor, ...]:
        """Compute the disagreement with a kernel and what is expected, the nearest distance and what is expected."""
        d, y = dimension.clamp_min(1).to(y), self.inside(y)
        nearest = self.index.search(y, 1).squared_distances[:, 0].sqrt().to(y)
        # Squares of the largest distances overflow, to infinity or NaN: such points are infinitely far, and the kernel
        # is asked elsewhere, and not heard.
        nearest = torch.where(torch.isfinite(nearest), nearest, torch.inf)
        is_in_range = torch.isfinite((nearest / sigma).square())
        y = torch.where(is_in_range[:, None], y, self.kernel.samples[:1])
        sigma, stretch = observed_scale(sigma, self.noise)
        other = trusted(self.kernel).metric(y, sigma)
        # Samples with noise show (σ²/s²)G, and ν = 1 − σ²/s² in every direction [THEORY §11].
        share, floor = 1 / stretch, 1 - 1 / stretch
        own = share * metric.squared_norm() - 2 * metric.frobenius_product(other) + 2 * floor * metric.trace()
        square = torch.where(is_known, share * own, 0.0) + other.squared_norm()
        square = square + floor * (floor * self.hull_dim - 2 * other.trace())
        support = self.kernel.effective_neighbors(y, sigma)
        d = share * d + floor * self.hull_dim
        fewest = torch.clamp_min(d * (d + 2), _FEWEST_NEIGHBORS)
        can_tell = is_in_range & (support >= fewest) & (self._truncation(y, sigma, d.round()) >= _LEAST_TRUNCATION)
        disagreement = torch.where(can_tell, stretch * square.clamp_min(0).sqrt(), torch.nan)
        expected = _DISAGREEMENT + _SAMPLING_ERRORS * stretch * (d * (d + 2) / (4 * support)).sqrt()
        return disagreement, expected, nearest, (reach.square() + self.spacing**2).sqrt()

    def _truncation(self, y: Tensor, sigma: Tensor, dimension: Tensor) -> Float[Tensor, " n"]:
        """Compute the kernel's truncation at each point for its own dimension."""
        truncation = torch.empty_like(sigma)
        for d in set(dimension.tolist()):
            own = dimension == d
            truncation[own] = self.kernel.truncation(y[own], sigma[own], d)
        return truncation


def _reasons(found: Validity) -> tuple[str, ...]:
    """Write a sentence for each point."""
    is_finite = torch.isfinite(found.distance)
    sentences: list[list[str]] = [[] for _ in is_finite]

    def complain(applies: Bool[Tensor, " n"], sentence: str, *numbers: Tensor) -> None:
        for i in torch.nonzero(applies)[:, 0].tolist():
            sentences[i].append(sentence.format(*(float(column[i]) for column in numbers)))

    complain(~is_finite, "the field's answer is NaN or infinite: it knows no data near")
    far = "the data are {:.1f}σ away, farther than noise would carry a point ({:.1f}σ)"
    complain(is_finite & (found.distance > found.reach), far, found.relative_distance, found.reach / found.bandwidth)
    complain(is_finite & (found.dimension == 0), "no eigenvalue is above ½: there is no tangent direction")
    between = "the largest eigenvalue is {:.2f}, not near 1: the point lies between parts of the data"
    complain(found.largest_eigenvalue > _LARGEST_EIGENVALUE, between, found.largest_eigenvalue)
    gradual = "eigenvalues fall gradually, by {:.2f} at most, as far as the rank reaches: no clear dimension"
    complain(is_finite & (found.gap < _CLEAR_GAP), gradual, found.gap)
    if found.nearest is not None:
        lonely = "the nearest sample is {:.3g} away, usually at most {:.3g}"
        complain(found.nearest > found.expected_nearest, lonely, found.nearest, found.expected_nearest)
        differs = "the metric differs from a kernel's on the samples by {:.2f}, more than sampling explains ({:.2f})"
        complain(~found.agrees, differs, found.disagreement, found.expected_disagreement)
    return tuple("; ".join(parts) for parts in sentences)


def calibration_error(
    field: MetricField | DataField,
    samples: Any,
    bandwidth: float | None = None,
    *,
    generator: torch.Generator | None = None,
) -> float:
    """Compare the predicted variance along each eigenvector with the variance found there.

    Σ_k |ē_k − λ̄_k| / Σ_k ē_k, where ē_k is the mean of (u_kᵀ(x − m̂(y)))²/σ² over noisy held-out pairs
    and λ̄_k the mean k-th eigenvalue. Below 0.1 is good; 0.3 is the limit for choosing a scale
    [THEORY §4.5]. Blind to errors of m̂ itself: read it next to the gain over a linear denoiser.

    Args:
        field: The field, with a denoiser.
        samples: Held-out samples, shape (n, D), clean.
        bandwidth: σ, one number; None for the default of a geometry.
        generator: Source of the noise.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> rng = torch.Generator().manual_seed(0)
        >>> samples = Sphere(2).sample(1000, generator=rng)
        >>> calibration_error(ExactField(Sphere(2)), samples, 0.1, generator=rng) < 0.1
        True
        >>> calibration_error(ExactField(Sphere(2, radius=0.5)), samples, 0.1, generator=rng) > 0.3  # another sphere
        True
    """
    question = ask(field, samples, bandwidth, name="samples", task="calibration")
    return residuals(bare(field), question.points, float(question.bandwidth[0]), generator)[0]


def residuals(
    field: MetricField, samples: Float[Tensor, "n dim"], bandwidth: float, generator: torch.Generator | None
) -> tuple[float, float]:
    """Compute the calibration error at one σ, and how much of the trace of G its rank leaves out.

    The trace is that of the residuals, E|x − m̂|²/σ², which the denoiser alone knows.
    """
    seen, sigma = _observed(field, bandwidth)
    pairs = perturb(samples, samples.new_full((len(samples),), sigma), generator=generator)
    spectrum = field.metric(pairs.points, bandwidth).spectrum()
    residual = _inside(field, samples - seen.denoise(pairs.points, sigma)) / sigma
    found = torch.einsum("ndk,nd->nk", spectrum.vectors, residual).square().mean(0)
    total, floor = residual.square().sum(1).mean(), 1 - (sigma / bandwidth) ** 2
    if floor > 0:
        # Noise adds ν to every direction of the hull, and leaves σ²/s² of the clean variance.
        hull_dim = field.frame.hull_dim if isinstance(field, NeuralField) else field.dim
        found, total = (found - floor) / (1 - floor), (total - floor * hull_dim) / (1 - floor)
    left_out = total - found.sum()
    return float((found - spectrum.values.mean(0)).abs().sum() / found.sum()), float(left_out)


def _inside(field: MetricField, vectors: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
    """Take away what vectors have outside of the hull of clean data: noise alone."""
    if not isinstance(field, NeuralField) or field.noise == 0.0 or field.frame.basis is None:
        return vectors
    basis = field.frame.basis.to(vectors)
    return vectors @ basis @ basis.mT


def _observed(field: MetricField, bandwidth: float) -> tuple[MetricField, float]:
    """Return who knows the mean of samples with their noise, and the σ that makes the noise up to a scale s."""
    if not isinstance(field, NeuralField) or field.noise == 0.0:
        return field, bandwidth
    sigma = torch.tensor([bandwidth], dtype=torch.float64, device="cpu")
    return field.observed, float(observed_scale(sigma, field.noise)[0])


def predictive_score(
    field: MetricField | DataField,
    samples: Any,
    bandwidth: float | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Any:
    """Score how well each sample is predicted from a noisy copy of itself, shape (n,); higher is better.

    In nats per sample, zero for a field that has learned nothing: minus `carre.matching.predictive_loss`.

    Args:
        field: The field, with a denoiser.
        samples: Held-out samples, shape (n, D), clean.
        bandwidth: σ, one number; None for the default of a geometry.
        generator: Source of the noise.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> samples = Sphere(2).sample(1000, generator=torch.Generator().manual_seed(0))
        >>> right, wrong = (predictive_score(ExactField(Sphere(2, r)), samples, 0.1).mean() for r in (1.0, 0.5))
        >>> bool(right > 0 > wrong)
        True
    """
    question = ask(field, samples, bandwidth, name="samples", task="score")
    inner, held_out, scale = bare(field), question.points, float(question.bandwidth[0])
    seen, sigma = _observed(inner, scale)
    pairs = perturb(held_out, held_out.new_full((len(held_out),), sigma), generator=generator)
    residual, added = (held_out - seen.denoise(pairs.points, sigma)) / sigma, pairs.displacement[:, 0]
    metric, floor = inner.metric(pairs.points, scale), None
    if isinstance(inner, NeuralField) and isinstance(metric, LowRankMetric) and inner.noise > 0:
        # Inside the hull of the clean data, where noise adds ν to every direction.
        share, frame = (sigma / scale) ** 2, inner.frame.to(held_out)
        floor = held_out.new_full((len(held_out),), 1 - share)
        if frame.basis is not None:
            metric = LowRankMetric(metric.factor @ frame.basis)
            residual, added = residual @ frame.basis, added @ frame.basis
        metric = metric.scaled(share)
    score = -predictive_loss(metric, residual, added, floor=floor)
    return question.given.restore(score)
