"""Text that is not ours, as people may see it."""

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
