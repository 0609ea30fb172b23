"""How far features move, against features whose answer is known."""

import numpy as np
import pytest
import torch

from carre import IsotropicField
from carre.metric import LowRankMetric
from experiments.measures import Stability, feature_stability
from experiments.measures.stability import fingerprints

SHAPE = (2, 3, 3)
DIM = 18


class PlaneField:
    """The same tangent plane everywhere, with a metric of a given size."""

    dim = DIM

    def __init__(self, factor, scale=1.0):
        self.factor, self.scale = factor, scale
        self.bandwidths = []

    def metric(self, points, bandwidth):
        self.bandwidths.append(bandwidth)
        return LowRankMetric(self.factor.expand(len(points), *self.factor.shape)).scaled(self.scale)

    def denoise(self, points, bandwidth):
        return points


@pytest.fixture
def images(rng):
    return torch.randn(7, *SHAPE, generator=rng, dtype=torch.float64)


@pytest.fixture
def plane(rng):
    return torch.linalg.qr(torch.randn(DIM, 2, generator=rng, dtype=torch.float64))[0].mT


def test_an_isometry_moves_by_the_radius_times_its_gain_in_every_direction(images, rng):
    rotation = torch.linalg.qr(torch.randn(DIM, DIM, generator=rng, dtype=torch.float64))[0]
    features = lambda x: 3.0 * x.flatten(1) @ rotation + 1.0  # noqa: E731
    stability = feature_stability(IsotropicField(DIM), images, features, [0.5, 2.0], 4, bandwidth=0.1)
    assert stability.shifts.shape == (2, 7, 4)
    expected = torch.tensor([1.5, 6.0], dtype=torch.float64)
    torch.testing.assert_close(stability.shifts, expected[:, None, None].expand(2, 7, 4))
    torch.testing.assert_close(stability.mean, expected)
    torch.testing.assert_close(stability.deviation, torch.zeros(2, dtype=torch.float64))


def test_isotropic_directions_fall_upon_every_axis_alike(rng):
    """Shifts of the k-th value are |uₖ| with E uₖ² = 1/D, in n draws of deviation below √(2/n)/D; six are allowed."""
    n_draws, image = 4000, torch.zeros(1, 4, dtype=torch.float64)
    for k in range(4):
        features = lambda x, k=k: x[:, k : k + 1]  # noqa: E731
        shifts = feature_stability(IsotropicField(4), image, features, [1.0], n_draws, bandwidth=0.1).shifts
        assert float(shifts.square().mean()) == pytest.approx(1 / 4, abs=6 * (2 / n_draws) ** 0.5 / 4)


def test_only_directions_count_not_the_size_of_the_metric(images, plane):
    small, large = (
        feature_stability(PlaneField(plane, scale), images, torch.tanh, [1.0], 3, bandwidth=0.1)
        for scale in (1e-6, 1e4)
    )
    torch.testing.assert_close(small.shifts, large.shifts)


def test_features_that_are_invariant_along_the_tangent_do_not_move(images, plane):
    normal = torch.eye(DIM, dtype=torch.float64) - plane.mT @ plane
    features = lambda x: torch.sin(x.flatten(1) @ normal)  # noqa: E731
    along = feature_stability(PlaneField(plane), images, features, [0.1, 5.0], 4, bandwidth=0.1)
    anywhere = feature_stability(IsotropicField(DIM), images, features, [0.1, 5.0], 4, bandwidth=0.1)
    assert along.shifts.max() < 1e-12
    assert anywhere.shifts.min() > 1e-3


def test_each_draw_serves_all_radii(images, plane):
    """Along one ray, features that are linear move in proportion to the radius."""
    weights = torch.linspace(-1, 1, DIM, dtype=torch.float64)[:, None]
    shifts = feature_stability(
        PlaneField(plane), images, lambda x: x.flatten(1) @ weights, [0.5, 1.0, 3.0], 4, bandwidth=0.1
    ).shifts
    torch.testing.assert_close(shifts[1:], shifts[:1] * torch.tensor([2.0, 6.0], dtype=torch.float64)[:, None, None])


