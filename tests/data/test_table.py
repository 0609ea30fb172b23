"""Tables are written whole or not at all and read as they were; what is wrong with them is said in a sentence."""

import gzip
import json
import sys

import numpy as np
import pandas as pd
import pytest

from carre import MetricMatching
from carre.boundary import ArgumentError
from carre.data import CellError, DamagedFileError, ImageDataset, Table, load_samples, load_table, write_table
from tests.samples import TINY

VALUES = np.random.default_rng(0).normal(size=(5, 3))
KINDS = np.array(["a", "b", "a", "c", "é, ü"])


def written(folder, content, name="data.csv"):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def columns():
    return {"x": VALUES[:, 0], "y": VALUES[:, 1], "kind": KINDS, "z": VALUES[:, 2]}


@pytest.mark.parametrize("name", ["data.csv", "data.tsv", "data.parquet"])
def test_what_was_written_is_read_again_to_the_last_bit(tmp_path, name):
    write_table(tmp_path / name, columns())
    table = load_table(tmp_path / name)
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.names == ("x", "y", "z")
    assert list(table.other) == ["kind"]
    np.testing.assert_array_equal(table.other["kind"], KINDS)
    assert (table.name, len(table), table.shape) == ("data", 5, (5, 3))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("header", [True, False])
def test_delimiters_and_headers_are_found_out(tmp_path, delimiter, header):
    rows = ([["height", "width", "depth"]] if header else []) + VALUES.tolist()
    text = "\n".join(delimiter.join(map(str, row)) for row in rows)
    table = load_table(written(tmp_path, text, "data.txt"))
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.names == (("height", "width", "depth") if header else None)


def test_a_byte_order_mark_and_windows_lines_and_empty_lines_are_no_data(tmp_path):
    table = load_table(written(tmp_path, b"\xef\xbb\xbfx,y\r\n1,2\r\n\r\n3,4\r\n"))
    assert table.names == ("x", "y")
    assert table.values.tolist() == [[1, 2], [3, 4]]


def test_quoted_cells_may_hold_anything(tmp_path):
    table = load_table(written(tmp_path, '"x","a ""word"", or two","y"\n1,"p;q\nr",2\n3,"s, t",4\n'))
    assert table.names == ("x", "y")
    assert table.other['a "word", or two'].tolist() == ["p;q\nr", "s, t"]


def test_a_packed_file_is_read_like_the_plain_one(tmp_path):
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(b"x,y\n1,2\n3,4\n"))
    table = load_table(tmp_path / "data.csv.gz")
    assert (table.values.tolist(), table.name) == ([[1, 2], [3, 4]], "data")


@pytest.mark.parametrize(
    ("text", "names", "other"),
    [
        (",a,b\n0,1.5,2\n1,3.5,4\n", ("a", "b"), ["index"]),
        ("0,1\n1.5,2\n3.5,4\n", ("0", "1"), []),
        (",0,1\n0,1.5,2\n1,3.5,4\n", ("0", "1"), ["index"]),
    ],
)
def test_the_index_and_the_numbers_that_pandas_writes_are_no_coordinates(tmp_path, text, names, other):
    table = load_table(written(tmp_path, text))
    assert (table.names, list(table.other)) == (names, other)
    assert table.values.tolist() == [[1.5, 2], [3.5, 4]]


def test_columns_are_chosen_by_name_or_number_in_the_order_that_was_asked_for(tmp_path):
    file = written(tmp_path, "x,y,label\n1,2,7\n3,4,8\n")
    assert load_table(file, columns=["y", "x"]).values.tolist() == [[2, 1], [4, 3]]
    assert load_table(file, columns=[1, "0"]).names == ("y", "x")
    dropped = load_table(file, drop=["label"])
    assert dropped.names == ("x", "y")
    assert dropped.other["label"].tolist() == [7, 8]
    assert dropped.other["label"].dtype.kind == "i"


def test_what_is_not_chosen_may_have_empty_cells(tmp_path):
    table = load_table(written(tmp_path, "x,label\n1,2\n3,\n"), columns=["x"])
    assert table.other["label"].tolist() == ["2", ""]


def test_an_npy_is_mapped_into_memory_and_not_read(tmp_path):
    np.save(tmp_path / "data.npy", VALUES)
    table = load_table(tmp_path / "data.npy")
    assert isinstance(table.values, np.memmap)
    np.testing.assert_array_equal(load_table(tmp_path / "data.npy", drop=[1]).values, VALUES[:, [0, 2]])


