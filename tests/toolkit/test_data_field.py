"""Fields that know their data: defaults come from them, images go in and out, black boxes get arrays."""

import numpy as np
import pytest
import torch

from carre import toolkit
from carre.boundary import as_images, as_points
from carre.fields import DataField, ExactField
from carre.manifolds import Sphere
from carre.toolkit import (
    calibration_error,
    carre_du_champ,
    check,
    choose_bandwidth,
    choose_local_bandwidths,
    divergence,
    eigenvalues,
    estimate_dimension,
    gradient,
    gradient_flow,
    gradient_of_values,
    hessian,
    laplacian,
    local_dimension,
    minimize,
    predictive_score,
    project,
    second_fundamental_form,
    sectional_curvature,
    slope_dimension,
    tangent_angles,
    tangent_basis,
)

SHAPE, SIGMA = (1, 2, 2), 0.2
PLAIN = ExactField(Sphere(3))
DATA = Sphere(3).sample(300, generator=torch.Generator().manual_seed(1))


class Pictures(DataField):
    """The three-sphere, as images of four pixels."""

    field, bandwidth, bandwidth_range = PLAIN, SIGMA, (0.19, 0.21)
    device, verbose = torch.device("cpu"), False

    def accept(self, points, *, name="points", single=False):
        given = points if isinstance(points, torch.Tensor) else np.asarray(points)
        if given.ndim == 4:
            return as_images(given, sample_shape=SHAPE, name=name)
        return as_points(given, dim=4, name=name)

    def scale_at(self, bandwidth, points):
        return points.new_full((len(points),), SIGMA if bandwidth is None else bandwidth)

    def sample_graph(self, bandwidth):
        return None

    def samples(self):
        return DATA


def images(points):
    return points.reshape(*points.shape[:-1], *SHAPE)


def flat(points):
    return torch.as_tensor(points).flatten(-3)


def corners(x):
    """Of images, and of nothing else."""
    return x[:, 0, 0, 0] * x[:, 0, 1, 1] + x[:, 0, 0, 1] ** 2


def flat_corners(x):
    return x[:, 0] * x[:, 3] + x[:, 1] ** 2


@pytest.fixture
def points(rng):
    return Sphere(3).sample(4, generator=rng)


@pytest.mark.parametrize(
    "ask",
    [
        lambda f, x, see, **s: gradient(f, see(corners, flat_corners), x, **s),
        lambda f, x, see, **s: project(f, x, x.flip(0), **s),
        lambda f, x, see, **s: toolkit.curvature(f, x, **s).mean,
        lambda f, x, see, **s: gradient_of_values(f, see(images(DATA), DATA), DATA[:, :2], x, **s),
        lambda f, x, see, **s: gradient_of_values(f, see(images(DATA), DATA), DATA[:, 0], x, **s),
        lambda f, x, see, **s: gradient_flow(f, see(corners, flat_corners), x, step=0.1, n_steps=2, **s),
        lambda f, x, see, **s: minimize(f, see(corners, flat_corners), x, max_steps=2, **s).points,
        lambda f, x, see, **s: minimize(f, see(corners, flat_corners), x, max_steps=2, keep_path=True, **s).path,
    ],
    ids=["gradient", "project", "mean_curvature", "values", "value", "flow", "minimum", "path"],
)
def test_points_and_vectors_come_back_as_images_at_the_default_scale(points, ask):
    found = ask(Pictures(), images(points), lambda of_images, of_points: of_images)
    truth = ask(PLAIN, points, lambda of_images, of_points: of_points, bandwidth=SIGMA)
    torch.testing.assert_close(flat(found), truth)
    assert ask(Pictures(), points, lambda of_images, of_points: of_points).shape == truth.shape