def test_the_mean_at_each_image_averages_its_draws_only():
    shifts = torch.tensor([[[1.0, 3.0], [10.0, 20.0]]])
    stability = Stability((1.0,), shifts, ("a", "b"))
    assert stability.of_images.tolist() == [[2.0, 15.0]]
    assert stability.mean.tolist() == [8.5]


def test_the_deviation_is_that_of_all_images_and_draws_together():
    """As in the paper's figure: the root of the mean square about the mean, of all that were measured."""
    shifts = torch.tensor([[[1.0, 3.0], [5.0, 7.0]]])
    torch.testing.assert_close(Stability((1.0,), shifts, ("a", "b")).deviation, torch.tensor([5.0**0.5]))


def test_a_seed_reproduces_and_another_one_draws_anew(images):
    first, again, other = (
        feature_stability(IsotropicField(DIM), images, torch.tanh, [1.0], bandwidth=0.1, seed=seed).shifts
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_batch_size_changes_nothing_where_the_direction_is_certain(images, plane):
    """A metric of rank one has one direction up to its sign, which even features do not see."""
    line, zeros = PlaneField(plane[:1]), torch.zeros_like(images)
    for batch_size in (1, 3, 7, 100):
        stability = feature_stability(
            line, zeros, lambda x: torch.cosh(x.flatten(1)), [1.0], 2, bandwidth=0.1, batch_size=batch_size
        )
        expected = (torch.cosh(plane[0]) - 1).norm()
        torch.testing.assert_close(stability.shifts, expected.expand(1, 7, 2))


def test_no_more_images_than_the_batch_size_are_shown_to_the_features(images):
    seen = []

    def features(x):
        seen.append(tuple(x.shape))
        return x

    feature_stability(IsotropicField(DIM), images, features, [1.0], 5, bandwidth=0.1, batch_size=4)
    assert max(shape[0] for shape in seen) == 4
    assert {shape[1:] for shape in seen} == {SHAPE}


def test_a_bandwidth_per_image_reaches_its_image_in_every_batch(images, plane):
    field, sigmas = PlaneField(plane), torch.linspace(0.1, 0.7, 7, dtype=torch.float64)
    feature_stability(field, images, torch.tanh, [1.0], bandwidth=sigmas, batch_size=3)
    assert torch.equal(torch.cat(field.bandwidths), sigmas)
    assert len(field.bandwidths) == 3


def test_shifts_stay_with_their_images_across_batches(images):
    """Features that shrink each image by its own factor tell the images apart."""
    gains = images.flatten(1)[:, :1].abs() + 1
    constant = lambda x: x.detach().flatten(1)[:, :1]  # noqa: E731
    images = torch.cat([gains, torch.zeros(7, DIM - 1, dtype=torch.float64)], 1)
    last = torch.eye(DIM, dtype=torch.float64)[-1:]
    features = lambda x: constant(x) * x[:, -1:]  # noqa: E731
    shifts = feature_stability(PlaneField(last), images, features, [2.0], 3, bandwidth=0.1, batch_size=2).shifts
    torch.testing.assert_close(shifts[0], 2 * gains.expand(7, 3))


def test_images_points_and_arrays_are_the_same_thing(images):
    norm = lambda x: x.flatten(1).square().sum(1, keepdim=True)  # noqa: E731
    answers = [
        feature_stability(IsotropicField(DIM), given, norm, [1.0], bandwidth=0.1)
        for given in (images, images.flatten(1), images.numpy(), images.clone().requires_grad_())
    ]
    for answer in answers[1:]:
        assert torch.equal(answer.shifts, answers[0].shifts)
        assert answer.images == answers[0].images


def test_images_are_left_as_they_are(images):
    before = images.clone()
    feature_stability(IsotropicField(DIM), images, torch.tanh, [1.0], bandwidth=0.1)
    assert torch.equal(images, before)


def test_progress_is_told_up_to_the_whole(images):
    told = []
    feature_stability(IsotropicField(DIM), images, torch.tanh, [1.0], bandwidth=0.1, batch_size=3, progress=told.append)
    assert told == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]


