"""Choosing the scale without labels: for all points, for each, and for a kernel with its number of neighbors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.arguments import as_kind
from carre.backend import Progress
from carre.boundary import ArgumentError, as_numbers, as_points, checked_integer
from carre.fields import DataField, KernelField, MetricField
from carre.metric import AffineFrame
from carre.neighbors import build_index
from carre.neighbors.engines import checked_kind
from carre.sketch import BLUE, GRAY, Stroke, card, picture
from carre.toolkit.question import ask
from carre.toolkit.validity import residuals
from carre.training import DataScale

_CALIBRATION_LIMIT = 0.3
# A network that has not resolved a curve at the smallest scales shows a dimension more there, too. A finer structure is
# taken for one where samples show it: from this many times the scale on at which they begin to have neighbors, or where
# the distances to their neighbors speak of so many dimensions rather than of fewer.
_EVIDENT = 3.0
CLEAR_GAP = 0.4
# A point leaves the common scale only for a gap that is wider by this much: gaps of single points are noisy.
_WORTH_LEAVING = 0.05
# Of the samples that a kernel is chosen for, so many judge it.
_N_HELD_OUT, _HELD_OUT_SHARE, _FEWEST_SAMPLES = 256, 5, 20
# Up to this many numbers, the sum over all samples costs no more than a search.
_SMALL = 2**18
_N_NEIGHBORS = (64, 256, 1024)
# Mean eigenvalues beyond these are of directions that all points have, or some.
_SURELY, _MOST_DRAWN = (0.75, 0.25), 16


@dataclass(frozen=True, eq=False, repr=False)
class ScaleProfile:
    """What a field looks like over a grid of scales, and which scale was chosen.

    Attributes:
        bandwidth: The grid of σ, in the units of the data.
        eigenvalues: Mean eigenvalues at clean samples, one row per σ.
        idempotency: mean Σλ(1−λ) / mean Σλ with λ clipped to [0, 1]: 0 for projectors.
        gap: Mean over samples of the largest drop between consecutive eigenvalues, clipped to [0, 1].
        calibration: `calibration_error` at each σ.
        chosen: Index of the chosen σ.
        reason: Why, in a sentence.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> rng = torch.Generator().manual_seed(0)
        >>> samples = Sphere(2).sample(200, generator=rng)
        >>> profile = choose_bandwidth(ExactField(Sphere(2)), samples, [0.05, 0.1, 0.2], generator=rng)
        >>> profile.trace.round(2)  # 2 − σ²
        array([2.  , 1.99, 1.96])
        >>> profile.is_admissible
        array([ True,  True,  True])
    """

    bandwidth: np.ndarray
    eigenvalues: np.ndarray
    idempotency: np.ndarray
    gap: np.ndarray
    calibration: np.ndarray
    chosen: int
    reason: str

    @property
    def trace(self) -> np.ndarray:
        """The mean trace of G at each σ: a dimension that need not be whole."""
        trace: np.ndarray = self.eigenvalues.sum(1)
        return trace

    @property
    def is_admissible(self) -> np.ndarray:
        """Which σ are calibrated, so that the field may be believed there; all, where that is not known."""
        admissible: np.ndarray = np.isnan(self.calibration) | (self.calibration < _CALIBRATION_LIMIT)
        return admissible

    @property
    def dimension_in_words(self) -> str:
        """How many directions the mean eigenvalues at the chosen σ speak of: a first look, for which nothing is asked.

        Example:
            >>> one = {name: np.zeros(1) for name in ("idempotency", "gap", "calibration")}
            >>> ScaleProfile(np.ones(1), np.array([[0.9, 0.5, 0.1]]), chosen=0, reason="", **one).dimension_in_words
            'about 1 to 2'
        """
        values = self.eigenvalues[self.chosen]
        least, most = (int((values > edge).sum()) for edge in _SURELY)
        count = f"about {least}" if least == most else f"about {least} to {most}"
        return count if self.is_admissible[self.chosen] else "unknown"

    def __repr__(self) -> str:
        low, chosen, high = (f"{self.bandwidth[which]:.3g}" for which in (0, self.chosen, -1))
        dimension, gap = self.dimension_in_words, self.gap[self.chosen]
        return f"ScaleProfile(σ = {chosen} of {low} to {high}, dimension {dimension}, gap {gap:.2f})"

    def _repr_html_(self) -> str:
        return card("Scale profile", {"dimension": self.dimension_in_words, "σ": self.reason}, self.picture())

    def picture(self) -> str:
        """Draw the mean eigenvalues at each σ, as SVG for a page; in color those that are tangent at the chosen one."""
        values = self.eigenvalues[:, :_MOST_DRAWN]
        colors = [BLUE if value > 0.5 else GRAY for value in values[self.chosen]]
        lines = [Stroke(self.bandwidth, row, color) for row, color in zip(values.T, colors, strict=True)]
        low, sigma, high = self.bandwidth[[0, self.chosen, -1]].tolist()
        return picture(
            "Eigenvalues of G by σ",
            lines[::-1],
            x_ticks={edge: f"{edge:.2g}" for edge in (low, high)},
            y_ticks={0.0: "0", 0.5: "½", 1.0: "1"},
            mark=(sigma, f"σ = {sigma:.3g}"),
            log=True,
        )


def choose_bandwidth(
    field: MetricField,
    samples: Any,
    grid: Any,
    *,
    max_dimension: int | None = None,
    supported_from: float = 0.0,
    neighbor_dimension: float = 0.0,
    generator: torch.Generator | None = None,
    calibrated: bool = True,
) -> ScaleProfile:
    """Choose the σ at which tangent and normal directions are most distinct, among the calibrated ones.

    The rules of THEORY §4.5: the largest spectral gap subject to a calibration error below 0.3. (Below the
    scale of the noise G is a perfect projector on everything, which idempotency would take for the answer; the gap does
    not.) Data can have clear gaps after different numbers of eigenvalues: a thin ribbon is a surface from near and a
    curve from afar. The finest structure that the samples resolve is taken, that is the largest such number at a
    smaller σ, from three times ``supported_from`` on, or if the neighbors of samples speak for it. Where no scale has a
    clear gap (flat data, or data without a sharp dimension), the σ at which G is most nearly a projector is taken, of
    those at which samples have neighbors.

    Args:
        field: The field.
        samples: Held-out samples, clean.
        grid: Candidates for σ, ascending.
        max_dimension: Dimension of the linear hull of the data; a gap beyond it says nothing.
        supported_from: Below this σ the samples are too far apart to speak for themselves, and only a clear gap
            is trusted.
        neighbor_dimension: A rough dimension from distances between samples; 0 where that is not known.
        generator: Source of the noise in the calibration error.
        calibrated: Whether the field has a denoiser to calibrate against.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> sphere, rng = Sphere(2).noisy(0.05), torch.Generator().manual_seed(0)
        >>> samples = sphere.sample(200, generator=rng)
        >>> profile = choose_bandwidth(ExactField(sphere), samples, [0.01, 0.05, 0.2], generator=rng)
        >>> float(profile.bandwidth[profile.chosen])  # well above the noise
        0.2
    """
    samples = as_points(samples, dim=field.dim, name="samples").tensor
    grid = _checked_grid(grid)

    most = field.dim if max_dimension is None else checked_integer(max_dimension, name="max_dimension", least=1)

    def statistics(sigma: float) -> tuple[np.ndarray, np.ndarray, float, float, float]:
        values = field.metric(samples, sigma).eigenvalues()[:, :max_dimension]
        clipped = values.clamp(0, 1)
        idempotency = float((clipped * (1 - clipped)).sum() / clipped.sum().clamp_min(1e-12))
        error, left_out = residuals(field, samples, sigma, generator) if calibrated else (math.nan, math.inf)
        if clipped.shape[1] < most:
            # The next eigenvalue is not known, but it is at most the last one, and all that the rank leaves out.
            clipped = torch.cat([clipped, clipped[:, -1:].clamp_max(max(left_out, 0.0))], 1)
        gap = float(_largest_drops(clipped).mean()) if clipped.shape[1] > 1 else 0.0
        return values.mean(0).cpu().numpy(), clipped.mean(0).cpu().numpy(), idempotency, gap, error

    columns = zip(*map(statistics, grid.tolist()), strict=True)
    eigenvalues, clipped, idempotency, gap, errors = (np.array(column) for column in columns)
    admissible = errors < _CALIBRATION_LIMIT if calibrated else np.ones(len(grid), dtype=bool)
    # Where a rank below D may cut a direction off, G looks like a projector whatever the data are.
    is_cut = (clipped[:, -1] > 0.5) & (eigenvalues.shape[1] < most)
    supported = admissible & (grid >= 0.99 * supported_from) & ~is_cut
    widest = gap[admissible].max(initial=0.0)
    if not admissible.any():
        chosen = int(errors.argmin())
        reason = f"no scale is calibrated within {_CALIBRATION_LIMIT}; this one comes nearest. Train longer"
    elif widest >= CLEAR_GAP:
        is_resolved = grid >= _EVIDENT * supported_from
        chosen, reason = _widest_gap(gap, clipped, admissible, supported, is_resolved, neighbor_dimension)
    elif (admissible & ~is_cut).any():
        eligible = supported if supported.any() else admissible & ~is_cut
        chosen = int(np.where(eligible, idempotency, np.inf).argmin())
        of_those = f"of those at which samples have neighbors (σ ≥ {supported_from:.3g}), " if supported.any() else ""
        where = grid[np.where(admissible, gap, -np.inf).argmax()]
        reason = f"no scale has a clear spectral gap (at most {widest:.2f}, at σ = {where:.3g}); {of_those}"
        reason += "this one makes G most nearly a projector"
    else:
        chosen = int(np.where(admissible, clipped[:, -1], np.inf).argmin())
        reason = f"rank {eigenvalues.shape[1]} may cut dimensions off at every scale, least here. Raise rank"
    if chosen in (0, len(grid) - 1):
        reason += f"; it lies at the {'lower' if chosen == 0 else 'upper'} end of the trained range"
    return ScaleProfile(grid, eigenvalues, idempotency, gap, errors, chosen, reason)


def _checked_grid(grid: Any, *, name: str = "grid") -> np.ndarray:
    """Check candidates for σ: positive, finite, ascending."""
    array = as_numbers(grid, name).double().cpu().numpy()
    is_list = array.ndim == 1 and len(array) > 0
    if not (is_list and (np.diff(array, prepend=0.0) > 0).all() and np.isfinite(array).all()):
        raise ArgumentError(name, "be positive and ascending", got=grid)
    return array


def _widest_gap(
    gap: np.ndarray,
    clipped: np.ndarray,
    admissible: np.ndarray,
    supported: np.ndarray,
    is_resolved: np.ndarray,
    neighbor_dimension: float,
) -> tuple[int, str]:
    """Find the widest gap; of structures with different numbers of dimensions, that of the finest evident one."""
    # So many eigenvalues stand before the largest drop of the mean spectrum.
    position = 1 + np.diff(clipped).argmin(1)
    widest = int(np.where(admissible, gap, -np.inf).argmax())
    # At larger scales there are more directions by curvature, which is no structure.
    is_smaller = np.arange(len(gap)) < widest
    is_evident = supported & (is_resolved | (neighbor_dimension >= (position + position[widest]) / 2))
    finer = is_evident & is_smaller & (gap >= CLEAR_GAP) & (position > position[widest])
    if not finer.any():
        return widest, f"the spectral gap is widest here ({gap[widest]:.2f})"
    finest = finer & (position == position[finer].max())
    chosen = int(np.where(finest, gap, -np.inf).argmax())
    return chosen, (
        f"of the scales with a clear spectral gap this one shows the finest structure: {position[chosen]} dimensions "
        f"(gap {gap[chosen]:.2f}), of which {position[widest]} remain at larger scales"
    )


def _largest_drops(eigenvalues: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Compute the largest drop between consecutive eigenvalues; of a single one, itself."""
    return (eigenvalues[:, :-1] - eigenvalues[:, 1:]).amax(1) if eigenvalues.shape[1] > 1 else eigenvalues[:, 0]


