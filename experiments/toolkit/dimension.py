"""Dimension on the benchmark manifolds of scikit-dimension: ours, with outliers and noise, and theirs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import carre

N = 2500
LARGEST_AMBIENT = 30
# ESS takes minutes per dataset; a mean over this many neighborhoods has the same expectation.
ESS_NEIGHBORHOODS, ESS_NEIGHBORS = 200, 100
SPOILED = ("M3_Nonlinear_4to6", "M4_Nonlinear", "M7_Roll", "M13a_Scurve")


def export(folder: Path) -> None:
    """Write the benchmark manifolds that fit, and their dimensions, as .npy files and truth.npy."""
    import skdim  # noqa: PLC0415  (only here and for the baselines)

    benchmark = skdim.datasets.BenchmarkManifolds(random_state=0)
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name, row in benchmark.truth.iterrows() if row["Number of variables"] <= LARGEST_AMBIENT]
    for name, samples in benchmark.generate(name="all", n=N).items():
        if name in names:
            np.save(folder / f"{name}.npy", samples)
    truth = {name: int(benchmark.truth.loc[name, "Intrinsic Dimension"]) for name in names}
    (folder / "truth.txt").write_text("".join(f"{name} {d}\n" for name, d in truth.items()), encoding="utf-8")


def truth(folder: Path) -> dict[str, int]:
    """Read the dimensions."""
    lines = (folder / "truth.txt").read_text(encoding="utf-8").split("\n")
    return {name: int(d) for name, d in (line.split() for line in lines if line)}


def measure(folder: Path, name: str, spoil: str = "") -> dict:
    """Fit a dataset with the defaults, and estimate its dimension at all of its samples."""
    samples = spoiled(np.load(folder / f"{name}.npy"), spoil)
    start = time.perf_counter()
    geometry = carre.fit(samples, random_state=0, device="cpu", verbose=False)
    seconds = time.perf_counter() - start
    estimate = geometry.estimate_dimension(samples)
    return {
        "name": name,
        "spoiled": spoil,
        "dimension": truth(folder)[name],
        "ambient": samples.shape[1],
        "value": estimate.value,
        "mean": estimate.mean,
        "standard_error": estimate.standard_error,
        "interval": list(estimate.interval),
        "source": estimate.source,
        "bandwidth": geometry.bandwidth,
        "reason": geometry.scale_profile.reason,
        "fit_seconds": seconds,
    }


def spoiled(samples: np.ndarray, how: str) -> np.ndarray:
    """Replace 1 % of the samples by outliers all over their box, or add noise of 1 % of their deviation."""
    draws = np.random.default_rng(1)
    result = samples.copy()
    if how == "outliers":
        rows = draws.permutation(len(samples))[: len(samples) // 100]
        low, high = samples.min(0), samples.max(0)
        margin = 0.25 * (high - low)
        result[rows] = draws.uniform(low - margin, high + margin, (len(rows), samples.shape[1]))
    elif how == "noise":
        result += 0.01 * np.sqrt(samples.var(0).mean()) * draws.normal(size=samples.shape)
    elif how:
        raise ValueError(f"how must be 'outliers', 'noise' or ''; got {how!r}")
    return result


def baselines(folder: Path, name: str) -> dict[str, Any]:
    """Ask the estimators of scikit-dimension, with their defaults."""
    import skdim  # noqa: PLC0415
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    samples = np.load(folder / f"{name}.npy")
    answers: dict[str, Any] = {"name": name, "dimension": truth(folder)[name]}
    for method in ("lPCA", "MLE", "TwoNN", "FisherS"):
        answers[method] = float(getattr(skdim.id, method)().fit(samples).dimension_)
    answers["lPCA, local"] = float(np.mean(skdim.id.lPCA().fit_pw(samples, n_neighbors=100).dimension_pw_))
    chosen = np.random.default_rng(0).permutation(len(samples))[:ESS_NEIGHBORHOODS]
    search = NearestNeighbors(n_neighbors=ESS_NEIGHBORS + 1).fit(samples)
    patches = search.kneighbors(samples[chosen], return_distance=False)[:, 1:]
    answers["ESS"] = float(np.nanmean([skdim.id.ESS(random_state=0).fit_once(samples[p]).dimension_ for p in patches]))
    return answers
