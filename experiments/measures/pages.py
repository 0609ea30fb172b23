"""Tables that are written into pages between markers, and the machine that they were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

import carre

Tables = Mapping[str, Callable[[dict[str, Any]], list[str]]]


def fill(text: str, name: str, lines: list[str]) -> str:
    """Replace what stands between the markers of a table.

    Example:
        >>> fill("<!-- a -->\\nold\\n<!-- end of a -->", "a", ["new"])
        '<!-- a -->\\nnew\\n<!-- end of a -->'
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return "\n".join([before + begin, *lines, end + after])


def fill_pages(pages: Iterable[Path], tables: Tables, results: dict[str, Any]) -> None:
    """Write into each page those tables that it has markers for."""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for name, write in tables.items():
            if f"<!-- {name} -->" in text:
                text = fill(text, name, write(results))
        page.write_text(text, encoding="utf-8")


def machine(*, shared: bool, **more: Any) -> dict[str, Any]:
    """Say what is measured on, when, and whether other work runs there meanwhile."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores",
        **more,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "carre": carre.__version__,
        "date": date.today().isoformat(),
        "shared": shared,
    }


def machine_note(sentence: str, machine: Mapping[str, Any]) -> list[str]:
    """Write where it was measured, and whether alone."""
    also = "Other work ran on the machine meanwhile: times are too long, perhaps by a factor of a few."
    return [sentence, also] if machine["shared"] else [sentence]
