"""The Hugging Face hub, for classes that ask for it with `huggingface_hub.ModelHubMixin`; nothing else goes online."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from carre.storage.errors import LoadError
from carre.storage.folder import CARD, CONFIG, TENSORS, save
from carre.storage.state import GeometryState

_NAME = re.compile(r"[\w\-]+[\w.\-]*/[\w\-]+[\w.\-]*")
# Of what the mixin hands over; other versions add what is not needed here.
_OPTIONS = ("revision", "cache_dir", "force_download", "local_files_only", "token")


def is_hub_name(value: Any) -> bool:
    """Say whether something could be a name on the hub: one of a user, and one of a geometry.

    Example:
        >>> is_hub_name("somebody/circle"), is_hub_name("circle"), is_hub_name("./circle"), is_hub_name("a/b/c")
        (True, False, False, False)
    """
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def download(name: str, **options: Any) -> Path:
    """Download a geometry from the hub, or find it in the cache; return its folder.

    Args:
        name: User and geometry, as in ``"somebody/circle"``.
        options: Those of ``huggingface_hub.snapshot_download`` that its mixin hands over.

    Raises:
        LoadError: It cannot be had: there is none, or no network and no copy in the cache.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    wanted = {option: options[option] for option in _OPTIONS if option in options}
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, TENSORS, CARD], **wanted))
    except (OSError, ValueError) as error:
        raise not_downloaded(name, error) from error


def not_downloaded(name: str, error: Exception) -> LoadError:
    """Say that a geometry is not to be had, and why."""
    reason = " ".join(str(error).split())
    return LoadError(
        f"{name!r} could not be downloaded from the Hugging Face hub, and is not in its cache: {reason}. Check the "
        "name and the network, or give the path of a folder"
    )


def save_among_others(state: GeometryState, folder: Path) -> None:
    """Put the files of a geometry into a folder that may hold others; each is replaced in one stroke."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        draft = Path(place) / folder.name
        save(state, draft)
        for name in (TENSORS, CARD, CONFIG):
            os.replace(draft / name, folder / name)
