"""A wrong command is one sentence that names what is wrong; nothing is written."""

import os

import numpy as np
import pytest

from tests.cli.conftest import invoke

OUT = ["--out", "answer.csv"]
WRONG = {
    "no such command": (["nonsense"], "no such command 'nonsense'"),
    "unknown option": (["fit", "points.csv", "--out", "new", "--epochs", "3"], "no such option: --epochs"),
    "no data": (["fit", "--out", "new"], "missing argument 'DATA'; see 'carre fit --help'"),
    "no output": (["fit", "points.csv"], "missing option '--out'"),
    "steps in words": (["fit", "points.csv", "--out", "new", "--steps", "many"], "'--steps'"),
    "no steps": (["fit", "points.csv", "--out", "new", "--steps", "0"], "--steps must be a positive number; got 0"),
    "no rank": (["fit", "points.csv", "--out", "new", "--rank", "-1"], "--rank must be a positive number"),
    "budget": (["fit", "points.csv", "--out", "new", "--budget", "soon"], "--budget must be a span of time"),
    "empty budget": (["fit", "points.csv", "--out", "new", "--budget", "0s"], "--budget must be a span of time"),
    "negative sigma": (["fit", "points.csv", "--out", "new", "--sigma", "-1"], "--sigma must be a positive number"),
    "half a range": (["fit", "points.csv", "--out", "new", "--sigma-min", "1"], "--sigma-min and --sigma-max must"),
    "range upside down": (
        ["fit", "points.csv", "--out", "new", "--sigma-min", "2", "--sigma-max", "1"],
        "--sigma-min must be less than --sigma-max",
    ),
    "device": (["fit", "points.csv", "--out", "new", "--device", "abacus"], "error: --device must be one of torch's"),
    "missing file": (["fit", "nowhere.csv", "--out", "new"], "there is no file or folder nowhere.csv"),
    "unknown format": (["fit", "model/README.md", "--out", "new"], "error: DATA must end in one of"),
    "ragged rows": (["fit", "broken.csv", "--out", "new"], "line 3 of broken.csv"),
    "only text": (["fit", "words.csv", "--out", "new"], "error: DATA must hold a column of numbers"),
    "unknown column": (["fit", "points.csv", "--columns", "x,ener", "--out", "new"], "Did you mean 'energy'?"),
    "text column": (["fit", "points.csv", "--columns", "kind", "--out", "new"], "'kind' of points.csv holds text"),
    "columns and drop": (
        ["fit", "points.csv", "--columns", "x", "--drop", "y", "--out", "new"],
        "error: --columns and --drop must not be given both",
    ),
    "columns of images": (
        ["fit", "images.npz", "--columns", "x", "--out", "new"],
        "error: --columns and --drop must be left out for images",
    ),
    "size of nothing": (["fit", "pictures", "--out", "new", "--size", "0"], "--size must be a positive number; got 0"),
    "size of a table": (["fit", "points.csv", "--out", "new", "--size", "8"], "--size must be left out for tables"),
    "negative seed": (
        ["fit", "points.csv", "--out", "new", "--seed", "-5"],
        "--seed must lie between 0 and 4294967295",
    ),
    "large seed": (["fit", "points.csv", "--out", "new", "--seed", str(2**32)], "--seed must lie between 0 and"),
    "rank of a table": (
        ["fit", "points.npy", "--out", "new", "--rank", "5"],
        "--rank must be at most 4, twice the columns of DATA; got 5",
    ),
    "rank of a dry run": (
        ["fit", "points.npy", "--out", "new", "--rank", "5", "--dry-run"],
        "--rank must be at most 4",
    ),
    "rank of images": (["fit", "images.npz", "--out", "new", "--rank", "1569"], "--rank must be at most 1,568, twice"),
    "no images": (["fit", "pictures", "--out", "new"], "error: DATA must hold images; there are none in pictures"),
    "no arrays": (["fit", "empty.npz", "--out", "new"], "error: DATA must hold an array"),
    "which array": (["fit", "two.npz", "--out", "new"], "error: the key of DATA must say which"),
    "how to say which array": (["fit", "two.npz", "--out", "new"], "(120, 2). Write two.npz::key"),
    "a number": (["fit", "scalar.npy", "--out", "new"], "is float64 of shape (). A single number is no table"),
    "gap in a fit": (["fit", "gap.npy", "--out", "new"], "or leave the column out (--drop)"),
    "gap in a question": (
        ["dimension", "unnamed", "gap.npy"],
        "leave such rows out (--drop-missing), or choose others by --columns",
    ),
    "one sample": (["fit", "one.csv", "--out", "new"], "error: DATA must have at least 2 samples"),
    "empty model": (["dimension", "", "points.csv"], "error: MODEL must not be empty"),
    "no model here": (["dimension", ".", "points.csv"], "must hold a saved geometry; it has no config.json"),
    "table for images": (["dimension", "mnist", "points.npy"], "images of shape 28 × 28, or 784 columns of numbers"),
    "model is there": (["fit", "points.csv", "--out", "model"], "--out must be new; model holds a geometry"),
    "output is a file": (["fit", "points.csv", "--out", "energy.npy"], "'energy.npy' is a file"),
    "output is elsewhere": (["fit", "points.csv", "--out", "."], "error: --out must not be the working directory"),
    "resume and overwrite": (
        ["fit", "points.csv", "--out", "new", "--resume", "--overwrite"],
        "--resume and --overwrite must not be given both",
    ),
    "missing model": (["dimension", "nowhere", "points.csv"], "MODEL must be the path of an existing folder"),
    "model is a file": (["info", "points.csv"], "MODEL must be the folder that holds config.json"),
    "missing column": (["dimension", "model", "narrow.csv"], "there is no 'y'"),
    "too many columns": (["dimension", "unnamed", "points.csv"], "DATA must have 2 columns of numbers"),
    "images for a table": (["dimension", "model", "images.npz"], "DATA must be a table of 2 columns"),
    "sigma of a question": (["dimension", "model", "points.csv", "--sigma", "0"], "--sigma must be a positive number"),
    "unknown output": (["dimension", "model", "points.csv", "--out", "a.xls"], "the output must end in .csv"),
    "output is a folder": (["denoise", "model", "points.csv", "--out", "model"], "the output must end in"),
    "no tangent": (["tangent", "model", "points.csv", "--dim", "0", *OUT], "--dim must lie between 1 and 2"),
    "too many tangents": (["tangent", "model", "points.csv", "--dim", "3", *OUT], "--dim must lie between 1 and 2"),
    "images as text": (["denoise", "mnist", "images.npz", *OUT], "the output must end in .npy, .npz"),
    "row without data": (["path", "model", "0", "1", *OUT], "--data must be given, for A to be row 0"),
    "row beyond the data": (
        ["path", "model", "0", "999", "--data", "points.csv", *OUT],
        "B must be row numbers from 0 to 119; got 999",
    ),
    "point in words": (["path", "model", "here", "there", *OUT], "--data must be given, for A to be row here of it"),
    "point that is no id": (
        ["path", "model", "P0075", "p001", "--data", "people.csv", *OUT],
        "A must be a row number, or an id in 'name' or 'friend'; got 'P0075'. Did you mean 'p075'",
    ),
    "point without ids": (
        ["path", "model", "here", "1", "--data", "points.csv", *OUT],
        "A must be a row number, or coordinates like 0.1,0.2; got 'here'",
    ),
    "point of two names": (
        ["path", "model", "1", "p007", "--data", "people.csv", *OUT],
        "B must name one row; 'p007' is in 1 row of 'name' and 1 row of 'friend'. Say by --id in which column",
    ),
    "id of several": (
        ["path", "model", "a", "b", "--data", "points.csv", "--id", "kind", *OUT],
        "A must name one row; 'a' is in 60 rows of 'kind'. Leave --id out, and give a row number",
    ),
    "id that is none": (
        ["path", "model", "3", "51", "--data", "people.csv", "--id", "patient", *OUT],
        "A must be an id in 'patient'; got '3'",
    ),
    "id nowhere": (
        ["path", "model", "3", "51", "--data", "people.csv", "--id", "nam", *OUT],
        "--id must be a column of DATA that is no coordinate (name, friend, patient); got 'nam'",
    ),
    "id without data": (["path", "model", "3", "5", "--id", "name", *OUT], "--data must be given, of which 'name'"),
    "point too long": (["path", "model", "1,2,3", "1,2", *OUT], "A must have 2 coordinates"),
    "negative point": (["path", "model", "-1,2", "1,2", *OUT], "write -- before numbers that begin with a minus"),
    "point nowhere": (["path", "model", "nan,0", "1,0", *OUT], "error: A must be finite coordinates"),
    "point at infinity": (["path", "model", "1,0", "0,inf", *OUT], "error: B must be finite coordinates"),
    "no way": (["path", "model", "7", "7", "--data", "points.csv", *OUT], "error: A and B must be different points"),
    "no way of numbers": (["path", "model", "1,0", "1.0,0.0", *OUT], "error: A and B must be different points"),
    "many nodes": (["path", "model", "1,2", "2,1", "--nodes", "10001", *OUT], "--nodes must be at most 10,000"),
    "one node": (["path", "model", "1,2", "2,1", "--nodes", "1", *OUT], "--nodes must be at least 2"),
    "method": (["path", "model", "1,2", "2,1", "--method", "walk", *OUT], "'--method'"),
    "gradient of nothing": (["gradient", "model", "points.csv", *OUT], "give either --of COLUMN or --values FILE"),
    "gradient of text": (["gradient", "model", "points.csv", "--of", "kind", *OUT], "--of must be a column of numbers"),
    "gradient of none": (["gradient", "model", "points.csv", "--of", "mass", *OUT], "there is no 'mass'"),
    "values of two": (["gradient", "model", "points.csv", "--values", "points.npy", *OUT], "one column of numbers"),
    "values of others": (
        ["gradient", "model", "narrow.csv", "--columns", "x,z", "--values", "energy.npy", *OUT],
        "got 120",
    ),
    "values nowhere": (
        ["gradient", "model", "points.csv", "--values", "nowhere.csv", *OUT],
        "error: --values must be a file with one column of numbers; there is no file or folder nowhere.csv",
    ),
    "values of a number": (["gradient", "model", "points.csv", "--values", "scalar.npy", *OUT], "error: --values must"),
    "values with gaps": (["gradient", "model", "points.csv", "--values", "gaps.npy", *OUT], "error: --values must"),
    "page is no page": (["report", "model", "points.csv", "-o", "page.pdf"], "the output must end in .html"),
    "labels": (["report", "model", "points.csv", "--labels", "species"], "--labels must be a column of points.csv"),
    "pair": (["report", "model", "points.csv", "--pair", "1"], "--pair must be two rows like 3,17 or ann,bob; got"),
    "pair beyond": (["report", "model", "points.csv", "--pair", "1,500"], "--pair must be row numbers from 0 to 119"),
    "pair just beyond": (["report", "model", "points.csv", "--pair", "120,1"], "--pair must be row numbers from 0 to"),
    "shape of others": (
        ["report", "model", "points.csv", "--image-shape", "8,8", "-o", "missing/deep/page.html"],
        "--image-shape must be HEIGHT,WIDTH or CHANNELS,HEIGHT,WIDTH with 2 values in all, as DATA has 2 columns",
    ),
    "shape": (
        ["report", "model", "points.csv", "--image-shape", "big"],
        "--image-shape must be HEIGHT,WIDTH or CHANNELS,HEIGHT,WIDTH",
    ),
    "demo in a file": (["demo", "--out", "points.csv"], "--out must be a folder; points.csv is a file"),
    "demo below a file": (["demo", "--out", "points.csv/x"], "error: --out must lie in a folder"),
    "demo without steps": (["demo", "--steps", "0"], "--steps must be a positive number"),
}


