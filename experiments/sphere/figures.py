"""Pictures of the comparison on a sphere: error and speed as the samples grow, and the eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from carre.plots.style import BLUE, GRAY, GREEN, INK, ORANGE, PINK, SKY, STYLE

_COLORS = {
    "learned": BLUE,
    "learned, in the linear hull": SKY,
    "kernel, as in the paper": ORANGE,
    "kernel, centered": GREEN,
    "Jacobian of the learned denoiser": GRAY,
    "Jacobian of the learned denoiser, by random products": PINK,
}
_MARKERS = {"torch": "o", "faiss": "s", "hnsw": "^", "ivf": "v", "sklearn": "D"}


@rc_context(STYLE)
def plot_scaling(results: dict[str, Any]) -> Figure:
    """Plot tangent error and metrics per second against the number of samples, for every method.

    Args:
        results: What `run_sphere` returned.
    """
    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for method, engine in dict.fromkeys((row["method"], row.get("engine")) for row in results["rows"]):
        rows = [r for r in results["rows"] if (r["method"], r.get("engine")) == (method, engine)]
        look = {"color": _COLORS[method], "marker": _MARKERS.get(engine or "", "o")}
        label = method if engine in (None, "torch") else f"{method} ({engine})"
        sizes = [row["n"] for row in rows]
        left.plot(sizes, [row["tangent_error"] for row in rows], label=label, **look)
        right.plot(sizes, [row["metric_per_second"] for row in rows], label=label, **look)
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="samples")
    left.set_ylabel("tangent error ‖UUᵀ − ÛÛᵀ‖")
    left.set_title("How far tangent spaces are off")
    right.set_ylabel("metrics per second")
    right.set_title("How fast, at new points")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    settings = results["settings"]
    figure.suptitle(
        f"Sphere of dimension {settings['dimension']} in R^{settings['ambient_dim']}, {results['hardware']}", color=INK
    )
    return figure


@rc_context(STYLE)
def plot_eigenvalues(results: dict[str, Any]) -> Figure:
    """Plot the mean leading eigenvalues of each method: how many are near 1, and how small the next one is.

    Args:
        results: What `run_sphere` returned.
    """
    profiles = results["eigenvalues"]
    if not profiles:
        raise ValueError("results must hold eigenvalues; run it with profile_size among its sizes")
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(profiles)
    for place, (method, values) in enumerate(profiles.items()):
        ranks = np.arange(1, len(values) + 1) + (place - (len(profiles) - 1) / 2) * width
        axes.bar(ranks, values, width, color=_COLORS[method], label=method)
    dimension = results["settings"]["dimension"]
    axes.axvline(dimension + 0.5, color=GRAY, linestyle="--", linewidth=1)
    axes.text(dimension + 0.6, 1.0, f"true dimension {dimension}", color=GRAY, fontsize=9, va="top")
    axes.set(xlabel="eigenvalue, in descending order", ylabel="mean over test points")
    axes.set_title(f"Eigenvalues of the metric, n = {results['settings']['profile_size']:,}")
    axes.legend(loc="upper right", fontsize=9, bbox_to_anchor=(1.0, 0.9))
    return figure
