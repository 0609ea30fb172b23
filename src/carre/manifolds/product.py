"""Products of independent manifolds: flat tori, cylinders, boxes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds.arguments import checked_positive
from carre.manifolds.gaussian import Gaussian
from carre.manifolds.interval import Interval
from carre.manifolds.manifold import Manifold, Posterior
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
            raise ValueError("components must hold at least one manifold; got none")
        self.components = tuple(components)
        self._widths = [component.ambient_dim for component in self.components]
        super().__init__(sum(self._widths), 0)

    @property
    def dimension(self) -> int:
        """The sum of the components' dimensions."""
        return sum(component.dimension for component in self.components)

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n points."""
        parts = [component.sample(n, generator=generator, dtype=dtype) for component in self.components]
        return torch.cat(parts, dim=-1)

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
            raise ValueError("radii must hold at least one number; got none")
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
            raise ValueError(f"lows and highs must have the same length, at least 1; got {len(lows)} and {len(highs)}")
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
