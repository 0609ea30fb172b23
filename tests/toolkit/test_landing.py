"""The way back onto the data."""

import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import Sphere, TorusOfRevolution
from carre.toolkit.landing import land, pull, straying


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
    landed = land(field, away, sigma, n_steps=3)
    assert torus.distance(away).max() > 0.05
    assert torus.distance(landed).max() < 1e-3


def test_straying_is_the_distance_from_the_data(rng):
    sphere = Sphere(2)
    points = sphere.sample(10, generator=rng)
    far = straying(ExactField(sphere), 1.2 * points, torch.full((10,), 0.05).double())
    torch.testing.assert_close(far, torch.full((10,), 0.2).double(), atol=1e-3, rtol=0)
