import functools

import matplotlib as mpl
import numpy as np
import pytest

from carre import fitting
from carre.training import DataScale, ImageScale

STEPS, WIDTH, IMAGE_STEPS = 200, 48, 8


@pytest.fixture(scope="session")
def known_fits():
    return {}


@pytest.fixture
def brief_fits(monkeypatch, tmp_path, known_fits):
    """What pages are run with: default budgets are cut to five seconds, and a fit of the same samples is made once.

    Settings that a page states itself are kept. Files are written to a folder of the test.
    """
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    monkeypatch.setattr(DataScale, "max_steps", lambda self, device: STEPS)
    monkeypatch.setattr(DataScale, "width", lambda self, device: WIDTH)
    monkeypatch.setattr(ImageScale, "max_steps", lambda self, device: IMAGE_STEPS)
    fit = fitting.fit

    @functools.wraps(fit)
    def fit_once(X, **settings):
        if not isinstance(X, np.ndarray) or {"network", "denoiser", "checkpoint"} & settings.keys():
            return fit(X, **settings)
        key = (repr(settings), X.tobytes())
        if key not in known_fits:
            known_fits[key] = fit(X, **settings)
        return known_fits[key]

    monkeypatch.setattr(fitting, "fit", fit_once)
