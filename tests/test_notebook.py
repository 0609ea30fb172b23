"""What a notebook shows: bars while work goes on, and results as facts with a picture, through a real kernel."""

import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

import carre
from carre import progress
from carre.fields import ExactField
from carre.manifolds import Sphere
from carre.sketch import Stroke, card, picture
from carre.toolkit import DimensionEstimate, ScaleProfile, choose_bandwidth
from carre.training import Evaluation, History

CELLS = [
    """
    import sys, warnings
    import carre
    from carre import progress
    from carre.manifolds import Sphere
    X = Sphere(2).sample(40)
    geometry = carre.Geometry(carre.ExactField(Sphere(2)), 0.1, (0.05, 0.2), landmarks=X, rank=3)
    some = geometry.dimension(X)
    """,
    """
    progress._SECONDS = 0.0
    some = geometry.dimension(X)
    """,
    """
    # No widgets here.
    sys.modules["ipywidgets"] = None
    for name in [name for name in sys.modules if name.startswith("tqdm")]:
        del sys.modules[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        some = geometry.tangent_basis(X, 1)
    """,
    "geometry",
    "geometry.history",
    "geometry.at(X)",
    "geometry.estimate_dimension(X)",
    "carre.Path.through(X[:4])",
]


@pytest.mark.slow
def test_a_kernel_shows_bars_and_results():
    """The first bar is a widget; without ipywidgets it is one of text, and no advice about that."""
    cells = ["\n".join(line.removeprefix("    ") for line in cell.strip("\n").splitlines()) for cell in CELLS]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(book, timeout=60).execute()
    quick, widget, text, *results = (cell.outputs for cell in book.cells)
    assert not quick, "work of a moment leaves nothing"
    assert "application/vnd.jupyter.widget-view+json" in widget[0].data
    assert "dimension:" in widget[0].data["text/plain"]
    models = book.metadata.widgets["application/vnd.jupyter.widget-state+json"].state.values()
    (moved,) = [model.state for model in models if model.model_name == "FloatProgressModel"]
    assert (moved["value"], moved["bar_style"]) == (100, "success")
    written = "".join(output.text for output in text)
    assert "tangent bases: 100%" in written
    assert "Warning" not in written
    for outputs, name in zip(results, ("Geometry", "History", "Local", "DimensionEstimate", "Path"), strict=True):
        data = outputs[-1].data
        assert data["text/plain"].startswith(f"{name}(")
        assert len(data["text/plain"]) < 200
        assert data["text/html"].startswith("<div")


@pytest.fixture
def profile():
    field, samples = ExactField(Sphere(2)), Sphere(2).sample(50)
    return choose_bandwidth(field, samples, [0.05, 0.1, 0.2], generator=torch.Generator().manual_seed(0))


@pytest.fixture
def history():
    looks = [Evaluation(step, 1.0, 0.9, 0.4, -step / 100, gain=(0.9,)) for step in (100, 200, 300)]
    return History((0.3,), (0.9,), looks, "done", 12.0, 300, 1, 0.01, 0.001)


@pytest.fixture
def geometry(profile, history):
    field = ExactField(Sphere(2))
    names = ("<script>alert(1)</script>", "b", "\u202ec")
    return carre.Geometry(
        field,
        0.1,
        (0.05, 0.2),
        landmarks=Sphere(2).sample(50),
        rank=3,
        n_samples=50,
        feature_names=names,
        scale_profile=profile,
        history=history,
    )


