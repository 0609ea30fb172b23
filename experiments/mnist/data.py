"""The digits, as flat points on one device; or strokes that stand in for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from carre.data import ImageDataset, Normalization, load_mnist

SIDE = 28
_CHUNK = 100
# Outlines of four classes in the unit square: a ring, a bar, a hook, a zigzag.
_RING = [(0.5 + 0.3 * math.sin(a), 0.5 - 0.3 * math.cos(a)) for a in np.linspace(0, 2 * math.pi, 13)]
_OUTLINES = (_RING, [(0.5, 0.2), (0.5, 0.8)], [(0.3, 0.2), (0.3, 0.8), (0.7, 0.8)])
_OUTLINES = (*_OUTLINES, [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)])


@dataclass(frozen=True, eq=False)
class Digits:
    """Training and test digits.

    Attributes:
        dataset: The training digits as images.
        train: The same, normalized, as flat points on a device.
        train_labels: Their classes.
        test: The test digits.
        test_labels: Their classes.
    """

    dataset: ImageDataset
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor

    @classmethod
    def of(cls, train: ImageDataset, test: ImageDataset, device: torch.device) -> Digits:
        """Bring two datasets onto a device."""
        parts = [torch.as_tensor(part, device=device) for s in (train, test) for part in (s.images, s.labels)]
        return cls(train, parts[0].flatten(1), parts[1], parts[2].flatten(1), parts[3])

    @property
    def classes(self) -> list[int]:
        """The classes that occur."""
        return self.train_labels.unique().tolist()

    def pictures(self, points: Tensor) -> np.ndarray:
        """Turn points of shape (…, D) into pixels in [0, 1], shape (…, height, width)."""
        pixels: np.ndarray = self.dataset.normalization.decode(points.detach().cpu().numpy(), clip=True)
        return pixels.reshape(*points.shape[:-1], SIDE, SIDE)

    def first_of_each_class(self) -> Tensor:
        """Return the index of the first test digit of each class: examples that nobody picked."""
        return torch.stack([(self.test_labels == name).nonzero()[0, 0] for name in self.classes])


def load_digits(folder: Path, device: torch.device, n_train: int | None = None, n_test: int | None = None) -> Digits:
    """Read MNIST, the first digits or all."""
    return Digits.of(load_mnist(folder, "train")[:n_train], load_mnist(folder, "test")[:n_test], device)


def draw_strokes(n_train: int, n_test: int, device: torch.device, seed: int = 0) -> Digits:
    """Draw images of strokes in four classes, bent and moved at random."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_train + n_test) % len(_OUTLINES)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    pixels = torch.cat([_draw(part, generator) for part in labels.split(_CHUNK)])
    pixels = (255 * pixels).round().byte().reshape(-1, 1, SIDE, SIDE)
    all_ = ImageDataset(pixels.numpy(), labels.numpy(), Normalization((0.1307,), 0.3081), "synthetic strokes")
    return Digits.of(all_[:n_train], all_[n_train:], device)


def _draw(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one image per label, shape (n, D), in [0, 1]."""
    n = len(labels)
    lines = torch.stack([_along(torch.tensor(outline), 32) for outline in _OUTLINES])[labels]
    tilt = torch.eye(2) + 0.15 * torch.randn(n, 2, 2, generator=generator)
    lines = (lines - 0.5) @ tilt + 0.5 + 0.05 * torch.randn(n, 1, 2, generator=generator)
    width = 0.03 + 0.03 * torch.rand(n, 1, generator=generator)
    ticks = (torch.arange(SIDE) + 0.5) / SIDE
    grid = torch.stack(torch.meshgrid(ticks, ticks, indexing="xy"), -1).reshape(1, -1, 2)
    nearest = torch.cdist(grid.expand(n, -1, -1), lines).amin(-1)
    return (1.5 * torch.exp(-0.5 * (nearest / width).square())).clamp(max=1)


def _along(corners: Tensor, count: int) -> Tensor:
    """Place points along a polygon."""
    place = torch.linspace(0, len(corners) - 1, count).clamp(max=len(corners) - 1 - 1e-4)
    start = place.long()
    return torch.lerp(corners[start], corners[start + 1], (place - start)[:, None])
