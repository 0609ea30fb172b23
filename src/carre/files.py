"""Files: written whole or not at all, and what is said of those that are missing, damaged or of another kind.

While a file or a folder is written, two of ours stand beside it: what is written, and a lock, which ends with its
process. Their names are always the same: what a killed process leaves is swept by the next one that writes there.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib
import lzma
import math
import os
import pickle
import struct
import sys
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from carre.boundary import ArgumentError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LONGEST_NAME = 200
# What this context is alone with already: who writes into what is theirs does not meet themselves.
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
# A path as people write it.
AnyPath = str | os.PathLike[str]
# What is packed may unpack to so many bytes, and to so many times its own size; a thousand is what gzip can do.
_ALWAYS_UNPACKED, _MOST_TIMES = 2**26, 500
# A damaged file is a program of random instructions: its reader can fail in any of these ways.
_FAILURES: tuple[type[Exception], ...] = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError, SyntaxError),
    *(TypeError, ValueError, csv.Error, lzma.LZMAError, pickle.UnpicklingError, struct.error, tarfile.TarError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
_LONGEST_REASON = 200


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


class BusyError(ArgumentError):
    """Somebody else is writing to the same place."""


class UnwritableError(ArgumentError, OSError):
    """A file or a folder could not be written: no permission, a full disk, a name that is too long."""


class MissingFileError(ArgumentError, FileNotFoundError):
    """A folder is there, but not the files that it should hold."""


def is_path(value: object) -> bool:
    """Say whether something is a path of a file or a folder; an empty one would be the working directory."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    return isinstance(path, str) and bool(path) and "\0" not in path


def existing_path(path: AnyPath, remedy: str, name: str = "path") -> Path:
    """Expand ~, and refuse what is no path, or one where nothing is."""
    if not is_path(path):
        got = "an empty string" if isinstance(path, str) and path == "" else repr(path)
        raise ArgumentError(name, "be a path", got=got, remedy=remedy)
    # By os.path, which says no where pathlib raises: to names that are too long, and homes of nobody.
    expanded = Path(os.path.expanduser(path))
    if not os.path.exists(expanded):
        raise FileNotFoundError(f"there is no file or folder {expanded}. {remedy}")
    if not expanded.is_dir() and not expanded.is_file():
        # Reading a pipe may wait for ever, and a device may never end.
        must = f"be a file or a folder; {expanded} is a pipe or a device"
        raise ArgumentError(name, must, remedy="Make a file of what it holds")
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


def needed(module: str, sentence: str, extra: str) -> Any:
    """Import what only some have installed, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{sentence}; run: pip install 'carre[{extra}]'") from error


def find_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first file of some names that a folder has."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def reason(error: BaseException) -> str:
    """Return the first line of what an error of another library says: the rest is for its developers."""
    said = repr(error) if isinstance(error, LookupError) else str(error)
    return said.partition("\n")[0][:_LONGEST_REASON].rstrip(" :") or type(error).__name__


@contextmanager
def damage(what: str, remedy: str, *more: type[Exception]) -> Iterator[None]:
    """Make a sentence of whatever a reader raises over a damaged file: what cannot be done, why, and the remedy.

    Example:
        >>> try:
        ...     with damage("points.npy cannot be read", "Save it again"):
        ...         raise EOFError("no data left")
        ... except DamagedFileError as error:
        ...     print(error)
        points.npy cannot be read (no data left). Save it again
    """
    try:
        yield
    except (ArgumentError, DamagedFileError):
        raise
    except _FAILURES + more as error:
        raise DamagedFileError(f"{what} ({reason(error)}). {remedy}") from error


def beside(file: Path, what: str) -> Path:
    """Name a file of ours that stands beside another one while that is written; its ending is the same."""
    name = file.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest() + file.suffix
    return file.with_name(f".carre.{what}.{name}")


@contextmanager
def writing(file: Path, name: str = "the output") -> Iterator[None]:
    """Word what the system says when something cannot be written."""
    try:
        yield
    except UnwritableError:
        raise
    except OSError as error:
        got = f"{str(file)!r}, which could not be written: {error.strerror or error}"
        raise UnwritableError(name, "be a place where files can be written", got=got) from error


@contextmanager
def alone(file: Path, name: str = "the output") -> Iterator[None]:
    """Be the only one who writes a file or a folder, for a while; who else wants to is told at once.

    Args:
        file: The file or the folder, of which only the folder around has to exist.
        name: What errors call it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with alone(Path(folder, "model")):
        ...         print([lock.name for lock in Path(folder).iterdir()])
        ...     list(Path(folder).iterdir())
        ['.carre.lock.model']
        []
    """
    place = file.parent.resolve() / file.name
    if place in _held.get():
        yield
        return
    lock = beside(place, "lock")
    with writing(file, name):
        descriptor = _open_locked(lock)
    if descriptor is None:
        must, remedy = "be written by one program at a time", "Wait until that is done, or choose another name"
        raise BusyError(name, must, got=f"{str(file)!r}, which another one is writing", remedy=remedy)
    token = _held.set(_held.get() | {place})
    try:
        yield
    finally:
        _held.reset(token)
        # While it is locked: after that it may be somebody else's.
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _open_locked(lock: Path) -> int | None:
    """Open a file and lock it; None where somebody else has. Where a system knows no locks, nobody has."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if sys.platform == "win32":
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return None
        except OSError:
            return descriptor
        # Whoever had it may have removed it meanwhile: then this is a lock on nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        os.close(descriptor)


