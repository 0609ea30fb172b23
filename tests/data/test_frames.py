"""Data frames of pandas and polars, and AnnData: columns by name, answers by name, errors that name cells."""

import sys
from dataclasses import replace

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch

import carre
from carre.boundary import ArgumentError
from carre.data import CellError, from_anndata, load_samples
from carre.fields import ExactField
from carre.manifolds import Sphere
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")

INDEX = [f"row{i}" for i in range(60)]
FRAME = pd.DataFrame(circle(60), columns=["x", "y", "z"], index=INDEX)


SPHERE = Sphere(2)
POINTS = SPHERE.sample(60, generator=torch.Generator().manual_seed(0)).double().numpy()
PEOPLE = pd.DataFrame(POINTS, [f"p{i}" for i in range(60)], ["height", "width", "depth"])


def spoiled(values, what=np.nan):
    values = values.copy()
    values[7, 1] = what
    return values


def in_polars(frame):
    return pl.DataFrame({name: frame[name].to_numpy() for name in frame.columns})


@pytest.fixture(scope="module")
def exact():
    landmarks, names = torch.as_tensor(POINTS), tuple(PEOPLE.columns)
    more = {"landmarks": landmarks, "rank": 3, "feature_names": names, "verbose": False}
    return carre.Geometry(ExactField(SPHERE), 0.1, (0.05, 0.5), **more)


@pytest.fixture(scope="module")
def geometry():
    return carre.fit(FRAME, bandwidth=0.2, **TINY)


def test_what_came_in_named_comes_out_named(geometry):
    dimension, clean = geometry.dimension(FRAME), geometry.denoise(FRAME)
    assert isinstance(dimension, pd.Series)
    assert list(dimension.index) == INDEX
    assert isinstance(clean, pd.DataFrame)
    assert list(clean.columns) == ["x", "y", "z"]
    assert list(clean.index) == INDEX
    np.testing.assert_array_equal(clean.to_numpy(), geometry.denoise(FRAME.to_numpy()))
    slope = geometry.gradient(lambda x: x[:, 0], FRAME)
    assert list(slope.columns) == ["x", "y", "z"]
    assert isinstance(geometry.at(FRAME).dimension, pd.Series)
    assert isinstance(geometry.check(FRAME).valid, pd.Series)
    estimate = geometry.estimate_dimension(FRAME)
    assert isinstance(estimate.value, int)
    for each in (estimate.local, estimate.low, estimate.high):
        assert list(each.index) == INDEX
    assert geometry.recommend_rank(FRAME).rank >= 1


ANSWERS = {
    "dimension": lambda g, x, v: g.dimension(x),
    "eigenvalues": lambda g, x, v: g.eigenvalues(x),
    "tangent_basis": lambda g, x, v: g.tangent_basis(x, 2),
    "tangent_angles": lambda g, x, v: g.tangent_angles(x, x, dimension=2),
    "column_shares": lambda g, x, v: g.at(x).column_shares(2),
    "project": lambda g, x, v: g.project(x, v),
    "distance_from_data": lambda g, x, v: g.distance_from_data(x),
    "gradient": lambda g, x, v: g.gradient(lambda y: y[:, 0], x),
    "gradient_of_values": lambda g, x, v: g.gradient_of_values(x, np.arange(4.0), x),
    "laplacian": lambda g, x, v: g.laplacian(lambda y: y[:, 0], x),
    "mean": lambda g, x, v: g.curvature(x, dimension=2).mean,
    "scalar": lambda g, x, v: g.curvature(x, dimension=2).scalar,
    "minimum": lambda g, x, v: g.minimize(lambda y: y[:, 0], x, max_steps=2).points,
    "value": lambda g, x, v: g.minimize(lambda y: y[:, 0], x, max_steps=2).values,
    "denoised": lambda g, x, v: g.at(x).denoised,
    "local": lambda g, x, v: g.at(x).tangent_basis(1),
    **{
        name: lambda g, x, v, name=name: getattr(g.check(x), name)
        for name in ("distance", "valid", "agrees", "near_data", "gap")
    },
}
VECTORS = ("column_shares", "project", "gradient", "gradient_of_values", "mean", "minimum", "denoised")


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_that_of_arrays_with_the_names_of_frames(exact, name):
    some = PEOPLE.iloc[[9, 3, 30, 7]]
    expected = ANSWERS[name](exact, some.to_numpy(), POINTS[:4])
    answer = ANSWERS[name](exact, some, pd.DataFrame(POINTS[:4], some.index, some.columns))
    in_other = ANSWERS[name](exact, in_polars(some), in_polars(PEOPLE.iloc[:4]))
    assert isinstance(expected, np.ndarray)
    assert isinstance(answer, pd.Series if expected.ndim == 1 else pd.DataFrame)
    np.testing.assert_allclose(np.asarray(answer).reshape(expected.shape), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.asarray(in_other), expected, rtol=1e-9, atol=1e-12)
    if expected.ndim == 3:
        pd.testing.assert_index_equal(answer.index, pd.MultiIndex.from_product([some.index, some.columns]))
        np.testing.assert_allclose(answer.loc["p3"].to_numpy(), expected[1], rtol=1e-9, atol=1e-12)
        return
    pd.testing.assert_index_equal(answer.index, some.index)
    assert isinstance(in_other, pl.Series if expected.ndim == 1 else pl.DataFrame)
    if expected.ndim == 2:
        columns = list(some.columns) if name in VECTORS else range(len(expected.T))
        assert list(answer.columns) == list(columns)
        assert in_other.columns == list(map(str, columns))


