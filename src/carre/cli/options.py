"""The arguments that commands share, and how they are read."""

from __future__ import annotations

import re
from typing import Annotated

import typer

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of a fitted geometry, or a shipped name such as mnist.")
]
Data = Annotated[
    str, typer.Argument(metavar="DATA", help="Table (csv, tsv, txt, parquet, npy, npz), or a folder of images.")
]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns that are coordinates, by name or number from 0, separated by commas."),
]
Sigma = Annotated[float | None, typer.Option(help="Scale σ, in the units of the data; that of the model by default.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print neither progress nor a summary.")]

_BUDGET = re.compile(r"(?:(?P<hours>[\d.]+)h)?(?:(?P<minutes>[\d.]+)m(?:in)?)?(?:(?P<seconds>[\d.]+)s?)?")
_SECONDS = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def seconds_of(budget: str | None) -> float | None:
    """Read a span of time: 90s, 2m, 1h30m, 0.5h, or plain seconds.

    Example:
        >>> seconds_of("1h30m"), seconds_of("0.5h"), seconds_of("90")
        (5400.0, 1800.0, 90.0)
    """
    if budget is None:
        return None
    found = _BUDGET.fullmatch(budget.replace(" ", "").lower())
    try:
        total = (
            sum(_SECONDS[unit] * float(count) for unit, count in found.groupdict().items() if count) if found else 0.0
        )
    except ValueError:
        total = 0.0
    if total <= 0:
        raise ValueError(f"--budget must be a span of time like 90s, 2m, 1h30m or 0.5h; got {budget!r}")
    return total


def listed(text: str | None) -> list[str] | None:
    """Read names or numbers that are separated by commas.

    Example:
        >>> listed("height, weight")
        ['height', 'weight']
    """
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def check_positive(option: str, value: int | float | None) -> None:
    """Refuse a number that is not above zero."""
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{option} must be a positive number; got {value:g}")


def pair_of(option: str, text: str, n_rows: int) -> tuple[int, int]:
    """Read a pair of row numbers, like 3,17."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"{option} must be two row numbers like 3,17; got {text!r}")
    first, second = (int(part) for part in parts)
    if not (first < n_rows and second < n_rows):
        raise ValueError(f"{option} must be row numbers from 0 to {n_rows - 1}; got {text!r}")
    return first, second
