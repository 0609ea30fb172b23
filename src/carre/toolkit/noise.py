"""How noisy samples are: the variance that is the same in every direction across the data [THEORY §11]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.arguments import shown
from carre.backend.rows import Rows
from carre.boundary import ArgumentError, as_points

# Of the samples, so many at most, of which some are points to look around at.
_MOST_SAMPLES, _MOST_POINTS, _POINTS_AT_ONCE, _FEWEST_SAMPLES, _MOST_NEIGHBORS = 16_384, 256, 32, 80, 512
# Decompositions of size D at every point. In fewer dimensions than four the lower half is one direction, which has
# nothing to be alike with: the turns of a helix look like noise.
_LEAST_DIM, _LARGEST_DIM, _LARGEST_DECOMPOSITIONS = 4, 512, 2**23
# Each half of the samples has at least so many neighbors at the scales that are compared, which differ by √2.
_FEWEST_NEIGHBORS, _N_SCALES, _N_TRIED = 20, 3, 40
# Noise is the same at both scales, in every direction across the data, and where samples are dense and where they are
# sparse, up to chance.
_MOST_DRIFT, _LEAST_ISOTROPY, _LEAST_EVENNESS, _N_PARTS = 0.05, 0.75, 0.85, 4
# Less than this share of the kernel's own variance is not seen.
_LEAST_FLOOR = 1e-3
# Eigenvalues without the noise, on average over points that may differ.
_TANGENT_ABOVE, _STANDS_OUT_ABOVE = 0.5, 0.25


@dataclass(frozen=True)
class NoiseEstimate:
    """Noise of the samples, of the same deviation τ in all directions, if there is such noise.

    Attributes:
        value: τ, in the units of the samples; 0 where none is claimed.
        standard_error: Of τ, by chance and by the scale it is read at; 0 where it was given, or none is claimed.
        n_directions: How many directions stand out from it; None where none is claimed.
        reason: What speaks for it, or why nothing is claimed, in a sentence.

    Example:
        >>> print(NoiseEstimate(0.05, 0.001, 2, "seen at two scales"))
        0.05 ± 0.001 in every direction: seen at two scales
        >>> print(NoiseEstimate(reason="it may be curvature"))
        none is claimed: it may be curvature
    """

    value: float = 0.0
    standard_error: float = 0.0
    n_directions: int | None = None
    reason: str = "it was not looked for"

    def __str__(self) -> str:
        if self.value == 0.0:
            return f"none is claimed: {self.reason}"
        error = f" ± {self.standard_error:.1g}" if self.standard_error > 0 else ""
        return f"{self.value:.3g}{error} in every direction: {self.reason}"


def estimate_noise(samples: Any, *, generator: torch.Generator | None = None) -> NoiseEstimate:
    """Estimate the noise of samples X = M + τε, from the samples alone; claim it only where it can be told.

    Seen by a kernel of scale σ, noise leaves the same variance σ²τ²/(σ² + τ²) in every direction across the data, at
    every σ [THEORY §11]. Curvature leaves one that grows as σ⁴, and in few directions; a dimension leaves σ². So a
    variance that is the same in the lower half of all directions, gives the same τ at two of the smallest scales at
    which samples have neighbors, and the same where they are dense and where they are sparse (in a cloud with heavy
    tails it is not), is noise. The directions are found on one half of the samples, and the variance
    along them is measured on the other: on the same half it would be too small.

    Args:
        samples: The samples, shape (n, D), or checked ones that stay where they are.
        generator: Source of the split; by default a fixed seed.

    Example:
        >>> from carre.manifolds import Sphere
        >>> rng = torch.Generator().manual_seed(0)
        >>> sphere = Sphere(2).embed(10, generator=rng)
        >>> found = estimate_noise(sphere.noisy(0.05).sample(2000, generator=rng))
        >>> round(found.value, 2), found.n_directions
        (0.05, 2)
        >>> estimate_noise(sphere.sample(2000, generator=rng)).value
        0.0
    """
    samples = samples if isinstance(samples, Rows) else as_points(samples, name="samples").tensor.detach()
    n, dim = samples.shape
    if n < _FEWEST_SAMPLES:
        return NoiseEstimate(reason=f"fewer than {_FEWEST_SAMPLES} samples do not tell")
    if not _LEAST_DIM <= dim <= _LARGEST_DIM:
        return NoiseEstimate(reason=f"it is looked for in {_LEAST_DIM} to {_LARGEST_DIM} dimensions, not in {dim:,}")
    generator = torch.Generator(samples.device).manual_seed(0) if generator is None else generator
    order = torch.randperm(n, generator=generator, device=samples.device)[:_MOST_SAMPLES]
    seen = _spectra(samples[order].double())
    if len(seen) < 2:
        return NoiseEstimate(reason="samples have too few neighbors")
    return _judge(seen, n)


_LARGEST = 1e300


def noise_setting(noise: Any) -> str | float:
    """Check what a fit is told about noise: "auto", or its deviation.

    Example:
        >>> noise_setting("auto"), noise_setting(0)
        ('auto', 0.0)
    """
    if isinstance(noise, str) and noise == "auto":
        return "auto"
    number: Any = math.nan if isinstance(noise, bool) or not isinstance(noise, Real) else noise
    if not 0 <= number <= _LARGEST:
        raise ArgumentError("noise", "be 'auto', or a standard deviation of at least 0", got=shown(noise))
    return float(noise)


class _Seen(NamedTuple):
    """What a kernel sees at a scale: the mean spectrum of G, descending, and how even τ is from place to place."""

    sigma: float
    spectrum: Float[Tensor, " dim"]
    evenness: float


def _spectra(samples: Float[Tensor, "n dim"]) -> list[_Seen]:
    """Look at samples at the smallest scales at which they have neighbors."""
    n, dim = samples.shape
    n_points = max(32, min(_MOST_POINTS, n // 4, _LARGEST_DECOMPOSITIONS // dim**2))
    points, rest = samples[:n_points], samples[n_points:]
    halves = [_neighbors(points, half) for half in (rest[::2], rest[1::2])]
    sigma = float(halves[0][0][:, min(_FEWEST_NEIGHBORS, halves[0][0].shape[1] - 1)].sqrt().median()) / 8
    found = list[_Seen]()
    for _ in range(_N_TRIED):
        if len(found) == _N_SCALES or not sigma > 0:
            break
        (left, few), (right, fewer) = (_covariances(*half, sigma) for half in halves)
        effective = torch.minimum(few, fewer)
        if float(effective.median()) >= _FEWEST_NEIGHBORS:
            spectra = (_along(left, right) + _along(right, left)) / 2
            found.append(_Seen(sigma, spectra.mean(0), _evenness(spectra[effective.argsort()])))
        sigma *= 2**0.5
    return found


def _neighbors(points: Float[Tensor, "m dim"], samples: Float[Tensor, "n dim"]) -> tuple[Tensor, Tensor, Tensor]:
    """Find the nearest samples of each point: their squared distances, and which of the samples they are."""
    distances, index = torch.cdist(points, samples).topk(min(_MOST_NEIGHBORS, len(samples)), 1, largest=False)
    return distances.square(), index, samples


def _covariances(
    distances: Float[Tensor, "m k"], index: Int[Tensor, "m k"], samples: Float[Tensor, "n dim"], sigma: float
) -> tuple[Float[Tensor, "m dim dim"], Float[Tensor, " m"]]:
    """Compute the kernel's G at each point, without the bias of few neighbors, and their effective number."""
    parts = zip(torch.split(distances, _POINTS_AT_ONCE), torch.split(index, _POINTS_AT_ONCE), strict=True)
    found = [_covariance(squares, samples[nearest], sigma) for squares, nearest in parts]
    return torch.cat([metric for metric, _ in found]), torch.cat([effective for _, effective in found])


