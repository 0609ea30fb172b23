"""A fit and the geometry it returns: what it answers, and every error."""

import pickle
import sys
import warnings
from collections import Counter

import jaxtyping
import numpy as np
import pytest
import torch

import carre
from carre import LinearPhaseWarning, LowRankMetric, NeuralField, boundary
from carre.manifolds import Sphere
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")


@pytest.fixture(scope="module")
def fitted():
    """A circle of radius 2 around (5, 5), in the plane of three coordinates: enough steps to know the tangent."""
    samples = 5.0 + 2.0 * circle(800)
    with pytest.MonkeyPatch.context() as patch:
        # Types are checked in shorter fits, and in what this one is asked.
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        return carre.fit(samples, max_steps=350, width=32, n_blocks=2, device="cpu", verbose=False, random_state=0)


QUERIES = 5.0 + 2.0 * circle(200, seed=1)


def test_a_circle_has_one_dimension_and_the_right_tangent(fitted):
    assert (fitted.dimension(QUERIES) == 1).mean() > 0.95
    tangent = fitted.tangent_basis(QUERIES, 1)[:, :, 0]
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
    assert metric.factor.shape == (200, fitted.rank, 3)
    assert fitted.eigenvalues(QUERIES).shape == (200, min(fitted.rank, 3))
    assert fitted.dimension(QUERIES).shape == (200,)
    assert fitted.tangent_basis(QUERIES, 2).shape == (200, 3, 2)
    assert fitted.denoise(QUERIES).shape == (200, 3)
    assert isinstance(fitted.score(QUERIES), float)
    assert isinstance(fitted.field, NeuralField)


def test_what_is_learned_is_kept(fitted):
    low, high = fitted.bandwidth_range
    assert low <= fitted.bandwidth <= high
    assert fitted.scale_profile.bandwidth[fitted.scale_profile.chosen] == pytest.approx(fitted.bandwidth)
    assert fitted.history.gain.max() > 0.5, "a circle is curved in one direction"
    assert fitted.history.bandwidths[0] < fitted.history.bandwidths[-1] <= high
    assert fitted.dim == 3


def test_the_papers_carre_du_champ_is_half_of_g(fitted):
    local = fitted.at(QUERIES)
    torch.testing.assert_close(local.gamma().dense(), local.metric.dense() / 2)
    offset = torch.as_tensor(local.denoised - QUERIES) / fitted.bandwidth
    uncentered = (local.metric.dense() + offset[:, :, None] * offset[:, None, :]) / 2
    torch.testing.assert_close(local.gamma(centered=False).dense(), uncentered)


def test_bandwidths_broadcast(fitted):
    sigmas = np.linspace(*fitted.bandwidth_range, len(QUERIES))
    many = fitted.eigenvalues(QUERIES, bandwidth=sigmas)
    one = fitted.eigenvalues(QUERIES[7:8], bandwidth=float(sigmas[7]))
    np.testing.assert_allclose(many[7], one[0], atol=1e-8)


def test_tensors_in_tensors_out_and_gradients_flow(fitted):
    points = torch.as_tensor(QUERIES).requires_grad_()
    fitted.denoise(points).sum().backward()
    assert torch.isfinite(points.grad).all()
    single = torch.as_tensor(QUERIES, dtype=torch.float32)
    assert fitted.tangent_basis(single, 1).dtype == torch.float32
    np.testing.assert_allclose(
        fitted.eigenvalues(single).numpy(), fitted.eigenvalues(QUERIES), atol=1e-4, err_msg="float32 and float64 agree"
    )


def test_more_points_than_one_chunk(monkeypatch, fitted):
    whole = fitted.dimension(QUERIES)
    monkeypatch.setitem(sys.modules["carre.fields.neural"]._CHUNK, "cpu", 64)
    np.testing.assert_array_equal(fitted.dimension(QUERIES), whole)