def check_output(path: AnyPath, suffixes: Sequence[str]) -> Path:
    """Refuse, before any work, an output that ends in none of the suffixes, or one that would replace a folder."""
    if not is_path(path):
        raise ArgumentError("the output", "be a path", got=repr(path))
    file, given = Path(path).expanduser(), repr(str(path))
    if file.suffix.lower() not in suffixes:
        raise ArgumentError("the output", f"end in {', '.join(suffixes)}", got=given)
    if file.is_dir():
        raise ArgumentError("the output", f"be a file; {given} is a folder", remedy="Name a file in it")
    above = next(folder for folder in file.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ArgumentError("the output", "lie in a folder", got=f"{given}, but {str(above)!r} is a file")
    return file


def check_memory(n_bytes: int, what: str, remedy: str) -> None:
    """Refuse, before it is tried, to hold more than there is memory for.

    Example:
        >>> check_memory(8 * 3, "the points", "Give fewer")
    """
    free = math.inf
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        # What this system can still give, without taking it from others.
        free = next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), free)
    if n_bytes > free:
        got = f"{n_bytes / 1e6:,.0f} MB, where {free / 1e6:,.0f} MB are free"
        raise ArgumentError(what, "fit in memory", got=got, remedy=remedy)


def check_unpacked(file: Path, n_bytes: int, packed: int | None = None, *, is_held: bool = True) -> None:
    """Refuse, before it is done, to unpack what is far larger than its file, or than the memory.

    Args:
        file: The file.
        n_bytes: How many bytes it holds, unpacked.
        packed: In how many bytes of the file; None for all.
        is_held: Whether it is to be held in memory, all at once.
    """
    size = file.stat().st_size if packed is None else packed
    most = _ALWAYS_UNPACKED + _MOST_TIMES * size
    if n_bytes > most:
        would = f"{size / 1e6:,.1f} MB of {file} would unpack to {n_bytes / 1e6:,.0f} MB or more"
        remedy = "If they are meant so, unpack them yourself, or save an npy"
        raise DamagedFileError(f"{would}; at most {most / 1e6:,.0f} MB are read, {_MOST_TIMES} times as much. {remedy}")
    if is_held:
        check_memory(n_bytes, f"what {file} holds", "Give a part of it, or save an npy, which is not read but mapped")


def is_gzip(file: Path) -> bool:
    """Say whether a file is packed by gzip: by its content, as some programs unpack a file and leave the name."""
    with file.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def unpacked_size(file: Path) -> int:
    """Count the bytes that gzip packed, without keeping them, as a file may claim anything; refuse too many."""
    count = 0
    with file.open("rb") as packed, gzip.open(packed) as stream:
        while part := stream.read(2**20):
            count += len(part)
            check_unpacked(file, count, packed.tell())
    return count


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """Give a name beside a file to write to, with the same ending; at the end that takes the file's place, or vanishes.

    What is there is replaced in one stroke, when the new content is on the disk: what is renamed before that can be
    empty after a crash.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with written_whole(Path(folder, "numbers.txt")) as partial:
        ...         _ = partial.write_text("1 2 3")
        ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
        [('numbers.txt', '1 2 3')]
    """
    partial = beside(file, "partial")
    with alone(file), writing(file):
        # A former one may be a link to somewhere else.
        partial.unlink(missing_ok=True)
        try:
            yield partial
            # Opened for writing: some systems refuse to have a file on the disk that is open for reading.
            with partial.open("rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)
    sync_names(file.parent)


def sync_names(folder: Path) -> None:
    """Have the names in a folder on the disk, too; only POSIX systems can open a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file, text in UTF-8, in one stroke, or leave what was there; see `written_whole`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "numbers"), b"123")
        ...     [file.name for file in Path(folder).iterdir()]
        ['numbers']
    """
    with written_whole(file) as partial:
        # Names of files need not be UTF-8.
        partial.write_bytes(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
