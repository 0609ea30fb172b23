"""Eigenfunctions of the Laplace–Beltrami operator, where they are known."""

import math
import pickle

import numpy as np
import pytest
import torch

import carre
from carre import toolkit
from carre.fields import ExactField, KernelField
from carre.manifolds import Box, Gaussian, Sphere, Union
from carre.metric import LowRankMetric
from carre.toolkit import eigenfunctions

SPHERE = torch.tensor([0.0] + 3 * [2.0] + 5 * [6.0] + 7 * [12.0], dtype=torch.float64)


def drawn(manifold, n, seed=0):
    return manifold.sample(n, generator=torch.Generator().manual_seed(seed))


def errors(found, truth):
    return (found.values[1:] / torch.as_tensor(truth)[1:] - 1).abs().max()


@pytest.fixture(scope="module")
def sphere():
    """Rotated and shifted in R⁵, so that coordinates know nothing of it."""
    return Sphere(2, radius=2.0).embed(5, shift=7.0, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def on_sphere(sphere):
    return eigenfunctions(ExactField(sphere), drawn(sphere, 1000), 16, 0.2)


def test_the_sphere_has_its_eigenvalues_their_multiplicities_and_its_area(on_sphere):
    assert errors(on_sphere, SPHERE / 4) < 0.03
    assert on_sphere.values[0] == 0
    assert float(on_sphere.weights.sum()) == pytest.approx(16 * math.pi, rel=0.02)
    assert on_sphere.n_parts == 1
    assert on_sphere.n_resolved == 16


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_four_thousand_points_of_the_sphere_give_its_eigenvalues_within_three_percent(seed):
    sphere = Sphere(2).embed(10, generator=torch.Generator().manual_seed(seed))
    assert errors(eigenfunctions(ExactField(sphere), drawn(sphere, 4000, seed), 16, 0.1), SPHERE) < 0.01


def test_functions_at_new_points_are_the_spherical_harmonics(on_sphere, sphere):
    """The span of the three with λ = 2/R² are the linear functions; their sum of squares is 3 everywhere."""
    new = drawn(sphere, 300, seed=5)
    linear = on_sphere(new)[:, 1:4]
    assert (linear.square().sum(1) - 3).abs().max() < 0.1
    outer = torch.cat([new, torch.ones(300, 1).double()], 1)
    left = linear - outer @ torch.linalg.lstsq(outer, linear, driver="gelsd").solution
    assert left.square().sum() < 1e-3 * linear.square().sum()
    torch.testing.assert_close(on_sphere(on_sphere.question.points[:20]), on_sphere.functions[:20])


def test_their_slopes_belong_to_their_eigenvalues(on_sphere, sphere):
    """∫|∇f|² = λ∫f²: torch differentiates through the call, so `gradient` takes an eigenfunction."""
    field, new = ExactField(sphere), drawn(sphere, 400, seed=6)
    slopes = toolkit.gradient(field, lambda x: on_sphere(x)[:, 5], new, 0.2)
    share = slopes.square().sum() / on_sphere(new)[:, 5].square().sum()
    assert float(share) == pytest.approx(float(on_sphere.values[5]), rel=0.1)


@pytest.mark.filterwarnings("ignore:eigenvalues")
def test_uneven_samples_count_by_their_volume():
    """Ten times as many samples on one side of a circle: the Laplacian is that of the circle."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 8000)
    angle = angle[rng.uniform(size=8000) < np.exp(1.15 * (np.cos(angle) - 1))][:1200]
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    truth = torch.tensor([0.0, 1, 1, 4, 4, 9, 9]).double()
    found = eigenfunctions(ExactField(Sphere(1)), circle, 7, 0.1)
    assert np.abs(found.values[1:] / truth.numpy()[1:] - 1).max() < 0.02
    density = eigenfunctions(ExactField(Sphere(1)), circle, 7, 0.1, weighted=True)
    assert abs(density.values[1] - 1) > 0.05


@pytest.mark.filterwarnings("ignore:eigenvalues")
def test_the_weighted_operator_of_a_gaussian_is_that_of_ornstein_and_uhlenbeck():
    """−f″ + xf′/s² has the eigenvalues j/s², of the Hermite polynomials. The samples are quantiles, without scatter."""
    quantiles = torch.special.ndtri((torch.arange(2000).double() + 0.5) / 2000)[:, None]
    field = ExactField(Gaussian(torch.zeros(1).double(), 4 * torch.eye(1).double()))
    found = eigenfunctions(field, 2 * quantiles, 4, 0.2, weighted=True)
    assert errors(found, torch.arange(4).double() / 4) < 0.05


def test_functions_end_level_at_the_edges_of_a_rectangle():
    """(iπ/a)² + (jπ/b)², Neumann."""
    box = Box([0.0, 0.0], [2.0, 1.0])
    found = eigenfunctions(ExactField(box), drawn(box, 1500), 8, 0.1)
    truth = sorted((i * math.pi / 2) ** 2 + (j * math.pi) ** 2 for i in range(8) for j in range(5))
    assert errors(found, torch.tensor(truth[:8]).double()) < 0.08
    assert float(found.weights.sum()) == pytest.approx(2, rel=0.05)


def test_each_part_of_the_data_has_a_zero():
    parts = Union([Sphere(1), Sphere(1, radius=2.0)], [0.5, 0.5])
    found = eigenfunctions(ExactField(parts), drawn(parts, 800), 6, 0.05)
    assert found.n_parts == 2
    torch.testing.assert_close(found.values[2:], torch.tensor([0.25, 0.25, 1, 1]).double(), rtol=0.02, atol=0)
    with pytest.warns(UserWarning, match="2 parts that are not connected"):
        outer = found.coordinates(torch.tensor([[2.0, 0.0], [1.0, 0.0]], dtype=torch.float64))
    assert torch.linalg.vector_norm(outer[0]) > 100 * torch.linalg.vector_norm(outer[1])


def test_coordinates_are_lengths_and_scale_with_the_data():
    """A closed curve of radius R becomes a circle of radius √2R, by angle; λ are 1/length²."""
    angle = torch.linspace(0, 2 * math.pi, 501, dtype=torch.float64)[:-1]
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    small, large = (eigenfunctions(KernelField(r * circle), r * circle, 5, 0.1 * r) for r in (1.0, 4.0))
    torch.testing.assert_close(small.values, 16 * large.values, rtol=1e-6, atol=1e-9)
    found = large.coordinates(4 * circle)
    torch.testing.assert_close(
        torch.linalg.vector_norm(found, dim=1), torch.full((500,), 4 * 2**0.5).double(), rtol=0.01, atol=0
    )
    turned = torch.atan2(found[:, 1], found[:, 0])
    steps = torch.remainder(turned.diff() + math.pi, 2 * math.pi) - math.pi
    torch.testing.assert_close(steps.abs(), torch.full((499,), 2 * math.pi / 500).double(), rtol=0.05, atol=0)


class Noisy:
    """An exact field that knows of noise in its samples, and denoises them."""

    dim, noise = 2, 0.1

    def metric(self, points, bandwidth):
        return ExactField(Sphere(1)).metric(points, bandwidth)

    def denoise(self, points, bandwidth):
        return points / torch.linalg.vector_norm(points, dim=1, keepdim=True)


def test_noisy_samples_are_asked_at_where_they_are_denoised_to():
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 600)
    clean = np.stack([np.cos(angle), np.sin(angle)], 1)
    noisy = clean + 0.1 * np.random.default_rng(1).normal(size=clean.shape)
    found = eigenfunctions(Noisy(), noisy, 5, 0.05)
    np.testing.assert_allclose(found.values[1:], [1, 1, 4, 4], rtol=0.02)
    np.testing.assert_allclose(found(2.5 * clean[:5]), found(clean[:5]), atol=1e-12)


def test_what_samples_do_not_support_is_said(sphere):
    with pytest.warns(UserWarning, match=r"not resolved. Give more points, or ask for n_functions="):
        found = eigenfunctions(ExactField(sphere), drawn(sphere, 250), 40, 0.2)
    assert found.n_resolved < 16
    with pytest.warns(UserWarning, match="of few points"):
        assert not torch.isfinite(eigenfunctions(ExactField(sphere), drawn(sphere, 40), 4, 0.2).uncertainty).any()


def test_points_far_from_the_samples_are_named(on_sphere, sphere):
    with pytest.warns(UserWarning, match="1 of 2 points are far from the samples"):
        on_sphere(torch.stack([drawn(sphere, 1)[0], torch.full((5,), 100.0).double()]))


def test_wrong_questions_get_a_sentence(sphere, on_sphere):
    field, samples = ExactField(sphere), drawn(sphere, 60)
    with pytest.raises(ValueError, match=r"n_functions must be at most 20, a third of the 60 points; got 21"):
        eigenfunctions(field, samples, 21, 0.2)
    with pytest.raises(ValueError, match="n_functions must be at least 1"):
        eigenfunctions(field, samples, 0, 0.2)
    with pytest.raises(ValueError, match="points must be finite"):
        eigenfunctions(field, samples * math.nan, 3, 0.2)
    with pytest.raises(ValueError, match="points must differ; got 60 times the same"):
        eigenfunctions(field, samples[:1].expand(60, -1), 3, 0.2)
    with pytest.raises(ValueError, match="n_components must be at most 15"):
        on_sphere.coordinates(samples, 16)
    with pytest.raises(ValueError, match="bandwidth must be given"):
        eigenfunctions(field, samples, 3)


def test_a_geometry_answers_in_the_kind_it_is_asked_in_and_keeps_its_map():
    samples = drawn(Sphere(1), 400).float()
    geometry = carre.Geometry(KernelField(samples), 0.1, (0.05, 0.5), landmarks=samples, rank=2, verbose=False)
    found = geometry.eigenfunctions(samples.numpy(), 3)
    assert {type(part) for part in (found.values, found.uncertainty, found.functions, found.weights)} == {np.ndarray}
    assert found.functions.dtype == np.float32
    first, again = geometry.coordinates(samples[:7]), geometry.coordinates(samples.numpy()[3:7])
    np.testing.assert_allclose(first[3:], again, atol=1e-6)
    kept = pickle.loads(pickle.dumps(geometry))
    np.testing.assert_allclose(kept.coordinates(samples[:7]), first, atol=1e-6)
    with pytest.raises(ValueError, match="n_components must be at most 132"):
        geometry.coordinates(samples, 133)


class Tilted:
    """Tangent planes of a sphere, each tilted by a hundredth towards the normal, as a good fit has them."""

    dim = 3

    def metric(self, points, bandwidth):
        basis = Sphere(2).tangent_basis(points)
        tilts = 0.01 * torch.sin(3 * points[:, [1, 2]] + 1)
        return LowRankMetric(torch.linalg.qr(basis + points[:, :, None] * tilts[:, None])[0].mT.contiguous())

    def denoise(self, points, bandwidth):
        return points


def test_small_errors_of_tangent_spaces_cost_little():
    """Bumps that cancel on the data, and are steep across them, must not pay for slopes along them."""
    assert errors(eigenfunctions(Tilted(), drawn(Sphere(2), 1500), 9, 0.1), SPHERE[:9]) < 0.02
