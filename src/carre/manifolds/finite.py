"""Finitely many atoms: a dataset, or the nodes of a quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend import in_parts
from carre.boundary import ArgumentError
from carre.manifolds.manifold import Manifold, Options, Posterior, checked_bandwidth, checked_points
from carre.metric import LowRankMetric
from carre.metric.spectrum import symmetric_square_root

_NO_TANGENT = (
    "a FiniteSet has no tangent space; ask the manifold that its samples came from, "
    "or estimate one with posterior(points, bandwidth).metric"
)


class FiniteSet(Manifold):
    """The distribution Σ ωⱼ δ(xⱼ): the exact kernel sum at every point and bandwidth [THEORY §2e].

    Its posterior is the minimizer of the matching losses on the dataset. With quadrature nodes and
    area weights it is the posterior of a parametrized manifold, spectrally accurate once the nodes
    are closer than σ/2.

    Args:
        samples: The atoms xⱼ.
        weights: Their probabilities ωⱼ, up to a common factor; equal by default.

    Example:
        >>> pair = FiniteSet(torch.tensor([[-1.0], [1.0]]))
        >>> posterior = pair.posterior(torch.tensor([[0.5]]), 1.0)
        >>> posterior.mean, posterior.metric.trace()  # tanh(y/σ²), and its derivative
        (tensor([[0.4621]]), tensor([0.7864]))
    """

    def __init__(self, samples: Float[Tensor, "n dim"], weights: Float[Tensor, " n"] | None = None) -> None:
        if samples.ndim != 2 or len(samples) == 0:
            raise ArgumentError("samples", "have shape (n, dim) with n at least 1", got=tuple(samples.shape))
        super().__init__(samples.shape[1], 0)
        self.samples = samples
        self.weights = torch.ones_like(samples[:, 0]) if weights is None else weights
        if self.weights.shape != samples.shape[:1] or not bool((self.weights > 0).all()):
            got = f"shape {tuple(self.weights.shape)}, smallest {float(self.weights.min())}"
            raise ArgumentError("weights", f"be {len(samples)} positive numbers", got=got)
        self.weights = self.weights / self.weights.sum()

    @property
    def dimension(self) -> int:
        """Raise: atoms have no dimension."""
        raise NotImplementedError(_NO_TANGENT)

    def _sample(self, n: int, options: Options) -> Tensor:
        weights = self.weights.to(options["device"])
        chosen = torch.multinomial(weights, n, replacement=True, generator=options["generator"])
        return self.samples[chosen.to(self.samples.device)].to(options["dtype"])

    def effective_neighbors(
        self, points: Float[Tensor, "batch dim"], bandwidth: float | Float[Tensor, " batch"]
    ) -> Float[Tensor, " batch"]:
        """Compute n_eff = 1/Σwⱼ²: how many atoms each point's posterior rests on."""
        points = checked_points(points, self.ambient_dim)
        bandwidth = checked_bandwidth(bandwidth, points)

        def count(y: Tensor, sigma: Tensor) -> Tensor:
            return self._log_joint(self._displacements(y), sigma).softmax(-1).square().sum(-1).reciprocal()

        counts: Tensor = self._in_parts(count, points, bandwidth)
        return counts

    def _in_parts(self, function: Callable[..., Any], *batches: Tensor) -> Any:
        # Displacements, and what is made of them, are alive together.
        return in_parts(function, *batches, numbers_per_item=2 * self.samples.numel())

    def _displacements(self, points: Tensor) -> Tensor:
        """Compute δⱼ = xⱼ − y. Subtracting first keeps every digit of a small distance."""
        return self.samples.to(points) - points.unsqueeze(-2)

    def _log_joint(self, displacements: Tensor, bandwidth: Tensor) -> Tensor:
        """Compute log ωⱼ − |δⱼ|²/2σ²."""
        scaled = displacements.square().sum(-1) / (2 * bandwidth.square().unsqueeze(-1))
        return self.weights.to(scaled).log() - scaled

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        log_evidence, mean, factor = self._in_parts(self._posterior_part, points, bandwidth)
        return Posterior(log_evidence, mean, LowRankMetric(factor))

    def _posterior_part(self, points: Tensor, bandwidth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        displacements = self._displacements(points)
        log_joint = self._log_joint(displacements, bandwidth)
        log_weights = log_joint.log_softmax(-1).unsqueeze(-1)
        shift = (log_weights.exp() * displacements).sum(-2)
        # √w through its logarithm: the square root of an underflow has no gradient.
        rows = (0.5 * log_weights).exp() * (displacements - shift.unsqueeze(-2)) / bandwidth[:, None, None]
        factor = rows if len(self.samples) <= self.ambient_dim else symmetric_square_root(rows.mT @ rows)
        log_constant = 0.5 * self.ambient_dim * torch.log(2 * math.pi * bandwidth.square())
        return log_joint.logsumexp(-1) - log_constant, points + shift, factor

    def _distance(self, points: Tensor) -> Tensor:
        distance: Tensor = self._in_parts(
            lambda y: torch.linalg.vector_norm(self._displacements(y), dim=-1).amin(-1), points
        )
        return distance

    def _tangent_basis(self, points: Tensor) -> NoReturn:
        raise NotImplementedError(_NO_TANGENT)
