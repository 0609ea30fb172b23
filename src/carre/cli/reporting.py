"""What is to be looked at: ``carre report``, ``carre info`` and ``carre demo``."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import carre
from carre.cli import _inputs as inputs
from carre.cli._inputs import AsJson, Columns, Data, Device, DropMissing, Ids, Model, Quiet, Sigma
from carre.cli._output import COMMAND, counted, naming, progress, show

if TYPE_CHECKING:
    import numpy as np

_SHAPE = "HEIGHT,WIDTH or CHANNELS,HEIGHT,WIDTH"
_PACKAGES = ("torch", "numpy", "scikit-learn", "matplotlib", "pyarrow", "pillow", "faiss-cpu")
_MOST_COLUMNS = 20
# The default rank, 14, would cut the dimension off: digits have many directions, ever weaker, and no gap.
_STEPS, _WIDTH, _RANK = 1000, 128, 40
_TITLE = "The geometry of handwritten digits"
# Radius, perimeter and area. Finer than this scale, in deviations, the shape of a nucleus is a second direction.
_NUCLEI, _NUCLEI_STEPS, _NUCLEI_SIGMA, _NUCLEI_TITLE = (0, 2, 3), 400, 0.15, "The size of the nuclei of 569 tumors"


def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    labels: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of DATA that says the class.")] = None,
    pair: Annotated[
        list[str] | None, typer.Option(metavar="I,J", help="Rows to draw a path between; may be given repeatedly.")
    ] = None,
    ids: Ids = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    image_shape: Annotated[
        str | None, typer.Option(metavar="SHAPE", help=f"Draw the rows of a table as images: {_SHAPE}.")
    ] = None,
    sigma: Sigma = None,
    columns: Columns = None,
    drop_missing: DropMissing = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Write everything that MODEL knows of DATA on one HTML page that needs nothing else.

    Columns of DATA that are no coordinates are shown, too.

    \b
    Examples:
      carre report model points.csv -o report.html
      carre report model plants.csv --labels species --pair 0,99 --title Plants
      carre report mnist digits/ -o digits.html
    """
    from carre.files import check_output  # noqa: PLC0415

    check_output(out, (".html", ".htm"))
    shape = None if image_shape is None else _shape(image_shape)
    geometry = inputs.load_model(model, device)
    if shape is not None and math.prod(shape) != geometry.dim:
        fitting = f"with {geometry.dim} values in all, as DATA has {geometry.dim} columns"
        raise ValueError(f"--image-shape must be {_SHAPE} {fitting}; got {image_shape!r}")
    drop = [name for name in (labels, ids) if name is not None]
    rows = inputs.load_data(geometry, data, columns=columns, drop=drop, drop_missing=drop_missing)
    pairs = [inputs.pair_of("--pair", text, rows, ids) for text in pair or ()]
    labels = "label" if labels is None and rows.is_images and "label" in rows.other else labels
    title = title or f"The geometry of {Path(data.split('::')[0]).stem}"
    if labels is not None and labels not in rows.other:
        known = ", ".join(rows.other) or "there are none beside the coordinates"
        raise ValueError(f"--labels must be a column of {data} that is no coordinate ({known}); got {labels!r}")
    with inputs.folder_for(out), naming({"columns": "the other columns of DATA"}), progress("report") as tell:
        page = carre.write_report(
            geometry,
            rows.values,
            out,
            labels=labels,
            columns=rows.other or None,
            pairs=pairs or None,
            image_shape=shape,
            bandwidth=sigma,
            title=title,
            command=COMMAND.get(),
            progress=tell,
        )
    show({"report": str(page)}, {"report": page, "n": len(rows)}, as_json=as_json)


def _shape(text: str) -> tuple[int, ...]:
    parts = text.lower().replace("x", ",").split(",")
    if len(parts) not in (2, 3) or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--image-shape must be {_SHAPE}, like 8,8; got {text!r}")
    return tuple(int(part) for part in parts)


