"""The sentences of the library in the words of the command line: options instead of arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_OPTIONS = {
    **dict.fromkeys(("path", "X", "samples", "points"), "DATA"),
    "key": "the key of DATA",
    "folder": "--out",
    "columns": "--columns",
    "drop": "--drop",
    "size": "--size",
    "device": "--device",
    "labels": "--labels",
    "pairs": "--pair",
    "image_shape": "--image-shape",
    "bandwidth": "--sigma",
    "rank": "--rank",
    "sizes": "--sizes",
    "engines": "--engines",
    "dimension": "--dimension",
    "ambient_dim": "--ambient",
    "unevenness": "--uneven",
}
_PHRASES = {
    r"raise max_steps or max_seconds": "give more --steps or --budget",
    r"a wider bandwidth_range": "wider --sigma-min and --sigma-max",
    r"\bbandwidth_range\b": "--sigma-min and --sigma-max",
    r"\bambient_dim\b": "--ambient",
    r"\bRaise rank\b": "Raise --rank",
    r"Lower learning_rate \(now [^)]*\), raise the smallest bandwidth,": (
        "Give --sigma nearer to the data's own scale, or leave it out,"
    ),
    r"Give key=…, or write": "Write",
    r"\(drop\)": "(--drop)",
    r"\(height, width\) or \(channels, height, width\)": "HEIGHT,WIDTH or CHANNELS,HEIGHT,WIDTH",
    r"\bas X has\b": "as DATA has",
    r"\bor None\b": "or left out",
}


def in_options(sentence: str) -> str:
    """Name options where a sentence of the library names arguments.

    Example:
        >>> in_options("columns and drop must not be given both")
        '--columns and --drop must not be given both'
        >>> in_options("X has only 5 samples")
        'DATA has only 5 samples'
    """
    sentence = _renamed(sentence, _OPTIONS)
    for phrase, replacement in _PHRASES.items():
        sentence = re.sub(phrase, replacement, sentence)
    return sentence


@contextmanager
def naming(phrases: Mapping[str, str] | None = None, **names: str) -> Iterator[None]:
    """Let errors of the library name what its arguments stand for here, where that is not what they mostly do.

    Args:
        phrases: What else to replace.
        names: What to call arguments at the beginning of sentences.
    """
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        if len(error.args) == 1:
            sentence = _renamed(str(error), names)
            for phrase, replacement in (phrases or {}).items():
                sentence = sentence.replace(phrase, replacement)
            error.args = (sentence,)
        raise


def counted(count: int, thing: str) -> str:
    """Say how many there are of something.

    Example:
        >>> counted(1, "coordinate"), counted(1200, "coordinate")
        ('1 coordinate', '1,200 coordinates')
    """
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def _renamed(sentence: str, names: Mapping[str, str]) -> str:
    """Rename the one or two arguments that a sentence begins with."""
    leading = re.match(r"(\w+)(?: and (\w+))?(?= (?:must|has|lies)\b)", sentence)
    if leading is None:
        return sentence
    called = " and ".join(names.get(name, name) for name in leading.groups() if name)
    return called + sentence[leading.end() :]
