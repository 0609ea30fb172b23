"""Draw the pictures of the page on concepts: `python docs/figures.py` writes docs/images/concepts/*.png.

Nothing is trained. Every picture shows a distribution whose metric is known exactly: what a perfect fit would say.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from carre import ExactField, toolkit
from carre.manifolds import Curve, Gaussian, Sphere, SwissRoll, Union
from carre.metric import LowRankMetric
from carre.plots import plot_coordinates, plot_eigenfunction
from carre.plots.style import BLUE, GRAY, GREEN, INK, ORANGE, STYLE

OUT = Path(__file__).parent / "images" / "concepts"
NOISE = 0.06


def wave(t: torch.Tensor) -> torch.Tensor:
    """An open curve, in the plane."""
    return torch.stack([t, 0.6 * torch.sin(1.6 * t)], -1)


CURVE = Curve(wave, -2.4, 2.4)
NOISY = CURVE.noisy(NOISE)
ROLL = SwissRoll(height=25.0)
SAMPLES = NOISY.sample(500, generator=torch.Generator().manual_seed(0))


def bare(axes: Axes, *, x: float = 2.9, y: float = 1.15) -> None:
    """Show the plane without ticks, with equal units."""
    axes.set(xlim=(-x, x), ylim=(-y, y), aspect="equal", xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def grid_of(x: float, y: float, n: int) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """Return a grid of the plane, as coordinates and as points."""
    first, second = np.meshgrid(np.linspace(-x, x, n), np.linspace(-y, y, max(2, round(n * y / x))))
    return first, second, torch.from_numpy(np.stack([first.ravel(), second.ravel()], 1))


def draw_scale() -> Figure:
    """The same samples, blurred by three σ."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.1), layout="constrained")
    titles = ("fine: the noise shows", "between: the curve shows", "coarse: only a blob is left")
    for axes, sigma, title in zip(panels, (0.03, 0.15, 0.9), titles, strict=True):
        first, second, points = grid_of(2.9, 1.15, 240)
        from_samples = -0.5 * torch.cdist(points, SAMPLES).square() / sigma**2
        density = torch.logsumexp(from_samples, 1).sub(torch.logsumexp(from_samples, 1).max()).exp()
        axes.contourf(first, second, density.reshape(first.shape), levels=np.linspace(0, 1, 12), cmap="Blues")
        axes.scatter(*SAMPLES.T, s=0.6, color=INK, alpha=0.5)
        axes.add_patch(plt.Circle((-2.4, -0.8), sigma, color=ORANGE, fill=False, linewidth=1.5))
        bare(axes)
        axes.set_title(f"σ = {sigma:g}, {title}", fontsize=9)
    return figure


def ellipses(axes: Axes, field: ExactField, points: torch.Tensor, sigma: float, *, size: float = 0.5) -> None:
    """Draw G at points as ellipses: the half axes are its eigenvalues, in their directions."""
    spectrum = field.metric(points, sigma).spectrum()
    for point, values, vectors in zip(points, spectrum.values, spectrum.vectors, strict=True):
        angle = math.degrees(math.atan2(float(vectors[1, 0]), float(vectors[0, 0])))
        width, height = (size * max(float(value), 0.14) for value in values)
        patch = Ellipse((float(point[0]), float(point[1])), width, height, angle=angle)
        axes.add_patch(patch)
        patch.set(facecolor=BLUE, alpha=0.85, edgecolor="white", linewidth=0.8, zorder=3)


