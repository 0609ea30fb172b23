"""Rows from anywhere: each kind gives the rows that it holds, in order, with their numbers; others are refused."""

import anndata
import numpy as np
import pyarrow
import pytest
import torch
import zarr
from PIL import Image
from pyarrow import parquet
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import carre
from carre.data import load_samples, open_source, sources, write_table
from carre.data._pieces import rows_at_once

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
IDS = np.arange(1000, 1060)


def rows_of(source, **options):
    """Read all blocks: the values, and which rows of which file they are."""
    blocks = list(source.blocks(**options))
    values = np.concatenate([block.values for block in blocks]) if blocks else np.zeros((0, source.dim))
    return values, [(block.shard, int(row)) for block in blocks for row in block.rows]


def write_parquet(file, start, stop, values=X, group=7, **more):
    columns = {"id": IDS[start:stop], **{name: values[start:stop, i] for i, name in enumerate("xyz")}, **more}
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), file, row_group_size=group)


@pytest.fixture
def shards(tmp_path):
    """Sixty rows in three files, one of them in a folder of its own, and files that are none."""
    folder = tmp_path / "shards"
    write_parquet(folder / "a.parquet", 0, 20)
    write_parquet(folder / "b.parquet", 20, 40)
    write_parquet(folder / "more" / "c.parquet", 40, 60)
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.parquet").write_text("nothing")
    return folder


def test_parquet_is_read_by_groups_of_rows_in_the_order_of_names(shards):
    source = open_source(shards, drop=["id"])
    values, rows = rows_of(source)
    np.testing.assert_array_equal(values, X)
    assert (source.names, source.n_rows, source.dim) == (("x", "y", "z"), 60, 3)
    assert source.shards == {"a.parquet": 20, "b.parquet": 20, "more/c.parquet": 20}
    assert rows == [(name, i) for name in source.shards for i in range(20)]
    assert len(source.pieces) == 9
    np.testing.assert_array_equal(rows_of(source.of_shard("b.parquet"))[0], X[20:40])


def test_columns_come_in_the_order_that_was_asked_for(shards):
    np.testing.assert_array_equal(rows_of(open_source(shards, columns=["z", "x"]))[0], X[:, [2, 0]])


def test_other_columns_are_kept_beside_the_rows(shards):
    blocks = list(open_source(shards, drop=["id"]).blocks(keep=("id", "y")))
    np.testing.assert_array_equal(np.concatenate([block.other["id"] for block in blocks]), IDS)
    np.testing.assert_array_equal(np.concatenate([block.other["y"] for block in blocks]), X[:, 1])
    with pytest.raises(carre.ArgumentError, match=r"keep must be columns of .*a.parquet; there is no w"):
        next(open_source(shards).blocks(keep=("w",)))


def test_a_folder_that_is_named_like_a_file_is_one_of_shards(tmp_path):
    write_parquet(tmp_path / "all" / "x.parquet" / "part-0.parquet", 0, 60)
    assert open_source(tmp_path / "all").shards == {"x.parquet/part-0.parquet": 60}
    assert open_source(tmp_path / "all" / "x.parquet").shards == {"part-0.parquet": 60}


@pytest.mark.parametrize("count", [1, 2, 4, 20])
def test_parts_cover_all_rows_once(shards, count):
    source = open_source(shards, drop=["id"])
    found = [row for k in range(count) for row in rows_of(source, part=(k, count))[1]]
    assert sorted(found) == sorted(rows_of(source)[1])


def test_an_order_shuffles_the_pieces_and_loses_none(shards):
    source = open_source(shards, drop=["id"])
    values, rows = rows_of(source, order=np.random.default_rng(1))
    assert rows != rows_of(source)[1]
    assert sorted(rows) == sorted(rows_of(source)[1])
    where = {name: 20 * i for i, name in enumerate(source.shards)}
    np.testing.assert_array_equal(values, X[[where[name] + row for name, row in rows]])
    shares = [rows_of(source, order=np.random.default_rng(1), part=(k, 2))[1] for k in (0, 1)]
    assert sorted(shares[0] + shares[1]) == sorted(rows)


def test_shards_of_npy_and_one_alone(tmp_path):
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", X[20 * i : 20 * i + 20])
    np.testing.assert_array_equal(rows_of(open_source(tmp_path))[0], X)
    np.testing.assert_array_equal(rows_of(open_source(tmp_path / "1.npy"))[0], X[20:40])
    assert open_source(tmp_path / "1.npy").shards == {"1.npy": 20}


