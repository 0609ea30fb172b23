"""The site builds without a warning, needs no network, describes every public name, and its links lead somewhere."""

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest
from filelock import FileLock
from sphinx.util.inventory import InventoryFile

from carre import Geometry, Local, MetricMatching
from tests.docs.pages import DOCS, pages

sys.path.insert(0, str(DOCS / "_extensions"))
import reference

pytestmark = pytest.mark.slow

# What a browser loads, and by which attribute.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
SELF_CONTAINED = ("data:", "#")
# `python -m sphinx` without a search for garbage, which is a fifth of the time.
SPHINX = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"


class Page(HTMLParser):
    """What a page loads, where its links lead, and which anchors it has."""

    def __init__(self, path):
        super().__init__()
        self.loaded, self.links, self.anchors = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.update(value for key, value in attrs if key in ("id", "name") and value)
        if tag in LOADED and found.get(LOADED[tag]):
            self.loaded.append(found[LOADED[tag]])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Build the site as `make docs` does; once, also where several processes test it."""
    is_one_of_many = "PYTEST_XDIST_WORKER" in os.environ
    shared = tmp_path_factory.getbasetemp().parent if is_one_of_many else tmp_path_factory.mktemp("site")
    out = shared / "built_site"
    with FileLock(shared / "built_site.lock"):
        if not (out / "done").exists():
            command = [sys.executable, "-c", SPHINX, "-W", "--keep-going", "-q", "-b", "html"]
            command += ["-d", str(out / "cache"), str(DOCS), str(out / "html")]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            assert found.returncode == 0, found.stderr
            (out / "done").touch()
    return out / "html"


@pytest.fixture(scope="session")
def html(site):
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_built(site):
    missing = [page for page in pages() if not (site / page).with_suffix(".html").exists()]
    scripts = [path for path in (DOCS / "tutorials").glob("*.py")]
    missing += [script for script in scripts if not (site / "tutorials" / f"{script.stem}.html").exists()]
    assert missing == []


def test_pages_load_nothing_from_the_network(site, html):
    remote = {(path.name, source) for path, page in html.items() for source in page.loaded if "//" in source}
    assert remote == set()
    # Neither do style sheets.
    outside_sheet = re.compile(r"(?:@import|url\()\s*['\"]?(?:https?:)?//\S+")
    assert [found for path in site.rglob("*.css") for found in outside_sheet.findall(path.read_text("utf-8"))] == []


def test_what_pages_load_is_there(html):
    lost = {
        (path.name, source)
        for path, page in html.items()
        for source in page.loaded
        if not source.startswith(SELF_CONTAINED) and not (path.parent / unquote(source.split("?")[0])).exists()
    }
    assert lost == set()


def test_links_inside_the_site_lead_to_a_page_and_an_anchor_that_exist(html):
    lost = set()
    for path, page in html.items():
        for link in page.links:
            if re.match(r"[a-z]+:|//", link):
                continue
            place, anchor = urldefrag(link)
            target = (path.parent / unquote(place.split("?")[0])).resolve() if place else path
            is_page = target in html
            if not target.exists() or (anchor and is_page and unquote(anchor) not in html[target].anchors):
                lost.add((path.name, link))
    assert lost == set()


def test_every_public_name_is_described(site):
    described = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    names = {name for kind, entries in described.items() if kind.startswith("py:") for name in entries}
    public = {f"{room}.{name}" for room, module in reference.rooms().items() for name in module.__all__}
    assert sorted(public - names) == []
    methods = {
        f"carre.{face.__name__}.{name}"
        for face in (Geometry, Local, MetricMatching)
        for name, method in inspect.getmembers(face, inspect.isroutine)
        if not name.startswith("_") and method.__module__.startswith("carre.")
    }
    assert len(methods) > 40
    assert sorted(methods - names) == []


def test_short_names_in_docstrings_become_links(site):
    text = (site / "reference" / "fields.html").read_text(encoding="utf-8")
    assert 'href="metric.html#carre.metric.ComplementMetric"' in text


def test_names_in_pages_become_links(site):
    text = (site / "how_to" / "paths.html").read_text(encoding="utf-8")
    assert 'href="../reference/toolkit.html#carre.toolkit.Straight"' in text


def test_tools_are_described_once_and_found_as_methods(site):
    text = (site / "reference" / "geometry.html").read_text(encoding="utf-8")
    assert 'href="toolkit.html#carre.toolkit.local_dimension"' in text
    assert 'id="carre.Geometry.dimension"' not in text
    text = (site / "how_to" / "dimension.html").read_text(encoding="utf-8")
    assert 'href="../reference/geometry.html#carre.Geometry.recommend_rank"' in text


def test_files_outside_are_shown_with_their_links(site):
    text = (site / "results" / "sphere.html").read_text(encoding="utf-8")
    assert 'href="sphere_gpu_tables.html"' in text
    assert "scaling.png" in text