def test_of_an_npz_the_only_table_is_taken_and_columns_stand_beside_it(tmp_path):
    np.savez(tmp_path / "data.npz", points=VALUES, label=np.arange(5), other=np.zeros(3))
    table = load_table(tmp_path / "data.npz")
    np.testing.assert_array_equal(table.values, VALUES)
    assert list(table.other) == ["label"]


def test_an_npz_without_arrays_and_a_single_number_are_no_tables(tmp_path):
    np.savez(tmp_path / "empty.npz")
    with pytest.raises(ValueError, match=r"path must hold .*empty\.npz holds no arrays"):
        load_table(tmp_path / "empty.npz")
    np.save(tmp_path / "number.npy", 3.0)
    with pytest.raises(ValueError, match=r"of shape \(n, D\).*A single number is no table$"):
        load_table(tmp_path / "number.npy")


def test_an_array_of_an_npz_is_chosen_by_its_key(tmp_path):
    np.savez(tmp_path / "data.npz", first=VALUES, second=2 * VALUES)
    with pytest.raises(ValueError, match=r"key must say which array .* first \(5, 3\), second \(5, 3\)"):
        load_table(tmp_path / "data.npz")
    np.testing.assert_array_equal(load_table(f"{tmp_path / 'data.npz'}::second").values, 2 * VALUES)
    np.testing.assert_array_equal(load_table(tmp_path / "data.npz", key="first").values, VALUES)


def test_whole_numbers_and_truth_values_are_coordinates(tmp_path):
    write_table(tmp_path / "data.parquet", {"n": np.array([1, 2]), "is": np.array([True, False])})
    assert load_table(tmp_path / "data.parquet").values.tolist() == [[1, 1], [2, 0]]


def test_many_rows_are_read_block_by_block(tmp_path, monkeypatch):
    monkeypatch.setattr("carre.data._delimited._BLOCK", 2)
    table = load_table(written(tmp_path, "x,kind\n1,a\n2,b\n3,4\n5,6\n7,c\n"))
    assert table.values.tolist() == [[1], [2], [3], [5], [7]]
    assert table.other["kind"].tolist() == ["a", "b", "4", "6", "c"]
    with pytest.raises(ValueError, match=r"line 4, column 'x' of .* must be a finite number"):
        load_table(written(tmp_path, "x\n1\n2\nb\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x,y\n1,2\n3,\n",
            r"line 3, column 'y' of .* is missing. Fill it in, leave such rows out \(drop_missing=True\)",
        ),
        ("x,y\n1,2\n3,NA\n,\n5,6\n", r"line 3, .* missing, as are 2 more; all are in 2 rows, lines 3, 4. Fill"),
        ("x,y\n1,2\n,2\n3,b\n5,6\n", r"line 4, column 'y' of .* must be a finite number.* got 'b'. Correct it"),
        ("1,2\n3,inf\n5,6\n", r"line 2, column 1 of .* must be a finite number"),
        ("x,y\n1,2\n3\n", r"line 3 of .* \(separated by commas\) has 1 cells, the others 2"),
        ("x;y\n1,5;2,5\n3,5;4,5\n", r"has a decimal comma: '1,5'. Write numbers with a point, like 1.5"),
        ("x,x\n1,2\n", "must have different names in its header; 'x' occurs twice"),
        ("x,y\n", "has a header and no rows"),
        ("\n\n", "is empty"),
        ("a,b\nc,d\n", "must hold a column of numbers"),
        (b"x,y\n1,\xff\n", "is not text in UTF-8"),
        ('x,y\n1,"2\n3,4\n', "cannot be read as a table"),
    ],
)
def test_what_is_wrong_in_a_text_file_is_named_with_its_place(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_table(written(tmp_path, text))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["hieght"]}, "columns must be among .* there is no 'hieght'. Did you mean 'height'?"),
        ({"columns": ["price"]}, "there is no 'price'. There are height, kind"),
        ({"columns": ["kind"]}, "columns must hold numbers; 'kind' of .* holds text, like 'a'"),
        ({"columns": [7]}, "columns must be numbers from 0 to 1"),
        ({"columns": []}, "columns must be different ones, at least one"),
        ({"columns": ["height", 0]}, "columns must be different ones"),
        ({"drop": ["size"]}, "drop must be among the columns"),
        ({"drop": ["height"]}, "must hold a column of numbers"),
        ({"columns": ["height"], "drop": ["kind"]}, "columns and drop must not be given both"),
        ({"key": "points"}, "key must be left out"),
    ],
)
def test_wrong_choices_are_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        load_table(written(tmp_path, "height,kind\n1,a\n2,b\n"), **options)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"must hold an array of numbers of shape \(n, D\)"),
        (np.zeros((2, 2), dtype=complex), "Convert it to numbers"),
        (np.zeros((0, 2)), "at least one row"),
        (np.array([[1.0, np.nan]]), r"row 0 \(from 0\), column 1 of .* is missing"),
        (np.array([[1.0, -np.inf]]), r"row 0 \(from 0\), column 1 of .* is infinite. Correct it"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, array, message):
    np.save(tmp_path / "data.npy", array)
    with pytest.raises(ValueError, match=message):
        load_table(tmp_path / "data.npy")