@dataclass(frozen=True, eq=False)
class LocalScales:
    """A scale for every point.

    Attributes:
        bandwidth: σ at each point.
        grid: The candidates.
        gap: The widest spectral gap of each point at each candidate, from its own and the two neighboring scales.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> field, points = ExactField(Sphere(1)), Sphere(1).sample(50)
        >>> profile = choose_bandwidth(field, points, [0.1, 0.4], calibrated=False)
        >>> scales = choose_local_bandwidths(field, points, profile)
        >>> np.unique(scales.bandwidth)  # all points of a circle are alike
        array([0.1])
    """

    bandwidth: np.ndarray
    grid: np.ndarray
    gap: np.ndarray


def choose_local_bandwidths(
    field: MetricField | DataField, points: Any, profile: ScaleProfile, *, progress: Progress | None = None
) -> LocalScales:
    """Choose a scale for every point: the one of widest spectral gap there, among those that are calibrated.

    Dense or strongly curved parts of the data want a smaller σ, sparse or noisy ones a larger. A point keeps the
    scale of the profile unless another has a gap wider by 0.05.

    Args:
        field: The field.
        points: Points, shape (n, D).
        profile: What the common scale was chosen from (`choose_bandwidth`, or ``scale_profile`` of a geometry).
        progress: Told how far the work is.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere, Union
        >>> rng = torch.Generator().manual_seed(0)
        >>> small, large = Sphere(1, 0.2).embed(4, generator=rng, shift=2.0), Sphere(1, 2.0).embed(4, generator=rng)
        >>> union = Union([small, large])
        >>> grid = np.geomspace(0.02, 0.64, 11)
        >>> profile = choose_bandwidth(ExactField(union), union.sample(64, generator=rng), grid, generator=rng)
        >>> points = torch.cat([small.sample(1), large.sample(1)])
        >>> chosen = choose_local_bandwidths(ExactField(union), points, profile).bandwidth
        >>> bool(chosen[0] < 0.1)
        True
    """
    question = ask(field, points, float(profile.bandwidth[profile.chosen]), task="scales").detached()

    def part(y: Tensor) -> Tensor:
        eigenvalues = (question.field.metric(y, sigma).eigenvalues() for sigma in profile.bandwidth.tolist())
        return torch.stack([_largest_drops(values.clamp(0, 1)) for values in eigenvalues], 1)

    with torch.no_grad():
        found = question.compute(part, question.points, progress=progress)
    # Averaged over neighboring scales with weights ¼, ½, ¼.
    padded = np.pad(found.cpu().numpy(), ((0, 0), (1, 1)), mode="edge")
    gap = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4
    best = np.where(profile.is_admissible, gap, -np.inf).argmax(1)
    rows = np.arange(len(gap))
    stay = gap[rows, best] < gap[:, profile.chosen] + _WORTH_LEAVING
    chosen = profile.bandwidth[np.where(stay, profile.chosen, best)]
    return LocalScales(question.given.named(chosen), profile.bandwidth, gap)