def draw_metric() -> Figure:
    """G along a noisy curve, at three scales."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.1), layout="constrained")
    at = wave(torch.linspace(-2.25, 2.25, 10, dtype=torch.float64))
    titles = ("disks: two directions", "flat: one direction", "small: no direction")
    for axes, sigma, title in zip(panels, (0.02, 0.2, 3.0), titles, strict=True):
        axes.scatter(*SAMPLES.T, s=0.8, color=GRAY, alpha=0.6)
        ellipses(axes, ExactField(NOISY), at, sigma)
        bare(axes)
        axes.set_title(f"σ = {sigma:g}, {title}", fontsize=9)
    return figure


def draw_dimension() -> Figure:
    """The eigenvalues of G over σ, and how many are above one half."""
    figure, axes = plt.subplots(figsize=(6.4, 3.1), layout="constrained")
    at = wave(torch.linspace(-1.2, 1.2, 41, dtype=torch.float64))
    scales = np.geomspace(0.01, 4, 90)
    values = np.array([ExactField(NOISY).metric(at, float(s)).eigenvalues().mean(0).numpy() for s in scales])
    for k, (color, name) in enumerate(((BLUE, "first eigenvalue: along the curve"), (ORANGE, "second: across it"))):
        axes.plot(scales, values[:, k], color=color, label=name)
    axes.axhline(0.5, color=GRAY, linewidth=1, linestyle="--")
    count = (values > 0.5).sum(1)
    changes = [scales[0], *scales[1:][np.diff(count) != 0], scales[-1]]
    for left, right in itertools.pairwise(changes):
        middle = math.sqrt(left * right)
        dimension = count[np.abs(scales - middle).argmin()]
        axes.text(middle, 1.12, f"{dimension}-D", ha="center", fontweight="bold", color=INK)
        axes.axvline(left, color=GRAY, linewidth=0.8)
    axes.axvline(NOISE, color=GREEN, linewidth=1, linestyle=":")
    axes.text(NOISE / 1.05, 0.02, "deviation of the noise", color=GREEN, fontsize=8, va="center", ha="right")
    axes.set(xscale="log", xlim=(scales[0], scales[-1]), ylim=(-0.12, 1.25), xlabel="scale σ")
    axes.set_ylabel("eigenvalues of G")
    axes.legend(loc="center", bbox_to_anchor=(0.52, 0.66), fontsize=8)
    return figure


def draw_tangent_and_denoiser() -> Figure:
    """Tangent directions at points of the curve, and where the denoiser takes noisy ones."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.3), layout="constrained")
    field, sigma = ExactField(CURVE), 0.15
    at = wave(torch.linspace(-2.1, 2.1, 9, dtype=torch.float64))
    basis = field.metric(at, sigma).tangent_basis(1)[..., 0]
    line = CURVE.sample(2000, generator=torch.Generator().manual_seed(1))
    for axes in (left, right):
        axes.scatter(*line.T, s=0.5, color=GRAY)
        bare(axes)
    for point, direction in zip(at, basis, strict=True):
        ends = torch.stack([point - 0.4 * direction, point + 0.4 * direction])
        left.plot(*ends.T, color=BLUE)
    left.scatter(*at.T, s=18, color=INK, zorder=3)
    left.set_title("tangent: in which direction the data go on", fontsize=9)
    generator = torch.Generator().manual_seed(4)
    noisy = CURVE.sample(26, generator=generator) + sigma * torch.randn(26, 2, generator=generator, dtype=torch.float64)
    mean = field.denoise(noisy, sigma)
    right.scatter(*noisy.T, s=14, color=ORANGE, zorder=3)
    for start, end in zip(noisy, mean, strict=True):
        right.annotate("", end.tolist(), start.tolist(), arrowprops={"arrowstyle": "-|>", "color": BLUE, "shrinkB": 0})
    right.set_title("denoiser: where the point came from, on average", fontsize=9)
    return figure


def draw_geodesic() -> Figure:
    """A straight line and a geodesic between two points of an arc."""
    figure, axes = plt.subplots(figsize=(4.6, 2.9), layout="constrained")

    def arc(t: torch.Tensor) -> torch.Tensor:
        return torch.stack([t.cos(), t.sin()], -1)

    curve = Curve(arc, -0.6, math.pi + 0.6)
    band = curve.noisy(0.08)
    samples = band.sample(900, generator=torch.Generator().manual_seed(0))
    ends = arc(torch.tensor([-0.35, math.pi + 0.35], dtype=torch.float64))
    path = toolkit.path(ExactField(band), ends[:1], ends[1:], 0.2, method=toolkit.Geodesic(samples=samples))
    axes.scatter(*samples.T, s=2, color=GRAY, alpha=0.6)
    axes.plot(*ends.T, color=ORANGE, linestyle="--", label=f"straight line, length {(ends[0] - ends[1]).norm():.2f}")
    axes.plot(*path.nodes[0].T, color=BLUE, label=f"geodesic, length {float(path.length()):.2f}")
    axes.scatter(*ends.T, s=30, color=INK, zorder=3)
    bare(axes, x=1.75, y=1.2)
    axes.set_ylim(-1.0, 1.25)
    axes.legend(loc="lower center", fontsize=8)
    return figure


