"""The way back onto the data, against distances that are known."""

import numpy as np
import pytest
import torch

from carre.fields import ExactField, KernelField
from carre.manifolds import Sphere, TorusOfRevolution
from carre.toolkit import distance_from_data
from carre.toolkit.landing import land, lengths, noise_reach, pull, walk_back


def offset(field, points, sigma):
    return pull(field, points, torch.full((len(points),), sigma).double()).norm(dim=1).max()


@pytest.mark.parametrize("manifold", [Sphere(1), Sphere(4), TorusOfRevolution()], ids=["circle", "S4", "torus"])
def test_what_is_left_of_the_bias_of_curvature_is_of_fourth_order(rng, manifold):
    """Halving σ divides it by 16; the plain denoiser's ½σ²|H⃗| only by 4."""
    field, points = ExactField(manifold), manifold.sample(10, generator=rng)
    coarse, fine = offset(field, points, 0.1), offset(field, points, 0.05)
    assert coarse < 0.1 * (field.denoise(points, 0.1) - points).norm(dim=1).max()
    assert 14 < coarse / fine < 20


def test_points_land_on_the_data_from_where_sigma_reaches(rng):
    torus = TorusOfRevolution()
    field, points = ExactField(torus), torus.sample(10, generator=rng)
    away = points + 0.1 * torch.randn(points.shape, generator=rng, dtype=torch.float64)
    sigma = torch.full((10,), 0.05).double()
    landed = away
    for _ in range(3):
        landed = land(field, landed, sigma)
    assert torus.distance(away).max() > 0.05
    assert torus.distance(landed).max() < 1e-3


def test_the_pull_is_as_long_as_the_distance_from_the_data(rng):
    sphere = Sphere(2)
    points = sphere.sample(10, generator=rng)
    far = lengths(pull(ExactField(sphere), 1.2 * points, torch.full((10,), 0.05).double()))
    torch.testing.assert_close(far, torch.full((10,), 0.2).double(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("radius", [0.5, 0.8, 1.1, 2.0, 10.0])
def test_distances_from_a_sphere_are_those_to_its_nearest_point(rng, radius):
    sphere = Sphere(2).embed(5, generator=rng)
    points = radius * sphere.sample(10, generator=rng)
    # The bias of curvature that extrapolation leaves is O(σ⁴).
    expected = torch.full((10,), abs(radius - 1), dtype=torch.float64)
    torch.testing.assert_close(distance_from_data(ExactField(sphere), points, 0.05), expected, rtol=0, atol=0.05**3)


def test_noise_of_deviation_sigma_carries_points_a_chi_away(rng):
    """|y − π(y)| = σχ with D − d degrees of freedom, less than √(D − d) + 3 but for one point in a thousand."""
    sphere, sigma = Sphere(2).embed(30, generator=rng), 0.05
    points = sphere.sample(500, generator=rng)
    points = points + sigma * torch.randn(points.shape, generator=rng, dtype=torch.float64)
    distance = distance_from_data(ExactField(sphere), points, sigma)
    assert float(distance.square().mean()) == pytest.approx(28 * sigma**2, rel=3 * (2 / 28 / 500) ** 0.5)
    assert (distance <= noise_reach(torch.full((500,), sigma, dtype=torch.float64), torch.full((500,), 28))).all()


def test_a_denoiser_of_short_reach_is_followed_step_by_step(rng):
    """Like a network's far from the data: it points home, but goes 2σ at a time."""

    class Shortsighted(ExactField):
        def _denoise(self, points, bandwidth):
            step = super()._denoise(points, bandwidth) - points
            length = step.norm(dim=1, keepdim=True)
            return points + step * (2 * bandwidth[:, None] / length).clamp_max(1)

    points = 1.5 * Sphere(2).sample(5, generator=rng)
    distance = distance_from_data(Shortsighted(Sphere(2)), points, 0.05)
    torch.testing.assert_close(distance, torch.full((5,), 0.5, dtype=torch.float64), rtol=0, atol=0.05**3)


def test_points_on_the_data_do_not_walk(rng):
    """The drift of a kernel towards denser samples is no way back."""
    samples = Sphere(1).sample(1000, generator=rng)
    sigma = torch.full((50,), 0.1, dtype=torch.float64)
    assert torch.equal(walk_back(KernelField(samples), samples[:50], sigma), samples[:50])


def test_the_kind_of_points_is_kept(rng):
    distance = distance_from_data(ExactField(Sphere(1)), np.array([[3.0, 0.0]], dtype=np.float32), 0.1)
    assert isinstance(distance, np.ndarray)
    assert distance.dtype == np.float32
