"""Bad input to a report gets a sentence, before any work is done."""

import numpy as np
import pytest

from carre.report import write_report
from carre.report._inputs import as_column, as_input
from tests.report.fits import circle, image_geometry, pictures, plane_geometry

BAD = {
    "labels must hold one value for each of the 120 points of X; got 3": {"labels": [1, 2, 3]},
    "labels must .* or be the name of one of columns; got 'kind'": {"labels": "kind"},
    r"columns\['age'\] must hold one value for each of the 120 points": {"columns": {"age": [1.0]}},
    "columns must map names to one value per point": {"columns": [1, 2]},
    "columns must be at most 24": {"columns": {str(k): np.zeros(120) for k in range(25)}},
    "got row 120, but X has the rows 0 to 119": {"pairs": [(0, 120)]},
    "got row -1": {"pairs": [(-1, 3)]},
    r"pairs must be a list of \(i, j\)": {"pairs": [(1, 2, 3)]},
    r"pairs must be a list of \(i, j\), two": {"pairs": [(0.5, 1.0)]},
    "pairs must join two different rows": {"pairs": [(4, 4)]},
    "pairs must be at most 12": {"pairs": [(0, 1)] * 13},
    "image_shape must be .* with 2 values in all": {"image_shape": (8, 8)},
    r"image_shape must be \(height, width\)": {"image_shape": (2,)},
    r"image_shape must be \(height, width\) or": {"image_shape": (2, -1)},
    r"embedding must have shape \(120, 2\)": {"embedding": np.zeros((120, 3))},
    "embedding must be finite": {"embedding": np.full((120, 2), np.nan)},
    "bandwidth must be a positive number": {"bandwidth": -1.0},
    "bandwidth must be a finite number or None; got 'x'": {"bandwidth": "x"},
    "max_points must be a positive integer": {"max_points": 0},
    "seconds must be a positive number": {"seconds": 0},
    "title must be text": {"title": "  "},
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("sentence", BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_named(sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        write_report(plane_geometry(), circle(), tmp_path / "report.html", **BAD[sentence])
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="path must lie in an existing folder"):
        write_report(plane_geometry(), circle(), tmp_path / "nowhere" / "report.html")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"path must be a file, such as 'report.html'"):
        write_report(plane_geometry(), circle(), tmp_path)


def test_points_of_another_kind_are_refused_as_everywhere():
    with pytest.raises(ValueError, match="X must have 2 columns, like the samples of the fit; got 3"):
        as_input(plane_geometry(), np.zeros((5, 3)))


@pytest.mark.slow
def test_pictures_have_the_shape_of_the_fit():
    with pytest.raises(ValueError, match="image_shape must be that of the fit"):
        as_input(image_geometry(), pictures(), image_shape=(5, 6))


def test_numbers_are_numbers_and_text_is_classes():
    numbers = as_column([1.5, None, np.inf], 3, name="x", argument="x")
    np.testing.assert_array_equal(numbers.values, [1.5, np.nan, np.nan])
    assert numbers.names is None
    assert numbers.text(1) == "missing"
    words = as_column(np.array(["b", "a", "b"]), 3, name="x", argument="x")
    assert words.names == ("a", "b")
    np.testing.assert_array_equal(words.values, [1, 0, 1])
    assert as_column([True, False], 2, name="x", argument="x").names == ("False", "True")


IDS = {
    "counted": (np.arange(1, 121), True),
    "shuffled": (np.random.default_rng(0).permutation(120), True),
    "some left out": (np.flatnonzero(np.arange(150) % 5), True),
    "named": ([f"s{k}" for k in range(120)], True),
    "measured": (np.linspace(0, 1, 120), False),
    "large": (np.arange(120) ** 2, False),
    "ages": (np.arange(120) // 2, False),
    "kinds": (["a", "b"] * 60, False),
    "missing": ([None, *range(119)], False),
}


@pytest.mark.parametrize("kind", IDS)
def test_a_column_that_only_tells_rows_apart_is_known(kind):
    values, is_id = IDS[kind]
    given = as_input(plane_geometry(), circle(), columns={kind: values})
    assert given.columns[0].is_id == is_id
    assert given.columns[0].at(np.arange(3)).is_id == is_id
    assert given.name_of(7).startswith("7 (" if is_id else "7")


def test_labels_go_by_the_name_of_their_column():
    columns = {"kind": ["a", "b"] * 60, "size": np.arange(120.0) / 7}
    given = as_input(plane_geometry(), circle(), labels="kind", columns=columns)
    assert given.labels.name == "kind"
    assert [column.name for column in given.columns] == ["size"]
    pandas = pytest.importorskip("pandas")
    assert (
        as_input(plane_geometry(), circle(), labels=pandas.Series(columns["kind"], name="sort")).labels.name == "sort"
    )
    assert as_input(plane_geometry(), circle(), labels=columns["kind"]).labels.name == "label"


def test_few_whole_numbers_are_classes_where_they_are_labels():
    assert as_column(np.array([3, 1, 3]), 3, name="x", argument="x", classes=True).names == ("1", "3")
    assert as_column(np.array([3.0, np.nan, 1.0]), 3, name="x", argument="x", classes=True).text(1) == "missing"
    assert as_column(np.array([0.5, 1.0]), 2, name="x", argument="x", classes=True).names is None
    assert as_column(np.arange(100), 100, name="x", argument="x", classes=True).names is None
    assert as_column(np.array([3, 1, 3]), 3, name="x", argument="x").names is None


def test_columns_of_a_table_keep_their_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"kind": pandas.Categorical(["a", None] * 60), "n": pandas.array([1, None] * 60)})
    given = as_input(plane_geometry(), circle(), columns=frame)
    assert [column.name for column in given.columns] == ["kind", "n"]
    assert given.columns[0].names == ("a",)
    assert np.isnan(given.columns[1].values).sum() == 60


def test_classes_are_in_their_order_and_of_many_the_frequent_ones_come_first():
    assert as_column(["10", "9", "10"], 3, name="x", argument="x").names == ("9", "10")
    many = [f"class {k}" for k in range(50)] + ["class 49"]
    assert as_column(many, 51, name="x", argument="x").names[0] == "class 49"
