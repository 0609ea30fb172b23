"""Tiny fits to report on, made once per process, and reports on them."""

import functools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from carre import Geometry, fit
from carre.data import ImageDataset
from carre.networks import UNetSettings
from carre.report._inputs import as_input
from carre.report._measuring import measure
from carre.report.page import render

EVIL = "</script><b>&\"'"


def circle(n: int = 120, dim: int = 2, noise: float = 0.02) -> np.ndarray:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, n)
    plane = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    axes, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
    return plane @ axes[:2] + noise * rng.standard_normal((n, dim))


def pictures(n: int = 40) -> ImageDataset:
    """Bars at different heights: pictures of 6 × 5 pixels, in two classes."""
    heights = np.arange(n) % 5
    pixels = np.full((n, 1, 6, 5), 10, dtype=np.uint8)
    pixels[np.arange(n), 0, heights] = 240
    return ImageDataset(pixels, heights % 2, name="bars", class_names=("even", "odd"))


def fitted(samples: Any, **options: Any) -> Geometry:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"max_steps": 60, "random_state": 0, "device": "cpu", "verbose": False, **options}
        return fit(samples, **options)


@functools.cache
def plane_geometry() -> Geometry:
    return fitted(circle(), width=32, bandwidth_range=(0.05, 1.0))


@functools.cache
def table_geometry() -> Geometry:
    return fitted(circle(dim=10), width=32, bandwidth=0.25)


@functools.cache
def image_geometry() -> Geometry:
    network = UNetSettings(channels=4, multipliers=(1,), n_blocks=1, attention=())
    return fitted(pictures(), network=network, rank=4, bandwidth=0.5, batch_size=8, max_steps=4)


def content_of(geometry: Geometry, samples: Any, **options: Any) -> Any:
    asked = {name: options.pop(name) for name in ("bandwidth", "max_points", "seconds") if name in options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return measure(geometry, as_input(geometry, samples, **options), **{"seconds": 2.0, **asked})


@functools.cache
def plane_content() -> Any:
    return content_of(plane_geometry(), circle(), pairs=[(0, 1), (2, 3)], title="A circle")


@functools.cache
def table_content() -> Any:
    columns = {"height": np.where(np.arange(120) % 10 == 0, np.nan, np.arange(120.0)), EVIL: ["a", EVIL] * 60}
    labels = [None, *(["left", EVIL, "right"] * 40)[1:]]
    return content_of(table_geometry(), circle(dim=10), labels=labels, columns=columns, title=f"A table {EVIL}")


def column() -> np.ndarray:
    """One column of numbers, in two groups."""
    return np.concatenate([circle()[:, :1] * 0.1, 3 + circle()[:, 1:] * 0.1])


@functools.cache
def column_content() -> Any:
    return content_of(fitted(column(), width=16, bandwidth=0.2, max_steps=20), column(), seconds=0.5)


@functools.cache
def image_content() -> Any:
    return content_of(image_geometry(), pictures(), pairs=[(0, 5)], seconds=0.5)


@functools.cache
def page(name: str) -> Path:
    """Write the report on a plane, a table or images."""
    folder = Path(tempfile.mkdtemp(prefix="carre-report-"))
    content = {"plane": plane_content, "table": table_content, "images": image_content}[name]()
    path = folder / f"{name}.html"
    path.write_text(render(content), encoding="utf-8")
    return path
