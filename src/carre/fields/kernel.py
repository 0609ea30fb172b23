"""The classical carré du champ: sums over the samples around a point, weighted by a Gaussian kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.arguments import as_kind
from carre.backend import checked_memory, full_precision, outside, working_memory
from carre.boundary import ArgumentError, as_points, check_size
from carre.fields._compression import compress
from carre.fields.field import Bandwidth, Field
from carre.metric import LowRankMetric
from carre.neighbors import NeighborIndex, build_index, measure_recall
from carre.neighbors.engines import checked_kind
from carre.neighbors.index import checked_count

_N_PROBES = 8
# Displacements, rows, and rows in float64 are alive together.
_COPIES = 6
# The root mean square distance is taken to this many neighbors [THEORY §5].
_N_DENSITY_NEIGHBORS = 8
# A sample with more copies than that gets this share of the mean distance.
_LEAST_RATIO = 1e-6
# In squared distances to a sample.
_LEAST_VARIANCE = 1e-30


class KernelField(Field):
    """The metric of a dataset by a weighted local covariance, from all samples or the nearest ones [THEORY §2e, §5].

    At a point y, wⱼ ∝ exp(−|xⱼ−y|²/2σ²) and G = Σ wⱼ(xⱼ−m)(xⱼ−m)ᵀ/σ² with m = Σ wⱼxⱼ: the exact minimizer of
    the matching losses on the samples, and the paper's baseline. Keeping only the k nearest samples shrinks G
    by a factor that `truncation` reports. Neighbors are held fixed in derivatives.

    Args:
        samples: The dataset.
        n_neighbors: k, or None for the sum over all samples.
        centered: Subtract the mean (the covariance), or not: the paper's 2Γ = G + (m−y)(m−y)ᵀ/σ².
        self_neighbor: What to do with a sample that equals the query, one at most. "keep" is right for new points;
            "drop" leaves it out, right at the samples themselves, where keeping it shrinks G.
        adaptive: Let σ follow the density: wᵢⱼ ∝ exp(−|xⱼ−y|²/2σᵢσⱼ) with σᵢ = bandwidth·bᵢ/b̄, and divide G by
            σᵢΣⱼwⱼσⱼ; b is the root mean square distance to the 8 nearest other samples and b̄ its geometric mean.
            This is the kernel exp(−d²/(ε bᵢbⱼ)) of diffusion geometry with ε = 2·bandwidth²/b̄², which divides by
            σᵢ² = εbᵢ²/2; that is no variance of its weights.
        index: How to find neighbors: a name for `carre.neighbors.build_index`, or an index of the same samples.
        rank: Keep this many leading directions; all of them by default.
        memory: Bytes that temporary results may take; by default a share of what is free.

    Example:
        >>> angle = torch.arange(1000, dtype=torch.float64) * (2 * torch.pi / 1000)
        >>> field = KernelField(torch.stack([angle.cos(), angle.sin()], 1), n_neighbors=200)
        >>> field.metric(torch.tensor([[1.0, 0.0]], dtype=torch.float64), 0.1).eigenvalues().round(decimals=1)
        tensor([[1., 0.]], dtype=torch.float64)
    """

    def __init__(
        self,
        samples: Any,
        *,
        n_neighbors: int | None = None,
        centered: bool = True,
        self_neighbor: str = "keep",
        adaptive: bool = False,
        index: str | NeighborIndex = "auto",
        rank: int | None = None,
        memory: int | None = None,
    ) -> None:
        self.samples = as_points(samples, name="samples").tensor.detach()
        check_size(self.samples, "samples")
        self.n_samples, self.dim = self.samples.shape
        if self_neighbor not in ("keep", "drop"):
            raise ArgumentError("self_neighbor", "be 'keep' or 'drop'", got=repr(self_neighbor))
        self.centered, self.self_neighbor, self.adaptive = centered, self_neighbor, adaptive
        self.n_neighbors = self._checked_neighbors(n_neighbors)
        if rank is not None and not 1 <= rank <= self.dim:
            raise ArgumentError("rank", f"lie between 1 and {self.dim}, the number of columns", got=rank)
        self.rank, self.memory = rank, checked_memory(memory)
        self._ready = None if isinstance(index, str) else _checked_index(index, self.samples)
        self._kind = checked_kind(index) if isinstance(index, str) else index.name
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._indices: dict[torch.device, NeighborIndex] = {}

    def __repr__(self) -> str:
        neighbors = "all" if self.n_neighbors is None else self.n_neighbors
        described = f"n_samples={self.n_samples}, dim={self.dim}, n_neighbors={neighbors}, index={self._kind!r}"
        return f"KernelField({described}{'' if self.centered else ', centered=False'})"

    def _metric(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> LowRankMetric:
        """Compute G, or 2Γ when uncentered: the weighted displacements themselves where there are at most D of them."""

        def factor(near: _Neighborhood) -> Tensor:
            return compress(near.rows(centered=self.centered), near.n_summed, rank=self.rank)

        return LowRankMetric(self._over_neighborhoods(factor, points, bandwidth))

    def weighted_displacements(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n k dim"]:
        """Compute the rows √wⱼ(xⱼ−m)/σ whose outer products sum to G, without compressing them to D rows.

        Example:
            >>> field = KernelField([[-1.0], [1.0]])
            >>> rows = field.weighted_displacements(torch.tensor([[0.5]]), 1.0)
            >>> rows.square().sum(1)  # G = 1 − tanh²(y/σ²)
            tensor([[0.7864]])
        """

        def rows(near: _Neighborhood) -> Tensor:
            return torch.cat(list(near.rows(centered=self.centered)), 1)

        return self._over_neighborhoods(rows, *self._checked(points, bandwidth))

    def _denoise(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
        """Compute the weighted mean of the samples, E[X | Y=y]."""
        return self._over_neighborhoods(lambda near: near.points + near.moments().shift, points, bandwidth)

    def effective_neighbors(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, " n"]:
        """Compute n_eff = 1/Σwⱼ². The error E‖Ĝ−G‖² is near d(d+2)/(4 n_eff) [THEORY §4.5]; near 1, G says nothing.

        Example:
            >>> field = KernelField([[-1.0], [1.0], [9.0]])
            >>> field.effective_neighbors(torch.tensor([[0.0], [9.0]]), 1.0).round(decimals=3)
            tensor([2., 1.])
        """
        checked = self._checked(points, bandwidth)
        return self._over_neighborhoods(lambda near: (-near.moments().log_square).exp(), *checked)

    def truncation(self, points: Tensor, bandwidth: Bandwidth, dimension: int | float) -> Float[Tensor, " n"]:
        """Compute the factor by which keeping only k neighbors shrinks the trace of G on data of some dimension.

        P(χ²_{d+2} < q)/P(χ²_d < q) with q = ρ²/σ² and ρ the distance to the k-th neighbor [THEORY §5]: 1 when no
        sample within reach of the kernel was left out.

        Example:
            >>> line = torch.linspace(-1, 1, 201, dtype=torch.float64)[:, None]
            >>> field = KernelField(line, n_neighbors=21)  # up to 0.1 on either side
            >>> field.truncation(torch.zeros(1, 1, dtype=torch.float64), 0.1, 1).round(decimals=2)
            tensor([0.2900], dtype=torch.float64)
        """
        if not dimension > 0:
            raise ArgumentError("dimension", "be positive", got=dimension)

        def factor(near: _Neighborhood) -> Tensor:
            if near.indices is None:
                return torch.ones_like(near.bandwidth)
            reach = (near.samples[near.indices[:, -1]] - near.points).square().sum(1) / near.bandwidth.square()
            order, half = reach.new_full((), dimension / 2), reach / 2
            inside = torch.special.gammainc(order, half)
            # As q → 0 a ball of radius √q is filled evenly.
            limit = reach / (dimension + 2)
            return torch.where(inside > 0, torch.special.gammainc(order + 1, half) / inside, limit)

        return self._over_neighborhoods(factor, *self._checked(points, bandwidth))

    def recall(self, points: Tensor) -> float:
        """Measure the share of true neighbors that the index finds at these points: 1 for an exact search."""
        points = as_points(points, dim=self.dim).tensor
        count = self.n_neighbors or min(_N_DENSITY_NEIGHBORS, self.n_samples)
        return measure_recall(self.index(points.device), points, count)

    def index(self, device: torch.device | None = None) -> NeighborIndex:
        """Return the index that answers for points on a device: the one given, or one built when first needed."""
        if self._ready is not None:
            return self._ready
        device = self.samples.device if device is None else device
        if device not in self._indices:
            samples = self._samples_at(device, self.samples.dtype)
            self._indices[device] = build_index(samples, self._kind, memory=self.memory)
        return self._indices[device]

    def _over_neighborhoods(self, function: Callable[[_Neighborhood], Tensor], points: Tensor, sigma: Tensor) -> Tensor:
        """Compute something of the samples around every point, chunk by chunk."""
        with full_precision():
            return torch.cat([function(near) for near in self._neighborhoods(points, sigma)])

    def _neighborhoods(self, points: Float[Tensor, "n dim"], sigma: Float[Tensor, " n"]) -> Iterator[_Neighborhood]:
        """Cut the points into chunks, each with the samples that it sums over."""
        samples = outside(lambda y: self._samples_at(y.device, y.dtype).detach(), points)
        n_summed, drops = self.n_neighbors or self.n_samples, self.self_neighbor == "drop"
        memory = working_memory(points.device, self.memory)
        cells = max(1, memory // (_COPIES * self.dim * points.element_size()))
        size = max(1, cells // n_summed)
        ratios = outside(lambda y: self._local_scale[0].to(y.device, y.dtype), points) if self.adaptive else None
        for start in range(0, len(points), size):
            y, base = points[start : start + size], sigma[start : start + size]
            yield _Neighborhood(
                y,
                base * self._ratio_at(y, samples) if self.adaptive else base,
                base,
                samples,
                ratios,
                None if self.n_neighbors is None else self._nearest(y, samples, self.n_neighbors, drops),
                drops,
                min(self.n_samples, max(1, cells // len(y))),
            )

    def _nearest(self, points: Tensor, samples: Tensor, count: int, without_self: bool) -> Int[Tensor, "n k"]:
        """Find the nearest samples, if asked without one that equals the point."""
        searched = count + without_self
        found = outside(lambda y: self.index(y.device).search(y, searched).indices, points)
        if not without_self:
            return found
        is_same = (samples[found[:, 0]] == points.detach()).all(1)
        return torch.where(is_same[:, None], found[:, 1:], found[:, :-1])

    def _ratio_at(self, points: Tensor, samples: Tensor) -> Float[Tensor, " n"]:
        """Compute b/b̄ at any points, without the sample that a point may be."""
        count = min(_N_DENSITY_NEIGHBORS, self.n_samples - 1)
        near = samples[self._nearest(points, samples, count, without_self=True)]
        squares = (near - points[:, None, :]).square().sum(-1).mean(1) / self._local_scale[1] ** 2
        return torch.clamp_min(squares, _LEAST_RATIO**2).sqrt()

    @cached_property
    def _local_scale(self) -> tuple[Float[Tensor, " n"], float]:
        """Measure b/b̄ of all samples, and b̄."""
        index, count = self.index(), min(_N_DENSITY_NEIGHBORS, self.n_samples - 1)
        distances = index.search(index.samples, count + 1).squared_distances[:, 1:].mean(1).sqrt()
        positive = distances[distances > 0]
        if len(positive) == 0:
            must = f"not all have {count} copies of themselves for an adaptive kernel: there is no density to follow"
            raise ArgumentError("samples", must, remedy="Drop the duplicates")
        mean = float(positive.double().log().mean().exp())
        return (distances / mean).clamp_min(_LEAST_RATIO), mean

    def _samples_at(self, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "n dim"]:
        """Return the samples on a device and in a dtype."""
        if (device, dtype) not in self._copies:
            self._copies[device, dtype] = self.samples.to(device, dtype)
        return self._copies[device, dtype]

    def _checked_neighbors(self, n_neighbors: int | None) -> int | None:
        drops = self.self_neighbor == "drop"
        if self.n_samples < 2 and (drops or self.adaptive):
            raise ArgumentError("samples", "be at least 2 to leave one out", got=self.n_samples)
        if n_neighbors is None:
            return None
        reason = ", since a single neighbor has no covariance" if self.centered else ""
        return checked_count(n_neighbors, self.n_samples - drops, least=1 + self.centered, reason=reason)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copies": {}, "_indices": {}}


def _checked_index(index: NeighborIndex, samples: Float[Tensor, "n dim"]) -> NeighborIndex:
    """Check that a ready index was built for these samples: the distances that it reports must be theirs."""
    as_kind(index, (NeighborIndex,), name="index")
    if (index.n_samples, index.dim) != tuple(samples.shape):
        must = f"be built for the same samples, of shape {tuple(samples.shape)}"
        raise ArgumentError("index", must, got=f"one for {(index.n_samples, index.dim)}")
    probes = samples[:: max(1, len(samples) // _N_PROBES)]
    found = index.search(probes, min(_N_PROBES, len(samples)))
    squares = (samples[found.indices] - probes[:, None, :]).square().sum(-1)
    if not torch.allclose(squares, found.squared_distances.to(squares), rtol=1e-3, atol=1e-6 * float(squares.max())):
        got = "one whose distances are not theirs"
        raise ArgumentError("index", "be built for the same samples", got=got, remedy="Rebuild it")
    return index


class _Moments(NamedTuple):
    """Of the weights w: log Σ exp(logits), the mean Σ wⱼδⱼ of the displacements, log Σ wⱼ², and σ̄ = √(σᵢ Σ wⱼσⱼ)."""

    log_total: Float[Tensor, " points"]
    shift: Float[Tensor, "points dim"]
    log_square: Float[Tensor, " points"]
    scale: Float[Tensor, " points"]


@dataclass(frozen=True, eq=False)
class _Neighborhood:
    """The samples that a chunk of points sums over. Iterating yields them block by block, as often as needed."""

    points: Float[Tensor, "points dim"]
    # σ at each point; and as the caller gave it, which differs where σ follows the density.
    bandwidth: Float[Tensor, " points"]
    base: Float[Tensor, " points"]
    samples: Float[Tensor, "n dim"]
    # σ of each sample over `base`; None where the kernel has one σ.
    ratios: Float[Tensor, " n"] | None
    # Which samples belong to each point; None for all of them.
    indices: Int[Tensor, "points k"] | None
    # Whether a sample identical to the point (one at most) is left out of a sum over all samples.
    leave_out: bool
    # How many samples to hold at once in a sum over all of them.
    block: int

    @property
    def n_summed(self) -> int:
        """How many samples each sum has."""
        return len(self.samples) if self.indices is None else self.indices.shape[1]

    def __iter__(self) -> Iterator[tuple[Float[Tensor, "points block dim"], Float[Tensor, "points block"], Tensor]]:
        """Yield δⱼ = xⱼ − y, log wⱼ up to a constant, and σⱼ. Subtracting first keeps every digit [THEORY §6.2]."""
        if self.indices is not None:
            displacements = self.samples[self.indices] - self.points[:, None, :]
            scales = self._scales(self.indices)
            yield displacements, self._logits(displacements.square().sum(-1), scales), scales
            return
        pending = torch.full_like(self.points[:, 0], self.leave_out, dtype=torch.bool)
        for start in range(0, len(self.samples), self.block):
            columns = slice(start, start + self.block)
            displacements = self.samples[columns] - self.points[:, None, :]
            squares = displacements.square().sum(-1)
            scales = self._scales(columns)
            logits = self._logits(squares, scales)
            if self.leave_out:
                same = (squares == 0) & pending[:, None]
                # Finite, so that a block of nothing else has no 0/0; it weighs nothing beside any other.
                logits = torch.where(same & (same.cumsum(1) == 1), torch.finfo(logits.dtype).min / 4, logits)
                pending = pending & ~same.any(1)
            yield displacements, logits, scales

    def _scales(self, which: Tensor | slice) -> Tensor:
        """Return σⱼ of some samples."""
        return self.base[:, None] if self.ratios is None else self.base[:, None] * self.ratios[which]

    def _logits(self, squares: Float[Tensor, "points block"], scales: Tensor) -> Float[Tensor, "points block"]:
        # Where even the nearest sample is so many σ away that squares overflow, it is the nearest that counts.
        variances = (self.bandwidth[:, None] * scales).clamp_min(_LEAST_VARIANCE * self._reach[:, None])
        return -squares / (2 * variances)

    @cached_property
    def _reach(self) -> Float[Tensor, " points"]:
        """A squared distance that the nearest sample is within."""
        first = self.samples[:1] if self.indices is None else self.samples[self.indices[:, 0]]
        return (first - self.points).detach().square().sum(-1)

    def moments(self) -> _Moments:
        """Normalize the weights and average the displacements in one pass, by streaming log-sum-exp."""
        log_total, shift, log_square, scale = None, self.points, self.bandwidth, self.base
        for displacements, logits, scales in self:
            block_total = logits.logsumexp(1)
            block_square = (2 * logits).logsumexp(1)
            weights = logits.softmax(1)
            block_shift = torch.einsum("nb,nbd->nd", weights, displacements)
            block_scale = (weights * scales).sum(1)
            if log_total is None:
                log_total, shift, log_square, scale = block_total, block_shift, block_square, block_scale
                continue
            log_total = torch.logaddexp(log_total, block_total)
            share = (block_total - log_total).exp()
            shift = shift + share[:, None] * (block_shift - shift)
            scale = scale + share * (block_scale - scale)
            log_square = torch.logaddexp(log_square, block_square)
        assert log_total is not None
        # With one σ for all samples that is σ itself, without rounding.
        common = self.bandwidth if self.ratios is None else (self.bandwidth * scale).sqrt()
        return _Moments(log_total, shift, log_square - 2 * log_total, common)

    def rows(self, *, centered: bool) -> Iterator[Float[Tensor, "points block dim"]]:
        """Yield the rows √wⱼ(δⱼ − δ̄)/σ̄, or √wⱼδⱼ/σ̄, whose outer products sum to the metric.

        Where σ follows the density, weights have the variance σᵢσⱼ, and so is what displacements are divided by.
        """
        moments = self.moments()
        for displacements, logits, _ in self:
            # √w through its logarithm: the square root of an underflow has no gradient.
            roots = (0.5 * (logits - moments.log_total[:, None])).exp() / moments.scale[:, None]
            rows = displacements - moments.shift[:, None, :] if centered else displacements
            yield roots[:, :, None] * rows
