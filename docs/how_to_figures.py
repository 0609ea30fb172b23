"""Draw the pictures of the how-to pages: `python docs/how_to_figures.py` writes docs/images/how_to/*.png.

Nothing is trained. Every picture asks a distribution whose metric is known exactly, and the wine of scikit-learn.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_wine

from carre import ExactField, toolkit
from carre.manifolds import Box, Curve, Gaussian, Sphere, TorusOfRevolution, Union
from carre.plots.style import BLUE, GRAY, INK, ORANGE, STYLE

OUT = Path(__file__).parent / "images" / "how_to"
STRIP = (9, 2.6)


def seeded(seed: int = 0) -> torch.Generator:
    """Return the same draws every time."""
    return torch.Generator().manual_seed(seed)


def bend(t: torch.Tensor) -> torch.Tensor:
    """A horseshoe, in the plane."""
    return torch.stack([t.cos(), t.sin()], -1)


HORSESHOE = Curve(bend, -0.6, math.pi + 0.6)
BAND = HORSESHOE.noisy(0.08)
SAMPLES = BAND.sample(900, generator=seeded())


def bare(axes: Axes, x: tuple[float, float] = (-1.5, 1.5), y: tuple[float, float] = (-0.95, 1.3)) -> None:
    """Show the plane without ticks, with equal units."""
    axes.set(xlim=x, ylim=y, aspect="equal", xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_dimension() -> Figure:
    """A line with noise that ends in a sheet: the dimension at each point, at three scales."""
    line = Curve(lambda t: torch.stack([t, 0.25 * torch.sin(2 * t)], -1), -2.6, 0.0).noisy(0.04)
    both = Union([line, Box([0.0, -1.0], [2.0, 1.0])], [0.35, 0.65])
    points = both.sample(1500, generator=seeded())
    figure, panels = plt.subplots(1, 3, figsize=STRIP, layout="constrained")
    colors = np.array([GRAY, ORANGE, BLUE])
    titles = ("within the noise of the line", "between: a line and a sheet", "the sheet begins to look like a blob")
    for axes, sigma, title in zip(panels, (0.02, 0.12, 0.7), titles, strict=True):
        found = toolkit.local_dimension(ExactField(both), points, sigma)
        axes.scatter(*points.T, s=3, color=colors[found.numpy()])
        bare(axes, (-2.8, 2.2), (-1.15, 1.15))
        axes.set_title(f"σ = {sigma:g}, {title}", fontsize=9)
    for k, color in enumerate(colors):
        panels[0].scatter([], [], s=20, color=color, label=f"{k}-D")
    panels[0].legend(loc="lower left", fontsize=7, handletextpad=0.1, borderpad=0)
    return figure


def draw_tangents() -> Figure:
    """A direction at points of a sphere, and the part of it that lies along the sphere."""
    figure = plt.figure(figsize=(9, 3.4), layout="constrained")
    left, right = (figure.add_subplot(1, 2, k, projection="3d") for k in (1, 2))
    height, turn = np.meshgrid(np.linspace(-0.75, 0.85, 6), np.linspace(-0.4, 2.2, 7))
    ring = np.sqrt(1 - height**2)
    at = np.stack([ring * np.cos(turn), ring * np.sin(turn), height], -1).reshape(-1, 3)
    field, up = ExactField(Sphere(2)), np.array([0.0, 0.0, 1.0])
    basis = toolkit.tangent_basis(field, at, 2, 0.1)
    upwards = toolkit.project(field, at, np.tile(up, (len(at), 1)), 0.1, dimension=2)
    u, v = np.mgrid[0 : 2 * np.pi : 60j, 0 : np.pi : 30j]
    ball = np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)
    for axes in (left, right):
        axes.plot_surface(*ball, color="#E8EEF4", alpha=0.6, linewidth=0, shade=False, zorder=0)
        axes.view_init(18, 50)
        axes.computed_zorder = False
        axes.set(box_aspect=(1, 1, 1), xlim=(-0.75, 0.75), ylim=(-0.75, 0.75), zlim=(-0.75, 0.75))
        axes.set_axis_off()
    circle = np.stack([np.cos(np.linspace(0, 2 * np.pi, 30)), np.sin(np.linspace(0, 2 * np.pi, 30))])
    for point, plane, arrow in zip(1.01 * at, basis, upwards, strict=True):
        left.plot(*(point[:, None] + 0.13 * plane @ circle), color=BLUE, linewidth=1.2)
        right.quiver(*point, *(0.28 * arrow), color=BLUE, linewidth=1.4)
        right.quiver(*point, *(0.28 * up), color=ORANGE, linewidth=0.8, alpha=0.6, arrow_length_ratio=0.1)
    left.set_title("tangent_basis: the directions that there are", fontsize=9)
    right.set_title("project: what of “up” (orange) lies along the data (blue)", fontsize=9)
    return figure


def draw_denoise() -> Figure:
    """Noisy points of a curve, and where the denoiser takes them, at three scales."""
    figure, panels = plt.subplots(1, 3, figsize=STRIP, layout="constrained")
    noisy = HORSESHOE.noisy(0.15).sample(45, generator=seeded(3))
    titles = ("too small: too little", "the noise's own deviation", "too large: into the bend")
    for axes, sigma, title in zip(panels, (0.04, 0.15, 0.6), titles, strict=True):
        # Of samples with a little noise of their own, as data have.
        mean = ExactField(HORSESHOE.noisy(0.05)).denoise(noisy, sigma)
        axes.plot(*HORSESHOE.sample(900, generator=seeded()).T, ".", markersize=1, color=GRAY)
        for start, end in zip(noisy, mean, strict=True):
            axes.plot(*torch.stack([start, end]).T, color=BLUE, linewidth=1)
        axes.scatter(*noisy.T, s=9, color=ORANGE, zorder=3)
        axes.scatter(*mean.T, s=9, color=BLUE, zorder=3)
        bare(axes)
        axes.set_title(f"bandwidth={sigma:g}, {title}", fontsize=9)
    return figure


def draw_gradient() -> Figure:
    """The gradient of a height at points of a bend: as it is, and along the data."""
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
    at = bend(torch.linspace(-0.5, math.pi + 0.5, 11, dtype=torch.float64))

    def height(x: torch.Tensor) -> torch.Tensor:
        return x[:, 1]

    along = toolkit.gradient(ExactField(BAND), height, at, 0.2, dimension=1)
    plain = torch.tensor([0.0, 1.0], dtype=torch.float64).expand(len(at), 2)
    titles = ("Euclidean: off the data", "geometry.gradient: along them")
    for axes, arrows, color, title in zip(panels, (plain, along), (ORANGE, BLUE), titles, strict=True):
        drawn = axes.scatter(*SAMPLES.T, s=4, c=SAMPLES[:, 1], cmap="viridis", alpha=0.7)
        turned = arrows.T.numpy()
        axes.quiver(*at.T, *turned, color=color, angles="xy", scale_units="xy", scale=2.9, width=0.008, zorder=3)
        bare(axes, y=(-0.95, 1.5))
        axes.set_title(title, fontsize=9)
    figure.colorbar(drawn, ax=panels, label="the quantity", shrink=0.8)
    return figure


def draw_paths() -> Figure:
    """Three kinds of path between two ends of a horseshoe, and one between two parts."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.1), layout="constrained")
    field, sigma = ExactField(BAND), 0.2
    ends = bend(torch.tensor([[-0.35], [math.pi + 0.35]], dtype=torch.float64))
    methods = (("geodesic", toolkit.Geodesic(samples=SAMPLES), BLUE, "-"), ("straight", "straight", ORANGE, "--"))
    left.scatter(*SAMPLES.T, s=2, color=GRAY, alpha=0.6)
    for name, method, color, style in methods:
        path = toolkit.path(field, ends[0], ends[1], sigma, method=method)
        said = "connected" if bool(path.connected[0]) else "not connected"
        label = f"{name}: length {float(path.length()):.2f}, {said}"
        left.plot(*path.nodes[0].T, style, color=color, label=label)
    left.scatter(*ends[:, 0].T, s=30, color=INK, zorder=3)
    bare(left, y=(-1.35, 1.2))
    left.legend(loc="lower center", fontsize=8)
    left.set_title("around, not across", fontsize=9)
    identity = torch.eye(2, dtype=torch.float64)
    centers = torch.tensor([[-0.8, 0.0], [0.8, 0.0]], dtype=torch.float64)
    parts = Union([Gaussian(center, 0.03 * identity) for center in centers])
    cloud = parts.sample(500, generator=seeded())
    path = toolkit.path(ExactField(parts), centers[:1], centers[1:], 0.1, method=toolkit.Geodesic(samples=cloud))
    right.scatter(*cloud.T, s=2, color=GRAY, alpha=0.6)
    right.plot(*path.nodes[0].T, color=ORANGE, label=f"connected: {bool(path.connected[0])}")
    right.scatter(*centers.T, s=30, color=INK, zorder=3)
    bare(right, y=(-1.35, 1.2))
    right.legend(loc="lower center", fontsize=8)
    right.set_title("between parts there is none", fontsize=9)
    return figure