@pytest.mark.parametrize("name", ["data.npy", "data.npz", "data.parquet", "data.csv.gz"])
def test_a_damaged_file_says_so(tmp_path, name):
    with pytest.raises(DamagedFileError, match=str(tmp_path / name)):
        load_table(written(tmp_path, b"\x93NUMPY" if name == "data.npy" else b"PK, but no more", name))


def test_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "data.npy", np.array([[{}, 1]], dtype=object), allow_pickle=True)
    with pytest.raises(DamagedFileError, match="it holds objects"):
        load_table(tmp_path / "data.npy")


def test_empty_cells_of_parquet_are_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [1, None, 3], "kind": ["a", None, "b"]}), tmp_path / "data.parquet")
    with pytest.raises(ValueError, match=r"row 1 \(from 0\), column 'x'"):
        load_table(tmp_path / "data.parquet")


def test_without_pyarrow_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'carre\[data\]'"):
        load_table(written(tmp_path, b"PAR1", "data.parquet"))


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"path must end in one of .csv, .* got .*data.xlsx. Give a table"):
        load_table(written(tmp_path, b"", "data.xlsx"))


def test_samples_are_images_where_arrays_have_more_than_two_axes(tmp_path):
    np.save(tmp_path / "images.npy", np.zeros((3, 4, 4), dtype=np.uint8))
    np.savez(tmp_path / "images.npz", images=np.zeros((3, 4, 4), dtype=np.uint8), labels=np.arange(3))
    np.save(tmp_path / "table.npy", VALUES)
    for name in ("images.npy", "images.npz"):
        assert isinstance(load_samples(tmp_path / name), ImageDataset)
    assert isinstance(load_samples(tmp_path / "table.npy"), Table)
    with pytest.raises(ValueError, match="columns and drop must be left out for images"):
        load_samples(tmp_path / "images.npy", columns=[0])


def test_json_is_an_object_of_lists(tmp_path):
    write_table(tmp_path / "data.json", {"x": np.array([0.1, 2.0]), "kind": np.array(["a", "ü"])})
    assert json.loads((tmp_path / "data.json").read_text(encoding="utf-8")) == {"x": [0.1, 2.0], "kind": ["a", "ü"]}


def test_arrays_keep_their_shape(tmp_path):
    array = np.random.default_rng(0).normal(size=(4, 2, 3))
    write_table(tmp_path / "data.npy", {"tangent": array})
    np.testing.assert_array_equal(np.load(tmp_path / "data.npy"), array)
    write_table(tmp_path / "data.npz", {"tangent": array, "kind": np.array(list("abcd"))})
    with np.load(tmp_path / "data.npz") as content:
        np.testing.assert_array_equal(content["tangent"], array)
        assert content["kind"].tolist() == list("abcd")


@pytest.mark.parametrize("name", ["data.CSV", "data.NPY", "data.NPZ", "data.PARQUET"])
def test_endings_may_be_in_capitals(tmp_path, name):
    write_table(tmp_path / name, {"x": VALUES} if "NP" in name else {"x": VALUES[:, 0]})
    np.testing.assert_array_equal(load_table(tmp_path / name).values, VALUES if "NP" in name else VALUES[:, :1])
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_single_precision_is_written_with_its_own_digits(tmp_path):
    write_table(tmp_path / "data.csv", {"x": np.array([0.1, 1 / 3], dtype=np.float32)})
    assert (tmp_path / "data.csv").read_text() == "x\n0.1\n0.33333334\n"


