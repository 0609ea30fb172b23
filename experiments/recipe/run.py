"""What each ingredient of a fit is worth: everything as by default, and one thing changed at a time.

    python experiments/recipe/run.py --quick                                       a look, some minutes on two cores
    python experiments/recipe/run.py --device cuda                                 every ingredient, five seeds
    python experiments/recipe/run.py --device cuda --only defaults                 the defaults alone, on all shapes
    python experiments/recipe/run.py --device cpu --only defaults --shapes s2:4000
    python experiments/recipe/run.py --device cpu --only six --seeds 20 --jobs 8   six manifolds: does a fit ever fail

With --jobs, so many fits run at once, on a CPU of one thread each: errors are the same, seconds are not those of a fit
that has the machine to itself, and the tables leave them out. Rows that results.json has already are not measured
again. Errors are means of ‖UUᵀ − ÛÛᵀ‖_F at 1,000 clean points that no fit has seen, at the σ that a fit chooses itself
and at the best of nine with labels; beside them the range finder on the same denoiser, at the same σ. The defaults also
stand beside a rival on the same samples: the centered kernel with the best σ and k by labels, on 300 points that the
errors are not measured at.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from carre.fields import KernelField, ScoreField
from carre.fitting import FitSettings, carry_out, make_plan
from carre.geometry import Geometry
from carre.metric import projector_distance
from carre.neighbors import TorchIndex
from carre.training import TrainingDivergedError
from experiments.measures.accuracy import grid_search, oracle_errors
from experiments.measures.command import check_folder, checked_device, write
from experiments.measures.pages import fill_pages
from experiments.measures.speed import hardware
from experiments.recipe.shapes import SHAPES, Drawn, Shape
from experiments.recipe.table import summary, tables
from experiments.sphere.comparison import Remembering

# One thing changed: settings of `FitSettings`, and of the `TrainingConfig` that is made from them.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "probes in all directions, backward": ({}, {"probes": "backward"}),
    "no Jacobian": ({}, {"jacobian_weight": 0.0}),
    "weight of the probes 1": ({}, {"jacobian_weight": 1.0}),
    "weight of the probes 40": ({}, {"jacobian_weight": 40.0}),
    "α from 0": ({}, {"probe_floor": 0.0}),
    "α from 0.3": ({}, {"probe_floor": 0.3}),
    "α from 1": ({}, {"probe_floor": 1.0}),
    "no polish": ({}, {"polish": 0.0}),
    "no weight decay": ({}, {"weight_decay": 0.0}),
    "no averaging": ({}, {"averaging": 0.0}),
    "a short decay": ({}, {"decay": 0.1}),
    "constant rate before the decay": ({}, {"cooling": 10**9}),
    "plain blocks": ({"block": "plain"}, {}),
    "targets averaged over references": ({}, {"n_references": 2048}),
    "no reference set": ({}, {"n_references": 0}),
}
ALL = {"cuda": "s8:8192,gr52:8192", "cpu": "s2:2000"}
DEFAULTS = {
    "cuda": "s8:8192,s8:65536,s8:524288,s8:2097152,s8:8388608,uneven:8192,uneven:524288,ellipsoid:8192,gr52:8192,"
    "wiggly:131072,wiggly:1048576",
    "cpu": "s2:4000",
}
SIX = "s2:2000,s3:2000,torus:2000,flat:2000,rotations:2000,roll:2000"
# Steps of every variant, so that they are compared at the same price.
STEPS = {"cuda": 12_000, "cpu": 1000}
N_TEST, N_RANGE_FINDER, N_VALIDATION = 1000, 200, 300
FEWEST = 50
# What the rival may choose from: σ in spreads of the samples, the largest as good as none; and k.
KERNEL_SCALES, KERNEL_NEIGHBORS = (0.1, 0.2, 0.4, 0.8, 100.0), [2**k for k in range(4, 15)]


def measure(name: str, n: int, variant: str, seed: int, device: torch.device, steps: int | None) -> dict[str, Any]:
    """Fit one shape once, and measure what came of it.

    A fit that fails is a row, too: what it said in the place of errors.
    """
    asked = {"shape": name, "n": n, "variant": variant, "seed": seed, "steps_each": steps}
    try:
        return asked | _measure(name, n, variant, seed, device, steps)
    except TrainingDivergedError as error:
        return asked | {"failed": str(error)}


def _measure(name: str, n: int, variant: str, seed: int, device: torch.device, steps: int | None) -> dict[str, Any]:
    shape, (told, changes) = SHAPES[name], VARIANTS[variant]
    generator = torch.Generator(device).manual_seed(1000 + seed)
    samples, (test, truth) = shape.draw(n, generator)[0], shape.draw(N_TEST, generator)
    start = time.perf_counter()
    plan = make_plan(samples, FitSettings(rank=shape.rank, reduce=shape.reduce, **told), seed=seed, device=device)
    if steps is not None:
        changes = {"max_steps": steps, "until_done": False, "gives_up": False, **changes}
    plan = replace(plan, config=replace(plan.config, **changes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        geometry = carry_out(plan)
    seconds = time.perf_counter() - start
    history = geometry.history
    found: dict[str, Any] = {"seconds": seconds, "training_seconds": history.seconds, "steps": history.steps}
    found |= {"ended": history.stop_reason, "score": -history.evaluations[history.kept].loss}
    if steps is None:
        found["kernel"] = kernel_by_labels(samples, shape.draw(N_VALIDATION, generator), (test, truth))
    return found | _errors(geometry, shape, test, truth, device)


def kernel_by_labels(samples: torch.Tensor, validation: Drawn, test: Drawn) -> dict[str, Any]:
    """Measure the centered kernel at the σ and k that are best with labels, at points apart from those it is tuned on.

    k is searched without a σ first, then σ with the best k and with the largest.
    """
    counts = [k for k in KERNEL_NEIGHBORS if k < len(samples)]
    index = Remembering(TorchIndex(samples), counts[-1])
    spread = float((samples - samples.mean(0)).norm(dim=1).square().mean().sqrt())

    def error(bandwidth: float, n_neighbors: int, drawn: Drawn = validation) -> float:
        field = KernelField(samples, n_neighbors=n_neighbors, centered=True, index=index, rank=drawn[1].shape[2])
        found = [
            field.metric(some, bandwidth * spread).tangent_basis(drawn[1].shape[2]) for some in drawn[0].split(100)
        ]
        return float(projector_distance(torch.cat(found), drawn[1]).mean())

    alone = grid_search(error, {"bandwidth": KERNEL_SCALES[-1:], "n_neighbors": counts})
    some = sorted({int(alone.setting["n_neighbors"]), counts[-1]})
    best = grid_search(error, {"bandwidth": KERNEL_SCALES, "n_neighbors": some})
    k = int(best.setting["n_neighbors"])
    found = {"bandwidth": best.bandwidth * spread, "n_neighbors": k, "error": error(best.bandwidth, k, test)}
    return found | {"at_end": k == counts[-1]}


def _errors(
    geometry: Geometry, shape: Shape, test: torch.Tensor, truth: torch.Tensor, device: torch.device
) -> dict[str, Any]:
    field, sigma, d = geometry.field, geometry.bandwidth, shape.dimension
    low, high = geometry.bandwidth_range

    def error(asked: Any, count: int, bandwidth: float) -> float:
        basis = asked.metric(test[:count], bandwidth).tangent_basis(d)
        return float(projector_distance(basis, truth[:count]).mean())

    grid = [low * (high / low) ** (k / 12) for k in range(9)]
    few = ScoreField(field, rank=2 * d)
    dims = geometry.dimension(test)
    found = {
        "bandwidth": sigma,
        "error": error(field, N_TEST, sigma),
        "best_error": min(error(field, N_TEST, bandwidth) for bandwidth in grid),
        "error_there": error(field, N_RANGE_FINDER, sigma),
        "range_finder": error(few, N_RANGE_FINDER, sigma),
        "dimension_right": float((dims == d).double().mean()),
        "gain": history_gain(geometry),
    }
    if shape.exact is not None:
        some = test[:N_RANGE_FINDER].double().cpu()
        found["G"] = {str(q): float(oracle_errors(field, shape.exact, some, q).mean()) for q in (0.0625, 0.125, 0.5)}
    return found


def history_gain(geometry: Geometry) -> dict[str, list[float]]:
    """The gain over the linear denoiser, of the network and of the kernel."""
    history = geometry.history
    return {"learned": [round(float(g), 3) for g in history.gain], "kernel": [round(g, 3) for g in history.kernel_gain]}


def planned(arguments: argparse.Namespace, device: torch.device) -> Iterator[tuple[str, int, str, int]]:
    """Go through what is to be measured, seed by seed, so that an interrupted run has some of everything."""
    which = {"six": {"cpu": SIX}, "defaults": DEFAULTS, "ingredients": ALL}[arguments.only]
    shapes = (arguments.shapes or which.get(device.type, which["cpu"])).split(",")
    variants = list(VARIANTS) if arguments.only == "ingredients" else ["default"]
    for option, value in (("--seeds", arguments.seeds), ("--steps", arguments.steps), ("--jobs", arguments.jobs)):
        if value is not None and value < 1:
            raise ValueError(f"{option} must be at least 1; got {value}")
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for shape in shapes:
            name, _, n = shape.partition(":")
            if name not in SHAPES or not n.isdigit() or int(n) < FEWEST:
                raise ValueError(
                    f"--shapes must be like s8:8192, of {', '.join(SHAPES)}, {FEWEST} or more; got {shape!r}"
                )
            yield from ((name, int(n), variant, seed) for variant in variants)


def _measured(
    todo: list[tuple[str, int, str, int]], device: torch.device, steps: int | None, jobs: int
) -> Iterator[dict[str, Any]]:
    """Measure all that is to be measured, some of it at once; rows come as they are ready."""
    if jobs == 1:
        yield from (measure(*one, device, steps) for one in todo)
        return
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawned, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for done in as_completed([pool.submit(measure, *one, device, steps) for one in todo]):
            yield done.result() | {"jobs": jobs}


def _line(row: dict[str, Any]) -> str:
    """Say in a line what was measured."""
    which = f"{row['shape']}:{row['n']} {row['variant']} {row['seed']}"
    if "failed" in row:
        return f"{which}: {row['failed']}"
    said = f"{row['error']:.4f} (range finder {row['range_finder']:.4f}) at σ = {row['bandwidth']:.3g}"
    return f"{which}: {said}, {row['seconds']:.1f} s, {row['ended']}"


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of results and tables")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--only", choices=["defaults", "ingredients", "six"], default="ingredients")
    parser.add_argument("--shapes", help="like s8:8192,gr52:8192")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="steps of every variant")
    parser.add_argument("--jobs", type=int, default=1, help="fits at once")
    parser.add_argument("--quick", action="store_true", help="one seed of a small shape, with few steps")
    arguments = parser.parse_args(argv)
    try:
        device = checked_device(arguments.device)
        check_folder(arguments.out)
        if arguments.quick:
            arguments.shapes, arguments.seeds = arguments.shapes or "s2:500", 1
            arguments.steps = arguments.steps or 120
        todo = list(planned(arguments, device))
    except ValueError as error:
        parser.error(str(error))
    file = arguments.out / "results.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": []}
    steps = arguments.steps or (STEPS.get(device.type, STEPS["cpu"]) if arguments.only == "ingredients" else None)
    where = {"hardware": hardware(device), "date": date.today().isoformat(), "torch": torch.__version__}
    where |= {"python": platform.python_version()}
    keys = ("shape", "n", "variant", "seed", "steps_each", "hardware")
    known = {tuple(row[key] for key in keys) for row in results["rows"]}
    todo = [one for one in todo if (*one, steps, where["hardware"]) not in known]
    for row in _measured(todo, device, steps, arguments.jobs):
        results["rows"].append(row | where)
        print(_line(row), flush=True)
        write(file, json.dumps(results, indent=1) + "\n")
    write(arguments.out / "tables.md", tables(results))
    if arguments.out == Path(__file__).parent:
        front = Path(__file__).parents[2] / "README.md"
        fill_pages([front], {"summary": lambda found: summary(found).splitlines()}, results)
    return results


if __name__ == "__main__":
    main()
