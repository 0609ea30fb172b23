"""The examples that draw one picture each: tiny settings show that they run, the real ones that they are true."""

import importlib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = {
    "gradient_on_noisy_data": {"n_samples": 200, "max_steps": 20, "width": 16},
    "path_between_samples": {"n_samples": 300, "max_steps": 20, "width": 16, "n_nodes": 17},
    "black_box_on_data": {"n_train": 300, "n_per_class": 1, "n_pushes": 2, "max_steps": 20, "width": 16},
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning"),
    pytest.mark.filterwarnings("ignore:rank .* is too small"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(scope="module")
def load():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module


@pytest.mark.parametrize("name", TINY)
def test_a_command_writes_its_picture_and_says_where(load, tmp_path, monkeypatch, capsys, name):
    module, out = load(name), tmp_path / "new"
    real = module.run
    monkeypatch.setattr(module, "run", lambda out: real(out, **TINY[name]))
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--out", str(out)])
    module.main()
    assert [path.name for path in out.iterdir()] == [f"{name}.png"]
    assert f"The picture: {out / name}.png" in capsys.readouterr().out


def test_gradients_along_noisy_data_are_several_times_nearer_to_the_truth(load):
    results = load("gradient_on_noisy_data").run()
    free = results["∂f, off the data"]
    assert results["from the function"] < 0.35 * free
    assert results["from values at the samples"] < 0.35 * free


def test_the_path_on_the_roll_is_as_long_as_it_should_be(load):
    results = load("path_between_samples").run(n_nodes=33)
    assert results["length of the path"] == pytest.approx(results["true length"], rel=0.02)
    assert results["path leaves the sheet by"] < 0.2 * results["line leaves the sheet by"]


def test_images_pushed_along_the_data_stay_nearer_to_real_digits(load):
    ways = load("black_box_on_data").run(n_per_class=1, max_steps=300, width=64, n_train=800)["ways"]
    assert min(ways[way]["black box"] for way in ("on the data", "off the data", "off, as far")) > 0.9
    assert ways["on the data"]["nearest real digit"] < ways["off the data"]["nearest real digit"] - 1
    assert ways["on the data"]["nearest real digit"] < ways["off, as far"]["nearest real digit"] - 2
    assert ways["off, as far"]["moved"] == pytest.approx(ways["on the data"]["moved"], rel=0.1)
