"""How the attacks on readers of files ask: good files for the truth, hostile ones for a sentence."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from carre.data import load_samples, load_table
from tests.attack.kit import Ledger, Verdict, isolated

# By which memory may grow until a file is refused.
MOST_BYTES = 200e6


def refuse(
    ledger: Ledger,
    folder: Path,
    cases: Iterable[tuple[str, Any]],
    read: Callable[[Path], Any] = load_samples,
    *,
    of_folder: bool = False,
) -> None:
    """Ask for files that nobody can read: names, and bytes, or functions that write them and need a process each.

    Args:
        ledger: What came of it.
        folder: Where they are made, each in a folder of its own.
        cases: The files.
        read: Reads one.
        of_folder: Whether the folder is what is read.
    """
    for number, (name, content) in enumerate(cases):
        place = folder / f"bad{number}"
        place.mkdir()
        file = place / name
        content(file) if callable(content) else file.write_bytes(content)
        case, given = f"{number} {name}", place if of_folder else file
        if callable(content):
            outcome = isolated(lambda given=given: read(given), names=(str(place),))
            ledger.take(case, outcome, most_bytes=MOST_BYTES, must_refuse=True)
        else:
            ledger.ask(case, lambda given=given: read(given), names=(str(place),), verdict=lambda _: Verdict.WRONG)


def accept(
    ledger: Ledger,
    folder: Path,
    cases: Iterable[tuple[str, bytes, Any]],
    read: Callable[[Path], Any] = load_table,
    *,
    of_folder: bool = False,
) -> None:
    """Ask for files that are odd and good: names, bytes, and the numbers in them."""
    for number, (name, content, truth) in enumerate(cases):
        place = folder / f"good{number}"
        place.mkdir()
        (place / name).write_bytes(content)
        case, given = f"{number} {name}", place if of_folder else place / name
        try:
            found = read(given)
        except ValueError as error:
            ledger.note(case, Verdict.UNCLEAR, f"a good file was refused: {error}")
            continue
        values = found.pixels if hasattr(found, "pixels") else found.values
        is_right = np.shape(truth) == values.shape and np.array_equal(values, truth)
        ledger.note(case, Verdict.RIGHT if is_right else Verdict.WRONG, repr(found))
