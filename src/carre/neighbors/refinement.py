"""From candidates, found in single precision, to the nearest neighbors."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carre.neighbors.protocol import Neighbors

_N_SCALE = 2**16
# Outliers may be this many times as far as others before they are allowed to make the unit larger: squares in float32
# end at 1e38.
_LEAST_SHARE = 1e-15
_FEWEST_SPARES = 16
_SPARE_SHARE = 8


class Refinement:
    """Coordinates in which single precision serves, and the exact order of what was found in them.

    |x|² − 2xᵀy loses all digits of a small distance far from the origin [THEORY §6.3], so searches are done
    on centered samples of unit scale, for a few more candidates than asked for; the distances of these
    are then computed from differences, in the dtype of the samples.

    Args:
        samples: The samples.
    """

    def __init__(self, samples: Float[Tensor, "n dim"]) -> None:
        self.samples = samples
        # Medians, of some of the samples: a single fill value of 1e14 would leave a mean no digits for the rest.
        some = samples[:: max(1, len(samples) // _N_SCALE)]
        self.center = some.median(0).values
        distances = torch.linalg.vector_norm(some - self.center, dim=1)
        scale = max(float(distances.median()), _LEAST_SHARE * float(distances.max()))
        self.scale = scale if 0.0 < scale < math.inf else 1.0

    def encode(self, points: Float[Tensor, "m dim"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "m dim"]:
        """Center points, divide them by the scale of the samples, and round."""
        wide = points.to(torch.promote_types(points.dtype, dtype))
        return ((wide - self.center) / self.scale).to(dtype)

    def n_candidates(self, n_neighbors: int) -> int:
        """Return how many candidates to look for, so that rounding loses none at the boundary."""
        return min(n_neighbors + n_neighbors // _SPARE_SHARE + _FEWEST_SPARES, len(self.samples))

    def refine(
        self, queries: Float[Tensor, "q dim"], candidates: Int[Tensor, "q c"], n_neighbors: int, memory: int
    ) -> Neighbors:
        """Order candidates by their exact distances and keep the nearest."""
        size = max(1, memory // (2 * candidates.shape[1] * queries.shape[1] * queries.element_size()))
        indices, distances = [], []
        for y, chosen in zip(torch.split(queries, size), torch.split(candidates, size), strict=True):
            squares = (self.samples[chosen] - y[:, None, :]).square_().sum(-1)
            nearest = squares.topk(n_neighbors, largest=False)
            indices.append(chosen.gather(1, nearest.indices))
            distances.append(nearest.values)
        return Neighbors(torch.cat(indices), torch.cat(distances))

    def is_certain(
        self,
        queries: Float[Tensor, "q dim"],
        found: Neighbors,
        worst: Float[Tensor, " q"],
        dtype: torch.dtype = torch.float32,
    ) -> Bool[Tensor, " q"]:
        """Say for which queries rounding cannot have hidden a neighbor.

        Args:
            queries: The queries, in the coordinates of the samples.
            found: Their refined neighbors.
            worst: Largest |x|² − 2xᵀy among each query's candidates, as computed in encoded coordinates.
            dtype: What it was computed in. In float64, a neighbor that is nearer by less than a millionth counts as a
                tie: samples on a grid have many of those.
        """
        encoded = self.encode(queries, torch.float64)
        norms = torch.linalg.vector_norm(encoded, dim=1)
        reach = (worst.double() + norms.square()).clamp_min(0)
        error = (2 + math.sqrt(queries.shape[1])) * torch.finfo(dtype).eps * (norms + reach.sqrt()).square()
        furthest = found.squared_distances[:, -1].double() / self.scale**2
        certain: Tensor = reach - error > furthest
        return certain | (error < 1e-6 * furthest) if dtype == torch.float64 else certain


def merge_found(found: Neighbors, better: Neighbors, where: Bool[Tensor, " q"]) -> Neighbors:
    """Replace the rows ``where`` of one answer by another's."""
    indices, distances = found.indices.clone(), found.squared_distances.clone()
    indices[where], distances[where] = better.indices, better.squared_distances
    return Neighbors(indices, distances)
