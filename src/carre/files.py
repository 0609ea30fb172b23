"""Files: written whole or not at all, and what is said of those that are missing, damaged or of another kind."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from carre.boundary import ArgumentError

# A path as people write it.
AnyPath = str | os.PathLike[str]


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


class MissingFileError(ArgumentError, FileNotFoundError):
    """A folder is there, but not the files that it should hold."""


def is_path(value: object) -> bool:
    """Say whether something is a path of a file or a folder; an empty one would be the working directory."""
    return isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str) and bool(os.fspath(value))


def existing_path(path: AnyPath, remedy: str, name: str = "path") -> Path:
    """Expand ~, and refuse what is no path, or one where nothing is."""
    if not is_path(path):
        got = "an empty string" if path == "" else repr(path)
        raise ArgumentError(name, "be a path", got=got, remedy=remedy)
    expanded = Path(path).expanduser()
    if not expanded.exists():
        raise FileNotFoundError(f"there is no file or folder {expanded}. {remedy}")
    return expanded


def existing_file(path: AnyPath, remedy: str) -> Path:
    """Expand ~, and refuse what is a folder."""
    expanded = existing_path(path, remedy)
    if expanded.is_dir():
        raise ArgumentError("path", f"be a file; {expanded} is a folder", remedy=remedy)
    return expanded


def existing_folder(folder: AnyPath, remedy: str) -> Path:
    """Expand ~, and refuse what is not a folder."""
    expanded = existing_path(folder, remedy, "folder")
    if not expanded.is_dir():
        raise ArgumentError("folder", f"be a folder; {expanded} is a file", remedy=remedy)
    return expanded


def find_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first file of some names that a folder has."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def reason(error: BaseException) -> str:
    """Return the first line of what an error of another library says: the rest is for its developers."""
    return str(error).partition("\n")[0].rstrip(" :") or type(error).__name__


def check_output(path: AnyPath, suffixes: Sequence[str]) -> Path:
    """Refuse, before any work, an output that ends in none of the suffixes, or one that would replace a folder."""
    file, given = Path(path).expanduser(), repr(str(path))
    if file.suffix.lower() not in suffixes:
        raise ArgumentError("the output", f"end in {', '.join(suffixes)}", got=given)
    if file.is_dir():
        raise ArgumentError("the output", f"be a file; {given} is a folder", remedy="Name a file in it")
    above = next(folder for folder in file.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ArgumentError("the output", "lie in a folder", got=f"{given}, but {str(above)!r} is a file")
    return file


@contextmanager
def written_whole(file: Path, *, partial: Path | None = None) -> Iterator[Path]:
    """Give a name beside a file to write to; at the end that takes the file's place, or vanishes.

    What is there is replaced in one stroke, when the new content is on the disk: what is renamed before that can be
    empty after a crash. Without a ``partial`` name, it is one that nobody else writes to, with the same ending.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with written_whole(Path(folder, "numbers.txt")) as partial:
        ...         _ = partial.write_text("1 2 3")
        ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
        [('numbers.txt', '1 2 3')]
    """
    beside = partial or file.with_name(f".{file.stem}.{secrets.token_hex(4)}{file.suffix}")
    try:
        yield beside
        # Opened for writing: some systems refuse to have a file on the disk that is open for reading.
        with beside.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(beside, file)
    finally:
        beside.unlink(missing_ok=True)
    # The new name should be on the disk, too; only POSIX systems can open a folder.
    with suppress(OSError):
        descriptor = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_whole(file: Path, content: str | bytes, *, partial: Path | None = None) -> None:
    """Write a file, text in UTF-8, in one stroke, or leave what was there; see `written_whole`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "numbers"), b"123")
        ...     [file.name for file in Path(folder).iterdir()]
        ['numbers']
    """
    with written_whole(file, partial=partial) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
