"""How a fit is trained: what it can be told, and the defaults that come from its data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import ArgumentError
from carre.neighbors import TorchIndex
from carre.training.objective import BalancedScales

_N_QUERIES = 512
_N_NEIGHBORS = 10
# The smallest default σ: this share of the distance to the fifth neighbor; lower where that leaves less than a
# decade and a half below the spread (in high dimension all neighbors are far, and a network that has learned small
# scales is more accurate at larger ones), but not far below the distance between samples.
_NEIGHBOR_SHARE, _SPREAD_SHARE, _LEAST_NEIGHBOR_SHARE, _LEAST_SPREAD_SHARE = 1 / 6, 1 / 30, 1 / 48, 1 / 100
_LARGEST_OVER_SPREAD = 2.5
_LARGEST_SUPPORT = 0.25
_LARGEST_RANK = 128
_DENSE_DIMENSION = 4.5
# On a GPU, more samples are worth larger batches: few samples are learned by heart when each is seen too often.
_BATCHES = (1024, 16_384)
_SAMPLES_PER_DRAW = 16
# Of U-Nets, on a CPU and on a GPU. In its steps a CPU gets a first impression of small images, no more.
_IMAGE_BATCH = {"cpu": 32, "cuda": 512}
_IMAGE_STEPS = {"cpu": 500, "cuda": 20_000}
_IMAGE_RATE = 1e-3
# The size of a reference set, and of the largest images that are held in one: copies of it are made in every step.
_REFERENCES, _LARGEST_REFERENCE = 2048, 2**14
# Every evaluation on the held-out samples costs a CPU as much as some hundred steps.
_IMAGE_EVALUATIONS = {"cpu": 4, "cuda": 10}


@dataclass(frozen=True)
class TrainingConfig:
    """How to train. The defaults are the recipe that works; the budget is the one thing to think about.

    Attributes:
        max_steps: Optimizer steps. The learning rate falls to zero exactly then.
        max_seconds: Wall-clock budget; whichever budget is nearer to its end drives the schedule. With
            it, a run is no longer reproducible to the bit.
        batch_size: Noisy points per step.
        n_references: Size of the reference set that targets are averaged over; 0 switches that off.
        n_draws: Displacements per noisy point, when there is a reference set.
        jacobian_weight: What agreement with the Jacobian of the denoiser counts, beside that with the displacements.
            This target has no noise, and costs one more backward pass through the denoiser; 0 switches it off.
        learning_rate: The peak.
        warmup: Steps of linear warm-up.
        betas: Adam's.
        weight_decay: Decoupled, of AdamW. It keeps the network from memorizing which samples it has seen at
            scales near the distance between them.
        clip_norm: Largest gradient norm, for the mean and for the factor separately.
        averaging: Decay of the exponential moving average of the weights, per step.
        evaluations: How many evaluations on the held-out samples there are.
        patience: Evaluations without improvement of the held-out loss before stopping; None: never.
        mixed_precision: bfloat16 matrix products on a GPU. Noise, losses and weights stay in float32.
        cuda_graph: Replay the step as one CUDA graph. Ignored on a CPU.
        seed: Of everything random in training.

    Example:
        >>> TrainingConfig(max_steps=500, patience=3).learning_rate
        0.002
        >>> TrainingConfig(batch_size=0)
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: batch_size must be at least 1; got 0
    """

    max_steps: int = 4000
    max_seconds: float | None = None
    batch_size: int = 256
    n_references: int = 2048
    n_draws: int = 8
    jacobian_weight: float = 10.0
    learning_rate: float = 2e-3
    warmup: int = 100
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.3
    clip_norm: float = 1.0
    averaging: float = 0.998
    evaluations: int = 10
    patience: int | None = None
    mixed_precision: bool = False
    cuda_graph: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        least = dict.fromkeys(("max_steps", "batch_size", "n_draws", "evaluations"), 1)
        least |= dict.fromkeys(("n_references", "jacobian_weight"), 0)
        for name, bound in least.items():
            if not getattr(self, name) >= bound:
                raise ArgumentError(name, f"be at least {bound}", got=getattr(self, name))
        for name in ("max_seconds", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ArgumentError(name, "be positive", got=value)
        if self.patience is not None and self.patience < 1:
            raise ArgumentError("patience", "be at least 1, or None to never stop early", got=self.patience)


@dataclass(frozen=True)
class DataScale:
    """What the defaults are made from, in the units of the samples.

    Attributes:
        spread: s with s² = tr Σ²/tr Σ, the deviation of the data in their own directions [THEORY §3.6].
        neighbor_distance: Median distance to the fifth nearest neighbor.
        dimension: A rough intrinsic dimension from neighbor distances (Levina and Bickel's estimator).
        n_samples: How many samples there are.

    Example:
        >>> line = torch.linspace(-1, 1, 101)[:, None] * torch.tensor([0.6, 0.8])
        >>> scale = DataScale.of(line)
        >>> round(scale.dimension), round(scale.neighbor_distance, 2)  # the fifth neighbor is three samples away
        (1, 0.06)
    """

    spread: float
    neighbor_distance: float
    dimension: float
    n_samples: int

    @classmethod
    def of(cls, samples: Float[Tensor, "n dim"]) -> DataScale:
        """Measure centered samples. The first ones serve as queries: shuffle if their order means something."""
        n_neighbors = min(_N_NEIGHBORS, len(samples) - 1)
        found = TorchIndex(samples).search(samples[:_N_QUERIES], n_neighbors + 1)
        distances = found.squared_distances[:, 1:].sqrt()
        positive = distances[:, min(4, distances.shape[1] - 1)]
        positive = positive[positive > 0]
        spread = _spread(samples[: 4 * _N_QUERIES])
        neighbor_distance = float(positive.median()) if len(positive) else 0.1 * spread
        return cls(spread, neighbor_distance, _dimension(distances, samples.shape[1]), len(samples))

    def bandwidth_range(self) -> tuple[float, float]:
        """Return the default range of σ: from below the neighbor distance to beyond the whole dataset."""
        least = max(_SPREAD_SHARE * self.spread, _LEAST_NEIGHBOR_SHARE * self.neighbor_distance)
        low = max(min(self.supported_from(), least), _LEAST_SPREAD_SHARE * self.spread)
        return low, max(_LARGEST_OVER_SPREAD * self.spread, 4 * low)

    def supported_from(self) -> float:
        """Return the σ below which samples have hardly any neighbors.

        In high dimension that is the size of the whole dataset, at which it is one blob; a quarter of its
        spread is then the limit.
        """
        return min(_NEIGHBOR_SHARE * self.neighbor_distance, _LARGEST_SUPPORT * self.spread)

    def rank(self, dim: int) -> int:
        """Return a rank that leaves room: 2d+2 for the guessed d (2d−1 are needed for a smooth factor)."""
        return max(1, min(2 * math.ceil(self.dimension - 0.25) + 2, 2 * dim, _LARGEST_RANK))

    def width(self, device: torch.device) -> int:
        """Return the hidden width: more for higher intrinsic dimension, and on a GPU."""
        wide = self.dimension > _DENSE_DIMENSION
        return (512 if wide else 256) if device.type == "cuda" else (256 if wide else 128)

    def max_steps(self, device: torch.device) -> int:
        """Return the number of optimizer steps."""
        wide = self.dimension > _DENSE_DIMENSION
        if device.type != "cuda":
            return 3000 if wide else 2000
        if not wide:
            return 4000
        return 6000 if self.batch_size(device) == _BATCHES[1] else 8000

    def learning_rate(self, width: int, batch_size: int) -> float:
        """Return the peak learning rate: 2e-3 at width 128, less for wider networks and more for large batches."""
        return 2e-3 * math.sqrt(128 / max(width, 128)) * min(max(math.sqrt(batch_size / _BATCHES[0]), 1.0), 2.0)

    def n_references(self, dim: int) -> int:
        """Return the size of the reference set: it helps where samples are dense, that is in low dimension."""
        return _REFERENCES if self.dimension <= _DENSE_DIMENSION else 0

    def balance(self, samples: Float[Tensor, "n dim"], rank: int) -> BalancedScales | None:
        """Return what each scale counts: the same."""
        return None

    def batch_size(self, device: torch.device) -> int:
        """Return the number of noisy points per step."""
        if device.type != "cuda":
            return 256
        if self.dimension <= _DENSE_DIMENSION:
            return _BATCHES[0]
        draws = max(self.n_samples // _SAMPLES_PER_DRAW, 1)
        return min(max(1 << (draws.bit_length() - 1), _BATCHES[0]), _BATCHES[1])

    def evaluations(self, device: torch.device) -> int:
        """Return how many evaluations on the held-out samples there are."""
        return 10

    def mixed_precision(self, device: torch.device) -> bool:
        """Say whether to round products to bfloat16: on a GPU, for the wide networks of high dimension."""
        return device.type == "cuda" and self.dimension > _DENSE_DIMENSION and torch.cuda.is_bf16_supported()


@dataclass(frozen=True)
class ImageScale(DataScale):
    """What the defaults for images are made from: the range of σ and the rank as for tables, the rest for a U-Net.

    Example:
        >>> scale = ImageScale(spread=1.0, neighbor_distance=0.5, dimension=12.0, n_samples=60_000)
        >>> scale.rank(784), scale.batch_size(torch.device("cpu"))
        (26, 32)
    """

    def max_steps(self, device: torch.device) -> int:
        """Return the number of optimizer steps."""
        return _IMAGE_STEPS.get(device.type, _IMAGE_STEPS["cpu"])

    def learning_rate(self, width: int, batch_size: int) -> float:
        """Return the peak learning rate: 1e-3, and up to twice that for large batches; the same for all sizes."""
        return _IMAGE_RATE * min(max(math.sqrt(batch_size / 128), 1.0), 2.0)

    def n_references(self, dim: int) -> int:
        """Return the size of the reference set: at large scales images have neighbors, too; 0 if they are too large."""
        return _REFERENCES if dim <= _LARGEST_REFERENCE else 0

    def balance(self, samples: Float[Tensor, "n dim"], rank: int) -> BalancedScales | None:
        """Return what each scale counts: more where few directions are left."""
        return BalancedScales.of(samples, rank)

    def batch_size(self, device: torch.device) -> int:
        """Return the number of noisy images per step."""
        return _IMAGE_BATCH.get(device.type, _IMAGE_BATCH["cpu"])

    def evaluations(self, device: torch.device) -> int:
        """Return how many evaluations on the held-out samples there are."""
        return _IMAGE_EVALUATIONS.get(device.type, _IMAGE_EVALUATIONS["cpu"])

    def mixed_precision(self, device: torch.device) -> bool:
        """Say whether to round products to bfloat16: on a GPU."""
        return device.type == "cuda" and torch.cuda.is_bf16_supported()


def _spread(samples: Float[Tensor, "n dim"]) -> float:
    """Estimate √(tr Σ²/tr Σ) from inner products of different samples: no D×D matrix, no bias from n < D."""
    n = len(samples)
    gram = samples @ samples.mT
    off_diagonal = (gram.square().sum() - gram.diagonal().square().sum()) / max(n * (n - 1), 1)
    energy = gram.diagonal().mean()
    variance = float(off_diagonal / energy.clamp_min(torch.finfo(samples.dtype).tiny))
    return math.sqrt(min(max(variance, float(energy) / samples.shape[1] * 1e-2), float(energy)))


def _dimension(distances: Float[Tensor, "q k"], ambient: int) -> float:
    """Estimate 1/mean log(r_k/r_j) over queries and j < k, clamped to [1, ambient]."""
    usable = distances[distances[:, 0] > 0]
    if usable.shape[0] == 0 or usable.shape[1] < 3:
        return float(ambient)
    k = usable.shape[1]
    logs = (usable[:, -1:] / usable[:, :-1]).log().sum(1) / (k - 2)
    return float(min(max(1.0 / max(float(logs.mean()), 1e-12), 1.0), ambient))