def draw_validity() -> Figure:
    """Where in the plane the geometry of a horseshoe may be believed, and why not elsewhere."""
    figure, axes = plt.subplots(figsize=(6.4, 3.3), layout="constrained")
    first, second = np.meshgrid(np.linspace(-1.7, 1.7, 61), np.linspace(-1.0, 1.5, 45))
    found = toolkit.check(ExactField(BAND), np.stack([first.ravel(), second.ravel()], 1), 0.12, samples=SAMPLES.numpy())
    far = found.distance > found.reach
    kinds = ((found.valid, BLUE, "valid"), (far, "#D9D9D9", "far from the data"))
    kinds += ((~found.valid & ~far, ORANGE, "no clear spectrum"),)
    shown = np.select([kind[0] for kind in kinds], range(len(kinds))).reshape(first.shape)
    axes.pcolormesh(first, second, shown, cmap=ListedColormap([kind[1] for kind in kinds]), rasterized=True)
    for _, color, label in kinds:
        axes.scatter([], [], s=30, color=color, label=label, marker="s")
    axes.scatter(*SAMPLES.T, s=1, color=INK, alpha=0.5)
    bare(axes, (-1.75, 1.75), (-1.05, 1.55))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 0.7), fontsize=8)
    axes.set_title("geometry.check over the plane", fontsize=9)
    return figure


