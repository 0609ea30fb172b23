"""Images whose tangent spaces are known: a blob of light somewhere in the dark."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_images, is_integer
from carre.fields import Bandwidth, NoDenoiserError
from carre.metric import LowRankMetric

# Blobs keep so many of their radii away from the border.
_MARGIN = 2.0


@dataclass(frozen=True, eq=False)
class Blobs:
    """Images of one Gaussian blob each, a manifold of dimension 3: place and width.

    Attributes:
        images: The images.
        tangents: At each image an orthonormal basis of its tangent space, in rows.

    Example:
        >>> blobs = Blobs.of(torch.tensor([[4.0, 7.0, 1.5], [8.0, 8.0, 2.0]]), side=12)
        >>> blobs.images.shape, blobs.tangents.shape
        (torch.Size([2, 1, 12, 12]), torch.Size([2, 3, 144]))
        >>> blobs.images[0, 0, 4, 7]  # the middle
        tensor(4.)
    """

    images: Float[Tensor, "n 1 side side"]
    tangents: Float[Tensor, "n 3 dim"]

    @classmethod
    def of(cls, parameters: Float[Tensor, "n 3"], *, side: int = 16, brightness: float = 4.0) -> Blobs:
        """Make the images of blobs of given row, column and width, all in pixels.

        Args:
            parameters: Row and column of the middle, and the deviation.
            side: Pixels of a side.
            brightness: The value at the middle of a blob; the dark is 0.
        """
        ticks = torch.arange(side, dtype=parameters.dtype)
        grid = torch.stack(torch.meshgrid(ticks, ticks, indexing="ij"), -1).reshape(1, -1, 2)
        offset = (grid - parameters[:, None, :2]) / parameters[:, None, 2:]
        values = brightness * torch.exp(-0.5 * offset.square().sum(-1))
        # Derivatives by the place and the width, up to a factor: x·u and x·|u|² with u the offset in widths.
        derivatives = values[:, None] * torch.cat([offset.mT, offset.square().sum(-1)[:, None]], 1)
        return cls(values.reshape(-1, 1, side, side), torch.linalg.qr(derivatives.mT)[0].mT)


def draw_blobs(
    n: int,
    *,
    side: int = 16,
    widths: tuple[float, float] = (1.5, 2.5),
    brightness: float = 4.0,
    generator: torch.Generator | None = None,
) -> Blobs:
    """Draw images of a Gaussian blob of random place and width, with the tangent spaces that they have.

    Args:
        n: How many.
        side: Pixels of a side.
        widths: The range of the deviation of a blob, in pixels.
        brightness: The value at the middle of a blob; the dark is 0.
        generator: Source of the draws.

    Example:
        >>> blobs = draw_blobs(3, generator=torch.Generator().manual_seed(0))
        >>> gram = blobs.tangents @ blobs.tangents.mT
        >>> bool(torch.allclose(gram, torch.eye(3).expand(3, 3, 3), atol=1e-5))
        True
    """
    if not is_integer(n) or n < 1 or not is_integer(side):
        raise ValueError(f"n and side must be whole numbers, n at least 1; got {n!r} and {side!r}")
    if not isinstance(widths, (tuple, list)) or len(widths) != 2 or not 0 < widths[0] <= widths[1]:
        raise ValueError(f"widths must be two positive numbers, the smaller one first; got {widths}")
    if not 0 < brightness < math.inf:
        raise ValueError(f"brightness must be positive and finite; got {brightness}")
    low, high = widths
    edge = _MARGIN * high
    if side < 2 * edge + 1:
        raise ValueError(f"side must leave room for a blob, {2 * edge + 1:g} pixels; got {side}")
    least = torch.tensor([edge, edge, low])
    span = torch.tensor([side - 1 - 2 * edge, side - 1 - 2 * edge, high - low])
    return Blobs.of(least + span * torch.rand(n, 3, generator=generator), side=side, brightness=brightness)


class BlobField:
    """The exact tangent projector at images of blobs, and only there.

    Args:
        blobs: The images, with their tangent spaces.

    Example:
        >>> blobs = draw_blobs(4, generator=torch.Generator().manual_seed(0))
        >>> metric = BlobField(blobs).metric(blobs.images[2:].flatten(1), 0.1)
        >>> metric.trace()
        tensor([3.0000, 3.0000])
    """

    def __init__(self, blobs: Blobs) -> None:
        self._known, self._tangents = as_images(blobs.images).tensor, blobs.tangents

    @property
    def dim(self) -> int:
        """The number of pixels."""
        return self._known.shape[1]

    def metric(self, points: Float[Tensor, "n dim"], bandwidth: Bandwidth) -> LowRankMetric:
        """Look the tangent projector up, whatever the bandwidth."""
        known = self._known.to(points)
        # By differences: the faster formula, with products, rounds too much to find the same numbers again.
        nearest = torch.cdist(points, known, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
        if not bool((points == known[nearest]).all()):
            raise ValueError("points must be images of the blobs that this field was made of; some are others")
        return LowRankMetric(self._tangents.to(points)[nearest])

    def denoise(self, points: Float[Tensor, "n dim"], bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Refuse: only tangent spaces are known."""
        raise NoDenoiserError("this field knows tangent spaces only, and has no denoiser")
