"""Points on a circle in several formats, and geometries of them, made once."""

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

import carre
from carre.cli import app
from carre.data import write_table
from tests.samples import TINY

N = 120


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with data and models; commands that should write nothing are run in it."""
    folder = tmp_path_factory.mktemp("place")
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, N)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    columns = {
        "x": circle[:, 0],
        "y": circle[:, 1],
        "kind": np.array(["a", "b"] * (N // 2)),
        "energy": circle[:, 0] ** 2,
    }
    write_table(folder / "points.csv", columns)
    write_table(folder / "points.parquet", {name: columns[name] for name in ("kind", "y", "energy", "x")})
    numbers = np.arange(N)
    ids = {"name": np.array([f"p{i:03}" for i in numbers]), "friend": np.array([f"p{N - i:03}" for i in numbers])}
    write_table(folder / "people.csv", ids | {"patient": numbers + 50, "x": circle[:, 0], "y": circle[:, 1]})
    np.save(folder / "points.npy", circle)
    np.save(folder / "energy.npy", columns["energy"])
    np.savez(folder / "images.npz", images=np.random.default_rng(0).random((2, 28, 28)), labels=[0, 1])
    np.save(folder / "scalar.npy", 3.0)
    np.save(folder / "gap.npy", [[0.0, 1.0], [np.nan, 1.0]])
    np.save(folder / "gaps.npy", np.full(N, np.nan))
    np.savez(folder / "empty.npz")
    np.savez(folder / "two.npz", a=circle, b=circle)
    (folder / "pictures").mkdir()
    (folder / "one.csv").write_text("x,y\n1,0\n")
    (folder / "broken.csv").write_text("x,y\n1,2\n3\n")
    (folder / "words.csv").write_text("x,y\nmuch,little\n")
    (folder / "narrow.csv").write_text("x,z\n1,2\n3,4\n")
    carre.save(carre.fit(circle, **{**TINY, "max_steps": 5}, bandwidth=0.3), folder / "unnamed")
    result = invoke(
        "fit", folder / "points.csv", "--drop", "energy", "--steps", 5, "--sigma", 0.3, "--out", folder / "model"
    )
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def here(place, monkeypatch):
    """Work in that folder, where nothing is to be changed."""
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def run(here):
    """Run a command that succeeds; return what it printed."""

    def run(*arguments):
        result = invoke(*arguments)
        assert result.exit_code == 0, result.output
        return result

    return run


@pytest.fixture
def run_json(run):
    return lambda *arguments: json.loads(run(*arguments, "--json").stdout)


def invoke(*arguments):
    return CliRunner().invoke(
        app, [os.fspath(part) if isinstance(part, os.PathLike) else str(part) for part in arguments]
    )
