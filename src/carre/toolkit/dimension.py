"""Local intrinsic dimension from the spectrum of the metric."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from carre.geometry import LowRankMetric


def count_dimension(metric: LowRankMetric, *, threshold: float = 0.5) -> Int[Tensor, "*batch"]:
    """Count the eigenvalues of G above a threshold.

    Right while the noise of the data is smaller than σ, and σ smaller than the radius of curvature;
    the most robust of the estimators compared in THEORY §4.4. Eigenvalues are near 1 along the data
    and near 0 across them, so the threshold hardly matters.

    Example:
        >>> import torch
        >>> count_dimension(LowRankMetric(torch.diag(torch.tensor([1.0, 0.9, 0.2]))[None]))
        tensor([2])
    """
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"threshold must lie between 0 and 1; got {threshold}")
    return (metric.eigenvalues() > threshold).sum(-1)
