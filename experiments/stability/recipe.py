"""What balanced scales and averaged targets do, each alone and together, on images made small enough for a CPU.

    python experiments/stability/recipe.py cifar10 --data FOLDER --out FOLDER
    python experiments/stability/recipe.py mnist --data FOLDER --out FOLDER

The same network, seed and number of steps four times; then held-out losses at every σ, on noisy test images. The
predictive loss judges mean and metric together, in nats per image: lower is better. A quarter of an hour each on one
CPU core. Results go to OUT/recipe.json and OUT/recipe.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from carre.data import load_cifar10, load_mnist
from carre.matching import LogUniform, perturb, predictive_loss
from carre.metric import AffineFrame, LowRankMetric
from carre.networks import UNetSettings, build_image_model
from carre.training import BalancedScales, ImageScale, Objective, TrainingConfig, train

HERE = Path(__file__).parent
_N_TEST, _N_HELD_OUT = 1000, 1000


@dataclass(frozen=True)
class Setting:
    """Which images, how small, and what is learned of them.

    Attributes:
        shrink: Pixels along a side that are averaged into one.
        patch: That of the U-Net.
        rank: Rows of the factor.
        bandwidth_range: The σ that are trained on, in the units of the normalized images.
        bandwidths: Those that are looked at.
        steps: Of training.
    """

    shrink: int
    patch: int
    rank: int
    bandwidth_range: tuple[float, float]
    bandwidths: tuple[float, ...]
    steps: int = 600


SETTINGS = {
    "cifar10": Setting(4, 1, 24, (0.05, 10.0), (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)),
    "mnist": Setting(2, 2, 40, (0.2, 5.0), (0.25, 0.5, 1.0, 2.0, 4.0)),
}
# Whether scales are balanced, and whether targets are averaged over other images.
RECIPES = {
    "neither": (False, False),
    "balanced": (True, False),
    "averaged": (False, True),
    "both (the default)": (True, True),
}


def learn(
    recipe: tuple[bool, bool], setting: Setting, points: Float[Tensor, "n dim"], shape: tuple[int, int, int]
) -> nn.Module:
    """Train one model on points in their frame."""
    scale = ImageScale.of(points)
    torch.manual_seed(0)
    network = UNetSettings(32, (1, 2), 1, (1,), setting.patch, head_channels=128, positions=True)
    model = build_image_model(shape, setting.rank, spread=scale.spread, settings=network)
    training, held_out = points[_N_HELD_OUT:], points[:_N_HELD_OUT]
    objective = Objective(balance=BalancedScales.of(training, setting.rank) if recipe[0] else None)
    config = TrainingConfig(
        max_steps=setting.steps,
        batch_size=128,
        learning_rate=1e-3,
        n_references=scale.n_references(points.shape[1]) if recipe[1] else 0,
        evaluations=1,
    )
    train(model, training, held_out, LogUniform(*setting.bandwidth_range), objective, config)
    return model.eval()


@torch.no_grad()
def look(model: nn.Module, points: Float[Tensor, "n dim"], sigma: float) -> dict[str, float]:
    """Measure the losses at noisy test images, at one σ of the frame."""
    batch = perturb(points, points.new_full((len(points),), sigma), generator=torch.Generator().manual_seed(1))
    mean, factor = model(batch.points, batch.bandwidth)
    residual, noise = batch.centered(mean).displacement[:, 0], batch.displacement[:, 0]
    return {
        "predictive_loss": float(predictive_loss(LowRankMetric(factor), residual, noise).mean()),
        "error_over_variance": float(residual.square().sum(1).mean()),
    }


def measure(dataset: str, data: Path, setting: Setting) -> dict[str, Any]:
    """Train by every recipe, and look."""
    load = load_cifar10 if dataset == "cifar10" else load_mnist
    images, tests = (
        functional.avg_pool2d(torch.as_tensor(load(data, split).images), setting.shrink) for split in ("train", "test")
    )
    samples = images.flatten(1)[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))]
    frame = AffineFrame.of(samples, reduce=False).to("cpu", torch.float32)
    low, high = (edge / frame.scale for edge in setting.bandwidth_range)
    inside = replace(setting, bandwidth_range=(low, high))
    points, new = frame.encode(samples), frame.encode(tests[:_N_TEST].flatten(1))
    found = {}
    for name, recipe in RECIPES.items():
        start = time.perf_counter()
        model = learn(recipe, inside, points, tuple(images.shape[1:]))
        seconds = time.perf_counter() - start
        found[name] = {"seconds": seconds} | {f"{s:g}": look(model, new, s / frame.scale) for s in setting.bandwidths}
        print(dataset, name, f"{seconds:.0f} s", found[name], flush=True)
    return {
        "shape": list(images.shape[1:]),
        "setting": vars(setting),
        "n_test": _N_TEST,
        "recipes": found,
        "hardware": f"{torch.get_num_threads()} CPU threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": date.today().isoformat(),
    }


def table(results: dict[str, Any]) -> str:
    """Put the predictive losses into a table: rows of recipes, columns of σ."""
    parts = []
    for dataset, found in sorted(results.items()):
        sigmas = [f"{sigma:g}" for sigma in found["setting"]["bandwidths"]]
        size = "×".join(map(str, found["shape"]))
        lines = [f"| {dataset}, {size}: predictive loss | " + " | ".join(f"σ = {sigma}" for sigma in sigmas) + " |"]
        lines.append("|---" * (len(sigmas) + 1) + "|")
        for name, row in found["recipes"].items():
            lines.append(f"| {name} | " + " | ".join(f"{row[s]['predictive_loss']:.1f}" for s in sigmas) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=sorted(SETTINGS))
    parser.add_argument("--data", type=Path, required=True, help="folder of the images")
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    found = measure(arguments.dataset, arguments.data, SETTINGS[arguments.dataset])
    # Read only now: another dataset may have been measured meanwhile.
    file = arguments.out / "recipe.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    results[arguments.dataset] = found
    file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "recipe.md").write_text(table(results) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
