"""What the site adds to Sphinx: pages from scripts, pages from files outside, names that become links."""

import doctest
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

sys.path.insert(0, str(DOCS / "_extensions"))
import outside
import reference
import tutorials


@pytest.mark.parametrize("module", [outside, reference, tutorials], ids=lambda module: module.__name__)
def test_the_examples_of_an_extension_hold(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_a_tutorial_is_a_page_that_offers_its_script():
    script = "import os\n\n# %% [markdown]\n# # Title\n#\n# *Text*.\n# %%\nprint(1)\n\n\n# %% a name\nprint(2)\n"
    page = tutorials.as_markdown(script, "first.py")
    assert page.startswith("# Title\n\n*This page is a script: {download}`first.py <first.py>`.*\n\n*Text*.")
    assert page.count("```python\n") == 2
    assert "import os" not in page


def test_a_tutorial_without_a_title_is_refused():
    with pytest.raises(ValueError, match=r"first.py must begin with a text cell"):
        tutorials.as_markdown("# %%\nprint(1)\n", "first.py")


def test_addresses_and_anchors_are_left_alone():
    text = "[a](https://x.org/y.md) [b](#here)"
    place = Path("/x/docs/a.md")
    assert outside.rewritten(text, origin=place, page=place, site=place.parent, pages={}) == text


def test_types_that_say_nothing_are_left_out_of_signatures():
    signature, returned = reference._known_types(
        None,
        "method",
        "gradient",
        None,
        None,
        "(X: Any, bandwidth: Any = None, *, dimension: int | None = None)",
        "Any",
    )
    assert signature == "(X, bandwidth = None, *, dimension: int | None = None)"
    assert returned is None
