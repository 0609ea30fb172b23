"""Errors of a field against closed forms, and grid searches whose optimum is known."""

import math

import numpy as np
import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import FiniteSet, Gaussian, Sphere, SubspaceGaussian, Union
from carre.metric import LowRankMetric
from experiments.measures.accuracy import (
    best_bandwidth,
    dimension_errors,
    eigenvalue_profile,
    grid_search,
    oracle_errors,
    tangent_errors,
)


class FactorField:
    """A field that has the same metric everywhere."""

    def __init__(self, factor, ridge=0.0):
        self.factor, self.ridge, self.dim = factor, ridge, factor.shape[1]

    def metric(self, points, bandwidth):
        return LowRankMetric(self.factor.to(points).expand(len(points), -1, -1), self.ridge)

    def denoise(self, points, bandwidth):
        return points


class ScaledField:
    """The exact field, times a constant."""

    def __init__(self, manifold, scale):
        self.exact, self.scale, self.dim = ExactField(manifold), scale, manifold.ambient_dim

    def metric(self, points, bandwidth):
        return self.exact.metric(points, bandwidth).scaled(self.scale)

    def denoise(self, points, bandwidth):
        return self.exact.denoise(points, bandwidth)


def flat(dim, d):
    """The Gaussian on the first d axes."""
    return SubspaceGaussian(torch.eye(dim, dtype=torch.float64)[:, :d], torch.ones(d, dtype=torch.float64))


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_exact_field_of_a_sphere_has_no_tangent_error(rng, device):
    sphere = Sphere(3).embed(9, generator=rng, shift=1.0)
    errors = tangent_errors(ExactField(sphere), sphere, sphere.sample(50, generator=rng), 0.3, chunk=7, device=device)
    assert errors.shape == (50,)
    assert errors.max() < 1e-12


