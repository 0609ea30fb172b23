"""Compare the learned metric with the k-NN carré du champ on a sphere, as the samples grow.

    python experiments/sphere/run.py --quick                                   a small sphere, two minutes on a laptop
    python experiments/sphere/run.py --device cuda --out sphere-gpu
    python experiments/sphere/run.py --device cpu --sizes 8192,65536 --engines torch,faiss,hnsw

Every method is tuned on the same validation points. Writes results.json, tables.md and figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from experiments.measures.command import check_folder, checked_device, naming, numbers, write
from experiments.sphere.comparison import run_sphere
from experiments.sphere.figures import plot_eigenvalues, plot_scaling
from experiments.sphere.settings import CPU, FULL, QUICK, SphereSettings
from experiments.sphere.tables import sphere_tables

_OPTIONS = {"ambient_dim": "--ambient", "unevenness": "--uneven"} | {
    name: f"--{name}" for name in ("sizes", "engines", "dimension", "rank", "device")
}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("sphere"), help="folder of results, tables and figures")
    parser.add_argument("--quick", action="store_true", help="a small sphere: two minutes on a laptop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--sizes", help="numbers of samples, separated by commas")
    parser.add_argument("--dimension", type=int, help="dimension d of the sphere")
    parser.add_argument("--ambient", type=int, help="dimension D of the space that it lies in")
    parser.add_argument("--rank", type=int, help="rank of the learned metric")
    parser.add_argument("--engines", help="neighbor searches, separated by commas")
    parser.add_argument("--uneven", type=float, help="how uneven the density is, from 0 (uniform) to 3")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    arguments = parser.parse_args(argv)
    try:
        with naming({"ambient_dim": "--ambient"}, **_OPTIONS):
            device = str(checked_device(arguments.device))
            settings = chosen_settings(arguments, QUICK if arguments.quick else CPU if device == "cpu" else FULL)
            check_folder(arguments.out)
    except ValueError as error:
        parser.error(str(error))
    results = run_sphere(
        settings,
        device=device,
        report=lambda line: print(line, file=sys.stderr, flush=True),
        save=lambda results: write(arguments.out / "results.json", json.dumps(results, indent=1) + "\n"),
    )
    write_all(results, arguments.out)
    print(f"{sphere_tables(results)}\n\nwritten to {arguments.out}")
    return results


def chosen_settings(arguments: argparse.Namespace, base: SphereSettings) -> SphereSettings:
    """Change what was given."""
    given: dict[str, Any] = {
        "dimension": arguments.dimension,
        "ambient_dim": arguments.ambient,
        "rank": arguments.rank,
        "unevenness": arguments.uneven,
        "sizes": numbers("--sizes", arguments.sizes, int),
        "engines": None if arguments.engines is None else tuple(arguments.engines.split(",")),
    }
    return replace(base, seed=arguments.seed, **{name: value for name, value in given.items() if value is not None})


def write_all(results: dict[str, Any], out: Path) -> None:
    """Write results, tables and figures."""
    write(out / "results.json", json.dumps(results, indent=1) + "\n")
    write(out / "tables.md", sphere_tables(results) + "\n")
    plot_scaling(results).savefig(out / "scaling.png", dpi=150)
    if results["eigenvalues"]:
        plot_eigenvalues(results).savefig(out / "eigenvalues.png", dpi=150)


if __name__ == "__main__":
    main()
