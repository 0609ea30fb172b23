"""Answers at many rows are those of the geometry, row by row, whatever they lie in and however often it is killed."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time

import anndata
import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
import zarr
from pyarrow import parquet

import carre
from carre.data import open_source, write_table
from carre.mapping import Asked, MapTask, _parts, map_in_processes
from carre.mapping._parts import PAGE
from carre.mapping.answers import rows_per_batch, steady
from tests.geometry.image_fits import QUICK, dataset
from tests.samples import TINY

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
N = 90
EVERY = {"what": ("dimension", "eigenvalues", "tangent", "denoised"), "dimension": 2}


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def geometry(points):
    return carre.fit(points, **TINY, bandwidth=0.5)


@pytest.fixture(scope="module")
def shards(points, tmp_path_factory):
    """Thirty rows in each of three files, with an id and a word."""
    folder = tmp_path_factory.mktemp("shards")
    for i, name in enumerate(("a", "b", "deep/c")):
        some = slice(30 * i, 30 * i + 30)
        columns = {"id": np.arange(N)[some] + 10**12, "word": [f"w{k}" for k in range(N)[some]]}
        columns |= {name: points[some, k] for k, name in enumerate("xyz")}
        (folder / name).parent.mkdir(exist_ok=True)
        parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet", row_group_size=11)
    return folder


def contents(folder):
    """Read all files of a folder, by name."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def table_of(folder, *names):
    return pd.concat([parquet.read_table(folder / f"{name}.parquet").to_pandas() for name in names], ignore_index=True)


def same_answers(geometry, values, table, names=("x0", "x1", "x2")):
    """Compare a table with what the geometry says, column by column."""
    local = geometry.at(values)
    basis = local.tangent_basis(2)
    wanted = {"dimension": local.dimension}
    wanted |= {f"eigenvalue{k + 1}": local.eigenvalues[:, k] for k in range(local.eigenvalues.shape[1])}
    wanted |= {f"tangent{k + 1}_{name}": basis[:, i, k] for k in (0, 1) for i, name in enumerate(names)}
    wanted |= {f"denoised_{name}": local.denoised[:, i] for i, name in enumerate(names)}
    assert set(table) == {"row", *wanted}
    for name, column in wanted.items():
        # A direction has no sign; and in the last digits an answer depends on how many rows are asked at together.
        found, known = (table[name].abs(), np.abs(column)) if name.startswith("tangent") else (table[name], column)
        np.testing.assert_allclose(found, known, rtol=1e-4, atol=1e-5, err_msg=name)


def test_answers_at_shards_are_those_of_the_geometry_with_ids_and_order_kept(geometry, points, shards, tmp_path):
    done = carre.map_rows(geometry, shards, tmp_path / "out", columns=list("xyz"), keep=("id", "word"), **EVERY)
    assert (done.n_parts, done.n_there, done.n_rows) == (3, 0, N)
    table = table_of(tmp_path / "out", "a", "b", "deep/c")
    assert table["id"].tolist() == [10**12 + i for i in range(N)]
    assert table["word"].tolist() == [f"w{i}" for i in range(N)]
    assert table["row"].tolist() == 3 * list(range(30))
    same_answers(geometry, points, table.drop(columns=["id", "word"]), "xyz")
    assert not list((tmp_path / "out").rglob(".carre*"))


def test_answers_are_the_same_whatever_the_rows_lie_in(geometry, points, tmp_path):
    np.save(tmp_path / "points.npy", points)
    write_table(tmp_path / "points.csv", {name: points[:, i].astype(float) for i, name in enumerate("xyz")})
    zarr.create_array(tmp_path / "points.zarr", shape=points.shape, chunks=(16, 3), dtype=points.dtype)[:] = points
    anndata.AnnData(X=2 * points, obsm={"X_pca": points}).write_h5ad(tmp_path / "points.h5ad")
    for data in ("points.npy", "points.csv", "points.zarr", "points.h5ad::X_pca"):
        out = tmp_path / f"out of {data}"
        carre.map_rows(geometry, f"{tmp_path}/{data}", out, **EVERY)
        names = "xyz" if data.endswith(".csv") else ("x0", "x1", "x2")
        same_answers(geometry, points, table_of(out, "points"), names)


