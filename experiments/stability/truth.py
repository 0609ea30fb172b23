"""Who is right at coarse scales: learned metrics beside an exact kernel on all training images.

    python experiments/stability/truth.py --data FOLDER --model FOLDER --inception FILE --out FOLDER
    python experiments/stability/truth.py --data FOLDER --out FOLDER --only places

From σ = 8 on thousands of the 50,000 images count as neighbors of most, so that the kernel sum is close to the truth.
Networks have seen noisy images only. So every learned metric is asked twice: at the clean image x, as run.py
does, and at x + σ(I − S)ε with S = Σ(Σ + σ²)⁻¹ and ε ~ N(0, I), the image with noise where the data have little
variance: the network has seen the like. "places" asks the kernel there, too, and how near the constant S comes, which
would be right if the data were Gaussian; no network is needed. "constant" asks how far features move along S. A minute
or two on a GPU. Results go to OUT/truth.json and OUT/truth.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre.data import ImageDataset, load_cifar10
from carre.fields import IsotropicField, MetricField, NoDenoiserError, ScoreField
from carre.metric import LowRankMetric
from experiments.measures import Stability, compare_stability, feature_stability, inception_features
from experiments.stability.parts import split_images
from experiments.stability.settings import CIFAR10_STABILITY

HERE = Path(__file__).parent
PARTS = ("networks", "places", "constant")
OURS, JACOBIAN, KERNEL = "metric matching", "score Jacobian, randomized", "exact kernel"
_RANK, _LEADING, _DRAWS = 100, 12, 4
_OVERSAMPLING, _ITERATIONS = 100, 4
_RADII = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_BANDWIDTHS = (8.0, 16.0, 32.0)
# Leading directions of the data in which kernels are compared at different places.
_DIRECTIONS = 512


class Kept:
    """A field whose metrics, at given points and one σ, were computed beforehand: their factors."""

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
        self.covariances = [_covariance(samples, weight) / sigma**2 for weight in weights]
        factors = []
        for covariance in self.covariances:
            _, values, directions = torch.svd_lowrank(covariance, _RANK + _OVERSAMPLING, niter=_ITERATIONS)
            factors.append((values.sqrt() * directions).mT[:_RANK])
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
    """Fills clean points with noise where the data, given by samples, have little variance."""

    def __init__(self, samples: Float[Tensor, "m dim"]) -> None:
        self.variances, self.directions = torch.linalg.eigh(torch.cov(samples.mT))

    def shrinkage(self, sigma: float) -> Float[Tensor, " dim"]:
        """Compute the eigenvalues of S, ascending."""
        values: Tensor = self.variances / (self.variances + sigma**2)
        return values

    def __call__(self, points: Float[Tensor, "n dim"], sigma: float) -> Float[Tensor, "n dim"]:
        """Compute x + σ(I − S)ε; the same ε every time."""
        noise = torch.randn(points.shape, generator=torch.Generator().manual_seed(0)).to(points)
        left = 1 - self.shrinkage(sigma)
        return points + sigma * ((noise @ self.directions) * left) @ self.directions.mT


def measure_places(
    sigma: float, points: Float[Tensor, "n dim"], samples: Float[Tensor, "m dim"], filler: Filler
) -> dict[str, Any]:
    """Compare the kernel at clean points with that at filled ones, and with S, in the leading directions."""
    leading = filler.directions[:, -_DIRECTIONS:]
    constant = torch.diag(filler.shrinkage(sigma)[-_DIRECTIONS:])
    coordinates = (samples - samples.mean(0)) @ leading
    filled, neighbors, distances = filler(points, sigma), [], []
    for pair in zip(points, filled, strict=True):
        weights = torch.softmax(-torch.cdist(torch.stack(pair), samples).square() / (2 * sigma**2), 1)
        kernel, moved = (_covariance(coordinates, weight) / sigma**2 for weight in weights)
        size = torch.linalg.matrix_norm(kernel)
        distances.append([float(torch.linalg.matrix_norm(other - kernel) / size) for other in (moved, constant)])
        neighbors.append((1 / weights.square().sum(1)).tolist())
    means, errors = torch.tensor(distances).mean(0), torch.tensor(distances).std(0) / len(points) ** 0.5
    counts = torch.tensor(neighbors)
    return {
        name: {"distance": float(means[i]), "distance_error": float(errors[i])}
        for i, name in enumerate((f"{KERNEL}, filled", "constant S"))
    } | {
        "neighbors": {
            place: {"least": float(count.min()), "median": float(count.median())}
            for place, count in zip(("clean", "filled"), counts.mT, strict=True)
        }
    }


def _covariance(points: Float[Tensor, "m dim"], weights: Float[Tensor, " m"]) -> Float[Tensor, "dim dim"]:
    rows = weights.sqrt()[:, None] * (points - weights @ points)
    return rows.mT @ rows


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
    """Measure the networks at every σ."""
    geometry = carre.load(model, device=device)
    dataset, images, samples = load(data, n_images, device)
    features = inception_features(inception, normalization=dataset.normalization, device=device)
    filler, (low, high) = Filler(samples), geometry.bandwidth_range
    return {
        "data": dataset.name,
        "radii": _RADII,
        "n_images": n_images,
        "n_draws": _DRAWS,
        "bandwidths": {
            f"{sigma:g}": measure_at(sigma, geometry.field, images, samples, features, filler)
            for sigma in _BANDWIDTHS
            if low <= sigma <= high
        },
        **surroundings(device),
    }


def load(data: Path, n_images: int, device: str) -> tuple[ImageDataset, Tensor, Float[Tensor, "m dim"]]:
    """Load the dataset of test images, some of them, and all training images as points."""
    dataset = load_cifar10(data, "test")
    images = split_images(dataset, CIFAR10_STABILITY, device)[1][:n_images]
    return dataset, images, torch.as_tensor(load_cifar10(data, "train").images).flatten(1).to(device)


def surroundings(device: str) -> dict[str, Any]:
    """Say where and when."""
    on_gpu = device.startswith("cuda")
    return {
        "hardware": torch.cuda.get_device_name(device) if on_gpu else f"{torch.get_num_threads()} CPU threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": date.today().isoformat(),
    }


def measure_constant(data: Path, model: str, inception: Path, n_images: int, device: str) -> dict[str, Any]:
    """Ask how far features move along the constant S, beside metric matching, at the largest σ."""
    field, sigma = carre.load(model, device=device).field, max(_BANDWIDTHS)
    dataset, images, samples = load(data, n_images, device)
    features, filler = (
        inception_features(inception, normalization=dataset.normalization, device=device),
        Filler(samples),
    )
    rows = (filler.directions * filler.shrinkage(sigma).sqrt()).mT[-_RANK:]
    constant = Kept(rows.expand(n_images, *rows.shape))
    own = Kept.of(field, images.flatten(1), sigma)
    found = [
        feature_stability(metrics, images, features, _RADII, _DRAWS, bandwidth=sigma, batch_size=n_images)
        for metrics in (own, constant)
    ]
    compared = compare_stability(*found)
    return {
        "bandwidth": sigma,
        "n_images": n_images,
        "shift": {OURS: found[0].mean.tolist(), "constant S": found[1].mean.tolist()},
        "ours_minus_it": {key: getattr(compared, key).tolist() for key in ("difference", "low", "high")},
        **surroundings(device),
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
        place = found.get("places", {}).get("bandwidths", {}).get(sigma, {})
        for name in (f"{KERNEL}, filled", "constant S"):
            if name in place:
                distance = f"{place[name]['distance']:.2f} ± {place[name]['distance_error']:.2f}"
                lines.append(f"| {sigma} | {name} | {distance} | | | |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--model", help="folder of the geometry that train.py saved")
    parser.add_argument("--inception", type=Path, help="the Inception network of the FID")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--only", choices=PARTS, help="one part; the others stay as they were")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args(argv)
    parts = [arguments.only] if arguments.only else PARTS
    if parts != ["places"] and not (arguments.model and arguments.inception):
        parser.error("--model and --inception are needed for networks and features; --only places does without")
    file = arguments.out / "truth.json"
    found = json.loads(file.read_text(encoding="utf-8")) if arguments.only and file.exists() else {"bandwidths": {}}
    given = (arguments.data, arguments.model, arguments.inception, arguments.images, arguments.device)
    if "networks" in parts:
        found = {**found, **measure(*given)}
    if "places" in parts:
        _, images, samples = load(arguments.data, arguments.images, arguments.device)
        filler, points = Filler(samples), images.flatten(1)
        places = {f"{sigma:g}": measure_places(sigma, points, samples, filler) for sigma in _BANDWIDTHS}
        found["places"] = {"n_images": len(points), "bandwidths": places, **surroundings(arguments.device)}
    if "constant" in parts:
        found["constant"] = measure_constant(*given)
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "truth.md").write_text(table(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
