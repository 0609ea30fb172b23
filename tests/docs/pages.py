"""Pages of the documentation, and the code in them."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python(?P<mark>[^\n]*)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)


def pages():
    """Every page in Markdown, by its path inside docs."""
    found = [path.relative_to(DOCS) for path in sorted(DOCS.rglob("*.md"))]
    return [path.as_posix() for path in found if path.parts[0] != "_build"]


def blocks(page):
    """The blocks of Python on a page: what stands behind ```python, and the code."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [(block["mark"].strip(), block["code"]) for block in BLOCK.finditer(text)]


def run(page):
    """Run the blocks of a page in order, in one namespace, and return it. Those marked no-run are left out."""
    names = {"__name__": "page"}
    for mark, code in blocks(page):
        if mark != "no-run":
            exec(compile(code, page, "exec"), names)
    return names
