"""What is minimized: the metric loss, in which every scale can count the same, and beside it the denoising loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend.rows import Samples
from carre.boundary import ArgumentError
from carre.matching import (
    BandwidthDistribution,
    JacobianProbe,
    Perturbation,
    denoise_along,
    denoising_loss,
    metric_matching_loss,
    vectors_in_range,
)
from carre.metric import LowRankMetric
from carre.networks import MetricModel

# What agreement with the Jacobian of the denoiser counts, and the least α of the vectors v = Fᵀξ + αη.
JACOBIAN_WEIGHT, PROBE_FLOOR = 10.0, 0.1
# Samples whose inner products the variances come from: a weight need not be exact.
_N_SAMPLES = 1024
# Variances below this share of the largest are rounding.
_NEGLIGIBLE = 1e-10


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
        noise: τ of the samples, in their units. The factor is then that of the clean data at the scale √(σ² + τ²), and
            no rank is spent on noise [THEORY §11].
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
    noise: float = 0.0
    balance: BalancedScales | None = None

    def __post_init__(self) -> None:
        if self.noise > 0 and (self.ridge > 0 or not self.centered):
            raise ArgumentError("noise", "be 0 with a ridge, and without a mean", got=self.noise)

    def image(self, batch: Perturbation) -> Perturbation:
        """Return what the losses see of a batch: its image under the function, if there is one."""
        return batch if self.function is None else batch.image(self.function)

    def above_floor(
        self, factor: Float[Tensor, "batch rank out"], bandwidth: Float[Tensor, " batch"]
    ) -> tuple[LowRankMetric, Float[Tensor, " batch"] | None]:
        """Return G of the samples less ν times the identity, which is what noise adds to it, and ν; None without noise.

        G of the samples at σ is (σ²/s²)·G of the clean data at s, and νI with ν = τ²/s², s² = σ² + τ² [THEORY §11].

        Example:
            >>> metric, floor = Objective(noise=1.0).above_floor(torch.eye(2)[None], torch.ones(1))
            >>> metric.eigenvalues(), floor
            (tensor([[0.5000, 0.5000]]), tensor([0.5000]))
        """
        factor = factor.to(bandwidth.dtype)
        if self.noise == 0.0:
            return LowRankMetric(factor, self.ridge), None
        floor = self.noise**2 / (bandwidth.square() + self.noise**2)
        return LowRankMetric(factor * (1 - floor).sqrt()[:, None, None]), floor

    def __call__(
        self, model: nn.Module, batch: Perturbation, *, generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Return the denoising loss, weighted to be of order one at every σ, and the metric loss per row.

        The metric follows the Jacobian of the mean, as it does in `train` with the defaults of `TrainingConfig`.
        """
        if not self.centered or self.function is not None:
            mean, factor = model(batch.points, batch.bandwidth)
            return self.losses(mean, factor, batch)
        choose = partial(vectors_in_range, floor=PROBE_FLOOR, generator=generator)
        mean, factor, probe = probed(model, batch, choose, JACOBIAN_WEIGHT)
        return self.losses(mean, factor, batch, probe)

    def losses(
        self,
        mean: Float[Tensor, "batch out"] | None,
        factor: Float[Tensor, "batch rank out"],
        batch: Perturbation,
        probe: JacobianProbe | None = None,
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Return the two losses for given outputs of a model; with a probe, the metric also follows the denoiser."""
        batch = self.image(batch)
        metric, floor = self.above_floor(factor, batch.bandwidth)
        variance = batch.bandwidth.square()
        mean_loss = torch.zeros_like(batch.bandwidth)
        if mean is not None and self.centered:
            mean = mean.to(batch.points.dtype)
            if self.train_mean:
                edm_weight = (1 + variance) / (variance * batch.points.shape[1])
                mean_loss = edm_weight * denoising_loss(mean, batch.mean_target)
            batch = batch.centered(mean)
        metric_loss = metric_matching_loss(metric, batch.displacement, probe_above(probe, floor))
        if floor is not None:
            metric_loss = metric_loss + 2 * floor * metric.trace()
        metric_loss = metric_loss / metric.rank
        return mean_loss, metric_loss if self.balance is None else self.balance(batch.bandwidth) * metric_loss


def probed(
    model: nn.Module, batch: Perturbation, choose: Callable[[Tensor], Tensor], weight: float
) -> tuple[Tensor | None, Tensor, JacobianProbe | None]:
    """Ask a model for mean and factor, and its mean what it makes of vectors chosen when the factor is known."""
    y, s = batch.points, batch.bandwidth
    if isinstance(model, MetricModel) and model.mean is not None:
        mean, factor, vectors, products = model.along(y, s, choose)
    else:
        # A network of somebody's own is asked twice: what lies in the range is known after the first time. As it
        # will be asked when it is trained, so that no running statistics change.
        was_training = model.training
        mean, factor = model(y.clone(), s)
        vectors = choose(factor)
        with torch.no_grad():
            products = denoise_along(lambda point, sigma: model.eval()(point, sigma)[0], y, s, vectors)[1]
        model.train(was_training)
    return mean, factor, None if products is None else JacobianProbe(vectors, products.float(), weight)


def probe_above(probe: JacobianProbe | None, floor: Float[Tensor, " batch"] | None) -> JacobianProbe | None:
    """Take the floor off what the Jacobian of the denoiser made of vectors: Jv − νv."""
    if probe is None or floor is None:
        return probe
    return replace(probe, products=torch.addcmul(probe.products, floor[:, None], probe.vectors, value=-1))


@dataclass(frozen=True, eq=False)
class BalancedScales:
    """Weights w(σ) of the metric loss with which every scale counts the same.

    At its optimum the loss is −‖G‖²_F. For Gaussian data that is −Σᵢ (λᵢ/(λᵢ + σ²))², over as many of the leading
    variances λ as G has rows: from their number, where σ is small, it falls to nearly nothing, and without a weight the
    few directions that are left at large scales would not be learned beside the many at small ones. w is the number of
    variances over that sum; where they are all equal, it is the 1/c_G⁴ of THEORY §3.6.

    Attributes:
        variances: λ, positive and descending, at most one per row of the factor, in the units of the samples that are
            trained on. Without any, every scale has the weight 1.

    Example:
        >>> balance = BalancedScales(torch.tensor([1.0, 1.0]))
        >>> balance(torch.tensor([0.01, 1.0, 3.0])).round(decimals=2)  # (1 + σ²)²
        tensor([  1.,   4., 100.])
    """

    variances: Float[Tensor, " rank"]

    @classmethod
    def of(cls, samples: Samples, rank: int) -> BalancedScales:
        """Measure the variances of centered samples; the first ones serve, so shuffle if their order means something.

        Example:
            >>> corners = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
            >>> BalancedScales.of(corners, 1).variances
            tensor([2.])
        """
        some = samples[:_N_SAMPLES].double()
        # Of the smaller of the two: they share all values that are not zero.
        products = some @ some.mT if len(some) <= some.shape[1] else some.mT @ some
        values = torch.linalg.eigvalsh(products / len(some)).flip(0).clamp_min(0)[:rank]
        # A direction without any variance has no posterior either, at no scale.
        return cls(values[values > _NEGLIGIBLE * values[:1]].to(samples.dtype))

    def __call__(self, bandwidth: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Compute w(σ)."""
        if len(self.variances) == 0:
            return torch.ones_like(bandwidth)
        shrinkage = self.variances / (self.variances + bandwidth.square()[:, None])
        return len(self.variances) / shrinkage.square().sum(1)

    def between(self, bandwidths: BandwidthDistribution) -> list[float]:
        """Return w at both ends of a range, as plain values."""
        ends: list[float] = self(self.variances.new_tensor([bandwidths.low, bandwidths.high])).tolist()
        return ends
