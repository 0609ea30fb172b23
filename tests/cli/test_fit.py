"""A fit says what it would do, goes on after an interruption, and never replaces a model unasked."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_wine

import carre
from carre.data import write_table
from tests.cli.conftest import invoke

pytestmark = pytest.mark.slow

DATA = ["points.csv", "--drop", "energy"]
QUICK = ["--steps", 2, "--sigma", 0.3]


@pytest.fixture
def never_fit(monkeypatch):
    def fit(X, **settings):
        pytest.fail("nothing should be trained")

    monkeypatch.setattr("carre.fitting.fit", fit)


@pytest.fixture
def interrupted(monkeypatch):
    """Interrupt fits as Ctrl-C would, after they have kept their state."""

    def fit(X, *, checkpoint, **settings):
        checkpoint.path.write_text("state")
        raise KeyboardInterrupt

    monkeypatch.setattr("carre.fitting.fit", fit)


@pytest.mark.usefixtures("here", "never_fit")
def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path):
    arguments = ["fit", *DATA, "--out", tmp_path / "model", "--dry-run", "--budget", "1h30m", "--rank", 3]
    text = invoke(*arguments).stdout
    assert "120 samples with 2 coordinates" in text
    plan = json.loads(invoke(*arguments, "--json").stdout)
    assert (plan["max_steps"], plan["max_seconds"], plan["rank"]) == (None, 5400, 3)
    assert f"{plan['n_parameters']:,} parameters" in text
    assert 0 < plan["likely_seconds"][0] <= plan["likely_seconds"][1] <= plan["seconds"] <= 5400
    assert "time         likely" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("here")
def test_what_a_budget_does_not_resolve_is_not_answered_beyond_it(tmp_path, monkeypatch):
    """In place of such a network a kernel answers, which takes longer than any reserve."""
    monkeypatch.setattr("carre.training.linear_phase", lambda history: "it stopped early")
    monkeypatch.setattr("carre.geometry.Geometry.estimate_dimension", lambda *given, **told: pytest.fail("asked"))
    asked = ["fit", *DATA, "--out", tmp_path / "model", *QUICK, "--budget", "60s"]
    assert "not resolved within this budget" in invoke(*asked).stdout
    found = json.loads(invoke(*asked, "--overwrite", "--json").stdout)
    assert (found["dimension"], found["verdict"]) == (None, "not resolved")
    assert found["seconds"] < 60


def test_columns_are_listed_and_odd_ones_are_named_everywhere(tmp_path):
    """A table with an id, a text and units of its own, as people have them."""
    wine = load_wine()
    columns = {"id": np.arange(178), **dict(zip(wine.feature_names, wine.data.T, strict=True))}
    write_table(tmp_path / "wine.csv", columns | {"kind": wine.target_names[wine.target]})
    asked = ["fit", tmp_path / "wine.csv", "--out", tmp_path / "model", *QUICK]
    dry = invoke(*asked, "--dry-run")
    assert "id, alcohol, malic_acid, ash, alcalinity_of_ash, magnesium, total_phenols, flavanoids, … (14)" in dry.stdout
    assert "kind (text)" in dry.stdout
    fit = invoke(*asked)
    assert "read the warnings about columns first" in fit.stdout
    for told in (dry.stderr, fit.stderr):
        assert "warning: column 'id' seems to number the rows" in told
        assert "Leave it out with --drop" in told
        assert "warning: column 'proline' has" in told
    told = json.loads(invoke("info", tmp_path / "model", "--json").stdout)["concerns"]
    assert "'id'" in told
    assert "'proline'" in told
    plan = json.loads(invoke(*asked, "--dry-run", "--overwrite", "--drop", "id", "--json").stdout)
    assert plan["left_out"] == {"id": "not chosen", "kind": "text"}
    assert len(plan["concerns"]) == 1


def test_the_range_of_a_dry_run_is_that_of_the_fit(here, tmp_path):
    arguments = ["fit", *DATA, "--out", tmp_path / "model", *QUICK, "--json"]
    plan = json.loads(invoke(*arguments, "--dry-run").stdout)
    fit = json.loads(invoke(*arguments).stdout)
    assert plan["bandwidth_range"] == fit["bandwidth_range"]
    assert (fit["n_samples"], fit["columns"], fit["bandwidth"]) == (120, ["x", "y"], 0.3)


def test_a_summary_says_where_it_lies_and_what_to_do_next(here, tmp_path):
    result = invoke("fit", *DATA, "--out", tmp_path / "model", *QUICK)
    assert result.exit_code == 0
    assert f"carre dimension {tmp_path / 'model'} points.csv" in result.stdout
    assert "warning: training stopped in its linear phase" in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("warning")]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_a_quiet_fit_prints_nothing_but_warnings(here, tmp_path):
    result = invoke("fit", *DATA, "--out", tmp_path / "model", *QUICK, "--quiet")
    assert result.stdout == ""
    assert all(line.startswith("warning: ") for line in result.stderr.splitlines())


@pytest.mark.usefixtures("here", "interrupted")
def test_an_interruption_says_how_to_go_on(tmp_path):
    result = invoke("fit", *DATA, "--out", tmp_path / "model", "--overwrite")
    assert result.exit_code == 130
    command = f"carre fit points.csv --drop energy --out {tmp_path / 'model'} --resume"
    assert result.stderr == f"interrupted; what was learned is kept. Go on with: {command}\n"


@pytest.mark.usefixtures("here", "never_fit")
def test_a_fit_that_was_interrupted_is_not_begun_anew_unasked(tmp_path):
    (tmp_path / "model.checkpoint").write_text("state")
    result = invoke("fit", *DATA, "--out", tmp_path / "model")
    assert result.exit_code == 2
    assert "Go on with it by --resume, or start anew by --overwrite" in result.stderr
    result = invoke("dimension", tmp_path / "model", "points.csv")
    assert "Its fit is unfinished" in result.stderr


@pytest.mark.slow
def test_starting_anew_forgets_what_was_interrupted(here, tmp_path):
    (tmp_path / "model.checkpoint").write_text("of another fit, and damaged")
    result = invoke("fit", *DATA, "--out", tmp_path / "model", *QUICK, "--resume")
    assert result.exit_code == 2
    assert "model.checkpoint" in result.stderr
    assert invoke("fit", *DATA, "--out", tmp_path / "model", *QUICK, "--overwrite").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


@pytest.mark.usefixtures("here", "never_fit")
def test_to_resume_what_is_complete_is_no_error():
    result = invoke("fit", *DATA, "--out", "model", "--resume", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"model": "model", "complete": True})


@pytest.mark.slow
def test_a_model_is_replaced_when_asked_to(here, tmp_path):
    arguments = ["fit", *DATA, "--out", tmp_path / "model", *QUICK]
    assert invoke(*arguments).exit_code == 0
    assert invoke(*arguments).exit_code == 2
    assert invoke(*arguments, "--seed", 1, "--overwrite").exit_code == 0
    assert carre.load(tmp_path / "model").parameters["random_state"] == 1


def test_a_folder_with_other_files_is_refused_before_training(here, tmp_path, never_fit):
    (tmp_path / "thesis.tex").touch()
    result = invoke("fit", *DATA, "--out", tmp_path, "--overwrite")
    assert (result.exit_code, "holds other files" in result.stderr) == (2, True)


@pytest.mark.slow
def test_images_are_fitted_by_a_unet(here, tmp_path):
    np.save(tmp_path / "squares.npy", np.random.default_rng(0).integers(0, 256, (30, 4, 4), dtype=np.uint8))
    result = invoke(
        "fit", tmp_path / "squares.npy", "--out", tmp_path / "model", "--steps", 1, "--sigma", 0.5, "--rank", 2
    )
    assert result.exit_code == 0, result.output
    result = invoke("dimension", tmp_path / "model", tmp_path / "squares.npy", "--json")
    assert json.loads(result.stdout)["n"] == 30


def test_a_disk_that_is_full_at_the_end_does_not_lose_the_fit(here, tmp_path, monkeypatch):
    save = carre.save

    def save_where_there_is_room(geometry, folder):
        if folder == tmp_path / "model":
            raise OSError(28, "No space left on device")
        save(geometry, folder)

    monkeypatch.setattr("carre.storage.save", save_where_there_is_room)
    result = invoke("fit", *DATA, "--out", tmp_path / "model", *QUICK)
    assert result.exit_code == 1
    line = next(line for line in result.stderr.splitlines() if line.startswith("error:"))
    elsewhere = line.rpartition("saved in ")[2].removesuffix(" instead")
    assert carre.load(elsewhere).dim == 2
