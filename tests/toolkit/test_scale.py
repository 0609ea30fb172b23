"""The choice of scale without labels (THEORY §4.5): for all points, for every point, and for a kernel."""

import math

import numpy as np
import pytest
import torch

from carre.fields import ExactField, KernelField, ScoreField
from carre.manifolds import FiniteSet, Gaussian, Sphere, Union
from carre.metric import LowRankMetric, projector_distance
from carre.toolkit import KernelChoice, choose_bandwidth, choose_kernel, choose_local_bandwidths, spectral_dimension
from carre.toolkit.scale import _candidates

GRID = np.geomspace(0.02, 5.0, 17)


class Ribbon:
    """A Gaussian ribbon: deviations 20, 0.3 and 0.02, so a surface from near and a curve from afar."""

    dim = 3
    variances = torch.tensor([400.0, 0.09, 0.0004], dtype=torch.float64)

    def metric(self, points, bandwidth):
        shrinkage = self.variances / (self.variances + torch.as_tensor(bandwidth).double() ** 2)
        return LowRankMetric(torch.diag(shrinkage.sqrt()).expand(len(points), 3, 3))

    def denoise(self, points, bandwidth):
        return points * (self.variances / (self.variances + torch.as_tensor(bandwidth).double() ** 2))

    def sample(self, n, generator):
        return self.variances.sqrt() * torch.randn(n, 3, generator=generator, dtype=torch.float64)


def test_the_finest_structure_is_taken_where_samples_have_neighbors(rng):
    """The gap after one direction at large σ is wider than that after two at small."""
    ribbon, grid = Ribbon(), np.geomspace(0.08, 5.0, 13)
    samples = ribbon.sample(400, rng)
    fine = choose_bandwidth(ribbon, samples, grid, generator=rng)
    assert fine.gap.argmax() != fine.chosen
    assert fine.bandwidth[fine.chosen] < 0.2
    assert "finest structure: 2 dimensions" in fine.reason
    coarse = choose_bandwidth(ribbon, samples, grid, supported_from=1.0, generator=rng)
    assert coarse.gap.argmax() == coarse.chosen
    assert coarse.bandwidth[coarse.chosen] > 1.0


def test_the_profile_knows_its_traces_and_what_it_may_believe(rng):
    sphere = Sphere(2)
    profile = choose_bandwidth(ExactField(sphere), sphere.sample(200, generator=rng), GRID, generator=rng)
    np.testing.assert_allclose(profile.trace, profile.eigenvalues.sum(1))
    assert profile.is_admissible[profile.chosen]
    unknown = choose_bandwidth(ExactField(sphere), sphere.sample(20, generator=rng), GRID, calibrated=False)
    assert unknown.is_admissible.all()


def test_small_and_large_parts_get_their_own_scales(rng):
    """Circles of radius 0.15 and 2: at the scale of the large one, the small one is a blob."""
    small, large = Sphere(1, 0.15).embed(5, generator=rng, shift=2.0), Sphere(1, 2.0).embed(5, generator=rng)
    union = Union([small, large])
    samples = torch.cat([small.sample(100, generator=rng), large.sample(100, generator=rng)])
    profile = choose_bandwidth(ExactField(union), samples, np.geomspace(0.01, 1.0, 14), generator=rng)
    scales = choose_local_bandwidths(ExactField(union), samples, profile)
    assert scales.gap.shape == (200, 14)
    assert scales.bandwidth[:100].max() < 0.1
    metric = ExactField(union).metric(samples, torch.from_numpy(scales.bandwidth))
    assert ((metric.eigenvalues() > 0.5).sum(1) == 1).all()


def test_points_stay_at_the_common_scale_without_a_reason_to_leave(rng):
    sphere = Sphere(2).embed(5, generator=rng)
    points = sphere.sample(50, generator=rng)
    grid = 0.05 * math.sqrt(2) ** np.arange(5)
    profile = choose_bandwidth(ExactField(sphere), points, grid, generator=rng)
    scales = choose_local_bandwidths(ExactField(sphere), points, profile)
    assert (scales.bandwidth == grid[profile.chosen]).all()


@pytest.mark.parametrize("grid", [[0.2, 0.1], [-0.1, 0.1], [], [[0.1, 0.2]], [0.1, float("nan")]])
def test_bad_grids_are_refused(rng, grid):
    with pytest.raises(ValueError, match="grid must be positive and ascending"):
        choose_bandwidth(ExactField(Sphere(2)), Sphere(2).sample(20, generator=rng), grid)


