"""The commands answer what the library answers, in every format, and keep the other columns."""

import json
from dataclasses import replace

import numpy as np
import pytest

import carre
from carre.data import load_table
from tests.cli.conftest import N

pytestmark = pytest.mark.slow

FORMATS = ["points.csv", "points.parquet", "points.npy"]


@pytest.fixture
def geometry(here):
    return carre.load("./model", device="cpu")


@pytest.fixture
def circle(here):
    return np.load("points.npy")


@pytest.mark.parametrize("data", FORMATS)
def test_the_dimension_is_that_of_the_library_in_whatever_order_columns_come(run_json, geometry, circle, data):
    answer = run_json("dimension", "model", data, "--sigma", "0.3")
    estimate = geometry.estimate_dimension(circle, 0.3)
    assert (answer["value"], answer["mean"], answer["n"]) == (estimate.value, estimate.mean, 120)


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "npz", "npy"])
def test_the_dimension_at_each_point_is_written_with_the_other_columns(run, tmp_path, geometry, circle, ending):
    out = tmp_path / f"answer.{ending}"
    run("dimension", "model", "points.csv", "--sigma", "0.3", "--out", out)
    expected = geometry.dimension(circle, 0.3)
    if ending == "npy":
        np.testing.assert_array_equal(np.load(out), expected)
        return
    if ending == "json":
        answer = json.loads(out.read_text())
    elif ending == "npz":
        answer = dict(np.load(out))
    else:
        table = load_table(out)
        answer = dict(table.other) | {name: table.values[:, i] for i, name in enumerate(table.names)}
    np.testing.assert_array_equal(answer["dimension"], expected)
    np.testing.assert_array_equal(answer["kind"], ["a", "b"] * 60)
    assert {"dimension_low", "dimension_high", "energy"} <= set(answer)


def test_an_answer_takes_the_place_of_a_column_of_its_name(run, tmp_path):
    (tmp_path / "own.csv").write_text("x,y,dimension\n1,0,77\n0,1,77\n")
    run("dimension", "model", tmp_path / "own.csv", "--out", tmp_path / "answer.npz")
    with np.load(tmp_path / "answer.npz") as answer:
        assert set(answer) == {"dimension", "dimension_low", "dimension_high"}
        assert answer["dimension"].max() <= 2


def test_one_point_has_a_mean_without_an_error(run):
    text = run("dimension", "model", "one.csv").stdout
    assert "mean" in text
    assert "±" not in text
    assert "nan" not in text


def test_one_coordinate_is_not_several(run, tmp_path):
    plan = run("fit", "points.csv", "--columns", "x", "--out", tmp_path / "model", "--dry-run").stdout
    assert "120 samples with 1 coordinate\n" in plan


