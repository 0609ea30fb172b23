"""Measure what two processes do together, and kill them: `python experiments/together/run.py`.

Writes results.json beside this file, and the tables into README.md between their markers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre.backend.processes import Together, together
from carre.manifolds import Manifold, Sphere
from carre.matching import LogUniform, Perturbation
from carre.networks import build_model
from carre.training import Objective, TrainingConfig
from carre.training._steps import Stepper
from experiments.measures import tangent_errors
from experiments.measures.pages import fill_pages, machine
from experiments.together.table import TABLES

HERE = Path(__file__).parent
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
COLUMNS, N_SAMPLES, SEEDS, N_NEW = 10, 2000, 3, 500
COMPARED_STEPS, TIMED_STEPS, BATCHES = 50, 60, (256, 2048)
SENTENCES = ("another of the 2 processes ended", "interrupted", "does not reach the others")
# A process that is gone has to be noticed within so many seconds.
LONGEST = 120


def main() -> None:
    """Measure everything, and write it down; or one part of it, as one of two processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", action="store_true", help="note that other work ran on the machine")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--fit-steps", type=int, default=600)
    parser.add_argument("--part", type=Path, help="(for this script itself) a file for what two processes find")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.part is not None:
        torch.distributed.init_process_group("gloo")
        found = measured(options.fit_steps)
        if together().is_first:
            options.part.write_text(json.dumps(found), encoding="utf-8")
        torch.distributed.destroy_process_group()
        return
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, "found.json")
        told = ["--part", str(part), "--fit-steps", str(options.fit_steps)]
        subprocess.run([*LAUNCH, __file__, *told], env=ENVIRONMENT, check=True)
        two, one = json.loads(part.read_text(encoding="utf-8")), measured(options.fit_steps)
        kills = killed(Path(folder), options.kills)
    results = {
        "machine": machine(shared=options.shared),
        "seconds": round(time.perf_counter() - started),
        "fit_steps": options.fit_steps,
        "difference": _difference(one.pop("totals"), two.pop("totals")),
        "one": one,
        "two": two,
        **kills,
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    fill_pages([HERE / "README.md"], TABLES, results)


def measured(fit_steps: int) -> dict[str, Any]:
    """Compare losses, time steps and fit; alone, or together with the other process."""
    seconds = {str(batch): _seconds_per_step(batch) for batch in BATCHES}
    return {
        "totals": _totals(),
        "seconds_per_step": seconds,
        "errors": [_error(seed, fit_steps) for seed in range(SEEDS)],
    }


def _sphere() -> tuple[Manifold, torch.Tensor]:
    sphere = Sphere(2).embed(COLUMNS, generator=torch.Generator().manual_seed(0))
    return sphere, sphere.sample(N_SAMPLES, generator=torch.Generator().manual_seed(1))


def _stepper(everyone: Together, batch_size: int, dtype: torch.dtype = torch.float32, **settings: Any) -> Stepper:
    samples = _sphere()[1].to(dtype)[everyone.rank :: everyone.size]
    torch.manual_seed(0)
    model = build_model(COLUMNS, 6, width=128, n_blocks=3, spread=0.6).to(dtype)
    config = TrainingConfig(batch_size=batch_size, n_references=0, **settings)
    generator = torch.Generator().manual_seed(everyone.seed(0))
    return Stepper(model, samples, LogUniform(0.05, 2.0), Objective(), config, generator, everyone)


def _totals() -> list[float]:
    """Take steps in float64; alone, on what two processes draw. Vectors for the Jacobian would be drawn later."""
    torch.set_default_dtype(torch.float64)
    told: dict[str, Any] = {"batch_size": 256, "dtype": torch.float64, "jacobian_weight": 0.0}
    stepper, totals = _stepper(together(), **told), []
    if together().size == 1:
        parts = [_stepper(Together(rank, 2), **told) for rank in range(2)]

        def draw() -> Perturbation:
            return Perturbation(*map(torch.cat, zip(*(part.batch().tensors() for part in parts), strict=True)))

        stepper.batch = draw  # type: ignore[method-assign]
    update = stepper.weights.update

    def noted(*given: Any) -> torch.Tensor:
        totals.append(float(found := update(*given)))
        return found

    stepper.weights.update = noted  # type: ignore[method-assign]
    for _ in range(COMPARED_STEPS):
        stepper.step(2e-3)
    torch.set_default_dtype(torch.float32)
    return totals


def _difference(one: list[float], two: list[float]) -> float:
    """Return the largest relative difference of what steps gave: the loss and the norms of its gradients."""
    return max(abs(a - b) / abs(a) for a, b in zip(one, two, strict=True))


def _seconds_per_step(batch_size: int) -> float:
    stepper = _stepper(together(), batch_size)
    for _ in range(3):
        stepper.step(1e-3)
    start = time.perf_counter()
    for _ in range(TIMED_STEPS):
        stepper.step(1e-3)
    return (time.perf_counter() - start) / TIMED_STEPS


def _error(seed: int, steps: int) -> float:
    """Fit the sphere; return the mean distance between true and learned tangent spaces at new points."""
    sphere, samples = _sphere()
    geometry = carre.fit(samples, max_steps=steps, random_state=seed, verbose=False, device="cpu")
    points = sphere.sample(N_NEW, generator=torch.Generator().manual_seed(2))
    return float(tangent_errors(geometry.field, sphere, points, geometry.bandwidth).mean())


def killed(folder: Path, count: int) -> dict[str, Any]:
    """Kill one of two processes at random moments of a fit; go on with one process or two."""
    np.save(folder / "points.npy", _sphere()[1].numpy())
    fit = ["-m", "carre", "fit", str(folder / "points.npy"), "--steps", "200", "--json", "--out"]
    start = time.perf_counter()
    subprocess.run([*LAUNCH, *fit, str(folder / "whole")], env=ENVIRONMENT, check=True, capture_output=True)
    whole, chance = time.perf_counter() - start, random.Random(0)
    return {
        "uninterrupted": whole,
        "kills": [_kill(fit, folder / str(i), chance, whole, 2 - i % 2) for i in range(count)],
    }


def _kill(fit: list[str], out: Path, chance: random.Random, whole: float, processes: int) -> dict[str, Any]:
    begin = [*LAUNCH, *fit, str(out)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    launched = subprocess.Popen(begin, env=ENVIRONMENT, **pipes)
    moment, victim = chance.uniform(0, whole), chance.randrange(2)
    time.sleep(moment)
    while len(workers := _children(launched.pid)) < 2 and launched.poll() is None:
        time.sleep(0.01)
    found: dict[str, Any] = {"moment": moment, "victim": victim, "was_running": len(workers) == 2}
    if len(workers) == 2:
        os.kill(workers[victim], signal.SIGKILL)
    start = time.perf_counter()
    try:
        said = launched.communicate(timeout=LONGEST)[1]
    except subprocess.TimeoutExpired:
        launched.kill()
        return found | {"hung": True}
    found |= {"hung": False, "ended_after": time.perf_counter() - start, "code": launched.returncode}
    found |= {"sentence": next((line for line in SENTENCES if line in said), None)}
    found |= {"had_checkpoint": out.with_name(out.name + ".checkpoint").exists(), "resumed_with": processes}
    launch = LAUNCH if processes == 2 else [sys.executable]
    again = subprocess.run([*launch, *fit, str(out), "--resume"], env=ENVIRONMENT, **pipes, check=False)
    result = json.loads(again.stdout) if again.returncode == 0 else {}
    # What is complete is said to be.
    is_whole = result.get("steps") == 200 or result.get("complete", False)
    left = sorted(path.name for path in out.parent.glob(f"*{out.name}*") if path.name.startswith((".", out.name)))
    return found | {
        "resumed": again.returncode == 0 and is_whole,
        "left_beside": [name for name in left if name != out.name],
    }


def _children(process: int) -> list[int]:
    """List the processes that torchrun started, by rank."""
    try:
        return sorted(map(int, Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()))
    except OSError:
        return []


if __name__ == "__main__":
    main()
