"""The isotropic field: everything is free, everywhere."""

import pickle

import pytest
import torch

from carre import IsotropicField
from carre.fields import ExactField, NoDenoiserError
from carre.manifolds import FiniteSet, Sphere
from carre.metric import ComplementMetric
from tests.fields.conformance import FieldConformance


class TestIsotropicField(FieldConformance):
    @pytest.fixture
    def make_field(self):
        return lambda samples: IsotropicField(4, ExactField(FiniteSet(samples)))


def test_the_metric_is_the_identity_at_every_point_and_scale(rng):
    points = torch.randn(3, 5, generator=rng)
    for sigma in (1e-3, 10.0):
        metric = IsotropicField(5).metric(points, sigma)
        assert torch.equal(metric.dense(), torch.eye(5).expand(3, 5, 5))
        assert torch.equal(metric.apply(points), points)
        assert torch.equal(metric.solve(points), points)


def test_the_metric_holds_a_row_for_each_point_and_never_a_matrix():
    metric = IsotropicField(200_000).metric(torch.zeros(2, 200_000), 0.1)
    assert isinstance(metric, ComplementMetric)
    assert metric.removed.shape == (2, 1, 200_000)
    assert metric.sample(3).shape == (3, 2, 200_000)


def test_draws_are_isotropic(rng):
    """The covariance of n standard draws has entries of deviation at most √(2/n); six of them are allowed."""
    n = 20_000
    draws = IsotropicField(4).metric(torch.ones(1, 4, dtype=torch.float64), 0.1).sample(n, generator=rng)[:, 0]
    torch.testing.assert_close(draws.mT @ draws / n, torch.eye(4, dtype=torch.float64), atol=6 * (2 / n) ** 0.5, rtol=0)


def test_it_denoises_by_what_it_was_given(rng):
    sphere = ExactField(Sphere(2))
    points = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    assert torch.equal(IsotropicField(3, sphere).denoise(points, 0.3), sphere.denoise(points, 0.3))


def test_without_a_denoiser_it_says_how_to_give_one():
    with pytest.raises(NoDenoiserError, match=r"give it one with IsotropicField\(dim, denoiser\)"):
        IsotropicField(3).denoise(torch.zeros(1, 3), 0.1)


def test_a_denoiser_of_another_dimension_is_refused():
    with pytest.raises(ValueError, match="dim must be that of the field, 3; got 4"):
        IsotropicField(4, ExactField(Sphere(2)))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dim", [0, -1, 2.0, True, None, "3"])
def test_a_bad_dimension_is_named(dim):
    with pytest.raises(ValueError, match=r"dim must be (an integer|the number of coordinates)"):
        IsotropicField(dim)


def test_pickling_keeps_it(rng):
    again = pickle.loads(pickle.dumps(IsotropicField(3, ExactField(Sphere(2)))))
    points = torch.randn(2, 3, generator=rng, dtype=torch.float64)
    assert torch.equal(again.denoise(points, 0.3), ExactField(Sphere(2)).denoise(points, 0.3))


@pytest.mark.gpu
def test_points_on_a_gpu_are_answered_there():
    assert IsotropicField(3).metric(torch.zeros(2, 3, device="cuda"), 0.1).removed.is_cuda