def _covariance(
    distances: Float[Tensor, "m k"], neighbors: Float[Tensor, "m k dim"], sigma: float
) -> tuple[Float[Tensor, "m dim dim"], Float[Tensor, " m"]]:
    weights = torch.softmax(-distances / (2 * sigma**2), 1)
    effective = 1 / weights.square().sum(1)
    centered = neighbors - torch.einsum("mk,mkd->md", weights, neighbors)[:, None]
    rows = centered * (weights / (sigma**2 * (1 - 1 / effective).clamp_min(1e-6))[:, None]).sqrt()[..., None]
    return rows.mT @ rows, effective


def _along(found: Float[Tensor, "m dim dim"], measured: Float[Tensor, "m dim dim"]) -> Float[Tensor, "m dim"]:
    """Measure one G along the eigenvectors of the other, leading first."""
    directions = torch.linalg.eigh(found)[1].flip(-1)
    return torch.einsum("mik,mij,mjk->mk", directions, measured, directions)


def _evenness(spectra: Float[Tensor, "m dim"]) -> float:
    """Compare τ in parts of the points, from the sparsest to the densest: the least over the largest."""
    floors = [float(part[:, -max(1, spectra.shape[1] // 2) :].mean()) for part in spectra.tensor_split(_N_PARTS)]
    low, high = (math.sqrt(max(floor, 0.0) / max(1 - floor, 1e-9)) for floor in (min(floors), max(floors)))
    return low / max(high, 1e-9)


def _judge(seen: list[_Seen], n_samples: int) -> NoiseEstimate:
    """Say whether the lower half of the spectra at consecutive scales is noise."""
    dim = len(seen[0].spectrum)
    count, values = max(1, dim // 2), list[float]()
    for last in seen:
        sigma, lower = last.sigma, last.spectrum[-count:]
        floor = float(lower.mean())
        if floor < _LEAST_FLOOR:
            return NoiseEstimate(reason=f"across the data samples differ by less than {_LEAST_FLOOR**0.5 * sigma:.2g}")
        if floor >= 1 or float(lower[-1]) < _LEAST_ISOTROPY * float(lower[0]):
            return NoiseEstimate(reason="what is left across the data is not the same in all directions")
        values.append(sigma * math.sqrt(floor / (1 - floor)))
        drift = values[-1] / values[-2] - 1 if len(values) > 1 else -math.inf
        # Of few neighbors in many dimensions it is a little too large, and falls; curvature makes it rise.
        if drift >= -_MOST_DRIFT:
            break
    if abs(drift) > _MOST_DRIFT:
        return NoiseEstimate(reason="what is left across the data changes with the scale: it may be curvature")
    if last.evenness < _LEAST_EVENNESS:
        return NoiseEstimate(reason="what is left across the data is not the same everywhere")
    # A clean eigenvalue is 1 − (s²/σ²)(1 − λ), with s² = σ² + τ² and s²/σ² = 1/(1 − ν) [THEORY §11].
    first = seen[len(values) - 2].spectrum
    clean = 1 - (1 - first) / (1 - float(first[-count:].mean()))
    if float(clean[0]) < _TANGENT_ABOVE:
        reason = "no direction stands out from the others: a cloud, or a dimension near that of the space"
        return NoiseEstimate(reason=reason)
    chance = values[-1] / math.sqrt(2 * count * n_samples)
    scales = " and ".join(f"{one.sigma:.3g}" for one in seen[len(values) - 2 : len(values)])
    reason = f"the lower {count} of {dim} directions vary alike, at σ = {scales}"
    n_directions = int((clean > _STANDS_OUT_ABOVE).sum())
    return NoiseEstimate(values[-1], math.hypot(chance, drift * values[-1]), n_directions, reason)
