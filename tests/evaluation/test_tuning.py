"""Grid searches whose optimum is known."""

import math

import numpy as np
import pytest
import torch

from carre.evaluation import best_bandwidth, grid_search, tangent_errors
from carre.fields import ExactField
from carre.manifolds import FiniteSet, Sphere


def test_the_optimum_of_a_known_function_is_found_over_two_parameters():
    tuned = grid_search(
        lambda bandwidth, n_neighbors: (math.log(bandwidth) - math.log(0.2)) ** 2 + (n_neighbors - 8) ** 2,
        bandwidth=np.array([0.1, 0.2, 0.4]),
        n_neighbors=[4, 8, 16],
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
    tuned = grid_search(lambda x, fixed: abs(x - optimum), x=[3.0, 1.0, 2.0], fixed=[7])
    assert tuned.at_end == ("x",)
    assert f"at the {end} end of its grid: extend it" in tuned.remark


def test_a_setting_without_an_error_is_shown_and_never_chosen():
    tuned = grid_search(lambda x: float("nan") if x == 1 else x, x=[1, 2, 3])
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
        grid_search(lambda x: x, x=grid)


def test_a_search_over_nothing_or_without_errors_is_named():
    with pytest.raises(ValueError, match="grids must name at least one parameter"):
        grid_search(lambda: 0.0)
    with pytest.raises(ValueError, match="error must be a number for at least one combination"):
        grid_search(lambda x: float("nan"), x=[1.0, 2.0])
