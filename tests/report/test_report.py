"""The report as a file: whole, self-contained, safe, and complete without a browser."""

import base64
import io
import itertools
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
import torch
from PIL import Image

from carre.report import write_report
from carre.report._charts import histogram_axes, spectrum_axes
from carre.report._content import Checked, Directions
from carre.report._packing import as_json, pack_range
from carre.report._pictures import tangent_picture
from carre.report._survey import Survey
from carre.report.page import render, templates
from carre.training import Evaluation, History
from tests.report.fits import (
    EVIL,
    circle,
    column,
    column_content,
    content_of,
    page,
    plane_content,
    plane_geometry,
    table_content,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
KINDS = ["plane", "table", pytest.param("images", marks=pytest.mark.slow)]


class Reader(HTMLParser):
    """Collects what a page holds, and checks that every element is closed in order; what is drawn closes itself."""

    VOID = frozenset({"meta", "img", "input", "path", "rect", "circle"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(kind: str) -> Reader:
    reader = Reader()
    reader.feed(page(kind).read_text(encoding="utf-8"))
    reader.close()
    assert not reader.open
    return reader


def block(text: str, name: str) -> dict:
    (found,) = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


@pytest.mark.parametrize("kind", KINDS)
def test_headings_are_in_order_and_ids_are_unique(kind):
    seen = read(kind).seen
    levels = [int(tag[1]) for tag, _ in seen if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in seen if tag == "a"]
    assert {link.removeprefix("#") for link in links} <= set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_and_charts_say_what_they_show(kind):
    seen = read(kind).seen
    assert all(attributes["alt"] for tag, attributes in seen if tag == "img")
    charts = [attributes for tag, attributes in seen if tag == "svg" and attributes.get("class") == "chart"]
    assert charts
    assert all(attributes["aria-label"] and attributes["role"] == "img" for attributes in charts)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_loaded_from_anywhere(kind):
    text = page(kind).read_text(encoding="utf-8")
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'" in text
    for reference in ("https:", "<link", "@import", "url(", "fetch(", "XMLHttpRequest"):
        assert reference not in text
    # The name of a language is no address.
    assert set(re.findall(r"http://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_text_cannot_break_the_page():
    text = page("table").read_text(encoding="utf-8")
    assert EVIL not in text
    reader = read("table")
    assert not {"b"} & {tag for tag, _ in reader.seen}
    assert sum(tag == "script" for tag, _ in reader.seen) == 3
    assert f"A table {EVIL}" in reader.text
    assert EVIL in block(text, "data")["columns"][0]["names"]


def test_the_numbers_are_there_for_other_programs():
    content = plane_content()
    numbers = block(page("plane").read_text(encoding="utf-8"), "numbers")
    assert numbers["dimension"]["value"] == content.estimate.value
    assert numbers["scales"][content.scales.chosen]["bandwidth"] == content.scales.bandwidth[content.scales.chosen]
    assert numbers["validity"]["valid"] == int(content.checked.is_valid.sum())
    assert numbers["origin"]["data, SHA-256"] == content.origin["data, SHA-256"]
    for scale in numbers["scales"]:
        np.testing.assert_allclose(sum(scale["shares"].values()), 1.0)
        np.testing.assert_allclose(sum(scale["eigenvalues"]["mean"]), scale["mean_trace"])


def test_points_are_packed_without_loss_that_could_be_seen():
    content = plane_content()
    data = block(page("plane").read_text(encoding="utf-8"), "data")
    dimension = np.frombuffer(base64.b64decode(data["dimension"]), "u1").reshape(content.scales.dimension.shape)
    np.testing.assert_array_equal(dimension, content.scales.dimension)
    steps = np.frombuffer(base64.b64decode(data["x"]["data"]), "<u2")
    span = data["x"]["high"] - data["x"]["low"]
    np.testing.assert_allclose(
        data["x"]["low"] + steps / 65534 * span, content.map.places[:, 0], rtol=0, atol=span / 65534
    )
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(data["rows"]), "<u4"), content.survey.rows)


def test_what_is_missing_stays_missing():
    packed = pack_range(np.full(3, np.nan))
    assert np.frombuffer(base64.b64decode(packed["data"]), "<u2").tolist() == [65535] * 3
    assert json.loads(as_json({"a": [np.nan, np.float32(1), np.int64(2)]})) == {"a": [None, 1.0, 2]}
    data = block(page("table").read_text(encoding="utf-8"), "data")
    labels = np.frombuffer(base64.b64decode(data["columns"][0]["data"]), "<f4")
    assert np.isnan(labels[0])
    assert not np.isnan(labels[1:]).any()


def test_ten_thousand_points_with_columns_stay_below_five_megabytes():
    """The size is that of what is packed per point: nothing else grows with their number."""
    content = table_content()
    n, small = 10_000, len(render(content))
    data = block(page("table").read_text(encoding="utf-8"), "data")
    per_point = [data["rows"], data["x"]["data"], data["y"]["data"], data["dimension"], data["trace"]["data"]]
    per_point += [column["data"] for column in data["columns"]]
    grown = sum(len(text) for text in per_point) * n / len(content.survey.rows)
    assert len(content.scales.bandwidth) >= 12
    assert len(data["columns"]) == 13
    assert small + grown < 5e6


def test_the_report_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")

    def fail(source, target):
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        write_report(plane_geometry(), circle(), path, pairs=0, max_points=10)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_it_tells_how_far_it_is_and_how_it_was_called(tmp_path):
    told: list[float] = []
    options = {"pairs": 0, "max_points": 10, "title": "By function", "command": "carre report <x>"}
    path = write_report(plane_geometry(), circle(), tmp_path / "a.html", progress=told.append, **options)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert "carre report &lt;x&gt;" in path.read_text(encoding="utf-8")
    assert path == tmp_path / "a.html"
    assert "<title>By function</title>" in path.read_text(encoding="utf-8")


def test_scripts_and_styles_lie_in_the_package_and_stay_small():
    names = [item.name for item in files("carre.report").iterdir() if item.name.endswith((".js", ".css"))]
    assert {"page.css", "report.css", "map.js", "explorer.js"} <= set(names)
    for name in names:
        assert len(files("carre.report").joinpath(name).read_text(encoding="utf-8").splitlines()) <= 300


def test_every_template_is_one_that_the_page_uses():
    environment = templates()
    used, found = {"page.html"}, {"page.html"}
    while found:
        source = "".join(environment.loader.get_source(environment, name)[0] for name in found)
        found = set(re.findall(r'{% (?:include|import) "([^"]+)"', source)) - used
        used |= found
    assert used == set(environment.list_templates())


def test_words_follow_the_numbers():
    content = plane_content()
    headline = re.search(r"<h1>(.*?)</h1>", render(content))[1]
    assert f"σ = {content.estimate.bandwidth:.3g}" in headline
    said = re.search(r'<p class="lead">(.*?)</p>', render(content), re.DOTALL)[1]
    assert f"{len(content.estimate.local):,} points" in said
    verdict = re.search(r'<span class="verdict \w+">(.*)</span>', headline)[1]
    assert verdict in {"clear", "varies from point to point", "depends on the scale", "read the warnings"}


@pytest.mark.parametrize(
    ("interval", "share", "verdict", "start"),
    [
        ((1, 1), 0.95, "clear", "A clear answer: 95% of 120 points have exactly 1, "),
        ((1, 1), 0.7, "varies from point to point", "Typical, not everywhere: 70% of 120 points have exactly 1, "),
        ((1, 2), 0.95, "depends on the scale", "A matter of degree: between 1 and 2 as σ varies by √2 either way; 95%"),
    ],
)
def test_the_verdict_follows_the_interval_and_the_share(interval, share, verdict, start):
    content = plane_content()
    estimate = replace(content.estimate, value=1, interval=interval, shares={1: share, 2: 1 - share})
    text = render(replace(content, estimate=estimate, warnings=()))
    assert f">{verdict}</span></h1>" in text
    assert f'<p class="lead">{start}' in text
    assert "1 dimension, at scale" in text


def test_where_a_kernel_answers_every_part_says_that_the_network_has_not_resolved_the_data():
    content = plane_content()
    kernel = replace(content.estimate, source="by a kernel on the landmarks", bandwidth=0.77)
    text = render(replace(content, estimate=kernel))
    assert "by a kernel, at scale σ = 0.77" in text
    assert text.count("The network has not resolved the data: at σ =") == 4
    assert "The geometry is valid at" not in text
    assert "The network has not resolved" not in render(content)


def checked_as(is_near, is_clear, agrees, could_tell) -> str:
    """Render the page of a plane of which three points were checked."""
    flags = (np.array(flag, dtype=bool) for flag in (is_near, is_clear, agrees, could_tell))
    return render(replace(plane_content(), checked=Checked(np.arange(3), *flags, ("", "", ""), "")))


def test_a_kernel_confirms_only_where_it_could_tell():
    row = '<th scope="row">confirmed by a kernel</th><td>'
    assert row + "1 of 2 (50%)" in checked_as([1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 0])
    assert row + "–" in checked_as([1, 1, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0])


def test_what_speaks_most_often_against_points_is_said_beside_their_number():
    yes, two, one = [1, 1, 1], [1, 0, 1], [0, 1, 0]

    def said(*flags):
        return re.search(r"points at which nothing speaks .*", checked_as(*flags, yes))[0]

    assert "mostly: no clear gap" in said(yes, two, yes)
    assert "mostly: farther from" in said(one, two, yes)
    assert "mostly" not in said(yes, yes, yes)


def test_data_without_a_sharp_dimension_are_not_called_invalid_but_told_what_holds():
    text = checked_as([1, 1, 1], [0, 1, 0], [1, 1, 1], [1, 1, 1])
    assert "points at which nothing speaks" not in text
    facts = dict(re.findall(r'<th scope="row">([^<]*)</th><td class="value">([^<]*)</td>', text))
    assert (facts["Near the data"], facts["Sharp dimension"]) == ("100%", "33%")
    assert '<th scope="row">valid</th><td>1 of 3 (33%)' in text


def test_histograms_reach_over_the_dimensions_that_occur():
    """Not up to the rank, at which the same fit counts at other scales."""
    assert histogram_axes({9: 0.5, 19: 0.5}).x_range == (8.4, 19.6)
    for shares in ({2: 1.0}, {0: 0.5, 1: 0.5}, {40: 1.0}):
        low, high = histogram_axes(shares).x_range
        assert 0 - 0.6 <= low < min(shares) <= max(shares) < high <= max(shares) + 6


def test_one_column_is_stacked_and_has_no_directions_to_draw():
    content = column_content()
    text = render(content)
    assert len(content.map.arrow_points) == 0
    assert "show-arrows" not in text
    assert "two leading" not in text
    assert "Which columns move together?" not in text
    np.testing.assert_array_equal(content.map.places[:, 0], column()[:, 0])
    assert len(np.unique(content.map.places, axis=0)) == len(column())
    assert 'class="board wide"' in text


def test_directions_of_colored_pictures_are_drawn_in_color():
    red, blue = np.zeros((2, 3, 4, 4))
    red[0], blue[2, 0, 0] = 1.0, 1.0
    points = torch.from_numpy(np.stack([red, blue]).reshape(2, 48))
    given = replace(plane_content().survey.given, points=points, image_shape=(3, 4, 4))
    survey = Survey(replace(plane_geometry(), normalization=None), given, np.arange(2), 1.0, 1.0, 1.0)
    directions = Directions(np.array([0]), np.ones((1, 2)), points.numpy()[None], np.zeros(48), 1)
    drawn = tangent_picture(replace(plane_content(), survey=survey, directions=directions), 0)
    tiles = np.asarray(Image.open(io.BytesIO(base64.b64decode(drawn.partition(",")[2]))))
    picture, up, other = (tiles[1:-1, 1 + 6 * k : 5 + 6 * k].astype(int) for k in range(3))
    assert picture[0, 0].tolist() == [255, 0, 0]
    # Along the first direction all pixels gain red, along the second nothing but one pixel's blue changes.
    assert (up[..., 0] > 128).all()
    assert (abs(up[..., 1:] - 128) <= 1).all()
    assert other[0, 0, 2] != 128
    assert (abs(other[1:] - 128) <= 1).all()


def test_rows_are_named_by_the_column_that_names_them():
    columns = {"plant": [f"p{k}" for k in range(120)], "kind": ["a", "b"] * 60}
    options = {"labels": "kind", "pairs": [(0, 1)], "max_points": 20, "seconds": 0.5}
    text = render(content_of(plane_geometry(), circle(), columns=columns, **options))
    assert "0 (plant p0) → 1 (plant p1)" in text
    assert re.search(r"row (\d+) \(plant p\1\), kind [ab]<", text)
    names = {column["name"]: column["isId"] for column in block(text, "data")["columns"]}
    assert names == {"kind": False, "plant": True, "x0": False, "x1": False}


@pytest.mark.parametrize(
    ("losses", "reason", "gained", "expected"),
    [
        ([3.0, 2.0, 1.99], "done", 0.01, "long enough: half more steps had brought 0.01 nats"),
        ([3.0, 2.0, 1.99], "done", -0.01, "long enough: the loss on held-out samples fell no more than by chance"),
        ([3.0, 2.0, 1.0], "budget spent", 0.9, "still improved: half more steps had brought 0.9 nats"),
        ([3.0, 2.0, 1.0], "budget spent", -0.1, "was spent; the loss on held-out samples no longer fell"),
        ([3.0, 1.0, 2.0], "budget spent", 0.2, "best at step 200"),
        ([3.0, 2.0, 1.0], "budget spent", None, "too short to say"),
    ],
)
def test_training_is_judged_by_its_end(losses, reason, gained, expected):
    evaluations = [Evaluation(100 * (k + 1), 1.0, loss, loss, loss, ()) for k, loss in enumerate(losses)]
    kept = int(np.argmin(losses))
    history = History(evaluations=evaluations, steps=300, kept=kept, stop_reason=reason, gained=gained)
    survey = plane_content().survey
    trained = replace(survey, geometry=replace(survey.geometry, history=history))
    assert expected in render(replace(plane_content(), survey=trained))


def test_charts_place_numbers_where_they_belong():
    charts = templates().get_template("chart.html").module
    mean, low, high = np.array([1.0, 0.2]), np.array([0.9, 0.1]), np.array([1.0, 0.3])
    svg = str(charts.spectrum(spectrum_axes(high[None]), mean, low, high, "x"))
    heights = [float(height) for height in re.findall(r'class="bar[^>]*height="([\d.]+)"', svg)]
    np.testing.assert_allclose(heights[1] / heights[0], 0.2, atol=0.01)
    assert svg.count('class="bar weak"') == 1
    shares = {2: 0.25, 3: 0.75}
    svg = str(charts.histogram(histogram_axes(shares), shares, "x"))
    heights = [float(height) for height in re.findall(r'class="bar[^>]*height="([\d.]+)"', svg)]
    np.testing.assert_allclose(heights[1] / heights[0], 3.0, atol=0.05)
    gap = {"y": [0.0, float("nan"), 2.0]}
    svg = str(charts.curves([1, 10, 100], gap, x_label="", y_label="", alt="", log=True, marked=1))
    places = [float(place) for place in re.search('data-places="([^"]*)"', svg)[1].split()]
    np.testing.assert_allclose(places[1] - places[0], places[2] - places[1], atol=0.11)
    assert svg.count('class="dot') == 2
