import base64
import os
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from carre.report import Fact, Picture, Section, render_png, write_page

VOID = {"meta", "img"}


class Reader(HTMLParser):
    """Collects what a page holds, and checks that every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert not reader.open
    return reader


@pytest.fixture
def page(tmp_path):
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    picture = Picture(render_png(figure), 'a "line" & more', "look < here >")
    sections = [Section("First", "one\n\ntwo", [picture, picture], [("σ", "share"), ("1", "<b>")]), Section("Second")]
    return write_page(tmp_path / "page.html", "A <script>title</script>", [Fact("x > y", "3 & 4", "why")], sections)


def test_the_page_parses_and_has_its_headings_in_order(page):
    tags = [tag for tag, _ in read(page).seen]
    assert [tag for tag in tags if tag in {"h1", "h2", "table", "p"}] == ["h1", "table", "h2", "p", "p", "table", "h2"]
    assert tags.count("main") == 1


def test_the_page_is_self_contained(page):
    text = page.read_text(encoding="utf-8")
    for reference in ("http:", "https:", "file:", "<link", "<script", "@import", "url("):
        assert reference not in text
    sources = [attributes["src"] for _, attributes in read(page).seen if "src" in attributes]
    assert len(sources) == 2
    for source in sources:
        kind, _, data = source.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")
    assert not any("href" in attributes for _, attributes in read(page).seen)


def test_every_image_has_an_alternative_text(page):
    images = [attributes for tag, attributes in read(page).seen if tag == "img"]
    assert [image["alt"] for image in images] == ['a "line" & more'] * 2


def test_text_is_escaped_wherever_it_stands(page):
    reader = read(page)
    for text in ("A <script>title</script>", "x > y", "3 & 4", "look < here >", "<b>"):
        assert text in reader.text
    assert not {"script", "b"} & {tag for tag, _ in reader.seen}


def test_it_fits_phones_and_dark_rooms(page):
    text = page.read_text(encoding="utf-8")
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text


def test_an_interrupted_write_leaves_the_old_page_and_nothing_else(page, monkeypatch):
    old = page.read_bytes()

    def fail(source, target):
        assert os.path.dirname(source) == os.path.dirname(target)
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        write_page(page, "new", [], [])
    assert page.read_bytes() == old
    assert list(page.parent.iterdir()) == [page]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="path must lie in an existing folder"):
        write_page(tmp_path / "nowhere" / "page.html", "title", [], [])
