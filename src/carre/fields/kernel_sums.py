"""Sums over the samples around a point, weighted by a Gaussian kernel; one block of samples at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the samples, seen from each point.

    Attributes:
        displacements: δⱼ = xⱼ − y. Subtracting first keeps every digit of a small distance [THEORY §6.2].
        logits: log wⱼ up to a constant per point.
    """

    displacements: Float[Tensor, "points block dim"]
    logits: Float[Tensor, "points block"]


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """The samples that a chunk of points sums over. Iterating yields them block by block, as often as needed.

    Attributes:
        points: y.
        bandwidth: σ at each point.
        base: σ as the caller gave it; it differs from ``bandwidth`` where that adapts to the density.
        samples: All samples.
        ratios: σ of each sample over ``base``; None where the kernel has one σ.
        indices: Which samples belong to each point; None for all of them.
        leave_out: Whether a sample identical to the point (one at most) is left out of a sum over all samples.
        block: How many samples to hold at once in a sum over all of them.
    """

    points: Float[Tensor, "points dim"]
    bandwidth: Float[Tensor, " points"]
    base: Float[Tensor, " points"]
    samples: Float[Tensor, "n dim"]
    ratios: Float[Tensor, " n"] | None = None
    indices: Int[Tensor, "points k"] | None = None
    leave_out: bool = False
    block: int = 1

    def __iter__(self) -> Iterator[Block]:
        if self.indices is not None:
            displacements = self.samples[self.indices] - self.points[:, None, :]
            yield Block(displacements, self._logits(displacements.square().sum(-1), self.indices))
            return
        pending = torch.full_like(self.points[:, 0], self.leave_out, dtype=torch.bool)
        for start in range(0, len(self.samples), self.block):
            columns = slice(start, start + self.block)
            displacements = self.samples[columns] - self.points[:, None, :]
            squares = displacements.square().sum(-1)
            logits = self._logits(squares, columns)
            if self.leave_out:
                same = (squares == 0) & pending[:, None]
                # Finite, so that a block of nothing else has no 0/0; it weighs nothing beside any other.
                logits = torch.where(same & (same.cumsum(1) == 1), torch.finfo(logits.dtype).min / 4, logits)
                pending = pending & ~same.any(1)
            yield Block(displacements, logits)

    def _logits(self, squares: Float[Tensor, "points block"], which: Tensor | slice) -> Float[Tensor, "points block"]:
        own, base = self.bandwidth[:, None], self.base[:, None]
        return -squares / (2 * own * (base if self.ratios is None else base * self.ratios[which]))

    @property
    def n_summed(self) -> int:
        """How many samples each sum has."""
        return len(self.samples) if self.indices is None else self.indices.shape[1]


@dataclass(frozen=True, eq=False)
class Moments:
    """The normalization and the first moments of the weights w.

    Attributes:
        log_total: log Σ exp(logits).
        shift: Σ wⱼδⱼ, so that the posterior mean is y + shift.
        log_square: log Σ wⱼ².
    """

    log_total: Float[Tensor, " points"]
    shift: Float[Tensor, "points dim"]
    log_square: Float[Tensor, " points"]


def first_moments(neighborhood: Neighborhood) -> Moments:
    """Normalize the weights and average the displacements in one pass, by streaming log-sum-exp."""
    log_total, shift, log_square = None, neighborhood.points, neighborhood.bandwidth
    for block in neighborhood:
        block_total = block.logits.logsumexp(1)
        block_square = (2 * block.logits).logsumexp(1)
        block_shift = torch.einsum("nb,nbd->nd", block.logits.softmax(1), block.displacements)
        if log_total is None:
            log_total, shift, log_square = block_total, block_shift, block_square
            continue
        log_total = torch.logaddexp(log_total, block_total)
        shift = shift + (block_total - log_total).exp()[:, None] * (block_shift - shift)
        log_square = torch.logaddexp(log_square, block_square)
    assert log_total is not None
    return Moments(log_total, shift, log_square - 2 * log_total)


def factor_rows(
    neighborhood: Neighborhood, moments: Moments, *, centered: bool
) -> Iterator[Float[Tensor, "points block dim"]]:
    """Yield the rows √wⱼ(δⱼ − δ̄)/σ, or √wⱼδⱼ/σ, whose outer products sum to the metric."""
    for block in neighborhood:
        # √w through its logarithm: the square root of an underflow has no gradient.
        roots = (0.5 * (block.logits - moments.log_total[:, None])).exp() / neighborhood.bandwidth[:, None]
        rows = block.displacements - moments.shift[:, None, :] if centered else block.displacements
        yield roots[:, :, None] * rows
