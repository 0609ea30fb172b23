"""Where a geometry lies, as people write it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from carre.storage.errors import LoadError

# A path as people write it.
AnyPath = str | os.PathLike[str]


def as_path(value: Any, name: str, kind: str = "a path", *, error: type[ValueError] = LoadError) -> Path:
    """Refuse what is no path, or an empty one: that would be the working directory.

    Args:
        value: What was given.
        name: What the argument is called.
        kind: What it has to be.
        error: What to raise.
    """
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise error(f"{name} must be {kind}; got {value!r}")
    if not os.fspath(value):
        raise error(f"{name} must be {kind}; got an empty string. Say which folder is meant")
    return Path(value)


def refuse_file(path: Path, name: str) -> None:
    """Say of a file that its folder is needed."""
    if path.is_file():
        raise LoadError(
            f"{name} must be the folder that holds config.json; {str(path)!r} is a file. Give a folder, such as "
            f"{str(path.parent)!r}"
        )
