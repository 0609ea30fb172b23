"""What is wrong about images is said in a sentence."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch

import carre
from carre.data import Normalization
from tests.geometry.image_fits import NORMALIZATION, QUICK, SHAPE, dataset, flat, whole
from tests.samples import TINY, circle

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((9, 5, 4)), r"X must have shape \(n, channels, height, width\).*got \(9, 5, 4\).*X\[:, None\]"),
        (np.zeros((9, 1, 2, 5, 4)), r"X must have shape \(n, channels, height, width\).*got \(9, 1, 2, 5, 4\)"),
        (np.full((9, *SHAPE), np.nan), "X must be finite"),
        (np.zeros((0, *SHAPE)), "X must not be empty"),
        (np.zeros((9, 2, 0, 4)), "X must not be empty"),
        (np.ones((9, *SHAPE)), "same point"),
        (np.zeros((1, *SHAPE)), "at least 2 samples"),
        (torch.zeros(9, *SHAPE, dtype=torch.complex64), "real"),
    ],
)
def test_bad_samples_are_refused_in_a_sentence(samples, message):
    with pytest.raises(ValueError, match=message):
        carre.fit(samples, **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 64}, r"width must be None for images.*got 64.*network=UNetSettings\(channels=...\)"),
        ({"n_blocks": 2}, r"n_blocks must be 3 for images.*got 2.*network=UNetSettings\(n_blocks=...\)"),
        ({"block": "plain"}, r"block must be 'gated' for images.*got 'plain'.*network=UNetSettings\(...\)"),
        ({"device": "meta"}, "device must be one that computes here.*got 'meta'"),
    ],
)
def test_options_that_images_do_not_have_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        carre.fit(dataset(), **{**QUICK, **options})


def test_a_unet_is_refused_for_tables():
    with pytest.raises(ValueError, match=r"network must be None or a module for samples of shape \(n, D\)"):
        carre.fit(circle(30), **QUICK)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda g, x: g.denoise(x[:, :, :4]), r"points must be images of shape \(2, 5, 4\).*got \(2, 4, 4\)"),
        (lambda g, x: g.denoise(x[0]), r"points must have shape \(n, 2, 5, 4\).*single image as image\[None\]"),
        (lambda g, x: g.denoise(x[:, 0]), r"points must have shape \(n, 2, 5, 4\) for images; got \(4, 5, 4\)$"),
        (lambda g, x: g.denoise(flat(x)[:, :9]), "points must have 40 columns.*got 9"),
        (lambda g, x: g.project(x, x[:, :1]), r"vectors must be images of shape \(2, 5, 4\).*got \(1, 5, 4\)"),
        (lambda g, x: g.path(x[0], x[0, :1], method="flow"), "end must have shape"),
        (lambda g, x: g.denoise(np.where(x > 0, x, np.nan)), "points must be finite"),
        (lambda g, x: g.denoise(dataset(4, normalization=Normalization((0.5,), 1.0))), "normalized like the samples"),
        (lambda g, x: g.to_images(np.zeros((4, 9))), r"points must end with the axes \(2, 5, 4\).*got shape \(4, 9\)"),
        *(
            (lambda g, x, n=n: g.tangent_images(x, n), f"n_directions must be an integer between 1 and 3.*got {n!r}")
            for n in (0, 4, -1)
        ),
        *(
            (lambda g, x, n=n: g.tangent_images(x, n), f"n_directions must be an integer; got {n!r}")
            for n in (2.0, "2", None, True)
        ),
        *(
            (
                lambda g, x, kind=kind: g.dimension(kind(flat(x)[0])),
                r"points must have shape \(n, 2, 5, 4\) or \(n, 40\); got",
            )
            for kind in (np.array, torch.tensor, list)
        ),
        *(
            (
                ask,
                "must be normalized like the samples of the fit; got whole numbers. Use geometry.normalization.encode",
            )
            for ask in (
                lambda g, x: g.dimension(whole(x)),
                lambda g, x: g.dimension(flat(whole(x))),
                lambda g, x: g.denoise(torch.from_numpy(whole(x))),
                lambda g, x: g.denoise(whole(x).tolist()),
                lambda g, x: g.metric(x > 0),
                lambda g, x: g.score(whole(x)),
                lambda g, x: g.path(x[0], whole(x)[1], method="flow"),
                lambda g, x: g.path(whole(x)[0], x[1], method="thread"),
                lambda g, x: g.tangent_angles(x, whole(x), dimension=2),
            )
        ),
        (lambda g, x: g.gradient(lambda y: y, x), "function must map points"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_queries_are_refused_in_a_sentence(geometry, images, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(geometry, images)


@pytest.mark.parametrize(
    "ask",
    [
        lambda g, x: g.dimension(x),
        lambda g, x: g.denoise(flat(x)),
        lambda g, x: g.denoise(torch.from_numpy(x)),
        lambda g, x: g.path(x[0], x[1], method=carre.Flow(max_steps=1)),
    ],
)
def test_pixels_that_were_not_normalized_are_warned_of(geometry, images, ask):
    pixels = NORMALIZATION.decode(images, clip=True)
    message = "must be normalized like the samples of the fit; got pixels in .0, 1.. Use geometry.normalization.encode"
    with pytest.warns(UserWarning, match=message):
        ask(geometry, pixels)


def test_normalized_images_and_vectors_of_any_kind_are_not_warned_of(geometry, images):
    """Nor numbers in [0, 1] where black is one of them, or nearly."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        geometry.denoise(images)
        geometry.denoise(dataset(4, seed=1))
        geometry.project(images, np.ones((4, *SHAPE)), dimension=2)
        geometry.project(images, np.ones((4, *SHAPE), dtype=int), dimension=2)
        dark = dataclasses.replace(geometry, normalization=Normalization((0.02, 0.5), 0.25))
        dark.denoise(np.full((1, *SHAPE), 0.5))


