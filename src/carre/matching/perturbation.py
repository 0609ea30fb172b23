"""The sampler's record: noisy points, and the displacements whose outer products are their target.

Targets averaged over a reference set have the same expectation, with less noise [THEORY §3.8].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
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
    samples: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"], *, generator: torch.Generator | None = None
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


def perturb_among(
    references: Float[Tensor, "n dim"],
    source: Int[Tensor, " batch"],
    bandwidth: Float[Tensor, " batch"],
    *,
    n_draws: int,
    generator: torch.Generator | None = None,
) -> Perturbation:
    """Add noise to some of the references, then redraw which of them each noisy point came from.

    Given y, its source is x_j with probability w_j ∝ exp(−|x_j − y|²/2σ²). The mean target is Σ w_j x_j
    and the displacements are ``n_draws`` draws from w: both unbiased whatever the size of the set, as
    long as the true source belongs to it (Rao–Blackwell; THEORY, App. A3). Where no other sample is
    near, w is one-hot and this is plain `perturb`.

    Args:
        references: The whole dataset, or independent draws from it.
        source: Which references to perturb.
        bandwidth: σ, one per source.
        n_draws: Displacements per noisy point.
        generator: Source of randomness.

    Example:
        >>> pair = torch.tensor([[-1.0], [1.0]])
        >>> batch = perturb_among(pair, torch.tensor([0, 1]), torch.tensor([1.0, 1.0]), n_draws=3)
        >>> bool(torch.allclose(batch.mean_target, batch.points.tanh(), atol=1e-5))  # tanh(y/σ²)
        True
    """
    points = perturb(references[source], bandwidth, generator=generator).points
    weights = source_posterior(points, references, bandwidth)
    # Inverse transform sampling: it can be captured in a CUDA graph, unlike torch.multinomial.
    cumulative = weights.cumsum(1)
    levels = 1 - torch.rand((len(points), n_draws), generator=generator, device=points.device, dtype=points.dtype)
    drawn = torch.searchsorted(cumulative, levels * cumulative[:, -1:]).clamp(max=len(references) - 1)
    displacement = (references[drawn] - points[:, None, :]) / bandwidth[:, None, None]
    # In full precision also where products of float32 are rounded to TF32 (see below).
    wide = _product_dtype(points)
    mean_target = (weights.to(wide) @ references.to(wide)).to(points.dtype)
    return Perturbation(points, bandwidth, displacement, mean_target)


def source_posterior(
    points: Float[Tensor, "batch dim"], references: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " batch"]
) -> Float[Tensor, "batch n"]:
    """Compute P(X = x_j | Y = y) for a uniform prior on the references."""
    # −|x − y|²/2σ² up to a constant in x, as one product [y/σ², 1/σ²]·[x, −|x|²/2]. Centered first: far from the
    # origin the squares would cancel to nothing in float32.
    wide, center = _product_dtype(points), references.mean(0)
    x, y = (references - center).to(wide), (points - center).to(wide)
    precision = bandwidth.to(wide).square().reciprocal()[:, None]
    left = torch.cat([y * precision, precision], 1)
    right = torch.cat([x, -0.5 * x.square().sum(1, keepdim=True)], 1)
    return torch.softmax(left @ right.mT, 1).to(points.dtype)


def _product_dtype(points: Tensor) -> torch.dtype:
    """Return float64 on a GPU: TF32, if it is switched on, keeps 10 bits where the exponents need 20."""
    return torch.float64 if points.is_cuda else points.dtype