def test_folders_are_made_and_nothing_else_is_left(tmp_path):
    write_table(tmp_path / "new" / "data.csv", {"x": np.arange(2)})
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["data.csv"]


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("data.csv", {"x": np.zeros((2, 2))}, "columns must have one axis for csv, tsv and parquet; 'x' has shape"),
        ("data.npy", {"x": np.zeros(2), "y": np.zeros(2)}, "columns must be a single array for .npy; got x, y"),
        ("data.csv", {"x": np.zeros(2), "y": np.zeros(3)}, "columns must be arrays of equal length"),
        ("data.csv", {}, "columns must be arrays of equal length, at least one"),
        ("data.xls", {"x": np.zeros(2)}, "the output must end in .csv"),
        ("", {"x": np.zeros(2)}, "the output must end in"),
        ("file.txt/data.csv", {"x": np.zeros(2)}, "the output must lie in a folder"),
        ("folder.csv", {"x": np.zeros(2)}, "the output must be a file; .* is a folder"),
        ("data.json", {"x": np.array([np.nan])}, "not JSON compliant"),
    ],
)
def test_wrong_outputs_are_refused_and_nothing_is_written(tmp_path, name, columns, message):
    (tmp_path / "file.txt").touch()
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=message):
        write_table(tmp_path / name, columns)
    assert {path.name for path in tmp_path.rglob("*")} == {"file.txt", "folder.csv"}


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "data.json").write_text("before")
    with pytest.raises(ValueError, match="JSON"):
        write_table(tmp_path / "data.json", {"x": np.array([np.inf])})
    assert (tmp_path / "data.json").read_text() == "before"


@pytest.mark.slow
def test_a_geometry_takes_tables_and_finds_columns_by_their_names():
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 60)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    fitted = MetricMatching(**TINY, bandwidth=0.3).fit(Table(circle, ("x", "y")))
    geometry = fitted.geometry_
    assert fitted.feature_names_in_.tolist() == list(geometry.feature_names) == ["x", "y"]
    expected = geometry.denoise(Table(circle, ("x", "y")))
    shuffled = Table(np.column_stack([circle[:, 1], angle, circle[:, 0]]), ("y", "angle", "x"))
    np.testing.assert_array_equal(geometry.denoise(shuffled), expected)
    with pytest.raises(ValueError, match=r"must have the columns of the fit, x, y; got none called y. Add them"):
        geometry.denoise(Table(circle, ("x", "z")))


@pytest.mark.parametrize("name", ["data.csv", "data.parquet", "data.npy"])
def test_rows_with_missing_cells_are_left_out_on_request_and_counted(tmp_path, name):
    """The same rows are left out of all kinds of files; the others keep their numbers and what stands beside them."""
    values = np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, 5.0], [6.0, np.nan], [7.0, 8.0]])
    if name == "data.npy":
        np.save(tmp_path / name, values)
    else:
        frame = pd.DataFrame(values, columns=["x", "y"]).assign(kind=list("abcde"))
        frame.to_csv(tmp_path / name, index=False) if name == "data.csv" else frame.to_parquet(tmp_path / name)
    with pytest.raises(CellError, match="is missing, as is 1 more; all are in 2 rows"):
        load_table(tmp_path / name)
    table = load_table(tmp_path / name, drop_missing=True)
    np.testing.assert_array_equal(table.values, values[[0, 2, 4]])
    assert table.dropped == ((3, 5) if name == "data.csv" else (1, 3)), "lines of text files, with the header"
    assert table.other["row"].tolist() == [0, 2, 4]
    if name != "data.npy":
        assert table.other["kind"].tolist() == ["a", "c", "e"]
    whole = load_table(tmp_path / name, columns=["x" if table.names else 0], drop_missing=True)
    assert whole.shape == (4, 1), "what is missing elsewhere does not matter"


def test_missing_cells_are_found_in_every_block(tmp_path, monkeypatch):
    monkeypatch.setattr("carre.data._delimited._BLOCK", 2)
    table = load_table(written(tmp_path, "x\n1\n2\nNA\n4\n?\n"), drop_missing=True)
    assert table.values.tolist() == [[1], [2], [4]]
    assert table.dropped == (4, 6)


def test_a_table_in_which_every_row_misses_something_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="hold a row in which no cell is missing"):
        load_table(written(tmp_path, "x,y\n1,\n2,\n,3\n,4\n5,\n6,\n,7\n"), drop_missing=True)


def test_a_column_that_begins_with_missing_cells_is_one_of_numbers(tmp_path, monkeypatch):
    """Of large files the first block may hold nothing of it."""
    monkeypatch.setattr("carre.data._delimited._BLOCK", 2)
    file = written(tmp_path, "x,y,z\n1,,\n2,NA,\n3,5,\n4,6,\n")
    table = load_table(file, drop_missing=True)
    assert table.names == ("x", "y")
    assert table.values.tolist() == [[3, 5], [4, 6]]
    assert table.dropped == (2, 3)
    assert list(table.other) == ["z", "row"]
    with pytest.raises(ArgumentError, match=r"'z' of .* holds nothing: every cell is missing"):
        load_table(file, columns=["x", "z"])
