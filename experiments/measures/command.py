"""What the commands of experiments share: options in the words of options, and files that are there whole."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch

Number = TypeVar("Number", int, float)


@contextmanager
def naming(phrases: Mapping[str, str] | None = None, **names: str) -> Iterator[None]:
    """Let errors of the library name options where their sentences begin with arguments.

    Args:
        phrases: What else to replace.
        names: What to call arguments.

    Example:
        >>> with naming(n_images="--images"):
        ...     raise ValueError("n_images must be at least 2; got 1")
        Traceback (most recent call last):
        ValueError: --images must be at least 2; got 1
    """
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        if len(error.args) == 1:
            sentence = str(error)
            leading = re.match(r"(\w+)(?= (?:must|has|lies)\b)", sentence)
            if leading is not None:
                sentence = names.get(leading[0], leading[0]) + sentence[leading.end() :]
            for phrase, replacement in (phrases or {}).items():
                sentence = sentence.replace(phrase, replacement)
            error.args = (sentence,)
        raise


def numbers(option: str, text: str | None, kind: Callable[[str], Number]) -> tuple[Number, ...] | None:
    """Read numbers that are separated by commas.

    Example:
        >>> numbers("--sizes", "1000,8_000", int)
        (1000, 8000)
    """
    try:
        return None if text is None else tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        called = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} must be {called} separated by commas; got {text!r}") from error


def checked_device(asked: str | torch.device) -> torch.device:
    """Refuse a device that there is not, before anything long is begun."""
    try:
        device = torch.device(asked)
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"device must be one of torch's that there is here, like 'cpu'; got {asked!r}") from error
    return device


def check_folder(out: Path) -> None:
    """Refuse a file where a folder is to be."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder; {out} is a file")


def write(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