def test_images_in_npy_have_a_shape(tmp_path):
    np.save(tmp_path / "images.npy", X.reshape(20, 3, 3))
    source = open_source(tmp_path / "images.npy")
    assert (source.sample_shape, source.dim) == ((1, 3, 3), 9)
    np.testing.assert_array_equal(rows_of(source)[0], X.reshape(20, 9))


def test_zarr_by_its_path_and_as_an_object(tmp_path):
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(16, 3), dtype=X.dtype)
    stored[:] = X
    for given in (tmp_path / "x.zarr", stored):
        np.testing.assert_array_equal(rows_of(open_source(given))[0], X)


def test_anndata_by_its_path_with_a_key_and_backed(tmp_path):
    cells = anndata.AnnData(X=2 * X, obsm={"X_pca": X})
    cells.write_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(rows_of(open_source(f"{tmp_path}/cells.h5ad::X_pca"))[0], X)
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    np.testing.assert_array_equal(rows_of(open_source(backed, key="X_pca"))[0], X)
    np.testing.assert_array_equal(rows_of(open_source(backed))[0], 2 * X)


def test_an_image_folder_is_read_as_the_whole_of_it_is(tmp_path):
    for i in range(5):
        pixels = np.random.default_rng(i).integers(0, 256, (6, 6, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    source, whole = open_source(tmp_path), load_samples(tmp_path)
    assert source.sample_shape == whole.sample_shape
    np.testing.assert_array_equal(rows_of(source)[0], whole.images.reshape(5, -1))


class Labelled(Dataset):
    """Rows with a label each, as most datasets of PyTorch are."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return torch.from_numpy(X[i]), i % 2


class Endless(IterableDataset):
    """Rows, one after the other, of which nobody knows how many come."""

    def __iter__(self):
        return iter(torch.from_numpy(X))


@pytest.mark.parametrize("with_labels", [True, False])
def test_a_dataset_with_a_length_is_read_in_its_order(with_labels):
    source = open_source(Labelled() if with_labels else TensorDataset(torch.from_numpy(X)))
    np.testing.assert_array_equal(rows_of(source)[0], X)
    assert (source.n_rows, source.limits) == (60, "")


def test_an_iterable_dataset_is_a_stream(tmp_path):
    source = open_source(Endless())
    np.testing.assert_array_equal(rows_of(source)[0], X)
    np.testing.assert_array_equal(rows_of(source)[0], X)  # as often as it is needed
    assert source.n_rows is None
    assert "its length is known only after a pass" in source.limits


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loader_gives_its_batches(workers):
    source = open_source(DataLoader(Labelled(), batch_size=16, num_workers=workers))
    np.testing.assert_array_equal(rows_of(source)[0], X)
    assert source.n_rows == 60
    assert source.limits == "its order is its own: it cannot be shuffled"


def test_parts_of_a_stream_are_every_nth_batch():
    source = open_source(DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=10))
    parts = [rows_of(source, part=(k, 2))[0] for k in (0, 1)]
    np.testing.assert_array_equal(parts[0], X.reshape(6, 10, 3)[::2].reshape(-1, 3))
    np.testing.assert_array_equal(parts[1], X.reshape(6, 10, 3)[1::2].reshape(-1, 3))


def test_a_function_returns_batches_each_time_it_is_called():
    def batches():
        yield X[:50]
        yield X[50:]

    source = open_source(batches)
    assert source.name == "batches"
    np.testing.assert_array_equal(rows_of(source)[0], X)
    np.testing.assert_array_equal(rows_of(source)[0], X)


def test_a_table_keeps_its_columns_and_the_numbers_of_rows(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y,kind\n1,2,a\n,4,b\n5,6,c\n")
    source = open_source(tmp_path / "rows.csv", drop_missing=True)
    (block,) = source.blocks(keep=("kind",))
    assert block.values.tolist() == [[1, 2], [5, 6]]
    assert block.rows.tolist() == [0, 2]
    assert block.other["kind"].tolist() == ["a", "c"]
    with pytest.raises(carre.ArgumentError, match=r"keep must be columns of rows.csv .* no z; there are kind"):
        next(source.blocks(keep=("z",)))


def test_an_array_of_an_npz_is_chosen_by_its_key(tmp_path):
    np.savez(tmp_path / "two.npz", a=X, b=2 * X)
    np.testing.assert_array_equal(rows_of(open_source(f"{tmp_path}/two.npz::b"))[0], 2 * X)


def test_rows_with_missing_cells_are_named_or_left_out(tmp_path):
    values = X.copy()
    values[25, 1] = np.nan
    write_parquet(tmp_path / "a.parquet", 0, 20, values)
    write_parquet(tmp_path / "b.parquet", 20, 40, values)
    with pytest.raises(carre.ArgumentError, match=r"row 5 \(from 0\) of b.parquet, whose column 'y' is missing"):
        rows_of(open_source(tmp_path, drop=["id"]))
    found, rows = rows_of(open_source(tmp_path, drop=["id"], drop_missing=True), keep=("id",))
    np.testing.assert_array_equal(found, np.delete(X[:40], 25, axis=0))
    assert [row for name, row in rows if name == "b.parquet"] == [i for i in range(20) if i != 5]
    values[25, 1] = np.inf
    np.save(tmp_path / "infinite.npy", values)
    with pytest.raises(carre.ArgumentError, match=r"row 25 .* is infinite. Mend that row"):
        rows_of(open_source(tmp_path / "infinite.npy", drop_missing=True))


def test_kinds_of_numbers_become_floating_ones():
    for given, dtype in ((X, np.float32), (X.astype(float), np.float64), (X.astype(np.float16), np.float32)):
        assert next(open_source(given).blocks()).values.dtype == dtype
    assert next(open_source(np.eye(3, dtype=np.int64)).blocks()).values.dtype == np.float64


def test_large_rows_come_few_at_a_time(monkeypatch):
    monkeypatch.setattr("carre.data._pieces._NUMBERS_AT_ONCE", 30)
    assert rows_at_once(3) == 10
    blocks = list(open_source(X).blocks())
    assert [len(block.rows) for block in blocks] == [10] * 6
    np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks]), np.arange(60))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (iter([X]), "be something that can be read more than once; got a list_iterator. Give the function"),
        ((batch for batch in [X]), "Give the function that makes it"),
        (lambda: 3, "return batches, one after the other, each time it is called; got a int"),
        (lambda: iter([]), "have rows; got a <lambda> without any"),
        (lambda: iter([{"a": X}]), "a dictionary of a. Give a function that yields the one to learn"),
        (lambda: iter([np.zeros((2, 2, 2, 2, 2))]), "yield rows of shape"),
        (3.0, "hold rows; got a float"),
        ({"a": X}, "have rows: shape (n, D), or (n, C, H, W) for images; got a dict"),
        (np.array(None), "have rows: shape (n, D), or (n, C, H, W) for images; got a ndarray"),
        (torch.nn.Linear(2, 2), "hold rows; got a Linear"),
        (lambda points: points, "be a function without arguments, which returns batches"),
        (np.zeros((0, 3)), "have rows"),
        (np.zeros((3, 0)), "have rows"),
    ],
    ids=range(13),
)
def test_what_holds_no_rows_is_refused(given, sentence):
    with pytest.raises(carre.ArgumentError) as error:
        open_source(given)
    assert sentence in str(error.value)


def test_columns_are_chosen_only_where_there_are_some(tmp_path):
    for given in (X, Labelled(), tmp_path):
        Image.new("L", (4, 4)).save(tmp_path / "a.png")
        with pytest.raises(carre.ArgumentError, match="columns and drop must be left out for what has no columns"):
            open_source(given, columns=["x"])


def test_rows_of_another_length_are_refused(tmp_path):
    source = open_source(lambda: iter([X, X[:, :2]]))
    with pytest.raises(carre.ArgumentError, match="have 3 numbers in each row, as at its beginning; got 2 in row 60"):
        rows_of(source)
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :2])
    with pytest.raises(carre.data.DamagedFileError, match=r"b.npy must hold rows of shape \(3,\), like a.npy"):
        open_source(tmp_path)


def test_shards_of_two_kinds_or_without_their_columns_are_refused(shards):
    write_table(shards / "d.parquet", {"id": IDS, "x": X[:, 0]})
    with pytest.raises(carre.data.DamagedFileError, match=r"d.parquet must have numbers in the columns of .*a.parquet"):
        open_source(shards)
    np.save(shards / "e.npy", X)
    with pytest.raises(carre.ArgumentError, match="folder must hold shards of one kind, npy or parquet"):
        open_source(shards)


def test_damaged_shards_are_a_sentence(shards):
    content = (shards / "b.parquet").read_bytes()
    (shards / "b.parquet").write_bytes(content[:100])
    with pytest.raises(carre.data.DamagedFileError, match=r"b.parquet cannot be read as Parquet"):
        open_source(shards)


def test_what_has_to_be_read_in_blocks_is_known():
    assert all(map(sources.is_source, (Labelled(), Endless(), open_source(X), lambda: iter([X]))))
    assert not sources.is_source(X)
    assert not sources.is_source(torch.from_numpy(X))
