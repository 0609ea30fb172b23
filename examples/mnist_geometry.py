"""The geometry of handwritten digits, from a model that ships with the library: no data, no training, no GPU.

    python examples/mnist_geometry.py --out pictures

Draws the directions in which some digits can change, the way from one digit to another through the data, beside the
straight line between them, and what becomes of noisy digits.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import carre
from carre.plots import figure_of, plot_path_strip, plot_tangent_images, render_png

# Digits that come with the model.
SHOWN, START, END = (1, 9, 13, 29, 48), (43, 46, 12), (59, 41, 44)
SCALE, N_DIRECTIONS, N_NODES, NOISE = 2.0, 7, 9, 1.5


def run(out: Path | None = None, *, max_sweeps: int = 40) -> dict[str, float]:
    """Load, ask and draw; return the figures that are printed.

    Args:
        out: The folder to write the pictures to; None writes none.
        max_sweeps: Sweeps of the threads.
    """
    geometry = carre.load("mnist")
    digits = geometry.to_images(geometry.landmarks.numpy())  # (500, 1, 28, 28), normalized
    shown = digits[list(SHOWN)]
    directions = geometry.tangent_images(shown, N_DIRECTIONS)  # at the default σ
    values = geometry.eigenvalues(shown)[:, :N_DIRECTIONS]

    start, end = digits[list(START)], digits[list(END)]
    thread = geometry.path(start, end, SCALE, method=carre.Thread(max_sweeps=max_sweeps), n_nodes=N_NODES)
    straight = carre.Path.through(np.stack([start, end], 1).reshape(len(start), 2, -1)).resample(N_NODES)

    noise = torch.randn(shown.shape, generator=torch.Generator().manual_seed(0)).numpy()
    noisy = shown + NOISE * noise
    denoised = geometry.denoise(noisy, NOISE)

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)

        def pictures(points: object) -> np.ndarray:
            return np.asarray(geometry.to_pixels(geometry.to_images(points)))[..., 0, :, :]

        tangents = plot_tangent_images(pictures(shown), directions[:, :, 0], values)
        ways = {"straight": pictures(straight), "thread": pictures(thread)}
        rows = {f"{name} {i + 1}": way[i] for i in range(len(start)) for name, way in ways.items()}
        strips = plot_path_strip(rows, limits=(0.0, 1.0), title="From one digit to another")
        rows = {"original": pictures(shown), "with noise": pictures(noisy), "denoised": pictures(denoised)}
        cleaned = plot_path_strip(rows, ends=None, limits=(0.0, 1.0), title=f"Noise of deviation {NOISE:g} taken off")
        for name, panels in (("tangents", tangents), ("paths", strips), ("denoised", cleaned)):
            (out / f"{name}.png").write_bytes(render_png(figure_of(panels)))

    return {
        "dimension": float(geometry.dimension(shown).mean()),
        "length over chord": float((thread.length() / straight.length()).mean()),
        "error of noisy digits": float(np.sqrt(np.square(noisy - shown).sum((1, 2, 3))).mean()),
        "error of denoised digits": float(np.sqrt(np.square(denoised - shown).sum((1, 2, 3))).mean()),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder for the pictures")
    out, begun = parser.parse_args().out, time.perf_counter()
    for name, value in run(out).items():
        print(f"{name}: {value:.2f}")
    print(f"{time.perf_counter() - begun:.0f} s; tangents.png, paths.png and denoised.png in {out}")


if __name__ == "__main__":
    main()