def test_tangents_are_arrays_or_a_column_for_each_coordinate(run, tmp_path, geometry, circle):
    expected = geometry.tangent_basis(circle, 2)
    run("tangent", "model", "points.csv", "--dim", "2", "--out", tmp_path / "tangent.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "tangent.npy"), expected)
    run("tangent", "model", "points.csv", "--dim", "2", "--out", tmp_path / "tangent.csv")
    table = load_table(tmp_path / "tangent.csv", drop=["energy"])
    assert table.names == ("tangent1_x", "tangent1_y", "tangent2_x", "tangent2_y")
    np.testing.assert_array_equal(table.values.reshape(-1, 2, 2), expected.swapaxes(1, 2))


def test_what_is_denoised_looks_like_the_data(run, tmp_path, geometry, circle):
    run("denoise", "model", "points.parquet", "--out", tmp_path / "clean.csv")
    table = load_table(tmp_path / "clean.csv", columns=["x", "y"])
    np.testing.assert_array_equal(table.values, geometry.denoise(circle))
    assert list(table.other) == ["kind", "energy"]


def test_a_gradient_is_of_a_column_or_of_values_in_a_file(run, tmp_path, geometry, circle):
    expected = geometry.gradient_of_values(circle, circle[:, 0] ** 2, circle)
    run("gradient", "model", "points.csv", "--of", "energy", "--out", tmp_path / "gradient.csv")
    table = load_table(tmp_path / "gradient.csv", drop=["energy"])
    assert table.names == ("gradient_x", "gradient_y")
    np.testing.assert_allclose(table.values, expected, rtol=1e-12)
    run("gradient", "unnamed", "points.npy", "--values", "energy.npy", "--out", tmp_path / "gradient.npy")
    assert np.load(tmp_path / "gradient.npy").shape == (120, 2)


def test_a_geometry_without_names_leaves_the_quantity_out_of_the_coordinates(run, tmp_path):
    run("gradient", "unnamed", "points.csv", "--of", "energy", "--out", tmp_path / "gradient.csv")
    run("dimension", "unnamed", "points.csv", "--columns", "x,y")


@pytest.mark.parametrize("method", ["geodesic", "flow", "thread", "straight"])
def test_a_path_goes_from_one_row_to_another(run, run_json, tmp_path, geometry, circle, method):
    out = tmp_path / "path.csv"
    answer = run_json("path", "model", 3, 17, "--data", "points.csv", "--method", method, "--nodes", 5, "--out", out)
    table = load_table(out)
    assert table.names == ("x", "y", "time")
    assert table.shape == (5, 3)
    off = np.linalg.norm(table.values[[0, -1], :2] - circle[[3, 17]], axis=1) / geometry.bandwidth
    # A geodesic runs between foot points, and says how far these are; others begin and end where they should.
    np.testing.assert_allclose(off, answer["ends_off"] if method == "geodesic" else [0, 0], atol=1e-4)
    assert table.values[[0, -1], 2].tolist() == [0, 1]
    path = geometry.path(circle[3], circle[17], method=method, n_nodes=5)
    assert answer["length"] == pytest.approx(float(path.length()), rel=1e-5)
    assert answer["length"] == pytest.approx(float(carre.Path.through(table.values[:, :2]).length()), rel=1e-5)


@pytest.mark.parametrize(
    ("ends", "options", "rows"),
    [
        ((3, 17), [], (3, 17)),
        (("p003", " p017"), ["--id", "name"], (3, 17)),
        ((53, 67), ["--id", "patient"], (3, 17)),
        (("p003", "p017"), ["--id", "friend"], (N - 3, N - 17)),
        (("p000", 17), [], (0, 17)),  # nobody's friend
    ],
    ids=["numbers", "names", "numbers of their own", "another column", "the only column with it"],
)
@pytest.mark.parametrize("model", ["model", "unnamed"])
def test_a_path_goes_between_rows_by_their_ids(run, tmp_path, circle, model, ends, options, rows):
    out = tmp_path / "path.npy"
    # Numbers that name rows are no coordinates, also where columns are not chosen.
    columns = ["--columns", "x,y"] if model == "unnamed" and "patient" not in options else []
    more = [*options, *columns, "--method", "straight", "--nodes", 2, "--out", out]
    shown = run("path", model, *ends, "--data", "people.csv", *more).stdout
    np.testing.assert_allclose(np.load(out), circle[list(rows)], atol=1e-6)
    assert f"row {rows[0]}" in shown


def test_a_column_called_time_is_not_lost(run, tmp_path, circle):
    carre.data.write_table(tmp_path / "timed.csv", {"time": circle[:, 0], "y": circle[:, 1]})
    carre.save(replace(carre.load("./unnamed"), feature_names=("time", "y")), tmp_path / "timed")
    out = tmp_path / "path.csv"
    run(
        "path",
        tmp_path / "timed",
        0,
        1,
        "--data",
        tmp_path / "timed.csv",
        "--nodes",
        2,
        "--out",
        out,
        "--method",
        "straight",
    )
    table = load_table(out)
    assert table.names == ("time", "y", "time_along")
    np.testing.assert_allclose(table.values[:, 0], circle[:2, 0], atol=1e-6)


def test_a_path_goes_between_coordinates(run, tmp_path):
    straight = ("--method", "straight")
    run("path", "model", *straight, "--nodes", 3, "--out", tmp_path / "path.npy", "--", "-1,0", "0,1")
    np.testing.assert_allclose(np.load(tmp_path / "path.npy")[[0, -1]], [[-1, 0], [0, 1]], atol=1e-6)


def test_images_are_answered_by_images_with_their_labels(run, tmp_path):
    geometry = carre.load("mnist", device="cpu")
    with np.load("images.npz") as content:
        # Read by its reader, pixels have 256 levels.
        images = geometry.normalization.encode(np.rint(content["images"] * 255).astype(np.uint8)[:, None])
    run("denoise", "mnist", "images.npz", "--sigma", "1", "--out", tmp_path / "clean.npz")
    with np.load(tmp_path / "clean.npz") as content:
        np.testing.assert_allclose(content["denoised"], geometry.to_pixels(geometry.denoise(images, 1.0)), atol=1e-5)
        assert content["label"].tolist() == [0, 1]


def test_a_report_is_told_what_the_columns_are(run, tmp_path, monkeypatch):
    calls = []

    def report(geometry, X, path, **options):
        calls.append((X.shape, path.name, options))
        return path

    monkeypatch.setattr("carre.report.write_report", report)
    more = ["--labels", "kind", "--pair", "0,5", "--pair", "1,2", "--title", "Circle", "--image-shape", "1x2"]
    run("report", "model", "points.csv", "-o", tmp_path / "page.html", *more)
    ((shape, name, options),) = calls[:1]
    assert (shape, name) == ((120, 2), "page.html")
    assert options["labels"] == "kind"
    assert options["columns"]["kind"].tolist() == ["a", "b"] * 60
    assert set(options["columns"]) == {"kind", "energy"}
    assert options["pairs"] == [(0, 5), (1, 2)]
    run("report", "model", "people.csv", "-o", tmp_path / "page.html", "--id", "patient", "--pair", "50,55")
    assert calls[1][2]["pairs"] == [(0, 5)]
    assert (options["title"], options["image_shape"]) == ("Circle", (1, 2))
    assert options["command"].startswith("carre report model points.csv")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_report_is_a_page(run, tmp_path):
    run("report", "model", "points.csv", "-o", tmp_path / "page.html", "--labels", "kind", "--pair", "0,5")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") or "<html" in page
    assert "<img " in page or "<svg" in page


def test_info_knows_the_machine_and_the_model(run_json):
    assert run_json("info")["shipped_models"] == ["mnist"]
    facts = run_json("info", "model")
    assert (facts["columns"], facts["bandwidth"], facts["steps"]) == (["x", "y"], 0.3, 5)
    assert run_json("info", "mnist")["data"] == "images of shape (1, 28, 28)"
