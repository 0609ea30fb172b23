"""Pages that show files from outside the documentation, and links that lead to them.

The changelog and the pages of the experiments stand where people look for them in the repository. `mirrored_pages` of
conf.py gives each a page of the site, which holds nothing but a link, for those who read it in the repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

# ](target) or src="target", with the anchor apart. Addresses and anchors of the same page are left alone.
_LINK = re.compile(r'(\]\(|src=")(?!https?:|mailto:|path:|#)([^)\s"#]+)')


def rewritten(text: str, *, origin: Path, page: Path, site: Path, pages: dict[Path, Path]) -> str:
    """Rewrite relative links so that they hold on another page, and lead to the pages that show their targets.

    Args:
        text: Markdown.
        origin: The file the text was written in.
        page: The file of the page it is shown on.
        site: The folder of the documentation.
        pages: Of each file that is shown by a page, the file of that page.

    Example:
        >>> rewritten(
        ...     "[script](run.py), [log](../../CHANGELOG.md#new)",
        ...     origin=Path("/x/experiments/core/README.md"),
        ...     page=Path("/x/docs/results/core.md"),
        ...     site=Path("/x/docs"),
        ...     pages={Path("/x/CHANGELOG.md"): Path("/x/docs/changelog.md")},
        ... )
        '[script](path:../../experiments/core/run.py), [log](../changelog.md#new)'
    """

    def rewrite(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(origin.parent / match[2]))
        target = pages.get(target, target)
        # MyST takes text for a page unless it is told that it is a file.
        is_file = target.suffix in (".md", ".py") and site not in target.parents
        return match[1] + ("path:" if is_file else "") + Path(os.path.relpath(target, page.parent)).as_posix()

    return _LINK.sub(rewrite, text)


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    site, page = Path(app.srcdir), Path(app.env.doc2path(docname))
    if page.suffix != ".md":
        return
    mirrored: dict[str, str] = app.config.mirrored_pages
    pages = {site.parent / file: site / f"{name}.md" for name, file in mirrored.items()}
    origin = page
    if docname in mirrored:
        origin = site.parent / mirrored[docname]
        app.env.note_dependency(str(origin))
        text = origin.read_text(encoding="utf-8")
        # A file that is nothing but tables is shown under the title of its page.
        source[0] = text if text.startswith("# ") else source[0].partition("\n")[0] + "\n\n" + text
    source[0] = rewritten(source[0], origin=origin, page=page, site=site, pages=pages)


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx read pages through this module."""
    app.add_config_value("mirrored_pages", {}, "env", dict)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