def test_score_prefers_the_data_over_something_else(fitted):
    elsewhere = QUERIES + np.random.default_rng(0).normal(size=QUERIES.shape)
    assert fitted.score(QUERIES) > fitted.score(elsewhere)
    assert fitted.score(QUERIES) == fitted.score(QUERIES)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_geometry():
    first, second, other = (
        carre.fit(circle(), **{**TINY, "random_state": seed}).metric(circle()).factor for seed in (3, 3, 4)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.slow
def test_units_do_not_matter():
    """Scaling and shifting the data scales and shifts the answers: the fit works in its own units."""
    samples = circle(200)
    plain, moved = carre.fit(samples, **TINY), carre.fit(1000 * samples + 7, **TINY)
    assert moved.bandwidth == pytest.approx(1000 * plain.bandwidth, rel=1e-3)
    np.testing.assert_allclose(moved.eigenvalues(1000 * samples + 7), plain.eigenvalues(samples), atol=1e-3)


@pytest.mark.usefixtures("unchecked")
def test_bad_queries_are_named(fitted):
    with pytest.raises(ValueError, match="points must have 3 columns"):
        fitted.dimension(QUERIES[:, :2])
    with pytest.raises(ValueError, match="points must have 3 columns"):
        fitted.dimension(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        fitted.metric(QUERIES, bandwidth=-1.0)
    with pytest.raises(ValueError, match="bandwidth must be a number or have shape"):
        fitted.metric(QUERIES, bandwidth=np.ones(3))
    with pytest.raises(ValueError, match=r"dimension must lie between 1 and 3 .*got 7$"):
        fitted.tangent_basis(QUERIES, 7)
    with pytest.raises(ValueError, match="bandwidth must be numeric"):
        fitted.dimension(QUERIES, bandwidth="a")


def test_uncentered_geometry_says_what_it_cannot_do():
    geometry = carre.fit(circle(60), **TINY, method="uncentered")
    assert geometry.at(circle(5)).gamma().rank == geometry.rank
    assert geometry.at(circle(5)).dimension.shape == (5,)
    uncentered = (geometry.denoise, geometry.score, lambda points: geometry.at(points).gamma(centered=False))
    for call in uncentered:
        with pytest.raises(ValueError, match=r"uncentered|denoiser"):
            call(circle(5))


@pytest.mark.slow
def test_ridge_is_part_of_the_metric():
    geometry = carre.fit(circle(60), **TINY, ridge=0.25)
    assert geometry.eigenvalues(circle(5)).min() >= 0.25
    assert geometry.metric(circle(5)).solve(torch.ones(5, 3, dtype=torch.float64)).isfinite().all()


def test_a_given_bandwidth_is_not_second_guessed():
    geometry = carre.fit(circle(60), **TINY, bandwidth=0.3)
    assert geometry.bandwidth == 0.3
    assert geometry.scale_profile is None


@pytest.mark.slow
def test_stopping_in_the_linear_phase_warns_and_flat_data_do_not():
    rng = np.random.default_rng(0)
    sphere = rng.normal(size=(2000, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    with pytest.warns(LinearPhaseWarning, match="train longer"):
        carre.fit(sphere, **{**TINY, "max_steps": 3})
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinearPhaseWarning)
        carre.fit(rng.normal(size=(1000, 3)), **{**TINY, "max_steps": 100})
        carre.fit(rng.normal(size=(60, 3)), **{**TINY, "max_steps": 100})


@pytest.mark.slow
def test_few_samples_warn():
    with pytest.warns(UserWarning, match="only 8 samples"):
        carre.fit(circle(8), **TINY)


def test_queries_outside_the_trained_range_warn(fitted):
    with pytest.warns(UserWarning, match="outside the range"):
        fitted.dimension(QUERIES, bandwidth=1e-6)
    wide = carre.fit(circle(60), **TINY, bandwidth=1e-4)
    assert wide.bandwidth_range[0] < 1e-4


@pytest.mark.slow
def test_a_rank_that_cuts_dimensions_off_warns():
    flat = np.random.default_rng(0).normal(size=(600, 5))
    with pytest.warns(UserWarning, match="rank 2 is too small.*up to 5"):
        carre.fit(flat, **{**TINY, "max_steps": 150, "learning_rate": 5e-3}, rank=2)


@pytest.mark.gpu
def test_a_fit_on_a_gpu_answers_questions_from_both_sides():
    samples = circle(1000)
    geometry = carre.fit(torch.as_tensor(samples).cuda(), max_steps=300, verbose=False, random_state=0)
    assert geometry.device.type == "cuda"
    on_gpu = geometry.tangent_basis(torch.as_tensor(samples[:50]).cuda(), 1)
    assert on_gpu.is_cuda
    assert (geometry.dimension(samples[:50]) == 1).mean() > 0.9
    again = pickle.loads(pickle.dumps(geometry))
    np.testing.assert_allclose(again.denoise(samples[:5]), geometry.denoise(samples[:5]), atol=1e-6)


def test_at_asks_each_network_once(fitted, monkeypatch):
    """One forward pass answers everything, the mean another one at a finer scale for edges; points are checked once."""
    passes, checks = [], []
    evaluate, is_finite = carre.NeuralField._evaluate, boundary.is_finite
    monkeypatch.setattr(
        carre.NeuralField, "_evaluate", lambda self, *given: passes.append(given[2]) or evaluate(self, *given)
    )
    monkeypatch.setattr(boundary, "is_finite", lambda *given: checks.append(given[0].shape) or is_finite(*given))
    local = fitted.at(QUERIES)
    assert passes == [], "nothing is computed before it is asked for"
    for _ in range(2):
        assert local.metric.rank == fitted.rank
        assert local.eigenvalues.shape == (200, 3)
        assert local.dimension.shape == (200,)
        assert local.tangent_basis(1).shape == (200, 3, 1)
        assert local.denoised.shape == (200, 3)
        assert local.gamma(centered=False).dim == 3
        assert local.gradient(lambda x: x[:, 0]).shape == (200, 3)
    assert sorted(set(passes)) == ["factor", "mean"]
    # A dimension may need the mean at a finer scale.
    assert passes.count("factor") == 1 <= passes.count("mean") <= 2
    # The points, and each answer.
    assert Counter(map(tuple, checks)) == {(200, 3): 1 + passes.count("mean"), (200, 4, 3): 1}


@pytest.mark.parametrize(
    "ask",
    [
        lambda g, X: g.dimension(X),
        lambda g, X: g.eigenvalues(X),
        lambda g, X: g.tangent_basis(X, 1),
        lambda g, X: g.denoise(X),
        lambda g, X: g.metric(X),
        lambda g, X: g.laplacian(lambda x: x[:, 0], X),
        lambda g, X: g.curvature(X, dimension=1).scalar,
        lambda g, X: g.exponential(X, np.ones_like(X), n_steps=2),
    ],
    ids=["dimension", "eigenvalues", "tangent_basis", "denoise", "metric", "laplacian", "curvature", "exponential"],
)
def test_a_question_is_checked_once(fitted, ask, monkeypatch):
    checked = []
    for module in [m for name, m in sys.modules.items() if name.startswith("carre.") and hasattr(m, "as_points")]:
        original = module.as_points
        monkeypatch.setattr(
            module, "as_points", lambda *a, f=original, **k: checked.append(k.get("name", "points")) or f(*a, **k)
        )
    ask(fitted, QUERIES[:7])
    assert checked.count("points") == 1
    assert len(checked) == len(set(checked)), "what is given beside points is checked once, too"


def test_what_a_local_view_says_is_what_the_geometry_says(fitted):
    local = fitted.at(QUERIES, 0.5)
    np.testing.assert_array_equal(local.dimension, fitted.dimension(QUERIES, 0.5))
    np.testing.assert_array_equal(local.eigenvalues, fitted.eigenvalues(QUERIES, 0.5))
    np.testing.assert_array_equal(local.tangent_basis(2), fitted.tangent_basis(QUERIES, 2, 0.5))
    np.testing.assert_allclose(local.gradient(lambda x: x[:, 0]), fitted.gradient(lambda x: x[:, 0], QUERIES, 0.5))
    assert repr(local) == "Local(200 points, σ = 0.5)"


def test_a_geometry_is_a_field_and_can_stand_around_any(fitted):
    assert isinstance(fitted, carre.MetricField)
    truth = carre.ExactField(Sphere(2))
    around = carre.Geometry(truth, 0.1, (0.01, 1.0), landmarks=truth.manifold.sample(200), rank=3)
    pole = np.array([[0.0, 0.0, 1.0]])
    assert around.dimension(pole).tolist() == [2]
    assert around.at(pole).eigenvalues.round(2).tolist() == [[0.99, 0.99, 0.01]]
    assert float(around.path(pole[0], [1.0, 0.0, 0.0]).length()) == pytest.approx(np.pi / 2, rel=1e-3)
    assert around.curvature(pole).scalar.round(2).tolist() == [2.0]


def test_geometries_are_pickled_without_what_can_be_made_again(fitted):
    fitted.distances(QUERIES[:2])
    again = pickle.loads(pickle.dumps(fitted))
    assert fitted._kept
    assert not again._kept
    np.testing.assert_array_equal(again.denoise(QUERIES), fitted.denoise(QUERIES))
