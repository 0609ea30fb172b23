"""Scales that follow the density of the samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.neighbors import NeighborIndex

# The root mean square distance is taken to this many neighbors [THEORY §5].
N_DENSITY_NEIGHBORS = 8
# A sample with more copies than that gets this share of the mean distance.
_LEAST_RATIO = 1e-6


@dataclass(frozen=True, eq=False)
class LocalScale:
    """b/b̄, where b is the root mean square distance to the 8 nearest other samples and b̄ its geometric mean.

    Attributes:
        ratios: b/b̄ of every sample.
        mean: b̄.
    """

    ratios: Float[Tensor, " n"]
    mean: float

    @classmethod
    def of(cls, index: NeighborIndex) -> LocalScale:
        """Measure all samples of an index."""
        count = min(N_DENSITY_NEIGHBORS, index.n_samples - 1)
        distances = index.search(index.samples, count + 1).squared_distances[:, 1:].mean(1).sqrt()
        positive = distances[distances > 0]
        if len(positive) == 0:
            raise ValueError(
                f"samples must not all have {count} copies of themselves for an adaptive kernel: there is no density "
                "to follow. Drop the duplicates"
            )
        mean = float(positive.double().log().mean().exp())
        return cls((distances / mean).clamp_min(_LEAST_RATIO), mean)

    def at(self, points: Float[Tensor, "m dim"], near: Float[Tensor, "m k dim"]) -> Float[Tensor, " m"]:
        """Compute b/b̄ at points from the samples nearest to them."""
        squares = (near - points[:, None, :]).square().sum(-1).mean(1) / self.mean**2
        return torch.clamp_min(squares, _LEAST_RATIO**2).sqrt()
