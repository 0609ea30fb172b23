"""README.md of a saved geometry: what it is, for the people who find it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from carre.storage.state import GeometryState
from carre.training import linear_phase

_TAGS = ("riemannian-geometry", "manifold-learning", "intrinsic-dimension", "metric-matching")
_NETWORKS = {"mlp": "residual MLPs", "unet": "U-Nets"}
_MOST_COLUMNS = 50


def model_card(
    state: GeometryState,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    name: str,
    more: str | None = None,
) -> str:
    """Write a model card in Markdown, with the front matter that model hubs read.

    Args:
        state: The geometry.
        config: Its description.
        tensors: Its tensors, as they are stored.
        name: Of the geometry.
        more: Sections to put before the last one. If it begins with a front matter of its own (between lines ``---``),
            that is joined to the one of the card: a license, the datasets.
    """
    front, sections = _split(more or "")
    head = ["---", "library_name: carre", "tags:", *(f"- {tag}" for tag in _TAGS), *front, "---"]
    parts = ["\n".join(head), f"# {name}", _introduction(state), _use(state, config, name)]
    parts += [_facts(state, config, tensors), _training(state, config), sections, _limits(state, config, tensors)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _split(more: str) -> tuple[list[str], str]:
    """Separate a front matter from the text after it."""
    lines = more.strip().splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        return [], more.strip()
    end = lines.index("---", 1)
    repeated = [key for key in ("library_name", "tags") if any(line.startswith(f"{key}:") for line in lines[1:end])]
    if repeated:
        raise ValueError(f"card must leave {' and '.join(repeated)} of the front matter to carre; remove them")
    return lines[1:end], "\n".join(lines[end + 1 :]).strip()


def _shape(state: GeometryState) -> str:
    if state.sample_shape is not None:
        sizes = " × ".join(map(str, state.sample_shape))
        return f"images of shape {sizes} (channels, height, width), {state.field.dim} numbers each"
    return f"points with {state.n_features_in} coordinates"


def _introduction(state: GeometryState) -> str:
    kind = "centered" if state.is_centered else "uncentered"
    pull = ", and a denoiser that pulls points back onto the data" if state.is_centered else ""
    return (
        f"The Riemannian geometry of a dataset of {_shape(state)}, learned from samples by "
        f"Carré (`carre`): a network that gives, at any point and any scale σ, the {kind} "
        f"metric G = FᵀF whose leading eigenvectors are the directions in which the data can move{pull}."
    )


def _use(state: GeometryState, config: Mapping[str, Any], name: str) -> str:
    needed, columns = config["model"]["needs"], config["fitted"]["feature_names_in"]
    argument = "" if needed is None else f", {needed}=..."
    code = [
        "from carre import MetricMatching",
        "",
        f'geometry = MetricMatching.from_pretrained("path/to/{name}"{argument})',
        "geometry.dimension(X)  # local intrinsic dimension",
        "geometry.metric(X)  # G at each point",
    ]
    code += ["geometry.denoise(X)  # the pull back onto the data"] if state.is_centered else []
    texts = ["## Use", "```python\n" + "\n".join(code) + "\n```"]
    if needed is not None:
        texts.append(f"It was fitted with a {needed} of the user's own, whose code is not in this folder.")
    if columns is not None and len(columns) <= _MOST_COLUMNS:
        texts.append(f"Columns, in this order: {', '.join(columns)}.")
    if state.normalization is not None:
        mean, deviation = (config["fitted"]["normalization"][key] for key in ("mean", "deviation"))
        how = f"mean {mean}, deviation {deviation:g} (`geometry.normalization_.encode`)"
        texts.append(f"Pixels in [0, 1] have to be normalized first: {how}.")
    return "\n\n".join(texts)


def _facts(state: GeometryState, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    low, high = state.bandwidth_range
    n_weights = sum(tensor.numel() for name, tensor in tensors.items() if name.startswith("model."))
    architecture, precision = config["model"]["architecture"], config["weights"]["dtype"]
    network = config["model"]["class"] if architecture is None else _NETWORKS[architecture["kind"]]
    rounded = "" if precision == "float32" else " (weights and landmarks are rounded)"
    rows = [
        ("data", _shape(state)),
        ("default scale σ", f"{state.bandwidth:.4g}, in the units of the data"),
        ("trained scales", f"{low:.4g} to {high:.4g}; samples have neighbors from {state.supported_from:.4g} on"),
        ("rank of G", str(state.rank)),
    ]
    profile = state.scale_profile
    if profile is not None:
        dimension = f"{profile.trace[profile.chosen]:.1f} (mean trace of G at samples)"
        rows += [("dimension at the default scale", dimension), ("why that scale", profile.reason)]
    rows += [("network", f"{network}, {n_weights:,} numbers"), ("precision", f"{precision}{rounded}")]
    return "## What it is\n\n" + _table(("quantity", "value"), rows)


def _training(state: GeometryState, config: Mapping[str, Any]) -> str:
    history, versions = state.history, config["versions"]
    lines = [
        "## Training",
        f"{history.steps:,} steps in {history.seconds:,.0f} seconds, {history.stop_reason or 'for an unknown reason'}. "
        f"Written on {config['created'][:10]} by carre {versions['carre']} with torch {versions['torch']}, numpy "
        f"{versions['numpy']} and Python {versions['python']}.",
    ]
    if not history.evaluations:
        return "\n\n".join(lines)
    kept = history.evaluations[history.kept]
    losses = {"denoising": kept.mean_loss, "metric": kept.metric_loss, "predictive": kept.predictive_loss}
    rows = [(name, f"{value:.4f}") for name, value in losses.items() if math.isfinite(value)]
    # A kernel is asked about held-out samples only.
    where = "on held-out samples" if history.kernel_gain else "on the training samples (nothing was held out)"
    lines.append(f"The weights of step {kept.step:,} were kept. Losses {where}, the predictive one in nats per sample:")
    lines.append(_table(("loss", "value"), rows))
    if kept.gain and history.kernel_gain:
        figures = zip(history.bandwidths, kept.gain, history.kernel_gain, strict=False)
        lines.append(
            "By how many dimensions the denoiser beats the best linear one there, and by how many a kernel does:"
        )
        lines.append(_table(("σ", "network", "kernel"), [(f"{s:.4g}", f"{g:.2f}", f"{k:.2f}") for s, g, k in figures]))
    return "\n\n".join(lines)


def _limits(state: GeometryState, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    (low, high), precision = state.bandwidth_range, config["weights"]["dtype"]
    limits = [
        f"It knows the data it was fitted to, in their units, at scales from {low:.4g} to {high:.4g}. Elsewhere it "
        "extrapolates; `geometry.check(X)` says where it can be relied on.",
        f"The folder contains {len(tensors['landmarks'])} of the samples themselves (`landmarks`), between which paths "
        "find their way. Do not publish it if the samples must not be published.",
    ]
    if precision != "float32":
        limits.append(f"Weights are rounded to {precision}: answers differ a little from those of the original.")
    warning = linear_phase(state.history)
    if warning is not None:
        limits.append(f"{warning[0].upper()}{warning[1:]}.")
    return "## Limits\n\n" + "\n".join(f"- {limit}" for limit in limits)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))
