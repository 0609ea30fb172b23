"""Minimizing along the data, against minima that are known (THEORY §4.6)."""

import numpy as np
import pytest
import torch

from carre.fields import ExactField, KernelField
from carre.manifolds import Box, CliffordTorus, Sphere
from carre.metric import LowRankMetric
from carre.toolkit.descent import gradient_flow, minimize

SIGMA = 0.1
# On S^d the landed points are off by what extrapolation leaves of the bias, (p−1)(p−3)σ⁴/16 with p = d + 1.
S5_OFFSET = 5 * 3 * SIGMA**4 / 16


class RoundField:
    """The unit sphere as σ → 0: the denoiser finds the nearest point, and G is its derivative. Quick to evaluate."""

    def __init__(self, dim=3):
        self.dim = dim

    def metric(self, points, bandwidth):
        radius = points.norm(dim=1)[:, None, None]
        outer = points[:, :, None] * points[:, None, :] / radius**2
        return LowRankMetric((torch.eye(self.dim, dtype=points.dtype) - outer) / radius.sqrt())

    def denoise(self, points, bandwidth):
        return points / points.norm(dim=1, keepdim=True)


@pytest.fixture
def sphere(rng):
    return Sphere(5).embed(20, generator=rng)


@pytest.fixture
def weights(rng):
    return torch.randn(20, generator=rng, dtype=torch.float64)


def lowest_on(sphere, weights):
    """The point of a unit sphere in the span of its basis where a linear function is smallest."""
    inside = sphere.basis @ (sphere.basis.mT @ weights)
    return -inside / inside.norm()


def distances(points, target):
    return (torch.as_tensor(points) - target).norm(dim=-1)


def test_a_linear_function_on_a_sphere_is_lowest_opposite_its_gradient(rng, sphere, weights):
    starts = sphere.sample(20, generator=rng)
    found = minimize(ExactField(sphere), lambda x: x @ weights, starts, SIGMA, tolerance=1e-8)
    assert found.converged.all()
    assert distances(found.points, lowest_on(sphere, weights)).max() < 1.1 * S5_OFFSET
    assert found.gradient_norms.max() < 1e-7 * weights.norm()
    assert found.strayed.max() < S5_OFFSET


@pytest.mark.parametrize("kind", ["differences", "given"])
def test_a_black_box_of_arrays_is_minimized_like_a_torch_function(rng, weights, kind):
    field, starts, array = RoundField(20), Sphere(19).sample(10, generator=rng).numpy(), weights.numpy()
    gradient = "differences" if kind == "differences" else lambda x: np.broadcast_to(array, x.shape)

    def black_box(x):
        assert isinstance(x, np.ndarray)
        return x @ array

    found = minimize(field, black_box, starts, SIGMA, gradient=gradient, tolerance=1e-8)
    by_torch = minimize(field, lambda x: x @ weights, starts, SIGMA, tolerance=1e-8)
    assert found.converged.all()
    assert isinstance(found.points, np.ndarray)
    np.testing.assert_allclose(found.points, by_torch.points, rtol=0, atol=1e-7)


def test_differences_ask_for_2d_values_per_point(rng):
    asked = []

    def black_box(x):
        asked.append(len(x))
        return x[:, 0]

    minimize(RoundField(), black_box, Sphere(2).sample(3, generator=rng), SIGMA, gradient="differences", max_steps=1)
    assert set(asked) == {3, 3 * 2 * 2}


def test_the_rayleigh_quotient_is_lowest_at_the_smallest_eigenvector(rng):
    square = torch.randn(6, 6, generator=rng, dtype=torch.float64)
    matrix = square @ square.mT
    lowest = torch.linalg.eigh(matrix)[1][:, 0]
    starts = Sphere(5).sample(10, generator=rng)
    found = minimize(RoundField(6), lambda x: ((x @ matrix) * x).sum(1), starts, SIGMA, tolerance=1e-8)
    assert found.converged.all()
    assert torch.minimum(distances(found.points, lowest), distances(found.points, -lowest)).max() < 1e-6


def test_a_distance_is_lowest_at_its_point_where_it_has_no_derivative(rng):
    target, starts = Sphere(2).sample(1, generator=rng), Sphere(2).sample(10, generator=rng)
    found = minimize(RoundField(), lambda x: (x - target).norm(dim=1), starts, SIGMA)
    # Steps shrink with the distance, down to a millionth of the first ones.
    assert distances(found.points, target).max() < 1e-4 * SIGMA


@pytest.mark.slow
def test_a_quadratic_on_a_torus_is_lowest_where_both_circles_are(rng):
    torus = CliffordTorus([1.0, 0.7]).embed(6, generator=rng)
    target, starts = torus.sample(1, generator=rng), torus.sample(4, generator=rng)
    found = minimize(ExactField(torus), lambda x: (x - target).square().sum(1), starts, SIGMA, tolerance=1e-8)
    assert found.converged.all()
    # Circles have p = 2: the offsets (p−1)(p−3)σ⁴/16R³ of the two are perpendicular.
    assert distances(found.points, target).max() < 1.1 * SIGMA**4 / 16 * np.hypot(1, 0.7**-3)


