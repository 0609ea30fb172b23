"""``carre info``."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from carre.cli import inputs
from carre.cli.options import AsJson
from carre.cli.output import show
from carre.cli.wording import counted

_PACKAGES = ("torch", "numpy", "scikit-learn", "matplotlib", "pyarrow", "pillow", "faiss-cpu")
_MOST_COLUMNS = 20


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

    from carre import __version__, pretrained_models  # noqa: PLC0415
    from carre.fitting import choose_device  # noqa: PLC0415
    from carre.neighbors.memory import available_memory  # noqa: PLC0415

    device = choose_device(None, torch.empty(0))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "carre": __version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "device": f"{device.type} ({name})",
        "cores": os.cpu_count(),
        "free memory": f"{available_memory(device) / 2**30:.1f} GiB",
        "shipped models": pretrained_models(),
    }


def _of_model(model: str) -> dict[str, Any]:
    geometry = inputs.load_model(model, "cpu")
    history, profile = geometry.history_, geometry.scale_profile_
    names = getattr(geometry, "feature_names_in_", None)
    low, high = geometry.bandwidth_range_
    shape = geometry.sample_shape_
    weights = sum(part.numel() for part in geometry.field_.model.parameters())
    return {
        "model": model,
        "data": counted(geometry.n_features_in_, "coordinate") if shape is None else f"images of shape {shape}",
        "columns": None if names is None else [str(name) for name in names],
        "σ": geometry.bandwidth_,
        "σ from": low,
        "σ to": high,
        "why that σ": "it was given" if profile is None else profile.reason,
        "dimension": None if profile is None else round(float(profile.trace[profile.chosen]), 2),
        "rank": geometry.rank_,
        "parameters": weights,
        "landmarks": len(geometry.landmarks_),
        "steps": history.steps,
        "seconds": round(history.seconds, 1),
        "ended": history.stop_reason,
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
