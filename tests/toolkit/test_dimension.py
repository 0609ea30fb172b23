"""The dimension estimators against the table of THEORY §4.4, and the recommended one where the others fail."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import carre
from carre.fields import ExactField, KernelField, NeuralField, NoDenoiserError
from carre.manifolds import Box, CliffordTorus, FiniteSet, Sphere, Union
from carre.metric import AffineFrame, LowRankMetric
from carre.toolkit import (
    ScaleProfile,
    eigenvalues,
    estimate_dimension,
    local_dimension,
    rank_cuts_off,
    recommend_rank,
    slope_dimension,
    spectral_dimension,
)


@pytest.mark.parametrize(
    ("manifold", "sigma", "count", "trace", "gap", "participation", "slope"),
    [
        (Sphere(2).embed(10), 0.2, 2, 1.96, 2, 2.08, 2.00),
        (Sphere(2).embed(10), 0.4, 2, 1.84, 2, 2.36, 2.00),
        (Sphere(2).embed(10), 0.8, 0, 1.24, 0, 2.95, 1.71),
        (Sphere(8).embed(64), 0.25, 8, 6.40, 8, 8.45, 7.21),
        (CliffordTorus([1.0, 0.5]), 0.2, 2, 2.01, 2, 2.22, 2.06),
    ],
    ids=["S2 0.2", "S2 0.4", "S2 0.8", "S8 0.25", "Clifford 0.2"],
)
def test_estimators_agree_with_the_table(rng, manifold, sigma, count, trace, gap, participation, slope):
    points = manifold.sample(20, generator=rng)
    field = ExactField(manifold)
    metric = field.metric(points, sigma)
    assert spectral_dimension(metric).double().mean() == count
    assert spectral_dimension(metric, "gap").double().mean() == gap
    assert spectral_dimension(metric, "trace").mean() == pytest.approx(trace, abs=0.01)
    assert spectral_dimension(metric, "participation").mean() == pytest.approx(participation, abs=0.01)
    assert slope_dimension(field, points, sigma).mean() == pytest.approx(slope, abs=0.01)


def test_the_slope_is_the_derivative_of_the_density_in_the_logarithm_of_the_scale(rng):
    sphere = Sphere(3).embed(6, generator=rng)
    points = sphere.sample(8, generator=rng) + 0.05 * torch.randn(8, 6, generator=rng, dtype=torch.float64)
    sigma, step = 0.3, 1e-4
    up, down = (sphere.posterior(points, sigma * np.exp(sign * step)).log_evidence for sign in (1, -1))
    slope = 6 + (up - down) / (2 * step)
    torch.testing.assert_close(slope_dimension(ExactField(sphere), points, sigma), slope, rtol=1e-6, atol=0)


def test_edges_keep_their_dimension_and_corners_of_a_cube_at_least_one_less():
    field = ExactField(Box([-1.0] * 3, [1.0] * 3))
    points = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.2, 0.1], [1.05, 0.0, 0.0]], dtype=torch.float64)
    assert local_dimension(field, points, 0.1).tolist() == [3, 3, 3]
    assert spectral_dimension(field.metric(points, 0.1)).tolist() == [3, 2, 2]


def test_an_outlier_does_not_gain_a_dimension(rng):
    """The pull on it is long, but normal: there G has almost no variance."""
    sphere = Sphere(2).embed(8, generator=rng)
    away = 1.3 * sphere.sample(10, generator=rng)
    assert (local_dimension(ExactField(sphere), away, 0.1) == 2).all()


def test_noise_below_the_scale_does_not_count(rng):
    noisy = Sphere(2).embed(10, generator=rng).noisy(0.1)
    points = noisy.sample(50, generator=rng)
    assert (local_dimension(ExactField(noisy), points, 0.3) == 2).double().mean() >= 0.95


def test_without_a_gap_the_rank_is_judged_where_samples_have_neighbors():
    """The last eigenvalue is 0.9 at σ = 0.1, and 0.3 at the chosen σ = 0.4."""
    values = np.array([[1.0, 0.9], [0.9, 0.6], [0.5, 0.3]])
    nothing, gap = np.zeros(3), np.array([0.1, 0.3, 0.2])
    profile = ScaleProfile(np.array([0.1, 0.2, 0.4]), values, nothing, gap, nothing, 2, "")
    assert "at σ = 0.1 even the last eigenvalue averages 0.90" in rank_cuts_off(profile, 5)
    assert "at σ = 0.2 even the last eigenvalue averages 0.60" in rank_cuts_off(profile, 5, 0.15)
    assert rank_cuts_off(profile, 5, 0.3) is None
    assert rank_cuts_off(replace(profile, gap=np.full(3, 0.6)), 5) is None
    assert rank_cuts_off(profile, 2) is None


@pytest.mark.parametrize("dim", [10, 50, 200])
def test_noise_near_the_scale_is_no_edge(rng, dim):
    """It gives every normal direction an eigenvalue of 0.31, and moves points along all of them."""
    noisy = Sphere(2).embed(dim, generator=rng).noisy(0.1)
    found = local_dimension(ExactField(noisy), noisy.sample(100, generator=rng), 0.15)
    assert (found == 2).double().mean() >= 0.97


@pytest.mark.parametrize(("d", "dim"), [(5, 6), (5, 12), (8, 16)])
def test_curvature_is_no_edge(rng, d, dim):
    """At σ√d = 0.7 the normal eigenvalue is dσ²/2 = 0.25, and the mean lies σd/2 = 0.8 inside."""
    sphere = Sphere(d).embed(dim, generator=rng)
    assert (local_dimension(ExactField(sphere), sphere.sample(20, generator=rng), 0.7 / d**0.5) == d).all()


def test_no_point_of_a_box_loses_a_dimension(rng):
    """Also at corners, also of a box in a larger space."""
    box = Box([-1.0] * 3, [1.0] * 3).embed(6, generator=rng)
    points = box.sample(300, generator=rng)
    assert (local_dimension(ExactField(box), points, 0.2) == 3).double().mean() >= 0.98
    assert (local_dimension(ExactField(box), points, 0.2, threshold=0.5) == 3).double().mean() < 0.8


def test_dimension_is_local_on_a_union(rng):
    circle, ball = Sphere(1).embed(8, generator=rng), Sphere(3).embed(8, generator=rng, shift=5.0)
    points = torch.cat([circle.sample(10, generator=rng), ball.sample(30, generator=rng)])
    estimate = estimate_dimension(ExactField(Union([circle, ball])), points, 0.2)
    assert estimate.local.tolist() == [1] * 10 + [3] * 30
    assert estimate.value == 3
    assert estimate.shares == {1: 0.25, 3: 0.75}
    assert estimate.mean == pytest.approx(2.5)
    assert estimate.standard_error == pytest.approx(estimate.local.std(ddof=1) / 40**0.5)


def test_the_interval_is_wide_where_the_scale_matters(rng):
    """Between noise of size 0.2 and the sphere: 8 dimensions below it, 2 above."""
    noisy = Sphere(2).embed(8, generator=rng).noisy(0.2)
    points = noisy.sample(50, generator=rng)
    unsure = estimate_dimension(ExactField(noisy), points, 0.22)
    sure = estimate_dimension(ExactField(noisy), points, 0.05)
    assert unsure.interval[1] - unsure.interval[0] >= 2
    assert sure.interval == (8, 8)


def test_scales_outside_the_range_are_not_asked_for(rng):
    sphere = Sphere(2)
    asked = []

    class Watched(ExactField):
        def _metric(self, points, bandwidth):
            asked.append(float(bandwidth.max()))
            return super()._metric(points, bandwidth)

    estimate_dimension(Watched(sphere), sphere.sample(5, generator=rng), 0.1, bandwidth_range=(0.1, 0.12))
    assert max(asked) <= 0.12
    assert min(asked) >= 0.1


@pytest.mark.slow
def test_one_percent_of_outliers_does_not_move_the_estimate(rng):
    sphere = Sphere(3).embed(6, generator=rng)
    samples = sphere.sample(1000, generator=rng)
    spoiled = samples.clone()
    spoiled[:10] = 4 * torch.randn(10, 6, generator=rng, dtype=torch.float64)
    clean, dirty = (estimate_dimension(KernelField(x), x, 0.25) for x in (samples, spoiled))
    assert clean.value == dirty.value == 3
    assert abs(clean.mean - dirty.mean) < 0.1 * clean.mean


def test_a_field_without_a_denoiser_still_counts(rng):
    class Uncentered(ExactField):
        def _denoise(self, points, bandwidth):
            raise NoDenoiserError("no denoiser")

    sphere = Sphere(2)
    points = sphere.sample(5, generator=rng)
    assert (local_dimension(Uncentered(sphere), points, 0.1) == 2).all()


def test_errors_of_a_denoiser_are_not_taken_for_its_absence():
    class Broken(ExactField):
        def _denoise(self, points, bandwidth):
            raise ValueError("broken")

    square, edge = Box([-1.0, -1.0], [1.0, 1.0]), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match="broken"):
        local_dimension(Broken(square), edge, 0.1)
    assert local_dimension(Broken(square), 0 * edge, 0.1) == 2, "where nothing looks like an edge it is not asked"


def test_every_point_may_have_its_own_scale(rng):
    noisy = Sphere(2).embed(6, generator=rng).noisy(0.1)
    points = noisy.sample(40, generator=rng)
    scales = torch.full((40,), 0.03, dtype=torch.float64)
    scales[20:] = 0.4
    estimate = estimate_dimension(ExactField(noisy), points, scales)
    assert (estimate.local[:20] == 6).all()
    assert (estimate.local[20:] == 2).mean() > 0.9
    with pytest.raises(ValueError, match="bandwidth must"):
        estimate_dimension(ExactField(noisy), points, scales[:7])


def test_arrays_come_back_as_arrays(rng):
    points = Sphere(2).sample(5, generator=rng).numpy()
    field = ExactField(Sphere(2))
    assert isinstance(local_dimension(field, points, 0.1), np.ndarray)
    assert isinstance(slope_dimension(field, points, 0.1), np.ndarray)


@pytest.mark.parametrize("points", [np.zeros((3, 2)), np.full((2, 3), np.nan), np.zeros((0, 3)), np.zeros(3)])
def test_bad_points_are_refused(points):
    for function in (local_dimension, slope_dimension, estimate_dimension):
        with pytest.raises(ValueError, match="points must"):
            function(ExactField(Sphere(2)), points, 0.1)


def test_ranks_leave_room_and_notice_a_cut():
    assert recommend_rank(np.array([2] * 99 + [9]), rank=20, hull_dim=10).rank == 6, "one odd point is not asked"
    cut = recommend_rank(np.full(50, 4), rank=4, hull_dim=64)
    assert cut.rank == 8
    assert "cuts the dimension off" in cut.reason
    assert recommend_rank(np.full(50, 3), rank=6, hull_dim=3).rank == 6
    with pytest.raises(ValueError, match="at least one point"):
        recommend_rank(np.array([]), rank=4, hull_dim=3)


def test_participation_does_not_depend_on_the_size_of_the_metric():
    metric = LowRankMetric(torch.diag(torch.tensor([1.0, 0.5]))[None])
    torch.testing.assert_close(
        spectral_dimension(metric, "participation"), spectral_dimension(metric.scaled(0.01), "participation")
    )


def test_a_finite_dataset_at_tiny_scales_has_no_dimension(rng):
    samples = Sphere(2).sample(20, generator=rng)
    assert (local_dimension(ExactField(FiniteSet(samples)), samples, 0.001) == 0).all()


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
    counts = spectral_dimension(ExactField(manifold).metric(points, sigma))
    assert (counts == dimension).all()


def test_dimension_varies_over_a_union(rng):
    circle, ball = Sphere(1).embed(8, generator=rng), Sphere(3).embed(8, generator=rng, shift=5.0)
    union = Union([circle, ball])
    points = torch.cat([circle.sample(10, generator=rng), ball.sample(10, generator=rng)])
    assert spectral_dimension(ExactField(union).metric(points, 0.2)).tolist() == [1] * 10 + [3] * 10


def test_at_the_edge_of_a_patch_one_dimension_is_lost():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    assert spectral_dimension(ExactField(Box([-1.0, -1.0], [1.0, 1.0])).metric(points, 0.1)).tolist() == [2, 1, 0]


def test_local_dimensions_by_a_threshold_are_counts_of_eigenvalues():
    field = ExactField(Box([-1.0, -1.0], [1.0, 1.0]))
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    assert local_dimension(field, points, 0.1, threshold=0.5).tolist() == [2, 1, 0]
    assert local_dimension(field, points, 0.1, threshold=0.3).tolist() == [2, 2, 2]
    np.testing.assert_allclose(eigenvalues(field, points.numpy(), 0.1), field.metric(points, 0.1).eigenvalues())


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.5])
def test_a_threshold_outside_the_unit_interval_is_named(threshold):
    metric = ExactField(Sphere(1)).metric(torch.tensor([[1.0, 0.0]], dtype=torch.float64), 0.1)
    with pytest.raises(ValueError, match="threshold must lie between 0 and 1"):
        spectral_dimension(metric, threshold=threshold)


def test_an_unknown_way_to_read_the_spectrum_is_named():
    with pytest.raises(ValueError, match="method must be one of count, gap, trace, participation; got 'guess'"):
        spectral_dimension(LowRankMetric(torch.eye(2)[None]), "guess")


class Plane(torch.nn.Module):
    """Exact for a Gaussian of variance 1 in the first six of ten directions; its factor has four rows."""

    def forward(self, points, bandwidth):
        shrink = 1 / (1 + bandwidth.square())
        spread = torch.cat([torch.ones(6), torch.zeros(4)]).to(points)
        rows = torch.eye(10)[:4].to(points) * shrink.sqrt()[:, None, None]
        return points * spread * shrink[:, None], rows


@pytest.mark.parametrize("n_axes", [256, 4], ids=["all axes", "probes"])
def test_dimensions_beyond_the_rank_are_counted_from_the_denoiser(n_axes, monkeypatch, rng):
    monkeypatch.setattr("carre.toolkit.dimension._MOST_AXES", n_axes)
    monkeypatch.setattr("carre.toolkit.dimension._N_PROBES", 100)
    field = NeuralField(Plane(), AffineFrame(torch.zeros(10), 1.0))
    points = torch.randn(30, 10, generator=rng) * torch.cat([torch.ones(6), torch.zeros(4)])
    estimate = estimate_dimension(field, points, 0.3)
    assert (estimate.value, estimate.interval, estimate.verdict) == (6, (6, 6), "clear")
    assert (estimate.local == 4).all(), "at each point the factor answers"
    assert "since the rank cuts dimensions off" in str(estimate)
    assert estimate.standard_error < 0.2
    coarse = estimate_dimension(field, points, 2.0)
    assert (coarse.value, coarse.counted) == (0, ""), "where no eigenvalue is large nothing is cut"


def test_a_rank_that_cuts_a_field_without_a_denoiser_off_is_no_error(rng):
    class Rows(torch.nn.Module):
        def forward(self, points, bandwidth):
            return None, torch.eye(10)[:4].to(points).expand(len(points), -1, -1)

    field = NeuralField(Rows(), AffineFrame(torch.zeros(10), 1.0))
    estimate = estimate_dimension(field, torch.randn(5, 10, generator=rng), 0.3)
    assert (estimate.value, estimate.counted) == (4, "")


class Whole(torch.nn.Module):
    """Exact for a standard Gaussian in ten dimensions."""

    def forward(self, points, bandwidth):
        shrink = 1 / (1 + bandwidth.square())
        return points * shrink[:, None], torch.eye(10).to(points) * shrink.sqrt()[:, None, None]


def test_a_whole_hull_that_few_samples_cannot_tell_from_a_curved_shape_is_not_clear(rng):
    """A box in ten dimensions has 1,024 corners, and a quadric 55 coefficients."""
    field = NeuralField(Whole(), AffineFrame(torch.zeros(10), 1.0))
    few, enough = (
        carre.Geometry(field, 0.3, (0.1, 3.0), landmarks=torch.randn(9, 10, generator=rng), rank=10, n_samples=n)
        for n in (1023, 1024)
    )
    points = torch.randn(20, 10, generator=rng)
    assert few.estimate_dimension(points).verdict == "not resolved"
    assert "in which 1,023 samples cannot tell a curved or hollow shape from a flat, full one" in str(
        few.estimate_dimension(points)
    )
    assert enough.estimate_dimension(points).verdict == "clear"
    assert few.estimate_dimension(points, 2.0).doubt == "", "fewer directions than the hull has were told apart"
