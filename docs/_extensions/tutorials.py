"""Tutorials: scripts in percent format become pages.

A cell begins with ``# %%``. Cells marked ``[markdown]`` are text, as comments; the others are code. The script runs as
it is, opens as a notebook in editors that know the format, and is offered for download on its page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

_MARKER = re.compile(r"^# %%(?P<title>.*)$")


def cells(script: str) -> Iterator[tuple[bool, str]]:
    """Cut a script into cells: whether each is text, and its content. What stands before the first is left out.

    Example:
        >>> list(cells('# %% [markdown]\\n# # A title\\n#\\n# Text.\\n# %%\\nprint(1)\\n'))
        [(True, '# A title\\n\\nText.'), (False, 'print(1)')]
    """
    lines: list[str] = []
    is_text: bool | None = None
    for line in [*script.splitlines(), "# %%"]:
        marker = _MARKER.match(line)
        if not marker:
            lines.append(line)
            continue
        content = "\n".join(lines).strip("\n")
        if is_text is not None and content:
            yield is_text, _uncommented(content) if is_text else content
        lines, is_text = [], "[markdown]" in marker["title"]


def _uncommented(content: str) -> str:
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in content.splitlines())


def as_markdown(script: str, name: str) -> str:
    """Write the cells of a script as one page, with a link to the script below its title.

    Example:
        >>> print(as_markdown('# %% [markdown]\\n# # A title\\n# %%\\nprint(1)\\n', "first.py"))
        # A title
        <BLANKLINE>
        *This page is a script: {download}`first.py <first.py>`.*
        <BLANKLINE>
        ```python
        print(1)
        ```
    """
    parts = [text if is_text else f"```python\n{text}\n```" for is_text, text in cells(script)]
    page = "\n\n".join(parts)
    if not page.startswith("# "):
        raise ValueError(f"{name} must begin with a text cell whose first line is a title, '# # …'")
    title, _, rest = page.partition("\n")
    return f"{title}\n\n*This page is a script: {{download}}`{name} <{name}>`.*\n\n{rest.lstrip()}"


class TutorialParser(MystParser):
    """Read a script as the page that it describes."""

    supported: ClassVar[tuple[str, ...]] = ("tutorial",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse the script's text cells as Markdown, and its code cells as code."""
        name = str(document["source"]).replace("\\", "/").rsplit("/", 1)[-1]
        super().parse(as_markdown(inputstring, name), document)


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx take Python files for pages; conf.py excludes those that are none."""
    app.add_source_suffix(".py", "tutorial")
    app.add_source_parser(TutorialParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
