"""Words for people: text that is not ours as they may see it, times, and where in a table something is."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_MOST_ROWS, _MOST_COMPARED = 5, 10_000
# Control characters but the tab and the new line, and those that change the direction of writing or show nothing.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Write out the characters of a text that nobody sees, or that change how others are shown, as JSON does.

    Names of columns and files are not ours: on a terminal they could move the cursor, on a page turn lines around.

    Example:
        >>> print(visible("a\\x1b[2Jb\\u202ec"))
        a\\u001b[2Jb\\u202ec
    """
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def in_words(seconds: float) -> str:
    """Say how long something takes.

    Example:
        >>> in_words(0.4), in_words(42.4), in_words(130), in_words(7500)
        ('a second', '42 s', '2 min', '2.1 h')
    """
    minutes = seconds / 60
    if seconds < 1:
        return "a second"
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def span(least: float, most: float) -> str:
    """Say between which times something will take, in two figures, and in one unit where that can be.

    Example:
        >>> span(18.7, 91.2), span(26.0, 26.3), span(55, 310), span(100, 420), span(0.2, 0.4)
        ('19 to 91 s', '26 s', '55 s to 5 min', '2 to 7 min', 'a second')
    """
    first, last = in_words(least), in_words(most)
    if first == last:
        return first
    return f"{first.split()[0]} to {last}" if first.split()[1] == last.split()[1] else f"{first} to {last}"


def infinite_cells(values: np.ndarray, columns: Any = None, index: Any = None) -> str:
    """Say how many cells of a table are NaN or infinite, in which rows, and which is the first.

    Args:
        values: The numbers, shape (n, D), not all of them finite.
        columns: The names of the columns; None where they have numbers only.
        index: The labels of the rows, in the same way.

    Example:
        >>> import numpy as np
        >>> infinite_cells(np.array([[0.0, 1.0], [np.inf, np.nan]]), ["x", "y"])
        "2 cells that are not, in 1 row (1, from 0): the first is infinite, in column 'x'"
    """
    import numpy as np  # noqa: PLC0415  (the command's help does not wait for it)

    bad = ~np.isfinite(values)
    rows, count = np.flatnonzero(bad.any(1)), int(bad.sum())
    column = int(bad[rows[0]].argmax())
    what = "infinite" if np.isinf(values[rows[0], column]) else "NaN" if index is None else "missing"
    where = f", in column {column if columns is None else repr(columns[column])}" if values.shape[1] > 1 else ""
    named = [str(i) if index is None else repr(index[int(i)]) for i in rows[:_MOST_ROWS]]
    named += ["…"] * (len(rows) > _MOST_ROWS) + ["from 0"] * (index is None)
    cells = "1 cell that is not" if count == 1 else f"{count:,} cells that are not"
    return f"{cells}, in {len(rows):,} row{'s' * (len(rows) > 1)} ({', '.join(named)}): the first is {what}{where}"


def like(name: str, known: Sequence[str], most: int = 1) -> list[str]:
    """Find names that are much like another one, in whatever case.

    Example:
        >>> like("Anne", ["ann", "bob"])
        ['ann']
    """
    spelled = {one.lower(): one for one in known[:_MOST_COMPARED]}
    return [spelled[one] for one in difflib.get_close_matches(name.lower(), spelled, most)]
