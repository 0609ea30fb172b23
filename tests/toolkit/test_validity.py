"""Whether the geometry is valid: near the data yes, elsewhere no; and whether held-out samples are as predicted."""

import math

import numpy as np
import pytest
import torch

import carre
from carre.fields import ExactField, KernelField, NeuralField
from carre.manifolds import Box, Embedded, FiniteSet, Gaussian, Noisy, Sphere, Union
from carre.metric import AffineFrame, LowRankMetric
from carre.toolkit.validity import calibration_error, check, predictive_score
from tests.toolkit.test_dimension import Plane, Whole

FAR = (10, 20, 100, 1000)


@pytest.fixture
def sphere(rng):
    return Sphere(2).embed(6, generator=rng)


def noise(points, level, rng):
    return level * torch.randn(points.shape, generator=rng, dtype=torch.float64)


def normals(manifold, points, rng):
    """Random unit vectors across a manifold."""
    vectors = noise(points, 1.0, rng)
    vectors = vectors - torch.einsum("nij,nj->ni", manifold.tangent_projector(points), vectors)
    return vectors / vectors.norm(dim=1, keepdim=True)


def assert_knows_near_from_far(field, manifold, sigma, rng, samples=None, noisy_share=1.0):
    clean = manifold.sample(100, generator=rng)
    base = manifold.manifold if isinstance(manifold, Noisy) else manifold
    assert check(field, clean, sigma, samples=samples).valid.all()
    noisy = check(field, clean + noise(clean, sigma, rng), sigma, samples=samples)
    assert noisy.valid.double().mean() >= noisy_share
    across = normals(base, clean, rng)
    for times in FAR:
        # A long step inwards may end on the other side.
        far = clean + times * sigma * across
        far = far[base.distance(far) > 8 * sigma]
        found = check(field, far, sigma, samples=samples)
        assert not found.valid.any()
        assert all(found.reasons)


@pytest.mark.slow
@pytest.mark.parametrize("with_samples", [False, True], ids=["without samples", "with samples"])
@pytest.mark.parametrize("kind", ["sphere", "union", "noisy"])
def test_exact_fields_are_valid_near_the_data_only(rng, sphere, kind, with_samples):
    other = Sphere(1).embed(6, generator=rng, shift=3.0)
    manifold = {"sphere": sphere, "union": Union([sphere, other]), "noisy": sphere.noisy(0.05)}[kind]
    samples = manifold.sample(1000, generator=rng) if with_samples else None
    assert_knows_near_from_far(ExactField(manifold), manifold, 0.1, rng, samples, noisy_share=0.98)


@pytest.mark.slow
def test_kernel_fields_are_valid_near_the_data_only(rng, sphere):
    """With n_eff = 1000·σ² = 40 samples at a point, one noisy point in twenty has a stray eigenvalue."""
    samples = sphere.sample(1000, generator=rng)
    field = KernelField(samples)
    assert_knows_near_from_far(field, sphere, 0.2, rng, samples, noisy_share=0.95)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::carre.LinearPhaseWarning")
def test_learned_fields_are_valid_near_the_data_only(rng, sphere):
    samples = sphere.sample(1000, generator=rng)
    settings = {"max_steps": 500, "width": 48, "device": "cpu", "verbose": False, "random_state": 0}
    geometry = carre.fit(samples.numpy(), **settings)
    field, sigma = geometry.field, geometry.bandwidth
    assert_knows_near_from_far(field, sphere, sigma, rng, noisy_share=0.99)
    assert_knows_near_from_far(field, sphere, sigma, rng, samples, noisy_share=0.99)
    # In its plane, a network pulls from afar by a few σ only: one step of its denoiser would not tell.
    radial = sphere.sample(50, generator=rng) * torch.tensor([0.02, 0.5, 1.6, 5.0], dtype=torch.float64)[:, None, None]
    assert not check(field, radial.flatten(0, 1), sigma).valid.any()


def test_between_two_components_nothing_is_valid(rng):
    """At the middle of two atoms ±a the eigenvalue is a²/σ², beside it the distance is a."""
    turn, shift = torch.eye(2).double(), torch.tensor([4.0, 0.0], dtype=torch.float64)
    pair = Union([Embedded(Sphere(1), turn), Embedded(Sphere(1), turn, shift)])
    line = torch.stack([torch.linspace(1.6, 2.4, 9), torch.zeros(9)], 1).double()
    found = check(ExactField(pair), line, 0.1)
    assert not found.valid.any()
    assert (~found.near_data).sum() >= 8
    assert "between parts of the data" in found.reasons[4]


