"""Links between the pages in Markdown lead somewhere, also where they are read without being built."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

ROOT = DOCS.parent
LINK = re.compile(r'(?:\]\(|src=")(?!https?:|mailto:)([^)\s"]+)')
PLACES = ("README.md", "CHANGELOG.md", "docs/**/*.md", "experiments/*/*.md")
READ = [path for place in PLACES for path in sorted(ROOT.glob(place)) if "_build" not in path.parts]
SCRIPTS = [path for path in sorted(DOCS.rglob("*.py")) if "_build" not in path.parts]


def prose(path):
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """The anchors of headings: lower case, without punctuation, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(path):
    lost = []
    for link in LINK.findall(prose(path)):
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_the_links_of_the_readme_are_looked_at():
    assert len(LINK.findall(prose(ROOT / "README.md"))) > 10


def test_there_are_at_least_fifteen_questions_and_each_is_one():
    questions = re.findall(r"^## (.+)$", (DOCS / "faq.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(questions) >= 15
    assert len(set(questions)) == len(questions)


def test_what_the_index_of_equations_names_exists():
    tests = Path(__file__).parents[1]
    named = set(re.findall(r"`([a-z_/]+\.py)`", (DOCS / "equations.md").read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (tests / name).exists()] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_of_the_documentation_stay_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
