"""``carre map``: the library's files, options that say what is wrong with them, and a way to go on."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import carre
from carre.cli import _inputs as inputs
from tests.cli.conftest import invoke

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def shards(place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for i in range(4):
        columns = {name: np.random.default_rng(i).normal(size=50) for name in ("y", "x")}
        carre.data.write_table(folder / f"{i}.parquet", {"id": np.arange(50), **columns, "kind": np.array(["a"] * 50)})
    return folder


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_files_are_those_of_the_library(run, here, shards, tmp_path):
    text = run("map", "model", shards, "--out", tmp_path / "out", "--keep", "id,kind", "--device", "cpu").stdout
    assert re.search(r"answered +200 rows in .* s: [\d,]+ rows per second", text)
    geometry = carre.load("./model", device="cpu")
    carre.map_rows(geometry, shards, tmp_path / "library", keep=["id", "kind"])
    assert contents(tmp_path / "out") == contents(tmp_path / "library")
    table = carre.load_table(tmp_path / "out" / "2.parquet")
    assert (table.names, set(table.other)) == (("row", "id", "dimension"), {"kind"})


def test_shares_and_several_questions_as_json(run_json, shards, tmp_path):
    asked = [
        "map",
        "model",
        shards,
        "--out",
        tmp_path / "out",
        "--what",
        "tangent, denoised",
        "--dim",
        1,
        "--sigma",
        0.4,
    ]
    first = run_json(*asked, "--shard", "1/2")
    assert (first["n_parts"], first["n_there"], first["n_rows"]) == (2, 0, 100)
    assert sorted(file.name for file in (tmp_path / "out").glob("*.parquet")) == ["0.parquet", "2.parquet"]
    whole = run_json(*asked)
    assert (whole["n_parts"], whole["n_there"], whole["n_rows"]) == (4, 2, 100)
    assert run_json(*asked)["rows_per_second"] is None
    page = json.loads((tmp_path / "out" / "carre-map.json").read_text())
    assert (page["what"], page["directions"], page["bandwidth"]) == (["tangent", "denoised"], 1, 0.4)


def test_a_dry_run_says_what_it_would_take_and_writes_nothing(run, run_json, shards, tmp_path):
    text = run("map", "model", shards, "--out", tmp_path / "out", "--dry-run").stdout
    for line in ("rows +200 of", "files +4", "answers +dimension at σ = 0.3: about", "time +about", "memory +at most"):
        assert re.search(line, text), line
    plan = run_json("map", "model", shards, "--out", tmp_path / "out", "--dry-run", "--memory", "8GB")
    assert 2**27 < plan["memory"] < 8e9
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--shard", "3/2"], "--shard must be one of 1/2 to 2/2; got '3/2'"),
        (["--shard", "half"], "--shard must be like 3/16, the third of sixteen shares; got 'half'"),
        (["--memory", "much"], "--memory must be a size like 2GB or 800MB; got 'much'"),
        (["--memory", "1MB"], "--memory must be at least [0-9,]+ bytes"),
        (["--what", "shape"], "--what must be one of dimension, eigenvalues, tangent, denoised; got 'shape'"),
        (["--what", "tangent"], "--dim must say how many tangent directions are wanted"),
        (["--keep", "name"], "--keep must be columns of .*0.parquet; there is no name"),
        (["--keep", "row"], "--keep must be columns whose names no answer has; got row"),
        (["--columns", "x,kind"], "DATA must have 2 numbers in each row, .* Choose some with --columns or --drop"),
        (["--workers", "0"], "--workers must be a positive number; got 0"),
        (["--overwrite", "--shard", "1/2"], "--overwrite must be False for one share of several"),
        (["--device", "abacus"], "--device must be"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_an_option_that_cannot_be_used_is_named(here, shards, tmp_path, options, sentence):
    result = invoke("map", "model", shards, "--out", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert re.match(f"error: {sentence}", result.stderr), result.stderr
    assert not list(tmp_path.rglob("*.parquet"))


def test_answers_never_lie_among_the_data(here, shards):
    for out in (shards, shards / "out", shards.parent):
        result = invoke("map", "model", shards, "--out", out)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: --out must neither lie in the data nor hold them; got")


def test_other_answers_are_not_mixed_but_replaced_where_that_is_asked(run, here, shards, tmp_path):
    asked = ["map", "model", shards, "--out", tmp_path / "out"]
    run(*asked)
    result = invoke(*asked, "--what", "denoised")
    assert result.exit_code == 2
    assert "or replace those answers with --overwrite" in result.stderr
    run(*asked, "--what", "denoised", "--overwrite")
    assert carre.load_table(tmp_path / "out" / "0.parquet").names == ("row", "denoised_x", "denoised_y")


def test_an_engine_that_is_not_installed_is_named(here, shards, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = invoke("map", "model", shards, "--out", tmp_path / "out", "--engine", "ray")
    assert (result.exit_code, result.stderr) == (2, "error: Ray is needed for that; run: pip install 'carre[ray]'\n")
    assert not (tmp_path / "out").exists()


def test_sizes_are_read():
    sizes = [inputs.bytes_of(text) for text in ("2GB", "1.5 gib", "800M", "1000")]
    assert sizes == [2 * 10**9, 3 * 2**29, 8 * 10**8, 1000]


@pytest.mark.slow
def test_what_was_interrupted_says_how_to_go_on(place, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for i in range(12):
        np.save(tmp_path / "data" / f"{i:02}.npy", np.random.default_rng(i).normal(size=(30_000, 2)))
    asked = [sys.executable, "-m", "carre", "map", place / "unnamed", "data", "--out", "out", "--device", "cpu"]
    process = subprocess.Popen(
        asked, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    while process.poll() is None and not list(tmp_path.glob("out/*.parquet")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    last = said.splitlines()[-1]
    assert re.fullmatch(r"interrupted; \d+ of 12 files are complete and stay. Go on with: carre map .*", last)
    assert not list((tmp_path / "out").glob(".carre*"))
    n_there = len(list((tmp_path / "out").glob("*.parquet")))
    monkeypatch.chdir(tmp_path)
    done = json.loads(invoke(*asked[3:], "--json").stdout)
    assert (done["n_parts"], done["n_there"]) == (12, n_there)