@dataclass(frozen=True, eq=False)
class KernelChoice:
    """A kernel, its scale, and what the choice was made from.

    Attributes:
        field: The chosen field, on all samples.
        bandwidth: The chosen σ.
        n_neighbors: The chosen number of neighbors; None for all samples.
        candidates: The numbers of neighbors compared.
        profiles: What each of them looks like over the grid of σ, on held-out samples.
        reason: Why, in a sentence.

    Example:
        >>> angle = torch.linspace(0, 6.28, 200, dtype=torch.float64)
        >>> circle = torch.stack([angle.cos(), angle.sin()], 1)
        >>> choice = choose_kernel(circle, bandwidths=[0.1, 0.2], n_neighbors=[20, 100])
        >>> choice.candidates, len(choice.profiles)
        ((20, 100), 2)
        >>> choice.field.n_neighbors == choice.n_neighbors
        True
    """

    field: KernelField
    bandwidth: float
    n_neighbors: int | None
    candidates: tuple[int | None, ...]
    profiles: tuple[ScaleProfile, ...]
    reason: str


def choose_kernel(
    samples: Any,
    *,
    n_neighbors: int | Sequence[int | None] | np.ndarray | None = None,
    bandwidths: Sequence[float] | np.ndarray | None = None,
    centered: bool = True,
    adaptive: bool = False,
    index: str = "auto",
    rank: int | None = None,
    generator: torch.Generator | None = None,
) -> KernelChoice:
    """Choose the bandwidth and the number of neighbors of a `KernelField`.

    A part of the samples is held out and judges the kernels built on the rest: among those that are calibrated there
    and tell tangent from normal directions by a clear gap, G should be most nearly a projector. (A kernel has few
    neighbors at small σ; the widest gap, the rule of `choose_bandwidth`, tends to lie there.) Truncation
    to too few neighbors shows as a lack of calibration.

    Args:
        samples: The dataset.
        n_neighbors: A number, or several to choose from, where None means all samples. By default all samples for
            small data, and 64, 256 or 1,024 neighbors for large.
        bandwidths: Candidates for σ, ascending; by default from the neighbor distance to the whole dataset in
            steps of √2.
        centered: As for `KernelField`.
        adaptive: As for `KernelField`.
        index: The name of a search, as for `KernelField`.
        rank: As for `KernelField`.
        generator: Source of the split and of the noise; by default a fixed seed.

    Example:
        >>> angle = torch.linspace(0, 6.28, 500, dtype=torch.float64)
        >>> circle = torch.stack([angle.cos(), angle.sin(), 0 * angle], 1)
        >>> choice = choose_kernel(circle)
        >>> choice.field
        KernelField(n_samples=500, dim=3, n_neighbors=all, index='auto')
        >>> choice.reason[:18]
        'n_neighbors=all, σ'
    """
    wide = as_points(samples, name="samples").tensor.detach()
    if len(wide) < _FEWEST_SAMPLES:
        raise ArgumentError("samples", f"be at least {_FEWEST_SAMPLES} to hold some out", got=len(wide))
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    order = torch.randperm(len(wide), generator=generator, device=generator.device).to(wide.device)
    n_held_out = min(_N_HELD_OUT, len(wide) // _HELD_OUT_SHARE)
    rest, held_out = wide[order[n_held_out:]], wide[order[:n_held_out]]
    frame = AffineFrame.of(rest)
    # By a power of two, so that nothing is rounded: squares of squares overflow in units of the data.
    unit = 2.0 ** round(math.log2(frame.scale))
    scale = DataScale.of((rest - rest.mean(0)) / unit)
    supported_from = unit * scale.supported_from()
    if bandwidths is None:
        low, high = (unit * edge for edge in scale.bandwidth_range())
        bandwidths = np.geomspace(low, high, 1 + math.ceil(2 * math.log2(high / low)))
    grid = _checked_grid(bandwidths, name="bandwidths")
    candidates = _candidates(n_neighbors, rest)
    options: dict[str, Any] = {"centered": centered, "adaptive": adaptive, "rank": rank}
    shared = build_index(rest, checked_kind(index))
    seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
    profiles = []
    for k in candidates:
        profile = choose_bandwidth(
            KernelField(rest, n_neighbors=k, index=shared, **options),
            held_out,
            grid,
            max_dimension=frame.hull_dim,
            # The same noise for all.
            generator=torch.Generator(held_out.device).manual_seed(seed),
        )
        _, chosen, why = _pick([profile], supported_from)
        profiles.append(replace(profile, chosen=chosen, reason=why))
    best, chosen, why = _pick(profiles, supported_from)
    k, sigma = candidates[best], float(grid[chosen])
    # Asked at one of its samples, it leaves that one out, as it was without those that judged it.
    k_left = None if k is None else min(k, len(wide) - 1)
    field = KernelField(wide, n_neighbors=k_left, index=index, self_neighbor="drop", **options)
    reason = f"n_neighbors={'all' if k is None else k}, σ={sigma:.3g}: {why}"
    return KernelChoice(field, sigma, k_left, candidates, tuple(profiles), reason)


def _candidates(
    n_neighbors: int | Sequence[int | None] | np.ndarray | None, rest: Float[Tensor, "n dim"]
) -> tuple[int | None, ...]:
    """Return the numbers of neighbors to compare."""
    if n_neighbors is None:
        fitting = tuple(k for k in _N_NEIGHBORS if k < len(rest))
        return (None,) if rest.numel() <= _SMALL or not fitting else fitting
    several = isinstance(n_neighbors, (Sequence, np.ndarray)) and not isinstance(n_neighbors, (str, bytes))
    items: Any = np.asarray(n_neighbors).ravel().tolist() if several else [n_neighbors]
    given = tuple(as_kind(item, (int, NoneType), name="n_neighbors") for item in items)
    if not given:
        raise ArgumentError("n_neighbors", "name at least one number", got="an empty grid")
    largest = max((k for k in given if k is not None), default=1)
    if largest > len(rest):
        must = f"be at most {len(rest)}, the number of samples that are not held out"
        raise ArgumentError("n_neighbors", must, got=largest, remedy="Lower n_neighbors or give more samples")
    return given


def _pick(profiles: Sequence[ScaleProfile], supported_from: float) -> tuple[int, int, str]:
    """Pick a profile and a scale: most nearly a projector, among calibrated ones with a clear gap [THEORY §4.5]."""
    idempotency, gap, errors = (
        np.stack([getattr(profile, name) for profile in profiles]) for name in ("idempotency", "gap", "calibration")
    )
    calibrated = errors < _CALIBRATION_LIMIT
    clear = calibrated & (gap >= CLEAR_GAP)
    supported = calibrated & (profiles[0].bandwidth >= supported_from)
    if not calibrated.any():
        flat = int(errors.argmin())
        why = f"none is calibrated within {_CALIBRATION_LIMIT}; this one comes nearest. "
        why += "Give more samples, or a larger n_neighbors"
    elif clear.any():
        flat = int(np.where(clear, idempotency, np.inf).argmin())
        why = f"of the scales with a clear spectral gap (here {gap.flat[flat]:.2f}), G is most nearly a projector"
    else:
        flat = int(np.where(supported if supported.any() else calibrated, idempotency, np.inf).argmin())
        why = "no scale has a clear spectral gap; here G is most nearly a projector"
    which, chosen = divmod(flat, gap.shape[1])
    if chosen in (0, gap.shape[1] - 1):
        why += f"; it lies at the {'lower' if chosen == 0 else 'upper'} end of the grid"
    return which, chosen, why