def info(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Folder of a fitted geometry, or a shipped name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what there is to work with; of a MODEL, what it is and how it came about.

    \b
    Examples:
      carre info
      carre info model
      carre info mnist --json
    """
    facts = _of_machine() if model is None else _of_model(model)
    results = {name.replace(" ", "_").replace("σ", "bandwidth"): value for name, value in facts.items()}
    show({name: _in_words(value) for name, value in facts.items()}, results, as_json=as_json)


def _of_machine() -> dict[str, Any]:
    import torch  # noqa: PLC0415

    from carre.backend import available_memory  # noqa: PLC0415
    from carre.fitting import choose_device  # noqa: PLC0415

    device = choose_device(None, torch.empty(0))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "carre": carre.__version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "device": f"{device.type} ({name})",
        "cores": os.cpu_count(),
        "free memory": f"{available_memory(device) / 2**30:.1f} GiB",
        "shipped models": carre.pretrained_models(),
    }


def _of_model(model: str) -> dict[str, Any]:
    geometry = inputs.load_model(model, "cpu")
    history, profile, shape = geometry.history, geometry.scale_profile, geometry.sample_shape
    low, high = geometry.bandwidth_range
    network = getattr(geometry.field, "model", None)
    return {
        "model": model,
        "data": counted(geometry.dim, "coordinate") if shape is None else f"images of shape {shape}",
        "columns": None if geometry.feature_names is None else list(geometry.feature_names),
        "scaling": geometry.scaling_in_words if shape is None else None,
        "concerns": "; ".join(geometry.concerns) or None,
        "σ": geometry.bandwidth,
        "σ from": low,
        "σ to": high,
        "why that σ": "it was given" if profile is None else profile.reason,
        "noise": str(geometry.noise_estimate),
        "dimension": None if profile is None else round(float(profile.trace[profile.chosen]), 2),
        "rank": geometry.rank,
        "parameters": None if network is None else sum(weights.numel() for weights in network.parameters()),
        "landmarks": len(geometry.landmarks),
        "steps": history.steps,
        "seconds": round(history.seconds, 1),
        "ended": history.stop_reason,
        "outlook": history.outlook,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _in_words(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(map(str, value[:_MOST_COLUMNS])) + (", …" if len(value) > _MOST_COLUMNS else "")
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model, results.json and two reports.")] = Path("demo"),
    steps: Annotated[int, inputs.positive("Optimizer steps to train for.")] = _STEPS,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn the geometry of real data of two kinds, and write a report on each: about a minute on two cores.

    The 1,797 digits of scikit-learn have 64 pixels and no sharp dimension. Four fifths are learned from, report.html is
    on the rest. Radius, perimeter and area of the cell nuclei of 569 tumors are of one dimension, their size:
    nuclei.html.

    \b
    Examples:
      carre demo
      carre demo --out digits
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder; {out} is a file")

    import torch  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    from carre.files import write_whole  # noqa: PLC0415
    from carre.storage.folder import checked_target  # noqa: PLC0415

    checked_target(out / "model")
    # A second thread saves a quarter of the time on products as small as these, and costs a multiple of it where
    # another program wants its core.
    torch.set_num_threads(1)
    start = time.perf_counter()
    digits, classes = load_digits(return_X_y=True)
    train, test, _, labels = train_test_split(digits, classes, test_size=0.2, stratify=classes, random_state=0)
    options: dict[str, Any] = {"rank": _RANK, "max_steps": steps, "width": _WIDTH, "random_state": 0}
    with progress("fit", quiet=quiet) as tell:
        geometry = carre.fit(train, **options, verbose=not quiet, progress=tell)
    carre.save(geometry, out / "model")
    results = _measure(geometry, test, labels) | {"n_train": len(train), "n_test": len(test)}
    page, shown = out / "report.html", {"labels": labels, "image_shape": (8, 8), "title": _TITLE}
    with progress("report", quiet=quiet) as tell:
        carre.write_report(geometry, test, page, **shown, command=COMMAND.get(), progress=tell)
    results["nuclei"] = _nuclei(out / "nuclei.html", min(steps, _NUCLEI_STEPS), quiet=quiet)
    results["seconds"] = time.perf_counter() - start
    write_whole(out / "results.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    show(_facts(results, out, page), results, as_json=as_json, quiet=quiet)


def _nuclei(page: Path, steps: int, *, quiet: bool) -> dict[str, Any]:
    """Learn what three measures of the size of nuclei have in common, and write a report on it."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415

    data = load_breast_cancer()
    table = carre.Table(data.data[:, list(_NUCLEI)], names=tuple(data.feature_names[list(_NUCLEI)].tolist()))
    options: dict[str, Any] = {"scale": "standardize", "bandwidth": _NUCLEI_SIGMA, "max_steps": steps, "width": 64}
    with progress("fit", quiet=quiet) as tell:
        geometry = carre.fit(table, random_state=0, **options, verbose=not quiet, progress=tell)
    kinds = {"tumor": data.target_names[data.target]}
    with progress("report", quiet=quiet) as tell:
        shown: dict[str, Any] = {"columns": kinds, "labels": "tumor", "title": _NUCLEI_TITLE}
        carre.write_report(geometry, table, page, **shown, command=COMMAND.get(), progress=tell)
    dimension, valid = geometry.estimate_dimension(table).value, float(geometry.check(table).valid.mean())
    return {"dimension": dimension, "bandwidth": geometry.bandwidth, "valid": valid, "report": str(page)}


def _measure(geometry: carre.Geometry, test: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Measure what the demonstration shows, on digits that took no part in the fit."""
    import numpy as np  # noqa: PLC0415

    estimate = geometry.estimate_dimension(test)
    sigma, local = geometry.bandwidth, estimate.local
    noisy = test + sigma * np.random.default_rng(0).standard_normal(test.shape)
    left = np.square(geometry.denoise(noisy) - test).sum() / np.square(noisy - test).sum()
    return {
        "bandwidth": sigma,
        "bandwidth_range": list(geometry.bandwidth_range),
        "bandwidth_reason": None if geometry.scale_profile is None else geometry.scale_profile.reason,
        "rank": geometry.rank,
        "score": geometry.score(test),
        "dimension": estimate.mean,
        "dimension_interval": list(estimate.interval),
        "dimension_by_class": {str(name): float(local[labels == name].mean()) for name in np.unique(labels)},
        "noise_removed": float(1 - left),
        "steps": geometry.history.steps,
        "fit_seconds": geometry.history.seconds,
        "device": str(geometry.device),
    }


def _facts(results: dict[str, Any], out: Path, page: Path) -> dict[str, str]:
    by_class = results["dimension_by_class"]
    fewest, most = min(by_class, key=by_class.get), max(by_class, key=by_class.get)
    (low, high), nuclei = results["dimension_interval"], results["nuclei"]
    return {
        "digits": f"{results['n_train']:,} learned from, {results['n_test']:,} asked about; 64 coordinates",
        "dimension": f"{results['dimension']:.1f} of 64 on average ({low} to {high} as σ varies by √2)",
        "by class": f"{by_class[fewest]:.1f} for {fewest}, {by_class[most]:.1f} for {most}",
        "scale σ": f"{results['bandwidth']:.3g}, of pixels from 0 to 16",
        "denoising": f"{results['noise_removed']:.0%} of noise of that size is removed",
        "time": f"{results['seconds']:.0f} s, {results['fit_seconds']:.0f} of them for training",
        "the model": str(out / "model"),
        "the report": str(page),
        "nuclei": f"{nuclei['dimension']} of 3 columns, valid at {nuclei['valid']:.0%} of 569; {nuclei['report']}",
    }
