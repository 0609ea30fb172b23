"""Learn the geometry of handwritten digits, and look at it.

    python examples/digits.py --out demo

The 1,797 digits that come with scikit-learn are images of 8 × 8 pixels, so points in 64 dimensions. Most of those
directions turn a digit into something that is no digit. Which ones do not, and how many are there? The demo fits
`carre.MetricMatching` to four fifths of the digits, asks it about the rest, and writes pictures, ``results.json`` and
a page, ``report.html``, into the folder.

The network is smaller and trained for less time than by default (128 units and 1,000 steps, not 256 and 3,000), so
that everything takes about a minute on two processor cores; the losses on held-out digits are flat by then, as the
last picture shows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from carre import ExactField, MetricMatching
from carre.manifolds import FiniteSet, Gaussian
from carre.report import (
    plot_denoised_images,
    plot_dimension_by_class,
    plot_scale_profile,
    plot_tangent_images,
    plot_training,
    render_png,
    write_page,
)
from carre.toolkit import calibration_error
from digits_page import facts, sections

MAX_STEPS, WIDTH = 1000, 128
N_DIRECTIONS = 7


def run(out: Path, max_steps: int = MAX_STEPS, width: int = WIDTH, n_digits: int = 1797) -> dict[str, Any]:
    """Fit, measure, draw and write; return the results, which are also in ``results.json``.

    Args:
        out: The folder to write to; made if it is missing.
        max_steps: Training steps.
        width: Hidden width of the network.
        n_digits: How many of the digits to use: the first ones.
    """
    check_arguments(out, max_steps)
    start = time.perf_counter()
    digits, labels = load_digits(return_X_y=True)
    digits, labels = digits[:n_digits], labels[:n_digits]
    train, test, _, test_labels = train_test_split(digits, labels, test_size=0.2, stratify=labels, random_state=0)

    geometry = MetricMatching(max_steps=max_steps, width=width, random_state=0).fit(train)

    fit_seconds = time.perf_counter() - start
    results = measure(geometry, train, test, test_labels)
    pictures = {name: render_png(figure) for name, figure in draw(geometry, train, test, test_labels, results).items()}
    results["run"] = {
        "max_steps": max_steps,
        "width": width,
        "n_train": len(train),
        "n_test": len(test),
        "fit_seconds": fit_seconds,
        "seconds": time.perf_counter() - start,
        "device": str(geometry.device_),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, png in pictures.items():
        (out / f"{name}.png").write_bytes(png)
    (out / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page(out / "report.html", "The geometry of handwritten digits", facts(results), sections(results, pictures))
    return results


def measure(geometry: MetricMatching, train: np.ndarray, test: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Compute every number that is shown, on digits that took no part in the fit (the gain: on some it set aside)."""
    sigma, history = geometry.bandwidth_, geometry.history_
    dimension, eigenvalues = geometry.dimension(test), geometry.eigenvalues(test)
    removed = []
    for scale in (sigma, 2 * sigma, 4 * sigma):
        noisy, restored = denoise(geometry, train, test, scale)
        removed.append({"bandwidth": scale} | {name: noise_removed(test, noisy, x) for name, x in restored.items()})
    return {
        "bandwidth": sigma,
        "bandwidth_range": list(geometry.bandwidth_range_),
        "bandwidth_reason": geometry.scale_profile_.reason,
        "calibration_error": calibration_error(
            geometry.field_, torch.as_tensor(test), sigma, generator=torch.Generator().manual_seed(0)
        ),
        "rank": geometry.rank_,
        "score": geometry.score(test),
        "dimension": float(dimension.mean()),
        "dimension_by_class": {str(name): float(dimension[labels == name].mean()) for name in np.unique(labels)},
        "eigenvalue_range": [float(eigenvalues.min()), float(eigenvalues.max())],
        "noise_removed": removed,
        "gain": {
            "bandwidths": list(history.bandwidths),
            "Carré": history.gain.tolist(),
            "kernel": list(history.kernel_gain),
        },
    }


def denoise(
    geometry: MetricMatching, train: np.ndarray, clean: np.ndarray, sigma: float
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Add noise of deviation σ, and take it off again in three ways.

    The best linear denoiser is exact for a Gaussian with the mean and covariance of the training digits; the kernel,
    for the training digits themselves, of which it returns a weighted mean.
    """
    noisy = clean + sigma * np.random.default_rng(0).standard_normal(clean.shape)
    samples, points = torch.as_tensor(train), torch.as_tensor(noisy)
    linear = ExactField(Gaussian(samples.mean(0), torch.cov(samples.mT)))
    kernel = ExactField(FiniteSet(samples))
    return noisy, {
        "linear": linear.denoise(points, sigma).numpy(),
        "kernel": kernel.denoise(points, sigma).numpy(),
        "Carré": geometry.denoise(noisy, sigma),
    }


def noise_removed(clean: np.ndarray, noisy: np.ndarray, restored: np.ndarray) -> float:
    """Compute the share of the noise that is gone: 1 − |restored − clean|²/|noisy − clean|²."""
    return float(1 - np.square(restored - clean).sum() / np.square(noisy - clean).sum())


def draw(
    geometry: MetricMatching, train: np.ndarray, test: np.ndarray, labels: np.ndarray, results: dict[str, Any]
) -> dict[str, Figure]:
    """Draw every picture. Examples are the first held-out digit of each class, not selected ones."""
    examples = test[[int(np.argmax(labels == name)) for name in np.unique(labels)]]
    n_directions = min(N_DIRECTIONS, geometry.rank_)
    directions = geometry.tangent_basis(examples, dim=n_directions).swapaxes(1, 2)
    noisy, restored = denoise(geometry, train, examples, geometry.bandwidth_)
    removed = results["noise_removed"][0]
    return {
        "tangents": plot_tangent_images(
            examples.reshape(-1, 8, 8),
            directions.reshape(-1, n_directions, 8, 8),
            geometry.eigenvalues(examples)[:, :n_directions],
        ),
        "dimension": plot_dimension_by_class(geometry.dimension(test), labels),
        "scale": plot_scale_profile(geometry.scale_profile_),
        "denoising": plot_denoised_images(
            examples.reshape(-1, 8, 8),
            noisy.reshape(-1, 8, 8),
            {f"{name}\n(removes {removed[name]:.0%})": x.reshape(-1, 8, 8) for name, x in restored.items()},
        ),
        "training": plot_training(geometry.history_),
    }


def check_arguments(out: Path, max_steps: int) -> None:
    """Raise ValueError before any work is done for nothing."""
    if max_steps < 1:
        raise ValueError(f"steps must be a positive integer; got {max_steps}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder; got the file {str(out)!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn the geometry of handwritten digits, and write a report.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder to write to (default: demo)")
    parser.add_argument("--steps", type=int, default=MAX_STEPS, help=f"training steps (default: {MAX_STEPS})")
    arguments = parser.parse_args()
    try:
        check_arguments(arguments.out, arguments.steps)
    except ValueError as error:
        sys.exit(f"digits.py: {error}")

    # A second thread saves a quarter of the time on products as small as these, and costs a multiple of it where
    # another program wants its core.
    torch.set_num_threads(1)
    results = run(arguments.out, arguments.steps)
    for fact in facts(results):
        print(f"{fact.name:<18} {fact.value:<13} {fact.meaning}")
    print(f"\nThe report: {arguments.out / 'report.html'}")


if __name__ == "__main__":
    main()