def test_beyond_the_edge_of_a_patch_nothing_is_valid(rng):
    patch = Box([0.0, 0.0], [1.0, 1.0]).embed(3, generator=rng)
    inside = torch.tensor([[0.5, 0.5], [0.2, 0.7], [0.05, 0.5]], dtype=torch.float64)
    assert check(ExactField(patch), inside @ patch.basis.mT, 0.05).valid.all()
    outside = torch.tensor([[1.5, 0.5], [-0.5, 0.5], [2.0, 2.0]], dtype=torch.float64)
    assert not check(ExactField(patch), outside @ patch.basis.mT, 0.05).valid.any()


def test_the_center_of_a_circle_has_no_geometry():
    found = check(ExactField(Sphere(1)), [[1e-9, 0.0]], 0.1)
    assert not found.clear_spectrum.any()
    assert found.largest_eigenvalue[0] > 10


def test_a_flat_answer_on_curved_data_disagrees_with_the_samples(rng, sphere):
    """What an undertrained network says: the projector on the linear hull, and a denoiser to match."""

    class Hull:
        dim = 6

        def metric(self, points, bandwidth):
            return ExactField(sphere).metric(points, bandwidth).__class__(sphere.basis.mT.expand(len(points), -1, -1))

        def denoise(self, points, bandwidth):
            return points @ sphere.basis @ sphere.basis.mT

    samples = sphere.sample(4000, generator=rng)
    found = check(Hull(), sphere.sample(50, generator=rng), 0.2, samples=samples)
    assert check(Hull(), samples[:50], 0.2).valid.all()
    assert not found.agrees.any()
    # The direction that the sphere lacks has eigenvalue 1 instead of σ².
    assert found.disagreement.mean() == pytest.approx(0.96, abs=0.1)
    assert "more than sampling explains" in found.reasons[0]


def test_a_kernel_with_few_samples_has_no_say(rng, sphere):
    found = check(ExactField(sphere), sphere.sample(20, generator=rng), 0.1, samples=sphere.sample(50, generator=rng))
    assert torch.isnan(found.disagreement).all()
    assert found.agrees.all()


def test_samples_that_are_noisier_than_sigma_are_where_they_should_be(rng, sphere):
    """At this σ the data are a cloud: far from its ridge, as one in 25 samples is, is where the samples are."""
    cloud = sphere.noisy(0.2)
    samples, others = cloud.sample(1000, generator=rng), cloud.sample(100, generator=rng)
    alone = check(ExactField(cloud), others, 0.1)
    assert alone.near_data.double().mean() < 0.9
    assert check(ExactField(cloud), others, 0.1, samples=samples).near_data.double().mean() > 0.95


def test_a_hole_in_the_samples_is_seen(rng):
    """The field believes in the whole circle, the samples only show half of it."""
    samples = Sphere(1).sample(1000, generator=rng)
    samples = samples[samples[:, 0] > 0]
    field = ExactField(Sphere(1))
    assert check(field, [[-1.0, 0.0]], 0.05).valid.all()
    found = check(field, [[-1.0, 0.0]], 0.05, samples=samples)
    assert not found.near_data.any()
    assert "the nearest sample is 1.4" in found.reasons[0]


def test_distances_are_told_in_both_units(rng):
    found = check(ExactField(Sphere(1)), [[2.0, 0.0]], 0.05)
    np.testing.assert_allclose(found.distance, 1.0, atol=1e-3)
    np.testing.assert_allclose(found.relative_distance, 20.0, atol=1e-2)


def test_the_summary_counts_what_is_wrong(rng, sphere):
    points = torch.cat([sphere.sample(3, generator=rng), 3 * sphere.sample(2, generator=rng)])
    found = check(ExactField(sphere), points, 0.05)
    assert found.summary().splitlines() == [
        "The geometry is valid at 3 of 5 points.",
        "  2 far from the data",
        "  2 without a clear spectrum",
    ]
    assert [bool(reason) for reason in found.reasons] == [False] * 3 + [True] * 2
    assert repr(found) == "Validity(3 of 5 points valid)"


