"""One HTML file that holds everything: text, numbers and pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from carre.report.inputs import as_destination
from carre.report.markup import document, facts, paragraphs, picture, table, write_whole
from carre.report.panels import figure_of

_DPI = 150


@dataclass(frozen=True)
class Fact:
    """One line of the summary.

    Attributes:
        name: What was measured.
        value: The number, as it should be read.
        meaning: What it says, in plain words.

    Example:
        >>> Fact("Scale σ", "0.21", "chosen without labels").value
        '0.21'
    """

    name: str
    value: str
    meaning: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture on the page.

    Attributes:
        png: The picture itself, as `render_png` makes it from a figure.
        alt: What it shows, for those who cannot see it.
        caption: What to look at.

    Example:
        >>> Picture(render_png(Figure(figsize=(1, 1))), "an empty figure").alt
        'an empty figure'
    """

    png: bytes
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with text, and below it a table and pictures, where it has them.

    Attributes:
        heading: The heading.
        text: Paragraphs, separated by blank lines.
        pictures: The pictures, in order.
        table: Rows of a table, the first of which is its head.

    Example:
        >>> Section("At which scale?", "At a small one.", table=[("σ", "share"), ("0.1", "98%")]).heading
        'At which scale?'
    """

    heading: str
    text: str = ""
    pictures: Sequence[Picture] = ()
    table: Sequence[Sequence[str]] = ()


def render_png(drawing: Any) -> bytes:
    """Render a figure once, for the page and for a file of its own.

    Args:
        drawing: A matplotlib figure, or what a ``plot_*`` function returned: axes, or an array of them.

    Example:
        >>> render_png(Figure(figsize=(1, 1)))[1:4]
        b'PNG'
    """
    figure = drawing if isinstance(drawing, Figure) else figure_of(drawing)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def write_page(path: str | Path, title: str, summary: Sequence[Fact], sections: Sequence[Section]) -> Path:
    """Write one HTML file that needs no other: pictures are inside it, and nothing is loaded from anywhere.

    The file appears complete or not at all; an older one stays until then. It holds what you give; `write_report`
    measures and explains a geometry by itself.

    Args:
        path: Where to write; its folder must exist.
        title: The title of the page.
        summary: The numbers to read first.
        sections: The rest, in order.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_page(folder + "/page.html", "A page", [Fact("Points", "400")], [Section("More", "Text.")])
        ...     path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        True
    """
    destination = as_destination(path)
    lines = facts((fact.name, fact.value, fact.meaning) for fact in summary)
    body = "\n".join([f"<h1>{escape(title)}</h1>", lines, *map(_section, sections)])
    write_whole(destination, document(title, f"<main>\n{body}\n</main>", styles=["page.css"]))
    return destination


def _section(part: Section) -> str:
    parts = [f"<h2>{escape(part.heading)}</h2>", paragraphs(part.text)]
    if part.table:
        parts.append(table(part.table))
    parts += [picture(shown.png, alt=shown.alt, caption=shown.caption) for shown in part.pictures]
    return "<section>\n" + "\n".join(filter(None, parts)) + "\n</section>"
