"""One HTML file that holds everything: text, numbers and pictures."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

_DPI = 150

_CSS = """
:root { color-scheme: light dark; --ink: #1d1d1f; --soft: #5f6368; --paper: #ffffff; --line: #dadce0; --tint: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a5aab1; --paper: #17181b; --line: #3a3d42; --tint: #212327; }
}
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 56rem; background: var(--paper); color: var(--ink);
       font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.25; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.75rem 0 0.5rem; }
p { max-width: 42rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 1rem 0.4rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
td.value { white-space: nowrap; font-weight: 600; }
td.meaning { color: var(--soft); }
figure { margin: 1.25rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff; border-radius: 6px;
             padding: 0.5rem; box-sizing: border-box; border: 1px solid var(--line); }
figcaption { color: var(--soft); font-size: 0.92rem; margin-top: 0.5rem; max-width: 42rem; }
@media (max-width: 36rem) {
  table.summary tr { display: block; padding: 0.5rem 0; border-bottom: 1px solid var(--line); }
  table.summary th, table.summary td { display: block; padding: 0; border: 0; }
}
"""


@dataclass(frozen=True)
class Fact:
    """One line of the summary.

    Attributes:
        name: What was measured.
        value: The number, as it should be read.
        meaning: What it says, in plain words.
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
    """

    heading: str
    text: str = ""
    pictures: Sequence[Picture] = ()
    table: Sequence[Sequence[str]] = ()


def render_png(figure: Figure) -> bytes:
    """Render a figure once, for the page and for a file of its own."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def write_page(path: str | Path, title: str, summary: Sequence[Fact], sections: Sequence[Section]) -> Path:
    """Write one HTML file that needs no other: pictures are inside it, and nothing is loaded from anywhere.

    The file appears complete or not at all; an older one stays until then.

    Args:
        path: Where to write; its folder must exist.
        title: The title of the page.
        summary: The numbers to read first.
        sections: The rest, in order.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path must lie in an existing folder; got {str(path)!r}")
    body = "\n".join([_summary(summary), *map(_section, sections)])
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )
    _write_whole(path, page)
    return path


def _write_whole(path: Path, text: str) -> None:
    """Write a neighboring file and move it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _summary(facts: Sequence[Fact]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(fact.name)}</th><td class="value">{escape(fact.value)}</td>'
        f'<td class="meaning">{escape(fact.meaning)}</td></tr>'
        for fact in facts
    )
    return f'<div class="table"><table class="summary">\n{rows}\n</table></div>'


def _section(section: Section) -> str:
    paragraphs = [f"<p>{escape(text.strip())}</p>" for text in section.text.split("\n\n") if text.strip()]
    parts = [f"<h2>{escape(section.heading)}</h2>", *paragraphs]
    if section.table:
        parts.append(_table(section.table))
    parts += map(_picture, section.pictures)
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in rows[0])
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f'<div class="table"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode("ascii")
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>" if picture.caption else ""
    return f'<figure><img src="data:image/png;base64,{data}" alt="{escape(picture.alt)}">{caption}</figure>'
