"""A saved geometry on disk, with a page for people: written whole or not at all, and read with suspicion."""

from __future__ import annotations

import ctypes
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from carre.boundary import ArgumentError
from carre.files import AnyPath, alone, beside, is_path, reason, sync_names, write_whole, writing
from carre.geometry import Geometry
from carre.storage._description import FORMAT, check, describe, understand
from carre.storage.tensors import TENSORS, LoadError, TensorFile, fingerprint, pack, reading, size_of
from carre.training import linear_phase

CONFIG, CARD, _TEMPLATE = "config.json", "README.md", "card.md.jinja"
_NETWORKS = {"mlp": "residual MLPs", "unet": "U-Nets"}
_MOST_COLUMNS = 50
# A description is read as a whole: of more bytes, or of more values, it is none.
_LARGEST_CONFIG, _MOST_GROUPS, _MOST_VALUES, _MOST_DIGITS = 2**24, 2**16, 2**20, 15


def save(
    geometry: Geometry,
    folder: AnyPath,
    *,
    dtype: str | None = None,
    n_landmarks: int | None = None,
    card: str | None = None,
) -> None:
    """Save a geometry in a folder: config.json, model.safetensors and README.md.

    The folder appears when it is complete; a geometry that was saved there before is replaced then. It contains
    landmarks, that is some of the samples.

    Args:
        geometry: The geometry, of a learned field.
        folder: A new or empty folder, or one that holds a saved geometry and nothing else.
        dtype: ``"float16"`` or ``"bfloat16"`` to store the weights and the landmarks in half the space, rounded to 11
            or 8 binary digits. None stores everything exactly.
        n_landmarks: How many landmarks to store; None for all.
        card: Sections in Markdown to add to README.md; it may begin with a front matter (license, datasets).

    Example:
        >>> import carre, tempfile
        >>> import numpy as np
        >>> circle = np.stack([np.cos(np.arange(100)), np.sin(np.arange(100))], axis=1)
        >>> geometry = carre.fit(circle, max_steps=20, width=16, bandwidth=0.1, random_state=0)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     carre.save(geometry, place + "/circle")
        ...     again = carre.load(place + "/circle", device=geometry.device)
        >>> bool((again.denoise(circle) == geometry.denoise(circle)).all())
        True
    """
    from safetensors.torch import save as serialize  # noqa: PLC0415

    if card is not None and not isinstance(card, str):
        raise ArgumentError("card", "be text in Markdown", got=type(card).__name__)
    target = checked_target(folder)
    tensors = pack(geometry, dtype=dtype, n_landmarks=n_landmarks)
    content = serialize(tensors, metadata={"format": "pt"})
    weights = {"file": TENSORS, "dtype": dtype or "float32", **fingerprint(content)}
    config = describe(geometry, weights=weights)
    page = model_card(geometry, config, tensors, name=target.name, more=card)
    text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with _replacing(target) as draft:
        write_whole(draft / TENSORS, content)
        write_whole(draft / CONFIG, text)
        write_whole(draft / CARD, page)


def read(
    folder: Path,
    *,
    device: torch.device,
    network: nn.Module | None = None,
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
    verify: bool = True,
) -> Geometry:
    """Read a geometry from a folder that exists. Nothing in it is executed; see `carre.load` for the arguments."""
    config = _read_config(folder)
    check(config)
    stored = TensorFile(folder / TENSORS, config["weights"], verify=verify)
    return understand(config, stored, device=device, network=network, denoiser=denoiser)


def as_path(value: Any, name: str, kind: str = "a path") -> Path:
    """Expand ~; refuse what is no path of the kind, or an empty one: that would be the working directory."""
    if not is_path(value):
        is_empty = isinstance(value, str) and value == ""
        got, remedy = ("an empty string", "Say which folder is meant") if is_empty else (repr(value), "")
        raise ArgumentError(name, f"be {kind}", got=got, remedy=remedy)
    return Path(value).expanduser()


def checked_target(folder: AnyPath) -> Path:
    """Refuse to write where something else would be lost."""
    target, given = as_path(folder, "folder").resolve(), repr(str(folder))
    if target == Path.cwd():
        raise ArgumentError("folder", "not be the working directory; name a folder in it")
    if not target.exists():
        above = next(path for path in target.parents if path.exists())
        if not above.is_dir():
            got = f"{given}, but {str(above)!r} is a file"
            raise ArgumentError("folder", "lie in a folder", got=got, remedy="Choose another name")
        return target
    if not target.is_dir():
        raise ArgumentError("folder", f"be a folder; {given} is a file", remedy="Choose another name")
    found, config = {path.name for path in target.iterdir()}, None
    with suppress(LoadError):
        config = _read_config(target)
    if found and not (isinstance(config, dict) and config.get("format") == FORMAT):
        raise ArgumentError("folder", f"be new, empty or a saved geometry; {given} holds other files")
    others = ", ".join(sorted(found - {CONFIG, TENSORS, CARD})[:3])
    if others:
        must = f"hold nothing but a saved geometry, since it is replaced as a whole; {given} also has {others}"
        raise ArgumentError("folder", must, remedy="Move that elsewhere, or save into a new folder")
    return target


def _read_config(place: Path) -> Any:
    """Read what says what a geometry is, not without knowing how much it is."""
    file = place / CONFIG
    size = size_of(file)
    if size > _LARGEST_CONFIG:
        raise LoadError(f"{CONFIG} must have at most {_LARGEST_CONFIG:,} bytes; it has {size:,}. Copy it again")
    with reading(file), file.open("rb") as stream:
        content = stream.read(_LARGEST_CONFIG)
    for brackets, most in ((b"[{", _MOST_GROUPS), (b",", _MOST_VALUES)):
        if sum(content.count(bytes((letter,))) for letter in brackets) > most:
            raise LoadError(f"{CONFIG} must describe a geometry; it holds more than {most:,} values. Copy it again")
    try:
        return json.loads(content, parse_constant=_refuse_constant, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{CONFIG} must be JSON; it is damaged or something else ({reason(error)})") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


def _whole(digits: str) -> int | float:
    """Read a whole number that a floating one can hold; a longer one is a floating one."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give a new folder beside the target to write into; at the end it takes the target's place, or vanishes."""
    draft, former = beside(target, "partial"), beside(target, "former")
    with writing(target, "folder"):
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(target, "folder"):
            # What a killed process has left, maybe between two renamings.
            if former.exists() and not target.exists():
                former.rename(target)
            shutil.rmtree(former, ignore_errors=True)
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            try:
                yield draft
                _put_in_place(draft, target, former)
                sync_names(target.parent)
            finally:
                shutil.rmtree(draft, ignore_errors=True)


def _put_in_place(draft: Path, target: Path, former: Path) -> None:
    """Rename in one stroke where the system can do that, else twice: then the former one waits beside it."""
    if not target.exists():
        draft.rename(target)
    elif not _exchange(draft, target):
        target.rename(former)
        try:
            draft.rename(target)
        except BaseException:
            former.rename(target)
            raise
        shutil.rmtree(former, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change names in one stroke; False where the system, or the disk, has no such thing."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    here, exchange = -100, 2
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def model_card(
    geometry: Geometry, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, name: str, more: str | None = None
) -> str:
    """Write a model card in Markdown, with the front matter that model hubs read.

    More sections stand before the last one. If they begin with a front matter of their own (between lines ``---``),
    that is joined to the one of the card: a license, the datasets.
    """
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415

    front, sections = _split(more or "")
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    template = environment.from_string(Path(__file__).with_name(_TEMPLATE).read_text(encoding="utf-8"))
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