def draw_linear_phase() -> Figure:
    """What an undertrained network believes of a circle, and what is there."""
    figure, panels = plt.subplots(1, 2, figsize=(6.6, 3.2), layout="constrained")
    circle = Sphere(1)
    blob = Gaussian(torch.zeros(2, dtype=torch.float64), 0.5 * torch.eye(2, dtype=torch.float64))
    angle = torch.linspace(0, 2 * math.pi, 13, dtype=torch.float64)[:-1]
    at = torch.stack([angle.cos(), angle.sin()], -1)
    line = circle.sample(600, generator=torch.Generator().manual_seed(0))
    titles = ("still linear: two dimensions", "trained: one dimension")
    for axes, manifold, title in zip(panels, (blob, circle), titles, strict=True):
        axes.scatter(*line.T, s=1, color=GRAY)
        ellipses(axes, ExactField(manifold), at, 0.15, size=0.4)
        bare(axes, x=1.4, y=1.4)
        axes.set_title(title, fontsize=9)
    return figure


def draw_large_eigenvalues() -> Figure:
    """Where the largest eigenvalue of G exceeds 1: between parts of the data, and inside a bend."""
    figure, panels = plt.subplots(1, 2, figsize=(8.2, 3.3), layout="constrained")
    identity = torch.eye(2, dtype=torch.float64)
    centers = torch.tensor([[-0.7, 0.0], [0.7, 0.0]], dtype=torch.float64)
    two = Union([Gaussian(center, 0.03 * identity) for center in centers], [0.5, 0.5])
    cases = ((two, 0.4, "between two clusters, σ = 0.4"), (Sphere(1), 0.2, "inside a circle, σ = 0.2"))
    for axes, (manifold, sigma, title) in zip(panels, cases, strict=True):
        first, second, points = grid_of(1.5, 1.5, 120)
        largest = ExactField(manifold).metric(points, sigma).eigenvalues()[:, 0].reshape(first.shape)
        levels = [0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5]
        norm = mpl.colors.TwoSlopeNorm(1, 0, 5)
        drawn = axes.contourf(first, second, largest, levels=levels, cmap="RdYlBu_r", norm=norm, extend="max")
        axes.contour(first, second, largest, levels=[1.0], colors=INK, linewidths=1)
        axes.scatter(*manifold.sample(300, generator=torch.Generator().manual_seed(0)).T, s=1.5, color=INK)
        bare(axes, x=1.5, y=1.5)
        axes.set_title(title, fontsize=9)
    figure.colorbar(drawn, ax=panels, label="largest eigenvalue of G", ticks=levels)
    return figure


class RollTangents:
    """The true tangent spaces of a Swiss roll, as a field."""

    dim = 3

    def metric(self, points: torch.Tensor, bandwidth: object) -> LowRankMetric:
        """Return the projector on the sheet."""
        return LowRankMetric(ROLL.tangent_basis(points).mT.contiguous())

    def denoise(self, points: torch.Tensor, bandwidth: object) -> torch.Tensor:
        """Return the points."""
        return points


def draw_eigenfunctions() -> Figure:
    """An eigenfunction over a Swiss roll, and coordinates that unroll it."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.0), layout="constrained")
    samples = ROLL.sample(1800, generator=torch.Generator().manual_seed(0))
    found = toolkit.eigenfunctions(RollTangents(), samples, 5, 1.0)
    coordinates = found.coordinates(samples, 4)[:, [0, 3]]
    plot_eigenfunction(samples[:, [0, 2]], found, 1, marker_size=4, axes=panels[0])
    plot_coordinates(coordinates, found.functions[:, 1], label="eigenfunction 1", marker_size=3, axes=panels[1])
    panels[0].set(xticks=[], yticks=[])
    panels[1].set_ylabel("coordinate 4")
    for axes in panels:
        axes.title.set_fontsize(9)
    return figure


FIGURES = {
    "scale": draw_scale,
    "metric": draw_metric,
    "dimension": draw_dimension,
    "tangent_and_denoiser": draw_tangent_and_denoiser,
    "geodesic": draw_geodesic,
    "linear_phase": draw_linear_phase,
    "large_eigenvalues": draw_large_eigenvalues,
    "eigenfunctions": draw_eigenfunctions,
}


def main(out: Path = OUT) -> None:
    """Write all pictures."""
    out.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        for name, draw in FIGURES.items():
            figure = draw()
            # No date and no version: the same picture is the same file.
            figure.savefig(out / f"{name}.png", dpi=110, bbox_inches="tight", metadata={"Software": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
