"""Who is right at coarse scales: learned metrics beside an exact kernel on all training images.

    python experiments/stability/truth.py --data FOLDER --model FOLDER --inception FILE --out FOLDER

From σ = 8 on thousands of the 50,000 images count as neighbors of each, so that the kernel sum is close to the truth.
Networks have seen noisy images only. So every learned metric is asked twice: at the clean image x, as the benchmark
does, and at x + σ(I − S)ε with S = Σ(Σ + σ²)⁻¹ and ε ~ N(0, I), the image with noise where the data have no variance to
speak of: the posterior is nearly the same, and the network has seen the like. A minute on a GPU. Results go to
OUT/truth.json and OUT/truth.md.
"""

from __future__ import annotations

import argparse
import json
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre import MetricMatching
from carre.benchmarks import CIFAR10_STABILITY
from carre.cli.stability_parts import split_images
from carre.datasets import load_cifar10
from carre.evaluation import Stability, compare_stability, feature_stability, inception_features
from carre.fields import IsotropicField, MetricField, NoDenoiserError, ScoreField
from carre.geometry import LowRankMetric

HERE = Path(__file__).parent
OURS, JACOBIAN, KERNEL = "metric matching", "score Jacobian, randomized", "exact kernel"
_RANK, _LEADING, _DRAWS = 100, 12, 4
_OVERSAMPLING, _ITERATIONS = 100, 4
_RADII = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_BANDWIDTHS = (8.0, 16.0, 32.0)


class Kept:
    """A field whose metrics, at given points and one σ, were computed beforehand.

    Args:
        factor: Their factors.
    """

    def __init__(self, factor: Float[Tensor, "n rank dim"]) -> None:
        self.factor, self.dim = factor, factor.shape[2]

    @classmethod
    def of(cls, field: MetricField, points: Float[Tensor, "n dim"], sigma: float) -> Kept:
        """Ask a field, one point at a time."""
        with torch.no_grad():
            return cls(torch.cat([field.metric(point, sigma).factor for point in points.split(1)]))

    def metric(self, points: Tensor, bandwidth: Any) -> LowRankMetric:
        """Return what was computed; the points are those that it was computed at."""
        return LowRankMetric(self.factor)

    def denoise(self, points: Tensor, bandwidth: Any) -> Tensor:
        """There is nothing to denoise by."""
        raise NoDenoiserError("metrics alone were kept")

    def describe(self) -> dict[str, Any]:
        """Average the eigenvalues, and how many directions share the trace: (tr G)²/tr G²."""
        values = LowRankMetric(self.factor).eigenvalues()
        trace = values.sum(1)
        return {
            "leading": values.mean(0)[:_LEADING].tolist(),
            "trace": float(trace.mean()),
            "directions": float((trace.square() / values.square().sum(1)).mean()),
        }


class Truth(Kept):
    """The metric of all samples at some points, by an exact sum, cut to its leading directions."""

    def __init__(self, points: Float[Tensor, "n dim"], samples: Float[Tensor, "m dim"], sigma: float) -> None:
        weights = torch.softmax(-torch.cdist(points, samples).square() / (2 * sigma**2), 1)
        self.effective_neighbors = float((1 / weights.square().sum(1)).median())
        self.covariances = []
        factors = []
        for weight in weights:
            mean = weight @ samples
            rows = weight.sqrt()[:, None] * (samples - mean) / sigma
            covariance = rows.mT @ rows
            _, values, directions = torch.svd_lowrank(covariance, _RANK + _OVERSAMPLING, niter=_ITERATIONS)
            factors.append((values.sqrt() * directions).mT[:_RANK])
            self.covariances.append(covariance)
        super().__init__(torch.stack(factors))

    def distances(self, other: Kept) -> Float[Tensor, " n"]:
        """Compute ‖G − K‖_F/‖K‖_F at every point, for the whole kernel metric K."""
        found = []
        for factor, covariance in zip(other.factor, self.covariances, strict=True):
            gram, size = factor @ factor.mT, covariance.square().sum()
            square = gram.square().sum() - 2 * ((factor @ covariance) * factor).sum() + size
            found.append((square.clamp_min(0) / size).sqrt())
        return torch.stack(found)


