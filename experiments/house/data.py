"""The three datasets of the comparison, and where their answers are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ANSWERS = HERE / "answers"
# Small fits: what is compared is the house, not the geometry.
SMALL = {"max_steps": 300, "width": 64, "random_state": 0, "device": "cpu", "verbose": False}
IMAGES = {"max_steps": 40, "random_state": 0, "device": "cpu", "verbose": False}


def swiss_roll() -> np.ndarray:
    """Draw 1,000 points of a Swiss roll in R³."""
    generator = np.random.default_rng(0)
    angle, height = 1.5 * np.pi * (1 + 2 * generator.uniform(size=1000)), 21 * generator.uniform(size=1000)
    return np.stack([angle * np.cos(angle), height, angle * np.sin(angle)], axis=1)


def sphere() -> np.ndarray:
    """Draw 1,000 points of S³ in R²⁰, rotated."""
    generator = np.random.default_rng(1)
    points = generator.normal(size=(1000, 4))
    rotation = np.linalg.qr(generator.normal(size=(20, 20)))[0]
    return points / np.linalg.norm(points, axis=1, keepdims=True) @ rotation[:4]


def digits() -> np.ndarray:
    """Return 600 handwritten digits, 8 × 8 pixels, as images."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    return (load_digits().images[:600, None] / 16).astype(np.float64)


DATA = {"swiss_roll": swiss_roll, "sphere": sphere, "digits": digits}
DIMENSION = {"swiss_roll": 2, "sphere": 3, "digits": 5}
