"""Tiny fits on images, and what the tests do with them."""

import numpy as np
import pytest

from carre.data import ImageDataset, Normalization
from carre.networks import UNetSettings

SHAPE = (2, 5, 4)


QUICK = {
    "network": UNetSettings(4, (1,), 1, (0,)),
    "rank": 3,
    "bandwidth": 0.5,
    "max_steps": 1,
    "batch_size": 4,
    "device": "cpu",
    "verbose": False,
    "random_state": 0,
}


SHORT_PATHS = {"dimension": 2, "n_nodes": 3, "max_sweeps": 2}


NORMALIZATION = Normalization((0.4, 0.6), 0.25)


def dataset(n=30, seed=0, normalization=NORMALIZATION):
    pixels = np.random.default_rng(seed).integers(0, 256, (n, *SHAPE), dtype=np.uint8)
    return ImageDataset(pixels, normalization=normalization)


def slow(ask):
    return pytest.param(ask, marks=pytest.mark.slow)


def flat(images):
    return images.reshape(len(images), -1)


def whole(images):
    return (255 * NORMALIZATION.decode(images, clip=True)).astype(np.uint8)


def brightness(points):
    """The same function of images and of flat points."""
    return points.reshape(len(points), -1).square().mean(1)