def test_columns_of_the_fit_are_found_by_their_names(points, shards, tmp_path):
    frame = pd.DataFrame(points[:, [2, 0]], columns=["z", "x"])
    geometry = carre.fit(frame, **TINY, bandwidth=0.5)
    carre.map_rows(geometry, shards, tmp_path / "out", what=["denoised"])
    table = table_of(tmp_path / "out", "a", "b", "deep/c")
    assert list(table) == ["row", "denoised_z", "denoised_x"]
    np.testing.assert_allclose(table.iloc[:, 1:], geometry.denoise(points[:, [2, 0]]), rtol=1e-4, atol=1e-5)


def test_vectors_come_in_the_units_of_the_columns_and_pixels_as_pixels(points, tmp_path):
    scaled = carre.fit(points * [1, 10, 100], **TINY, bandwidth=0.5, scale="standardize")
    carre.map_rows(scaled, points * [1, 10, 100], tmp_path / "scaled", what=["denoised"])
    found = table_of(tmp_path / "scaled", "array").iloc[:, 1:]
    np.testing.assert_allclose(found, scaled.denoise(points * [1, 10, 100]), rtol=1e-4, atol=1e-3)
    images = dataset(20)
    geometry = carre.fit(images, **QUICK)
    np.save(tmp_path / "pixels.npy", np.random.default_rng(0).integers(0, 256, images.images.shape, dtype=np.uint8))
    carre.map_rows(geometry, tmp_path / "pixels.npy", tmp_path / "images", what=["denoised"])
    found = table_of(tmp_path / "images", "pixels").iloc[:, 1:].to_numpy()
    wanted = geometry.to_pixels(geometry.denoise(images)).reshape(20, -1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_finished_files_are_skipped_and_others_done_to_the_same_bytes(geometry, shards, tmp_path):
    out = tmp_path / "out"
    told = {"columns": list("xyz"), "keep": ("id",)}
    carre.map_rows(geometry, shards, out, **told)
    whole, before = contents(out), (out / "a.parquet").stat().st_mtime_ns
    (out / "b.parquet").unlink()
    done = carre.map_rows(geometry, shards, out, **told)
    assert (done.n_parts, done.n_there, done.n_rows) == (3, 2, 30)
    assert (out / "a.parquet").stat().st_mtime_ns == before
    assert contents(out) == whole
    assert np.isnan(carre.map_rows(geometry, shards, out, **told).rows_per_second)
    done = carre.map_rows(geometry, shards, out, **told, overwrite=True)
    assert (done.n_there, done.n_rows) == (0, N)
    assert contents(out) == whole


def test_shares_make_the_whole_and_so_do_processes(geometry, shards, tmp_path):
    told = {"columns": list("xyz"), **EVERY}
    carre.map_rows(geometry, shards, tmp_path / "whole", **told)
    heard = []
    for which in (2, 1):
        carre.map_rows(geometry, shards, tmp_path / "shares", **told, shard=(which, 2), progress=heard.append)
    assert contents(tmp_path / "shares") == contents(tmp_path / "whole")
    assert [told.fraction for told in heard] == [1.0, 0.5, 1.0]
    assert heard[-1].n_rows == 60


@pytest.mark.slow
def test_processes_write_the_same_bytes_and_say_what_went_wrong(geometry, shards, points, tmp_path):
    told = {"columns": tuple("xyz"), "asked": Asked.of(geometry, **EVERY)}
    MapTask(geometry, shards, tmp_path / "whole", **told).run()
    heard = []
    done = map_in_processes(MapTask(geometry, shards, tmp_path / "two", **told), 2, progress=heard.append)
    assert (done.n_parts, done.n_rows) == (3, N)
    assert heard[-1].fraction == 1.0
    assert contents(tmp_path / "two") == contents(tmp_path / "whole")
    broken = tmp_path / "broken"
    broken.mkdir()
    np.save(broken / "a.npy", points)
    np.save(broken / "b.npy", np.where(points > 1, np.nan, points))
    task = MapTask(geometry, broken, tmp_path / "of broken", told["asked"])
    with pytest.raises(carre.ArgumentError, match=r"\(from 0\) of b.npy, whose column . is missing"):
        map_in_processes(task, 2)
    assert not list((tmp_path / "of broken").rglob(".carre*"))


def test_a_long_file_is_cut_into_parts_of_whole_pieces(geometry, points, tmp_path, monkeypatch):
    monkeypatch.setattr("carre.data._pieces._NUMBERS_AT_ONCE", 30)
    monkeypatch.setattr(_parts, "_MOST_ROWS", 25)
    np.save(tmp_path / "points.npy", points)
    found = _parts.parts_of(open_source(tmp_path / "points.npy"))
    assert [(part.name, part.n_rows) for part in found[:2]] == [
        ("points-00000.parquet", 20),
        ("points-00001.parquet", 20),
    ]
    carre.map_rows(geometry, tmp_path / "points.npy", tmp_path / "out", **EVERY)
    table = table_of(tmp_path / "out", *(f"points-{i:05}" for i in range(5)))
    assert table["row"].tolist() == list(range(N))
    same_answers(geometry, points, table)


def test_batches_are_of_one_size_however_rows_lie(geometry, points, tmp_path, monkeypatch):
    """So that the bytes do not depend on the groups that a file happens to have, nor on free memory."""
    monkeypatch.setattr("carre.mapping.task.rows_per_batch", lambda geometry: 16)
    for group in (5, 16, 90):
        (tmp_path / str(group)).mkdir()
        table = pyarrow.table({name: points[:, i] for i, name in enumerate("xyz")})
        parquet.write_table(table, tmp_path / str(group) / "points.parquet", row_group_size=group)
        carre.map_rows(geometry, tmp_path / str(group), tmp_path / f"out {group}", **EVERY)
    assert len({(tmp_path / f"out {group}" / "points.parquet").read_bytes() for group in (5, 16, 90)}) == 1


def test_a_batch_is_a_power_of_two_and_never_cut(geometry):
    assert rows_per_batch(geometry) == 4096
    asked = steady(geometry)
    assert asked.field.points_at_once(torch.zeros(1, 3)) == 4096
    assert asked.field.model is geometry.field.model
    digits = carre.load("mnist", device="cpu")
    assert steady(digits).field.points_at_once(torch.zeros(1, 784)) == rows_per_batch(digits) < 4096


def test_rows_with_missing_cells_are_left_out_and_the_others_keep_their_numbers(geometry, points, tmp_path):
    gaps = points.copy()
    gaps[7, 1] = np.nan
    np.save(tmp_path / "gaps.npy", gaps)
    with pytest.raises(carre.ArgumentError, match=r"row 7 \(from 0\) of gaps.npy, whose column 1 is missing"):
        carre.map_rows(geometry, tmp_path / "gaps.npy", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    carre.map_rows(geometry, tmp_path / "gaps.npy", tmp_path / "left", drop_missing=True)
    assert table_of(tmp_path / "left", "gaps")["row"].tolist() == [i for i in range(N) if i != 7]
    np.save(tmp_path / "nothing.npy", np.full((3, 3), np.nan))
    carre.map_rows(geometry, tmp_path / "nothing.npy", tmp_path / "none", drop_missing=True)
    assert table_of(tmp_path / "none", "nothing").shape == (0, 2)


def test_a_folder_holds_answers_of_one_model_to_one_question_at_one_set_of_rows(geometry, points, shards, tmp_path):
    out = tmp_path / "out"
    carre.map_rows(geometry, shards, out, columns=list("xyz"))
    other = carre.fit(points, **{**TINY, "random_state": 1}, bandwidth=0.5)
    for changed, sentence in (
        ((other, shards, {}), "model was"),
        ((geometry, shards, {"what": ["denoised"]}), r"what was \['dimension'\], now \['denoised'\]"),
        ((geometry, shards, {"bandwidth": 0.7}), "bandwidth was 0.5, now 0.7"),
        ((geometry, shards / "deep", {}), "parts was 3 files of 90 rows, now 1 files of 30 rows"),
    ):
        model, data, options = changed
        with pytest.raises(carre.ArgumentError, match=f"out must hold answers to the same question; in .* {sentence}"):
            carre.map_rows(model, data, out, columns=list("xyz"), **options)
    (out / PAGE).write_text("[]")
    with pytest.raises(carre.data.DamagedFileError, match=r"carre-map.json cannot be read"):
        carre.map_rows(geometry, shards, out, columns=list("xyz"))


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_end_well_is_refused_before_it_begins(geometry, points, shards, tmp_path):
    def refused(sentence, data=shards, out=tmp_path / "out", **options):
        with pytest.raises(ValueError, match=sentence):
            carre.map_rows(geometry, data, out, **{"columns": list("xyz"), **options})
        assert not (tmp_path / "out").exists()

    refused("out must neither lie in the data nor hold them", out=shards / "answers")
    refused("out must neither lie in the data nor hold them", out=shards)
    refused("out must neither lie in the data nor hold them", out=shards.parent)
    refused("out must be a path", out=3)
    refused("memory must be at least .* bytes", memory=10**6)
    refused("what must be one of dimension, .* Did you mean 'denoised'", what=["denoise"])
    refused("what must be some of", what=[])
    refused("dimension must say how many tangent directions", what=["tangent"])
    refused("dimension must be None without 'tangent'", dimension=2)
    refused("dimension must be at most 3", what=["tangent"], dimension=9)
    refused("bandwidth must be positive", bandwidth=-1.0)
    refused("shard must be at most 2", shard=(3, 2))
    refused("shard must be at least 1", shard=(0, 2))
    refused("overwrite must be False for one share", shard=(1, 2), overwrite=True)
    refused("keep must be columns whose names no answer has; got dimension", keep=["dimension"])
    refused("X must have 3 numbers in each row, .* got 2 in", columns=["x", "y"])
    refused("X must be rows that lie somewhere", data=lambda: iter([points]), columns=None)
    (tmp_path / "empty").mkdir()
    refused("hold images, or shards of npy or parquet", data=tmp_path / "empty", columns=None)
    (tmp_path / "file").write_text("x")
    refused("out must be a folder", out=tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("x")
    refused("out must be a new folder, .* which holds letter.txt", out=tmp_path / "full")
    (tmp_path / "blocked" / "b.parquet").mkdir(parents=True)
    refused("out must have room for the file b.parquet", out=tmp_path / "blocked")
    for name in ("same.npy", "same.NPY"):
        (tmp_path / "twins").mkdir(exist_ok=True)
        np.save(tmp_path / "twins" / "x.npy", points)
        os.replace(tmp_path / "twins" / "x.npy", tmp_path / "twins" / name)
    refused("X must have names that differ in more than their endings", data=tmp_path / "twins", columns=None)


def test_another_column_in_a_later_shard_is_refused_before_it_begins(geometry, shards, tmp_path, points):
    odd = tmp_path / "odd"
    odd.mkdir()
    write_table(odd / "a.parquet", {name: points[:, i] for i, name in enumerate("xyz")})
    write_table(odd / "b.parquet", {name: points[:, i] for i, name in enumerate("xyw")})
    with pytest.raises(carre.data.DamagedFileError, match=r"b.parquet must have numbers in the columns of .*a.parquet"):
        carre.map_rows(geometry, odd, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_answers_that_are_no_numbers_name_the_rows(geometry, points, tmp_path):
    np.save(tmp_path / "far.npy", points * 1e25)
    with pytest.raises(carre.ArgumentError, match=r"at rows 0 to 89 of far.npy"):
        carre.map_rows(geometry, tmp_path / "far.npy", tmp_path / "out", what=["denoised"])
    assert not list((tmp_path / "out").rglob(".carre*"))


def test_a_plan_writes_nothing_and_counts_what_is_left(geometry, shards, tmp_path):
    task = MapTask(geometry, shards, tmp_path / "out", Asked.of(geometry, ["dimension"]), columns=tuple("xyz"))
    plan = task.plan()
    assert (plan.n_parts, plan.n_there, plan.n_rows) == (3, 0, N)
    assert not (tmp_path / "out").exists()
    task.run()
    (tmp_path / "out" / "b.parquet").unlink()
    plan = MapTask(geometry, shards, tmp_path / "out", task.asked, columns=tuple("xyz")).plan(2)
    assert (plan.n_there, plan.n_rows) == (2, 30)
    assert plan.memory > plan.n_bytes > 0
    assert plan.seconds > 0


BOUNDED = """
import sys, carre, torch
from carre.mapping import Asked, MapTask
torch.set_num_threads(1)
geometry = carre.load(sys.argv[1], device="cpu")
task = MapTask(geometry, sys.argv[2], sys.argv[3], Asked.of(geometry, ["dimension", "denoised", "tangent"], None, 2))
print(task.plan().memory)
task.run()
print(next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how much memory a process has held")
def test_a_process_holds_no_more_than_its_plan_says(points, tmp_path):
    values = np.random.default_rng(0).normal(size=(150_000, 30))
    geometry = carre.fit(values[:200], **TINY, bandwidth=0.5, rank=4)
    carre.save(geometry, tmp_path / "model")
    columns = {f"c{i}": values[:, i] for i in range(30)}
    (tmp_path / "data").mkdir()
    # One group of rows: 36 MB, of which only a little may be held at a time.
    parquet.write_table(pyarrow.table(columns), tmp_path / "data" / "rows.parquet", row_group_size=len(values))
    told = [sys.executable, "-c", BOUNDED, tmp_path / "model", tmp_path / "data", tmp_path / "out"]
    planned, held = map(int, subprocess.run(told, check=True, capture_output=True).stdout.split())
    assert 0.5 * planned < held <= planned


KILLED = """
import sys, carre, torch
torch.set_num_threads(1)
geometry = carre.load(sys.argv[1], device="cpu")
print("ready", flush=True)
carre.map_rows(geometry, sys.argv[2], sys.argv[3], what=("dimension", "denoised"))
"""


@pytest.mark.slow
def test_kill_9_at_some_moments_and_the_same_bytes_at_the_end(geometry, tmp_path):
    carre.save(geometry, tmp_path / "model")
    (tmp_path / "data").mkdir()
    for i in range(6):
        np.save(tmp_path / "data" / f"{i}.npy", np.random.default_rng(i).normal(size=(9000, 3)))
    task = [sys.executable, "-c", KILLED, tmp_path / "model", tmp_path / "data"]
    start = time.perf_counter()
    carre.map_rows(geometry, tmp_path / "data", tmp_path / "whole", what=("dimension", "denoised"))
    seconds, out, n_killed = time.perf_counter() - start, tmp_path / "out", 0
    for share in (0.2, 0.4, 0.3):
        process = subprocess.Popen([*task, out], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(share * seconds)
        process.send_signal(signal.SIGKILL)
        n_killed += process.wait() == -signal.SIGKILL
    assert n_killed >= 2
    carre.map_rows(geometry, tmp_path / "data", out, what=("dimension", "denoised"))
    assert contents(out) == contents(tmp_path / "whole")


def test_a_mapper_adds_answers_to_the_batches_of_engines(geometry, points, tmp_path):
    carre.save(geometry, tmp_path / "model")
    mapper = carre.RowMapper(tmp_path / "model", what=("dimension", "denoised", "tangent"), dimension=2, device="cpu")
    local = geometry.at(points)
    found = mapper({"id": np.arange(N), "point": points})
    assert list(found) == ["id", "point", "dimension", "denoised", "tangent"]
    np.testing.assert_array_equal(found["dimension"], local.dimension)
    np.testing.assert_array_equal(found["denoised"], local.denoised)
    assert found["tangent"].shape == (N, 3, 2)
    objects = np.empty(N, dtype=object)
    objects[:] = list(points)
    np.testing.assert_array_equal(mapper({"point": objects})["denoised"], local.denoised)
    again = pickle.loads(pickle.dumps(mapper))
    assert "_geometry" not in again.__dict__
    np.testing.assert_array_equal(again({"point": points})["dimension"], local.dimension)
    assert again({"point": points[:0]})["denoised"].shape == (0, 3)


def test_a_mapper_takes_the_frames_of_spark(geometry, points):
    """``mapInPandas`` hands an iterator of frames to a function of one."""
    frame = pd.DataFrame(points, columns=list("xyz")).assign(id="i")
    mapper = carre.RowMapper(geometry, what=["denoised", "dimension"], columns=list("xyz"))
    halves = list(map(mapper, [frame[:40], frame[40:]]))
    assert list(halves[0]) == ["x", "y", "z", "id", "denoised_x", "denoised_y", "denoised_z", "dimension"]
    assert halves[1].index.equals(frame.index[40:])
    found = pd.concat(halves)[["denoised_x", "denoised_y", "denoised_z"]]
    np.testing.assert_allclose(found, geometry.denoise(points), rtol=1e-4, atol=1e-5)


def test_a_mapper_says_what_it_misses(geometry, points):
    mapper = carre.RowMapper(geometry)
    for batch, sentence in (
        ({"x": points[:, 0]}, "columns must be given where the fit had no names"),
        ({"a": points, "b": points}, "no single column of vectors; got a batch of a, b"),
        (points, "batch must be a dictionary of arrays or a data frame of pandas; got a ndarray"),
    ):
        with pytest.raises(carre.ArgumentError, match=sentence):
            mapper(batch)
    with pytest.raises(carre.ArgumentError, match="columns must be columns of the batch, x; got y, which are not"):
        carre.RowMapper(geometry, columns=["x", "y"])({"x": points[:, 0]})
    with pytest.raises(carre.ArgumentError, match="what must be one of"):
        carre.RowMapper(geometry, what=["everything"])


@pytest.mark.slow
def test_ray_writes_the_same_bytes_and_maps_batches(geometry, points, shards, tmp_path):
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    from carre.mapping import map_on_ray  # noqa: PLC0415

    told = {"columns": tuple("xyz"), "keep": ("id",), "asked": Asked.of(geometry, **EVERY)}
    MapTask(geometry, shards, tmp_path / "whole", **told).run()
    ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    try:
        heard = []
        done = map_on_ray(MapTask(geometry, shards, tmp_path / "ray", **told), 1, progress=heard.append)
        assert (done.n_parts, done.n_there, done.n_rows, heard[-1].fraction) == (3, 0, N, 1.0)
        assert contents(tmp_path / "ray") == contents(tmp_path / "whole")
        carre.save(geometry, tmp_path / "model")
        rows = ray.data.from_items([{"id": i, "point": points[i]} for i in range(N)])
        made = {"model": tmp_path / "model", "what": ("dimension", "denoised"), "device": "cpu"}
        pool = ray.data.ActorPoolStrategy(size=1)
        mapped = rows.map_batches(carre.RowMapper, fn_constructor_kwargs=made, batch_size=32, compute=pool)
        found = sorted(mapped.take_all(), key=lambda row: row["id"])
        assert [row["dimension"] for row in found] == geometry.dimension(points).tolist()
        np.testing.assert_allclose([row["denoised"] for row in found], geometry.denoise(points), rtol=1e-4, atol=1e-5)
    finally:
        ray.shutdown()


def test_the_page_says_what_the_files_are(geometry, shards, tmp_path):
    carre.map_rows(geometry, shards, tmp_path / "out", columns=list("xyz"), keep=["id"])
    page = json.loads((tmp_path / "out" / PAGE).read_text())
    assert page["parts"] == {"a.parquet": 30, "b.parquet": 30, "deep/c.parquet": 30}
    assert (page["what"], page["bandwidth"], page["columns"]) == (["dimension"], 0.5, ["x", "y", "z"])
