"""Manifolds made of others: products (flat tori, cylinders, boxes), unions and Gaussian mixtures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import ArgumentError
from carre.manifolds.flat import Gaussian, Interval
from carre.manifolds.manifold import Manifold, Options, Posterior, checked_bandwidth, checked_points, checked_positive
from carre.manifolds.sphere import Sphere
from carre.metric import LowRankMetric


class Product(Manifold):
    """Independent components side by side: log-evidences add, means concatenate, G is block diagonal.

    Example:
        >>> ring = Product([Sphere(1), Interval(0.0, 1.0)])
        >>> ring.dimension, ring.ambient_dim
        (2, 3)
        >>> ring.distance(torch.tensor([[4.0, 0.0, 5.0]]))  # 3 from the circle, 4 from the interval
        tensor([5.])
    """

    def __init__(self, components: Sequence[Manifold]) -> None:
        if not components:
            raise ArgumentError("components", "hold at least one manifold", got="none")
        self.components = tuple(components)
        self._widths = [component.ambient_dim for component in self.components]
        super().__init__(sum(self._widths), 0)

    @property
    def dimension(self) -> int:
        """The sum of the components' dimensions."""
        return sum(component.dimension for component in self.components)

    def _sample(self, n: int, options: Options) -> Tensor:
        return torch.cat([component._sample(n, options) for component in self.components], dim=-1)

    def _pairs(self, points: Tensor) -> list[tuple[Manifold, Tensor]]:
        return list(zip(self.components, torch.split(points, self._widths, dim=-1), strict=True))

    def _tangent_basis(self, points: Tensor) -> Tensor:
        return _block_diagonal([component._tangent_basis(part) for component, part in self._pairs(points)])

    def _tangent_projector(self, points: Tensor) -> Tensor:
        return _block_diagonal([component._tangent_projector(part) for component, part in self._pairs(points)])

    def _local_dimension(self, points: Tensor) -> Tensor:
        return torch.stack([component._local_dimension(part) for component, part in self._pairs(points)]).sum(0)

    def _distance(self, points: Tensor) -> Tensor:
        distances = [component._distance(part) for component, part in self._pairs(points)]
        distance: Tensor = torch.linalg.vector_norm(torch.stack(distances), dim=0)
        return distance

    def _posterior(self, points: Tensor, bandwidth: Tensor) -> Posterior:
        parts = [component._posterior(part, bandwidth) for component, part in self._pairs(points)]
        return Posterior(
            torch.stack([part.log_evidence for part in parts]).sum(0),
            torch.cat([part.mean for part in parts], dim=-1),
            LowRankMetric(_block_diagonal([part.metric.factor for part in parts])),
        )


class CliffordTorus(Product):
    """The flat torus: a product of circles of the given radii, in R^{2k}.

    Example:
        >>> torus = CliffordTorus([3.0, 4.0])
        >>> torus.dimension, torus.distance(torch.zeros(1, 4))
        (2, tensor([5.]))
    """

    def __init__(self, radii: Sequence[float]) -> None:
        if not radii:
            raise ArgumentError("radii", "hold at least one number", got="none")
        if not min(radii) > 0:
            raise ArgumentError("radii", "be positive", got=list(radii))
        super().__init__([Sphere(1, radius) for radius in radii])


class Cylinder(Product):
    """A circle times a Gaussian line of standard deviation ``deviation``, in R³.

    Example:
        >>> cylinder = Cylinder()
        >>> cylinder.tangent_projector(torch.tensor([[1.0, 0.0, 0.0]])).abs()
        tensor([[[0., 0., 0.],
                 [0., 1., 0.],
                 [0., 0., 1.]]])
    """

    def __init__(self, radius: float = 1.0, deviation: float = 1.0) -> None:
        variance = checked_positive("deviation", deviation) ** 2
        line = Gaussian(torch.zeros(1).double(), torch.full((1, 1), variance).double())
        super().__init__([Sphere(1, radius), line])


class Box(Product):
    """The uniform distribution on a box, a product of intervals: flat, with faces, edges and corners.

    Example:
        >>> square, edge = Box([0.0, 0.0], [1.0, 1.0]), torch.tensor([[0.0, 0.5]])
        >>> square.posterior(edge, 0.01).metric.eigenvalues().round(decimals=3)  # across the edge 1 − 2/π
        tensor([[1.0000, 0.3630]])
    """

    def __init__(self, lows: Sequence[float], highs: Sequence[float]) -> None:
        if len(lows) != len(highs) or not lows:
            got = f"{len(lows)} and {len(highs)}"
            raise ArgumentError("lows and highs", "have the same length, at least 1", got=got)
        if any(not low < high for low, high in zip(lows, highs, strict=True)):
            raise ArgumentError("lows", "be below highs", got=f"{list(lows)} and {list(highs)}")
        super().__init__([Interval(low, high) for low, high in zip(lows, highs, strict=True)])


def _block_diagonal(blocks: list[Tensor]) -> Tensor:
    """Place a batch of matrices along the diagonal of a larger one."""
    width = sum(block.shape[-1] for block in blocks)
    rows, start = [], 0
    for block in blocks:
        end = start + block.shape[-1]
        rows.append(torch.nn.functional.pad(block, (start, width - end)))
        start = end
    return torch.cat(rows, dim=-2)


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
            raise ArgumentError("components", "hold at least one manifold", got="none")
        widths = [component.ambient_dim for component in components]
        if len(set(widths)) > 1:
            remedy = f"Place them in one space with component.embed({max(widths)})"
            raise ArgumentError("components", "share one ambient dimension", got=widths, remedy=remedy)
        weights = [1.0] * len(components) if weights is None else list(weights)
        if len(weights) != len(components) or not all(weight > 0 for weight in weights):
            raise ArgumentError("weights", f"be {len(components)} positive numbers", got=weights)
        super().__init__(widths[0], 0)
        self.components = tuple(components)
        self.weights = torch.tensor(weights, dtype=torch.float64) / sum(weights)

    @property
    def dimension(self) -> int:
        """The dimension that all components share; an error where they do not."""
        dimensions = [component.dimension for component in self.components]
        if len(set(dimensions)) > 1:
            remedy = "Use local_dimension(points) and tangent_projector(points)"
            raise ArgumentError("components", "share one dimension for this", got=dimensions, remedy=remedy)
        return dimensions[0]

    def _sample(self, n: int, options: Options) -> Tensor:
        weights = self.weights.to(options["device"])
        labels = torch.multinomial(weights, n, replacement=True, generator=options["generator"])
        points = torch.empty(n, self.ambient_dim, dtype=options["dtype"], device=labels.device)
        for k, component in enumerate(self.components):
            chosen = labels == k
            if bool(chosen.any()):
                points[chosen] = component._sample(int(chosen.sum()), options)
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
        raise ArgumentError("covariances", f"be one per mean, {len(means)}", got=len(covariances))
    components = [Gaussian(mean, covariance) for mean, covariance in zip(means, covariances, strict=True)]
    return Union(components, weights)
