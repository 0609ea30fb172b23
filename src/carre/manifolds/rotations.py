"""The group of rotations of space."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from carre.manifolds.draws import standard_normal
from carre.manifolds.manifold import Manifold


class SpecialOrthogonal3(Manifold):
    """The uniform (Haar) distribution on SO(3), rotation matrices read row by row as points of R⁹.

    It has no closed posterior; its scalar curvature is ¾ everywhere, in the metric of R⁹.

    Example:
        >>> rotations, turned = SpecialOrthogonal3(), torch.tensor([[0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
        >>> rotations.distance(torch.cat([turned, -turned]))  # the second is a reflection
        tensor([0., 2.])
    """

    def __init__(self) -> None:
        super().__init__(9, 3)

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "{n} dim"]:
        """Draw n rotations from uniform unit quaternions."""
        draws = standard_normal(n, 4, generator=generator, dtype=dtype)
        w, x, y, z = torch.nn.functional.normalize(draws, dim=-1).unbind(-1)
        rows = [
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        ]  # fmt: skip
        return torch.stack(rows, dim=-1)

    def _tangent_basis(self, points: Tensor) -> Tensor:
        # The tangent space at Q is Q times the skew matrices, whose basis E₁₂, E₁₃, E₂₃ has norm √2.
        first, second = torch.triu_indices(3, 3, offset=1)
        skew = torch.zeros(3, 3, 3).to(points)
        skew[range(3), first, second], skew[range(3), second, first] = 1.0, -1.0
        tangents = points.reshape(-1, 1, 3, 3) @ skew / 2**0.5
        return tangents.flatten(2).mT

    def _distance(self, points: Tensor) -> Tensor:
        left, values, right = torch.linalg.svd(points.reshape(-1, 3, 3))
        # The nearest rotation flips the weakest axis where the nearest orthogonal matrix is a reflection.
        sign = torch.linalg.det(left @ right).sign()
        target = torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], dim=-1)
        distance: Tensor = torch.linalg.vector_norm(values - target, dim=-1)
        return distance
