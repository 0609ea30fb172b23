"""Finitely many atoms: a dataset, or the nodes of a quadrature."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds.arguments import checked_bandwidth, checked_points
from carre.manifolds.manifold import Manifold, Posterior
from carre.manifolds.square_root import symmetric_square_root
from carre.metric import LowRankMetric

# The largest number of coordinates x_j − y held at once: 64 MB in float64.
_CHUNK_NUMBERS = 2**23


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
            raise ValueError(f"samples must have shape (n, dim) with n at least 1; got {tuple(samples.shape)}")
        super().__init__(samples.shape[1], 0)
        self.samples = samples
        self.weights = torch.ones_like(samples[:, 0]) if weights is None else weights
        if self.weights.shape != samples.shape[:1] or not bool((self.weights > 0).all()):
            raise ValueError(
                f"weights must be {len(samples)} positive numbers; got shape {tuple(self.weights.shape)}, "
                f"smallest {float(self.weights.min())}"
            )
        self.weights = self.weights / self.weights.sum()

    @property
    def dimension(self) -> int:
        """Raise: atoms have no dimension."""
        return self._no_tangent()

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n atoms with replacement."""
        weights = self.weights if generator is None else self.weights.to(generator.device)
        chosen = torch.multinomial(weights, n, replacement=True, generator=generator)
        return self.samples[chosen.to(self.samples.device)].to(dtype)

    def effective_neighbors(
        self, points: Float[Tensor, "batch dim"], bandwidth: float | Float[Tensor, " batch"]
    ) -> Float[Tensor, " batch"]:
        """Compute n_eff = 1/Σwⱼ²: how many atoms each point's posterior rests on."""
        points = checked_points(points, self.ambient_dim)
        bandwidth = checked_bandwidth(bandwidth, points)
        counts = [
            self._log_joint(self._displacements(y), sigma).softmax(-1).square().sum(-1).reciprocal()
            for y, sigma in self._chunks(points, bandwidth)
        ]
        return torch.cat(counts)

    def _chunks(self, *arrays: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Cut the batch so that all displacements of a chunk fit in memory."""
        size = max(1, _CHUNK_NUMBERS // self.samples.numel())
        return zip(*(torch.split(array, size) for array in arrays), strict=True)

    def _displacements(self, points: Tensor) -> Tensor:
        """Compute δⱼ = xⱼ − y. Subtracting first keeps every digit of a small distance."""
        return self.samples.to(points) - points.unsqueeze(-2)

    def _log_joint(self, displacements: Tensor, bandwidth: Tensor) -> Tensor:
        """Compute log ωⱼ − |δⱼ|²/2σ²."""
        scaled = displacements.square().sum(-1) / (2 * bandwidth.square().unsqueeze(-1))
        return self.weights.to(scaled).log() - scaled

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        parts = [self._chunk_posterior(y, sigma) for y, sigma in self._chunks(points, bandwidth)]
        return Posterior(
            torch.cat([part.log_evidence for part in parts]),
            torch.cat([part.mean for part in parts]),
            LowRankMetric(torch.cat([part.metric.factor for part in parts])),
        )

    def _chunk_posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        displacements = self._displacements(points)
        log_joint = self._log_joint(displacements, bandwidth)
        log_weights = log_joint.log_softmax(-1).unsqueeze(-1)
        shift = (log_weights.exp() * displacements).sum(-2)
        # √w through its logarithm: the square root of an underflow has no gradient.
        rows = (0.5 * log_weights).exp() * (displacements - shift.unsqueeze(-2)) / bandwidth[:, None, None]
        factor = rows if len(self.samples) <= self.ambient_dim else symmetric_square_root(rows.mT @ rows)
        log_constant = 0.5 * self.ambient_dim * torch.log(2 * math.pi * bandwidth.square())
        return Posterior(log_joint.logsumexp(-1) - log_constant, points + shift, LowRankMetric(factor))

    def _distance(self, points: Tensor) -> Tensor:
        nearest = [torch.linalg.vector_norm(self._displacements(y), dim=-1).amin(-1) for (y,) in self._chunks(points)]
        return torch.cat(nearest)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        return self._no_tangent()

    def _local_dimension(self, points: Tensor) -> Tensor:
        return self._no_tangent()

    def _no_tangent(self) -> NoReturn:
        raise NotImplementedError(
            "a FiniteSet has no tangent space; ask the manifold that its samples came from, "
            "or estimate one with posterior(points, bandwidth).metric"
        )
