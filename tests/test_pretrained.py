"""The models that ship with the library are small, load without data, and know what they were fitted to."""

from pathlib import Path

import numpy as np
import pytest
import torch

import carre

FOLDER = Path(carre.__file__).parent / "pretrained"


@pytest.fixture(scope="module")
def mnist():
    return carre.load("mnist", device="cpu")


@pytest.fixture(scope="module")
def digits(mnist):
    return mnist.to_images(mnist.landmarks[:12].numpy())


def test_it_is_listed_and_no_larger_than_sixteen_megabytes():
    assert "mnist" in carre.pretrained_models()
    assert sum(file.stat().st_size for file in (FOLDER / "mnist").iterdir()) <= 16_000_000


def test_its_card_says_what_it_is_and_what_was_measured():
    card = (FOLDER / "mnist" / "README.md").read_text(encoding="utf-8")
    for heading in ("## Use", "## Training", "## Data", "## Measured", "## Limits"):
        assert heading in card
    assert 'carre.load("mnist")' in card


def test_it_answers_in_the_shape_of_images_and_its_metric_has_its_rank(mnist, digits):
    assert digits.shape == (12, 1, 28, 28)
    assert mnist.metric(digits).rank == mnist.rank == 100
    assert mnist.denoise(digits, 1.0).shape == digits.shape
    pixels = mnist.to_pixels(digits)
    assert 0 <= pixels.min() < 0.01
    assert 0.99 < pixels.max() <= 1


def test_it_takes_noise_off(mnist, digits):
    """Noise of deviation σ has the length 28σ. Measured on test digits at σ = 1: 5.2 of 28 are left."""
    noise = torch.randn(digits.shape, generator=torch.Generator().manual_seed(0)).numpy()
    left = np.sqrt(np.square(mnist.denoise(digits + noise, 1.0) - digits).sum((1, 2, 3)))
    assert left.mean() < 6.5


def test_its_tangent_directions_lie_on_the_strokes(mnist, digits):
    """Corners are white in all digits; a direction drawn at random would have 4·49/784 = 25% of its square there."""
    directions = mnist.tangent_images(digits, 5)
    corners = np.concatenate(
        [directions[..., rows, columns] for rows in (slice(7), slice(21, 28)) for columns in (slice(7), slice(21, 28))],
        -1,
    )
    np.testing.assert_allclose(np.square(directions).sum((2, 3, 4)), 1, rtol=1e-4)
    assert np.square(corners).sum((2, 3, 4)).mean() < 0.05


def test_a_shift_of_a_digit_is_nearly_tangent_and_a_checkerboard_is_not(mnist, digits):
    """A digit that is moved by half a pixel is a digit; the same with a checkerboard on it is none."""
    shift = 0.5 * (np.roll(digits, 1, -1) - np.roll(digits, -1, -1))
    checkerboard = np.broadcast_to((-1.0) ** np.indices((28, 28)).sum(0), digits.shape).astype(digits.dtype)

    def share(vectors):
        flat = torch.from_numpy(vectors.reshape(len(vectors), -1).copy())
        along = (mnist.metric(digits, 1.0).apply(flat) * flat).sum(1) / flat.square().sum(1)
        return float(along.mean())

    assert share(shift) > 0.5
    assert share(checkerboard) < 0.05


@pytest.mark.slow
def test_a_thread_between_digits_joins_them(mnist, digits):
    path = mnist.path(digits[1], digits[2], 2.0, method=carre.Thread(max_sweeps=3), n_nodes=5)
    np.testing.assert_array_equal(mnist.to_images(path)[0, 0], digits[1])
    np.testing.assert_array_equal(mnist.to_images(path)[0, -1], digits[2])