def draw_optimize() -> Figure:
    """Ways down from many starts: in the plane, and on the data."""
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
    goal = torch.tensor([0.35, 0.45], dtype=torch.float64)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x - goal).square().sum(1)

    starts = bend(torch.linspace(-0.45, math.pi + 0.45, 12, dtype=torch.float64))
    found = toolkit.minimize(ExactField(BAND), loss, starts, 0.15, dimension=1)
    way = toolkit.gradient_flow(ExactField(BAND), loss, starts, 0.15, step=0.03, n_steps=120)
    grid = np.meshgrid(np.linspace(-1.5, 1.5, 80), np.linspace(-0.95, 1.3, 60))
    depth = sum((g - float(c)) ** 2 for g, c in zip(grid, goal, strict=True))
    titles = ("plain descent leaves the data", "geometry.minimize: the best among plausible points")
    for axes, title in zip(panels, titles, strict=True):
        axes.contour(*grid, depth, levels=10, colors="#C9C9C9", linewidths=0.7)
        axes.scatter(*SAMPLES.T, s=2, color=GRAY, alpha=0.6)
        axes.scatter(*starts.T, s=14, color=INK, zorder=4)
        bare(axes)
        axes.set_title(title, fontsize=9)
    for start, trail, end in zip(starts, way, found.points, strict=True):
        panels[0].plot(*torch.stack([start, goal]).T, color=ORANGE, linewidth=1)
        panels[1].plot(*torch.cat([trail, end[None]]).T, color=BLUE, linewidth=1.5)
    panels[0].scatter(*goal, marker="*", s=90, color=ORANGE, zorder=5)
    panels[1].scatter(*found.points[found.best], marker="*", s=90, color=BLUE, zorder=5)
    return figure


