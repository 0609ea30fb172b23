"""The pictures of this experiment, as files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from paths import Pairs, run_method
from PIL import Image
from settings import FLOW, LEARNED, LERP, STEIN, Method, Settings
from spectra import eigenvectors
from torch import Tensor

from carre.fields import MetricField
from carre.report import figure_of, plot_class_spectra, plot_dimension_over_scales, plot_image_rows, plot_tangent_images
from carre.report.style import BLUE, GREEN, ORANGE, STYLE
from data import Digits

_COLUMNS = 9
_DPI, _COLORS, _LARGEST_FILE = 110, (64, 32, 16), 200_000


def write(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG of few colors, as many as keep it small."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    picture = Image.open(buffer).convert("RGB")
    for colors in _COLORS:
        picture.quantize(colors, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= _LARGEST_FILE:
            break


@rc_context(STYLE)
def plot_losses(rows: list[dict]) -> Figure:
    """Plot the held-out losses against epochs."""
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    shown = (
        ("mean_loss", "Denoising", BLUE),
        ("metric_loss", "Metric", ORANGE),
        ("predictive_loss", "Together", GREEN),
    )
    for axes, (name, title, color) in zip(figure.subplots(1, 3), shown, strict=True):
        axes.plot([row["epoch"] for row in rows], [row[name] for row in rows], "o-", color=color)
        axes.set(title=title, xlabel="epochs")
    figure.axes[0].set_ylabel("loss on held-out digits")
    return figure


def write_spectra(results: dict, field: MetricField, digits: Digits, settings: Settings, out: Path) -> None:
    """Draw the eigenvectors, the cumulative eigenvalues and the dimension of each class."""
    sigma, chosen = results["default"]["bandwidth"], digits.test[digits.first_of_each_class()]
    numbers, vectors, values = eigenvectors(field, chosen, sigma, settings.eigenvectors)
    directions = vectors.cpu().numpy().reshape(*vectors.shape[:2], *digits.pictures(chosen).shape[1:])
    pictured = plot_tangent_images(digits.pictures(chosen), directions, values.cpu().numpy(), numbers=numbers)
    write(figure_of(pictured), out / "eigenvectors.png")
    by_class = {name: np.array(values) for name, values in results["eigenvalues_by_class"].items()}
    write(figure_of(plot_class_spectra(by_class)), out / "cumulative.png")
    scales = [row["bandwidth"] for row in results["scales"]]
    for how, label in (("trace", "sum of the eigenvalues"), ("count", "eigenvalues above ½")):
        curves = {name: [row[f"{how}_by_class"][name] for row in results["scales"]] for name in by_class}
        drawn = plot_dimension_over_scales(scales, curves, label=label)
        write(figure_of(drawn), out / f"dimension_{how}.png")


def write_paths(
    field: MetricField, pairs: Pairs, methods: dict[str, Method], digits: Digits, settings: Settings, out: Path
) -> None:
    """Draw one pair per class, by four methods; and three of them at several σ."""
    shown = pairs.first_of_each_class()
    three = {LERP: methods[LERP], "Stein": methods[STEIN], "flow": methods[FLOW], "thread": methods[LEARNED]}
    title = "From one digit to another of its class, at equal steps of length"
    write(_strips(field, shown, three, digits, title), out / "paths.png")
    scales = {f"σ = {s:g}": methods[f"learned, σ = {s:g}"] for s in settings.path_bandwidths}
    some = Pairs(*(values[2:9:3] for values in (shown.start, shown.end, shown.labels)))
    several = {LERP: methods[LERP]} | scales
    write(_strips(field, some, several, digits, "The same thread at several scales σ"), out / "paths_scales.png")


def _strips(field: MetricField, pairs: Pairs, methods: dict[str, Method], digits: Digits, title: str) -> Figure:
    rows = {name: run_method(field, pairs, method, _COLUMNS)[0].nodes for name, method in methods.items()}
    groups = {
        f"class {label}": {name: digits.pictures(nodes[i]) for name, nodes in rows.items()}
        for i, label in enumerate(pairs.labels.tolist())
    }
    return figure_of(plot_image_rows(groups, title=title, ends=("start", "end")))


def write_restored(shown: dict[str, dict[str, Tensor]], digits: Digits, out: Path) -> None:
    """Draw spoiled digits and what became of them."""
    groups = {what: {name: digits.pictures(points) for name, points in rows.items()} for what, rows in shown.items()}
    drawn = plot_image_rows(groups, title="Spoiled digits, and what the geometry makes of them")
    write(figure_of(drawn), out / "restored.png")
