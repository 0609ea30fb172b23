"""The kernel that is chosen without labels is nearly as good as the best one that labels would choose."""

import numpy as np
import pytest
import torch

from carre.fields import KernelField
from carre.manifolds import Sphere
from carre.metric import projector_distance
from carre.toolkit import KernelChoice, choose_kernel, count_dimension
from carre.toolkit.kernel_choice import _candidates


def tangent_errors(samples, sphere, points, candidates, grid):
    truth = sphere.tangent_basis(points)
    fields = [KernelField(samples, n_neighbors=k) for k in candidates]
    errors = [
        [float(projector_distance(f.metric(points, s).tangent_basis(2), truth).mean()) for s in grid] for f in fields
    ]
    return np.array(errors)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("candidates", [(None,), (16, 64, 256)])
def test_the_chosen_kernel_has_at_most_twice_the_smallest_tangent_error(rng, noise, candidates):
    sphere = Sphere(2).embed(6, generator=rng)
    samples = (sphere.noisy(noise) if noise else sphere).sample(1000, generator=rng)
    choice = choose_kernel(samples, n_neighbors=candidates)
    assert isinstance(choice, KernelChoice)
    points = sphere.sample(40, generator=rng)
    grid = choice.profiles[0].bandwidth
    errors = tangent_errors(samples, sphere, points, candidates, grid)
    chosen = errors[candidates.index(choice.n_neighbors), np.abs(grid - choice.bandwidth).argmin()]
    assert chosen < 2 * errors.min()
    assert (count_dimension(choice.field.metric(points, choice.bandwidth)) == 2).double().mean() > 0.9


def test_small_data_are_summed_and_large_data_are_searched():
    assert _candidates(None, torch.zeros(100, 4)) == (None,)
    assert _candidates(None, torch.zeros(70_000, 4)) == (64, 256, 1024)
    assert _candidates(None, torch.zeros(1000, 400)) == (64, 256)


def test_the_choice_is_reproducible_and_says_why(rng):
    samples = Sphere(1).embed(3, generator=rng).sample(200, generator=rng)
    first, second = choose_kernel(samples), choose_kernel(samples)
    assert first.bandwidth == second.bandwidth
    assert first.reason.startswith("n_neighbors=all, σ=")
    assert "clear spectral gap" in first.reason
    assert first.field.n_samples == 200


def test_an_end_of_the_grid_is_reported(rng):
    samples = Sphere(1).embed(3, generator=rng).sample(300, generator=rng)
    assert "upper end of the grid" in choose_kernel(samples, bandwidths=[0.05, 0.1]).reason


def test_too_few_neighbors_are_reported_as_a_lack_of_calibration(rng):
    samples = Sphere(2).sample(2000, generator=rng)
    choice = choose_kernel(samples, n_neighbors=3, bandwidths=[0.3, 0.4])
    assert "none is calibrated" in choice.reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 90}, "n_neighbors must be at most 80, the number of samples that are not held out; got 90"),
        ({"n_neighbors": []}, "n_neighbors must name at least one number"),
        ({"n_neighbors": 1}, "n_neighbors must be at least 2"),
        ({"bandwidths": [0.2, 0.1]}, "bandwidths must be positive and ascending"),
        ({"bandwidths": [-0.2, 0.1]}, "bandwidths must be positive and ascending"),
        ({"bandwidths": []}, "bandwidths must be positive and ascending"),
        ({"index": "annoy"}, "index must be one of"),
    ],
)
def test_bad_input_is_named(rng, options, message):
    with pytest.raises(ValueError, match=message):
        choose_kernel(torch.randn(100, 3, generator=rng), **options)


def test_too_few_samples_are_named():
    with pytest.raises(ValueError, match="samples must be at least 20 to hold some out; got 5"):
        choose_kernel(torch.randn(5, 3))


def test_few_samples_of_many_columns_are_summed_over_whole(rng):
    choice = choose_kernel(torch.randn(50, 5000, generator=rng), bandwidths=[50.0, 70.0])
    assert choice.n_neighbors is None


def test_numbers_of_neighbors_may_be_an_array(rng):
    choice = choose_kernel(torch.randn(200, 3, generator=rng), n_neighbors=np.array([10, 40]))
    assert choice.candidates == (10, 40)