class Filler:
    """Fills clean points with noise where the data have little variance, so that a network has seen the like.

    Args:
        samples: The data.
    """

    def __init__(self, samples: Float[Tensor, "m dim"]) -> None:
        self.variances, self.directions = torch.linalg.eigh(torch.cov(samples.mT))

    def __call__(self, points: Float[Tensor, "n dim"], sigma: float) -> Float[Tensor, "n dim"]:
        """Compute x + σ(I − S)ε; the same ε every time."""
        noise = torch.randn(points.shape, generator=torch.Generator().manual_seed(0)).to(points)
        left = sigma**2 / (self.variances + sigma**2)
        return points + sigma * ((noise @ self.directions) * left) @ self.directions.mT


def measure_at(
    sigma: float, field: MetricField, images: Tensor, samples: Float[Tensor, "m dim"], features: Any, filler: Filler
) -> dict[str, Any]:
    """Measure eigenvalues, distances to the kernel, and shifts of the features, at one σ."""
    points = images.flatten(1)
    jacobian, truth = ScoreField(field, rank=_RANK), Truth(points, samples, sigma)
    filled = filler(points, sigma)
    fields: dict[str, Any] = {
        KERNEL: truth,
        OURS: Kept.of(field, points, sigma),
        JACOBIAN: Kept.of(jacobian, points, sigma),
        f"{OURS}, filled": Kept.of(field, filled, sigma),
        f"{JACOBIAN}, filled": Kept.of(jacobian, filled, sigma),
    }

    def shift(metrics: Any) -> Stability:
        return feature_stability(metrics, images, features, _RADII, _DRAWS, bandwidth=sigma, batch_size=len(images))

    found = {name: shift(metrics) for name, metrics in fields.items()}
    described = {}
    for name, metrics in fields.items():
        compared = compare_stability(found[OURS], found[name])
        distances = truth.distances(metrics)
        described[name] = metrics.describe() | {
            "distance": float(distances.mean()),
            "distance_error": float(distances.std() / len(distances) ** 0.5),
            "shift": found[name].mean.tolist(),
            "ours_minus_it": {key: getattr(compared, key).tolist() for key in ("difference", "low", "high")},
        }
    random = shift(IsotropicField(points.shape[1])).mean.tolist()
    return {"effective_neighbors": truth.effective_neighbors, "random": random, "metrics": described}


def measure(data: Path, model: str, inception: Path, n_images: int, device: str) -> dict[str, Any]:
    """Measure at every σ."""
    geometry = MetricMatching.from_pretrained(model, device=device)
    dataset = load_cifar10(data, "test")
    images = split_images(dataset, CIFAR10_STABILITY, device)[1][:n_images]
    samples = torch.as_tensor(load_cifar10(data, "train").images).flatten(1).to(device)
    features = inception_features(inception, normalization=dataset.normalization, device=device)
    filler, (low, high) = Filler(samples), geometry.bandwidth_range_
    return {
        "data": dataset.name,
        "radii": _RADII,
        "n_images": n_images,
        "n_draws": _DRAWS,
        "bandwidths": {
            f"{sigma:g}": measure_at(sigma, geometry.field_, images, samples, features, filler)
            for sigma in _BANDWIDTHS
            if low <= sigma <= high
        },
        "hardware": torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": date.today().isoformat(),
    }


def table(found: dict[str, Any]) -> str:
    """Put the results into a table."""
    lines = ["| σ | metric | distance to the kernel | leading eigenvalues | trace | features move at ‖v‖ = 0.5 … 16 |"]
    lines.append("|---|---|---|---|---|---|")
    for sigma, part in found["bandwidths"].items():
        for name, row in part["metrics"].items():
            distance = f"{row['distance']:.2f} ± {row['distance_error']:.2f}"
            leading = ", ".join(f"{value:.2f}" for value in row["leading"][:3])
            shift = ", ".join(f"{value:.3g}" for value in row["shift"])
            lines.append(f"| {sigma} | {name} | {distance} | {leading} | {row['trace']:.2f} | {shift} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--model", required=True, help="folder of the geometry that train.py saved")
    parser.add_argument("--inception", type=Path, required=True, help="the Inception network of the FID")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args(argv)
    found = measure(arguments.data, arguments.model, arguments.inception, arguments.images, arguments.device)
    (arguments.out / "truth.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "truth.md").write_text(table(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
