"""A saved geometry on disk: written whole or not at all, and read with suspicion."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from carre.storage.card import model_card
from carre.storage.description import FORMAT, check, describe, understand
from carre.storage.errors import LoadError
from carre.storage.paths import AnyPath, as_path, refuse_file
from carre.storage.state import GeometryState
from carre.storage.tensors import pack
from carre.storage.writing import write_and_sync

CONFIG, TENSORS, CARD = "config.json", "model.safetensors", "README.md"


def save(
    state: GeometryState,
    folder: AnyPath,
    *,
    dtype: str | None = None,
    n_landmarks: int | None = None,
    card: str | None = None,
    kind: str = "MetricMatching",
) -> None:
    """Write a geometry into a folder, which appears when it is complete; one that was saved there before is replaced.

    Args:
        state: The geometry.
        folder: A new or empty folder, or one that holds a saved geometry and nothing else.
        dtype: ``"float16"`` or ``"bfloat16"`` to store weights and landmarks in half the space, rounded to 11 or 8
            binary digits; None stores everything exactly.
        n_landmarks: How many landmarks to store; None for all of them.
        card: Sections in Markdown to add to README.md.
        kind: The class that the geometry belongs to.

    Example:
        >>> import tempfile, torch
        >>> from carre.fields import NeuralField
        >>> from carre.metric import AffineFrame
        >>> from carre.networks import build_model
        >>> field = NeuralField(
        ...     build_model(3, 2, width=8, n_blocks=1, spread=1.0), AffineFrame(torch.zeros(3), 1.0)
        ... )
        >>> state = GeometryState(field, 0.1, (0.01, 1.0), 0.05, True, 2, 3, landmarks=torch.randn(5, 3))
        >>> with tempfile.TemporaryDirectory() as place:
        ...     save(state, place + "/sphere")
        ...     load(place + "/sphere").bandwidth
        0.1
    """
    from safetensors.torch import save as serialize  # noqa: PLC0415

    if card is not None and not isinstance(card, str):
        raise ValueError(f"card must be text in Markdown; got {type(card).__name__}")
    target = checked_target(folder)
    tensors = pack(state, dtype=dtype, n_landmarks=n_landmarks)
    content = serialize(tensors, metadata={"format": "pt"})
    weights = {"file": TENSORS, "dtype": dtype or "float32", **_fingerprint(content)}
    config = describe(state, kind=kind, weights=weights)
    page = model_card(state, config, tensors, name=target.name, more=card)
    text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with _replacing(target) as draft:
        write_and_sync(draft / TENSORS, content)
        write_and_sync(draft / CONFIG, text.encode())
        write_and_sync(draft / CARD, page.encode())


def load(
    folder: AnyPath,
    *,
    network: nn.Module | None = None,
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
    verify: bool = True,
    kind: str = "MetricMatching",
) -> GeometryState:
    """Read a geometry from a folder, on the CPU. Nothing in the folder is executed.

    Args:
        folder: What `save` wrote.
        network: The module that the geometry was fitted with, if it was one of the user's own; it is copied.
        denoiser: The denoiser that the geometry was fitted around, if there was one.
        verify: Whether to check that the tensors are those that were saved, by their SHA-256.
        kind: The class that is expected.

    Raises:
        LoadError: The folder or a file of it is missing, cut, changed, of another program or from a later version; or
            the weights do not fit the network.

    Example:
        >>> from carre.storage import find
        >>> load(find("mnist")).sample_shape
        (1, 28, 28)
    """
    place = as_path(folder, "folder")
    refuse_file(place, "folder")
    if not place.is_dir():
        raise LoadError(f"folder must exist; there is no folder {str(folder)!r}")
    config = _read_config(place)
    check(config, kind=kind)
    return understand(config, _read_tensors(place, config["weights"], verify), network=network, denoiser=denoiser)


def _read(place: Path, name: str) -> bytes:
    try:
        return (place / name).read_bytes()
    except FileNotFoundError as error:
        raise LoadError(
            f"{str(place)!r} must hold a saved geometry; it has no {name}. Copy the whole folder"
        ) from error


def _read_config(place: Path) -> Any:
    try:
        return json.loads(_read(place, CONFIG))
    except ValueError as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"config.json must be JSON; it is damaged or something else ({error})") from error


def _read_tensors(place: Path, expected: Any, verify: bool) -> dict[str, Tensor]:
    """Read the tensors from exactly those bytes that were checked."""
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load as parse  # noqa: PLC0415

    content = _read(place, TENSORS)
    found = _fingerprint(content, digest=verify)
    size = expected.get("bytes") if isinstance(expected, Mapping) else None
    if not isinstance(size, int) or "sha256" not in expected:
        raise LoadError("config.json must have 'bytes' and 'sha256' in 'weights'; it was cut or edited. Copy it again")
    if found["bytes"] < size:
        pointer = (
            " It is a pointer of Git LFS: run `git lfs pull`" if content.startswith(b"version https://git-lfs") else ""
        )
        raise LoadError(f"{TENSORS} is truncated: {found['bytes']} of {size} bytes.{pointer or ' Copy it again'}")
    if verify and found != {"bytes": size, "sha256": expected["sha256"]}:
        raise LoadError(
            f"{TENSORS} is not the file that was saved: its SHA-256 is {found['sha256']}, config.json says "
            f"{expected['sha256']}. Copy both files again, or pass verify=False if you changed it yourself"
        )
    try:
        # Copies lie in memory as torch likes it: how sums are rounded can depend on that.
        return {name: tensor.clone() for name, tensor in parse(content).items()}
    except SafetensorError as error:
        raise LoadError(f"{TENSORS} must be a file of safetensors; it is damaged ({error}). Copy it again") from error


def _fingerprint(content: bytes, *, digest: bool = True) -> dict[str, Any]:
    return {"bytes": len(content), **({"sha256": hashlib.sha256(content).hexdigest()} if digest else {})}


def checked_target(folder: AnyPath) -> Path:
    """Refuse to write where something else would be lost."""
    target = as_path(folder, "folder", error=ValueError).resolve()
    if target == Path.cwd():
        raise ValueError("folder must not be the working directory; name a folder in it")
    if not target.exists():
        above = next(path for path in target.parents if path.exists())
        if not above.is_dir():
            raise ValueError(
                f"folder must lie in a folder; got {str(folder)!r}, but {str(above)!r} is a file. Choose another name"
            )
        return target
    if not target.is_dir():
        raise ValueError(f"folder must be a folder; {str(folder)!r} is a file. Choose another name")
    found = {path.name for path in target.iterdir()}
    if found and not _is_saved_geometry(target):
        raise ValueError(f"folder must be new, empty or a saved geometry; {str(folder)!r} holds other files")
    others = sorted(found - {CONFIG, TENSORS, CARD})
    if others:
        raise ValueError(
            f"folder must hold nothing but a saved geometry, since it is replaced as a whole; {str(folder)!r} also has "
            f"{', '.join(others[:3])}. Move that elsewhere, or save into a new folder"
        )
    return target


def _is_saved_geometry(place: Path) -> bool:
    try:
        config = _read_config(place)
    except LoadError:
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give a new folder beside the target to write into; at the end it takes the target's place, or vanishes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        yield draft
        _put_in_place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put_in_place(draft: Path, target: Path) -> None:
    """Rename twice: no system replaces a folder in one stroke. Between the two, the former one waits beside it."""
    former = draft.with_name(f"{draft.name}.former")
    if not target.exists():
        draft.rename(target)
        return
    target.rename(former)
    try:
        draft.rename(target)
    except BaseException:
        former.rename(target)
        raise
    shutil.rmtree(former, ignore_errors=True)
