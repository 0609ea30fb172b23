"""The first tools, against exact fields: dimension (THEORY §4.4), scale (§4.5), calibration."""

import math

import numpy as np
import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import Box, CliffordTorus, FiniteSet, Gaussian, Sphere, Union
from carre.metric import projector_distance
from carre.toolkit import calibration_error, choose_bandwidth, count_dimension, predictive_score


@pytest.mark.parametrize(
    ("manifold", "sigma", "dimension"),
    [
        (Sphere(2).embed(10), 0.05, 2),
        (Sphere(2).embed(10), 0.4, 2),
        (Sphere(8).embed(64), 0.25, 8),
        (CliffordTorus([1.0, 0.5]), 0.4, 2),
        (Sphere(2).embed(10).noisy(0.1), 0.2, 2),
        (Sphere(2).embed(10).noisy(0.1), 0.03, 10),
        (Sphere(2).embed(10), 0.8, 0),
    ],
    ids=[
        "S2 small",
        "S2 large",
        "S8",
        "Clifford",
        "noise below σ",
        "noise above σ",
        "σ beyond the radius of curvature",
    ],
)
def test_counts_are_those_of_the_table(rng, manifold, sigma, dimension):
    clean = manifold.manifold if hasattr(manifold, "level") else manifold
    points = clean.sample(20, generator=rng)
    counts = count_dimension(ExactField(manifold).metric(points, sigma))
    assert (counts == dimension).all()


def test_dimension_varies_over_a_union(rng):
    circle, ball = Sphere(1).embed(8, generator=rng), Sphere(3).embed(8, generator=rng, shift=5.0)
    union = Union([circle, ball])
    points = torch.cat([circle.sample(10, generator=rng), ball.sample(10, generator=rng)])
    assert count_dimension(ExactField(union).metric(points, 0.2)).tolist() == [1] * 10 + [3] * 10


def test_at_the_edge_of_a_patch_one_dimension_is_lost():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    assert count_dimension(ExactField(Box([-1.0, -1.0], [1.0, 1.0])).metric(points, 0.1)).tolist() == [2, 1, 0]


def test_an_exact_field_is_calibrated_and_a_wrong_one_is_not(rng):
    samples = Sphere(2).embed(6, generator=rng)
    field = ExactField(samples)
    points = samples.sample(2000, generator=rng)
    assert calibration_error(field, points, 0.2, generator=rng) < 0.1

    class Doubled:
        dim = field.dim
        denoise = staticmethod(field.denoise)

        def metric(self, points, bandwidth):
            return field.metric(points, bandwidth).scaled(2.0)

    assert calibration_error(Doubled(), points, 0.2, generator=rng) > 0.5


def test_the_score_prefers_the_truth_over_everything_near_it(rng):
    """A proper score: any change of mean or metric lowers it, also the linear hull that fools the metric loss."""
    truth = Sphere(2).embed(6, generator=rng)
    hull = Gaussian(truth.shift, truth.basis @ truth.basis.mT / 3)
    points = truth.sample(4000, generator=rng)

    def score(field):
        return float(predictive_score(field, points, 0.2, generator=torch.Generator().manual_seed(1)).mean())

    exact = ExactField(truth)
    assert score(exact) > score(ExactField(hull)) + 0.3
    assert score(exact) > score(ExactField(FiniteSet(truth.sample(100, generator=rng))))
    assert score(ExactField(truth.noisy(0.1))) < score(exact)


def test_a_field_that_knows_only_the_noise_scores_nothing(rng):
    """m = y and G = I is the prediction N(y, σ²I), up to the ridge λ in G + λI."""
    flat = ExactField(Gaussian(torch.zeros(3).double(), 1e8 * torch.eye(3).double()))
    points = 100 * torch.randn(2000, 3, generator=rng, dtype=torch.float64)
    score = predictive_score(flat, points, 0.5, generator=rng).mean().item()
    expected = 0.5 * (3 - 3 / 1.05 - 3 * math.log(1.05))
    assert score == pytest.approx(expected, abs=0.02)


def test_the_chosen_scale_lies_above_the_noise_and_below_the_curvature(rng):
    """A sphere with noise τ = 0.05: below τ the data are 10-dimensional, above R/√d the sphere is a blob."""
    sphere = Sphere(2).embed(10, generator=rng)
    noisy = sphere.noisy(0.05)
    profile = choose_bandwidth(
        ExactField(noisy), noisy.sample(300, generator=rng), np.geomspace(0.01, 2.0, 16), generator=rng
    )
    sigma = profile.bandwidth[profile.chosen]
    assert 0.1 < sigma < 0.5
    assert "gap" in profile.reason
    points = sphere.sample(100, generator=rng)
    assert (count_dimension(ExactField(noisy).metric(points, sigma)) == 2).all()


@pytest.mark.slow
def test_the_chosen_scale_of_a_finite_dataset_has_small_tangent_error(rng):
    """The kernel sum of 2,000 points of S²: within a factor 2 of the best on the grid."""
    sphere = Sphere(2).embed(6, generator=rng)
    field = ExactField(FiniteSet(sphere.sample(2000, generator=rng)))
    held_out = sphere.sample(100, generator=rng)
    profile = choose_bandwidth(field, held_out, np.geomspace(0.02, 1.0, 9), generator=rng)
    truth = sphere.tangent_basis(held_out)
    errors = [
        float(projector_distance(field.metric(held_out, s).tangent_basis(2), truth).mean()) for s in profile.bandwidth
    ]
    assert errors[profile.chosen] < 2 * min(errors)


def test_flat_data_have_no_gap_and_get_the_scale_at_which_g_is_a_projector(rng):
    gaussian = Gaussian(torch.zeros(3).double(), torch.eye(3).double())
    profile = choose_bandwidth(
        ExactField(gaussian), gaussian.sample(300, generator=rng), np.geomspace(0.05, 2.0, 8), generator=rng
    )
    assert profile.chosen == 0
    assert "lower end" in profile.reason


def test_without_a_gap_scales_below_the_distance_between_samples_are_not_chosen(rng):
    gaussian = Gaussian(torch.zeros(3).double(), torch.eye(3).double())
    profile = choose_bandwidth(
        ExactField(gaussian),
        gaussian.sample(300, generator=rng),
        np.geomspace(0.05, 2.0, 8),
        supported_from=0.2,
        generator=rng,
    )
    assert 0.2 <= profile.bandwidth[profile.chosen] < 0.4


def test_when_no_scale_is_calibrated_the_reason_says_so(rng):
    few = ExactField(FiniteSet(torch.randn(5, 4, generator=rng, dtype=torch.float64)))
    others = torch.randn(200, 4, generator=rng, dtype=torch.float64)
    profile = choose_bandwidth(few, others, np.geomspace(0.01, 0.05, 3), generator=rng)
    assert "no scale is calibrated" in profile.reason


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.5])
def test_a_threshold_outside_the_unit_interval_is_named(threshold):
    metric = ExactField(Sphere(1)).metric(torch.tensor([[1.0, 0.0]], dtype=torch.float64), 0.1)
    with pytest.raises(ValueError, match="threshold must lie between 0 and 1"):
        count_dimension(metric, threshold=threshold)
