"""Does a field predict where held-out samples really are?"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from carre.fields import MetricField
from carre.matching import perturb, predictive_loss


def calibration_error(
    field: MetricField,
    samples: Float[Tensor, "n dim"],
    bandwidth: float,
    *,
    generator: torch.Generator | None = None,
) -> float:
    """Compare the predicted variance along each eigenvector with the variance found there.

    Σ_k |ē_k − λ̄_k| / Σ_k ē_k, where ē_k is the mean of (u_kᵀ(x − m̂(y)))²/σ² over noisy held-out pairs
    and λ̄_k the mean k-th eigenvalue. Below 0.1 is good; 0.3 is the limit for choosing a scale
    [THEORY §4.5]. Blind to errors of m̂ itself: read it next to the gain over a linear denoiser.

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
    pairs = perturb(samples, samples.new_full((len(samples),), bandwidth), generator=generator)
    spectrum = field.metric(pairs.points, bandwidth).spectrum()
    residual = (samples - field.denoise(pairs.points, bandwidth)) / bandwidth
    found = torch.einsum("ndk,nd->nk", spectrum.vectors, residual).square().mean(0)
    return float((found - spectrum.values.mean(0)).abs().sum() / found.sum())


def predictive_score(
    field: MetricField,
    samples: Float[Tensor, "n dim"],
    bandwidth: float,
    *,
    generator: torch.Generator | None = None,
) -> Float[Tensor, " n"]:
    """Score how well each sample is predicted from a noisy copy of itself; higher is better.

    In nats per sample, zero for a field that has learned nothing: minus `carre.matching.predictive_loss`.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> samples = Sphere(2).sample(1000, generator=torch.Generator().manual_seed(0))
        >>> right, wrong = (predictive_score(ExactField(Sphere(2, r)), samples, 0.1).mean() for r in (1.0, 0.5))
        >>> bool(right > 0 > wrong)
        True
    """
    pairs = perturb(samples, samples.new_full((len(samples),), bandwidth), generator=generator)
    residual = (samples - field.denoise(pairs.points, bandwidth)) / bandwidth
    return -predictive_loss(field.metric(pairs.points, bandwidth), residual, pairs.displacement[:, 0])
