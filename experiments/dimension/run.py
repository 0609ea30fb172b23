"""Dimension, noise and directions on data of known answers, with the defaults, beside others.

    python experiments/dimension/run.py --suite noisy          four shapes under noise, beside local PCA with labels
    python experiments/dimension/run.py --suite calibration    72 datasets: how often is what is said right
    python experiments/dimension/run.py --suite benchmark --seeds 5 --rivals   scikit-dimension's manifolds and methods
    python experiments/dimension/run.py --suite denoising      the five sets of the denoising loss
    python experiments/dimension/run.py --suite iddiff         the sets of ID-diff, with up to 1,024 columns
    python experiments/dimension/run.py --tables               write the tables again, measure nothing

Rows that results.json has already are not measured again; --rivals adds what they lack. Suite benchmark needs
scikit-dimension. Everything is a fit on a CPU with one thread, several beside each other with --workers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
import carre
from carre.geometry import Geometry
from carre.metric import projector_distance
from experiments.dimension.datasets import SUITES, Dataset, suite
from experiments.dimension.table import tables
from experiments.measures.command import check_folder, write
from experiments.measures.speed import hardware

# At so many samples local answers are asked for.
N_ASKED = 1000
NEIGHBORS = (10, 20, 40, 80, 160, 320, 640, 1280)
RIVALS = ("CorrInt", "DANCo", "FisherS", "KNN", "lPCA", "MADA", "MiND_ML", "MLE", "MOM", "TLE", "TwoNN", "ESS")
_ESS_NEIGHBORHOODS, _ESS_NEIGHBORS = 200, 100


def measure(dataset: Dataset, seed: int, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Fit a dataset with the defaults, and hold what is said against what is known."""
    torch.set_num_threads(1)
    samples, clean = dataset.draw(seed)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        geometry = carre.fit(samples.numpy(), random_state=seed, device="cpu", verbose=False, **(settings or {}))
    seconds = time.perf_counter() - start
    told = sorted({type(one.message).__name__ for one in raised if issubclass(one.category, UserWarning)})
    asked = samples[:N_ASKED].numpy()
    estimate, found = geometry.estimate_dimension(asked), geometry.check(asked[:200])
    row = {
        "suite": dataset.suite,
        "name": dataset.name,
        "n": dataset.n,
        "seed": seed,
        "dimension": dataset.dimension,
        "ambient": samples.shape[1],
        "noise": dataset.noise,
        "value": estimate.value,
        "mean": estimate.mean,
        "interval": list(estimate.interval),
        "share_right": float((estimate.local == dataset.dimension).mean()),
        "verdict": "warned" if told else estimate.verdict,
        "warnings": told,
        "source": estimate.source,
        "valid": float(np.mean(found.valid)),
        "found_noise": geometry.noise,
        "noise_error": geometry.noise_estimate.standard_error,
        "bandwidth": geometry.bandwidth,
        "reason": geometry.scale_profile.reason if geometry.scale_profile else "",
        "ended": geometry.history.stop_reason,
        "steps": geometry.history.steps,
        "seconds": round(seconds, 1),
    }
    if dataset.tangents is not None:
        row |= directions(geometry, dataset, samples, clean)
    return row