def test_a_plane_rotated_by_an_angle_has_the_error_of_that_angle():
    """‖UUᵀ − VVᵀ‖_F = √2 |sin θ| for every rotated direction."""
    angle = 0.3
    factor = torch.eye(5, dtype=torch.float64)[:2].clone()
    factor[0, 0], factor[0, 3] = math.cos(angle), math.sin(angle)
    points = torch.zeros(4, 5, dtype=torch.float64)
    errors = tangent_errors(FactorField(factor), flat(5, 2), points, 0.1)
    expected = math.sqrt(2) * math.sin(angle)
    torch.testing.assert_close(errors, torch.full_like(errors, expected), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_random_subspaces_have_the_error_of_chance(rng):
    """E‖UUᵀ − VVᵀ‖² = 2d(1 − d/D)."""
    dim, d, n = 16, 4, 400
    bases = torch.linalg.qr(torch.randn(n, dim, d, generator=rng, dtype=torch.float64))[0]
    points = torch.zeros(1, dim, dtype=torch.float64)
    errors = torch.cat([tangent_errors(FactorField(basis.mT), flat(dim, d), points, 0.1) for basis in bases])
    squares = errors.square()
    assert abs(float(squares.mean()) - 2 * d * (1 - d / dim)) < 4 * float(squares.std()) / math.sqrt(n)


def test_a_union_is_measured_in_the_dimension_of_each_part(rng):
    circle, ball = Sphere(1).embed(8, generator=rng), Sphere(3).embed(8, generator=rng, shift=5.0)
    union = Union([circle, ball])
    points = torch.cat([circle.sample(5, generator=rng), ball.sample(5, generator=rng)])[
        torch.randperm(10, generator=rng)
    ]
    assert tangent_errors(ExactField(union), union, points, 0.2, chunk=4).max() < 1e-6
    assert dimension_errors(ExactField(union), union, points, 0.2, chunk=4).tolist() == [0] * 10


def test_dimension_errors_have_the_sign_of_the_mistake(rng):
    """A metric of two equal eigenvalues counts one too many on a circle and one too few on a 3-sphere."""
    field = FactorField(torch.eye(8, dtype=torch.float64)[:2])
    for d, error in ((1, 1), (2, 0), (3, -1)):
        sphere = Sphere(d).embed(8, generator=rng)
        assert (dimension_errors(field, sphere, sphere.sample(3, generator=rng), 0.1) == error).all()


@pytest.mark.parametrize("ambient", [4, 40], ids=["dense", "factored"])
@pytest.mark.parametrize("excess", [1e-1, 1e-6, 1e-12])
def test_a_metric_that_is_too_large_by_a_share_has_that_oracle_error(rng, ambient, excess):
    sphere = Sphere(3).embed(ambient, generator=rng)
    points = sphere.sample(6, generator=rng) + 0.1
    errors = oracle_errors(ScaledField(sphere, 1 + excess), sphere, points, 0.3, chunk=4)
    torch.testing.assert_close(errors, torch.full_like(errors, excess), rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("ambient", [4, 40], ids=["dense", "factored"])
def test_oracle_errors_are_those_of_the_dense_matrices(rng, ambient):
    sphere = Sphere(3).embed(ambient, generator=rng)
    field = FactorField(torch.randn(3, ambient, generator=rng, dtype=torch.float64), ridge=0.2)
    points = sphere.sample(6, generator=rng)
    truth = sphere.posterior(points, 0.3).metric.dense()
    expected = torch.linalg.matrix_norm(field.metric(points, 0.3).dense() - truth) / torch.linalg.matrix_norm(truth)
    torch.testing.assert_close(oracle_errors(field, sphere, points, 0.3), expected)


def test_a_bandwidth_per_point_follows_its_point_through_the_chunks(rng):
    sphere = Sphere(2).embed(6, generator=rng)
    points, sigmas = sphere.sample(5, generator=rng), torch.linspace(0.1, 0.5, 5, dtype=torch.float64)
    errors = oracle_errors(ExactField(sphere.noisy(0.1)), sphere, points, sigmas, chunk=2)
    single = [
        oracle_errors(ExactField(sphere.noisy(0.1)), sphere, points[k : k + 1], float(sigmas[k])) for k in range(5)
    ]
    torch.testing.assert_close(errors, torch.cat(single))


def test_the_profile_of_a_sphere_is_its_closed_form(rng):
    """On S²: tangent eigenvalues R·A/|y| with A = coth κ − 1/κ, radial R²A'/σ² (THEORY §2c), at every point."""
    sigma, sphere = 0.5, Sphere(2)
    kappa = 1 / sigma**2
    tangent = 1 / math.tanh(kappa) - 1 / kappa
    radial = (1 / kappa**2 - 1 / math.sinh(kappa) ** 2) / sigma**2
    profile = eigenvalue_profile(ExactField(sphere), sphere.sample(40, generator=rng), sigma, chunk=16)
    expected = torch.tensor([tangent, tangent, radial], dtype=torch.float64)
    torch.testing.assert_close(profile.mean, expected)
    torch.testing.assert_close(profile.quantiles, expected.expand(5, 3))
    assert profile.deviation.max() < 1e-8
    assert profile.n_points == 40


def test_deviation_and_quantiles_are_over_points():
    """At distance t from the origin of R¹ two atoms at ±1 give G = sech²(t/σ²)/σ²."""
    field = ExactField(FiniteSet(torch.tensor([[-1.0], [1.0]], dtype=torch.float64)))
    points = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    values = points[:, 0].cosh().pow(-2)
    profile = eigenvalue_profile(field, points, 1.0, levels=(0.0, 0.5, 1.0))
    torch.testing.assert_close(profile.mean, values.mean(0, keepdim=True))
    torch.testing.assert_close(profile.deviation, values.std(0, correction=0, keepdim=True))
    torch.testing.assert_close(profile.quantiles[:, 0], values.quantile(torch.tensor([0.0, 0.5, 1.0]).double()))


def test_float32_points_are_evaluated_in_float32(rng):
    sphere = Sphere(2).embed(5, generator=rng)
    points = sphere.sample(4, generator=rng, dtype=torch.float32)
    errors = tangent_errors(ExactField(sphere), sphere, points, 0.2)
    assert errors.dtype == torch.float32
    assert errors.max() < 1e-5


GAUSSIAN = Gaussian(torch.zeros(4).double(), torch.eye(4).double())


@pytest.mark.parametrize("function", [tangent_errors, oracle_errors, dimension_errors])
@pytest.mark.parametrize(
    ("manifold", "points", "bandwidth", "options", "message"),
    [
        (Sphere(2), torch.zeros(2, 4), 0.1, {}, r"manifold must have the ambient dimension of the field, 4; got 3. Pl"),
        (GAUSSIAN, torch.full((2, 4), float("nan")), 0.1, {}, "points must be finite"),
        (GAUSSIAN, torch.zeros(2, 3), 0.1, {}, "points must have 4 columns"),
        (GAUSSIAN, torch.zeros(4), 0.1, {}, "points must have shape"),
        (GAUSSIAN, torch.zeros(2, 4), 0.0, {}, "bandwidth must be positive"),
        (GAUSSIAN, torch.zeros(2, 4), torch.ones(3), {}, "bandwidth must be a number or have shape"),
        (GAUSSIAN, torch.zeros(2, 4), 0.1, {"chunk": 0}, "chunk must be at least 1; got 0"),
    ],
)
def test_bad_input_is_named(function, manifold, points, bandwidth, options, message):
    with pytest.raises(ValueError, match=message):
        function(ExactField(GAUSSIAN), manifold, points, bandwidth, **options)


@pytest.mark.parametrize("levels", [(), (0.5, 1.5)])
def test_levels_outside_the_unit_interval_are_named(levels):
    with pytest.raises(ValueError, match="levels must be numbers between 0 and 1"):
        eigenvalue_profile(ExactField(GAUSSIAN), torch.zeros(2, 4), 0.1, levels=levels)


def test_a_manifold_without_a_tangent_space_says_so():
    atoms = FiniteSet(torch.zeros(3, 4, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="ask the manifold that its samples came from"):
        tangent_errors(ExactField(GAUSSIAN), atoms, torch.zeros(2, 4, dtype=torch.float64), 0.1)


def test_the_optimum_of_a_known_function_is_found_over_two_parameters():
    tuned = grid_search(
        lambda bandwidth, n_neighbors: (math.log(bandwidth) - math.log(0.2)) ** 2 + (n_neighbors - 8) ** 2,
        {"bandwidth": np.array([0.1, 0.2, 0.4]), "n_neighbors": [4, 8, 16]},
    )
    assert tuned.setting == {"bandwidth": 0.2, "n_neighbors": 8}
    assert isinstance(tuned.setting["n_neighbors"], int)
    assert tuned.error == 0.0
    assert tuned.curve.shape == (3, 3)
    assert tuned.curve[2, 0] == pytest.approx(math.log(2) ** 2 + 16)
    assert tuned.at_end == ()
    assert tuned.remark == ""


@pytest.mark.parametrize(("optimum", "end"), [(0.0, "lower"), (9.0, "upper")])
def test_an_optimum_at_an_end_of_the_grid_is_told(optimum, end):
    tuned = grid_search(lambda x, fixed: abs(x - optimum), {"x": [3.0, 1.0, 2.0], "fixed": [7]})
    assert tuned.at_end == ("x",)
    assert f"at the {end} end of its grid: extend it" in tuned.remark


def test_a_setting_without_an_error_is_shown_and_never_chosen():
    tuned = grid_search(lambda x: float("nan") if x == 1 else x, {"x": [1, 2, 3]})
    assert tuned.setting == {"x": 2}
    assert np.isnan(tuned.curve[0])


def test_the_best_bandwidth_is_that_of_the_least_mean_tangent_error(rng):
    """Too small a σ sees single atoms, too large a one the whole sphere."""
    sphere = Sphere(2).embed(5, generator=rng)
    field = ExactField(FiniteSet(sphere.sample(1000, generator=rng)))
    points, grid = sphere.sample(40, generator=rng), np.geomspace(0.02, 2.0, 7)
    tuned = best_bandwidth(field, sphere, points, grid)
    errors = [float(tangent_errors(field, sphere, points, sigma).mean()) for sigma in grid.tolist()]
    np.testing.assert_allclose(tuned.curve, errors)
    assert tuned.error == min(errors)
    assert tuned.bandwidth == grid[int(np.argmin(errors))]
    assert tuned.at_end == ()


@pytest.mark.parametrize("grid", [[], [0.1, 0.0], [-1.0], [float("nan")]])
def test_a_grid_without_positive_bandwidths_is_named(grid):
    sphere = Sphere(2)
    with pytest.raises(ValueError, match="grid must hold positive bandwidths, at least one"):
        best_bandwidth(ExactField(sphere), sphere, torch.ones(1, 3, dtype=torch.float64), grid)


@pytest.mark.parametrize("grid", [[], [1.0, 1.0], [1.0, float("inf")]])
def test_a_grid_that_is_empty_or_repeats_itself_is_named(grid):
    with pytest.raises(ValueError, match="x must be a grid of different finite numbers"):
        grid_search(lambda x: x, {"x": grid})


def test_a_search_over_nothing_or_without_errors_is_named():
    with pytest.raises(ValueError, match="grids must name at least one parameter"):
        grid_search(lambda: 0.0, {})
    with pytest.raises(ValueError, match="error must be a number for at least one combination"):
        grid_search(lambda x: float("nan"), {"x": [1.0, 2.0]})
