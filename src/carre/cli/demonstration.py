"""``carre demo``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carre.cli.options import AsJson, Quiet, check_positive
from carre.cli.output import COMMAND, show

if TYPE_CHECKING:
    import numpy as np

    from carre import MetricMatching

# The default rank, 14, would cut the dimension off: digits have many directions, ever weaker, and no gap.
_STEPS, _WIDTH, _RANK = 1000, 128, 40
_TITLE = "The geometry of handwritten digits"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model, results.json and report.html.")] = Path("demo"),
    steps: Annotated[int, typer.Option(help="Optimizer steps to train for.")] = _STEPS,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn the geometry of handwritten digits, and write a report on it: about a minute on two cores.

    The 1,797 digits of scikit-learn have 64 pixels. Four fifths are learned from, the report is on the rest.

    \b
    Examples:
      carre demo
      carre demo --out digits
    """
    check_positive("--steps", steps)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder; {out} is a file")

    from carre.storage.folder import checked_target  # noqa: PLC0415

    checked_target(out / "model")

    import torch  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    from carre import MetricMatching  # noqa: PLC0415

    # A second thread saves a quarter of the time on products as small as these, and costs a multiple of it where
    # another program wants its core.
    torch.set_num_threads(1)
    start = time.perf_counter()
    digits, classes = load_digits(return_X_y=True)
    train, test, _, labels = train_test_split(digits, classes, test_size=0.2, stratify=classes, random_state=0)
    geometry = MetricMatching(rank=_RANK, max_steps=steps, width=_WIDTH, random_state=0, verbose=not quiet).fit(train)
    geometry.save_pretrained(out / "model")
    results = _measure(geometry, test, labels) | {"n_train": len(train), "n_test": len(test)}
    page = geometry.report(
        test, out / "report.html", labels=labels, image_shape=(8, 8), title=_TITLE, command=COMMAND.get()
    )
    results["seconds"] = time.perf_counter() - start
    _write(out / "results.json", results)
    show(_facts(results, out, page), results, as_json=as_json, quiet=quiet)


def _measure(geometry: MetricMatching, test: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Measure what the demonstration shows, on digits that took no part in the fit."""
    import numpy as np  # noqa: PLC0415

    estimate = geometry.estimate_dimension(test)
    sigma, local = geometry.bandwidth_, estimate.local
    noisy = test + sigma * np.random.default_rng(0).standard_normal(test.shape)
    left = np.square(geometry.denoise(noisy) - test).sum() / np.square(noisy - test).sum()
    return {
        "bandwidth": sigma,
        "bandwidth_range": list(geometry.bandwidth_range_),
        "bandwidth_reason": None if geometry.scale_profile_ is None else geometry.scale_profile_.reason,
        "rank": geometry.rank_,
        "score": geometry.score(test),
        "dimension": estimate.mean,
        "dimension_interval": list(estimate.interval),
        "dimension_by_class": {str(name): float(local[labels == name].mean()) for name in np.unique(labels)},
        "noise_removed": float(1 - left),
        "steps": geometry.history_.steps,
        "fit_seconds": geometry.history_.seconds,
        "device": str(geometry.device_),
    }


def _facts(results: dict[str, Any], out: Path, page: Path) -> dict[str, str]:
    by_class = results["dimension_by_class"]
    fewest, most = min(by_class, key=by_class.get), max(by_class, key=by_class.get)
    low, high = results["dimension_interval"]
    return {
        "digits": f"{results['n_train']:,} learned from, {results['n_test']:,} asked about; 64 coordinates",
        "dimension": f"{results['dimension']:.1f} of 64 on average ({low} to {high} as σ varies by √2)",
        "by class": f"{by_class[fewest]:.1f} for {fewest}, {by_class[most]:.1f} for {most}",
        "scale σ": f"{results['bandwidth']:.3g}, of pixels from 0 to 16",
        "denoising": f"{results['noise_removed']:.0%} of noise of that size is removed",
        "time": f"{results['seconds']:.0f} s, {results['fit_seconds']:.0f} of them for training",
        "the model": str(out / "model"),
        "the report": str(page),
    }


def _write(file: Path, results: dict[str, Any]) -> None:
    from carre.data.writing import written_whole  # noqa: PLC0415

    with written_whole(file) as partial:
        partial.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
