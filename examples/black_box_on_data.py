"""Make a classifier change its mind, on the data and off them.

    python examples/black_box_on_data.py --out pictures

A classifier of handwritten digits is a black box: it takes images and returns probabilities, without derivatives. Push
an image until the box is sure to see the next digit, a 1 until it is a 2, and so on. Steps in the space of all
images soon succeed, with images that nobody else takes for that digit. `minimize` steps along the learned geometry
instead, by differences of the box's answers in the few directions that digits can move in: its images are the digit
that the box was asked for, also in the eyes of a second classifier that took no part.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

from carre import MetricMatching
from carre.report import render_png
from carre.report.style import STYLE
from carre.toolkit.descent import minimize

SURE = 0.99
WHITE, BLACK = 0.0, 16.0
N_CLASSES = 10


def run(
    out: Path | None = None, *, n_per_class: int = 3, max_steps: int = 600, width: int = 96, n_train: int = 1437
) -> dict[str, Any]:
    """Fit, push and draw; return how sure the black box and the second classifier are, on the data and off them.

    Args:
        out: The folder to write the picture to; None writes none.
        n_per_class: Held-out digits of each class to push; the first ones, not selected.
        max_steps: Training steps of the geometry.
        width: Hidden width of its network.
        n_train: Digits to learn from.
    """
    digits, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        digits, labels, train_size=n_train, test_size=360, stratify=labels, random_state=0
    )
    box = MLPClassifier((64,), alpha=0.1, max_iter=500, random_state=0).fit(train / BLACK, train_labels)
    second = KNeighborsClassifier(5).fit(train, train_labels)
    geometry = MetricMatching(rank=24, max_steps=max_steps, width=width, random_state=0, verbose=False).fit(train)

    chosen = np.concatenate([np.flatnonzero(test_labels == label)[:n_per_class] for label in range(N_CLASSES)])
    starts, targets = test[chosen], (test_labels[chosen] + 1) % N_CLASSES
    ends: dict[str, np.ndarray] = {"on the data": np.empty_like(starts), "off the data": np.empty_like(starts)}
    reasons: list[str] = []
    for target in range(N_CLASSES):
        mine = targets == target
        found = minimize(
            geometry.field_, doubt(box, target), starts[mine], geometry.bandwidth_, gradient="differences", max_steps=40
        )
        ends["on the data"][mine] = found.points
        reasons += found.reasons
        ends["off the data"][mine] = push_freely(doubt(box, target), starts[mine], 0.25 * geometry.bandwidth_)

    everyone = np.arange(len(starts))
    sure = {
        where: {
            "black box": float(box.predict_proba(images / BLACK)[everyone, targets].mean()),
            "second classifier": float(second.predict_proba(images)[everyone, targets].mean()),
        }
        for where, images in {"start": starts, **ends}.items()
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        first = everyone[::n_per_class]
        images = {"start": starts[first]} | {where: points[first] for where, points in ends.items()}
        (out / "black_box_on_data.png").write_bytes(render_png(draw(images, targets[first], sure)))
    return {"bandwidth": geometry.bandwidth_, "sure": sure, "reasons": {r: reasons.count(r) for r in set(reasons)}}


def doubt(box: MLPClassifier, target: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function to minimize: minus the logarithm of the probability that the box gives to a class."""

    def function(images: np.ndarray) -> np.ndarray:
        # A floor, or the logarithm would reward certainty without end.
        doubts: np.ndarray = -np.log(box.predict_proba(images / BLACK)[:, target] + 1e-3)
        return doubts

    return function


def push_freely(
    function: Callable[[np.ndarray], np.ndarray], starts: np.ndarray, length: float, max_steps: int = 100
) -> np.ndarray:
    """Step down the gradient in the space of all images, by differences in every pixel, until the box is sure."""
    images, dim = starts.copy(), starts.shape[1]
    shift = 0.5 * np.eye(dim)
    for _ in range(max_steps):
        unsure = function(images) > -np.log(SURE)
        if not unsure.any():
            break
        around = np.stack([images[unsure][:, None] + shift, images[unsure][:, None] - shift])
        ahead, behind = function(around.reshape(-1, dim)).reshape(2, -1, dim)
        slope = ahead - behind
        step = length * slope / np.linalg.norm(slope, axis=1, keepdims=True)
        images[unsure] = np.clip(images[unsure] - step, WHITE, BLACK)
    return images


@rc_context(STYLE)
def draw(images: dict[str, np.ndarray], targets: np.ndarray, sure: dict[str, dict[str, float]]) -> Figure:
    """Draw one column per class: the start, and where pushing it led, on the data and off them."""
    figure = Figure(figsize=(11.5, 4.4), layout="constrained")
    grid = figure.subplots(len(images), N_CLASSES)
    for row, (where, points) in zip(grid, images.items(), strict=True):
        for axes, image in zip(row, points, strict=True):
            axes.imshow(image.reshape(8, 8), cmap="gray_r", vmin=WHITE, vmax=BLACK)
            axes.set(xticks=[], yticks=[])
            axes.grid(visible=False)
        told = sure[where]
        label = f"{where}\nbox {told['black box']:.0%}, second {told['second classifier']:.0%}"
        row[0].set_ylabel(label, rotation=0, ha="right", va="center")
    for axes, target in zip(grid[0], targets, strict=True):
        axes.set_title(f"→ {target}", loc="center")
    figure.suptitle("Pushed until a classifier sees the next digit", x=0.01, ha="left")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Push digits until a black box sees the next one.")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder to write to (default: pictures)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = run(arguments.out)
    for where, told in results["sure"].items():
        print(f"{where:<13} " + ", ".join(f"{who} {value:.0%}" for who, value in told.items()))
    print(", ".join(f"{count} {reason}" for reason, count in results["reasons"].items()))
    print(f"\nThe picture: {arguments.out / 'black_box_on_data.png'}")


if __name__ == "__main__":
    main()
