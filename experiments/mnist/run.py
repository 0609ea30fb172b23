"""The geometry of MNIST: eigenvalues, paths from digit to digit, and the repair of spoiled digits.

    python experiments/mnist/run.py --data FOLDER --out FOLDER                everything
    python experiments/mnist/run.py --data FOLDER --out FOLDER --only paths   one part, with the model in OUT/model
    python experiments/mnist/run.py --data FOLDER --out FOLDER --only search  try settings on the validation pairs
    python experiments/mnist/run.py --out FOLDER --quick                      a tiny network on drawn strokes, a minute

FOLDER of the data holds the four files of MNIST. Results go to results.json, tables.md and pictures, after every part.
Everything is measured on the model as it was saved in half precision and loaded again.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import figures
import numpy as np
import paths
import restore
import spectra
import speed
import summary
import torch
from classifier import train_classifier
from settings import FULL, QUICK, Settings
from summary import short_table, tables

import carre
from carre.fields import NeuralField
from carre.neighbors import TorchIndex
from data import Digits, draw_strokes, load_digits

HERE = Path(__file__).parent
PARTS = ("speed", "train", "search", "paths", "spectra", "restore", "card")
CARD = """---
license: mit
datasets:
- mnist
---
## Data

The {n:,} training digits of {name}; the test digits took no part. Measured in experiments/mnist.
"""


@dataclass(eq=False)
class Experiment:
    """One run: the digits, where results go, and what was found so far."""

    settings: Settings
    digits: Digits
    out: Path
    model: str
    results: dict[str, Any]

    def run(self, part: str) -> None:
        """Do one part, and write what it found."""
        begun = time.perf_counter()
        found: dict[str, Any] = getattr(self, part)()
        extra = {"model": Path(self.model).name, "part_seconds": time.perf_counter() - begun}
        self.results[part] = found | {"about": about(self.digits) | extra}
        self.results["settings"] = self.settings.to_dict()
        write(self.out / "results.json", json.dumps(self.results, indent=1) + "\n")
        write(self.out / "tables.md", tables(self.results))

    def train(self) -> dict[str, Any]:
        """Fit, and save in half precision."""
        fit, dataset = self.settings.fit, self.digits.dataset
        geometry = carre.fit(
            dataset,
            network=fit.network,
            rank=fit.rank,
            bandwidth=fit.bandwidth,
            bandwidth_range=fit.bandwidth_range,
            batch_size=fit.batch_size,
            learning_rate=fit.learning_rate,
            max_seconds=None if fit.minutes is None else 60 * fit.minutes,
            max_steps=fit.max_steps,
            validation_fraction=fit.validation_fraction,
            random_state=self.settings.seed,
            device=self.digits.train.device,
        )
        folder, history = self.out / "model", geometry.history
        card = CARD.format(n=len(dataset), name=dataset.name)
        carre.save(geometry, folder, dtype="float16", n_landmarks=fit.n_landmarks, card=card)
        self.model = str(folder)
        per_epoch = round(len(dataset) * (1 - fit.validation_fraction)) / fit.batch_size
        names = ("step", "seconds", "mean_loss", "metric_loss", "predictive_loss", "gain")
        losses = [
            {"epoch": look.step / per_epoch} | {name: getattr(look, name) for name in names}
            for look in history.evaluations
        ]
        figures.write(figures.plot_losses(losses), self.out / "losses.png")
        return {
            "n_train": len(dataset),
            "batch_size": fit.batch_size,
            "steps": history.steps,
            "epochs": history.steps / per_epoch,
            "seconds": history.seconds,
            "images_per_second": history.steps * fit.batch_size / history.seconds,
            "stop_reason": history.stop_reason,
            "kept": history.kept,
            "bandwidth": geometry.bandwidth,
            "bandwidth_reason": "given" if fit.bandwidth is not None else geometry.scale_profile.reason,
            "supported_from": geometry.supported_from,
            "gain": {"bandwidths": history.bandwidths, "network": history.gain.tolist(), "kernel": history.kernel_gain},
            "losses": losses,
            "bytes": sum(file.stat().st_size for file in folder.iterdir()),
            "parameters": sum(weights.numel() for weights in geometry.field.model.parameters()),
        }

    def speed(self) -> dict[str, Any]:
        """Time training steps of the paper's network size, mean and factor together."""
        return speed.measure(self.digits, self.settings)

    def spectra(self) -> dict[str, Any]:
        """Look at the eigenvalues at test digits."""
        geometry, field = self.load()
        found = spectra.measure(field, self.digits, geometry.bandwidth, self.settings)
        figures.write_spectra(found, field, self.digits, self.settings, self.out)
        return found

    def search(self) -> dict[str, Any]:
        """Try settings of paths on the validation pairs."""
        _, field = self.load()
        _, validation = paths.draw_pairs(self.digits, self.settings.pairs, self.settings.seed)
        return paths.search(field, validation, self.settings, self.judge)

    def paths(self) -> dict[str, Any]:
        """Compare paths on the test pairs."""
        _, field = self.load()
        pairs, _ = paths.draw_pairs(self.digits, self.settings.pairs, self.settings.seed)
        methods, judge = paths.chosen_methods(self.settings, self.results.get("search")), self.judge
        rows = paths.compare(field, pairs, methods, judge, self.settings.n_nodes)
        figures.write_paths(field, pairs, methods, self.digits, self.settings, self.out)
        ends = torch.stack([pairs.start, pairs.end], 1)
        right, confidence = judge.verdict(ends, pairs.labels)
        known = {"distance": judge.distances(ends), "right": right, "confidence": confidence}
        reference = {name: float(values.mean()) for name, values in known.items()}
        return {"n_pairs": len(pairs), "reference": reference, "methods": rows}

    def restore(self) -> dict[str, Any]:
        """Spoil test digits and lead them back."""
        _, field = self.load()
        figures.write_restored(restore.examples(field, self.digits, self.settings), self.digits, self.out)
        return restore.measure(field, self.digits, self.settings, self.judge)

    def card(self) -> dict[str, Any]:
        """Write what was measured into the card of the model."""
        page = Path(self.model) / "README.md"
        text = page.read_text(encoding="utf-8")
        write(page, text[: text.index("## Data")] + summary.card(self.results) + text[text.index("## Limits") :])
        return {}

    def load(self) -> tuple[carre.Geometry, NeuralField]:
        """Load the saved model; its field answers where the points are."""
        geometry = carre.load(self.model, device=self.digits.train.device)
        rounded = self.settings.mixed_precision and self.digits.train.is_cuda
        return geometry, geometry.field.with_mixed_precision() if rounded else geometry.field

    @cached_property
    def judge(self) -> paths.Judge:
        """Train the classifier, and index the training digits."""
        classifier, found = train_classifier(self.digits, self.settings.classifier_epochs, self.settings.seed)
        self.results["classifier"] = found | {"about": about(self.digits)}
        return paths.Judge(TorchIndex(self.digits.train), classifier)


