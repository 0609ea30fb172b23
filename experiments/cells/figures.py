"""The pictures of the pages on cells, from what was measured."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import carre
from carre.plots.style import BLUE, GRAY, GREEN, INK, ORANGE, PINK, SKY, STYLE
from experiments.cells.data import Marrow
from experiments.cells.marrow import ENDS, PARTS

COLORS = {"stem": GRAY, "erythroid": ORANGE, "monocyte": BLUE, "dendritic": GREEN}
COUNTED = (GRAY, ORANGE, SKY, BLUE, INK)
# Which genes are drawn along which way.
SHOWN = {"erythroid": ("AVP", "GATA1", "KLF1", "HBB"), "dendritic": ("AVP", "MPO", "IRF8")}
OF_GENES = {"AVP": GRAY, "GATA1": GREEN, "KLF1": BLUE, "HBB": ORANGE, "MPO": PINK, "IRF8": GREEN}


def draw_tree(marrow: Marrow, geometry: carre.Geometry, results: dict[str, Any]) -> Figure:
    """The parts of the tree, and the dimension at each cell at two scales."""
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.2), layout="constrained")
    order = np.random.default_rng(0).permutation(len(marrow.pcs))
    plane = marrow.pcs[order][:, :2]
    panels[0].scatter(*plane.T, s=1.5, color="#D8D8D8")
    for part, (gene, above) in PARTS.items():
        inside = marrow.restored(marrow.pcs, gene)[order] > above
        panels[0].scatter(*plane[inside].T, s=1.5, color=COLORS[part])
        panels[0].scatter([], [], s=20, color=COLORS[part], label=f"{part} ({gene})")
    panels[0].legend(fontsize=7, loc="best", handletextpad=0.1, borderpad=0)
    panels[0].set_title("parts, by a gene of each", fontsize=9)
    scales = ((results["bandwidth"], "the default"), (results["tree"], "the widest gap"))
    for axes, (sigma, which) in zip(panels[1:], scales, strict=True):
        found = np.minimum(np.asarray(geometry.dimension(marrow.pcs, sigma))[order], 4)
        axes.scatter(*plane.T, s=1.5, color=np.array(COUNTED)[found])
        axes.set_title(f"dimension at σ = {sigma:.2f}, {which}", fontsize=9)
    for k, color in enumerate(COUNTED):
        panels[2].scatter([], [], s=20, color=color, label=f"{k} or more" if k == 4 else str(k))
    panels[2].legend(fontsize=7, loc="best", handletextpad=0.1, borderpad=0)
    for axes in panels:
        bare(axes, "PC1", "PC2")
    return figure


def bare(axes: Axes, x: str, y: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.grid(False)


def draw_scale(results: dict[str, Any]) -> Figure:
    """How many dimensions at which scale, and at how many cells they may be believed."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.8), layout="constrained")
    rows = results["scales"]
    scales = [row["bandwidth"] for row in rows]
    left.fill_between(scales, *zip(*(row["interval"] for row in rows), strict=True), color=BLUE, alpha=0.2)
    left.plot(scales, [row["dimension"] for row in rows], "o-", color=BLUE)
    left.set(xscale="log", xlabel="scale σ", ylabel="dimension (median; interval)")
    right.plot(scales, [row["valid"] for row in rows], "o-", color=ORANGE)
    right.set(xscale="log", ylim=(0, 1), xlabel="scale σ", ylabel="valid, share of the cells")
    for axes in (left, right):
        axes.set_xticks(scales, [f"{s:.2g}" for s in scales], minor=False)
        axes.minorticks_off()
        axes.axvline(results["tree"], color=GRAY, linewidth=1, linestyle="--")
    return figure


def draw_paths(marrow: Marrow, results: dict[str, Any]) -> Figure:
    """Ways to three fates, and genes along two of them, beside those along the straight line."""
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.2), layout="constrained")
    ways = results["paths"]["scale of the tree"]
    panels[0].scatter(*marrow.pcs[:, :2].T, s=1, color="#D8D8D8")
    for fate in ENDS:
        nodes = np.array(ways[fate]["nodes"])
        panels[0].plot(*nodes[[0, -1], :2].T, "--", color=COLORS[fate], linewidth=1)
        panels[0].plot(*nodes[:, :2].T, color=COLORS[fate], label=fate)
    panels[0].legend(fontsize=7)
    panels[0].set_title("ways along the cells, and straight ones", fontsize=9)
    bare(panels[0], "PC1", "PC2")
    for axes, (fate, genes) in zip(panels[1:], SHOWN.items(), strict=True):
        for gene in genes:
            values, line = (np.array(ways[fate][kind][gene]) for kind in ("genes", "genes, line"))
            t = np.linspace(0, 1, len(values))
            axes.plot(t, values, color=OF_GENES[gene], label=gene)
            axes.plot(t, line, "--", color=OF_GENES[gene], linewidth=0.9)
        axes.set(xlabel="share of the way")
        axes.set_title(f"genes on the way to {fate}", fontsize=9)
        axes.legend(fontsize=7)
    panels[1].set_ylabel("log-count above the mean", fontsize=8)
    return figure


def draw_velocities(results: dict[str, Any], n_components: int) -> Figure:
    """Shares of the velocities over d, and over neighbors and scales."""
    found = results[str(n_components)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.2), layout="constrained")
    styles = {"learned": (BLUE, "-"), "learned, σ without labels": (BLUE, ":"), "local PCA": (ORANGE, "-")}
    styles |= {"local PCA, k = 30": (ORANGE, ":"), "global PCA": (GRAY, "-"), "random": (GRAY, ":")}
    for name, (color, style) in styles.items():
        values = found["means"][name]
        left.plot(range(1, len(values) + 1), values, style, color=color, label=name)
    left.set(xlabel="directions d", ylabel="share of |velocity|²", ylim=(0, 1))
    left.legend(fontsize=7, loc="lower right", frameon=True, framealpha=1, edgecolor="white")
    left.set_title(f"within {n_components} components", fontsize=9)
    for d in (d for d in (1, 2, 5) if d <= len(found["means"]["learned"])):
        for kind, color in (("by bandwidth", BLUE), ("by neighbors", ORANGE)):
            settings = np.array([float(s) for s in found[kind]])
            values = [row[d - 1] for row in found[kind].values()]
            # Both from the finest to the coarsest setting.
            place = np.log(settings / settings[0]) / np.log(settings[-1] / settings[0])
            right.plot(place, values, color=color)
        right.text(1.01, values[-1], f"d = {d}", fontsize=7, va="center")
    right.set(xlabel="from the finest to the coarsest setting: σ (blue), k (orange)", ylim=(0, 1), xticks=[])
    right.set_title("how much depends on the setting", fontsize=9)
    return figure


def save(figure: Figure, file: Path) -> None:
    """Write a small picture, without date and version."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100, bbox_inches="tight")
    plt.close(figure)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.open(drawn).convert("RGB").quantize(128).save(file, optimize=True)


def draw_marrow(marrow: Marrow, geometry: carre.Geometry, results: dict[str, Any], folder: Path) -> None:
    """Write the pictures of the marrow."""
    with plt.rc_context(STYLE):
        save(draw_tree(marrow, geometry, results), folder / "tree.png")
        save(draw_scale(results), folder / "scale.png")
        save(draw_paths(marrow, results), folder / "paths.png")


def draw_bodies(results: dict[str, Any], n_components: int, folder: Path) -> None:
    """Write the picture of the velocities."""
    with plt.rc_context(STYLE):
        save(draw_velocities(results, n_components), folder / "velocities.png")
