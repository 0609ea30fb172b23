"""The losses, one value per sample. Each last line is an equation of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend.modes import are_fused
from carre.boundary import ArgumentError
from carre.matching.probes import JacobianProbe
from carre.metric import LowRankMetric, Metric


def metric_matching_loss(
    metric: LowRankMetric, displacement: Float[Tensor, "batch draws dim"], probe: JacobianProbe | None = None
) -> Float[Tensor, " batch"]:
    """Compute ‖G − T‖²_F − ‖T‖²_F with T the mean of δδᵀ, without forming either [RMM, Eq. 12].

    With a ridge, G = FᵀF + λI and the prediction really contains λI [RMM, App. C]. The minimizer is
    E[T | y]: G itself when δ is centered at the posterior mean. The dropped constant carries no
    gradient, and in high dimension it would drown the rest in float32.

    With a probe, its loss is added with its weight: it has the same minimizer, and no noise of its own.

    Example:
        >>> metric = LowRankMetric(torch.eye(3)[None, :2])
        >>> metric_matching_loss(metric, torch.tensor([[[1.0, 2.0, 3.0]]]))
        tensor([-8.])
    """
    if are_fused(metric.factor, displacement) and metric.ridge == 0.0:
        from carre.backend.triton_training import MetricMatchingLoss, fits  # noqa: PLC0415  (needs Triton)

        if fits(metric.factor):
            probing = (None, None, 0.0) if probe is None else (probe.vectors, probe.products, probe.weight)
            fused: Tensor = MetricMatchingLoss.apply(metric.factor, displacement, *probing)  # type: ignore[no-untyped-call]
            return fused
    target = LowRankMetric(displacement / displacement.shape[1] ** 0.5)
    loss = metric.squared_norm() - 2 * metric.frobenius_product(target)
    return loss if probe is None else loss + probe.weight * probe_loss(metric, probe)


def probe_loss(metric: Metric, probe: JacobianProbe) -> Float[Tensor, " batch"]:
    """Compute ‖(G − J)v‖² − |Jv|², which says how far a metric is from the denoiser's Jacobian along v.

    Example:
        >>> probe = JacobianProbe(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
        >>> probe_loss(LowRankMetric(torch.eye(2)[None]), probe)  # it agrees: −|Jv|² is the least there is
        tensor([-1.])
    """
    image = metric.apply(probe.vectors)
    loss: Tensor = torch.linalg.vecdot(image, image - 2 * probe.products)
    return loss


def frobenius_loss(
    matrices: Float[Tensor, "batch dim dim"], displacement: Float[Tensor, "batch draws dim"]
) -> Float[Tensor, " batch"]:
    """Compute ‖G − T‖²_F for dense predictions, T the mean of δδᵀ [RMM, Eq. 11]. For small D.

    Example:
        >>> frobenius_loss(torch.eye(2)[None], torch.tensor([[[1.0, 0.0]]]))  # |diag(1, 1) − diag(1, 0)|²
        tensor([1.])
    """
    target = displacement.mT @ displacement / displacement.shape[1]
    return (matrices - target).square().sum((1, 2))


def denoising_loss(mean: Float[Tensor, "batch dim"], target: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
    """Compute |m̂(y) − x|², whose minimizer is E[X | Y=y] [RMM, Sec. 3.2].

    Example:
        >>> denoising_loss(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
        tensor([25.])
    """
    return (mean - target).square().sum(1)


def predictive_loss(
    metric: Metric,
    residual: Float[Tensor, "batch dim"],
    noise: Float[Tensor, "batch dim"],
    *,
    ridge: float = 0.05,
    floor: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, " batch"]:
    """Score N(m̂, σ²G) as a prediction of x, with residual (x − m̂)/σ and noise (y − x)/σ; less is better.

    −log N(x + √λσξ; m̂, σ²(G + λI)), averaged over a further noise ξ, less what N(y, σ²I) gets: in nats per sample, zero
    for a prediction that knows only the noise, negative for a better one. λ keeps it finite where G has no rank, and
    since it is on both sides, the score is proper: it is least, on average, for the true mean and covariance (Dawid and
    Sebastiani). So it compares models; the metric loss alone rewards a poor mean, which leaves more to be explained.
    With a floor ν, one per sample, G is the metric and νI.

    Example:
        >>> noise = torch.tensor([[1.0, -2.0]])
        >>> ignorant = LowRankMetric(torch.eye(2)[None])
        >>> predictive_loss(ignorant, -noise, noise).abs().round(decimals=5)
        tensor([0.])
    """
    if not ridge > 0:
        raise ArgumentError("ridge", "be positive: it keeps the score finite where G has no rank", got=ridge)
    dim = noise.shape[1]
    ignorant = (noise.square().sum(1) + ridge * dim) / (1 + ridge) + dim * math.log1p(ridge)
    if floor is not None:
        # G + νI + λI is (1 + ν/λ) times a metric with the same ridge λ at every point.
        assert isinstance(metric, LowRankMetric)
        size = 1 + floor / ridge
        metric, residual = LowRankMetric(metric.factor * size.rsqrt()[:, None, None]), residual * size.rsqrt()[:, None]
        ignorant = ignorant - dim * size.log()
    blurred = metric.with_ridge(metric.ridge + ridge)
    inverse = blurred.inverse_trace() if floor is None else blurred.inverse_trace() / size
    quadratic = (residual * blurred.solve(residual)).sum(1) + ridge * inverse
    return 0.5 * (quadratic + blurred.log_determinant() - ignorant)


def conditional_carre_du_champ(
    f: Callable[[Tensor], Tensor],
    h: Callable[[Tensor], Tensor],
    samples: Float[Tensor, "batch dim"],
    points: Float[Tensor, "batch dim"],
    bandwidth: Float[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """Compute (f(x) − f(y))(h(x) − h(y))/2σ², the conditional carré du champ [RMM, Alg. 1].

    Its expectation given y is Γ_σ(f, h)(y), in the paper's normalization (half of G's).

    Example:
        >>> f = h = lambda x: x[:, 0]
        >>> x, y, sigma = torch.tensor([[3.0, 9.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([2.0])
        >>> conditional_carre_du_champ(f, h, x, y, sigma)  # (3 − 1)²/8
        tensor([0.5000])
    """
    return (f(samples) - f(points)) * (h(samples) - h(points)) / (2 * bandwidth.square())


def carre_du_champ_loss(
    prediction: Float[Tensor, " batch"], target: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Compute the scalar conditional loss (Γ^θ(y) − Γ(x, y))² [RMM, Eq. 10, Alg. 1].

    Example:
        >>> carre_du_champ_loss(torch.tensor([0.5]), torch.tensor([2.5]))
        tensor([4.])
    """
    return (prediction - target).square()