def directions(geometry: Geometry, dataset: Dataset, samples: torch.Tensor, clean: torch.Tensor) -> dict[str, float]:
    """Compare tangent spaces at noisy samples with those of the clean ones, and with local PCA of the best size."""
    assert dataset.tangents is not None
    asked, truth, d = samples[:N_ASKED], dataset.tangents(clean[:N_ASKED]).double(), dataset.dimension

    def error(bandwidth: float) -> float:
        return float(projector_distance(geometry.tangent_basis(asked, d, bandwidth), truth).mean())

    distances, pca = torch.cdist(asked, samples), {}
    for count in (count for count in NEIGHBORS if count <= len(samples) // 2):
        near = samples[distances.topk(count, 1, largest=False).indices]
        rows = torch.linalg.svd(near - near.mean(1, keepdim=True), full_matrices=False)[2]
        pca[count] = float(projector_distance(rows[:, :d].mT, truth).mean())
    best = min(pca, key=lambda count: pca[count])
    grid = np.geomspace(*geometry.bandwidth_range, 13).tolist()
    return {
        "error": error(geometry.bandwidth),
        "best_error": min(map(error, grid)),
        "pca_error": pca[best],
        "pca_neighbors": best,
    }


def rivals(dataset: Dataset, seed: int) -> dict[str, float]:
    """Ask the estimators of scikit-dimension, with their defaults; NaN where one fails."""
    import skdim  # noqa: PLC0415
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    samples, answers = dataset.draw(seed)[0].numpy(), {}
    for name in RIVALS[:-1]:
        try:
            answers[name] = float(getattr(skdim.id, name)().fit(samples).dimension_)
        except Exception:
            answers[name] = float("nan")
    # ESS takes minutes per dataset; a mean over some neighborhoods has the same expectation.
    chosen = np.random.default_rng(0).permutation(len(samples))[:_ESS_NEIGHBORHOODS]
    near = NearestNeighbors(n_neighbors=_ESS_NEIGHBORS + 1).fit(samples).kneighbors(samples[chosen])[1][:, 1:]
    found = [skdim.id.ESS(random_state=0).fit_once(samples[rows]).dimension_ for rows in near]
    return answers | {"ESS": float(np.nanmean(found))}


def work(
    name: str, index: int, row: dict[str, Any], with_rivals: bool, settings: dict[str, Any] | None
) -> dict[str, Any]:
    """Measure what a row lacks, in a process of its own."""
    dataset, seed = list(suite(name))[index], row["seed"]
    if "value" not in row:
        row = measure(dataset, seed, settings)
    return row | ({"rivals": rivals(dataset, seed)} if with_rivals else {})


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of results and tables")
    parser.add_argument("--suite", choices=list(SUITES), default="noisy")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 1 on")
    parser.add_argument("--match", default="", help="only datasets whose names hold this")
    parser.add_argument("--sizes", help="only datasets of so many samples, like 600,2500")
    parser.add_argument("--rivals", action="store_true", help="ask the estimators of scikit-dimension, too")
    parser.add_argument("--workers", type=int, default=1, help="fits beside each other")
    parser.add_argument("--steps", type=int, help="optimizer steps at most, for a quick look")
    parser.add_argument("--tables", action="store_true", help="write the tables again, and measure nothing")
    arguments = parser.parse_args(argv)
    try:
        check_folder(arguments.out)
        for option in ("seeds", "workers"):
            if getattr(arguments, option) < 1:
                raise ValueError(f"--{option} must be at least 1; got {getattr(arguments, option)}")
        sizes = None if arguments.sizes is None else {int(size) for size in arguments.sizes.split(",")}
    except ValueError as error:
        parser.error(str(error))
    file = arguments.out / "results.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": []}
    known = {_key(row): row for row in results["rows"]}
    wanted = [
        (index, known.get((one.suite, one.name, one.n, seed), {"seed": seed}))
        for seed in range(1, arguments.seeds + 1)
        for index, one in enumerate(suite(arguments.suite))
        if arguments.match in one.name and (sizes is None or one.n in sizes) and not arguments.tables
    ]
    lacking = {"value", "rivals"} if arguments.rivals else {"value"}
    todo = [(index, row) for index, row in wanted if not lacking <= row.keys()]
    where = {"hardware": hardware(torch.device("cpu")), "date": date.today().isoformat()}
    settings = None if arguments.steps is None else {"max_steps": arguments.steps}
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(work, arguments.suite, *one, arguments.rivals, settings) for one in todo]
        for job in as_completed(jobs):
            row = where | job.result()
            results["rows"] = [one for one in results["rows"] if _key(one) != _key(row)] + [row]
            print(_said(row), flush=True)
            write(file, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write(arguments.out / "tables.md", tables(results))
    return results


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["suite"], row["name"], row["n"], row["seed"]


def _said(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    said = f"{row['name']} n={row['n']} seed {row['seed']}: {row['value']} ({low} to {high}) of {row['dimension']}, "
    said += f"{row['verdict']}, {row['share_right']:.0%} right, τ {row['found_noise']:.3g} of {row['noise']:g}"
    if "error" in row:
        said += f", error {row['error']:.3f} (best {row['best_error']:.3f}, PCA {row['pca_error']:.3f})"
    return said + f", {row['seconds']} s, {row['ended']}"


if __name__ == "__main__":
    main()
