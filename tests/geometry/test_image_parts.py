"""Images in parts, and a blob whose tangent plane is known."""

import copy
import dataclasses

import numpy as np
import pytest

import carre
from carre.networks import UNetSettings
from tests.geometry.image_fits import flat

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_answers_are_the_same_in_small_parts_as_in_one(geometry, images, monkeypatch):
    """With hardly any memory, images go through the network one by one."""
    expected = {name: getattr(geometry, name)(images) for name in ("denoise", "eigenvalues")}
    sizes = []
    field = copy.copy(geometry.field)
    field.model = copy.deepcopy(field.model)
    field._copies = {}
    for network in (field.model.mean, field.model.factor):
        network.trunk.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    geometry = dataclasses.replace(geometry, field=field)
    geometry.denoise(images)
    assert max(sizes) == 4
    sizes.clear()
    monkeypatch.setattr("carre.backend.memory.working_memory", lambda device: 1)
    for name, whole in expected.items():
        np.testing.assert_allclose(getattr(geometry, name)(images), whole, atol=1e-12)
    assert set(sizes) == {1}


SIDE, WIDTH = 12, 1.5


def blobs(n, seed, margin):
    """Images of a Gaussian blob at random places, and orthonormal bases of their tangent planes."""
    pixel = np.arange(SIDE)
    offsets = pixel - np.random.default_rng(seed).uniform(margin, SIDE - 1 - margin, (n, 2, 1))
    along = np.exp(-(offsets**2) / (2 * WIDTH**2))
    slope = along * offsets / WIDTH**2
    images = along[:, 0, :, None] * along[:, 1, None, :]
    down, right = slope[:, 0, :, None] * along[:, 1, None, :], along[:, 0, :, None] * slope[:, 1, None, :]
    tangent, _ = np.linalg.qr(np.stack([flat(down), flat(right)], 2))
    return images[:, None].astype(np.float32), tangent


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")  # A sixth less time.
def test_the_tangent_plane_of_a_blob_is_made_of_its_shifts():
    """Measured: an error of 0.20 to 0.24, below 0.32 at every place; planes that have nothing to do with it are 2 away.

    24 channels in 200 steps are no better and take longer; 16 channels in 200 steps only come to 0.31 or worse.
    """
    samples, _ = blobs(1000, seed=0, margin=3.5)
    queries, truth = blobs(100, seed=1, margin=3.8)
    geometry = carre.fit(
        samples,
        network=UNetSettings(channels=16, multipliers=(1,), n_blocks=1, attention=(), patch=2),
        bandwidth_range=(0.1, 0.4),
        max_steps=300,
        batch_size=24,
        learning_rate=5e-3,
        device="cpu",
        verbose=False,
        random_state=0,
    )
    found = geometry.tangent_basis(queries, 2)
    errors = np.linalg.norm(truth @ truth.swapaxes(1, 2) - found @ found.swapaxes(1, 2), axis=(1, 2))
    assert errors.mean() < 0.35
    assert errors.max() < 0.5
    assert (geometry.dimension(queries) == 2).mean() > 0.9
