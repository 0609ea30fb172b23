"""The face for scikit-learn: its contract, and nothing but a fit behind it."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import carre
from carre import MetricMatching
from carre.fitting import FitSettings
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")


@pytest.mark.slow
def test_scikit_learn_finds_nothing_to_complain_about():
    """`check_estimator`, with no expected failures."""
    results = check_estimator(MetricMatching(**{**TINY, "max_steps": 2}))
    assert len(results) > 40
    assert not {"failed", "xfail"} & {result["status"] for result in results}


@pytest.mark.slow
def test_a_fit_that_fails_leaves_the_earlier_one_as_it_was():
    estimator = MetricMatching(**TINY).fit(circle(60))
    before = estimator.geometry_.denoise(circle(5))
    with pytest.raises(ValueError, match="same point"):
        estimator.fit(np.ones((30, 7)))
    np.testing.assert_array_equal(estimator.geometry_.denoise(circle(5)), before)
    assert estimator.n_features_in_ == 3


@pytest.mark.slow
def test_model_selection_runs_through_scikit_learn():
    search = GridSearchCV(MetricMatching(**TINY), {"rank": [1, 2]}, cv=2).fit(circle(80))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_it_is_the_fit_and_no_more():
    samples = circle(60)
    estimator, geometry = MetricMatching(**TINY).fit(samples), carre.fit(samples, **TINY)
    np.testing.assert_array_equal(estimator.geometry_.denoise(samples), geometry.denoise(samples))
    assert estimator.score(samples) == geometry.score(samples)
    public = {
        name for name in dir(MetricMatching) if not name.startswith("_") and callable(getattr(MetricMatching, name))
    }
    assert len(public) <= 15
    names = set(MetricMatching().get_params())
    others = {"checkpoint", "device", "n_components", "random_state", "scale", "verbose"}
    assert names == set(FitSettings.__dataclass_fields__) | others


def test_names_of_columns_reach_the_geometry():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(circle(60), columns=["x", "y", "z"])
    estimator = MetricMatching(**TINY).fit(frame)
    assert estimator.feature_names_in_.tolist() == ["x", "y", "z"]
    assert estimator.geometry_.feature_names == ("x", "y", "z")
    with pytest.raises(ValueError, match="feature names"):
        estimator.score(frame.rename(columns={"x": "u"}))


@pytest.mark.slow
def test_it_stands_at_the_end_of_a_pipeline():
    pipeline = make_pipeline(StandardScaler(with_std=False), MetricMatching(**TINY)).fit(circle(60))
    assert np.isfinite(pipeline.score(circle(20, seed=1)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:eigenvalues")
def test_a_pipeline_goes_on_after_transform_and_is_fitted_by_a_grid_search():
    """A step after the geometry sees harmonic coordinates; their number and the rank of the fit are searched over."""
    samples, angle = circle(90), np.random.default_rng(0).uniform(0, 2 * np.pi, 90)
    pipeline = make_pipeline(StandardScaler(with_std=False), MetricMatching(**TINY, bandwidth=0.3), LinearRegression())
    search = GridSearchCV(pipeline, {"metricmatching__n_components": [1, 2]}, cv=2).fit(samples, np.cos(angle))
    # One coordinate of a closed curve does not hold both cos and sin.
    assert search.best_params_ == {"metricmatching__n_components": 2}
    assert search.best_score_ > 0.9
    assert search.best_estimator_[:-1].transform(samples).shape == (90, 2)


@pytest.mark.filterwarnings("ignore:eigenvalues")
def test_transform_is_the_coordinates_of_the_geometry_named_and_the_same_again():
    pytest.importorskip("pandas")
    samples = circle(80)
    estimator = MetricMatching(**TINY, bandwidth=0.3, n_components=3).fit(samples)
    found = estimator.transform(samples)
    np.testing.assert_array_equal(found, estimator.geometry_.coordinates(samples, 3))
    np.testing.assert_allclose(pickle.loads(pickle.dumps(estimator)).transform(samples[:9]), found[:9], atol=1e-8)
    frame = estimator.set_output(transform="pandas").transform(samples)
    assert list(frame.columns) == ["metricmatching0", "metricmatching1", "metricmatching2"]
    np.testing.assert_array_equal(frame.to_numpy(), found)


def test_tensors_and_images_are_taken_too():
    assert MetricMatching(**TINY).fit(torch.as_tensor(circle(60))).n_features_in_ == 3
    fresh = clone(MetricMatching(**TINY).fit(circle(60)))
    assert not hasattr(fresh, "geometry_")
    assert fresh.get_params()["max_steps"] == TINY["max_steps"]
