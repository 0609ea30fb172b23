"""The estimator: scikit-learn's contract, every kind of input, every error."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from carre import LinearPhaseWarning, LowRankMetric, MetricMatching, NeuralField
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")


@pytest.mark.slow
def test_scikit_learn_finds_nothing_to_complain_about():
    """`check_estimator`, with no expected failures; in a process of its own, where shapes are not checked."""
    code = f"""
import warnings
from sklearn.utils.estimator_checks import check_estimator
from carre import LinearPhaseWarning, MetricMatching
warnings.simplefilter("ignore", LinearPhaseWarning)
results = check_estimator(MetricMatching(**{TINY!r}))
print(len(results), {{result["status"] for result in results}})
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    count, statuses = done.stdout.split(maxsplit=1)
    assert int(count) > 40
    assert "failed" not in statuses
    assert "xfail" not in statuses


@pytest.fixture(scope="module")
def fitted():
    """A circle of radius 2 around (5, 5), in the plane of three coordinates: enough steps to know the tangent."""
    samples = 5.0 + 2.0 * circle(800)
    return MetricMatching(max_steps=400, width=32, n_blocks=2, device="cpu", verbose=False, random_state=0).fit(samples)


QUERIES = 5.0 + 2.0 * circle(200, seed=1)


def test_a_circle_has_one_dimension_and_the_right_tangent(fitted):
    assert (fitted.dimension(QUERIES) == 1).mean() > 0.95
    tangent = fitted.tangent_basis(QUERIES, dim=1)[:, :, 0]
    radial = (QUERIES - 5.0) / 2.0
    truth = np.stack([-radial[:, 1], radial[:, 0], 0 * radial[:, 0]], 1)
    assert np.abs((tangent * truth).sum(1)).mean() > 0.98
    assert isinstance(fitted.dimension(QUERIES), np.ndarray), "NumPy in, NumPy out"


def test_denoising_pulls_points_back_onto_the_data(fitted):
    away = QUERIES + np.array([0.0, 0.0, 0.3])
    pulled = fitted.denoise(away, bandwidth=0.3)
    assert np.abs(pulled[:, 2] - 5.0).max() < 1e-6, "the hull of the data is a plane"
    outside = 5.0 + 1.1 * (QUERIES - 5.0)
    radius = np.linalg.norm(fitted.denoise(outside, bandwidth=0.3) - 5.0, axis=1)
    assert np.abs(radius - 2.0).mean() < 0.1


def test_every_query_has_the_shape_it_promises(fitted):
    metric = fitted.metric(QUERIES)
    assert isinstance(metric, LowRankMetric)
    assert metric.factor.shape == (200, fitted.rank_, 3)
    assert fitted.eigenvalues(QUERIES).shape == (200, min(fitted.rank_, 3))
    assert fitted.dimension(QUERIES).shape == (200,)
    assert fitted.tangent_basis(QUERIES, dim=2).shape == (200, 3, 2)
    assert fitted.denoise(QUERIES).shape == (200, 3)
    assert isinstance(fitted.score(QUERIES), float)
    assert isinstance(fitted.field_, NeuralField)


def test_what_is_learned_is_kept(fitted):
    low, high = fitted.bandwidth_range_
    assert low <= fitted.bandwidth_ <= high
    assert fitted.scale_profile_.bandwidth[fitted.scale_profile_.chosen] == pytest.approx(fitted.bandwidth_)
    assert fitted.history_.gain.max() > 0.5, "a circle is curved in one direction"
    assert fitted.history_.bandwidths[0] < fitted.history_.bandwidths[-1] <= high
    assert fitted.n_features_in_ == 3


def test_the_papers_carre_du_champ_is_half_of_g(fitted):
    torch.testing.assert_close(fitted.carre_du_champ(QUERIES).dense(), fitted.metric(QUERIES).dense() / 2)
    offset = torch.as_tensor(fitted.denoise(QUERIES) - QUERIES) / fitted.bandwidth_
    uncentered = (fitted.metric(QUERIES).dense() + offset[:, :, None] * offset[:, None, :]) / 2
    torch.testing.assert_close(fitted.carre_du_champ(QUERIES, centered=False).dense(), uncentered)


def test_bandwidths_broadcast(fitted):
    sigmas = np.linspace(*fitted.bandwidth_range_, len(QUERIES))
    many = fitted.eigenvalues(QUERIES, bandwidth=sigmas)
    one = fitted.eigenvalues(QUERIES[7:8], bandwidth=float(sigmas[7]))
    np.testing.assert_allclose(many[7], one[0], atol=1e-8)


def test_tensors_in_tensors_out_and_gradients_flow(fitted):
    points = torch.as_tensor(QUERIES).requires_grad_()
    fitted.denoise(points).sum().backward()
    assert torch.isfinite(points.grad).all()
    single = torch.as_tensor(QUERIES, dtype=torch.float32)
    assert fitted.tangent_basis(single, dim=1).dtype == torch.float32
    np.testing.assert_allclose(
        fitted.eigenvalues(single).numpy(), fitted.eigenvalues(QUERIES), atol=1e-4, err_msg="float32 and float64 agree"
    )


def test_more_points_than_one_chunk(monkeypatch, fitted):
    whole = fitted.dimension(QUERIES)
    monkeypatch.setattr("carre.estimator.queries._CHUNK", 64)
    np.testing.assert_array_equal(fitted.dimension(QUERIES), whole)


