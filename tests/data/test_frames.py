"""Data frames of pandas and polars, and AnnData: columns by name, answers by name, errors that name cells."""

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import carre
from carre.boundary import ArgumentError
from carre.data import CellError, from_anndata, load_samples
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")

INDEX = [f"row{i}" for i in range(60)]
FRAME = pd.DataFrame(circle(60), columns=["x", "y", "z"], index=INDEX)


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
    assert isinstance(geometry.tangent_basis(FRAME, 1), np.ndarray), "bases have three axes"
    assert isinstance(geometry.estimate_dimension(FRAME).value, int)
    assert geometry.recommend_rank(FRAME).rank >= 1


def test_columns_are_found_by_name_whatever_their_order(geometry):
    shuffled = FRAME[["z", "x", "y"]].assign(kind="a")
    pd.testing.assert_frame_equal(geometry.denoise(shuffled), geometry.denoise(FRAME))
    with pytest.raises(ArgumentError, match="points must have the columns of the fit, x, y, z; got none called z"):
        geometry.denoise(FRAME[["x", "y"]])


def test_polars_is_taken_by_name_and_answered_by_arrays(geometry):
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
    ],
    ids=["text", "missing", "nullable", "infinite", "twice"],
)
def test_what_cannot_be_used_is_named_by_row_and_column(frame, message):
    with pytest.raises(ArgumentError, match=message):
        carre.fit(frame)


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
