"""Gradients that stay on noisy data.

    python examples/gradient_on_noisy_data.py --out pictures

A thousand points lie near a curve in the plane, blurred by noise, and a height is given. Which way is up, for somebody
who must stay on the data? The gradient of the height itself points off them. The example learns the geometry of the
noisy points, and computes the gradient along the data twice: from the height as a function, and from nothing but the
heights measured at the points. Both are compared with the gradient along the true curve, which the
learner never sees.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import carre
from carre.manifolds import ClosedCurve
from carre.plots import render_png
from carre.plots.style import BLUE, GRAY, INK, ORANGE, STYLE
from carre.toolkit.derivatives import euclidean_gradient

NOISE = 0.05


def run(
    out: Path | None = None, *, n_samples: int = 1000, max_steps: int = 400, width: int = 48, n_arrows: int = 60
) -> dict[str, float]:
    """Fit, compare and draw; return the errors of the three gradients relative to the true one.

    Args:
        out: The folder to write the picture to; None writes none.
        n_samples: How many noisy points.
        max_steps: Training steps.
        width: Hidden width of the network.
        n_arrows: How many gradients to draw.
    """
    generator = torch.Generator().manual_seed(0)
    curve = ClosedCurve(clover)
    clean = curve.sample(n_samples, generator=generator)
    samples = clean + NOISE * torch.randn(clean.shape, generator=generator, dtype=torch.float64)

    geometry = carre.fit(samples, max_steps=max_steps, width=width, random_state=0, verbose=False)

    free = euclidean_gradient(height, samples)[1]
    found = {
        "∂f, off the data": free,
        "from the function": geometry.gradient(height, samples, dimension=1),
        "from values at the samples": geometry.gradient_of_values(samples, height(samples), samples, dimension=1),
    }
    truth = torch.einsum("nij,nj->ni", curve.tangent_projector(clean), euclidean_gradient(height, clean)[1])
    errors = {name: float((vectors - truth).norm() / truth.norm()) for name, vectors in found.items()}
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "gradient_on_noisy_data.png").write_bytes(render_png(draw(samples, found, errors, n_arrows)))
    return {"bandwidth": geometry.bandwidth, "noise": NOISE} | errors


def clover(angle: Tensor) -> Tensor:
    """The curve: a circle with three leaves."""
    radius = 1 + 0.3 * torch.cos(3 * angle)
    return torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], -1)


def height(points: Tensor) -> Tensor:
    """The function whose gradient is asked for."""
    return points[:, 1] + 0.5 * torch.sin(2 * points[:, 0])


@rc_context(STYLE)
def draw(samples: Tensor, found: dict[str, Tensor], errors: dict[str, float], n_arrows: int) -> Figure:
    """Draw the points over the levels of the height, with gradients as arrows, one panel for each way to get them."""
    figure = Figure(figsize=(4.2 * len(found), 5.2), layout="constrained")
    panels = figure.subplots(1, len(found), sharex=True, sharey=True)
    for axes, (name, vectors), color in zip(panels, found.items(), (ORANGE, BLUE, BLUE), strict=True):
        draw_levels(axes)
        axes.scatter(*samples.numpy().T, s=3, color=GRAY)
        points, arrows = samples[:n_arrows].numpy(), vectors[:n_arrows].numpy()
        axes.quiver(*points.T, *arrows.T, color=color, angles="xy", scale_units="xy", scale=4, width=0.006, zorder=3)
        axes.set_title(f"{name}\nerror {errors[name]:.0%}")
        axes.set_aspect("equal")
    figure.suptitle("Which way is up, on the data?", x=0.01, ha="left", color=INK)
    return figure


def draw_levels(axes: Axes) -> None:
    """Draw the height as gray levels."""
    grid = np.linspace(-1.7, 1.7, 80)
    x, y = np.meshgrid(grid, grid)
    values = height(torch.as_tensor(np.stack([x.ravel(), y.ravel()], 1))).numpy().reshape(x.shape)
    axes.contourf(x, y, values, levels=14, cmap="Greys", alpha=0.35)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compute gradients along noisy data, and draw them.")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder to write to (default: pictures)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, value in run(arguments.out).items():
        print(f"{name:<28} {value:.3f}")
    print(f"\nThe picture: {arguments.out / 'gradient_on_noisy_data.png'}")


if __name__ == "__main__":
    main()
