"""The Stein-score metric against its closed form."""

import pytest
import torch
from torch import nn

from carre.fields import ExactField, SteinField
from carre.manifolds import FiniteSet, Gaussian, Sphere
from experiments.measures.accuracy import eigenvalue_profile, tangent_errors
from tests.fields.conformance import FieldConformance


class TestSteinField(FieldConformance):
    @pytest.fixture
    def make_field(self):
        return lambda samples: SteinField(ExactField(FiniteSet(samples)), strength=2.0)


@pytest.mark.parametrize("strength", [0.0, 0.3, 10.0])
def test_it_inverts_the_metric_of_the_score(rng, strength):
    """G = (I + λssᵀ)⁻¹ with λ = strength·σ² and the score of the evidence, s = ∇log p_σ."""
    sigma, gaussian = 0.7, Gaussian(torch.ones(3).double(), torch.diag(torch.tensor([4.0, 1.0, 0.1])).double())
    field = SteinField(ExactField(gaussian), strength=strength)
    points = torch.randn(5, 3, generator=rng, dtype=torch.float64).requires_grad_()
    (score,) = torch.autograd.grad(gaussian.posterior(points, sigma).log_evidence.sum(), points)
    points = points.detach()
    torch.testing.assert_close(field.score(points, sigma), score)
    metric = torch.eye(3, dtype=torch.float64) + strength * sigma**2 * score.unsqueeze(-1) * score.unsqueeze(-2)
    torch.testing.assert_close(field.metric(points, sigma).dense(), torch.linalg.inv(metric))


def test_all_directions_but_one_have_eigenvalue_one(rng):
    sphere = Sphere(2).embed(20, generator=rng)
    points = sphere.sample(10, generator=rng) + 0.2 * torch.randn(10, 20, generator=rng, dtype=torch.float64)
    profile = eigenvalue_profile(SteinField(ExactField(sphere)), points, 0.2)
    torch.testing.assert_close(profile.mean[:-1], torch.ones(19, dtype=torch.float64))
    assert profile.mean[-1] < 0.2


def test_on_a_hypersurface_the_score_is_the_normal_and_elsewhere_nothing_leads(rng):
    sphere = Sphere(2)
    field = SteinField(ExactField(sphere))
    points = sphere.sample(10, generator=rng)
    assert tangent_errors(field, sphere, points, 0.2).max() < 1e-6
    line = Sphere(1).embed(3, generator=rng)
    with pytest.raises(ValueError, match="the first 2 eigenvalues of this metric are equal"):
        tangent_errors(field, line, points, 0.2)


def test_at_the_center_of_the_data_the_score_vanishes_and_everything_is_free():
    field = SteinField(ExactField(Sphere(2)))
    center = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    metric = field.metric(center, 0.3)
    torch.testing.assert_close(metric.dense(), torch.eye(3, dtype=torch.float64)[None])
    metric.trace().sum().backward()
    assert torch.isfinite(center.grad).all()


def test_a_module_is_copied_and_answers_in_the_dtype_of_the_points():
    module = nn.Linear(3, 3)
    field = SteinField(lambda points, bandwidth: points, 3)
    assert torch.equal(field.metric(torch.ones(1, 3), 0.1).dense(), torch.eye(3)[None])

    class Shrink(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = module

        def forward(self, points, bandwidth):
            return self.linear(points) / (1 + bandwidth.square()[:, None])

    field = SteinField(Shrink(), 3)
    before = field.metric(torch.ones(2, 3), 0.1).dense()
    with torch.no_grad():
        module.weight.add_(1.0)
    assert torch.equal(field.metric(torch.ones(2, 3), 0.1).dense(), before)
    assert field.metric(torch.ones(2, 3, dtype=torch.float64), 0.1).removed.dtype == torch.float64
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("strength", [-1.0, float("nan"), float("inf")])
def test_a_bad_strength_is_named(strength):
    with pytest.raises(ValueError, match=r"strength must be (at least 0|a finite number)"):
        SteinField(ExactField(Sphere(2)), strength=strength)