@pytest.mark.filterwarnings("ignore:.*still shortening:UserWarning")
def test_answers_about_pairs_have_the_labels_of_both_sides(exact):
    first, second, few = PEOPLE.iloc[:1], PEOPLE.iloc[10:13], {"n_nodes": 3, "max_sweeps": 1}
    found = exact.distances(first, second, **few)
    pd.testing.assert_index_equal(found.index, first.index)
    pd.testing.assert_index_equal(found.columns, second.index)
    pd.testing.assert_index_equal(exact.distances(first, **few).columns, first.index)
    assert exact.distances(in_polars(first), second.to_numpy()[:2], **few).columns == ["0", "1"]
    for ends in ((PEOPLE.loc["p0"], second), (second, POINTS[0])):
        vectors = exact.logarithm(*ends, **few)
        pd.testing.assert_index_equal(vectors.index, second.index)
        assert list(vectors.columns) == list(PEOPLE.columns)


def test_a_kernel_that_cannot_tell_speaks_against_no_point_of_polars(exact):
    found = exact.check(in_polars(PEOPLE[:4]))
    assert found.disagreement.is_nan().all(), "60 samples are too few for a kernel of σ = 0.1"
    assert found.valid.to_list() == exact.check(POINTS[:4]).valid.tolist()


def test_column_shares_are_the_diagonal_of_the_projector_whatever_the_units(exact):
    """On a sphere the tangent projector is I − nnᵀ; scaled columns are taken as scaled."""
    shares = exact.at(PEOPLE).column_shares(2)
    np.testing.assert_allclose(shares, 1 - POINTS**2, atol=1e-9)
    units = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    wide = replace(exact, units=units, landmarks=exact.landmarks * units)
    np.testing.assert_allclose(wide.at(PEOPLE * units.numpy()).column_shares(2), shares, atol=1e-9)


class TestPathsAsFrames:
    def test_one_has_its_nodes_and_several_are_told_apart(self, exact):
        path = exact.path(PEOPLE.iloc[:2], PEOPLE.iloc[5:7], n_nodes=5, method="straight")
        frame = path.frame()
        assert frame.index.names == ["path", "node"]
        assert list(frame.columns) == ["height", "width", "depth", "time"]
        np.testing.assert_array_equal(frame.loc[1].to_numpy()[:, :3], path.numpy()[1])
        np.testing.assert_allclose(frame["time"].loc[1], np.linspace(0, 1, 5), atol=1e-9)
        one = path[1:].frame()
        assert one.index.name == "node"
        np.testing.assert_array_equal(one, frame.loc[1])

    def test_columns_of_the_fit_are_known_and_others_numbered(self, exact):
        assert list(exact.path(POINTS[0], POINTS[1], method="straight").frame().columns) == [*PEOPLE.columns, "time"]
        assert list(exact.exponential(POINTS[:1], POINTS[1:2], n_steps=2).frame().columns) == [*PEOPLE.columns, "time"]
        path = carre.Path.through(POINTS[:3])
        assert list(path.frame().columns) == [0, 1, 2, "time"]
        assert list(replace(path, columns=("x", "time", "z")).frame().columns) == ["x", "time", "z", "time_along"]

    def test_time_is_the_share_of_the_way_in_the_units_of_lengths(self):
        path = carre.Path.through([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]]).in_units(torch.tensor([1.0, 100.0]))
        np.testing.assert_allclose(path.frame()["time"], [0, 0.75, 1])
        assert carre.Path.through([[1.0], [1.0]]).times().tolist() == [[0, 0]]

    def test_pandas_is_asked_for_by_name(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match="needs pandas; run: pip install pandas"):
            carre.Path.through(POINTS[:2]).frame()


