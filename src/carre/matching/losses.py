"""The losses, one value per sample. Each last line is an equation of the paper.

The metric is the Jacobian of the denoiser: a second target, without noise [THEORY §1, §3.10].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend.modes import are_fused
from carre.metric import LowRankMetric, Metric


@dataclass(frozen=True, eq=False)
class JacobianProbe:
    """A random vector at each point, and what the Jacobian of the denoiser makes of it.

    Attributes:
        vectors: v ~ N(0, I).
        products: Jᵀv with J = ∂m̂/∂y. No gradient flows into them.
        weight: What the error at the probe counts, beside that of the displacements.

    Example:
        >>> points = torch.ones(4, 2, requires_grad=True)
        >>> probe = probe_jacobian(points * torch.tensor([1.0, 0.0]), points)  # the projector on an axis
        >>> bool((probe.products == probe.vectors * torch.tensor([1.0, 0.0])).all())
        True
    """

    vectors: Float[Tensor, "batch dim"]
    products: Float[Tensor, "batch dim"]
    weight: float = 1.0


def probe_jacobian(
    mean: Float[Tensor, "batch dim"],
    points: Float[Tensor, "batch dim"],
    *,
    weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> JacobianProbe | None:
    """Multiply random vectors by the Jacobian of a denoiser, by one backward pass through it.

    For the exact posterior mean, G = Cov[X | Y=y]/σ² = ∂m/∂y, so that E‖(G − J)v‖² = ‖G − J‖²_F says how far a
    metric is from the denoiser's own. The outer products that `metric_matching_loss` regresses on have a
    variance of d(d+1) at the optimum; this target has none.

    Args:
        mean: m̂(y), computed from the points; its graph is kept.
        points: y, which must require gradients.
        weight: Of the probe.
        generator: Source of randomness.

    Returns:
        The probe; None where the mean carries no derivative in the points (detached, or constant).

    Example:
        >>> points = torch.ones(4, 2, requires_grad=True)
        >>> probe = probe_jacobian(points / 2, points)
        >>> bool(torch.allclose(probe.products, probe.vectors / 2))
        True
        >>> probe_jacobian(torch.zeros(4, 2), points) is None  # a constant
        True
    """
    if not mean.requires_grad:
        return None
    vectors = torch.randn(points.shape, generator=generator, device=points.device, dtype=points.dtype)
    (products,) = torch.autograd.grad(mean, points, vectors.to(mean.dtype), retain_graph=True, allow_unused=True)
    return None if products is None else JacobianProbe(vectors, products.detach().to(vectors.dtype), weight)


def metric_matching_loss(
    metric: LowRankMetric, displacement: Float[Tensor, "batch draws dim"], probe: JacobianProbe | None = None
) -> Float[Tensor, " batch"]:
    """Compute ‖G − T‖²_F − ‖T‖²_F with T the mean of δδᵀ, without forming either [RMM, Eq. 12].

    With a ridge, G = FᵀF + λI and the prediction really contains λI [RMM, App. C]. The minimizer is
    E[T | y]: G itself when δ is centered at the posterior mean. The dropped constant carries no
    gradient, and in high dimension it would drown the rest in float32.

    With a probe, ‖(G − J)v‖² − |Jv|² is added with its weight; it has the same minimizer, and no noise of its
    own (`probe_jacobian`).

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
    if probe is None:
        return loss
    image = metric.apply(probe.vectors)
    return loss + probe.weight * (image * (image - 2 * probe.products)).sum(1)


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
    metric: Metric, residual: Float[Tensor, "batch dim"], noise: Float[Tensor, "batch dim"], *, ridge: float = 0.05
) -> Float[Tensor, " batch"]:
    """Compute −log N(x; m̂, σ²(G + λI)) + log N(x; y, σ²I), with residual (x − m̂)/σ and noise (y − x)/σ.

    In nats per sample: zero for a prediction that knows only the noise, negative for a better one. A
    proper score of mean and covariance together (Dawid and Sebastiani), for comparing models; the
    metric loss alone rewards a poor mean, which leaves more variance to be explained. λ keeps it
    finite where G has no rank.

    Example:
        >>> noise = torch.tensor([[1.0, -2.0]])
        >>> ignorant = LowRankMetric(0.95**0.5 * torch.eye(2)[None])  # with the ridge, the identity
        >>> predictive_loss(ignorant, -noise, noise).abs().round(decimals=5)
        tensor([0.])
    """
    metric = metric.with_ridge(metric.ridge + ridge)
    mahalanobis = (residual * metric.solve(residual)).sum(1)
    return 0.5 * (mahalanobis + metric.log_determinant() - noise.square().sum(1))


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
