"""Compare how long a fit was said to take with how long it took: `python experiments/times/run.py`.

Writes results.json beside this file, and the table into README.md between its markers. The rule was made from the steps
of experiments/dimension; the data here are others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import carre
from carre.fitting import FitSettings, accept_samples, expected_seconds
from carre.manifolds import Sphere
from carre.text import in_words, span

HERE = Path(__file__).parent
SEED, ALLOWED, SLACK = 7, 30.0, 3.0
BEGIN, END = "<!-- times -->\n", "<!-- end of times -->"


def sphere(rng: np.random.Generator) -> np.ndarray:
    """Sample S² in ten columns: a hull of three, learned at once."""
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    return Sphere(2).embed(10, generator=generator).sample(2000, generator=generator).numpy()


def branching(rng: np.random.Generator) -> np.ndarray:
    """Grow five bent arms from one point in fifty columns, with a little noise, as cells that differentiate."""
    arms, bends = (np.linalg.qr(rng.normal(size=(50, 5)))[0].T for _ in range(2))
    which, t = rng.integers(5, size=2000), rng.uniform(0, 2, size=(2000, 1))
    return t * arms[which] + 0.4 * np.sin(2 * t) * bends[which] + 0.02 * rng.normal(size=(2000, 50))


def noisy(rng: np.random.Generator) -> np.ndarray:
    """Sample a table of twelve columns that depend on two quantities, with noise of 0.1 in all."""
    latent, weights = rng.uniform(-1, 1, size=(1500, 2)), rng.normal(size=(2, 12))
    return np.tanh(latent @ weights) + 0.1 * rng.normal(size=(1500, 12))


def square(rng: np.random.Generator) -> np.ndarray:
    """Sample a flat square in five columns, which fills its hull."""
    return rng.uniform(size=(1500, 2)) @ np.linalg.qr(rng.normal(size=(5, 5)))[0][:2]


def digits(_: np.random.Generator) -> np.ndarray:
    """Take the digits of scikit-learn: 64 columns, a network of the larger kind."""
    return load_digits().data / 16


# Name, data, budget, whether by the command; the last takes many minutes.
CASES: tuple[tuple[str, Callable[[np.random.Generator], np.ndarray], float | None, bool], ...] = (
    ("S² in R¹⁰", sphere, None, False),
    ("flat square in R⁵", square, None, False),
    ("noisy table, 2 in 12", noisy, None, False),
    ("branching table, 2,000 × 50", branching, None, False),
    ("digits, a budget of 30 s", digits, ALLOWED, False),
    ("branching, a budget of 30 s", branching, ALLOWED, False),
    ("digits, `--budget 30s`", digits, ALLOWED, True),
)
LONG = (("digits", digits, None, False),)


def main() -> None:
    """Measure everything, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only look: small budgets, nothing is written")
    parser.add_argument("--long", action="store_true", help="fit the digits without a budget, too: minutes more")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    start, cases = time.perf_counter(), CASES + (LONG if options.long else ())
    rows = []
    for name, data, seconds, is_command in cases:
        X = data(np.random.default_rng(SEED))
        told = {"max_steps": 40} if options.quick and seconds is None else {"max_seconds": seconds}
        row = by_command(X, seconds or ALLOWED, options.threads) if is_command else by_python(X, told)
        rows.append({"name": name, "n": len(X), "dim": X.shape[1], "budget": seconds, "by_command": is_command, **row})
        print(written(rows[-1]), flush=True)
    results = {
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.processor() or platform.machine(),
            "threads": options.threads,
            "torch": torch.__version__,
            "carre": carre.__version__,
            "date": date.today().isoformat(),
        },
        "seconds": round(time.perf_counter() - start),
        "rows": rows,
    }
    if options.quick:
        return
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    page = HERE / "README.md"
    before, after = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(before + BEGIN + table(results) + END + after.split(END)[1], encoding="utf-8")


def by_python(X: np.ndarray, told: dict[str, Any]) -> dict[str, Any]:
    """Ask what a dry run says, then fit; also note what the bar says first."""
    settings, start = FitSettings(**told), time.perf_counter()
    plan = accept_samples(X).plan(settings, seed=SEED, device=torch.device("cpu"))
    planned = 0.0 if plan.config.max_seconds else time.perf_counter() - start
    least, most, longest = (seconds + planned for seconds in expected_seconds(plan))
    said: list[tuple[float, float, float]] = []

    def note(progress: Any) -> None:
        if progress.likely is not None and (not said or progress.phase == "learning"):
            said.append((progress.seconds, *progress.likely))

    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        geometry = carre.fit(X, **told, random_state=SEED, progress=note)
    took, history = time.perf_counter() - start, geometry.history
    return {
        "least": least,
        "most": most,
        "bound": longest,
        "took": took,
        "steps": history.steps,
        "ended": history.stop_reason,
        "training": history.seconds,
        "bar_first": said[0] if said else None,
        "bar_last_while_learning": said[-1] if said else None,
    }


def by_command(X: np.ndarray, seconds: float, threads: int) -> dict[str, Any]:
    """Run the command, from its start to its end; what it says before is asked of it, too."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/X.npy", X)
        line = [sys.executable, "-m", "carre", "fit", f"{folder}/X.npy", "--out", f"{folder}/model", "--json"]
        line += ["--seed", str(SEED), "--budget", f"{seconds:g}s"]

        def run(*more: str) -> tuple[dict[str, Any], list[str], float]:
            start = time.perf_counter()
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            done = subprocess.run([*line, *more], check=True, capture_output=True, text=True, env=environment)
            return json.loads(done.stdout), done.stderr.splitlines(), time.perf_counter() - start

        plan, _, _ = run("--dry-run")
        found, lines, took = run()
    least, most = plan["likely_seconds"]
    told = {"least": least, "most": most, "bound": plan["seconds"], "took": took, "steps": found["steps"]}
    return told | {"ended": found["ended"], "first_line": next((line for line in lines if "likely" in line), None)}


def written(row: dict[str, Any]) -> str:
    """Write a row of the table."""
    allowed = row["budget"]
    if allowed is None:
        is_right = row["least"] <= row["took"] <= row["most"]
        verdict = "as said" if is_right else "within the bound" if row["took"] <= row["bound"] else "longer"
    else:
        verdict = "within" if row["took"] <= allowed + SLACK else "**too long**"
    said = f"{span(row['least'], row['most'])}, at most {in_words(row['bound'])}"
    return f"| {row['name']} | {said} | {row['took']:.1f} s | {row['steps']:,}, {row['ended']} | {verdict} |"


def table(results: dict[str, Any]) -> str:
    """Write the table, and where it was measured."""
    head = "| data | said before: likely | took, all of it | steps | |\n|---|---|---|---|---|\n"
    machine = results["machine"]
    where = f"{machine['threads']} threads, {machine['cores']} cores, torch {machine['torch']}, {machine['date']}"
    return head + "\n".join(map(written, results["rows"])) + f"\n\nMeasured with {where}, in {results['seconds']} s.\n"


if __name__ == "__main__":
    main()
