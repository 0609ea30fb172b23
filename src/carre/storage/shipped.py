"""Geometries that come with the library."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from carre.storage.errors import LoadError
from carre.storage.hub import is_hub_name
from carre.storage.paths import AnyPath, as_path, refuse_file


def pretrained_models() -> list[str]:
    """List the names of the geometries that ship with the library, which `MetricMatching.from_pretrained` takes.

    Example:
        >>> isinstance(pretrained_models(), list)
        True
    """
    place = _location()
    return sorted(path.name for path in place.iterdir() if (path / "config.json").is_file()) if place.is_dir() else []


def find(name_or_folder: AnyPath) -> Path:
    """Return the folder of a geometry: that of a shipped one for its name, else the folder that was given.

    A shipped name means the same in every working directory; write ``./name`` for a folder of that name.

    Raises:
        LoadError: There is neither such a name nor such a folder.

    Example:
        >>> find("mnist").name
        'mnist'
    """
    folder = as_path(name_or_folder, "name_or_folder", "a path or a name")
    # A path object equals no name.
    known = pretrained_models()
    if name_or_folder in known:
        return _location() / str(name_or_folder)
    refuse_file(folder, "name_or_folder")
    if folder.is_dir():
        return folder
    shipped = ", ".join(known) if known else "there are none"
    hint = f". Write {folder.name!r} for the shipped one" if folder.name in known else ""
    if is_hub_name(name_or_folder):
        hint += (
            ". If that is a name on the Hugging Face hub, download it first, and give the folder that "
            f"huggingface_hub.snapshot_download({name_or_folder!r}) returns"
        )
    raise LoadError(
        f"name_or_folder must be the path of an existing folder, or the name of a shipped model ({shipped}); "
        f"got {str(name_or_folder)!r}{hint}"
    )


def _location() -> Path:
    return Path(str(resources.files("carre") / "pretrained"))
