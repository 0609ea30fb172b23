"""What every reader says of files: missing, damaged, not what was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path

# A path as people write it.
AnyPath = str | PathLike[str]


class DamagedFileError(ValueError):
    """A file is there, but not what it should be: cut off, of another format, or with other contents.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from carre.data import read_idx
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "digits").write_bytes(b"something else")
        ...     try:
        ...         read_idx(Path(folder, "digits"))
        ...     except DamagedFileError as error:
        ...         print("damaged:", str(error)[-36:])
        damaged: its first four bytes are 73 6f 6d 65
    """


def existing_path(path: AnyPath, remedy: str, name: str = "path") -> Path:
    """Expand ~, and refuse what is no path, or one where nothing is."""
    if not isinstance(path, (str, PathLike)) or not isinstance(fspath(path), str):
        raise ValueError(f"{name} must be a path; got {path!r}. {remedy}")
    if not fspath(path):
        raise ValueError(f"{name} must be a path; got an empty string. {remedy}")
    expanded = Path(path).expanduser()
    if not expanded.exists():
        raise FileNotFoundError(f"there is no file or folder {expanded}. {remedy}")
    return expanded


def existing_file(path: AnyPath, remedy: str) -> Path:
    """Expand ~, and refuse what is a folder."""
    expanded = existing_path(path, remedy)
    if expanded.is_dir():
        raise ValueError(f"path must be a file; {expanded} is a folder. {remedy}")
    return expanded


def existing_folder(folder: AnyPath, remedy: str) -> Path:
    """Expand ~, and refuse what is not a folder."""
    expanded = existing_path(folder, remedy, "folder")
    if not expanded.is_dir():
        raise ValueError(f"folder must be a folder; {expanded} is a file. {remedy}")
    return expanded


def reason(error: BaseException) -> str:
    """Return the first line of what an error of another library says: the rest is for its developers."""
    return str(error).partition("\n")[0].rstrip(" :") or type(error).__name__


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Refuse a value that is not one of the choices."""
    known = tuple(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")


def check_positive_integer(name: str, value: object) -> None:
    """Refuse anything but None and 1, 2, 3, …"""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{name} must be a positive integer, or None; got {value!r}")