def draw_curvature() -> Figure:
    """The scalar curvature of a torus: on the torus, and against what it is."""
    figure = plt.figure(figsize=(8.6, 3.2), layout="constrained")
    left, right = figure.add_subplot(1, 2, 1, projection="3d"), figure.add_subplot(1, 2, 2)
    outer, inner = 2.0, 0.8
    torus = TorusOfRevolution(outer, inner)
    points = torus.sample(700, generator=seeded())
    found = toolkit.curvature(ExactField(torus), points, 0.12, dimension=2).scalar.numpy()
    v = torch.atan2(points[:, 2], points[:, :2].norm(dim=1) - outer).numpy()
    drawn = left.scatter(*points.T, s=6, c=found, cmap="RdBu_r", vmin=-2.2, vmax=2.2)
    left.set(box_aspect=(2.8, 2.8, 0.9), xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), zlim=(-0.7, 0.7))
    left.view_init(48, -60)
    left.set_axis_off()
    figure.colorbar(drawn, ax=left, label="scalar curvature", shrink=0.7)
    angle = np.linspace(-np.pi, np.pi, 200)
    right.plot(np.degrees(angle), 2 * np.cos(angle) / (inner * (outer + inner * np.cos(angle))), color=GRAY)
    right.scatter(np.degrees(v), found, s=5, color=BLUE, zorder=3)
    right.set(xlabel="angle around the tube, 0° outside", xticks=[-180, -90, 0, 90, 180], ylabel="scalar curvature")
    right.set_title("gray: what it is", fontsize=9)
    return figure


def draw_tables() -> Figure:
    """Which share each column of the wine has in the squared distance between two wines."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.0), layout="constrained", sharey=True)
    wine = load_wine(as_frame=True).data
    variances = {"none": wine.var().to_numpy(), "standardize": np.ones(wine.shape[1])}
    for axes, (scale, variance), color in zip(panels, variances.items(), (ORANGE, BLUE), strict=True):
        axes.barh(list(wine.columns), variance / variance.sum(), color=color)
        axes.invert_yaxis() if axes is panels[0] else None
        axes.set(xlim=(0, 1))
        axes.grid(False, axis="y")
        axes.tick_params(labelsize=8)
        axes.set_title(f'scale="{scale}"', fontsize=9)
    figure.supxlabel("share of the squared distance between two wines", fontsize=9)
    return figure


FIGURES = {
    "dimension": draw_dimension,
    "tangents": draw_tangents,
    "denoise": draw_denoise,
    "gradient": draw_gradient,
    "paths": draw_paths,
    "validity": draw_validity,
    "optimize": draw_optimize,
    "curvature": draw_curvature,
    "tables": draw_tables,
}


def main(out: Path = OUT) -> None:
    """Write all pictures."""
    out.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        for name, draw in FIGURES.items():
            figure = draw()
            drawn = io.BytesIO()
            figure.savefig(drawn, dpi=90, bbox_inches="tight")
            # Few colors, no date and no version: small, and the same picture is the same file.
            Image.open(drawn).convert("RGB").quantize(128).save(out / f"{name}.png", optimize=True)
            plt.close(figure)


if __name__ == "__main__":
    main()
