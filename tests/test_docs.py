"""The code in the documentation runs as printed."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_on_the_toolkit_runs():
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "toolkit.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 8
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["estimate"].value == 2
    assert names["check"].valid[:50].mean() > 0.8
    assert not names["check"].valid[50:].any()
    assert bool(names["path"].connected.all())
    assert names["cdc"](names["X"][:300, 0], names["X"][:300]).shape == (300, 5)


def test_what_the_index_of_equations_names_exists():
    tests = Path(__file__).parent
    named = set(re.findall(r"`([a-z_/]+\.py)`", (DOCS / "equations.md").read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (tests / name).exists()] == []
