"""The modules of experiments."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


CPU = torch.device("cpu")


NAMES = ("settings", "data", "classifier", "flow", "paths", "spectra", "summary", "figures")


@pytest.fixture(scope="module")
def mnist():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXPERIMENTS / "mnist")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})


@pytest.fixture(scope="module")
def strokes(mnist):
    return mnist.data.draw_strokes(80, 64, CPU)


def pytest_collection_modifyitems(items):
    """Leave experiments out of the fast run, which is about the library."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
