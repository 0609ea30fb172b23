"""README.md of a saved geometry: what it is, for the people who find it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from carre.boundary import ArgumentError
from carre.geometry import Geometry
from carre.training import linear_phase

_PAGE = "card.md.jinja"
_NETWORKS = {"mlp": "residual MLPs", "unet": "U-Nets"}
_MOST_COLUMNS = 50


def model_card(
    geometry: Geometry, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, name: str, more: str | None = None
) -> str:
    """Write a model card in Markdown, with the front matter that model hubs read.

    Args:
        geometry: The geometry.
        config: Its description.
        tensors: Its tensors, as they are stored.
        name: Of the geometry.
        more: Sections to put before the last one. If it begins with a front matter of its own (between lines ``---``),
            that is joined to the one of the card: a license, the datasets.
    """
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415

    front, sections = _split(more or "")
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    template = environment.from_string(Path(__file__).with_name(_PAGE).read_text(encoding="utf-8"))
    facts = _facts(geometry, config, tensors)
    return template.render(geometry=geometry, config=config, name=name, front=front, sections=sections, **facts)


def _split(more: str) -> tuple[list[str], str]:
    """Separate a front matter from the text after it."""
    lines = more.strip().splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        return [], more.strip()
    end = lines.index("---", 1)
    repeated = [key for key in ("library_name", "tags") if any(line.startswith(f"{key}:") for line in lines[1:end])]
    if repeated:
        raise ArgumentError("card", f"leave {' and '.join(repeated)} of the front matter to carre; remove them")
    return lines[1:end], "\n".join(lines[end + 1 :]).strip()


def _facts(geometry: Geometry, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Collect what the page says beside what the geometry and its description say themselves."""
    history, shape, names = geometry.history, geometry.sample_shape, geometry.feature_names
    low, high = geometry.bandwidth_range
    kept = history.evaluations[history.kept] if history.evaluations else None
    losses = {"denoising": "mean_loss", "metric": "metric_loss", "predictive": "predictive_loss"}
    found = {} if kept is None else {name: getattr(kept, loss) for name, loss in losses.items()}
    sizes = "" if shape is None else " × ".join(map(str, shape))
    images = f"images of shape {sizes} (channels, height, width), {geometry.dim} numbers each"
    architecture = config["model"]["architecture"]
    return {
        "data": f"points with {geometry.dim} coordinates" if shape is None else images,
        "columns": names if names is not None and len(names) <= _MOST_COLUMNS else None,
        "scales": f"{low:.4g} to {high:.4g}",
        "profile": geometry.scale_profile,
        "network": config["model"]["class"] if architecture is None else _NETWORKS[architecture["kind"]],
        "n_weights": sum(tensor.numel() for name, tensor in tensors.items() if name.startswith("model.")),
        "n_landmarks": len(tensors["landmarks"]),
        "is_rounded": config["weights"]["dtype"] != "float32",
        "history": history,
        "kept": kept,
        "losses": {name: value for name, value in found.items() if math.isfinite(value)},
        # A kernel is asked about held-out samples only.
        "is_held_out": bool(history.kernel_gain),
        "gains": [] if kept is None else list(zip(history.bandwidths, kept.gain, history.kernel_gain, strict=False)),
        "warning": linear_phase(history),
    }
