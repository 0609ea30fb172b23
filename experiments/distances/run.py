"""What distances between many points cost, and how exact they are: `python experiments/distances/run.py`.

Fits three manifolds whose geodesics are known, asks for all distances among 50, 200 and 500 points, over the graph and
by geodesics, and compares. Results go to results.json, the table into README.md and the how-to.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre.manifolds import CliffordTorus, Sphere, SwissRoll
from carre.toolkit import Path as Curves
from experiments.measures.command import check_folder, write
from experiments.measures.speed import hardware

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "how_to" / "paths.md")
N_SAMPLES, RADII = 3000, (1.0, 0.6)
# How many points by which method; geodesics between 500 take minutes.
COUNTS = {"default": (200, 500), "graph": (50, 200, 500), "geodesic": (50, 200)}
QUICK = {"default": (50,), "graph": (50,), "geodesic": (20,)}


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer points, and fits of a few steps")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    try:
        check_folder(arguments.out)
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(arguments.threads)
    results = measure(quick=arguments.quick)
    write(arguments.out / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    # Elsewhere, or from fits of a few steps, no page is written: these are figures of the project.
    for page in PAGES if arguments.out == HERE and not arguments.quick else ():
        before, _, rest = page.read_text(encoding="utf-8").partition("<!-- distances -->")
        after = rest.partition("<!-- end of distances -->")[2]
        write(page, f"{before}<!-- distances -->\n{table(results)}<!-- end of distances -->{after}")
    print(table(results))
    return 0


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Fit each manifold, and ask for distances among more and more points."""
    results: dict[str, Any] = {"date": str(date.today()), "hardware": hardware("cpu")}
    results |= {"python": platform.python_version(), "torch": torch.__version__, "n_samples": N_SAMPLES, "rows": []}
    steps = {"max_steps": 100, "width": 48} if quick else {}
    for name, (draw, truth) in shapes().items():
        samples = draw(N_SAMPLES, torch.Generator().manual_seed(1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            geometry = carre.fit(samples, random_state=0, device="cpu", verbose=False, **steps)
        begin = time.perf_counter()
        geometry.sample_graph(geometry.bandwidth)
        results["rows"].append({"shape": name, "method": "graph of landmarks", "seconds": time.perf_counter() - begin})
        for method, counts in (QUICK if quick else COUNTS).items():
            for n in counts:
                points = draw(n, torch.Generator().manual_seed(2))
                results["rows"].append({"shape": name, **one(geometry, points, truth(points), method)})
    return results


def one(geometry: carre.Geometry, points: Tensor, truth: Tensor, method: str) -> dict[str, Any]:
    """Time the distances among points, and compare them with the truth; and some with the lengths of paths."""
    begin = time.perf_counter()
    found = geometry.distances(points, method=None if method == "default" else method)
    seconds = time.perf_counter() - begin
    i, j = torch.triu_indices(len(points), len(points), 1)
    error = found[i, j] / truth[i, j] - 1
    known = error.isfinite()
    some = torch.linspace(0, len(i) - 1, 20).long()
    paths: Curves = geometry.path(points[i[some]], points[j[some]])
    from_path = (found[i[some], j[some]] / paths.length() - 1).abs()
    return {
        "method": method,
        "points": len(points),
        "seconds": seconds,
        "mean error": float(error[known].abs().mean()),
        "95 % below": float(error[known].abs().quantile(0.95)),
        "worst error": float(error[known].abs().max()),
        "infinite": int((~known).sum()),
        "median difference from path": float(from_path[from_path.isfinite()].median()),
    }


def shapes() -> dict[str, tuple[Callable[[int, torch.Generator], Tensor], Callable[[Tensor], Tensor]]]:
    """Return how points are drawn on each manifold, and how far they are from each other along it."""
    generator = torch.Generator().manual_seed(0)
    sphere, roll = Sphere(2).embed(10, generator=generator), SwissRoll()
    torus, frame = CliffordTorus(list(RADII)), torch.linalg.qr(torch.randn(8, 4, generator=generator).double()).Q

    def around(points: Tensor) -> Tensor:
        flat = points @ frame
        angles = torch.atan2(flat[:, 1::2], flat[:, ::2])
        turn = torch.remainder(angles[:, None] - angles[None] + math.pi, 2 * math.pi) - math.pi
        return (turn * torch.tensor(RADII)).norm(dim=-1)

    def unrolled(points: Tensor) -> Tensor:
        angle = torch.hypot(points[:, 0], points[:, 2])
        flat = torch.stack([0.5 * (angle * (1 + angle.square()).sqrt() + angle.asinh()), points[:, 1]], 1)
        return (flat[:, None] - flat[None]).norm(dim=-1)

    return {
        "S² in R¹⁰": (lambda n, g: sphere.sample(n, generator=g), lambda x: (x @ x.T).clamp(-1, 1).acos()),
        "Swiss roll": (lambda n, g: roll.sample(n, generator=g), unrolled),
        "flat torus in R⁸": (lambda n, g: torus.sample(n, generator=g) @ frame.T, around),
    }


def table(results: dict[str, Any]) -> str:
    """Write what was measured as a table.

    Example:
        >>> row = {"shape": "S²", "method": "graph", "points": 50, "seconds": 0.5, "mean error": 0.001, "infinite": 0}
        >>> row |= {"95 % below": 0.004, "worst error": 0.01, "median difference from path": 0.001}
        >>> print(table({"rows": [row], "date": "today", "hardware": "CPU", "n_samples": 3000}))
        | data | method | points | seconds | mean error | 95 % below | worst | infinite | beside `path` |
        |---|---|---|---|---|---|---|---|---|
        | S² | graph | 50 | 0.5 | 0.10 % | 0.40 % | 1.00 % | 0 | 0.100 % |
        <BLANKLINE>
        3,000 samples each, fitted by default. CPU, today.
        <BLANKLINE>
    """
    names = ("data", "method", "points", "seconds", "mean error", "95 % below", "worst", "infinite", "beside `path`")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row in results["rows"]:
        if "points" not in row:
            lines.append(f"| {row['shape']} | {row['method']}, once | | {row['seconds']:.1f} | | | | | |")
            continue
        errors = [f"{row[name]:.2%}".replace("%", " %") for name in ("mean error", "95 % below", "worst error")]
        beside = f"{row['median difference from path']:.3%}".replace("%", " %")
        cells = [row["shape"], row["method"], f"{row['points']}", f"{row['seconds']:.1f}", *errors]
        lines.append(f"| {' | '.join([*cells, str(row['infinite']), beside])} |")
    last = f"{results['n_samples']:,} samples each, fitted by default. {results['hardware']}, {results['date']}."
    return "\n".join([*lines, "", last]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
