"""The report in a real browser: by mouse, finger and keyboard, by day and by night, on a phone and on paper."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from carre.report.page import render
from tests.report.browser import CHROMIUM, Browser
from tests.report.fits import (
    EVIL,
    circle,
    content_of,
    image_content,
    page,
    plane_content,
    plane_geometry,
    table_content,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Chromium: no chromium, chromium-browser or google-chrome on PATH"
    ),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
PHONE = {"size": (360, 740), "phone": True}
CONTENTS = {"plane": plane_content, "table": table_content, "images": image_content}


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


def place_of(browser: Browser, point: int) -> tuple[float, float]:
    """Return where a point of the map is in the window, from its own numbers."""
    plan = next(content for name, content in CONTENTS.items() if name in browser.run("location.href"))().map.places
    browser.run("document.getElementById('marks').scrollIntoView({block: 'center'})")
    browser.settle()
    box = browser.run(
        "(({x, y, width, height}) => [x, y, width, height])(document.getElementById('marks').getBoundingClientRect())"
    )
    middle = (plan.min(0) + plan.max(0)) / 2
    unit = ((np.array(box[2:]) - 52) / np.ptp(plan, axis=0)).min()
    x, y = (plan[point] - middle) * unit
    return box[0] + box[2] / 2 + x, box[1] + box[3] / 2 - y


def readout(browser: Browser) -> str:
    return browser.run("document.getElementById('readout').hidden ? '' : document.getElementById('readout').innerText")


def alone(content) -> int:
    """Return the point that is farthest from all others on the map: the one that is hit without doubt."""
    places = content.map.places
    distances = np.linalg.norm(places[:, None] - places, axis=-1) + np.where(np.eye(len(places)), np.inf, 0)
    return int(distances.min(1).argmax())


@pytest.mark.parametrize(("kind", "window"), list(itertools.product(CONTENTS, [{}, PHONE, {"media": "dark"}])))
def test_it_opens_without_complaints_requests_or_overflow(browser, kind, window):
    browser.open(page(kind), **window)
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [page(kind).resolve().as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= window.get("size", (1280,))[0]
    assert browser.run("[...document.images].every(image => image.alt && image.complete && image.naturalWidth > 0)")
    if window is PHONE:
        browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        wide = "[...document.querySelectorAll('.table')].filter(one => one.scrollWidth > one.clientWidth + 1)"
        assert browser.run(f"{wide}.map(one => one.getAttribute('aria-label'))") == []


def test_the_map_is_drawn_at_the_resolution_of_the_screen(browser):
    browser.open(page("plane"), **PHONE)
    assert browser.run(
        "(c => c.width / c.getBoundingClientRect().width)(document.getElementById('points'))"
    ) == pytest.approx(2, abs=0.01)
    pixels = "new Set(points.getContext('2d').getImageData(0, 0, points.width, points.height).data).size"
    assert browser.run(f"(points => {pixels})(document.getElementById('points'))") > 3


def test_the_slider_moves_everything_by_keyboard(browser):
    browser.open(page("plane"))
    scales = plane_content().scales
    state = (
        "[document.getElementById('scale').getAttribute('aria-valuetext'),"
        " [...document.querySelectorAll('[data-spectrum]:not([hidden])')].map(p => p.dataset.spectrum).join(),"
        " [...document.querySelectorAll('[data-histogram]:not([hidden])')].map(p => p.dataset.histogram).join(),"
        " document.querySelector('[data-marker=scale]').getAttribute('transform'),"
        " document.getElementById('points').toDataURL()]"
    )
    before = browser.run(state)
    assert before[0] == f"σ = {scales.bandwidth[scales.chosen]:.3g}, the chosen scale"
    browser.run("document.getElementById('scale').focus()")
    step = 1 if scales.chosen < len(scales.bandwidth) - 3 else -1
    browser.key("ArrowRight" if step > 0 else "ArrowLeft", times=2)
    after = browser.run(state)
    assert after[0].startswith(f"σ = {scales.bandwidth[scales.chosen + 2 * step]:.3g}")
    assert after[1] == after[2] == str(scales.chosen + 2 * step)
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert browser.run("getComputedStyle(document.getElementById('scale')).display") != "none"
    browser.run("document.getElementById('scale-reset').click()")
    assert browser.run(state)[:4] == before[:4]


@pytest.mark.parametrize("kind", CONTENTS)
def test_pointing_at_a_dot_shows_the_values_of_its_row(browser, kind):
    browser.open(page(kind))
    content = CONTENTS[kind]()
    point = alone(content)
    browser.point(*place_of(browser, point))
    shown = readout(browser)
    scales = content.scales
    assert shown.startswith(f"Row {content.survey.rows[point]}\n")
    assert f"local dimension at σ\n{scales.dimension[scales.chosen, point]}" in shown
    for column in content.columns:
        value = re.search(re.escape(column.name) + r"\n(.*)", shown)[1]
        if column.names is None and not np.isnan(column.values[point]):
            assert float(value) == pytest.approx(column.values[point], rel=1e-3)
        else:
            assert value == column.text(point)
    has_picture = browser.run("document.querySelectorAll('#readout canvas[aria-label]').length")
    assert has_picture == (kind == "images")


def test_a_dot_is_kept_by_a_click_and_by_a_tap(browser):
    content = plane_content()
    point = alone(content)
    browser.open(page("plane"))
    browser.point(*place_of(browser, point), click=True)
    browser.point(5, 5)
    assert readout(browser).startswith(f"Row {content.survey.rows[point]} (kept)")
    browser.open(page("plane"), **PHONE)
    browser.tap(*place_of(browser, point))
    below = "(id => document.getElementById(id).getBoundingClientRect())"
    assert browser.run(f"{below}('readout').top >= {below}('marks').bottom"), "the map should not be covered"
    assert readout(browser).startswith(f"Row {content.survey.rows[point]} (kept)")
    assert browser.run("document.documentElement.scrollWidth") <= 360


def test_arrow_keys_walk_over_the_map_and_enter_keeps_a_point(browser):
    browser.open(page("plane"))
    places = plane_content().map.places
    browser.run("document.getElementById('marks').focus()")
    assert readout(browser) == ""
    browser.key("ArrowRight")
    rows = [int(re.match(r"Row (\d+)", readout(browser))[1])]
    for name, axis, sign in (("ArrowRight", 0, 1), ("ArrowUp", 1, 1), ("ArrowLeft", 0, -1), ("ArrowDown", 1, -1)):
        browser.key(name)
        rows.append(int(re.match(r"Row (\d+)", readout(browser))[1]))
        moved = places[rows[-1]] - places[rows[-2]]
        assert rows[-1] == rows[-2] or (sign * moved[axis] > 0 and abs(moved[1 - axis]) <= abs(moved[axis]) + 1e-3)
    assert len(set(rows)) > 2
    browser.key("Enter")
    assert "(kept)" in readout(browser)
    said = browser.run("document.getElementById('announcement').textContent")
    assert said.startswith(f"row {rows[-1]}, local dimension at σ")
    browser.key("Escape")
    assert readout(browser) == ""


def test_colors_follow_the_choice_and_missing_values_are_named(browser):
    browser.open(page("table"))
    options = browser.run("[...document.getElementById('color').options].map(o => o.textContent)")
    assert options[:5] == ["local dimension at σ", "trace at σ", "label", "height", EVIL]
    seen = set()
    for k in range(len(options)):
        browser.run(
            f"(s => {{ s.value = '{k}'; s.dispatchEvent(new Event('change')); }})(document.getElementById('color'))"
        )
        seen.add(browser.run("document.getElementById('points').toDataURL()"))
        legend = browser.run("document.getElementById('legend').innerText")
        assert legend
        if options[k] == "height":
            assert "not measured or missing (12)" in legend
        if options[k] == "label":
            assert f"{EVIL} (40)" in legend
            assert "not measured or missing (1)" in legend
    assert len(seen) >= len(options) - 2


def test_what_names_the_rows_is_read_and_not_colored_by(browser, tmp_path):
    columns = {"plant": [f"p{k}" for k in range(120)], "kind": ["a", "b"] * 60}
    content = content_of(plane_geometry(), circle(), columns=columns, labels="kind", pairs=0, seconds=0.5)
    dimension = np.full_like(content.scales.dimension, 1)
    path = tmp_path / "named.html"
    path.write_text(render(replace(content, scales=replace(content.scales, dimension=dimension))), encoding="utf-8")
    browser.open(path)
    options = browser.run("[...document.getElementById('color').options].map(o => o.textContent)")
    assert options[:4] == ["local dimension at σ", "trace at σ", "kind", "x0"]
    assert "plant" not in options
    # The dimension is the same everywhere: the map begins with what is not.
    assert browser.run("document.getElementById('color').selectedOptions[0].textContent") == "kind"
    assert "a (60)" in browser.run("document.getElementById('legend').innerText")
    browser.run("document.getElementById('marks').focus()")
    browser.key("ArrowRight")
    assert re.search(r"Row (\d+)\n.*\nplant\np\1\n", readout(browser), re.DOTALL)


def test_colors_reach_over_the_values_that_occur_at_a_scale(browser):
    browser.open(page("table"))
    scales = table_content().scales
    browser.run("(s => { s.value = '0'; s.dispatchEvent(new Event('change')); })(document.getElementById('color'))")
    for scale in range(len(scales.bandwidth)):
        moved = f"(s => {{ s.value = '{scale}'; s.dispatchEvent(new Event('input')); }})"
        browser.run(f"{moved}(document.getElementById('scale'))")
        listed = browser.run("[...document.querySelectorAll('#legend li')].map(one => one.textContent)")
        counts = {
            int(value): int((scales.dimension[scale] == value).sum()) for value in np.unique(scales.dimension[scale])
        }
        assert listed == [f"{value} ({count})" for value, count in counts.items()]


def test_switches_and_zoom_change_the_map(browser):
    browser.open(page("plane"))
    drawn = [browser.run("document.getElementById('points').toDataURL()")]
    for name in ("show-arrows", "show-paths", "zoom-in"):
        browser.run(f"document.getElementById('{name}').click()")
        browser.settle()
        drawn.append(browser.run("document.getElementById('points').toDataURL()"))
    assert len(set(drawn)) == 4
    browser.run("document.getElementById('zoom-all').click()")
    assert browser.run("document.getElementById('points').toDataURL()") == drawn[2]


CONTRAST = """
(() => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = numbers(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("main *")) {
    const text = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!text || element.closest("script, [hidden]") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const color = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [front, back] = [light(numbers(color)), light(behind(element))];
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (contrast < 4.5) low.push(`${element.tagName} ${contrast.toFixed(2)} ${element.textContent.slice(0, 30)}`);
  }
  return low;
})()
"""


@pytest.mark.parametrize("media", ["", "dark", "print"])
def test_text_can_be_read_by_day_by_night_and_on_paper(browser, media):
    browser.open(page("table"), media=media)
    assert browser.run(CONTRAST) == []


def test_night_turns_paper_dark_and_charts_and_map_with_it(browser):
    look = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('.bar')).fill,"
        " document.getElementById('points').toDataURL()]"
    )
    browser.open(page("plane"))
    day = browser.run(look)
    browser.media("dark")
    browser.settle()
    night = browser.run(look)
    assert all(one != other for one, other in zip(day, night, strict=True))
    assert day[0] == "rgb(255, 255, 255)"


def test_paper_shows_the_scale_and_no_controls(browser, tmp_path):
    browser.open(page("plane"), media="print")
    assert browser.run("getComputedStyle(document.getElementById('scale')).display") == "none"
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.run("document.getElementById('scale-value').getClientRects().length") == 1
    browser.media("")
    browser.print_pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert browser.complaints == []


def test_without_scripts_the_static_parts_are_there(browser):
    browser.open(page("table"), scripts=False)
    assert "works without JavaScript" in browser.run("document.body.innerText")
    assert (
        browser.run("[...document.querySelectorAll('[data-spectrum]')].filter(p => p.getClientRects().length).length")
        == 1
    )
    assert browser.run("document.querySelectorAll('svg.chart').length") > 2


def test_ten_thousand_points_make_a_small_file_that_answers_at_once(browser, tmp_path):
    samples = np.repeat(circle(), 84, axis=0)[:10_000] + 0.01 * np.random.default_rng(1).standard_normal((10_000, 2))
    content = content_of(plane_geometry(), samples, columns={"x": samples[:, 0]}, pairs=0, seconds=60.0)
    assert len(content.survey.rows) == 10_000
    path = tmp_path / "many.html"
    path.write_text(render(content), encoding="utf-8")
    assert path.stat().st_size < 5e6
    browser.open(path)
    assert browser.complaints == []
    steps = "for (const k of [0, 1, 2]) { s.value = String(k); s.dispatchEvent(new Event('input')); }"
    timed = f"(s => {{ const t = performance.now(); {steps} return (performance.now() - t) / 3; }})"
    # Milliseconds, on a busy machine: an idle one takes a tenth.
    assert browser.run(f"{timed}(document.getElementById('scale'))") < 1000


def test_everything_can_be_reached_by_keyboard(browser):
    browser.open(page("table"))
    reached = []
    for _ in range(40):
        browser.key("Tab")
        reached.append(
            browser.run(
                "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
            )
        )
    assert reached[0] == "skip"
    assert {"scale", "color", "show-arrows", "marks", "zoom-in"} <= set(reached)
