"""How a fit is trained: what it can be told, and the defaults that come from its data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.backend.rows import Samples, in_blocks
from carre.boundary import ArgumentError
from carre.neighbors import TorchIndex
from carre.training.objective import JACOBIAN_WEIGHT, PROBE_FLOOR, BalancedScales

_N_QUERIES = 512
_N_NEIGHBORS = 10
# Bytes for the search among samples that are read in blocks.
_MEMORY = 2**23
# The smallest default σ: this share of the distance to the fifth neighbor; lower where that leaves less than a
# decade and a half below the spread (in high dimension all neighbors are far, and a network that has learned small
# scales is more accurate at larger ones), but not far below the distance between samples.
_NEIGHBOR_SHARE, _SPREAD_SHARE, _LEAST_NEIGHBOR_SHARE, _LEAST_SPREAD_SHARE = 1 / 6, 1 / 30, 1 / 48, 1 / 100
_LARGEST_OVER_SPREAD = 2.5
_LARGEST_SUPPORT = 0.25
_LARGEST_RANK = 128
_DENSE_DIMENSION = 4.5
# On a GPU, more samples are worth larger batches: few samples are learned by heart when each is seen too often.
_BATCHES = (1024, 4096, 16_384)
_SAMPLES_PER_DRAW = 16
# The most steps on a GPU at each batch, half a minute on an H200; those on a CPU.
_MOST_STEPS, _MOST_STEPS_CPU = {1024: 28_000, 2048: 24_000, 4096: 22_000, 8192: 16_000, 16_384: 10_500}, 6000
# What half more steps must have brought to go on, in nats per sample, and the steps between the first
# evaluations: steps are dear on a CPU.
_FEW_DIMENSIONS = 16
_WORTH, _ROUND_STEPS = {"cpu": 0.13, "cuda": 0.02}, {"cpu": 100, "cuda": 600}
# The network for data that turn out to be hard: width, blocks, batch, and steps for so many samples; more samples are
# worth more steps.
_WIDE, _WIDE_BLOCKS, _WIDE_STEPS, _WIDE_SAMPLES = 1024, 4, 29_000, 2**17
# Of U-Nets, on a CPU and on a GPU. In its steps a CPU gets a first impression of small images, no more.
_IMAGE_BATCH = {"cpu": 32, "cuda": 512}
_IMAGE_STEPS = {"cpu": 500, "cuda": 20_000}
_IMAGE_RATE = 1e-3
# The size of a reference set, and of the largest images that are held in one: copies of it are made in every step.
_REFERENCES, _LARGEST_REFERENCE = 2048, 2**14
# Every evaluation on the held-out samples costs a CPU as much as some hundred steps.
_IMAGE_EVALUATIONS = {"cpu": 4, "cuda": 10}


PROBES = ("range", "backward")


@dataclass(frozen=True)
class TrainingConfig:
    """How to train. The defaults are the recipe that works; the budget is the one thing to think about.

    Attributes:
        max_steps: Optimizer steps, at most.
        max_seconds: Wall-clock budget, at most; whichever budget is nearer to its end counts. With it, a run is no
            longer reproducible to the bit.
        reserved: Seconds of that budget that are needed before training and after it.
        until_done: Whether to end before the budget is spent, when the held-out evidence no longer improves.
        worth: Nats per sample that half more steps must have brought for training to go on.
        gives_up: Whether to end at once where the first steps show that a larger network is needed.
        fills_hull: Whether the samples have as many dimensions as their linear hull: then no curved shape is to be
            found in it, and where learning stands still it is done.
        batch_size: Noisy points per step, of all processes together.
        n_references: Size of the reference set that targets are averaged over; 0 switches that off.
        n_draws: Displacements per noisy point, when there is a reference set.
        jacobian_weight: What agreement with the Jacobian of the denoiser counts, beside that with the displacements.
            This target has no noise, and costs one more pass through the denoiser; 0 switches it off.
        probes: ``"range"``, which takes vectors along the data and multiplies them forward, or ``"backward"``, which
            takes vectors in all directions and multiplies them backward.
        probe_floor: The least α of the vectors v = Fᵀξ + αη.
        learning_rate: The peak.
        warmup: Steps of linear warm-up.
        betas: Adam's.
        weight_decay: Decoupled, of AdamW. It keeps the network from memorizing which samples it has seen at
            scales near the distance between them.
        clip_norm: Largest gradient norm, for the mean and for the factor separately.
        averaging: Decay of the exponential moving average of the weights, per step.
        decay: Share of a run in which the learning rate falls to zero.
        polish: Share of a run, at its end, in which the factor alone is taught by the finished denoiser.
        polish_batch: Points per step there.
        cooling: Steps after which the learning rate, constant until then, falls like the inverse root of the steps.
        evaluations: How many evaluations on the held-out samples there are at least, if the budget is spent.
        round_steps: Steps between the first evaluations, at most; later they are further apart. Learning is not done
            before three such rounds.
        mixed_precision: bfloat16 matrix products on a GPU. Noise, losses and weights stay in float32.
        cuda_graph: Replay the step as one CUDA graph. Ignored on a CPU.
        seed: Of everything random in training.

    Example:
        >>> TrainingConfig(max_steps=500).learning_rate
        0.002
        >>> TrainingConfig(batch_size=0)
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: batch_size must be at least 1; got 0
    """

    max_steps: int = 4000
    max_seconds: float | None = None
    reserved: float = 0.0
    batch_size: int = 256
    n_references: int = 2048
    n_draws: int = 8
    jacobian_weight: float = JACOBIAN_WEIGHT
    probes: str = "range"
    probe_floor: float = PROBE_FLOOR
    learning_rate: float = 2e-3
    warmup: int = 100
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.3
    clip_norm: float = 1.0
    averaging: float = 0.998
    until_done: bool = True
    worth: float = 0.04
    gives_up: bool = False
    fills_hull: bool = False
    decay: float = 0.4
    polish: float = 0.3
    polish_batch: int = 512
    cooling: int = 2000
    evaluations: int = 10
    round_steps: int = 200
    mixed_precision: bool = False
    cuda_graph: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        least = dict.fromkeys(("max_steps", "batch_size", "n_draws", "evaluations"), 1)
        least |= dict.fromkeys(("polish_batch", "cooling", "round_steps"), 1)
        least |= dict.fromkeys(("n_references", "jacobian_weight", "probe_floor", "weight_decay"), 0)
        least |= dict.fromkeys(("worth", "decay", "polish"), 0)
        for name, bound in least.items():
            if not getattr(self, name) >= bound:
                raise ArgumentError(name, f"be at least {bound}", got=getattr(self, name))
        for name in ("max_seconds", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ArgumentError(name, "be positive", got=value)
        if not self.decay + self.polish < 1:
            must = "leave time to learn: decay and polish together must be below 1"
            raise ArgumentError("polish", must, got=self.decay + self.polish)
        if not 0 <= self.reserved < (self.max_seconds or math.inf):
            raise ArgumentError("reserved", "lie between 0 and max_seconds", got=self.reserved)
        if self.probes not in PROBES:
            raise ArgumentError("probes", f"be one of {', '.join(PROBES)}", got=repr(self.probes))

    @property
    def seconds(self) -> float:
        """The seconds that training may take; infinity where only steps are counted."""
        return math.inf if self.max_seconds is None else self.max_seconds - self.reserved


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
    def of(cls, samples: Samples) -> DataScale:
        """Measure centered samples. The first ones serve as queries: shuffle if their order means something."""
        n_found, queries = min(_N_NEIGHBORS, len(samples) - 1) + 1, samples[:_N_QUERIES]
        blocks, memory = ([samples], None) if isinstance(samples, Tensor) else (in_blocks(samples), _MEMORY)
        found = [TorchIndex(part, memory=memory).search(queries, min(n_found, len(part))) for part in blocks]
        squares = torch.cat([one.squared_distances for one in found], 1)
        distances = squares.sort(1).values[:, 1:n_found].sqrt()
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

    def fills(self, dim: int) -> bool:
        """Say whether the samples have as many dimensions as their hull, as their neighbors see it."""
        return self.dimension > dim - 0.5

    def rank(self, dim: int) -> int:
        """Return a rank that leaves room: 2d+2 for the guessed d (2d−1 are needed for a smooth factor)."""
        return max(1, min(2 * math.ceil(self.dimension - 0.5) + 2, 2 * dim, _LARGEST_RANK))

    def width(self, device: torch.device) -> int:
        """Return the hidden width: more for higher intrinsic dimension, and on a GPU."""
        wide = self.dimension > _DENSE_DIMENSION
        return (512 if wide else 256) if device.type == "cuda" else (256 if wide else 128)

    def max_steps(self, device: torch.device) -> int:
        """Return the most optimizer steps; training ends sooner when it is done."""
        return _MOST_STEPS[self.batch_size(device)] if device.type == "cuda" else _MOST_STEPS_CPU

    def learning_rate(self, width: int, batch_size: int) -> float:
        """Return the peak learning rate: 4e-3 at width 128, less for wider networks."""
        return 4e-3 * math.sqrt(128 / max(width, 128))

    def harder(self, device: torch.device) -> tuple[int, int, dict[str, Any]] | None:
        """Return width, blocks and training of a network for data that prove hard; None where there is none."""
        if device.type != "cuda":
            return None
        steps = int(_WIDE_STEPS * max(self.n_samples / _WIDE_SAMPLES, 1.0) ** (1 / 3))
        rate = self.learning_rate(_WIDE, _BATCHES[1])
        changes = {"batch_size": _BATCHES[1], "polish_batch": _BATCHES[1], "max_steps": steps, "learning_rate": rate}
        changes |= {"n_references": 0, "mixed_precision": torch.cuda.is_bf16_supported(), "gives_up": False}
        # It will hardly be done before its steps are spent, so that the rate need not wait for that.
        changes |= {"decay": 0.45, "polish": 0.35, "cooling": 100 * steps}
        return _WIDE, _WIDE_BLOCKS, changes

    def n_references(self, dim: int) -> int:
        """Return the size of the reference set: it helps where samples are dense, that is in low dimension."""
        return _REFERENCES if self.dimension <= _DENSE_DIMENSION else 0

    def balance(self, samples: Samples, rank: int) -> BalancedScales | None:
        """Return what each scale counts: the same."""
        return None

    def batch_size(self, device: torch.device) -> int:
        """Return the number of noisy points per step."""
        if device.type != "cuda":
            return 256
        if self.dimension <= _DENSE_DIMENSION:
            return _BATCHES[0]
        draws = max(self.n_samples // _SAMPLES_PER_DRAW, 1)
        return min(max(1 << (draws.bit_length() - 1), _BATCHES[0]), _BATCHES[2])

    def worth(self, dim: int, device: torch.device) -> float:
        """Return what half more steps must have brought for training to go on; on a CPU more in many dimensions.

        Nats are summed over all of them, and steps cost more.
        """
        if device.type == "cuda":
            return _WORTH["cuda"]
        return _WORTH["cpu"] * max(dim / _FEW_DIMENSIONS, 1.0)

    def round_steps(self, device: torch.device) -> int:
        """Return the number of steps between the first evaluations."""
        return _ROUND_STEPS.get(device.type, _ROUND_STEPS["cpu"])

    def polish_batch(self, device: torch.device) -> int:
        """Return the number of points per step of the polish."""
        return _BATCHES[1] if device.type == "cuda" else self.batch_size(device)

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
        """Return the most optimizer steps; training ends sooner when it is done."""
        return _IMAGE_STEPS.get(device.type, _IMAGE_STEPS["cpu"])

    def learning_rate(self, width: int, batch_size: int) -> float:
        """Return the peak learning rate, the same for all sizes."""
        return _IMAGE_RATE

    def n_references(self, dim: int) -> int:
        """Return the size of the reference set: at large scales images have neighbors, too; 0 if they are too large."""
        return _REFERENCES if dim <= _LARGEST_REFERENCE else 0

    def balance(self, samples: Samples, rank: int) -> BalancedScales | None:
        """Return what each scale counts: more where few directions are left."""
        return BalancedScales.of(samples, rank)

    def batch_size(self, device: torch.device) -> int:
        """Return the number of noisy images per step."""
        return _IMAGE_BATCH.get(device.type, _IMAGE_BATCH["cpu"])

    def polish_batch(self, device: torch.device) -> int:
        """Return the number of images per step of the polish."""
        return self.batch_size(device)

    def harder(self, device: torch.device) -> tuple[int, int, dict[str, Any]] | None:
        """Return None: there is one U-Net for a shape."""
        return None

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
    logs = (usable[:, -1:] / usable[:, :-1]).log().sum(1) / (k - 1)
    return float(min(max(1.0 / max(float(logs.mean()), 1e-12), 1.0), ambient))
