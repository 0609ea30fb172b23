"""What the right metric would do: an exact kernel on all training images beside the learned metric, at a coarse scale.

    python experiments/stability/truth.py --data FOLDER --model FOLDER --inception FILE --out FOLDER

At σ = 8 thousands of the 50,000 images count as neighbors of each, so that the kernel sum is close to the truth. The
Jacobian of the denoiser is asked for its leading eigenvalues only. Takes two CPU cores some minutes. Results go to
OUT/truth.json.
"""

from __future__ import annotations

import argparse
import json
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch

from carre import MetricMatching
from carre.benchmarks import CIFAR10_STABILITY
from carre.cli.stability_parts import split_images
from carre.datasets import load_cifar10
from carre.evaluation import compare_stability, feature_stability, inception_features
from carre.fields import IsotropicField, KernelField, MetricField, NoDenoiserError, ScoreField
from carre.geometry import LowRankMetric

HERE = Path(__file__).parent
_RANK, _LEADING, _DRAWS = 100, 12, 8
_RADII = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


class Kept:
    """A field whose metrics at given points, at one σ, were computed beforehand."""

    def __init__(self, field: MetricField, points: torch.Tensor, sigma: float) -> None:
        self.dim = field.dim
        with torch.no_grad():
            self.factor = torch.cat([field.metric(point, sigma).factor for point in points.split(1)])

    def metric(self, points: torch.Tensor, bandwidth: Any) -> LowRankMetric:
        """Return what was computed; the points are those that it was computed at."""
        return LowRankMetric(self.factor)

    def denoise(self, points: torch.Tensor, bandwidth: Any) -> torch.Tensor:
        """There is nothing to denoise by."""
        raise NoDenoiserError("metrics alone were kept")

    def describe(self) -> dict[str, Any]:
        """Average the eigenvalues over the points."""
        values = LowRankMetric(self.factor).eigenvalues()
        return {"leading": values.mean(0)[:_LEADING].tolist(), "trace": float(values.sum(1).mean())}


def measure(data: Path, model: str, inception: Path, sigma: float, n_images: int, n_jacobian: int) -> dict[str, Any]:
    """Measure eigenvalues, and shifts of the features."""
    geometry = MetricMatching.from_pretrained(model, device="cpu")
    dataset, train = load_cifar10(data, "test"), load_cifar10(data, "train")
    images = split_images(dataset, CIFAR10_STABILITY, "cpu")[1][:n_images]
    points, samples = images.flatten(1), torch.as_tensor(train.images).flatten(1)
    weights = torch.softmax(-torch.cdist(points, samples).square() / (2 * sigma**2), 1)
    features = inception_features(inception, normalization=dataset.normalization)
    leading = ScoreField(geometry.field_, rank=_LEADING, oversampling=_LEADING)
    kept = {
        "exact kernel": Kept(KernelField(samples, rank=_RANK), points, sigma),
        "metric matching": Kept(geometry.field_, points, sigma),
    }
    fields = {"random directions": IsotropicField(geometry.n_features_in_), **kept}
    found = {
        name: feature_stability(field, images, features, _RADII, _DRAWS, bandwidth=sigma, batch_size=n_images)
        for name, field in fields.items()
    }
    compared = compare_stability(found["metric matching"], found["exact kernel"])
    return {
        "data": dataset.name,
        "bandwidth": sigma,
        "radii": _RADII,
        "n_images": n_images,
        "n_draws": _DRAWS,
        "effective_neighbors": float((1 / weights.square().sum(1)).median()),
        "eigenvalues": {name: field.describe() for name, field in kept.items()}
        | {"score Jacobian": Kept(leading, points[:n_jacobian], sigma).describe() | {"n_images": n_jacobian}},
        "shift": {name: stability.mean.tolist() for name, stability in found.items()},
        "ours minus kernel": {key: getattr(compared, key).tolist() for key in ("difference", "low", "high")},
        "hardware": f"{torch.get_num_threads()} CPU threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": date.today().isoformat(),
    }


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--model", required=True, help="folder of the geometry that train.py saved")
    parser.add_argument("--inception", type=Path, required=True, help="the Inception network of the FID")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--images", type=int, default=10)
    arguments = parser.parse_args(argv)
    found = measure(arguments.data, arguments.model, arguments.inception, 8.0, arguments.images, 4)
    (arguments.out / "truth.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
