"""Pictures: how far features move along each metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carre.plots.style import BLUE, GRAY, GREEN, INK, ORANGE, PINK, SKY, STYLE, YELLOW

_OURS, _RANDOM = "metric matching", "random directions"
_COLORS = {
    _OURS: BLUE,
    _RANDOM: GRAY,
    "Stein score": ORANGE,
    "score Jacobian, full": GREEN,
    "score Jacobian, randomized": PINK,
    "metric matching, uncentered": SKY,
}
_TITLES = {"synthetic": "Synthetic images", "mnist": "MNIST", "cifar10": "CIFAR-10"}
_RADIUS = "length ‖v‖ of the perturbation"
# Bars stand beside one another at each radius, so that none hides another.
_APART = 1.025
_PERCENTAGES = (-50, -20, -10, -5, 0, 5, 10, 20, 50, 100, 200, 500, 1000)


@rc_context(STYLE)
def plot_stability(results: Mapping[str, Any]) -> Figure:
    """Plot how far features move against the length of the perturbation, and how much further than along ours.

    Thin bars are standard deviations over images and draws, thick ones confidence intervals of the mean. Below are
    differences on the same images in percent of what ours moves them, with their intervals.

    Args:
        results: What `run_stability` returned, by the name of the dataset.

    Example:
        >>> import torch
        >>> from carre import ExactField
        >>> from experiments.stability.comparison import run_stability
        >>> from experiments.stability.settings import StabilitySettings
        >>> from carre.manifolds import FiniteSet
        >>> images = torch.randn(30, 1, 2, 2, generator=torch.Generator().manual_seed(0))
        >>> field = ExactField(FiniteSet(images.flatten(1)))
        >>> settings = StabilitySettings(radii=(0.5, 1.0), bandwidths=(0.5, 1.0), n_validation=10, n_images=20)
        >>> results = run_stability(field, images[:10], images[10:], lambda x: x, settings)
        >>> figure = plot_stability({"points": results})
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['how far features move', 'further than along ours']
    """
    parts = _complete(results)
    figure = Figure(figsize=(1.2 + 4.6 * len(parts), 7.0), layout="constrained")
    panels = figure.subplots(2, len(parts), squeeze=False, sharex="col", height_ratios=(1.5, 1.0))
    for (name, part), above, below in zip(parts.items(), *panels, strict=True):
        _draw_shifts(above, part)
        _draw_differences(below, part)
        above.set_title(f"{_title(name)}\n", loc="left")
        above.text(0, 1.02, _about(part), transform=above.transAxes, fontsize=8, color=GRAY, va="bottom")
        below.set_xlabel(_RADIUS)
    panels[0, 0].set_ylabel("how far features move")
    panels[1, 0].set_ylabel("further than along ours")
    _add_legend(figure, panels[0])
    return figure


@rc_context(STYLE)
def plot_bandwidths(results: Mapping[str, Any]) -> Figure:
    """Plot how far features move at every σ and every radius on the validation images, in units of random directions.

    A ring marks the σ that was chosen. Of several strengths of the Stein score, the best at each σ is shown.

    Args:
        results: What `run_stability` returned, by the name of the dataset.

    Example:
        >>> import torch
        >>> from carre import ExactField
        >>> from experiments.stability.comparison import run_stability
        >>> from experiments.stability.settings import StabilitySettings
        >>> from carre.manifolds import FiniteSet
        >>> images = torch.randn(30, 1, 2, 2, generator=torch.Generator().manual_seed(0))
        >>> field = ExactField(FiniteSet(images.flatten(1)))
        >>> settings = StabilitySettings(radii=(0.5, 1.0), bandwidths=(0.5, 1.0), n_validation=10, n_images=20)
        >>> results = run_stability(field, images[:10], images[10:], lambda x: x, settings)
        >>> [axes.get_title() for axes in plot_bandwidths({"points": results}).axes]
        ['‖v‖ = 0.5', '‖v‖ = 1']
    """
    parts = _complete(results)
    n_columns = max(len(part["settings"]["radii"]) for part in parts.values())
    figure = Figure(figsize=(1.0 + 2.7 * n_columns, 1.0 + 2.6 * len(parts)), layout="constrained")
    panels = figure.subplots(len(parts), n_columns, squeeze=False, sharey="row")
    for (name, part), row in zip(parts.items(), panels, strict=True):
        for place, axes in enumerate(row):
            if place >= len(part["settings"]["radii"]):
                axes.set_axis_off()
                continue
            _draw_scales(axes, part, place)
            axes.set_title(f"‖v‖ = {part['settings']['radii'][place]:g}")
        row[0].set_ylabel(f"{_title(name)}\nshift, random = 1")
    _add_legend(figure, panels.flat)
    return figure


def _draw_shifts(axes: Axes, part: Mapping[str, Any]) -> None:
    """Draw the mean shifts on the test images."""
    methods = _tested(part)
    radii = np.array(part["settings"]["radii"])
    for place, (name, entry) in enumerate(methods.items()):
        row, look = entry["test"], _look(name, part)
        mean, low, high = (np.array(row[key]) for key in ("mean", "low", "high"))
        # Curves stay where they are: moved sideways, a steep one would seem higher or lower.
        beside = radii * _APART ** (place - (len(methods) - 1) / 2)
        axes.errorbar(beside, mean, row["deviation"], fmt="none", ecolor=look["color"], elinewidth=0.9, alpha=0.8)
        axes.errorbar(radii, mean, [mean - low, high - mean], fmt="none", ecolor=look["color"], elinewidth=3.5)
        axes.plot(radii, mean, label=name, marker="o", **look)
    _mark_radii(axes, radii)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else "")


def _draw_differences(axes: Axes, part: Mapping[str, Any]) -> None:
    """Draw how much further others move features, in percent of ours on the same images."""
    radii = np.array(part["settings"]["radii"])
    names = [name for name in _tested(part) if name in part["paired"]]
    # Rivals differ by a few percent, random directions by a hundred: both should be seen.
    axes.set_yscale("symlog", linthresh=10)
    axes.margins(y=0.1)
    for place, name in enumerate(names):
        found = part["paired"][name]
        ours = _mean_of_first(part["methods"][_OURS]["test"], found["n_images"])
        further, low, high = (-100 * np.array(found[key]) / ours for key in ("difference", "high", "low"))
        x = radii * _APART ** (place - (len(names) - 1) / 2)
        look = _look(name, part)
        axes.errorbar(x, further, [further - low, high - further], marker="o", elinewidth=2.5, **look)
    axes.axhline(0, color=_COLORS[_OURS], linewidth=1.5)
    _mark_radii(axes, radii)
    low, high = axes.get_ylim()
    shown = [value for value in _PERCENTAGES if low <= value <= high]
    axes.set_yticks(shown, [f"{value:+d} %" if value else "0" for value in shown])
    axes.set_yticks([], minor=True)


def _draw_scales(axes: Axes, part: Mapping[str, Any], radius: int) -> None:
    """Draw the shifts at one radius over σ."""
    random = part["methods"][_RANDOM]["grid"][0]
    bandwidths = part["settings"]["bandwidths"]
    for name, entry in part["methods"].items():
        best: dict[float, float] = {}
        for row in entry["grid"]:
            mean = row["mean"][radius] / _mean_of_first(random, row["n_images"])[radius]
            for sigma in [row["setting"]["bandwidth"]] if "bandwidth" in row["setting"] else bandwidths:
                best[sigma] = min(mean, best.get(sigma, mean))
        if not best:
            continue
        axes.plot(list(best), list(best.values()), label=name, **_look(name, part))
        chosen = entry.get("chosen", {}).get("bandwidth")
        if chosen is not None:
            axes.plot(chosen, best[chosen], "o", markersize=9, fillstyle="none", color=_look(name, part)["color"])
    axes.set_xscale("log")
    every = -(-len(bandwidths) // 5)
    axes.set_xticks(bandwidths, [f"{s:g}" if i % every == 0 else "" for i, s in enumerate(bandwidths)], fontsize=8)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("scale σ")


def _complete(results: Mapping[str, Any]) -> dict[str, Any]:
    """Take the datasets of which ours was measured."""
    parts = {
        name: part
        for name, part in results.items()
        if isinstance(part, Mapping) and "test" in part.get("methods", {}).get(_OURS, {})
    }
    if not parts:
        raise ValueError("results must hold at least one dataset on which metric matching was measured; got none")
    return parts


def _tested(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in part["methods"].items() if "test" in entry}


def _mean_of_first(row: Mapping[str, Any], count: int) -> np.ndarray:
    """Average over the first images, which all methods have seen."""
    mean: np.ndarray = np.array(row["of_images"])[:, :count].mean(1)
    return mean


def _look(name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """Choose a color; what is not known beforehand gets one of two."""
    others = [other for other in part["methods"] if other not in _COLORS]
    color = _COLORS.get(name) or (INK, YELLOW)[others.index(name) % 2]
    # Random directions and the Stein score nearly coincide: dashes let one be seen below the other.
    order = {_OURS: 4, _RANDOM: 3}.get(name, 2)
    width = 2.6 if name == _OURS else 1.5
    return {"color": color, "zorder": order, "linewidth": width, "linestyle": "--" if name == _RANDOM else "-"}


def _mark_radii(axes: Axes, radii: np.ndarray) -> None:
    axes.set_xscale("log")
    axes.set_xticks(radii, [f"{radius:g}" for radius in radii])
    axes.set_xticks([], minor=True)


def _title(name: str) -> str:
    return _TITLES.get(name, name)


def _about(part: Mapping[str, Any]) -> str:
    features = part.get("source", {}).get("features", "")
    count = part["methods"][_OURS]["test"]["n_images"]
    return f"{count:,} images, {part['settings']['n_draws']} draws" + (f"; features: {features}" if features else "")


def _add_legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """Name every method once, also one that only some panels have, below everything."""
    known = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=3, fontsize=9)
