"""What every reader says of files: missing, damaged, not what was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

# A path as people write it.
AnyPath = str | PathLike[str]


class DamagedFileError(ValueError):
    """A file is there, but not what it should be: cut off, of another format, or with other contents.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from carre.datasets import read_idx
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "digits").write_bytes(b"something else")
        ...     try:
        ...         read_idx(Path(folder, "digits"))
        ...     except DamagedFileError as error:
        ...         print("damaged:", str(error)[-36:])
        damaged: its first four bytes are 73 6f 6d 65
    """


def existing_path(path: AnyPath, remedy: str) -> Path:
    """Expand ~, and refuse a path where nothing is."""
    expanded = Path(path).expanduser()
    if not expanded.exists():
        raise FileNotFoundError(f"there is no file or folder {expanded}. {remedy}")
    return expanded


def existing_folder(folder: AnyPath, remedy: str) -> Path:
    """Expand ~, and refuse what is not a folder."""
    expanded = existing_path(folder, remedy)
    if not expanded.is_dir():
        raise ValueError(f"folder must be a folder; {expanded} is a file. {remedy}")
    return expanded


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Refuse a value that is not one of the choices."""
    known = tuple(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")


def check_positive_integer(name: str, value: object) -> None:
    """Refuse anything but None and 1, 2, 3, …"""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{name} must be a positive integer, or None; got {value!r}")
