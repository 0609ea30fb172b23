"""Geometries of images that several files ask."""

from types import SimpleNamespace

import numpy as np
import pytest

import carre
from tests.geometry.image_fits import NORMALIZATION, QUICK, dataset


@pytest.fixture(scope="module")
def geometry():
    """Fitted on anything with images and a normalization, which need not be our dataset."""
    return carre.fit(SimpleNamespace(images=dataset().images, normalization=NORMALIZATION), **QUICK)


@pytest.fixture(scope="module")
def geometry_of_bytes():
    """Fitted on pixels from 0 to 255, of which the first row never changes."""
    pixels = dataset().pixels.copy()
    pixels[:, :, 0] = 7
    pixels.setflags(write=False)
    return carre.fit(pixels, **{**QUICK, "bandwidth": 40.0})


@pytest.fixture(scope="module")
def images():
    return dataset(4, seed=1).images.astype(np.float64)
