"""Unions of manifolds in one space, and Gaussian mixtures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.manifolds.arguments import checked_bandwidth, checked_points
from carre.manifolds.gaussian import Gaussian
from carre.manifolds.manifold import Manifold, Posterior
from carre.metric import LowRankMetric


class Union(Manifold):
    """A mixture of components that share the ambient space and may differ in dimension [THEORY §2b, f].

    Args:
        components: The manifolds.
        weights: Their probabilities, up to a common factor; equal by default.

    Example:
        >>> from carre.manifolds import Sphere, SubspaceGaussian
        >>> line = SubspaceGaussian(torch.eye(3)[:, 2:], torch.tensor([9.0]))
        >>> union = Union([Sphere(2), line])
        >>> union.local_dimension(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 3.0]]))
        tensor([2, 1])
    """

    def __init__(self, components: Sequence[Manifold], weights: Sequence[float] | None = None) -> None:
        if not components:
            raise ValueError("components must hold at least one manifold; got none")
        widths = [component.ambient_dim for component in components]
        if len(set(widths)) > 1:
            raise ValueError(
                f"components must share one ambient dimension; got {widths}. "
                f"Place them in one space with component.embed({max(widths)})"
            )
        weights = [1.0] * len(components) if weights is None else list(weights)
        if len(weights) != len(components) or not all(weight > 0 for weight in weights):
            raise ValueError(f"weights must be {len(components)} positive numbers; got {weights}")
        super().__init__(widths[0], 0)
        self.components = tuple(components)
        self.weights = torch.tensor(weights, dtype=torch.float64) / sum(weights)

    @property
    def dimension(self) -> int:
        """The dimension that all components share; an error where they do not."""
        dimensions = [component.dimension for component in self.components]
        if len(set(dimensions)) > 1:
            raise ValueError(
                f"components must share one dimension for this; got {dimensions}. "
                "Use local_dimension(points) and tangent_projector(points)"
            )
        return dimensions[0]

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n points, each from a component drawn by its weight."""
        weights = self.weights if generator is None else self.weights.to(generator.device)
        labels = torch.multinomial(weights, n, replacement=True, generator=generator)
        points = torch.empty(n, self.ambient_dim, dtype=dtype, device=labels.device)
        for k, component in enumerate(self.components):
            chosen = labels == k
            if bool(chosen.any()):
                points[chosen] = component.sample(int(chosen.sum()), generator=generator, dtype=dtype)
        return points

    def component(self, points: Float[Tensor, "batch dim"]) -> Int[Tensor, " batch"]:
        """Tell which component each clean point belongs to: the nearest.

        Where components overlap the first in the list is named; ask `responsibilities` there.
        """
        points = checked_points(points, self.ambient_dim)
        distances = torch.stack([component._distance(points) for component in self.components])
        return distances.argmin(0)

    def responsibilities(
        self, points: Float[Tensor, "batch dim"], bandwidth: float | Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch components"]:
        """Compute the posterior probability of every component given Y = y."""
        points = checked_points(points, self.ambient_dim)
        bandwidth = checked_bandwidth(bandwidth, points)
        parts = [component._posterior(points, bandwidth) for component in self.components]
        return self._log_joint(parts).softmax(0).mT

    def purity(
        self, points: Float[Tensor, "batch dim"], bandwidth: float | Float[Tensor, " batch"]
    ) -> Float[Tensor, " batch"]:
        """Compute the largest responsibility: near 1 where one component alone shapes G."""
        return self.responsibilities(points, bandwidth).amax(-1)

    def _log_joint(self, parts: list[Posterior]) -> Tensor:
        log_evidence = torch.stack([part.log_evidence for part in parts])
        return log_evidence + self.weights.to(log_evidence).log().unsqueeze(-1)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        out = points.new_empty(len(points), self.ambient_dim, self.dimension)
        for chosen, component in self._groups(points):
            out[chosen] = component._tangent_basis(points[chosen])
        return out

    def _tangent_projector(self, points: Tensor) -> Tensor:
        out = points.new_empty(len(points), self.ambient_dim, self.ambient_dim)
        for chosen, component in self._groups(points):
            out[chosen] = component._tangent_projector(points[chosen])
        return out

    def _groups(self, points: Tensor) -> list[tuple[Tensor, Manifold]]:
        """Pair every component with the mask of the points that belong to it."""
        labels = self.component(points)
        return [(labels == k, component) for k, component in enumerate(self.components)]

    def _local_dimension(self, points: Tensor) -> Tensor:
        choices = torch.stack([component._local_dimension(points) for component in self.components])
        return choices.gather(0, self.component(points).unsqueeze(0)).squeeze(0)

    def _distance(self, points: Tensor) -> Tensor:
        return torch.stack([component._distance(points) for component in self.components]).amin(0)

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        parts = [component._posterior(points, bandwidth) for component in self.components]
        log_joint = self._log_joint(parts)
        log_shares = log_joint.log_softmax(0)
        means = torch.stack([part.mean for part in parts])
        mean = (log_shares.exp().unsqueeze(-1) * means).sum(0)
        # √share through its logarithm: the square root of an underflow has no gradient.
        roots = (0.5 * log_shares).exp()[..., None, None]
        within = [root * part.metric.factor for root, part in zip(roots, parts, strict=True)]
        between = roots.squeeze(-1) * (means - mean) / bandwidth.unsqueeze(-1)
        factor = torch.cat([*within, between.transpose(0, 1)], dim=1)
        return Posterior(log_joint.logsumexp(0), mean, LowRankMetric(factor))


def gaussian_mixture(
    means: Float[Tensor, "components dim"],
    covariances: Float[Tensor, "components dim dim"],
    weights: Sequence[float] | None = None,
) -> Union:
    """Build a mixture of Gaussians, whose covariances may be singular.

    Example:
        >>> pair = gaussian_mixture(torch.tensor([[-2.0], [2.0]]), 0.25 * torch.ones(2, 1, 1))
        >>> pair.posterior(torch.zeros(1, 1), 0.5).metric.trace()  # each has ½; between them X may be either
        tensor([4.5000])
    """
    if len(means) != len(covariances):
        raise ValueError(f"covariances must be one per mean, {len(means)}; got {len(covariances)}")
    components = [Gaussian(mean, covariance) for mean, covariance in zip(means, covariances, strict=True)]
    return Union(components, weights)