class TestARowAsAPoint:
    def test_its_labels_say_which_columns_they_are(self, exact):
        rows = PEOPLE.assign(kind="oak")
        straight = {"n_nodes": 2, "method": "straight"}
        expected = POINTS[None, [3, 9]]
        for start in (PEOPLE.loc["p3"], PEOPLE.loc["p3"][::-1], rows.loc["p3"]):
            np.testing.assert_array_equal(exact.path(start, rows.loc["p9"], **straight), expected)
        np.testing.assert_array_equal(exact.path(pl.Series(POINTS[3]), POINTS[9], **straight), expected)

    def test_others_are_refused(self, exact):
        with pytest.raises(ArgumentError, match=r"the columns of the fit, .* none called depth. Is it 'Depth'\\?"):
            exact.path(PEOPLE.loc["p3"].rename({"depth": "Depth"}), POINTS[9])
        with pytest.raises(ArgumentError, match="start must have the columns of the fit"):
            exact.path(PEOPLE["height"], POINTS[9])
        with pytest.raises(ArgumentError, match=r"points must have rows and columns; got a Series"):
            exact.dimension(PEOPLE.loc["p3"])
        with pytest.raises(ArgumentError, match=r"start must hold numbers; got 'p3'.* frame.loc\[name\]"):
            exact.path("p3", "p9")


class Scales(np.ndarray):
    """What a Series of scales is, for annotations that are checked."""

    @classmethod
    def in_other_order(cls):
        scales = np.full(60, 0.1).view(cls)
        scales.index = PEOPLE.index[::-1]
        return scales


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda g: g.dimension(POINTS[:, :2]),
            r"3 columns, like the samples of the fit \(height, width, depth\); got 2",
        ),
        (lambda g: g.dimension(spoiled(POINTS)), r"1 row \(7, from 0\): the first is NaN, in column 'width'. Leave"),
        (
            lambda g: g.path(POINTS[0], [1.0, np.inf, 0.0]),
            r"\(0, from 0\): .* infinite, in column 'width'.* fill them in$",
        ),
        (lambda g: g.dimension(7), "points must have shape .* Give points, not their numbers"),
        (lambda g: g.project(PEOPLE, PEOPLE[::-1]), "vectors must have its rows in the order of points; got the same"),
        (lambda g: g.at(PEOPLE, Scales.in_other_order()), r"bandwidth must .* Use bandwidth.loc\[points.index\]"),
        (lambda g: g.dimension(PEOPLE, Scales.in_other_order()), "bandwidth must have its rows in the order"),
        (lambda g: g.gradient_of_values(PEOPLE, PEOPLE["width"][::-1], PEOPLE), r"Use values.loc\[samples.index\]"),
        (
            lambda g: g.gradient_of_values(PEOPLE, spoiled(POINTS)[:, 1], PEOPLE),
            r"in 1 row \(7, from 0\): the first is NaN",
        ),
    ],
)
def test_a_question_that_cannot_be_answered_is_named_by_row_and_column(exact, ask, message):
    with pytest.raises(ArgumentError, match=message):
        ask(exact)


def test_pairs_of_points_need_not_have_the_order_of_each_other(exact):
    two = PEOPLE.iloc[:2]
    np.testing.assert_allclose(exact.path(two, two[::-1], method="straight").numpy()[:, -1], two.to_numpy()[::-1])
    assert exact.tangent_angles(two, two[::-1], dimension=2).shape == (2, 2)


def test_columns_are_found_by_name_whatever_their_order(geometry):
    shuffled = FRAME[["z", "x", "y"]].assign(kind="a")
    pd.testing.assert_frame_equal(geometry.denoise(shuffled), geometry.denoise(FRAME))
    with pytest.raises(ArgumentError, match="points must have the columns of the fit, x, y, z; got none called z"):
        geometry.denoise(FRAME[["x", "y"]])


def test_polars_is_taken_by_name(geometry):
    frame = pl.DataFrame({name: FRAME[name].to_numpy() for name in ("y", "z", "x")})
    np.testing.assert_array_equal(geometry.denoise(frame), geometry.denoise(FRAME.to_numpy()))
    fitted = carre.fit(frame, bandwidth=0.2, **TINY)
    assert fitted.feature_names == ("y", "z", "x")
    with pytest.raises(ArgumentError, match="X must hold numbers; got text or other things in 'kind'"):
        carre.fit(frame.with_columns(kind=pl.lit("a")))


