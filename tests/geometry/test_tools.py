"""The tools as methods: the same numbers as the functions, in the caller's kind, with the fitted scale."""

import pickle

import numpy as np
import pytest
import torch

import carre
from carre import toolkit
from carre.manifolds import Sphere
from carre.toolkit import Path

pytestmark = pytest.mark.slow


def tilt(points):
    return points[:, 0] + points[:, 1] ** 2


@pytest.fixture(scope="module")
def sphere():
    return Sphere(2).embed(4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def geometry(sphere):
    samples = sphere.sample(600, generator=torch.Generator().manual_seed(1))
    settings = {"max_steps": 150, "width": 48, "device": "cpu", "verbose": False, "random_state": 0}
    return carre.fit(samples.numpy(), **settings)


@pytest.fixture(scope="module")
def points(sphere):
    return sphere.sample(6, generator=torch.Generator().manual_seed(2)).numpy()


@pytest.mark.slow
def test_threads_are_finest_at_the_smallest_trained_scale_and_join_one_to_many(geometry, points):
    low, tensor = geometry.bandwidth_range[0], torch.from_numpy(points)
    sigma = torch.tensor([0.2, 0.5 * low, 0.3], dtype=torch.float64)
    with pytest.warns(UserWarning, match="outside the range"):
        drawn = geometry.path(points[0], points[1:4], sigma, n_nodes=5, method="thread")
    ends = (geometry.field, tensor[:1], tensor[1:4], sigma)
    finest = toolkit.Thread(finest=sigma.clamp(max=low))
    torch.testing.assert_close(drawn.nodes, toolkit.path(*ends, n_nodes=5, method=finest).nodes)
    assert not torch.allclose(drawn.nodes, toolkit.path(*ends, n_nodes=5, method="thread").nodes)


def test_calculus_is_that_of_the_functions(geometry, points):
    tensor, sigma = torch.from_numpy(points), geometry.bandwidth
    for name in ("gradient", "laplacian"):
        expected = getattr(toolkit, name)(geometry.field, tilt, tensor, sigma).numpy()
        np.testing.assert_allclose(getattr(geometry, name)(tilt, points), expected)
    hessian, basis = geometry.hessian(tilt, points, dimension=2)
    assert hessian.shape == (6, 2, 2)
    assert basis.shape == (6, 4, 2)
    np.testing.assert_allclose(
        geometry.divergence(lambda y: y**2, points, dimension=2),
        toolkit.divergence(geometry.field, lambda y: y**2, tensor, sigma, dimension=2).numpy(),
    )
    gamma = geometry.carre_du_champ(tilt, None, points)
    np.testing.assert_allclose(gamma, toolkit.carre_du_champ(geometry.field, tilt, None, tensor, sigma).numpy())


def test_a_gradient_of_values_is_close_to_that_of_the_function(geometry, sphere, points):
    samples = sphere.sample(2000, generator=torch.Generator().manual_seed(3))
    found = geometry.gradient_of_values(samples.numpy(), tilt(samples).numpy(), points, dimension=2)
    truth = geometry.gradient(tilt, points, dimension=2)
    assert np.linalg.norm(found - truth, axis=1).mean() < 0.15 * np.linalg.norm(truth, axis=1).mean()


def test_tangent_tools(geometry, points):
    vectors = np.ones_like(points)
    along = geometry.project(points, vectors, dimension=2)
    np.testing.assert_allclose(geometry.project(points, along, dimension=2), along, atol=1e-6)
    np.testing.assert_allclose(geometry.tangent_angles(points, points, dimension=2), 0, atol=1e-3)


def test_curvature_has_the_sign_of_a_sphere(geometry, points):
    assert geometry.second_fundamental_form(points, dimension=2)[0].shape == (6, 2, 2, 4)
    inwards = (geometry.curvature(points, dimension=2).mean * points).sum(1)
    assert (inwards < 0).all()
    assert geometry.curvature(points, dimension=2).scalar.mean() > 0.5


@pytest.mark.slow
def test_paths_start_and_end_where_they_should(geometry, points):
    path = geometry.path(points[:3], points[3:])
    assert isinstance(path, Path)
    moved = np.linalg.norm(path.numpy()[:, [0, -1]] - np.stack([points[:3], points[3:]], 1), axis=-1)
    np.testing.assert_allclose(moved / geometry.bandwidth, path.ends_off, rtol=1e-4, atol=1e-6)
    kept = geometry.path(points[:3], points[3:], method=carre.Geodesic(ends="given"))
    np.testing.assert_allclose(kept.numpy()[:, [0, -1]], np.stack([points[:3], points[3:]], 1))
    one = geometry.path(points[0], points[3])
    assert len(one) == 1
    assert float(one.length()[0]) == pytest.approx(float(path.length()[0]), rel=0.02)
    distances = geometry.distances(points[:2], points[3:5])
    assert distances.shape == (2, 2)
    assert distances[0, 0] == pytest.approx(float(path.length()[0]), rel=0.02)
    among = geometry.distances(points[:3])
    np.testing.assert_allclose(among, among.T)
    assert (np.diag(among) == 0).all()
    assert among[0, 1] == pytest.approx(float(geometry.distances(points[:1], points[1:2])[0, 0]), rel=1e-3)
    assert "graph" in geometry._kept
    carried = geometry.transport(path, geometry.logarithm(points[:3], points[3:], dimension=2), dimension=2)
    assert carried.shape[0] == 3
    flow = geometry.path(points[0], points[3], method="flow")
    assert len(flow.reasons) == 1
    leaving = geometry.exponential(points[:3], geometry.logarithm(points[:3], points[3:], dimension=2), dimension=2)
    assert leaving.nodes.shape[0] == 3


@pytest.mark.slow
def test_optimization_returns_arrays_and_stays_on_the_data(geometry, sphere, points):
    minimum = geometry.minimize(lambda y: y[:, 0], points, max_steps=30, dimension=2)
    assert isinstance(minimum.points, np.ndarray)
    assert (minimum.values < points[:, 0]).all()
    assert sphere.distance(torch.from_numpy(minimum.points)).max() < 0.2
    trajectory = geometry.gradient_flow(lambda y: y[:, 0], points, step=0.05, n_steps=5)
    assert trajectory.shape == (6, 6, 4)


def test_a_black_box_sees_arrays(geometry, points):
    seen = []

    def black_box(x):
        seen.append(type(x))
        return np.abs(x).sum(1)

    minimum = geometry.minimize(black_box, points, gradient="differences", max_steps=3, dimension=2, keep_path=True)
    assert (minimum.values <= np.abs(minimum.path[:, 1]).sum(1) + 1e-6).all()
    assert minimum.values.mean() < np.abs(points).sum(1).mean()
    assert set(seen) == {np.ndarray}


def test_validity_uses_the_landmarks(geometry, points):
    found = geometry.check(np.concatenate([points, 4 * points]))
    assert found.nearest is not None
    assert found.valid[:6].mean() > 0.8
    assert not found.valid[6:].any()


def test_dimension_scales_and_rank(geometry, points):
    estimate = geometry.estimate_dimension(points)
    assert estimate.value == 2
    assert estimate.bandwidth == geometry.bandwidth
    scales = geometry.local_bandwidths(points)
    assert scales.bandwidth.shape == (6,)
    assert geometry.bandwidth_range[0] <= scales.bandwidth.min()
    assert geometry.recommend_rank(points).rank == 6


@pytest.mark.slow
def test_a_network_that_lags_behind_a_kernel_does_not_answer_for_the_dimension():
    """After 20 steps a circle wound eight times around a torus is a torus, or less."""
    turn = np.linspace(0, 2 * np.pi, 1500, endpoint=False)
    radius = 2 + np.cos(8 * turn)
    curve = np.stack([radius * np.cos(turn), radius * np.sin(turn), np.sin(8 * turn)], 1)
    with pytest.warns(UserWarning, match="linear phase"):
        short = carre.fit(curve, max_steps=20, width=16, device="cpu", verbose=False, random_state=0)
    estimate = short.estimate_dimension(curve[::10])
    assert estimate.value == 1
    assert "kernel" in str(estimate)
    assert short.estimate_dimension(curve[::10], bandwidth=float(short.bandwidth)).source == ""


def test_tensors_come_back_as_tensors_in_their_precision(geometry, points):
    tensor = torch.from_numpy(points).float()
    assert geometry.gradient(tilt, tensor).dtype == torch.float32
    assert isinstance(geometry.minimize(tilt, tensor, max_steps=2).points, torch.Tensor)


def test_landmarks_are_a_part_of_the_samples_and_survive_pickling(geometry):
    assert geometry.landmarks.shape == (600, 4)
    again = pickle.loads(pickle.dumps(geometry))
    torch.testing.assert_close(again.landmarks, geometry.landmarks, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.gradient(lambda y: y, x), "function must map points"),
        (lambda g, x: g.gradient(lambda y: y[:, 0].detach(), x), "function must be differentiable"),
        (lambda g, x: g.path(x[:1], x[:1, :3]), "end must have 4 columns"),
        (lambda g, x: g.curvature(x, dimension=40).scalar, "dimension must lie between"),
        (lambda g, x: g.gradient(tilt, x, bandwidth=-1.0), "bandwidth must be positive"),
        (lambda g, x: g.project(x, x[:2]), "vectors must be as many"),
    ],
)
def test_bad_input_is_named(geometry, points, call, message):
    with pytest.raises(ValueError, match=message):
        call(geometry, points)


def test_local_scales_need_a_choice_to_start_from(sphere, points):
    samples = sphere.sample(100, generator=torch.Generator().manual_seed(1)).numpy()
    given = carre.fit(samples, bandwidth=0.3, max_steps=5, width=8, device="cpu", verbose=False)
    with pytest.raises(ValueError, match="bandwidth must be None at the fit"):
        given.local_bandwidths(points)
