"""The modules of experiments."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


CPU = torch.device("cpu")


NAMES = ("settings", "data", "classifier", "flow", "paths", "spectra", "summary")


@pytest.fixture(scope="module")
def mnist():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXPERIMENTS / "mnist")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})


@pytest.fixture(scope="module")
def strokes(mnist):
    return mnist.data.draw_strokes(80, 64, CPU)


@pytest.fixture(scope="module")
def script():
    """Import a script of the stability experiment by its name."""
    with pytest.MonkeyPatch.context() as patch:

        def load(name: str):
            spec = importlib.util.spec_from_file_location(f"stability_{name}", EXPERIMENTS / f"stability/{name}.py")
            module = importlib.util.module_from_spec(spec)
            patch.setitem(sys.modules, spec.name, module)
            spec.loader.exec_module(module)
            return module

        yield load
