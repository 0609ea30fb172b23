"""The laws of the wavelet features."""

import math
import pickle

import numpy as np
import pytest
import torch

from carre import IsotropicField
from carre.metric import LowRankMetric
from experiments.measures import compare_stability, feature_stability, wavelet_features, wavelets

SHAPES = [(1, 8, 8), (2, 11, 8), (1, 21, 30), (3, 16, 16)]


def noise(n, shape, rng):
    return torch.randn(n, *shape, generator=rng, dtype=torch.float64)


def norms(features):
    return features.flatten(1).norm(dim=1)


def blob_images(centers, side, width=1.5):
    """Gaussian light at given places."""
    ticks = torch.arange(side, dtype=torch.float64)
    down, right = (torch.exp(-0.5 * ((ticks - center[:, None]) / width) ** 2) for center in centers.mT)
    return (down[:, :, None] * right[:, None, :])[:, None]


class BlobField:
    """The tangent planes of blobs: the derivatives by the place, which is the center of the light."""

    def __init__(self, side):
        self.side, self.dim = side, side**2

    def metric(self, points, bandwidth):
        light = points.reshape(-1, self.side, self.side)
        ticks = torch.arange(self.side, dtype=points.dtype)
        centers = torch.stack([light.sum(axis) @ ticks for axis in (2, 1)], 1) / light.sum((1, 2))[:, None]
        slopes = torch.func.vmap(torch.func.jacrev(lambda center: blob_images(center[None], self.side).flatten()))
        return LowRankMetric(torch.linalg.qr(slopes(centers))[0].mT)

    def denoise(self, points, bandwidth):
        return points


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("distance", [1e-6, 1.0, 100.0])
def test_no_distance_grows(rng, shape, distance):
    features, x = wavelet_features(shape), noise(4, shape, rng)
    smooth = torch.nn.functional.interpolate(noise(4, (shape[0], 4, 4), rng), shape[1:], mode="bicubic")
    for direction in (noise(4, shape, rng), smooth):
        y = x + distance * direction
        assert (norms(features(x) - features(y)) <= norms(x - y) * (1 + 1e-9)).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_orientations", [2, 5])
