"""The example on the pretrained model runs without data, and finds what the model knows."""

import importlib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_it_writes_its_pictures_and_its_figures_make_sense(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    module = importlib.import_module("mnist_geometry")
    found = module.run(tmp_path, max_sweeps=4)
    assert {file.name for file in tmp_path.iterdir()} == {"tangents.png", "paths.png", "denoised.png"}
    assert found["error of denoised digits"] < 0.25 * found["error of noisy digits"]
    assert 8 < found["dimension"] < 24
    assert 1 < found["length over chord"] < 2.5