def tree(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_command_is_one_sentence(here, name):
    arguments, message = WRONG[name]
    before = tree(here)
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert "Traceback" not in result.output
    assert tree(here) == before


def test_pictures_of_different_sizes_name_an_option(here, tmp_path):
    pictures = pytest.importorskip("PIL.Image")
    for side in (4, 5):
        pictures.new("L", (side, side)).save(tmp_path / f"{side}.png")
    result = invoke("fit", tmp_path, "--out", tmp_path / "model")
    assert result.exit_code == 2
    assert "Give --size to crop and resize them" in result.stderr


def test_a_fit_far_from_the_scale_of_the_data_names_an_option(here, tmp_path):
    result = invoke("fit", "points.npy", "--steps", 1, "--sigma", 1e-30, "--out", tmp_path / "model")
    assert result.exit_code == 1
    assert "Give --sigma nearer to the data's own scale" in result.stderr
    assert "learning_rate" not in result.stderr


def test_an_answer_that_is_not_finite_is_not_written(here, tmp_path, monkeypatch):
    def denoise(self, X, bandwidth=None):
        return np.where(np.arange(len(X))[:, None] == 3, np.inf, X)

    monkeypatch.setattr("carre.Geometry.denoise", denoise)
    result = invoke("denoise", "model", "points.csv", "--out", tmp_path / "clean.csv")
    assert result.exit_code == 2
    assert "DATA must lie nearer to what MODEL has learned: the answer is not finite at row 3" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unexpected_error_is_one_line_and_how_to_learn_more(here, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("the moon\nwas full")

    monkeypatch.setattr("carre.cli._inputs.load_model", fail)
    result = invoke("dimension", "model", "points.csv")
    assert result.exit_code == 1
    assert result.stderr == "error: RuntimeError: the moon was full. Run with CARRE_TRACEBACK=1 for details\n"
    monkeypatch.setenv("CARRE_TRACEBACK", "1")
    assert "Traceback" in invoke("dimension", "model", "points.csv").stderr


def test_a_full_disk_is_a_failure_and_not_wrong_input(here, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("carre.files.os.replace", fail)
    result = invoke("dimension", "model", "points.csv", "--out", "answer.csv")
    said = "the output must be a place where files can be written; got 'answer.csv', which could not be written: "
    said += "No space left on device"
    assert (result.exit_code, result.stderr) == (1, f"error: {said}\n")
    assert not os.path.exists("answer.csv")


def test_too_little_memory_is_said_in_words(here, monkeypatch):
    monkeypatch.setattr("carre.cli._inputs.load_model", lambda *_: (_ for _ in ()).throw(MemoryError()))
    result = invoke("dimension", "model", "points.csv")
    assert (result.exit_code, "there is not enough memory" in result.stderr) == (1, True)


def test_an_interruption_has_its_own_code(here, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("carre.cli._inputs.load_model", stop)
    result = invoke("dimension", "model", "points.csv")
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")
