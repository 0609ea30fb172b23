"""Every kind of dataset, and every mistake, at the door of the estimator."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

import carre
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.slow
@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype(np.float32),
        np.asfortranarray,
        lambda x: x[::-1],
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x.tolist(),
        lambda x: pd.DataFrame(x, columns=["a", "b", "c"]),
        torch.as_tensor,
        lambda x: torch.as_tensor(x, dtype=torch.float32),
        lambda x: torch.as_tensor(100 * x).to(torch.int64),
        lambda x: np.round(100 * x).astype(int),
        lambda x: x.astype(">f8"),
    ],
)
def test_every_kind_of_array_is_accepted_and_left_alone(convert):
    given = convert(circle(60))
    before = copy.deepcopy(given)
    geometry = carre.fit(given, **TINY)
    assert len(geometry.dimension(given)) == 60
    np.testing.assert_array_equal(np.asarray(given), np.asarray(before))


@pytest.mark.slow
def test_read_only_arrays_are_accepted():
    samples = circle(60)
    samples.setflags(write=False)
    assert carre.fit(samples, **TINY).denoise(samples).flags.writeable


@pytest.mark.slow
@pytest.mark.parametrize(
    "samples",
    [
        np.concatenate([circle(60), np.ones((60, 4))], axis=1),
        np.repeat(circle(6), 10, axis=0),
        circle(4),
        np.random.default_rng(0).normal(size=(8, 50)),
        1e6 + 1e-2 * circle(60),
        1e-8 * circle(60),
        np.array([[0.0], [1.0], [2.0], [5.0]]),
        np.array([[0.0, 0.0], [1.0, 1.0]]),
    ],
    ids=[
        "constant columns",
        "duplicates",
        "tiny n",
        "n < D",
        "far from the origin",
        "tiny units",
        "one column",
        "two points",
    ],
)
def test_awkward_datasets_behave(samples):
    geometry = carre.fit(samples, **TINY)
    assert np.isfinite(geometry.eigenvalues(samples)).all()
    assert np.isfinite(geometry.denoise(samples)).all()
    assert geometry.bandwidth > 0
    basis = geometry.tangent_basis(samples, 1)
    np.testing.assert_allclose(np.linalg.norm(basis, axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((0, 3)), "minimum of 1 is required|must not be empty"),
        (np.zeros(5), "Expected 2D array|must have shape"),
        (np.zeros((1, 3)), "at least 2 samples"),
        (np.full((10, 3), np.nan), "NaN"),
        (np.full((10, 3), np.inf), "infinity"),
        (np.ones((10, 3)), "same point"),
        (torch.full((10, 3), torch.nan), "X must be finite"),
        (torch.zeros(5), "X must have shape"),
        (torch.zeros(0, 3), "X must not be empty"),
        (torch.zeros(5, 3, dtype=torch.complex64), "real"),
    ],
)
def test_bad_samples_are_refused_in_a_sentence(samples, message):
    with pytest.raises(ValueError, match=message):
        carre.fit(samples, **TINY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank must be a positive integer"),
        ({"width": -1}, "width must be"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"max_seconds": -1.0}, "max_seconds must be positive"),
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
        ({"bandwidth": -0.1}, "bandwidth must be positive"),
        ({"bandwidth_range": (1.0, 0.1)}, "0 < low < high"),
        ({"method": "magic"}, "method must be one of joint"),
        ({"method": "two-stage"}, "denoiser must be given"),
        ({"denoiser": lambda y, s: y}, "denoiser must be given with method='two-stage', and only then"),
        ({"block": "square"}, "block must be one of gated"),
        ({"ridge": -1.0}, "ridge must be a number from 0"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie"),
        ({"device": "abacus"}, "device must be"),
        ({"rank": True}, "rank must be an integer or None; got True"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"bandwidth_range": (0.1, 0.2, 0.3)}, "must be a pair"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        carre.fit(circle(60), **{**TINY, **settings})


@pytest.mark.parametrize(("factor", "kind", "most"), [(1e200, "float64", "150"), (1e18, "float32", "17")])
def test_numbers_whose_squares_overflow_are_refused(factor, kind, most):
    with pytest.raises(ValueError, match=f"X must lie within ±1e\\+{most} in {kind}: squares would overflow"):
        carre.fit((factor * circle()).astype(kind), **TINY)


def test_tiny_units_beyond_rounding_are_named():
    with pytest.raises(ValueError, match=r"nor differ by less than rounding.*Multiply tiny units"):
        carre.fit(1e-200 * circle(), **TINY)
