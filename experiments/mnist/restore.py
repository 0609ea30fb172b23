"""Spoiled digits, led back to the data: by the posterior mean, and by the walk back of the toolkit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from paths import Judge
from settings import Settings
from torch import Tensor

from carre.fields import MetricField
from carre.toolkit.landing import land, walk_back
from data import SIDE, Digits

_SQUARE, _SCRATCH, _SALT = 8, 2, 0.1


def add_noise(points: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise of a known deviation."""
    return points + deviation * torch.randn(points.shape, generator=generator, device=points.device)


def erase_square(points: Tensor, generator: torch.Generator) -> Tensor:
    """Make a square of 8 × 8 pixels background, at random near the middle."""
    corners = 6 + torch.randint(SIDE - 12 - _SQUARE, (2, len(points), 1), generator=generator, device=points.device)
    ticks = torch.arange(SIDE, device=points.device)
    rows, columns = (ticks >= corners) & (ticks < corners + _SQUARE)
    hole = rows[:, :, None] & columns[:, None, :]
    return torch.where(hole.flatten(1), points.min(), points)


def scratch(points: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a straight line of ink, two pixels wide, across the middle at a random angle."""
    angle = torch.pi * torch.rand(len(points), 1, 1, generator=generator, device=points.device)
    offset = 8 * torch.rand(len(points), 1, 1, generator=generator, device=points.device) - 4
    ticks = torch.arange(SIDE, device=points.device) - (SIDE - 1) / 2
    line = ticks[:, None] * angle.cos() + ticks * angle.sin() - offset
    return torch.where((line.abs() <= _SCRATCH / 2).flatten(1), points.max(), points)


def salt_and_pepper(points: Tensor, generator: torch.Generator) -> Tensor:
    """Make every tenth pixel ink or background, at random."""
    chance = torch.rand(points.shape, generator=generator, device=points.device)
    salted = torch.where(chance < _SALT / 2, points.max(), points)
    return torch.where(chance > 1 - _SALT / 2, points.min(), salted)


DAMAGES: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "erased square": erase_square,
    "scratch": scratch,
    "salt and pepper": salt_and_pepper,
}


@torch.no_grad()
def project(field: MetricField, points: Tensor, bandwidth: float) -> Tensor:
    """Lead points back to the data: along the denoiser until its steps are short, then land."""
    sigma = points.new_full((len(points),), bandwidth)
    return land(field, walk_back(field, points, sigma), sigma)


@torch.no_grad()
def denoise(field: MetricField, points: Tensor, bandwidth: float) -> Tensor:
    """Compute the posterior mean E[X | Y=y]."""
    return field.denoise(points, points.new_full((len(points),), bandwidth))


WAYS = {"posterior mean": denoise, "walk back": project}


def measure(field: MetricField, digits: Digits, settings: Settings, judge: Judge) -> dict:
    """Spoil test digits, restore them in both ways, and judge them before and after."""
    clean, labels = digits.test[: settings.n_restored], digits.test_labels[: settings.n_restored]
    spoiled = [
        (f"noise {deviation:g}", add_noise(clean, deviation, _generator(clean, settings.seed)), (deviation,))
        for deviation in settings.noise
    ]
    for name, damage in DAMAGES.items():
        spoiled.append((name, damage(clean, _generator(clean, settings.seed)), settings.restore_bandwidths))
    rows = []
    for name, points, bandwidths in spoiled:
        before = _judged(points, clean, labels, judge)
        for sigma in bandwidths:
            for way, restore in WAYS.items():
                after = _judged(restore(field, points, sigma), clean, labels, judge)
                rows.append({"spoiled": name, "way": way, "bandwidth": sigma, "before": before, "after": after})
    return {"n": len(clean), "clean": _judged(clean, clean, labels, judge), "rows": rows}


def examples(field: MetricField, digits: Digits, settings: Settings) -> dict[str, dict[str, Tensor]]:
    """Restore one digit per class: what is spoiled → what is seen → images, shape (classes, D)."""
    clean = digits.test[digits.first_of_each_class()]
    shown = {}
    for deviation in settings.noise:
        noisy = add_noise(clean, deviation, _generator(clean, settings.seed))
        shown[f"noise of deviation {deviation:g}"] = {
            "original": clean,
            "with noise": noisy,
            "E[X | Y]": denoise(field, noisy, deviation),
            "walk back": project(field, noisy, deviation),
        }
    for name, damage in DAMAGES.items():
        spoiled = damage(clean, _generator(clean, settings.seed))
        restored = {f"σ = {sigma:g}": project(field, spoiled, sigma) for sigma in settings.restore_bandwidths}
        shown[f"{name}, walked back at several σ"] = {"original": clean, "spoiled": spoiled} | restored
    return shown


def _judged(points: Tensor, clean: Tensor, labels: Tensor, judge: Judge) -> dict[str, float]:
    right, confidence = judge.verdict(points[:, None], labels)
    return {
        "to_original": float(torch.linalg.vector_norm(points - clean, dim=-1).mean()),
        "to_nearest": float(judge.distances(points).mean()),
        "right": float(right.mean()),
        "confidence": float(confidence.mean()),
    }


def _generator(points: Tensor, seed: int) -> torch.Generator:
    return torch.Generator(points.device).manual_seed(seed)
