"""What is minimized: the metric loss and, when a mean is trained beside it, the denoising loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.geometry import LowRankMetric
from carre.matching import Perturbation, denoising_loss, metric_matching_loss


@dataclass(frozen=True)
class Objective:
    """The two losses of a model on a batch of perturbed samples, one value per sample.

    Joint (one stage, centered): the mean is trained by denoising while the factor is trained on
    displacements from it. Two-stage: the mean is frozen. Uncentered: the model has no mean.

    Attributes:
        spread: s of the envelope c_G² = s²/(s²+σ²); the metric loss is divided by its square so that
            every σ weighs the same [THEORY §3.6].
        ridge: λ, which the predicted metric contains.
        train_mean: Whether the denoising loss is part of the objective.
    """

    spread: float
    ridge: float = 0.0
    train_mean: bool = True

    def __call__(
        self, model: nn.Module, batch: Perturbation
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Return the denoising loss and the metric loss, weighted to be of order one at every σ."""
        mean, factor = model(batch.points, batch.bandwidth)
        metric = LowRankMetric(factor.float(), self.ridge)
        variance = batch.bandwidth.square()
        mean_loss = torch.zeros_like(batch.bandwidth)
        if mean is not None:
            mean = mean.float()
            if self.train_mean:
                edm_weight = (1 + variance) / (variance * batch.points.shape[1])
                mean_loss = edm_weight * denoising_loss(mean, batch.mean_target)
            batch = batch.centered(mean)
        envelope = self.spread**2 / (self.spread**2 + variance)
        metric_loss = metric_matching_loss(metric, batch.displacement) / (envelope.square() * metric.rank)
        return mean_loss, metric_loss
