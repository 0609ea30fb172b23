"""The choice of scale: the finest structure that samples resolve, and a scale for every point."""

import math

import numpy as np
import pytest
import torch

from carre.fields import ExactField
from carre.manifolds import Sphere, Union
from carre.metric import LowRankMetric
from carre.toolkit import choose_bandwidth, choose_local_bandwidths

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