def test_samples_may_be_arrays_and_grids_lists(rng):
    samples = Sphere(2).sample(50, generator=rng)
    profile = choose_bandwidth(ExactField(Sphere(2)), samples.numpy(), [0.1, 0.2], generator=rng)
    assert profile.bandwidth.tolist() == [0.1, 0.2]


def test_bad_points_are_refused(rng):
    sphere = Sphere(2)
    profile = choose_bandwidth(ExactField(sphere), sphere.sample(20, generator=rng), GRID[:3], generator=rng)
    with pytest.raises(ValueError, match="points must have 3 columns"):
        choose_local_bandwidths(ExactField(sphere), np.zeros((4, 2)), profile)


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
    assert (spectral_dimension(ExactField(noisy).metric(points, sigma)) == 2).all()


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


def test_without_a_clear_gap_the_reason_names_the_scale_of_the_widest(rng):
    """Deviations 2^0, 2^½, …: eigenvalues fall gradually, by at most 0.17 on one side of the scale."""
    spread = Gaussian(torch.zeros(8, dtype=torch.float64), torch.diag(2.0 ** torch.arange(8, dtype=torch.float64)))
    samples, grid = spread.sample(300, generator=rng), np.geomspace(0.05, 5.0, 13)
    profile = choose_bandwidth(ExactField(spread), samples, grid, supported_from=0.2, generator=rng)
    widest = profile.gap.argmax()
    assert widest != profile.chosen
    assert (
        f"no scale has a clear spectral gap (at most {profile.gap[widest]:.2f}, at σ = {grid[widest]:.3g})"
        in profile.reason
    )


def test_a_rank_that_may_cut_hides_the_noise_but_not_from_the_denoiser(rng):
    """With rank = d, G is a perfect projector far below the noise, too. What the rank leaves out, residuals have."""
    noisy = Sphere(2).embed(6, generator=rng).noisy(0.05)
    samples = noisy.sample(300, generator=rng)
    grid = np.geomspace(0.005, 0.64, 15)
    profile = choose_bandwidth(ScoreField(ExactField(noisy), rank=2), samples, grid, generator=rng)
    assert 0.1 < profile.bandwidth[profile.chosen] < 0.5
    assert "gap is widest" in profile.reason
    blind = choose_bandwidth(ScoreField(ExactField(noisy), rank=2), samples, grid[:8], calibrated=False)
    assert "rank 2 may cut dimensions off at every scale" in blind.reason


def test_when_no_scale_is_calibrated_the_reason_says_so(rng):
    few = ExactField(FiniteSet(torch.randn(5, 4, generator=rng, dtype=torch.float64)))
    others = torch.randn(200, 4, generator=rng, dtype=torch.float64)
    profile = choose_bandwidth(few, others, np.geomspace(0.01, 0.05, 3), generator=rng)
    assert "no scale is calibrated" in profile.reason


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
    assert (spectral_dimension(choice.field.metric(points, choice.bandwidth)) == 2).double().mean() > 0.9


def test_asked_at_its_own_samples_the_chosen_kernel_leaves_each_out(rng):
    """Kept, a sample pulls the mean to itself: S⁵ with 1,500 samples had 4.47 dimensions."""
    samples = Sphere(5).sample(1500, generator=rng)
    choice = choose_kernel(samples)
    kept = KernelField(samples, n_neighbors=choice.n_neighbors)
    trace, less = (field.metric(samples[:300], choice.bandwidth).trace().mean() for field in (choice.field, kept))
    dropped = KernelField(samples, n_neighbors=choice.n_neighbors, self_neighbor="drop")
    torch.testing.assert_close(trace, dropped.metric(samples[:300], choice.bandwidth).trace().mean())
    assert trace > less + 0.05


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


def test_a_direction_at_scales_where_samples_have_hardly_any_neighbors_is_no_finer_structure(rng):
    """A network that has not resolved a curve at its smallest scales shows two dimensions there."""
    ribbon, grid = Ribbon(), np.geomspace(0.08, 5.0, 13)
    samples = ribbon.sample(400, rng)
    fine = choose_bandwidth(ribbon, samples, grid, supported_from=0.04, generator=rng)
    assert "finest structure: 2 dimensions" in fine.reason
    unseen = choose_bandwidth(ribbon, samples, grid, supported_from=0.1, generator=rng)
    assert unseen.gap.argmax() == unseen.chosen
    for dimension, is_seen in ((1.4, False), (1.6, True)):
        given = {"supported_from": 0.1, "neighbor_dimension": dimension}
        told = choose_bandwidth(ribbon, samples, grid, generator=rng, **given)
        assert ("finest structure: 2 dimensions" in told.reason) == is_seen, "as the neighbors of samples say"