def test_noisy_starts_are_landed(rng):
    starts = Sphere(2).sample(10, generator=rng)
    starts = starts + SIGMA * torch.randn(starts.shape, generator=rng, dtype=torch.float64)
    found = minimize(RoundField(), lambda x: x[:, 0], starts, SIGMA, keep_path=True)
    assert found.converged.all()
    assert Sphere(2).distance(found.path.flatten(0, 1)).max() < 1e-12


def test_every_start_goes_its_own_way(rng):
    starts = Sphere(2).sample(4, generator=rng)
    together = minimize(RoundField(), lambda x: x[:, 0], starts, SIGMA)
    for k in range(4):
        alone = minimize(RoundField(), lambda x: x[:, 0], starts[k : k + 1], SIGMA)
        torch.testing.assert_close(alone.points[0], together.points[k], rtol=0, atol=1e-9)
        assert alone.n_steps[0] == together.n_steps[k]


def test_the_path_begins_at_the_start_and_never_rises(rng):
    starts = Sphere(2).sample(5, generator=rng)
    found = minimize(RoundField(), lambda x: x[:, 0], starts, SIGMA, keep_path=True)
    assert found.path.shape == (5, int(found.n_steps.max()) + 1, 3)
    torch.testing.assert_close(found.path[:, 0], starts)
    torch.testing.assert_close(found.path[:, -1], found.points)
    assert (found.path[:, :, 0].diff(dim=1) < 1e-12).all()
    assert SIGMA < found.path.diff(dim=1).norm(dim=-1).max() < 3 * SIGMA


def test_the_start_is_left_alone_and_its_kind_is_kept(rng):
    starts = Sphere(2).sample(5, generator=rng, dtype=torch.float32)
    before = starts.clone()
    for landing in (0.0, 1.0):
        found = minimize(RoundField(), lambda x: x[:, 2], starts, SIGMA, landing=landing)
        assert found.points.dtype == torch.float32
        assert torch.equal(starts, before)
    assert found.converged.all()


@pytest.mark.slow
def test_a_kernel_finds_the_minimum_within_its_sampling_error(rng):
    samples, starts = Sphere(1).sample(500, generator=rng), Sphere(1).sample(10, generator=rng)
    found = minimize(KernelField(samples), lambda x: x[:, 1], starts, SIGMA)
    # n_eff = 500·(2σ√π)/2π = 28; tangents err by about √(3/4n_eff)·κσ, and the minimum by as much.
    assert distances(found.points, torch.tensor([0.0, -1.0])).max() < 3 * (0.75 / 28) ** 0.5 * SIGMA


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [None, 2])
def test_a_descent_ends_in_the_corner_of_a_patch(rng, dimension):
    square = Box([0.0, 0.0], [1.0, 1.0]).embed(3, generator=rng)
    weights = square.basis @ torch.tensor([1.0, 0.5], dtype=torch.float64)
    starts = square.sample(2, generator=rng)
    found = minimize(ExactField(square), lambda x: x @ weights, starts, 0.1, dimension=dimension, tolerance=0.01)
    # At the corner the eigenvalues are 0.36; they fall to ⅓ at 0.14σ outside.
    assert (found.points @ square.basis).abs().max() < 0.02
    assert not {"left the data", "step limit"} & set(found.reasons)


def test_every_descent_says_why_it_stopped(rng):
    field = RoundField()
    starts = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 3.0, 0.0]], dtype=torch.float64)

    def height(x):
        return x[:, 2]

    found = minimize(field, height, starts, SIGMA, max_steps=1)
    assert found.reasons == ("step limit", "converged", "left the data")
    assert found.n_steps.tolist() == [1, 0, 0]
    assert found.best == 1
    assert repr(found) == "Minimum(3 starts: 1 step limit, 1 converged, 1 left the data; best value -1)"
    uphill = minimize(field, height, starts[:1], SIGMA, gradient=lambda x: -torch.eye(3, dtype=x.dtype)[2].expand_as(x))
    assert uphill.reasons == ("step too small",)
    undefined = minimize(field, lambda x: x[:, 0].log(), -starts[:2].flip(0), SIGMA)
    assert undefined.reasons == ("function not finite",) * 2


def test_a_descent_along_a_boundless_function_stops_where_it_leaves_the_data(rng):
    """Without landing, and with a share of the Euclidean gradient, it walks off the sphere."""
    starts = Sphere(2).sample(3, generator=rng)
    found = minimize(RoundField(), lambda x: x[:, 2], starts, SIGMA, ridge=0.5, landing=0.0)
    assert found.reasons == ("left the data",) * 3
    assert (found.strayed > 3 * SIGMA).all()
    assert (found.strayed < 4.1 * SIGMA).all()