def test_integers_truth_values_and_nullable_columns_are_numbers():
    frame = FRAME.assign(y=pd.array(range(60), dtype="Int64"), z=FRAME["x"] > 0).astype({"x": "float32"})
    fitted = carre.fit(frame, bandwidth=0.2, **TINY)
    assert fitted.landmarks.shape == (60, 3)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            FRAME.assign(kind="oak", day=pd.Timestamp("2020-01-01")),
            r"in 'kind', 'day'. Choose .* X\[\['x', 'y', 'z'\]\]",
        ),
        (
            FRAME.where(FRAME.index.to_series() != "row7", np.nan),
            r"3 cells that are not, in 1 row \('row7'\): the first is missing, .* 'x'",
        ),
        (
            FRAME.assign(y=pd.array([None] + [1] * 59, dtype="Int64")),
            r"1 cell that is not, .* the first is missing, in column 'y'",
        ),
        (FRAME.replace({"y": {FRAME["y"].iloc[3]: np.inf}}), r"\('row3'\): the first is infinite, in column 'y'"),
        (pd.concat([FRAME, FRAME[["x"]]], axis=1), "different names of columns; got 'x' twice"),
        (
            spoiled(FRAME.to_numpy()),
            r"1 cell that is not, in 1 row \(7, from 0\): the first is NaN, in column 1. Leave",
        ),
        (
            torch.as_tensor(spoiled(FRAME.to_numpy(), np.inf)),
            r"1 row \(7, from 0\): the first is infinite, in column 1",
        ),
        (spoiled(FRAME.to_numpy()).tolist(), r"1 row \(7, from 0\): the first is NaN, in column 1"),
        (carre.Table(spoiled(FRAME.to_numpy()), ("x", "y", "z")), r"\(7, from 0\): the first is NaN, in column 'y'"),
        (FRAME["x"], r"X must have rows and columns; got a Series. Give X.to_frame\(\), transposed if it is a row"),
        ([[1.0, 2.0], [3.0], [4.0, 5.0]], r"got 1 in row 1 \(from 0\), and 2 in the first. Rows must be equally long"),
        ([[1.0, 2.0], [3.0, {}]], r"got a dict at \(1, 1\)"),
        (np.array([[1.0, "oak"]], dtype=object), r"got the text 'oak' at \(0, 1\)"),
        (np.array([["oak", "elm"]]), "got text, such as 'oak'"),
    ],
    ids=[
        "text",
        "missing",
        "nullable",
        "infinite",
        "twice",
        "array",
        "tensor",
        "list",
        "table",
        "series",
        "uneven",
        "object",
        "text-in-objects",
        "text-array",
    ],
)
def test_what_cannot_be_used_is_named_by_row_and_column(frame, message):
    with pytest.raises(ArgumentError, match=message):
        carre.fit(frame)
    if not isinstance(frame, (torch.Tensor, carre.Table)):
        with pytest.raises(ArgumentError, match=message):
            carre.MetricMatching().fit(frame)


@pytest.fixture
def cells():
    counts = scipy.sparse.csr_matrix(np.abs(np.round(10 * circle(50))))
    made = anndata.AnnData(counts, obs=pd.DataFrame({"day": range(50), "kind": ["a", "b"] * 25}, index=INDEX[:50]))
    made.var_names = ["ESR1", "TP53", "MYC"]
    made.obsm["X_pca"] = circle(50, ambient=4)
    made.layers["log"] = np.log1p(counts.toarray())
    return made


def test_a_matrix_of_anndata_is_a_table(cells):
    table = from_anndata(cells, "X_pca")
    np.testing.assert_array_equal(table.values, cells.obsm["X_pca"])
    assert table.names == ("X_pca0", "X_pca1", "X_pca2", "X_pca3")
    assert table.other["kind"].tolist() == ["a", "b"] * 25
    assert table.other["obs_names"].tolist() == INDEX[:50]
    assert from_anndata(cells, "log").names == ("ESR1", "TP53", "MYC")
    np.testing.assert_array_equal(from_anndata(cells).values, cells.X.toarray())
    assert carre.fit(table, bandwidth=0.2, **TINY).feature_names == table.names


def test_anndata_is_read_from_its_file(cells, tmp_path):
    cells.strings_to_categoricals()
    with anndata.settings.override(allow_write_nullable_strings=True):
        cells.write_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(load_samples(f"{tmp_path}/cells.h5ad::X_pca").values, cells.obsm["X_pca"])
    np.testing.assert_array_equal(load_samples(tmp_path / "cells.h5ad").values, cells.X.toarray())
    np.testing.assert_array_equal(load_samples(f"{tmp_path}/cells.h5ad::log").values, cells.layers["log"])
    (tmp_path / "bad.h5ad").write_bytes(b"no")
    with pytest.raises(carre.data.DamagedFileError, match=r"bad\.h5ad cannot be read as AnnData"):
        load_samples(tmp_path / "bad.h5ad")
    with pytest.raises(ArgumentError, match="must be left out for AnnData"):
        load_samples(tmp_path / "cells.h5ad", columns=["ESR1"])


