"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_and_sync(path: Path, content: bytes) -> None:
    """Write a file, and have it on the disk: what is renamed before that can be empty after a crash."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_file(path: Path, content: bytes) -> None:
    """Write a file in one stroke, or leave what was there.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_file(Path(folder, "numbers"), b"123")
        ...     [file.name for file in Path(folder).iterdir()]
        ['numbers']
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        write_and_sync(partial, content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
