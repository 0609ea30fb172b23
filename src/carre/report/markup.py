"""Pieces of HTML: everything that is text is escaped here."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

# Nothing is loaded from anywhere, and nothing is sent.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)


def asset(name: str) -> str:
    """Read a style sheet or a script of this folder."""
    return files("carre.report").joinpath(name).read_text(encoding="utf-8")


def document(title: str, body: str, *, styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """Put a whole page together.

    Args:
        title: The title, as text.
        body: What stands in the body, as HTML.
        styles: Names of style sheets of this folder.
        scripts: Names of scripts of this folder, which see one another.
    """
    style = "\n".join(map(asset, styles))
    script = "\n".join(map(asset, scripts))
    end = f'<script>\n"use strict";\n(() => {{\n{script}\n}})();\n</script>\n' if scripts else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n{end}</body>\n</html>\n"
    )


def write_whole(path: Path, text: str) -> None:
    """Write a neighboring file and move it into place: it appears complete or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def paragraphs(text: str) -> str:
    """Return the paragraphs of a text, which blank lines separate."""
    return "\n".join(f"<p>{escape(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


def table(rows: Sequence[Sequence[str]], *, caption: str = "", row_heads: bool = False) -> str:
    """Return a table that scrolls by itself where it is too wide.

    Args:
        rows: Cells as text; the first row is the head.
        caption: What it shows.
        row_heads: Whether the first cell of every row names it.
    """
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in rows[0])
    body = "\n".join(f"<tr>{_cells(row, row_heads)}</tr>" for row in rows[1:])
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    # A region that scrolls must be reachable by keyboard.
    region = f' role="region" tabindex="0" aria-label="{escape(caption or "table")}"'
    return (
        f'<div class="table"{region}><table>\n{named}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _cells(row: Sequence[str], row_heads: bool) -> str:
    first = f'<th scope="row">{escape(row[0])}</th>' if row_heads else f"<td>{escape(row[0])}</td>"
    return first + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])


def facts(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return a table of names, values and what they mean."""
    lines = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="value">{escape(value)}</td>'
        f'<td class="meaning">{escape(meaning)}</td></tr>'
        for name, value, meaning in rows
    )
    return f'<div class="table"><table class="summary">\n{lines}\n</table></div>'


def details(summary: str, content: str) -> str:
    """Return something to unfold."""
    return f"<details><summary>{escape(summary)}</summary>\n{content}\n</details>"


def picture(data: bytes, *, alt: str, caption: str = "", kind: str = "png", css_class: str = "") -> str:
    """Return a picture that is inside the page."""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    written = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    named = f' class="{css_class}"' if css_class else ""
    return f'<figure{named}><img src="{source}" alt="{escape(alt)}">{written}</figure>'


def section(heading: str, content: str, *, name: str) -> str:
    """Return a section with its heading, to which links can lead."""
    return (
        f'<section id="{name}" aria-labelledby="{name}-heading">\n'
        f'<h2 id="{name}-heading">{escape(heading)}</h2>\n{content}\n</section>'
    )
