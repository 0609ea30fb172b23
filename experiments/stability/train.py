"""Learn the geometries that run.py compares.

    python experiments/stability/train.py mnist --data FOLDER --out FOLDER
    python experiments/stability/train.py cifar10 --data FOLDER --out FOLDER
    python experiments/stability/train.py cifar10-uncentered --data FOLDER --out FOLDER
    python experiments/stability/train.py mnist --data FOLDER --out FOLDER --quick     a tiny network, a minute on a CPU

FOLDER of the data holds the files of MNIST or CIFAR-10. The geometry goes to OUT/NAME, in half precision, and what is
to be known of its training to OUT/training.json. The measurement itself is run.py.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

import carre
from carre.data import ImageDataset, load_cifar10, load_mnist
from carre.networks import UNetSettings

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Plan:
    """How one geometry is learned.

    Attributes:
        network: The sizes of its U-Nets.
        bandwidth: Its default σ, in the units of the normalized images; run.py looks at a grid of its own.
        bandwidth_range: The σ that are trained on.
        minutes: The budget on one GPU.
        method: "joint": centered, with a denoiser; or "uncentered", as the paper's code has it.
        rank: Rows of the factor.
        batch_size: Noisy images per step.
        learning_rate: Its peak.
        max_steps: Steps at most; None leaves it to the minutes.
        n_train: Training images; None takes all.
    """

    network: UNetSettings
    bandwidth: float
    bandwidth_range: tuple[float, float]
    minutes: float
    method: str = "joint"
    rank: int = 100
    batch_size: int = 512
    learning_rate: float = 2e-3
    max_steps: int | None = None
    n_train: int | None = None


_DIGITS = UNetSettings(96, (1, 1), n_blocks=2, attention=(1,), patch=2, head_channels=512, positions=True)
_PHOTOGRAPHS = UNetSettings(128, (1, 2), n_blocks=2, attention=(1,), patch=2, head_channels=1024, positions=True)
_TINY = UNetSettings(8, (1,), n_blocks=1, attention=(), patch=4, head_channels=16, positions=True)
PLANS = {
    "mnist": Plan(_DIGITS, 1.0, (0.4, 10.0), minutes=2.7),
    # At 2e-3 this network diverged after 2,000 steps.
    "cifar10": Plan(_PHOTOGRAPHS, 1.0, (0.2, 40.0), minutes=4.6, learning_rate=6e-4),
    "cifar10-uncentered": Plan(_PHOTOGRAPHS, 1.0, (0.2, 40.0), minutes=1.0, learning_rate=6e-4, method="uncentered"),
}


def quick(plan: Plan) -> Plan:
    """Make a plan a look at the machinery."""
    return replace(plan, network=_TINY, rank=4, batch_size=16, max_steps=20, n_train=200)


def train(plan: Plan, dataset: ImageDataset, folder: Path, device: str | None = None) -> dict[str, Any]:
    """Learn a geometry, save it, and return what is to be known of its training."""
    dataset = dataset[: plan.n_train]
    geometry = carre.fit(
        dataset,
        network=plan.network,
        method=plan.method,
        rank=plan.rank,
        bandwidth=plan.bandwidth,
        bandwidth_range=plan.bandwidth_range,
        batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        max_seconds=60 * plan.minutes,
        max_steps=plan.max_steps or 10**7,
        validation_fraction=0.05,
        random_state=0,
        device=device,
    )
    carre.save(geometry, folder, dtype="float16", n_landmarks=100)
    history, model = geometry.history, geometry.field.model
    where = geometry.device
    names = ("step", "seconds", "mean_loss", "metric_loss", "predictive_loss")
    return {
        "data": dataset.name,
        "n_train": len(dataset),
        "plan": asdict(plan),
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "steps": history.steps,
        "epochs": history.steps * plan.batch_size / (0.95 * len(dataset)),
        "seconds": history.seconds,
        "images_per_second": history.steps * plan.batch_size / history.seconds,
        "stop_reason": history.stop_reason,
        "gain": {"bandwidths": history.bandwidths, "network": history.gain.tolist(), "kernel": history.kernel_gain},
        # Without a mean there is no predictive loss; JSON knows no nan.
        "losses": [
            {key: value for key in names if (value := getattr(look, key)) == value} for look in history.evaluations
        ],
        "hardware": torch.cuda.get_device_name(where) if where.type == "cuda" else f"{torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "carre": carre.__version__},
        "date": date.today().isoformat(),
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(PLANS), help="which geometry")
    parser.add_argument("--data", type=Path, required=True, help="folder of the images")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the geometries and of training.json")
    parser.add_argument("--minutes", type=float, help="another budget")
    parser.add_argument("--device", help="cpu or cuda; a GPU if there is one by default")
    parser.add_argument("--quick", action="store_true", help="a tiny network on few images: a look at the machinery")
    arguments = parser.parse_args(argv)
    plan = PLANS[arguments.name]
    if arguments.quick:
        plan = quick(plan)
    if arguments.minutes:
        plan = replace(plan, minutes=arguments.minutes)
    load = load_mnist if arguments.name == "mnist" else load_cifar10
    found = train(plan, load(arguments.data, "train"), arguments.out / arguments.name, arguments.device)
    file = arguments.out / "training.json"
    everything = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    everything[arguments.name] = found
    partial = file.with_name("training.json.part")
    partial.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    partial.replace(file)
    speed = f"{found['images_per_second']:.0f} images/s"
    print(f"{arguments.name}: {found['steps']} steps, {found['epochs']:.0f} epochs, {speed}")
    return found


if __name__ == "__main__":
    main()
