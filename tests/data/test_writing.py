"""Tables are written whole or not at all, in the format that the name asks for."""

import json

import numpy as np
import pytest

from carre.data import write_table


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
