"""Does a field predict where held-out samples really are?"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from carre.fields import MetricField
from carre.geometry import LowRankMetric
from carre.matching import perturb


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
    ridge: float = 0.05,
    generator: torch.Generator | None = None,
) -> Float[Tensor, " n"]:
    """Score each sample's prediction from a noisy copy of itself; higher is better.

    The log-likelihood of x under N(m̂(y), σ²(G + λI)), minus that under N(y, σ²I), which knows only the
    noise: in nats per sample, zero for a field that has learned nothing. It rewards the true mean
    and the true covariance together (a proper score), where the metric loss alone would reward a
    poor mean with a larger G.
    """
    pairs = perturb(samples, samples.new_full((len(samples),), bandwidth), generator=generator)
    metric = field.metric(pairs.points, bandwidth)
    metric = metric.with_ridge(metric.ridge + ridge)
    residual = (samples - field.denoise(pairs.points, bandwidth)) / bandwidth
    mahalanobis = (residual * metric.solve(residual)).sum(1)
    noise = pairs.displacement[:, 0].square().sum(1)
    return 0.5 * (noise - mahalanobis - _log_determinant(metric))


def _log_determinant(metric: LowRankMetric) -> Float[Tensor, " n"]:
    """Compute log det(FᵀF + λI) = (D − k) log λ + Σ_k log λ_k over the k leading eigenvalues."""
    values = metric.eigenvalues()
    return (metric.dim - values.shape[-1]) * math.log(metric.ridge) + values.log().sum(-1)