def test_filters_of_all_levels_add_to_one_at_every_frequency(shape, n_orientations):
    """Σ|ψ̂|² over opposite frequencies, which real images have alike, and |φ̂|²."""
    features = wavelet_features(shape, n_orientations=n_orientations)
    height, width = shape[1:]
    total = torch.zeros(2 * height, 2 * width, dtype=torch.float64)
    for level in range(features.n_scales + 1):
        squares = features._make_filters(0, level).abs().square().sum(0)
        cells = [size // 2 for size in squares.shape]
        places = [
            torch.cat([torch.arange(c), torch.arange(2 * s - c, 2 * s)]) for c, s in zip(cells, shape[1:], strict=True)
        ]
        total[places[0][:, None], places[1]] += squares
    opposite = total.flip((0, 1)).roll((1, 1), (0, 1))
    both = (total + opposite) / 2
    # The highest frequencies are their own opposites; a reflected image has none of them.
    both[height], both[:, width] = 1, 1
    torch.testing.assert_close(both, torch.ones_like(both))


def test_most_of_the_energy_of_noise_is_kept(rng):
    """What no distance grows by could also be nothing. Lost are the average and what a third layer would have."""
    x = noise(3, (1, 32, 32), rng)
    assert (norms(wavelet_features((1, 32, 32))(x)) > 0.9 * norms(x)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_constant_in_any_channel_changes_nothing(rng, shape):
    features, x = wavelet_features(shape), noise(2, shape, rng)
    brighter = x + 10 * torch.rand(2, shape[0], 1, 1, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(features(brighter), features(x), atol=1e-12, rtol=0)


def test_features_have_the_units_of_the_images(rng):
    features, x = wavelet_features((1, 16, 16)), noise(2, (1, 16, 16), rng)
    torch.testing.assert_close(features(-3 * x), 3 * features(x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_orientations", [3, 4])
def test_mirrored_images_are_as_far_apart(rng, shape, n_orientations):
    """Orientations and the cells of averages are symmetric: a mirror image has the same features in other places."""
    features, x = wavelet_features(shape, n_orientations=n_orientations), noise(2, shape, rng)
    for axis in (-2, -1):
        mirrored = features(x.flip(axis))
        torch.testing.assert_close(norms(mirrored), norms(features(x)))
        torch.testing.assert_close(mirrored.sort(1).values, features(x).sort(1).values)


def test_channels_are_seen_one_by_one(rng):
    x = noise(2, (3, 16, 16), rng)
    single = torch.stack([norms(wavelet_features((1, 16, 16))(x[:, [c]])) for c in range(3)])
    torch.testing.assert_close(norms(wavelet_features((3, 16, 16))(x)), single.norm(dim=0))


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_grating_is_seen_by_wavelets_of_its_scale_and_orientation_only(level, axis):
    """A cosine at the peak 3π/4·2⁻ʲ of a level: its modulus is constant, so that the second layer sees nothing."""
    side, n_orientations = 32, 4
    features = wavelet_features((1, side, side), n_orientations=n_orientations)
    wave = torch.cos(0.75 * math.pi * 2.0**-level * (torch.arange(side, dtype=torch.float64) + 0.5))
    grating = wave.expand(side, side) if axis == 0 else wave[:, None].expand(side, side)
    answer = features(grating[None, None]).reshape(-1, 4, 4)
    blocks, first = [], 0
    for scale in range(features.n_scales):
        blocks.append(answer[first : first + n_orientations])
        first += n_orientations + (features.n_scales - 1 - scale) * n_orientations**2
    seen = torch.stack(blocks).square().sum((2, 3))
    assert divmod(int(seen.argmax()), n_orientations) == (level, axis * n_orientations // 2)
    orthogonal = (axis * n_orientations // 2 + n_orientations // 2) % n_orientations
    assert seen[level, orthogonal] < 1e-20
    others = torch.cat([seen[:level], seen[level + 1 :]])
    assert others.max() < 1e-20
    torch.testing.assert_close(answer.square().sum(), seen.sum())


def test_a_modulated_grating_is_seen_by_the_second_layer():
    side = 32
    ticks = torch.arange(side, dtype=torch.float64) + 0.5
    carrier, envelope = torch.cos(0.75 * math.pi * ticks), 1 + torch.cos(0.75 * math.pi / 4 * ticks)
    features = wavelet_features((1, side, side))
    plain, modulated = (features(row.expand(1, 1, side, side)).reshape(-1, 16) for row in (carrier, carrier * envelope))
    # Of the finest scale, the four first maps are of the first layer, the next 3·16 of the second.
    assert plain[4:52].norm() < 1e-12
    assert modulated[4:52].norm() > 0.3 * modulated[:4].norm()


def test_a_shifted_blob_moves_less_than_noise_of_the_same_length_moves_it(rng):
    side = 24
    centers = 8 + 8 * torch.rand(6, 2, generator=rng, dtype=torch.float64)
    blobs, shifted = blob_images(centers, side), blob_images(centers + 0.7, side)
    direction = noise(6, (1, side, side), rng)
    noisy = blobs + direction * (norms(shifted - blobs) / norms(direction))[:, None, None, None]
    features = wavelet_features((1, side, side))
    assert (norms(features(shifted) - features(blobs)) < 0.7 * norms(features(noisy) - features(blobs))).all()


@pytest.mark.parametrize("n_scales", [2, 4])
def test_true_tangents_beat_random_directions_at_every_radius(rng, n_scales):
    """The measure must prefer the tangent spaces that are known in closed form, on paired differences."""
    side, radii = 16, [0.05, 0.3, 1.0]
    images = blob_images(5 + 6 * torch.rand(8, 2, generator=rng, dtype=torch.float64), side)
    features = wavelet_features((1, side, side), n_scales=n_scales)
    tangent, random = (
        feature_stability(field, images, features, radii, 3, bandwidth=0.1)
        for field in (BlobField(side), IsotropicField(side**2))
    )
    compared = compare_stability(tangent, random)
    assert compared.wins.all()
    assert (compared.share == 1).all()


def test_images_are_independent_of_each_other_and_worked_on_in_parts(rng, monkeypatch):
    features, x = wavelet_features((1, 9, 9)), noise(5, (1, 9, 9), rng)
    whole = features(x)
    monkeypatch.setattr(wavelets, "_WORKED_ON", 2 * 4 * 81 * 16)
    torch.testing.assert_close(features(x), whole)
    torch.testing.assert_close(torch.cat([features(image[None]) for image in x]), whole)


def test_dtypes_arrays_and_pickles(rng):
    features, x = wavelet_features((1, 16, 16)), noise(2, (1, 16, 16), rng)
    exact = features(x)
    assert exact.dtype == torch.float64
    single = features(x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, atol=1e-5, rtol=0)
    array = features(x.numpy())
    assert isinstance(array, np.ndarray)
    again = pickle.loads(pickle.dumps(features))
    assert repr(again) == repr(features) == "wavelet_features((1, 16, 16), n_orientations=4, n_scales=3)"
    assert torch.equal(again(x), exact)
    assert np.array_equal(array, exact.numpy())


def test_features_can_be_differentiated_also_where_an_image_is_flat():
    x = torch.zeros(1, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    wavelet_features((1, 8, 8))(x).sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 7, 8), {}, r"sample_shape must be \(channels, height, width\) with sides of at least 8; got \(1, 7, 8\)"),
        ((8, 8), {}, "sample_shape must be"),
        ((0, 8, 8), {}, "sample_shape must be"),
        ((1, 8.0, 8), {}, "sample_shape must be"),
        (64, {}, "sample_shape must be"),
        ((1, 8, 8), {"n_orientations": 1}, "n_orientations must be an integer of at least 2; got 1"),
        ((1, 8, 8), {"n_orientations": 2.5}, "n_orientations must be an integer"),
        ((1, 8, 8), {"n_scales": 1}, "n_scales must be an integer between 2 and 3 for images of this size; got 1"),
        ((1, 8, 8), {"n_scales": 4}, "n_scales must be an integer between 2 and 3"),
    ],
)
def test_bad_settings_are_named(shape, options, message):
    with pytest.raises(ValueError, match=message):
        wavelet_features(shape, **options)


def test_images_of_another_shape_are_named():
    with pytest.raises(ValueError, match=r"images must be images of shape \(1, 8, 8\)"):
        wavelet_features((1, 8, 8))(torch.zeros(2, 1, 9, 9))


@pytest.mark.gpu
def test_images_on_a_gpu_are_answered_there(rng):
    features, x = wavelet_features((1, 16, 16)), noise(2, (1, 16, 16), rng)
    assert features(x.cuda()).is_cuda
    torch.testing.assert_close(features(x.cuda()).cpu(), features(x))
