"""What is minimized: the metric loss and, when a mean is trained beside it, the denoising loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.matching import JacobianProbe, Perturbation, denoising_loss, metric_matching_loss
from carre.metric import LowRankMetric
from carre.training.balance import BalancedScales


@dataclass(frozen=True)
class Objective:
    """The two losses of a model on a batch of perturbed samples, one value per sample.

    Joint (one stage, centered): the mean is trained by denoising while the factor is trained on
    displacements from it. Two-stage: the mean is frozen. Uncentered: the model has no mean.

    Attributes:
        ridge: λ, which the predicted metric contains.
        train_mean: Whether the denoising loss is part of the objective.
        centered: Whether displacements are measured from the mean; otherwise a mean is ignored.
        function: A map of points to R^k whose carré du champ is learned in place of the metric: the model's mean is
            then that of its values, and the rows of the factor have length k. None for the points themselves.
        balance: What each σ counts in the metric loss; None for all the same, which lets small scales hide large ones
            where the data have many directions.

    Example:
        >>> from carre.matching import perturb
        >>> from carre.networks import build_model
        >>> model = build_model(3, 2, width=8, n_blocks=1, spread=1.0)
        >>> mean_loss, metric_loss = Objective()(model, perturb(torch.randn(5, 3), torch.full((5,), 0.3)))
        >>> mean_loss.shape, metric_loss.shape
        (torch.Size([5]), torch.Size([5]))
    """

    ridge: float = 0.0
    train_mean: bool = True
    centered: bool = True
    function: Callable[[Tensor], Tensor] | None = None
    balance: BalancedScales | None = None

    def image(self, batch: Perturbation) -> Perturbation:
        """Return what the losses see of a batch: its image under the function, if there is one."""
        return batch if self.function is None else batch.image(self.function)

    def __call__(
        self, model: nn.Module, batch: Perturbation
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Return the denoising loss, weighted to be of order one at every σ, and the metric loss per row."""
        mean, factor = model(batch.points, batch.bandwidth)
        return self.losses(mean, factor, batch)

    def losses(
        self,
        mean: Float[Tensor, "batch out"] | None,
        factor: Float[Tensor, "batch rank out"],
        batch: Perturbation,
        probe: JacobianProbe | None = None,
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Return the two losses for given outputs of a model; with a probe, the metric also follows the denoiser."""
        batch = self.image(batch)
        metric = LowRankMetric(factor.to(batch.points.dtype), self.ridge)
        variance = batch.bandwidth.square()
        mean_loss = torch.zeros_like(batch.bandwidth)
        if mean is not None and self.centered:
            mean = mean.to(batch.points.dtype)
            if self.train_mean:
                edm_weight = (1 + variance) / (variance * batch.points.shape[1])
                mean_loss = edm_weight * denoising_loss(mean, batch.mean_target)
            batch = batch.centered(mean)
        metric_loss = metric_matching_loss(metric, batch.displacement, probe) / metric.rank
        return mean_loss, metric_loss if self.balance is None else self.balance(batch.bandwidth) * metric_loss
