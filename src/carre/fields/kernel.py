"""The classical carré du champ: a kernel sum over samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields.compression import compress
from carre.fields.kernel_sums import Neighborhood, factor_rows, first_moments
from carre.fields.local_scale import N_DENSITY_NEIGHBORS, LocalScale
from carre.fields.protocol import Bandwidth
from carre.metric import LowRankMetric
from carre.neighbors import NeighborIndex, build_index, measure_recall
from carre.neighbors.choice import checked_kind
from carre.neighbors.memory import checked_memory, full_precision, working_memory
from carre.neighbors.protocol import checked_count
from carre.neighbors.transformations import outside

_SELF_NEIGHBOR = ("keep", "drop")
_N_PROBES = 8
# Displacements, rows, and rows in float64 are alive together.
_COPIES = 6


class KernelField:
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
        adaptive: Let σ follow the density: wᵢⱼ ∝ exp(−|xⱼ−y|²/2σᵢσⱼ) with σᵢ = bandwidth·bᵢ/b̄ and G divided by σᵢ²,
            where b is the root mean square distance to the 8 nearest other samples and b̄ its geometric mean.
            This is the kernel exp(−d²/(ε bᵢbⱼ)) of diffusion geometry with ε = 2·bandwidth²/b̄², σᵢ² = εbᵢ²/2.
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
        if self_neighbor not in _SELF_NEIGHBOR:
            raise ValueError(f"self_neighbor must be 'keep' or 'drop'; got {self_neighbor!r}")
        self.centered, self.self_neighbor, self.adaptive = centered, self_neighbor, adaptive
        self.n_neighbors = self._checked_neighbors(n_neighbors)
        if rank is not None and not 1 <= rank <= self.dim:
            raise ValueError(f"rank must lie between 1 and {self.dim}, the number of columns; got {rank}")
        self.rank, self.memory = rank, checked_memory(memory)
        self._kind = checked_kind(index) if isinstance(index, str) else index.name
        self._ready = None if isinstance(index, str) else _checked_index(index, self.samples)
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._indices: dict[torch.device, NeighborIndex] = {}
        self._scale: LocalScale | None = None

    @property
    def dim(self) -> int:
        """The ambient dimension D."""
        return self.samples.shape[1]

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return self.samples.shape[0]

    def __repr__(self) -> str:
        neighbors = "all" if self.n_neighbors is None else self.n_neighbors
        described = f"n_samples={self.n_samples}, dim={self.dim}, n_neighbors={neighbors}, index={self._kind!r}"
        return f"KernelField({described}{'' if self.centered else ', centered=False'})"

    def metric(self, points: Tensor, bandwidth: Bandwidth) -> LowRankMetric:
        """Compute G, or 2Γ when uncentered: the weighted displacements themselves where there are at most D of them."""
        factors = []
        with full_precision():
            for near in self._neighborhoods(points, bandwidth):
                rows = factor_rows(near, first_moments(near), centered=self.centered)
                factors.append(compress(rows, near.n_summed, rank=self.rank))
        return LowRankMetric(torch.cat(factors))

    def weighted_displacements(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n k dim"]:
        """Compute the rows √wⱼ(xⱼ−m)/σ whose outer products sum to G, without compressing them to D rows.

        Example:
            >>> field = KernelField([[-1.0], [1.0]])
            >>> rows = field.weighted_displacements(torch.tensor([[0.5]]), 1.0)
            >>> rows.square().sum(1)  # G = 1 − tanh²(y/σ²)
            tensor([[0.7864]])
        """
        with full_precision():
            near = self._neighborhoods(points, bandwidth)
            rows = [torch.cat(list(factor_rows(n, first_moments(n), centered=self.centered)), 1) for n in near]
        return torch.cat(rows)

    def denoise(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, "n dim"]:
        """Compute the weighted mean of the samples, E[X | Y=y].

        Example:
            >>> field = KernelField([[-1.0], [1.0]])
            >>> field.denoise(torch.tensor([[0.5]]), 1.0)  # tanh(y/σ²)
            tensor([[0.4621]])
        """
        with full_precision():
            means = [near.points + first_moments(near).shift for near in self._neighborhoods(points, bandwidth)]
        return torch.cat(means)

    def effective_neighbors(self, points: Tensor, bandwidth: Bandwidth) -> Float[Tensor, " n"]:
        """Compute n_eff = 1/Σwⱼ². The error E‖Ĝ−G‖² is near d(d+2)/(4 n_eff) [THEORY §4.5]; near 1, G says nothing.

        Example:
            >>> field = KernelField([[-1.0], [1.0], [9.0]])
            >>> field.effective_neighbors(torch.tensor([[0.0], [9.0]]), 1.0).round(decimals=3)
            tensor([2., 1.])
        """
        with full_precision():
            counts = [(-first_moments(near).log_square).exp() for near in self._neighborhoods(points, bandwidth)]
        return torch.cat(counts)

    def truncation(self, points: Tensor, bandwidth: Bandwidth, dim: int | float) -> Float[Tensor, " n"]:
        """Compute the factor by which keeping only k neighbors shrinks the trace of G on data of dimension ``dim``.

        P(χ²_{d+2} < q)/P(χ²_d < q) with q = ρ²/σ² and ρ the distance to the k-th neighbor [THEORY §5]: 1 when no
        sample within reach of the kernel was left out.

        Example:
            >>> line = torch.linspace(-1, 1, 201, dtype=torch.float64)[:, None]
            >>> field = KernelField(line, n_neighbors=21)  # up to 0.1 on either side
            >>> field.truncation(torch.zeros(1, 1, dtype=torch.float64), 0.1, 1).round(decimals=2)
            tensor([0.2900], dtype=torch.float64)
        """
        if not dim > 0:
            raise ValueError(f"dim must be positive; got {dim}")
        factors = []
        for near in self._neighborhoods(points, bandwidth):
            if near.indices is None:
                factors.append(torch.ones_like(near.bandwidth))
                continue
            reach = (near.samples[near.indices[:, -1]] - near.points).square().sum(1) / near.bandwidth.square()
            factors.append(_truncated_variance(reach, dim))
        return torch.cat(factors)

    def recall(self, points: Tensor) -> float:
        """Measure the share of true neighbors that the index finds at these points: 1 for an exact search."""
        points = as_points(points, dim=self.dim).tensor
        count = self.n_neighbors or min(N_DENSITY_NEIGHBORS, self.n_samples)
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

    def _neighborhoods(self, points: Tensor, bandwidth: Bandwidth) -> Iterator[Neighborhood]:
        """Cut the points into chunks, each with the samples that it sums over."""
        points = as_points(points, dim=self.dim).tensor
        sigma = as_bandwidth(bandwidth, points)
        samples = outside(lambda y: self._samples_at(y.device, y.dtype).detach(), points)
        n_summed, drops = self.n_neighbors or self.n_samples, self.self_neighbor == "drop"
        memory = working_memory(points.device, self.memory)
        cells = max(1, memory // (_COPIES * self.dim * points.element_size()))
        size = max(1, cells // n_summed)
        ratios = outside(self._ratios_for, points) if self.adaptive else None
        for start in range(0, len(points), size):
            y, base = points[start : start + size], sigma[start : start + size]
            yield Neighborhood(
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
        count = min(N_DENSITY_NEIGHBORS, self.n_samples - 1)
        near = samples[self._nearest(points, samples, count, without_self=True)]
        return self._local_scale().at(points, near)

    def _ratios_for(self, points: Tensor) -> Float[Tensor, " n"]:
        """Return b/b̄ of all samples, on the device and in the dtype of the points."""
        return self._local_scale().ratios.to(points)

    def _local_scale(self) -> LocalScale:
        """Measure b of all samples, once."""
        if self._scale is None:
            self._scale = LocalScale.of(self.index())
        return self._scale

    def _samples_at(self, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "n dim"]:
        """Return the samples on a device and in a dtype."""
        if (device, dtype) not in self._copies:
            self._copies[device, dtype] = self.samples.to(device, dtype)
        return self._copies[device, dtype]

    def _checked_neighbors(self, n_neighbors: int | None) -> int | None:
        drops = self.self_neighbor == "drop"
        if self.n_samples < 2 and (drops or self.adaptive):
            raise ValueError(f"samples must be at least 2 to leave one out; got {self.n_samples}")
        if n_neighbors is None:
            return None
        reason = ", since a single neighbor has no covariance" if self.centered else ""
        return checked_count(n_neighbors, self.n_samples - drops, least=1 + self.centered, reason=reason)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copies": {}, "_indices": {}}


def _checked_index(index: NeighborIndex, samples: Float[Tensor, "n dim"]) -> NeighborIndex:
    """Check that a ready index was built for these samples: the distances that it reports must be theirs."""
    if (index.n_samples, index.dim) != tuple(samples.shape):
        raise ValueError(
            f"index must be built for the same samples, of shape {tuple(samples.shape)}; "
            f"got one for {(index.n_samples, index.dim)}"
        )
    probes = samples[:: max(1, len(samples) // _N_PROBES)]
    found = index.search(probes, min(_N_PROBES, len(samples)))
    squares = (samples[found.indices] - probes[:, None, :]).square().sum(-1)
    if not torch.allclose(squares, found.squared_distances.to(squares), rtol=1e-3, atol=1e-6 * float(squares.max())):
        raise ValueError("index must be built for the same samples; got one whose distances are not theirs. Rebuild it")
    return index


def _truncated_variance(reach: Float[Tensor, " n"], dim: int | float) -> Float[Tensor, " n"]:
    """Compute P(χ²_{d+2} < q)/P(χ²_d < q): the variance of a Gaussian cut off at radius √q, per direction."""
    order, half = reach.new_full((), dim / 2), reach / 2
    inside = torch.special.gammainc(order, half)
    # As q → 0 a ball of radius √q is filled evenly.
    limit = reach / (dim + 2)
    return torch.where(inside > 0, torch.special.gammainc(order + 1, half) / inside, limit)
