"""The command measures what it is given, adds to what is there, and says in a sentence what is wrong."""

import json
import shutil

import numpy as np
import pytest

import carre
from carre.data import ImageDataset, Normalization
from carre.networks import UNetSettings
from experiments.stability import parts, run
from experiments.stability.cost import CostSettings, CostShape
from experiments.stability.parts import Part
from tests.experiments.commands import invoke
from tests.experiments.stability_runs import FEATURES, TINY, blobs, field

SHAPE = (1, 8, 8)
OF_THE_FIT, OF_THE_READER = Normalization((0.3,), 0.4), Normalization((0.5,), 0.5)
FIT = {
    "network": UNetSettings(4, (1,), 1, ()),
    "rank": 3,
    "bandwidth": 0.5,
    "bandwidth_range": (0.2, 2.0),
    "max_steps": 1,
    "batch_size": 4,
    "device": "cpu",
    "verbose": False,
    "random_state": 0,
}
FILES = {"results.json", "tables.md", "stability.png", "bandwidths.png"}


def images(n=40, shape=SHAPE, normalization=OF_THE_FIT, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)
    return ImageDataset(pixels, normalization=normalization, name="tiny digits")


def stability(*arguments):
    return invoke(run.main, "--device", "cpu", *arguments)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Geometries of tiny images: one as usual, one uncentered, one of another shape."""
    folder = tmp_path_factory.mktemp("models")
    carre.save(carre.fit(images(), **FIT), folder / "joint")
    carre.save(carre.fit(images(), **FIT, method="uncentered"), folder / "uncentered")
    carre.save(carre.fit(images(shape=(1, 8, 9)), **FIT), folder / "wider")
    return folder


@pytest.fixture
def datasets(monkeypatch):
    """Tiny images for both datasets, in another normalization than that of the fit."""
    for name in ("mnist", "cifar10"):
        monkeypatch.setitem(parts.READERS, name, lambda folder, split: images(normalization=OF_THE_READER))


def take_blobs(patch):
    """Blobs with a field that needs no training, in place of those that a network is trained on."""
    part = Part("synthetic", field(), blobs(8, 1).images, blobs(10, 2).images, FEATURES, TINY, ABOUT)
    patch.setattr(parts, "synthetic_part", lambda changes, device: part)


@pytest.fixture
def synthetic(monkeypatch):
    take_blobs(monkeypatch)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """What a run on blobs said, and the folder that it wrote to, which is left as it is."""
    folder = tmp_path_factory.mktemp("first_run") / "new" / "folder"
    with pytest.MonkeyPatch.context() as patch:
        take_blobs(patch)
        return stability("--quick", "--out", folder), folder


ABOUT = {"data": "blobs", "model": "exact", "features": "wavelets, built in"}
SMALL = ("--images", 4, "--draws", 1, "--sigmas", "0.5,1,9", "--radii", "1,2")


def results_in(folder):
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_results_tables_and_figures_are_written(first_run):
    outcome, folder = first_run
    assert outcome.exit_code == 0, outcome.output
    assert {path.name for path in folder.iterdir()} == FILES
    assert "## Synthetic images" in outcome.stdout
    assert "features: wavelets, built in" in outcome.stdout
    assert "Synthetic images: random directions" in outcome.stderr
    assert results_in(folder)["synthetic"]["source"] == ABOUT


@pytest.mark.slow
def test_a_second_run_measures_nothing_again_and_adds_what_is_new(first_run, synthetic, monkeypatch, tmp_path):
    shapes = tuple(CostShape(name, (1, 4, 4), 2, UNetSettings(2, (1,), 1, ()), 2) for name in ("one", "two"))
    tiny = CostSettings(shapes, ("float32",), repeats=1, seconds=0.01, limit=0.1)
    monkeypatch.setattr(run, "QUICK_COST", tiny)
    first, folder = first_run
    assert first.exit_code == 0
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    before = results_in(tmp_path)
    outcome = stability("--quick", "--cost", "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert "random directions" not in outcome.stderr
    after = results_in(tmp_path)
    assert after["synthetic"]["methods"] == before["synthetic"]["methods"]
    assert [shape["name"] for shape in after["cost"]["shapes"]] == ["one", "two"]
    assert {row["shape"] for row in after["cost"]["ratios"]} == {"one", "two"}
    assert "## Time and memory" in (tmp_path / "tables.md").read_text(encoding="utf-8")
    # The second shape was lost: only that is measured.
    after["cost"]["shapes"].pop()
    after["cost"]["rows"] = [row for row in after["cost"]["rows"] if row["shape"] == "one"]
    (tmp_path / "results.json").write_text(json.dumps(after), encoding="utf-8")
    outcome = stability("--quick", "--cost", "--only", "cost", "--out", tmp_path)
    assert {line.split(",")[0] for line in outcome.stderr.splitlines()} == {"two"}
    assert [shape["name"] for shape in results_in(tmp_path)["cost"]["shapes"]] == ["one", "two"]
    # Times of another machine are measured again, all of them.
    after["cost"]["hardware"] = "an abacus"
    (tmp_path / "results.json").write_text(json.dumps(after), encoding="utf-8")
    outcome = stability("--quick", "--cost", "--only", "cost", "--out", tmp_path)
    assert {line.split(",")[0] for line in outcome.stderr.splitlines()} == {"one", "two"}
    assert len(results_in(tmp_path)["cost"]["rows"]) == 2 * len(after["cost"]["rows"])


def test_models_and_data_are_loaded_as_they_belong_together(models, datasets, tmp_path):
    request = parts.Request(
        "cifar10",
        tmp_path,
        str(models / "joint"),
        str(models / "uncentered"),
        changes={"n_images": 6, "bandwidths": (0.1, 0.5, 1.0, 9.0), "n_draws": None},
    )
    part = request.prepare()
    assert part.settings.bandwidths == (0.5, 1.0)
    assert (part.settings.n_images, part.settings.n_validation) == (6, 6)
    # In the units of the fit, whatever those of the reader are.
    everything = images().images
    for chosen in (part.validation, part.test):
        rows = (chosen.numpy()[:, None] == everything[None]).all((2, 3, 4))
        assert rows.any(1).all()
    assert not (part.validation.numpy()[:, None] == part.test.numpy()[None]).all((2, 3, 4)).any()
    assert part.uncentered is not None
    assert "first half" in part.source["split"]
    assert part.source["model"] != part.source["metric matching, uncentered"]
    assert not part.field.mixed_precision


@pytest.mark.slow
def test_both_datasets_are_measured_and_told_apart(models, datasets, tmp_path):
    given = ("--mnist", tmp_path, "--mnist-model", models / "joint", "--cifar10", tmp_path)
    given += ("--cifar10-model", models / "joint", "--cifar10-uncentered", models / "uncentered")
    outcome = stability(*given, *SMALL, "--mixed", "--out", tmp_path / "out")
    assert outcome.exit_code == 0, outcome.output
    found = results_in(tmp_path / "out")
    assert list(found) == ["mnist", "cifar10"]
    assert "metric matching, uncentered" in found["cifar10"]["paired"]
    assert "metric matching, uncentered" not in found["mnist"]["paired"]
    assert found["mnist"]["source"]["precision"] == "networks in bfloat16"
    assert "second half" in (tmp_path / "out" / "tables.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")
def test_quick_trains_a_network_that_lies_between_random_directions_and_the_true_tangent_space(monkeypatch, tmp_path):
    monkeypatch.setitem(parts._TINY, "max_steps", 250)
    outcome = stability("--quick", "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    found = results_in(tmp_path)["synthetic"]
    assert all(found["paired"]["random directions"]["wins"])
    assert all(found["paired"]["Stein score"]["wins"])
    assert all(found["paired"]["true tangent space"]["loses"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to measure: give --mnist FOLDER"),
        (["--mnist", "nowhere"], "--mnist must exist; there is no nowhere"),
        (["--cifar10", "nowhere"], "--cifar10-model must be given with --cifar10"),
        (["--cifar10-model", "some"], "--cifar10 must be given"),
        (["--cifar10", "nowhere", "--cifar10-model", "nothing"], "--cifar10-model must be the path of an existing"),
        (["--quick", "--only", "mnist"], "--only must name parts that are asked for; mnist is not: give --mnist"),
        (["--quick", "--only", "tables"], "--only must be among synthetic, mnist, cifar10, cost"),
        (["--quick", "--sigmas", "wide"], "--sigmas must be numbers separated by commas; got 'wide'"),
        (["--quick", "--sigmas", "90"], "--sigmas must have some within 0.5 to 4"),
        (["--quick", "--radii", "0,1"], "--radii must be different positive numbers"),
        (["--quick", "--images", "1"], "--images must be a whole number of at least 2"),
        (["--quick", "--draws", "0"], "--draws must be a whole number of at least 1"),
        (["--quick", "--seed", "-1"], "--seed must be a whole number of at least 0"),
        (["--quick", "--inception", "some.pt"], "--inception must be given with --mnist or --cifar10"),
        (["--quick", "--mixed"], "--mixed must be given with --mnist or --cifar10"),
        (["--quick", "--mnist-model", "some"], "--mnist-model must be given with --mnist; nothing else depends on it"),
        (["--quick", "--device", "abacus"], "--device must be one of torch's"),
    ],
)
def test_a_wrong_option_is_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = invoke(run.main, "--device", "cpu", *arguments)
    assert outcome.exit_code == 2, outcome.output
    assert f"error: {message}" in outcome.stderr
    assert "Traceback" not in outcome.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cifar10-model", "uncentered"], "--cifar10-model must have a denoiser, which all methods share"),
        (["--cifar10-model", "wider"], "--cifar10-model must be a geometry of images of shape 1 × 8 × 8"),
        (["--cifar10-model", "joint", "--cifar10-uncentered", "joint"], "--cifar10-uncentered must be fitted with"),
        (["--cifar10-model", "joint", "--images", "21"], "--images must be at most 20, half of tiny digits"),
        (["--cifar10-model", "joint", "--sigmas", "9"], "--sigmas must have some within 0.2 to 2"),
        (["--cifar10-model", "joint", *SMALL, "--inception", "no.pt"], "--inception must exist; there is no no.pt"),
        (["--cifar10-model", "joint", *SMALL, "--inception", "joint"], "--inception must be a file; joint is a folder"),
    ],
)
def test_a_wrong_model_is_one_sentence(arguments, message, models, datasets, tmp_path, monkeypatch):
    monkeypatch.chdir(models)
    outcome = stability("--cifar10", tmp_path, *arguments, "--out", tmp_path / "out")
    assert outcome.exit_code == 2, outcome.output
    assert f"error: {message}" in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(synthetic, tmp_path):
    for content in ("[1, 2]", '{"rows": []}', "words", '{"mnist": 5}', '{"synthetic": {}}', '{"cost": {"rows": []}}'):
        (tmp_path / "results.json").write_text(content, encoding="utf-8")
        outcome = stability("--quick", "--out", tmp_path)
        assert outcome.exit_code == 2
        assert "--out must be a new folder, or one of this experiment" in outcome.stderr
        assert (tmp_path / "results.json").read_text(encoding="utf-8") == content
    outcome = stability("--quick", "--out", tmp_path / "results.json")
    assert "--out must be a folder" in outcome.stderr