def test_score_prefers_the_data_over_something_else(fitted):
    elsewhere = QUERIES + np.random.default_rng(0).normal(size=QUERIES.shape)
    assert fitted.score(QUERIES) > fitted.score(elsewhere)
    assert fitted.score(QUERIES) == fitted.score(QUERIES)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_geometry():
    first, second, other = (
        MetricMatching(**{**TINY, "random_state": seed}).fit(circle()).metric(circle()).factor for seed in (3, 3, 4)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.slow
def test_units_do_not_matter():
    """Scaling and shifting the data scales and shifts the answers: the fit works in its own units."""
    samples = circle(200)
    plain, moved = MetricMatching(**TINY).fit(samples), MetricMatching(**TINY).fit(1000 * samples + 7)
    assert moved.bandwidth_ == pytest.approx(1000 * plain.bandwidth_, rel=1e-3)
    np.testing.assert_allclose(moved.eigenvalues(1000 * samples + 7), plain.eigenvalues(samples), atol=1e-3)


def test_bad_queries_are_named(fitted):
    with pytest.raises(ValueError, match="X has 2 features"):
        fitted.dimension(QUERIES[:, :2])
    with pytest.raises(ValueError, match="X must have 3 columns"):
        fitted.dimension(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        fitted.metric(QUERIES, bandwidth=-1.0)
    with pytest.raises(ValueError, match="bandwidth must be a number or have shape"):
        fitted.metric(QUERIES, bandwidth=np.ones(3))
    with pytest.raises(ValueError, match=r"dim must lie between 1 and 3 .*got 7$"):
        fitted.tangent_basis(QUERIES, dim=7)
    with pytest.raises(ValueError, match="bandwidth must be a number"):
        fitted.dimension(QUERIES, bandwidth="a")


def test_uncentered_geometry_says_what_it_cannot_do():
    geometry = MetricMatching(**TINY, method="uncentered").fit(circle(60))
    assert geometry.carre_du_champ(circle(5), centered=False).rank == geometry.rank_
    for call in (geometry.denoise, geometry.score, geometry.carre_du_champ):
        with pytest.raises(ValueError, match=r"uncentered|denoiser"):
            call(circle(5))


@pytest.mark.slow
def test_ridge_is_part_of_the_metric():
    geometry = MetricMatching(**TINY, ridge=0.25).fit(circle(60))
    assert geometry.eigenvalues(circle(5)).min() >= 0.25
    assert geometry.metric(circle(5)).solve(torch.ones(5, 3, dtype=torch.float64)).isfinite().all()


def test_a_given_bandwidth_is_not_second_guessed():
    geometry = MetricMatching(**TINY, bandwidth=0.3).fit(circle(60))
    assert geometry.bandwidth_ == 0.3
    assert geometry.scale_profile_ is None


@pytest.mark.slow
def test_stopping_in_the_linear_phase_warns_and_flat_data_do_not():
    rng = np.random.default_rng(0)
    sphere = rng.normal(size=(2000, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    with pytest.warns(LinearPhaseWarning, match="train longer"):
        MetricMatching(**{**TINY, "max_steps": 3}).fit(sphere)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinearPhaseWarning)
        MetricMatching(**{**TINY, "max_steps": 100}).fit(rng.normal(size=(1000, 3)))
        MetricMatching(**{**TINY, "max_steps": 100}).fit(rng.normal(size=(60, 3)))


@pytest.mark.slow
def test_a_fit_that_fails_leaves_the_earlier_one_as_it_was():
    geometry = MetricMatching(**TINY).fit(circle(60))
    before = geometry.denoise(circle(5))
    with pytest.raises(ValueError, match="same point"):
        geometry.fit(np.ones((30, 7)))
    np.testing.assert_array_equal(geometry.denoise(circle(5)), before)
    assert geometry.n_features_in_ == 3


@pytest.mark.slow
def test_few_samples_warn():
    with pytest.warns(UserWarning, match="only 8 samples"):
        MetricMatching(**TINY).fit(circle(8))


def test_queries_outside_the_trained_range_warn(fitted):
    with pytest.warns(UserWarning, match="outside the range"):
        fitted.dimension(QUERIES, bandwidth=1e-6)
    wide = MetricMatching(**TINY, bandwidth=1e-4).fit(circle(60))
    assert wide.bandwidth_range_[0] < 1e-4


@pytest.mark.slow
def test_a_rank_that_cuts_dimensions_off_warns():
    flat = np.random.default_rng(0).normal(size=(600, 5))
    with pytest.warns(UserWarning, match="rank 2 is too small.*up to 5"):
        MetricMatching(**{**TINY, "max_steps": 150, "learning_rate": 5e-3}, rank=2).fit(flat)


def test_clones_and_pickles_work(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.denoise(QUERIES), fitted.denoise(QUERIES))
    fresh = clone(fitted)
    assert not hasattr(fresh, "field_")
    assert fresh.get_params()["max_steps"] == 400


@pytest.mark.slow
def test_model_selection_runs_through_scikit_learn():
    search = GridSearchCV(MetricMatching(**TINY), {"rank": [1, 2]}, cv=2).fit(circle(80))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.gpu
def test_a_fit_on_a_gpu_answers_questions_from_both_sides():
    samples = circle(1000)
    geometry = MetricMatching(max_steps=300, verbose=False, random_state=0).fit(torch.as_tensor(samples).cuda())
    assert geometry.device_.type == "cuda"
    on_gpu = geometry.tangent_basis(torch.as_tensor(samples[:50]).cuda(), dim=1)
    assert on_gpu.is_cuda
    assert (geometry.dimension(samples[:50]) == 1).mean() > 0.9
    again = pickle.loads(pickle.dumps(geometry))
    np.testing.assert_allclose(again.denoise(samples[:5]), geometry.denoise(samples[:5]), atol=1e-6)