def test_fingerprints_name_images_by_their_values_and_number_equal_ones():
    first, other, again = fingerprints(torch.tensor([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]))
    assert len({first, other, again}) == 3
    assert again.startswith(first)
    assert fingerprints(torch.tensor([[1.0, 3.0]])) == (other,)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"images": torch.zeros(2, 1, 3, 3)}, "images must have 18 values each, like the field; got shape"),
        ({"images": torch.zeros(2, 9)}, "images must have 18 columns"),
        ({"images": torch.full((2, *SHAPE), torch.nan)}, "images must be finite"),
        ({"images": torch.zeros(0, *SHAPE)}, "images must not be empty"),
        ({"radii": []}, "radii must be positive lengths, at least one; got"),
        ({"radii": [1.0, -1.0]}, "radii must be positive lengths"),
        ({"radii": [0.0]}, "radii must be positive lengths"),
        ({"radii": [float("nan")]}, "radii must be positive lengths"),
        ({"radii": [float("inf")]}, "radii must be positive lengths"),
        ({"radii": 1.0}, r"radii must be positive lengths, at least one; got 1.0. Give a list like \[1.0, 2.0\]"),
        ({"radii": "1,2"}, "radii must be positive lengths, at least one; got 1,2"),
        ({"seed": -1}, "seed must be a whole number between 0 and 2⁶³ − 1; got -1"),
        ({"seed": 2**63}, "seed must be a whole number between 0 and"),
        ({"seed": "new"}, "seed must be a whole number between 0 and .*; got 'new'"),
        ({"features": "edges"}, "features must be a function of images, such as wavelet_features makes; got 'edges'"),
        ({"n_draws": 0}, "n_draws must be a positive integer; got 0"),
        ({"n_draws": 1.5}, "n_draws must be a positive integer; got 1.5"),
        ({"batch_size": 0}, "batch_size must be a positive integer; got 0"),
        ({"bandwidth": -1.0}, "bandwidth must be positive"),
        ({"bandwidth": torch.ones(3)}, "bandwidth must be a number or have shape"),
        ({"features": lambda x: x.sum()}, r"features must return a tensor of shape \(2, k\).*got \(\)"),
        ({"features": lambda x: x[:1]}, r"features must return a tensor of shape \(2, k\).*got \(1, 2, 3, 3\)"),
        ({"features": lambda x: np.zeros((2, 3))}, "features must return a tensor.*got ndarray"),
        ({"features": lambda x: x / 0}, "features must be finite"),
        ({"field": PlaneField(torch.zeros(1, DIM))}, "field must have a direction at every image"),
        ({"field": PlaneField(torch.full((1, DIM), torch.inf))}, "field must have a direction at every image"),
    ],
)
def test_bad_input_is_named(changed, message):
    arguments = {
        "field": IsotropicField(DIM),
        "images": torch.zeros(2, *SHAPE),
        "features": torch.tanh,
        "radii": [1.0],
        "bandwidth": 0.1,
    }
    with pytest.raises(ValueError, match=message):
        feature_stability(**{**arguments, **changed})


@pytest.mark.gpu
def test_images_on_a_gpu_are_measured_there(images):
    on_gpu = []

    def features(x):
        on_gpu.append(x.is_cuda)
        return 2 * x

    shifts = feature_stability(IsotropicField(DIM), images.cuda(), features, [1.0], bandwidth=0.1).shifts
    assert all(on_gpu)
    torch.testing.assert_close(shifts, torch.full((1, 7, 8), 2.0, dtype=torch.float64))