def test_values_that_are_not_finite_are_stepped_around(rng):
    """The step of length 3σ would cross into where the function is not defined."""
    start = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    found = minimize(RoundField(), lambda x: (x[:, 2] + 0.2).sqrt(), start, SIGMA, step=1.0)
    assert torch.isfinite(found.values).all()
    assert found.values[0] < 0.2


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda x: x.detach()[:, 0], "differentiable in its points.*gradient='differences'"),
        (lambda x: x.numpy()[:, 0], "must return a torch tensor; got ndarray.*gradient='differences'"),
        (lambda x: x, "one value each"),
    ],
)
def test_functions_without_a_derivative_get_the_remedy(function, sentence):
    with pytest.raises(ValueError, match=sentence):
        minimize(ExactField(Sphere(1)), function, np.array([[1.0, 0.0]]), SIGMA)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gradient": "forward"}, "gradient must be None"),
        ({"landing": 1.5}, "landing must lie between 0 and 1; got 1.5"),
        ({"ridge": -0.1}, "ridge must lie between 0 and 1"),
        ({"max_steps": 0}, "max_steps must be a positive integer; got 0"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"step": -1.0}, "step must be positive.*Negate the function"),
        ({"spacing": 0.0}, "spacing must be positive"),
    ],
)
def test_wrong_options_get_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        minimize(ExactField(Sphere(1)), lambda x: x[:, 0], [[1.0, 0.0]], SIGMA, **options)


def test_black_boxes_must_answer_once_per_point():
    with pytest.raises(ValueError, match=r"function must map points of shape \(1, 2\) to shape \(1,\); got \(1, 2\)"):
        minimize(ExactField(Sphere(1)), lambda x: x, [[1.0, 0.0]], SIGMA, gradient="differences")


def test_progress_rises_to_one(rng):
    told = []
    minimize(RoundField(), lambda x: x[:, 0], Sphere(2).sample(3, generator=rng), SIGMA, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


@pytest.mark.parametrize(("step", "is_stable"), [(0.19, True), (0.21, False)])
def test_fixed_steps_are_stable_below_two_over_the_curvature_of_the_function(step, is_stable):
    """−10x on the unit circle has the second derivative L = 10 at its minimum."""
    start = torch.tensor([[np.cos(0.01), np.sin(0.01)]])
    flow = gradient_flow(RoundField(2), lambda x: -10 * x[:, 0], start, 0.05, step=step, n_steps=40)
    assert (abs(float(flow[0, -1, 1])) < 0.01) == is_stable


def test_without_landing_fixed_steps_drift_off_by_the_square_of_their_length(rng):
    """Each step along a tangent of length ηv leaves the unit sphere by ½η²|v|²: together ½ηκ∫|v|ds."""
    field, start, step = RoundField(), torch.tensor([[0.6, 0.0, 0.8]], dtype=torch.float64), 0.02
    free = gradient_flow(field, lambda x: x[:, 2], start, 0.05, step=step, n_steps=100, landing=0.0)
    drift = float(free[0, -1].norm()) - 1
    predicted = 0.5 * float(free[0].diff(dim=0).square().sum())
    assert drift == pytest.approx(predicted, rel=0.02)
    landed = gradient_flow(field, lambda x: x[:, 2], start, 0.05, step=step, n_steps=100)
    assert abs(float(landed[0, -1].norm()) - 1) < 1e-12


def test_gentle_landing_leaves_the_offset_of_the_theory():
    """Where only a share δ of the Euclidean gradient is left, points rest ((1−α)/α)ηδ|∂f| off the data."""
    start, step, ridge, landing = torch.tensor([[0.0, -1.0]], dtype=torch.float64), 0.1, 0.1, 0.25
    flow = gradient_flow(
        RoundField(2), lambda x: x[:, 1], start, 0.05, step=step, n_steps=40, ridge=ridge, landing=landing
    )
    assert -float(flow[0, -1, 1]) - 1 == pytest.approx((1 - landing) / landing * step * ridge, rel=1e-3)


@pytest.mark.parametrize("count", [2.5, 0, True, "3"])
def test_numbers_of_steps_are_positive_integers(unchecked, count):
    start = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"max_steps must be an? (positive )?integer; got"):
        minimize(RoundField(), lambda x: x[:, 0], start, SIGMA, max_steps=count)
    with pytest.raises(ValueError, match=r"n_steps must be an? (positive )?integer; got"):
        gradient_flow(RoundField(), lambda x: x[:, 0], start, SIGMA, step=0.1, n_steps=count)


@pytest.mark.parametrize("answer", [None, ["high"]], ids=["nothing", "words"])
def test_a_black_box_must_return_numbers(answer):
    with pytest.raises(ValueError, match="function must return real numbers; got"):
        minimize(RoundField(), lambda x: answer, [[1.0, 0.0, 0.0]], SIGMA, gradient="differences")


def test_a_flow_says_when_the_function_ends():
    """√x has no slope below 0: the flow from 0.2 down in steps of about 0.1 leaves its domain after two or three."""
    start = torch.tensor([[0.2, 0.96**0.5, 0.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"function must have finite derivatives along the flow; .* after step [1-3]"):
        gradient_flow(RoundField(), lambda x: x[:, 0].sqrt(), start, SIGMA, step=0.1, n_steps=20)
