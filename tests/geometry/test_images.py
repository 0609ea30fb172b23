"""Geometries of images: every question takes images or flat points, and answers in the same shape."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

import carre
from carre.toolkit import Path
from tests.geometry.image_fits import NORMALIZATION, QUICK, SHAPE, SHORT_PATHS, brightness, dataset, flat, slow
from tests.samples import circle

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_a_fit_on_images_knows_their_shape_and_normalization(geometry):
    assert geometry.sample_shape == SHAPE
    assert geometry.dim == 40
    assert geometry.normalization == NORMALIZATION
    assert geometry.rank == 3
    assert geometry.landmarks.shape == (30, 40)


@pytest.mark.parametrize(
    "ask",
    [
        lambda g, x: g.denoise(x),
        lambda g, x: g.gradient(brightness, x, dimension=2),
        lambda g, x: g.project(x, x[::-1].copy(), dimension=2),
        lambda g, x: g.gradient_of_values(dataset(), np.arange(30.0), x, dimension=2),
        slow(lambda g, x: g.curvature(x, dimension=2).mean),
        slow(lambda g, x: g.minimize(brightness, x, dimension=2, max_steps=1).points),
        slow(lambda g, x: g.logarithm(x[:1], x[1:2], **SHORT_PATHS)),
    ],
    ids=["denoise", "gradient", "project", "gradient_of_values", "mean_curvature", "minimize", "logarithm"],
)
def test_points_and_vectors_come_back_in_the_shape_that_was_given(geometry, images, ask):
    as_images, as_flat = ask(geometry, images), ask(geometry, flat(images))
    assert as_images.shape[1:] == SHAPE
    assert as_flat.shape[1:] == (40,)
    np.testing.assert_allclose(flat(as_images), as_flat, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ask",
    [
        lambda g, x: g.dimension(x),
        lambda g, x: g.eigenvalues(x),
        lambda g, x: g.tangent_basis(x, 2),
        lambda g, x: g.metric(x).factor.numpy(),
        lambda g, x: np.asarray(g.at(x).gamma(centered=False)),
        lambda g, x: g.laplacian(brightness, x, dimension=2),
        lambda g, x: g.divergence(lambda y: y**2, x, dimension=2),
        lambda g, x: g.hessian(brightness, x, dimension=2)[1],
        lambda g, x: g.carre_du_champ(brightness, None, x),
        lambda g, x: g.tangent_angles(x, x, dimension=2),
        lambda g, x: g.estimate_dimension(x).local,
        lambda g, x: np.array(g.score(x)),
        lambda g, x: g.exponential(x, x, dimension=2, n_steps=2).numpy(),
        lambda g, x: g.path(x[:2], x[2:], method=carre.Flow(max_steps=2)).numpy(),
        slow(lambda g, x: g.check(x).distance),
        slow(lambda g, x: g.distances(x[:2], **SHORT_PATHS)),
    ],
)
def test_everything_else_does_not_depend_on_the_shape(geometry, images, ask):
    np.testing.assert_allclose(ask(geometry, images), ask(geometry, flat(images)), atol=1e-9)


def test_a_dataset_is_as_good_as_its_images(geometry):
    np.testing.assert_array_equal(geometry.denoise(dataset(4, seed=1)), geometry.denoise(dataset(4, seed=1).images))


def test_tangent_images_are_the_columns_of_the_basis(geometry, images):
    pictures = geometry.tangent_images(images, 2)
    assert pictures.shape == (4, 2, *SHAPE)
    np.testing.assert_allclose(pictures.reshape(4, 2, 40), geometry.tangent_basis(images, 2).transpose(0, 2, 1))
    np.testing.assert_allclose(np.linalg.norm(pictures.reshape(4, 2, 40), axis=2), 1, atol=1e-12)
    stretched = geometry.metric(images).apply(torch.from_numpy(pictures[:, 0].reshape(4, 40)))
    np.testing.assert_allclose(stretched.norm(dim=1), geometry.eigenvalues(images)[:, 0], rtol=1e-9)


@pytest.mark.parametrize("ask", ["gradient", "laplacian", slow("minimize"), "carre_du_champ"])
def test_functions_see_what_the_caller_gave(geometry, images, ask):
    seen = []

    def function(points):
        seen.append(tuple(points.shape[1:]))
        return brightness(points)

    further = {"carre_du_champ": {}, "minimize": {"dimension": 2, "max_steps": 1}}.get(ask, {"dimension": 2})
    arguments = (function, None) if ask == "carre_du_champ" else (function,)
    getattr(geometry, ask)(*arguments, images, **further)
    assert set(seen) == {SHAPE}
    getattr(geometry, ask)(*arguments, flat(images), **further)
    assert set(seen) == {SHAPE, (40,)}


@pytest.mark.slow
def test_black_boxes_see_arrays_of_images_and_return_slopes_as_images(geometry, images):
    def black_box(x):
        assert isinstance(x, np.ndarray)
        return (x[:, 0, 2] ** 2).sum(1)

    def slope(x):
        answer = np.zeros_like(x)
        answer[:, 0, 2] = 2 * x[:, 0, 2]
        return answer

    options = {"dimension": 2, "max_steps": 1}
    found = [geometry.minimize(black_box, images, gradient=kind, **options) for kind in ("differences", slope)]
    np.testing.assert_allclose(found[0].points, found[1].points, atol=1e-6)
    flow = geometry.gradient_flow(black_box, images, gradient=slope, step=0.1, n_steps=2, dimension=2)
    assert flow.shape == (4, 3, *SHAPE)


@pytest.mark.slow
def test_the_way_of_a_descent_is_a_film(geometry, images):
    minimum = geometry.minimize(brightness, images, dimension=2, max_steps=2, keep_path=True)
    assert minimum.path.shape[2:] == SHAPE
    np.testing.assert_allclose(minimum.path[:, -1], minimum.points)
    assert minimum.values.shape == (4,)


def test_paths_between_single_images_keep_flat_nodes_that_unfold(geometry, images):
    short = carre.Geodesic(max_sweeps=1, dimension=2, ends="given")
    path = geometry.path(images[0], images[1], method=short, n_nodes=3)
    assert path.nodes.shape == (1, 3, 40)
    unfolded = geometry.to_images(path)
    assert unfolded.shape == (1, 3, *SHAPE)
    np.testing.assert_allclose(unfolded[0, 0], images[0])
    np.testing.assert_allclose(unfolded[0, -1], images[1])
    assert geometry.to_images(path(0.5)).shape == (1, 1, *SHAPE)
    assert geometry.path(torch.from_numpy(images[0]), images[:1], method=carre.Flow(max_steps=1)).nodes.shape[2] == 40
    carried = geometry.transport(path, images[:1], dimension=2)
    assert carried.shape == (1, 3, *SHAPE)


def test_pixels_lie_between_zero_and_one(geometry):
    given = dataset(4, seed=1)
    pixels = geometry.to_pixels(flat(given.images))
    np.testing.assert_allclose(pixels, given.pixels / 255, atol=1e-6)
    beyond = geometry.to_pixels(100 * given.images)
    assert beyond.min() == 0
    assert beyond.max() == 1
    assert geometry.to_pixels(Path.through(flat(given.images))).shape == (1, 4, *SHAPE)


def test_tensors_come_back_as_tensors_and_gradients_flow(geometry, images):
    points = torch.from_numpy(images).float().requires_grad_()
    denoised = geometry.denoise(points)
    assert denoised.dtype == torch.float32
    denoised.sum().backward()
    assert points.grad.shape == (4, *SHAPE)
    assert geometry.tangent_images(points.detach(), 1).shape == (4, 1, *SHAPE)
    assert isinstance(geometry.to_pixels(points.detach()), torch.Tensor)


def test_whole_numbers_are_images_in_their_own_units(geometry_of_bytes):
    pixels = dataset(2, seed=1).pixels
    assert geometry_of_bytes.normalization is None
    assert geometry_of_bytes.denoise(pixels).dtype == np.float32
    assert geometry_of_bytes.denoise(torch.from_numpy(pixels)).dtype == torch.float32
    assert 20 < geometry_of_bytes.field.frame.scale < 255
    with pytest.raises(ValueError, match="to_pixels needs to know how the images were normalized"):
        geometry_of_bytes.to_pixels(pixels)


def test_pixels_that_never_change_are_kept(geometry_of_bytes):
    """A U-Net needs them where they are; for tables the linear hull would leave them out."""
    assert geometry_of_bytes.field.frame.hull_dim == 40


def test_pickles_keep_what_they_should(geometry, images):
    again = pickle.loads(pickle.dumps(geometry))
    np.testing.assert_array_equal(again.denoise(images), geometry.denoise(images))
    assert again.sample_shape == SHAPE
    assert again.parameters["network"] == QUICK["network"]


@pytest.mark.slow
def test_an_estimator_forgets_the_images_of_an_earlier_fit():
    estimator = carre.MetricMatching(**QUICK).fit(dataset())
    assert estimator.n_features_in_ == 40
    geometry = estimator.set_params(network=None).fit(circle(30)).geometry_
    assert geometry.sample_shape is None
    assert geometry.normalization is None
    assert geometry.denoise(circle(5)).shape == (5, 3)


@pytest.mark.slow
def test_a_users_network_sees_flat_points_and_a_users_denoiser_images():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, points, bandwidth):
            assert points.shape[1:] == (40,)
            return self.scale * points, self.scale * points[:, None]

    settings = {**QUICK, "rank": None}
    assert carre.fit(dataset(), **{**settings, "network": Flat()}).rank == 1

    class Bright(nn.Module):
        def forward(self, points, bandwidth):
            assert points.shape[1:] == SHAPE
            return points + 1

    for denoiser in (Bright(), lambda y, s: y + 1 + 0 * s[:, None, None, None]):
        two_stage = carre.fit(dataset(), **QUICK, method="two-stage", denoiser=denoiser)
        pair = dataset(2, seed=1).images
        np.testing.assert_allclose(two_stage.denoise(pair), pair + 1, atol=1e-5)