def test_a_point_is_judged_alone(rng):
    """The nearest 1024 of 6000 samples on a circle reach to 2.7σ: enough in one dimension, in four it is not."""
    circle, sphere = Sphere(1).embed(6, generator=rng), Sphere(4).embed(6, generator=rng, shift=5.0)
    union = Union([circle, sphere])
    samples = torch.cat([circle.sample(6000, generator=rng), sphere.sample(1000, generator=rng)])
    points = torch.cat([circle.sample(2, generator=rng), sphere.sample(8, generator=rng)])
    together = check(ExactField(union), points, 0.2, samples=samples)
    alone = check(ExactField(union), points[:2], 0.2, samples=samples)
    assert torch.isfinite(alone.disagreement).all()
    torch.testing.assert_close(together.disagreement[:2], alone.disagreement)


def test_samples_may_have_another_dtype(rng, sphere):
    samples = sphere.sample(300, generator=rng)
    field, points = ExactField(sphere), sphere.sample(3, generator=rng)
    single = check(field, points, 0.1, samples=samples.float())
    assert single.nearest.dtype == torch.float64
    torch.testing.assert_close(single.nearest, check(field, points, 0.1, samples=samples).nearest, atol=1e-5, rtol=0)


def test_the_kernel_counts_in_the_memory_of_a_part(rng, monkeypatch):
    """Memory for the kernel's factor at 64 points, of 100×100 numbers each: no more are taken at a time."""
    sphere = Sphere(1).embed(100, generator=rng)
    samples, sizes = sphere.sample(150, generator=rng), []
    metric = KernelField._metric
    monkeypatch.setattr("carre.backend.memory.working_memory", lambda device: 64 * 8 * 100 * 100)
    monkeypatch.setattr(KernelField, "_metric", lambda self, y, s: sizes.append(len(y)) or metric(self, y, s))
    check(ExactField(sphere), sphere.sample(100, generator=rng), 0.2, samples=samples)
    assert sum(sizes) == 100
    assert max(sizes) <= 64


@pytest.mark.parametrize("with_samples", [False, True], ids=["without samples", "with samples"])
def test_points_beyond_all_numbers_are_far(rng, with_samples):
    """The square of 1e160 overflows."""
    samples = Sphere(2).sample(300, generator=rng) if with_samples else None
    found = check(ExactField(Sphere(2)), [[0.0, 0.0, 1e160], [0.0, 0.0, 1.0]], 0.2, samples=samples)
    assert found.near_data.tolist() == [False, True]
    assert found.valid.tolist() == [False, True]
    assert found.reasons[0].startswith("the field's answer is NaN or infinite")


@pytest.mark.parametrize("broken", ["metric", "denoise"])
def test_a_field_that_answers_nan_is_told_of(rng, broken):
    class Broken(ExactField):
        def _metric(self, points, bandwidth):
            metric = super()._metric(points, bandwidth)
            return LowRankMetric(metric.factor * torch.nan) if broken == "metric" else metric

        def _denoise(self, points, bandwidth):
            return super()._denoise(points, bandwidth) * (torch.nan if broken == "denoise" else 1.0)

    for samples in (None, Sphere(2).sample(300, generator=rng)):
        found = check(Broken(Sphere(2)), [[0.0, 0.0, 1.0]], 0.2, samples=samples)
        assert not found.valid.any()
        assert found.reasons[0] == "the field's answer is NaN or infinite: it knows no data near"


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


def test_where_the_rank_cuts_a_network_off_no_gap_is_claimed(rng):
    """Six of ten directions are along the data, and the factor has four rows: what follows the last one is unknown."""
    flat, whole = (NeuralField(network, AffineFrame(torch.zeros(10), 1.0)) for network in (Plane(), Whole()))
    points = torch.randn(20, 10, generator=rng)
    found = check(flat, points * torch.cat([torch.ones(6), torch.zeros(4)]), 0.3)
    assert (found.dimension == 4).all()
    assert not found.clear_spectrum.any()
    assert "as far as the rank reaches: no clear dimension" in found.reasons[0]
    assert check(whole, points, 0.3).clear_spectrum.all(), "a rank of the whole hull leaves nothing out"
