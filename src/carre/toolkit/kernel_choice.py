"""Choosing the kernel of a dataset without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_points
from carre.fields import KernelField
from carre.metric import AffineFrame
from carre.neighbors import build_index
from carre.neighbors.choice import checked_kind
from carre.toolkit.scale import CALIBRATION_LIMIT, CLEAR_GAP, ScaleProfile, checked_grid, choose_bandwidth
from carre.training.defaults import DataScale

_N_HELD_OUT = 256
_HELD_OUT_SHARE = 5
_FEWEST_SAMPLES = 20
# Up to this many numbers, the sum over all samples costs no more than a search.
_SMALL = 2**18
_N_NEIGHBORS = (64, 256, 1024)


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
        raise ValueError(f"samples must be at least {_FEWEST_SAMPLES} to hold some out; got {len(wide)}")
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    rest, held_out = _split(wide, generator)
    scale = DataScale.of(rest - rest.mean(0))
    grid = _checked_grid(bandwidths, scale)
    candidates = _candidates(n_neighbors, rest)
    options: dict[str, Any] = {"centered": centered, "adaptive": adaptive, "rank": rank}
    shared = build_index(rest, checked_kind(index))
    seed = int(torch.randint(2**31, (), generator=generator))
    profiles = []
    for k in candidates:
        profile = choose_bandwidth(
            KernelField(rest, n_neighbors=k, index=shared, **options),
            held_out,
            grid,
            max_dim=AffineFrame.of(rest).dim,
            # The same noise for all.
            generator=torch.Generator(held_out.device).manual_seed(seed),
        )
        _, chosen, why = _pick([profile], scale.supported_from())
        profiles.append(replace(profile, chosen=chosen, reason=why))
    best, chosen, why = _pick(profiles, scale.supported_from())
    k, sigma = candidates[best], float(grid[chosen])
    field = KernelField(wide, n_neighbors=k, index=index, **options)
    reason = f"n_neighbors={'all' if k is None else k}, σ={sigma:.3g}: {why}"
    return KernelChoice(field, sigma, k, candidates, tuple(profiles), reason)


def _split(
    samples: Float[Tensor, "n dim"], generator: torch.Generator
) -> tuple[Float[Tensor, "rest dim"], Float[Tensor, "held_out dim"]]:
    """Shuffle, and hold out a fifth, or enough."""
    order = torch.randperm(len(samples), generator=generator, device=generator.device).to(samples.device)
    n_held_out = min(_N_HELD_OUT, len(samples) // _HELD_OUT_SHARE)
    return samples[order[n_held_out:]], samples[order[:n_held_out]]


def _checked_grid(bandwidths: Sequence[float] | np.ndarray | None, scale: DataScale) -> np.ndarray:
    """Return candidates for σ: those given, or steps of √2 over the default range."""
    if bandwidths is None:
        low, high = scale.bandwidth_range()
        return np.geomspace(low, high, 1 + math.ceil(2 * math.log2(high / low)))
    return checked_grid(bandwidths, name="bandwidths")


def _candidates(
    n_neighbors: int | Sequence[int | None] | np.ndarray | None, rest: Float[Tensor, "n dim"]
) -> tuple[int | None, ...]:
    """Return the numbers of neighbors to compare."""
    if n_neighbors is None:
        fitting = tuple(k for k in _N_NEIGHBORS if k < len(rest))
        return (None,) if rest.numel() <= _SMALL or not fitting else fitting
    several = isinstance(n_neighbors, (Sequence, np.ndarray))
    given: tuple[int | None, ...] = tuple(np.asarray(n_neighbors).tolist()) if several else (n_neighbors,)  # type: ignore[assignment]
    if not given:
        raise ValueError("n_neighbors must name at least one number; got an empty grid")
    largest = max((k for k in given if k is not None), default=1)
    if largest > len(rest):
        raise ValueError(
            f"n_neighbors must be at most {len(rest)}, the number of samples that are not held out; got {largest}. "
            "Lower n_neighbors or give more samples"
        )
    return given


def _pick(profiles: Sequence[ScaleProfile], supported_from: float) -> tuple[int, int, str]:
    """Pick a profile and a scale: most nearly a projector, among calibrated ones with a clear gap [THEORY §4.5]."""
    idempotency, gap, errors = (
        np.stack([getattr(profile, name) for profile in profiles]) for name in ("idempotency", "gap", "calibration")
    )
    calibrated = errors < CALIBRATION_LIMIT
    clear = calibrated & (gap >= CLEAR_GAP)
    supported = calibrated & (profiles[0].bandwidth >= supported_from)
    if not calibrated.any():
        flat = int(errors.argmin())
        why = f"none is calibrated within {CALIBRATION_LIMIT}; this one comes nearest. "
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