def about(digits: Digits) -> dict[str, Any]:
    """Say when, where and how something was measured."""
    device = digits.train.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return {
        "date": date.today().isoformat(),
        "hardware": name,
        "versions": versions | {"carre": carre.__version__},
        # Folders by their names only: where they lie is nobody's business.
        "command": " ".join(["python", "experiments/mnist/run.py", *(Path(word).name for word in sys.argv[1:])]),
        "data": digits.dataset.name,
    }


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of MNIST; with --quick strokes are drawn where it is missing")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--model", help="a saved geometry, instead of OUT/model: a folder, or a name that ships")
    parser.add_argument("--minutes", type=float, help="budget of the fit")
    parser.add_argument(
        "--only", help=f"parts, separated by commas, among {', '.join(PARTS)}; else all but search and card"
    )
    parser.add_argument("--search", action="store_true", help="search for settings before paths are measured")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="a tiny network on few digits: a look at the machinery")
    arguments = parser.parse_args(argv)
    parts = arguments.only.split(",") if arguments.only else [part for part in PARTS if part not in ("search", "card")]
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"--only must name parts among {', '.join(PARTS)}; got {', '.join(unknown)}")
    if arguments.model and not arguments.only:
        parts.remove("train")
    parts = [part for part in PARTS if part in parts or (part == "search" and arguments.search)]
    if arguments.data is None and not arguments.quick:
        parser.error("--data must be the folder of MNIST; only --quick does without")
    settings = QUICK if arguments.quick else FULL
    if arguments.minutes:
        settings = replace(settings, fit=replace(settings.fit, minutes=arguments.minutes, max_steps=None))
    device = torch.device(arguments.device)
    digits = (
        draw_strokes(settings.n_train or 60_000, settings.n_test or 10_000, device, settings.seed)
        if arguments.data is None
        else load_digits(arguments.data, device, settings.n_train, settings.n_test)
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    stored = arguments.out / "results.json"
    results = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    model = arguments.model or str(arguments.out / "model")
    experiment = Experiment(settings, digits, arguments.out, model, results)
    for part in parts:
        experiment.run(part)
        print(f"{part}: {results[part]['about']['part_seconds']:.0f} s", flush=True)
    print(short_table(results))
    return results


if __name__ == "__main__":
    main()
