"""An affine frame: the isotropic units, and the linear hull, that a model works in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend.rows import Samples, in_blocks
from carre.boundary import LARGE, ArgumentError
from carre.metric.spectrum import decompose

# Directions whose standard deviation is below this share of the largest are rounding of their own computation: roots
# of what second moments lose in float64. What the samples themselves have lost is counted beside it.
_RELATIVE_TOLERANCE = 1e-7
# The hull needs a decomposition of size min(n, D); beyond this it is not sought.
_LARGEST_DECOMPOSITION = 2048
# Noise alone does not pass its edge by more, but for chance.
_EDGE_SLACK = 1.02


@dataclass(frozen=True, eq=False)
class AffineFrame:
    """Coordinates u with x = center + scale·Bu, where B has orthonormal columns.

    A similarity, so it changes no angle and no ratio of lengths, and a metric G in the frame is
    BGBᵀ outside, whatever the scale. Data that lie in a proper affine subspace (constant or
    linearly dependent columns, fewer samples than columns) lose nothing in the frame of that
    subspace: the posterior of X given y depends on y only through Bᵀ(y − center), and G vanishes
    on the rest [THEORY §2d].

    Attributes:
        center: The origin of the frame.
        scale: The length of one unit of the frame, in the units of the data.
        basis: B, or None for all of R^D.

    Example:
        >>> line = torch.tensor([[1.0, 1.0, 1.0], [2.0, 3.0, 3.0], [3.0, 5.0, 5.0]])  # steps of length 3
        >>> frame = AffineFrame.of(line)
        >>> frame.hull_dim, round(frame.scale, 3)  # the rms distance from the middle is 3√(2/3)
        (1, 2.449)
        >>> bool(torch.allclose(frame.decode(frame.encode(line.double())), line.double()))
        True
    """

    center: Float[Tensor, " ambient"]
    scale: float
    basis: Float[Tensor, "ambient hull"] | None = None

    @classmethod
    def of(cls, samples: Samples, *, reduce: bool = True, noise: float = 0.0) -> AffineFrame:
        """Fit the frame: the mean, the linear hull, and one isotropic scale (rms per coordinate of the hull).

        With noise of a known deviation the hull is that of the clean samples: directions that vary no more than noise
        alone would (Marchenko and Pastur's edge) are left out.

        Example:
            >>> rng = torch.Generator().manual_seed(0)
            >>> line = torch.randn(1000, 1, generator=rng) * torch.tensor([[3.0, 4.0, 0.0, 0.0]])
            >>> noisy = line + 0.1 * torch.randn(1000, 4, generator=rng)
            >>> AffineFrame.of(noisy).hull_dim, AffineFrame.of(noisy, noise=0.1).hull_dim
            (4, 1)
        """
        sums = [(part.sum(0, dtype=torch.float64), float(part.abs().amax())) for part in in_blocks(samples)]
        center = torch.stack([total for total, _ in sums]).sum(0) / len(samples)
        rounding = 4 * torch.finfo(samples.dtype).eps * max(largest for _, largest in sums)
        seek = reduce and min(samples.shape) <= _LARGEST_DECOMPOSITION
        edge = _EDGE_SLACK * noise * (1 + math.sqrt(samples.shape[1] / len(samples)))
        basis = _hull(samples, center, max(rounding, edge)) if seek else None
        n_coordinates = samples.shape[1] if basis is None else basis.shape[1]
        energies = (part if noise == 0.0 or basis is None else part @ basis for part in _centered(samples, center))
        energy = math.fsum(float(part.square().sum()) for part in energies) / len(samples)
        scale = math.sqrt(energy / max(n_coordinates, 1))
        if n_coordinates == 0 and noise > 0 and edge > rounding:
            must = "be smaller than the samples' own deviations, or nothing is left of them"
            raise ArgumentError("noise", must, got=noise)
        if n_coordinates == 0 or scale <= rounding:
            must = "not all be the same point, nor differ by less than rounding: there is no geometry to learn"
            raise ArgumentError("samples", must, remedy="Multiply tiny units by a constant")
        return cls(center, scale, basis)

    @property
    def hull_dim(self) -> int:
        """The number of coordinates in the frame: the dimension of the linear hull, or D."""
        return self.center.shape[0] if self.basis is None else self.basis.shape[1]

    def to(self, *args: Any, **kwargs: Any) -> AffineFrame:
        """Move to a device or dtype, with the arguments of `torch.Tensor.to`."""
        basis = None if self.basis is None else self.basis.to(*args, **kwargs)
        return AffineFrame(self.center.to(*args, **kwargs), self.scale, basis)

    def encode(self, points: Float[Tensor, "*batch ambient"]) -> Float[Tensor, "*batch hull"]:
        """Express points in the frame: u = Bᵀ(x − center)/scale."""
        if points.shape[-1:] != self.center.shape:
            must = f"have {len(self.center)} numbers along their last axis"
            raise ArgumentError("points", must, got=f"shape {tuple(points.shape)}")
        centered = (points - self.center) / self.scale
        return centered if self.basis is None else centered @ self.basis

    def decode(self, coordinates: Float[Tensor, "*batch hull"]) -> Float[Tensor, "*batch ambient"]:
        """Return to the data's space: x = center + scale·Bu."""
        if coordinates.shape[-1:] != (self.hull_dim,):
            must = f"have {self.hull_dim} numbers along their last axis"
            raise ArgumentError("coordinates", must, got=f"shape {tuple(coordinates.shape)}")
        ambient = coordinates if self.basis is None else coordinates @ self.basis.mT
        return self.center + self.scale * ambient

    def project(self, points: Float[Tensor, "*batch ambient"]) -> Float[Tensor, "*batch ambient"]:
        """Take away what points have outside of the hull."""
        return points if self.basis is None else self.decode(self.encode(points))

    def lift(self, factor: Float[Tensor, "*batch rank hull"]) -> Float[Tensor, "*batch rank ambient"]:
        """Carry the factor of a metric out of the frame: FᵀF becomes BFᵀFBᵀ."""
        return factor if self.basis is None else factor @ self.basis.mT


def _centered(samples: Samples, center: Float[Tensor, " ambient"]) -> Iterator[Tensor]:
    """Yield the centered samples some at a time, in float64, which is that of the center."""
    return (part - center for part in in_blocks(samples))


def _hull(samples: Samples, center: Float[Tensor, " ambient"], least: float) -> Float[Tensor, "ambient hull"] | None:
    """Find an orthonormal basis of the linear hull by decreasing variance, or None when it is the whole space."""
    n, ambient = samples.shape
    if n <= ambient and n * ambient > LARGE:
        return _span(samples, center, least)
    if n <= ambient:
        centered = torch.cat(list(_centered(samples, center)))
        _, singular, rows = decompose(partial(torch.linalg.svd, full_matrices=False), centered)
        deviations, vectors = singular / n**0.5, rows.mT
    else:
        moments = torch.zeros(ambient, ambient, dtype=torch.float64, device=samples.device)
        for part in _centered(samples, center):
            moments += part.mT @ part
        values, vectors = decompose(torch.linalg.eigh, moments / n)
        deviations, vectors = values.clamp_min(0).sqrt().flip(0), vectors.flip(1)
    kept = deviations > _RELATIVE_TOLERANCE * deviations[0] + least
    return None if bool(kept.all()) and len(kept) == ambient else vectors[:, kept]


def _span(samples: Samples, center: Float[Tensor, " ambient"], least: float) -> Float[Tensor, "ambient hull"]:
    """Find the hull of long samples from their products with each other: they themselves are held a few at a time."""
    n = len(samples)
    products = torch.cat(
        [torch.cat([left @ right.mT for right in _centered(samples, center)], 1) for left in _centered(samples, center)]
    )
    values, vectors = torch.linalg.eigh(products)
    deviations = (values / n).clamp_min(0).sqrt()
    kept = deviations > _RELATIVE_TOLERANCE * deviations[-1] + least
    weights = (vectors[:, kept] / values[kept].sqrt()).flip(1)
    rows, start = weights.new_zeros(weights.shape[1], samples.shape[1]), 0
    for part in _centered(samples, center):
        rows += weights[start : (start := start + len(part))].mT @ part
    # The least of them have lost digits to the largest, and are orthogonal to them again.
    triangular = torch.linalg.cholesky(rows @ rows.mT)
    orthonormal: Tensor = torch.linalg.solve_triangular(triangular, rows, upper=False).mT
    return orthonormal
