"""The way from one sample to another that never leaves the data.

    python examples/path_between_samples.py --out pictures

A Swiss roll is a sheet, rolled up: two of its samples can be near in space and far apart for somebody who walks on it.
The example learns the geometry of 1,500 samples and finds the shortest path on them between two. Unrolled, that path is
a straight line, so its true length is known. The straight line in space is a quarter as long, and most of it
lies between the sheets, where there are no data.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import carre
from carre.manifolds import SwissRoll
from carre.plots import render_png
from carre.plots.style import BLUE, GRAY, INK, ORANGE, STYLE

# Angle and height of the two ends.
START, END = (5.5, 4.0), (12.5, 16.0)


def run(
    out: Path | None = None, *, n_samples: int = 1500, max_steps: int = 400, width: int = 64, n_nodes: int = 65
) -> dict[str, float]:
    """Fit, walk and draw; return lengths, and the largest distances from the true sheet.

    Args:
        out: The folder to write the picture to; None writes none.
        n_samples: How many samples.
        max_steps: Training steps.
        width: Hidden width of the network.
        n_nodes: Nodes of the path.
    """
    roll = SwissRoll()
    samples = roll.sample(n_samples, generator=torch.Generator().manual_seed(0))
    ends = torch.stack([nearest(samples, *START), nearest(samples, *END)])

    geometry = carre.fit(samples, max_steps=max_steps, width=width, random_state=0, verbose=False)
    path = geometry.path(ends[0], ends[1], method=carre.Geodesic(dimension=2), n_nodes=n_nodes)

    nodes = path.nodes[0]
    line = torch.lerp(ends[:1], ends[1:], torch.linspace(0, 1, n_nodes, dtype=torch.float64)[:, None])
    results = {
        "bandwidth": geometry.bandwidth,
        "true length": float((unrolled(ends[:1]) - unrolled(ends[1:])).norm()),
        "length of the path": float(path.length()),
        "length of the line": float((ends[1] - ends[0]).norm()),
        "path leaves the sheet by": float(roll.distance(nodes).max()),
        "line leaves the sheet by": float(roll.distance(line).max()),
        "path arrived": float(path.arrived),
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "path_between_samples.png").write_bytes(render_png(draw(samples, nodes, line, ends)))
    return results


def nearest(samples: Tensor, angle: float, height: float) -> Tensor:
    """Return the sample nearest to a place on the roll."""
    place = samples.new_tensor([angle * math.cos(angle), height, angle * math.sin(angle)])
    return samples[(samples - place).norm(dim=1).argmin()]


def unrolled(points: Tensor) -> Tensor:
    """Map points of the roll to the plane, keeping lengths: arc length along the spiral, and height."""
    angle = points[:, [0, 2]].norm(dim=1)
    arc = (angle * (1 + angle.square()).sqrt() + torch.asinh(angle)) / 2
    return torch.stack([arc, points[:, 1]], 1)


@rc_context(STYLE)
def draw(samples: Tensor, nodes: Tensor, line: Tensor, ends: Tensor) -> Figure:
    """Draw the roll from above with both ways, and the path on the unrolled sheet."""
    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    above, flat = figure.subplots(1, 2, width_ratios=[1, 1.4])
    above.scatter(samples[:, 0], samples[:, 2], s=4, color=GRAY)
    above.plot(line[:, 0], line[:, 2], color=ORANGE, label="straight line in space")
    above.plot(nodes[:, 0], nodes[:, 2], color=BLUE, label="path on the data")
    above.set_title("The roll, seen along its axis")
    above.set_aspect("equal")
    above.legend(loc="upper left", fontsize=9)

    flat.scatter(*unrolled(samples).T, s=4, color=GRAY)
    flat.plot(*unrolled(nodes).T, color=BLUE)
    flat.plot(*unrolled(ends).T, "--", color=INK, linewidth=1, label="shortest")
    flat.set_title("The sheet, unrolled")
    flat.set(xlabel="length along the spiral", ylabel="height")
    flat.legend(loc="upper left", fontsize=9)
    mark(above, ends[:, [0, 2]])
    mark(flat, unrolled(ends))
    return figure


def mark(axes: Axes, ends: Tensor) -> None:
    """Mark the two ends."""
    axes.plot(*ends.T, "o", color=INK)


def main() -> None:
    parser = argparse.ArgumentParser(description="Find the shortest path on the data between two samples.")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder to write to (default: pictures)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, value in run(arguments.out).items():
        print(f"{name:<26} {value:.3f}")
    print(f"\nThe picture: {arguments.out / 'path_between_samples.png'}")


if __name__ == "__main__":
    main()