class Checked(HTMLParser):
    """Every tag is closed, in its turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.all = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.all.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def svg(text):
    return ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])


def strokes(text):
    tag = "{http://www.w3.org/2000/svg}polyline"
    return [
        np.array([[float(number) for number in point.split(",")] for point in line.get("points").split()])
        for line in svg(text).iter(tag)
    ]


def test_a_geometry_says_what_is_known_of_it(geometry, history):
    assert repr(geometry) == (
        "Geometry(samples 50 with 3 columns, σ 0.1 of 0.05 to 0.2, dimension about 2, rank 3, training done)"
    )
    html = geometry._repr_html_()
    assert {"div", "svg"} <= set(Checked(html).all)
    assert history.outlook in html
    assert geometry.scale_profile.reason in html


def test_names_that_are_not_ours_are_text(geometry):
    html = geometry._repr_html_()
    assert "script" not in Checked(html).all
    assert "&lt;script&gt;" in html
    assert "\u202e" not in html


def test_the_picture_of_a_geometry_has_an_eigenvalue_per_line_and_marks_the_scale(geometry, profile):
    """On S² two eigenvalues are near 1 and one near 0 at every σ: two lines high up and one at the bottom."""
    html = geometry._repr_html_()
    *high, low = sorted(strokes(html), key=lambda line: line[:, 1].mean())
    assert len(high) == 2
    bottom, top = 156, 34
    assert max(line[:, 1].max() for line in high) < top + 0.1 * (bottom - top)
    assert low[:, 1].min() > bottom - 0.1 * (bottom - top)
    np.testing.assert_allclose(
        np.diff(low[:, 0], 2), 0, atol=0.2, err_msg="σ doubles: as far apart on a logarithmic axis"
    )
    sigma = profile.bandwidth[profile.chosen]
    assert f"σ = {sigma:.3g}" in html
    # Its dashed line stands where the lines have their node at that scale.
    (dashed,) = [path for path in svg(html).iter("{http://www.w3.org/2000/svg}path") if path.get("stroke-dasharray")]
    assert float(dashed.get("d")[1:].split()[0]) == pytest.approx(low[profile.chosen, 0], abs=0.1)


def test_what_training_did_not_resolve_has_no_dimension(geometry):
    look = Evaluation(100, 1.0, 0.9, 0.4, -1.0, gain=(0.1,))
    bad = carre.Geometry(**vars_of(geometry) | {"history": History((0.3,), (0.9,), [look], "done", 1.0, 100, 0)})
    assert "dimension not resolved" in repr(bad)
    assert "linear phase" in bad._repr_html_()


def vars_of(geometry):
    return {name: value for name, value in vars(geometry).items() if not name.startswith("_")}


def test_a_field_is_not_asked_for_its_picture(geometry, monkeypatch):
    def ask(*given):
        pytest.fail("something was computed")

    monkeypatch.setattr(ExactField, "metric", ask)
    monkeypatch.setattr(ExactField, "denoise", ask)
    local = geometry.at(Sphere(2).sample(4))
    assert "nothing yet" in local._repr_html_()
    assert geometry._repr_html_()
    assert repr(local) == "Local(4 points, σ = 0.1)"


def test_bars_of_dimensions_are_as_high_as_their_shares():
    counts = np.array([1, 2, 2, 2])
    estimate = DimensionEstimate(counts, counts, counts, 2, (2, 2), 1.75, 0.25, {1: 0.25, 2: 0.75}, 0.1)
    first, second = strokes(estimate._repr_html_())
    assert np.ptp(first[:, 1]) == pytest.approx(np.ptp(second[:, 1]) / 3, abs=0.2)
    assert repr(estimate).startswith("DimensionEstimate(dimension 2 at σ = 0.1")


def test_the_loss_falls_in_the_picture_of_a_history(history):
    """Steps 100, 200, 300 and losses -1, -2, -3: a straight line downwards; the second one was kept."""
    (line,) = strokes(history._repr_html_())
    np.testing.assert_allclose(np.diff(line, 2, axis=0), 0, atol=0.2)
    assert (np.diff(line[:, 1]) > 0).all(), "downwards on a page"
    assert repr(history) == "History(300 steps in 12 s, ended: done)"


def test_a_map_of_paths_keeps_lengths():
    """A right angle in space, turned anyhow: its legs 3 and 1 are as 3 to 1 in the plane of the picture."""
    turn = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    path = carre.Path.through(torch.tensor([[0.0, 0], [3, 0], [3, 1]], dtype=torch.float64) @ turn[:2])
    line, _ = strokes(path._repr_html_())
    legs = np.linalg.norm(np.diff(line, axis=0), axis=1)
    assert legs[0] / legs[1] == pytest.approx(3, rel=0.01)
    assert "not examined" in path._repr_html_()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_leave_a_gap_and_no_error(odd, profile):
    assert len(strokes(picture("t", [Stroke([1, 2, 3], [1, odd, 2])], x_ticks={}, y_ticks={}))[0]) == 2
    assert carre.Path.through(np.zeros((1, 3, 2)))._repr_html_()
    values = np.full_like(profile.eigenvalues, odd)
    columns = {name: getattr(profile, name) for name in ("bandwidth", "idempotency", "gap", "calibration", "chosen")}
    assert ScaleProfile(eigenvalues=values, reason="", **columns)._repr_html_()
    losses = [Evaluation(step, 1.0, odd, odd, odd, gain=()) for step in (1, 2)]
    for empty in (History(), History(evaluations=losses, kept=0)):
        assert Checked(empty._repr_html_())


def test_a_card_without_facts_is_still_one():
    assert "svg" not in Checked(card("title", {"nothing": ""})).all


def test_the_bar_of_a_program_that_nobody_watches_is_for_its_log(caplog, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    with caplog.at_level("INFO", logger="carre"), progress.progress_bar("count") as tell:
        for step in range(11):
            tell(step / 10)
    assert [record.message for record in caplog.records][-1] == "count: 100% after 0 s"
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_a_library_is_silent_unless_it_is_asked(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    with progress.progress_bar("count") as tell:
        tell(1.0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("stream", ["None", "closed"])
def test_a_program_without_a_console_works_on(monkeypatch, stream):
    lost = None if stream == "None" else open(sys.executable, "rb")  # noqa: SIM115
    if lost is not None:
        lost.close()
    monkeypatch.setattr(sys, "stderr", lost)
    with progress.progress_bar("count") as tell:
        tell(0.5)


def test_a_worker_process_draws_no_bar(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert progress._kind_of_bar() is not None
    monkeypatch.setattr("multiprocessing.parent_process", object)
    assert progress._kind_of_bar() is None
