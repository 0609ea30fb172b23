"""Text that is not ours, as people may see it, and times in words."""

from __future__ import annotations

import json
import re

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