def test_a_dataset_needs_a_fit_that_knew_of_one(geometry_of_bytes):
    message = r"points must be an array or a tensor.*no normalization; got a dataset with .*Fit on a dataset"
    with pytest.raises(ValueError, match=message):
        geometry_of_bytes.dimension(dataset(2))


@pytest.mark.parametrize(
    ("samples", "remedy"),
    [
        (np.zeros((9, 5, 4, 3)), r"fit on X.transpose\(0, 3, 1, 2\)"),
        (np.zeros((9, 5, 4, 1)), r"fit on X.transpose\(0, 3, 1, 2\)"),
        (torch.zeros(9, 5, 4, 3), r"fit on X.permute\(0, 3, 1, 2\)"),
    ],
)
def test_channels_on_the_last_axis_are_warned_of(samples, remedy):
    """Equal samples are refused right after that: nothing needs to be trained."""
    with pytest.warns(UserWarning, match=remedy), pytest.raises(ValueError, match="same point"):
        carre.fit(samples, **QUICK)


@pytest.mark.parametrize("shape", [(1, 5, 3), (3, 4, 1), (2, 5, 4), (3, 3, 3)])
def test_channels_on_their_axis_are_not_warned_of(shape):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="same point"):
            carre.fit(np.zeros((9, *shape)), **QUICK)


def test_a_geometry_of_tables_says_that_it_has_no_images():
    geometry = carre.fit(circle(30), **{**TINY, "max_steps": 2})
    for ask in (lambda: geometry.tangent_images(circle(2), 1), lambda: geometry.to_images(circle(2))):
        with pytest.raises(ValueError, match="needs a fit on images"):
            ask()
    with pytest.raises(ValueError, match=r"points must have shape \(n, 3\).*Flatten with points.reshape"):
        geometry.denoise(np.zeros((2, 1, 1, 3)))