def test_anndata_as_it_is_is_refused_with_its_keys(cells):
    with pytest.raises(ArgumentError, match=r"X must be a matrix; got an AnnData.* key of obsm \('X_pca'\)"):
        carre.fit(cells)
    with pytest.raises(ArgumentError, match="key must be one of X_pca, log, or None for X; got 'X_umap'"):
        from_anndata(cells, "X_umap")


class TestWhatLooksLikeAColumnOfNumbers:
    def test_categories_are_none_even_if_numbers_name_them(self):
        with pytest.raises(ArgumentError, match="got text or other things in 'k'"):
            carre.fit(FRAME.assign(k=pd.Categorical(np.arange(60) % 3)))

    def test_objects_that_are_numbers_are(self):
        kept = carre.fit(FRAME.astype(object), bandwidth=0.2, **TINY)
        np.testing.assert_array_equal(kept.landmarks, carre.fit(FRAME, bandwidth=0.2, **TINY).landmarks)
        with pytest.raises(ArgumentError, match="got text or other things in 'x'"):
            carre.fit(FRAME.astype({"x": str}).astype(object))


@pytest.mark.parametrize(
    ("spoiled", "remedy"),
    [
        (FRAME.mask(FRAME.index.to_series() == "row7"), "dropna"),
        (FRAME.replace({"y": {FRAME["y"].iloc[3]: np.inf}}), "isfinite"),
        (pl.DataFrame({"x": [1.0, None, float("nan")], "y": [1.0, 2.0, 3.0]}), "drop_nulls().drop_nans"),
        (pl.DataFrame({"x": [1.0, float("inf"), 2.0], "y": [1.0, 2.0, 3.0]}), "all_horizontal"),
    ],
    ids=["pandas missing", "pandas infinite", "polars missing", "polars infinite"],
)
def test_the_remedy_leaves_out_just_the_rows_in_question(spoiled, remedy):
    with pytest.raises(ArgumentError, match="Leave such rows out, as with") as caught:
        carre.fit(spoiled)
    code = str(caught.value).split("as with ")[1].split(", or fill")[0]
    assert remedy in code
    left = eval(code, {"X": spoiled, "np": np, "pl": pl})
    assert 0 < len(left) < len(spoiled)
    assert np.isfinite(left.to_numpy()).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pl.LazyFrame({"x": [1.0]}), "X must be a data frame of pandas or polars, in memory; got a LazyFrame"),
        (pd.DataFrame(index=range(3)), "X must not be empty; got a frame of 3 rows and 0 columns"),
        (FRAME[:0], "X must not be empty; got a frame of 0 rows"),
        (np.ma.masked_greater(circle(60), 0.9), "X must not be masked; got [0-9]+ masked values"),
    ],
    ids=["lazy", "no columns", "no rows", "masked"],
)
def test_what_cannot_be_taken_as_it_is_gets_a_sentence(given, message):
    with pytest.raises(ArgumentError, match=message):
        carre.fit(given)


def test_names_of_several_levels_come_back(geometry):
    levels = pd.MultiIndex.from_tuples([("p", "x"), ("p", "y"), ("q", "z")], names=["part", "axis"])
    frame = pd.DataFrame(FRAME.to_numpy(), columns=levels, index=INDEX)
    pd.testing.assert_index_equal(geometry.denoise(frame).columns, levels)


def test_anndata_is_refused_everywhere_with_its_keys(cells, geometry):
    with pytest.raises(ArgumentError, match=r"points must be a matrix; got an AnnData.*from_anndata\(points, key\)"):
        geometry.denoise(cells)
    with pytest.raises(ArgumentError, match="X must be a matrix; got an AnnData"):
        carre.MetricMatching().fit(cells)
    with pytest.raises(ArgumentError, match="annotated must be an AnnData; got a ndarray"):
        from_anndata(np.zeros((3, 2)))


def test_missing_cells_of_anndata_are_named_or_left_out(cells):
    cells.obsm["X_pca"][3, 1] = np.nan
    with pytest.raises(CellError, match=r"row 3 \(from 0\), column 'X_pca1' of X_pca is missing"):
        from_anndata(cells, "X_pca")
    table = from_anndata(cells, "X_pca", drop_missing=True)
    assert (len(table), table.dropped) == (49, (3,))
