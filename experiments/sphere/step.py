"""How long a training step takes, and how much of the hardware it uses."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from carre.manifolds import Sphere
from carre.matching import LogUniform
from carre.networks import MetricModel, build_model
from carre.training import Objective, TrainingConfig
from carre.training.loop import Stepper
from experiments.measures.speed import wait


def measure_step(
    batch_size: int,
    *,
    width: int,
    dim: int = 64,
    rank: int = 16,
    n_blocks: int = 3,
    mixed_precision: bool = False,
    match_jacobian: bool = True,
    device: str = "cpu",
    repeats: int = 200,
) -> dict[str, Any]:
    """Time training steps of twin networks, after a warm-up.

    The arithmetic that is counted is that of the networks' matrix products: two operations per weight and
    sample forward and four backward, two of which the first layer does not need; and two more per weight of
    the denoiser for the products with its Jacobian. Noise, losses, the optimizer and everything pointwise are
    overhead.

    Returns:
        Milliseconds per step (median of five series), seconds until the first step could be taken, and counted
        operations per second.

    Example:
        >>> row = measure_step(16, width=8, dim=4, rank=2, n_blocks=1, repeats=5)
        >>> row["batch_size"], row["milliseconds"] > 0
        (16, True)
    """
    where = torch.device(device)
    sphere = Sphere(min(dim - 1, 8)).embed(dim, generator=torch.Generator().manual_seed(0))
    samples = sphere.sample(16_384, generator=torch.Generator().manual_seed(1), dtype=torch.float32).to(where)
    torch.manual_seed(0)
    model = build_model(dim, rank, width=width, n_blocks=n_blocks, spread=1.0).to(where)
    operations = batch_size * _operations_per_sample(model, match_jacobian)
    config = TrainingConfig(batch_size=batch_size, n_references=0, mixed_precision=mixed_precision)
    config = config if match_jacobian else replace(config, jacobian_weight=0.0)
    generator = torch.Generator(where).manual_seed(0)
    start = time.perf_counter()
    stepper = Stepper(model, samples, LogUniform(0.01, 1.0), Objective(), config, generator)
    stepper.step(1e-5)
    wait(where)
    ready = time.perf_counter() - start
    series = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(max(1, repeats // 5)):
            stepper.step(1e-5)
        wait(where)
        series.append((time.perf_counter() - start) / max(1, repeats // 5))
    seconds = sorted(series)[2]
    return {
        "batch_size": batch_size,
        "width": width,
        "n_blocks": n_blocks,
        "mixed_precision": mixed_precision,
        "match_jacobian": match_jacobian,
        "milliseconds": 1e3 * seconds,
        "start_seconds": ready,
        "operations_per_second": operations / seconds,
    }


def measure_product_rate(*, size: int = 8192, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> float:
    """Measure the operations per second of a large matrix product of random numbers: the ceiling.

    Example:
        >>> measure_product_rate(size=64, device="cpu", dtype=torch.float32) > 0
        True
    """
    where = torch.device(device)
    left, right = (torch.randn(size, size, device=where, dtype=dtype) for _ in range(2))
    for _ in range(3):
        left @ right
    wait(where)
    start = time.perf_counter()
    for _ in range(10):
        left @ right
    wait(where)
    return 10 * 2 * size**3 / (time.perf_counter() - start)


def _operations_per_sample(model: MetricModel, match_jacobian: bool) -> int:
    weights = [(name, p.numel()) for name, p in model.named_parameters() if p.ndim == 2]
    products = sum(size for name, size in weights if name.startswith("mean") and _is_on_the_way(name))
    return sum((4 if "inlet" in name else 6) * size for name, size in weights) + 2 * match_jacobian * products


def _is_on_the_way(name: str) -> bool:
    """Say whether a weight lies between the points and the output, rather than between σ and the output."""
    return "film" not in name and "embedding" not in name
