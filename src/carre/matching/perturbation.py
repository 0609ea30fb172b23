"""The sampler's record: noisy points, and the displacements whose outer products are their target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Perturbation:
    """Noisy points with what is to be learned at them.

    Given y, each displacement is a draw of (X − c)/σ from the posterior of X, where c is y itself
    or, when centered, an estimate of E[X | Y=y]. The average of their outer products is an unbiased
    target for G.

    Attributes:
        points: y = x + σz.
        bandwidth: σ, one per point.
        displacement: δ = (x − c)/σ, one or several per point.
        mean_target: An unbiased estimate of E[X | Y=y]: x itself, or the mean over a reference set.

    Example:
        >>> batch = perturb(torch.zeros(5, 2), torch.full((5,), 0.1))
        >>> known = batch.centered(torch.zeros(5, 2))  # the data are one point: its posterior has no spread
        >>> bool((known.displacement.abs() < 1e-6).all())
        True
    """

    points: Float[Tensor, "batch dim"]
    bandwidth: Float[Tensor, " batch"]
    displacement: Float[Tensor, "batch draws dim"]
    mean_target: Float[Tensor, "batch dim"]

    def centered(self, mean: Float[Tensor, "batch dim"]) -> Perturbation:
        """Measure the displacements from an estimate m̂ of E[X | Y=y] instead of y [RMM, Sec. 3.2].

        No gradient flows into the estimate: the loss without its constant is unbounded in m̂
        [THEORY §3.5]. An error of m̂ inflates G by (m − m̂)(m − m̂)ᵀ/σ², to second order only.
        """
        shift = (self.points - mean.detach()) / self.bandwidth[:, None]
        return Perturbation(self.points, self.bandwidth, self.displacement + shift[:, None, :], self.mean_target)

    def image(self, function: Callable[[Tensor], Tensor]) -> Perturbation:
        """See the record through a map φ of points to R^k: φ(y) for y, φ(x) for x [RMM, Alg. 1].

        What was learned of X − y is then learned of φ(X) − φ(y): the second moments of its displacements over 2 are the
        carré du champ of the components of φ, and centered at E[φ(X) | Y=y] those of the covariance.
        """
        n, draws, dim = self.displacement.shape
        samples = self.points[:, None, :] + self.bandwidth[:, None, None] * self.displacement
        with torch.no_grad():
            points, values = function(self.points), function(samples.reshape(-1, dim)).reshape(n, draws, -1)
        displacement = (values - points[:, None, :]) / self.bandwidth[:, None, None]
        return Perturbation(points, self.bandwidth, displacement, values.mean(1))

    def tensors(self) -> list[Tensor]:
        """List the tensors, for copying a record into another."""
        return [self.points, self.bandwidth, self.displacement, self.mean_target]


def perturb(
    samples: Float[Tensor, "batch dim"],
    bandwidth: Float[Tensor, " batch"],
    *,
    generator: torch.Generator | None = None,
) -> Perturbation:
    """Add noise of standard deviation σ: y = x + σz, δ = −z (never (x − y)/σ, which cancels).

    Example:
        >>> x, sigma = torch.ones(5, 2), torch.full((5,), 0.1)
        >>> batch = perturb(x, sigma)
        >>> bool(torch.allclose(batch.points + 0.1 * batch.displacement[:, 0], x))
        True
    """
    noise = torch.randn(samples.shape, generator=generator, device=samples.device, dtype=samples.dtype)
    points = samples + bandwidth[:, None] * noise
    return Perturbation(points, bandwidth, -noise[:, None, :], samples)
