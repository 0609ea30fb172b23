import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")]


@pytest.fixture(scope="module")
def digits():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module("digits")


@pytest.fixture(scope="module")
def demo(digits, tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return out, digits.run(out, max_steps=100, width=32, n_digits=500)


def test_the_demo_writes_its_report_its_pictures_and_its_numbers(demo):
    out, results = demo
    pictures = {f"{name}.png" for name in ("tangents", "dimension", "scale", "denoising", "training")}
    assert {path.name for path in out.iterdir()} == pictures | {"report.html", "results.json"}
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == results
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<img ") == len(pictures)
    assert f"{results['dimension']:.1f} of 64" in page


def test_the_numbers_are_plausible(demo):
    _, results = demo
    low, high = results["bandwidth_range"]
    assert 0 < low <= results["bandwidth"] <= high
    assert 0 < results["dimension"] <= results["rank"]
    assert set(results["dimension_by_class"]) == set("0123456789")
    assert all(0 <= dimension <= results["rank"] for dimension in results["dimension_by_class"].values())
    smallest, largest = results["eigenvalue_range"]
    assert 0 <= smallest < largest
    assert np.isfinite(results["score"])
    assert len(results["gain"]["Carré"]) == len(results["gain"]["kernel"]) == len(results["gain"]["bandwidths"])
    assert 0 < results["run"]["fit_seconds"] < results["run"]["seconds"]


def test_every_denoiser_removes_a_part_of_the_noise(demo):
    _, results = demo
    assert results["noise_removed"][0]["bandwidth"] == results["bandwidth"]
    for row in results["noise_removed"]:
        assert 0.8 * row["linear"] < row["Carré"] < 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--steps", "0"], "steps must be a positive integer; got 0"),
        (["--out", __file__], "out must be a folder; got the file"),
    ],
)
def test_wrong_arguments_get_one_clear_sentence(digits, monkeypatch, arguments, sentence):
    monkeypatch.setattr(sys, "argv", ["digits.py", *arguments])
    with pytest.raises(SystemExit, match=sentence) as stop:
        digits.main()
    assert "\n" not in str(stop.value)
