"""The pictures of this experiment, as files."""

from __future__ import annotations

import io
from itertools import cycle
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
from carre.plots import figure_of, plot_dimension_over_scales, plot_path_strip, plot_tangent_images
from carre.plots.style import BLUE, GREEN, INK, ORANGE, PINK, STYLE
from data import Digits

_COLUMNS = 9
# Inches of an image in a mosaic.
_CELL = 0.45
# Five colors that every eye tells apart, each solid and dashed.
_LINES = [(color, line) for line in ("-", "--") for color in (BLUE, ORANGE, GREEN, PINK, INK)]
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


@rc_context(STYLE)
def plot_image_rows(
    groups: dict[str, dict[str, np.ndarray]], *, title: str, ends: tuple[str, str] | None = None
) -> Figure:
    """Plot named rows of images, values from 0, white, to 1, black, in titled groups, two beside each other."""
    across = min(2, len(groups))
    down, most = -(-len(groups) // across), max(map(len, groups.values()))
    n_columns = len(next(iter(next(iter(groups.values())).values())))
    size = across * (1.0 + _CELL * n_columns), 0.4 + down * (0.5 + _CELL * most)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel, (name, rows) in zip(panels, groups.items(), strict=False):
        plot_path_strip(rows, ends=ends, limits=(0.0, 1.0), axes=panel).set_title(name, fontsize=10)
    for panel in panels[len(groups) :]:
        panel.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left")
    return figure


@rc_context(STYLE)
def plot_class_spectra(eigenvalues: dict[str, np.ndarray]) -> Figure:
    """Plot the mean cumulative eigenvalues of each class, as sums and as shares of the whole [RMM, Fig. 3].

    Where the sum levels off, there are no more directions; the earlier, the fewer.
    """
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, values), (color, line) in zip(eigenvalues.items(), cycle(_LINES), strict=False):
        numbers, sums = np.arange(1, 1 + len(values)), np.cumsum(values)
        for axes, heights in ((left, sums), (right, sums / sums[-1])):
            axes.plot(numbers, heights, line, color=color, linewidth=1.5, label=name)
        end = numbers[-1], sums[-1]
        left.annotate(name, end, (5, 0), textcoords="offset points", fontsize=8, color=color)
    left.set(title="How much there is in the leading directions", ylabel="sum of the leading eigenvalues")
    right.set(title="The same, as a share of all", ylabel="share of the sum")
    for axes in (left, right):
        axes.set(xlabel="leading eigenvalues, mean over the class", ylim=(0, None))
    right.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), title="class", fontsize=9)
    return figure


def write_spectra(results: dict, field: MetricField, digits: Digits, settings: Settings, out: Path) -> None:
    """Draw the eigenvectors, the cumulative eigenvalues and the dimension of each class."""
    sigma, chosen = results["default"]["bandwidth"], digits.test[digits.first_of_each_class()]
    numbers, vectors, values = eigenvectors(field, chosen, sigma, settings.eigenvectors)
    directions = vectors.cpu().numpy().reshape(*vectors.shape[:2], *digits.pictures(chosen).shape[1:])
    pictured = plot_tangent_images(digits.pictures(chosen), directions, values.cpu().numpy(), numbers=numbers)
    write(figure_of(pictured), out / "eigenvectors.png")
    by_class = {name: np.array(values) for name, values in results["eigenvalues_by_class"].items()}
    write(plot_class_spectra(by_class), out / "cumulative.png")
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
    return plot_image_rows(groups, title=title, ends=("start", "end"))


def write_restored(shown: dict[str, dict[str, Tensor]], digits: Digits, out: Path) -> None:
    """Draw spoiled digits and what became of them."""
    groups = {what: {name: digits.pictures(points) for name, points in rows.items()} for what, rows in shown.items()}
    write(plot_image_rows(groups, title="Spoiled digits, and what the geometry makes of them"), out / "restored.png")
