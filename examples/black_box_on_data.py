"""Make a classifier change its mind, on the data and off them.

    python examples/black_box_on_data.py --out pictures

A classifier of handwritten digits is a black box: it takes images and returns probabilities, without derivatives. Push
an image until the box is 99 % sure to see the next digit, a 1 until it is a 2, and so on: by `minimize`, along the
learned geometry and by differences in the few directions that digits can move in; and by plain steps in the space of
all images, with the same stopping rule. How near do the results come to real digits, held out from everything?

Three things to know before believing such a picture. Plain steps stop earlier, having moved less, and a second
classifier is then less convinced by them; pushed on until they have moved as far, they convince it too. That is why
this third way is shown, and why the measure is the distance to real digits. Most of what is gained there is gained by
landing: images pushed freely as far, and landed once at the end, come about as near to real digits as those that
were landed at every step. And the scale, two and a half times the default one, was chosen by looking: at the default
scale most of these descents leave the data before the box is sure.
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

import carre
from carre.plots import render_png
from carre.plots.style import STYLE

SURE = 0.99
WHITE, BLACK = 0.0, 16.0
N_CLASSES = 10


def run(
    out: Path | None = None,
    *,
    n_per_class: int = 3,
    n_pushes: int = 40,
    max_steps: int = 600,
    width: int = 96,
    n_train: int = 1437,
    seed: int = 1,
) -> dict[str, Any]:
    """Fit, push and draw; return what became of the images on the data, off them, and off them as far.

    Args:
        out: The folder to write the picture to; None writes none.
        n_per_class: Held-out digits of each class to push; the first ones, not selected.
        n_pushes: Steps along the data, at most.
        max_steps: Training steps of the geometry.
        width: Hidden width of its network.
        n_train: Digits to learn from.
        seed: Of the split into digits to learn from and digits held out.
    """
    digits, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        digits, labels, train_size=n_train, test_size=360, stratify=labels, random_state=seed
    )
    box = MLPClassifier((64,), alpha=0.1, max_iter=500, random_state=0).fit(train / BLACK, train_labels)
    second = KNeighborsClassifier(5).fit(train, train_labels)
    geometry = carre.fit(train, rank=24, max_steps=max_steps, width=width, random_state=0, verbose=False)
    sigma = 2.5 * geometry.bandwidth

    chosen = np.concatenate([np.flatnonzero(test_labels == label)[:n_per_class] for label in range(N_CLASSES)])
    starts, targets, real = test[chosen], (test_labels[chosen] + 1) % N_CLASSES, np.delete(test, chosen, axis=0)
    ways = {"start": starts} | {way: starts.copy() for way in ("on the data", "off the data", "off, as far")}
    reasons: list[str] = []
    for target in range(N_CLASSES):
        mine = targets == target
        function = doubt(box, target)
        found = geometry.minimize(function, starts[mine], sigma, gradient="differences", max_steps=n_pushes)
        reasons += found.reasons
        moved = np.linalg.norm(found.points - starts[mine], axis=1)
        ways["on the data"][mine] = found.points
        ways["off the data"][mine] = push_freely(function, starts[mine], 0.1 * sigma)
        ways["off, as far"][mine] = push_freely(doubt(box, target, enough=1.0), starts[mine], 0.1 * sigma, moved)

    results = {way: measure(images, starts, targets, real, box, second) for way, images in ways.items()}
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        first = np.arange(len(starts))[::n_per_class]
        figure = draw({way: images[first] for way, images in ways.items()}, targets[first], results)
        (out / "black_box_on_data.png").write_bytes(render_png(figure))
    return {"bandwidth": sigma, "ways": results, "reasons": {r: reasons.count(r) for r in sorted(set(reasons))}}


def doubt(box: MLPClassifier, target: int, enough: float = SURE) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function to minimize: how much the box doubts that it sees a class, 0 where it is sure enough."""

    def function(images: np.ndarray) -> np.ndarray:
        probability = box.predict_proba(images / BLACK)[:, target]
        doubts: np.ndarray = -np.log(np.minimum(probability, enough) / enough + 1e-12)
        return doubts

    return function


def push_freely(
    function: Callable[[np.ndarray], np.ndarray],
    starts: np.ndarray,
    length: float,
    far: np.ndarray | None = None,
    max_steps: int = 200,
) -> np.ndarray:
    """Step down in the space of all images, by differences in every pixel, until nothing is doubted, or so far."""
    images, dim = starts.copy(), starts.shape[1]
    shift = 0.5 * np.eye(dim)
    for _ in range(max_steps):
        going = function(images) > 0 if far is None else np.linalg.norm(images - starts, axis=1) < far
        if not going.any():
            break
        around = np.stack([images[going][:, None] + shift, images[going][:, None] - shift])
        ahead, behind = function(around.reshape(-1, dim)).reshape(2, -1, dim)
        slope = ahead - behind
        size = np.linalg.norm(slope, axis=1, keepdims=True)
        images[going] = np.clip(images[going] - length * slope / np.maximum(size, 1e-12), WHITE, BLACK)
    return images


def measure(
    images: np.ndarray,
    starts: np.ndarray,
    targets: np.ndarray,
    real: np.ndarray,
    box: MLPClassifier,
    second: KNeighborsClassifier,
) -> dict[str, float]:
    """Compute what two classifiers think of images, how far they moved, and how far the nearest real digit is."""
    everyone = np.arange(len(images))
    return {
        "black box": float(box.predict_proba(images / BLACK)[everyone, targets].mean()),
        "second classifier": float(second.predict_proba(images)[everyone, targets].mean()),
        "moved": float(np.linalg.norm(images - starts, axis=1).mean()),
        "nearest real digit": float(np.linalg.norm(images[:, None] - real[None], axis=2).min(1).mean()),
    }


@rc_context(STYLE)
def draw(images: dict[str, np.ndarray], targets: np.ndarray, results: dict[str, dict[str, float]]) -> Figure:
    """Draw one column per class: the start, and where pushing it led in three ways."""
    figure = Figure(figsize=(11.5, 5.4), layout="constrained")
    grid = figure.subplots(len(images), N_CLASSES)
    for row, (way, points) in zip(grid, images.items(), strict=True):
        for axes, image in zip(row, points, strict=True):
            axes.imshow(image.reshape(8, 8), cmap="gray_r", vmin=WHITE, vmax=BLACK)
            axes.set(xticks=[], yticks=[])
            axes.grid(visible=False)
        told = results[way]
        label = f"{way}\nmoved {told['moved']:.0f}; a real digit\nis {told['nearest real digit']:.0f} away"
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
    for way, told in results["ways"].items():
        print(f"{way:<13} " + ", ".join(f"{what} {value:.2f}" for what, value in told.items()))
    print(", ".join(f"{count} {reason}" for reason, count in results["reasons"].items()))
    print(f"\nThe picture: {arguments.out / 'black_box_on_data.png'}")


if __name__ == "__main__":
    main()
