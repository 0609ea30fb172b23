"""What a training run is told."""

from __future__ import annotations

from dataclasses import dataclass


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
        evaluations: How many times to look at the held-out samples.
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
        ValueError: batch_size must be at least 1; got 0
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
        for name in ("max_steps", "batch_size", "n_draws", "evaluations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.n_references < 0:
            raise ValueError(f"n_references must be at least 0; got {self.n_references}")
        if not self.jacobian_weight >= 0:
            raise ValueError(f"jacobian_weight must be at least 0; got {self.jacobian_weight}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds must be positive; got {self.max_seconds}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate}")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience must be at least 1, or None to never stop early; got {self.patience}")
