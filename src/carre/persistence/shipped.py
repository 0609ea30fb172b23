"""Geometries that come with the library."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from carre.persistence.errors import LoadError


def pretrained_models() -> list[str]:
    """List the names of the geometries that ship with the library, which `MetricMatching.from_pretrained` takes.

    Example:
        >>> isinstance(pretrained_models(), list)
        True
    """
    place = _location()
    return sorted(path.name for path in place.iterdir() if (path / "config.json").is_file()) if place.is_dir() else []


def find(name_or_folder: str | os.PathLike[str]) -> Path:
    """Return the folder of a geometry: that of a shipped one for its name, else the folder that was given.

    A shipped name means the same in every working directory; write ``./name`` for a folder of that name.

    Example:
        >>> find("./my_geometry").name
        'my_geometry'
    """
    # A path object equals no name.
    known = pretrained_models()
    if name_or_folder in known:
        return _location() / str(name_or_folder)
    if Path(name_or_folder).is_dir() or Path(name_or_folder).name != os.fspath(name_or_folder):
        return Path(name_or_folder)
    shipped = (
        f"the name of a shipped model ({', '.join(known)})" if known else "the name of a shipped model (there are none)"
    )
    raise LoadError(
        f"name_or_folder must be the path of an existing folder, or {shipped}; got {os.fspath(name_or_folder)!r}"
    )


def _location() -> Path:
    return Path(str(resources.files("carre") / "pretrained"))
