"""The modules of the experiment on MNIST."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "experiments/mnist"


CPU = torch.device("cpu")


NAMES = ("settings", "data", "classifier", "flow", "paths", "spectra", "summary")


@pytest.fixture(scope="module")
def mnist():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})


@pytest.fixture(scope="module")
def strokes(mnist):
    return mnist.data.draw_strokes(80, 64, CPU)