@pytest.mark.parametrize(
    "ask",
    [
        lambda f, x, see, **s: carre_du_champ(f, see(corners, flat_corners), None, x, **s),
        lambda f, x, see, **s: laplacian(f, see(corners, flat_corners), x, **s),
        lambda f, x, see, **s: hessian(f, see(corners, flat_corners), x, **s)[0],
        lambda f, x, see, **s: divergence(f, lambda y: y**3 + y, x, **s),
        lambda f, x, see, **s: second_fundamental_form(f, x, **s)[0],
        lambda f, x, see, **s: toolkit.curvature(f, x, **s).scalar,
        lambda f, x, see, **s: toolkit.curvature(f, x, **s).ricci,
        lambda f, x, see, **s: sectional_curvature(f, x, x.roll(1, 0), x.roll(2, 0), **s),
        lambda f, x, see, **s: tangent_basis(f, x, 2, **s),
        lambda f, x, see, **s: tangent_angles(f, x, x.flip(0), dimension=3, **s),
        lambda f, x, see, **s: eigenvalues(f, x, **s),
        lambda f, x, see, **s: local_dimension(f, x, **s),
        lambda f, x, see, **s: slope_dimension(f, x, **s),
        lambda f, x, see, **s: predictive_score(f, x, generator=torch.Generator().manual_seed(0), **s),
        lambda f, x, see, **s: minimize(f, see(corners, flat_corners), x, max_steps=2, **s).values,
    ],
)
def test_everything_else_does_not_depend_on_the_shape(points, ask):
    found = ask(Pictures(), images(points), lambda of_images, of_points: of_images)
    truth = ask(PLAIN, points, lambda of_images, of_points: of_points, bandwidth=SIGMA)
    torch.testing.assert_close(found, truth)


def test_black_boxes_see_arrays_of_images_and_return_slopes_as_images(points):
    def black_box(x):
        assert isinstance(x, np.ndarray)
        return (x[:, 0, 1] ** 2).sum(1)

    def slope(x):
        answer = np.zeros_like(x)
        answer[:, 0, 1] = 2 * x[:, 0, 1]
        return answer

    starts = images(points).numpy()
    by_differences, by_slope = (
        minimize(Pictures(), black_box, starts, gradient=kind, max_steps=2) for kind in ("differences", slope)
    )
    assert by_slope.points.shape == (4, *SHAPE)
    np.testing.assert_allclose(by_differences.points, by_slope.points, atol=1e-6)
    flow = gradient_flow(Pictures(), black_box, starts, gradient=slope, step=0.1, n_steps=2)
    assert isinstance(flow, np.ndarray)
    assert flow.shape == (4, 3, *SHAPE)


def test_a_field_is_not_asked_beyond_the_scales_that_it_knows(points):
    asked = []

    class Watched(ExactField):
        def _metric(self, points, bandwidth):
            asked.extend(bandwidth.tolist())
            return super()._metric(points, bandwidth)

    pictures = Pictures()
    pictures.field = Watched(Sphere(3))
    estimate_dimension(pictures, images(points))
    assert (min(asked), max(asked)) == (0.19, 0.21)
    asked.clear()
    estimate_dimension(pictures, images(points), bandwidth_range=(0.15, 0.2))
    assert (min(asked), max(asked)) == (0.15, 0.2)


def test_points_are_checked_against_the_samples_that_a_field_knows(points):
    found, truth = check(Pictures(), images(points)), check(PLAIN, points, SIGMA, samples=DATA)
    torch.testing.assert_close(found.nearest, truth.nearest)
    torch.testing.assert_close(found.disagreement, truth.disagreement, equal_nan=True)
    half = check(Pictures(), images(points), samples=images(DATA[:150]))
    assert (half.nearest >= found.nearest).all()


def test_scales_and_calibration_are_those_of_the_field_inside(points, rng):
    profile = choose_bandwidth(PLAIN, DATA[:50], [0.1, 0.2], generator=rng)
    found = choose_local_bandwidths(Pictures(), images(points), profile)
    np.testing.assert_array_equal(found.gap, choose_local_bandwidths(PLAIN, points, profile).gap)
    errors = [
        calibration_error(*asked, generator=torch.Generator().manual_seed(0))
        for asked in ((Pictures(), images(DATA)), (PLAIN, DATA, SIGMA))
    ]
    assert errors[0] == errors[1]


def test_a_field_without_a_default_scale_says_so(points):
    with pytest.raises(ValueError, match="bandwidth must be given for a field that has no default scale; got None"):
        gradient(PLAIN, flat_corners, points)
