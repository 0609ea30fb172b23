import json

import numpy as np
import pytest
import torch

from carre.data import ImageDataset, Normalization


def small_dataset():
    pixels = np.arange(6 * 1 * 2 * 2, dtype=np.uint8).reshape(6, 1, 2, 2)
    return ImageDataset(pixels, np.array([2, 0, 1, 2, 0, 2]), Normalization((0.1,), 0.2), "six", ("a", "b", "c"))


def test_images_are_the_encoded_pixels():
    dataset = small_dataset()
    assert dataset.images.dtype == np.float32
    np.testing.assert_array_equal(dataset.images, dataset.normalization.encode(dataset.pixels))


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (3, [3]),
        (-1, [5]),
        (np.int64(2), [2]),
        (slice(1, 6, 2), [1, 3, 5]),
        ([4, 0, 4], [4, 0, 4]),
        ([], []),
        (np.array([True, False, False, True, False, False]), [0, 3]),
        (torch.tensor([5, 1]), [5, 1]),
    ],
)
def test_a_selection_is_a_dataset_of_those_rows(index, rows):
    dataset = small_dataset()
    chosen = dataset[index]
    assert len(chosen) == len(rows)
    np.testing.assert_array_equal(chosen.pixels, dataset.pixels[rows])
    np.testing.assert_array_equal(chosen.labels, dataset.labels[rows])
    assert (chosen.normalization, chosen.name, chosen.class_names) == (dataset.normalization, "six", ("a", "b", "c"))


def test_iteration_visits_every_image_once():
    dataset = small_dataset()
    np.testing.assert_array_equal(np.concatenate([one.pixels for one in dataset]), dataset.pixels)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (6, IndexError),
        (-7, IndexError),
        ([0, 9], IndexError),
        (np.array([True, False]), IndexError),
        (["a"], IndexError),
        (1.5, TypeError),
        ("a", TypeError),
        (None, TypeError),
        ((0, 1), TypeError),
        ([[0, 1]], TypeError),
        ([[0], [1, 2]], TypeError),
        (slice("a", None), TypeError),
    ],
    ids=repr,
)
def test_other_indices_are_refused_with_a_sentence(index, error):
    with pytest.raises(error, match=r"^index must be an integer from -6 to 5, a slice, .* 6 images; got"):
        small_dataset()[index]


def test_a_class_is_where_the_label_is():
    np.testing.assert_array_equal(small_dataset().of_class(2).pixels, small_dataset().pixels[[0, 3, 5]])


def test_a_class_without_images_is_refused():
    with pytest.raises(ValueError, match=r"label must be one of \[0, 1, 2\]; got 7"):
        small_dataset().of_class(7)


def test_without_labels_there_are_no_classes():
    dataset = ImageDataset(small_dataset().pixels)
    assert dataset[1:].labels is None
    with pytest.raises(ValueError, match="'images' has none"):
        dataset.of_class(0)


def test_labels_of_any_integer_type_become_int64():
    dataset = ImageDataset(small_dataset().pixels, np.zeros(6, dtype=np.uint8))
    assert dataset.labels is not None
    assert dataset.labels.dtype == np.int64


def test_it_says_what_it_is():
    assert repr(small_dataset()) == "ImageDataset('six', n=6, sample_shape=(1, 2, 2), classes=3)"
    assert repr(ImageDataset(small_dataset().pixels)) == "ImageDataset('images', n=6, sample_shape=(1, 2, 2))"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"pixels": np.zeros((6, 1, 2, 2))}, "pixels must be a uint8 array .* got float64"),
        ({"pixels": np.zeros((6, 2, 2), dtype=np.uint8)}, r"of shape \(n, C, H, W\); got uint8, \(6, 2, 2\)"),
        ({"pixels": [1, 2]}, "pixels must be a uint8 array .* got list"),
        ({"labels": np.zeros(5, dtype=np.int64)}, r"labels must be 6 integers, one for each image; got int64, \(5,\)"),
        ({"labels": np.zeros(6)}, "labels must be 6 integers, one for each image; got float64"),
        ({"labels": np.full(6, 3)}, "labels must lie between 0 and 2"),
        ({"normalization": 3}, r"normalization must be a Normalization\(mean, deviation\); got 3"),
        ({"normalization": Normalization((0.1, 0.2, 0.3), 1.0)}, r"each channel of the pixels \(1\); got 3 means"),
    ],
)
def test_parts_that_do_not_fit_are_refused_with_a_sentence(values, sentence):
    whole = small_dataset()
    with pytest.raises(ValueError, match=sentence):
        ImageDataset(**{"pixels": whole.pixels, "labels": whole.labels, "class_names": whole.class_names, **values})


COLORS = Normalization((0.5, 0.4, 0.3), 0.25)
# Rounding of (x − mean)/deviation and back in float32: a few units in the last place of numbers up to 4.
ROUNDING = 8 * np.finfo(np.float32).eps


def random_pixels(n=4, channels=3, side=5):
    return np.random.default_rng(0).integers(0, 256, (n, channels, side, side), dtype=np.uint8)


def test_encoding_is_the_formula_in_float32():
    pixels = random_pixels()
    expected = (pixels / 255 - np.array(COLORS.mean)[:, None, None]) / COLORS.deviation
    encoded = COLORS.encode(pixels)
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, expected, atol=ROUNDING, rtol=0)


def test_bytes_and_the_floats_they_stand_for_are_encoded_alike():
    pixels = random_pixels()
    np.testing.assert_allclose(COLORS.encode(pixels / 255), COLORS.encode(pixels), atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_decoding_undoes_encoding(kind):
    pixels = random_pixels()
    decoded = COLORS.decode(COLORS.encode(kind(pixels)))
    assert type(decoded) is type(kind(pixels))
    np.testing.assert_allclose(np.asarray(decoded), pixels / 255, atol=ROUNDING, rtol=0)


def test_all_distances_are_divided_by_the_deviation():
    """A similarity, whatever the means of the channels: angles and ratios of distances are those of the pixels."""
    pixels = random_pixels() / 255
    before = np.linalg.norm((pixels[:, None] - pixels[None]).reshape(4, 4, -1), axis=-1)
    encoded = COLORS.encode(pixels)
    after = np.linalg.norm((encoded[:, None] - encoded[None]).reshape(4, 4, -1), axis=-1)
    # Rounding of each of 75 coordinates.
    np.testing.assert_allclose(after, before / COLORS.deviation, atol=75**0.5 * ROUNDING, rtol=0)


def test_decoding_takes_any_leading_axes_and_keeps_the_dtype():
    images = torch.zeros(2, 7, 3, 4, 4, dtype=torch.float64)
    decoded = COLORS.decode(images)
    assert decoded.dtype == torch.float64
    assert decoded.shape == images.shape
    torch.testing.assert_close(decoded[0, 0, :, 0, 0], torch.tensor(COLORS.mean, dtype=torch.float64))


def test_a_single_mean_decodes_flat_images_too():
    np.testing.assert_array_equal(Normalization((0.5,), 0.5).decode(np.array([[-1.0, 1.0]])), [[0.0, 1.0]])


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_decoding_clips_only_when_asked(kind):
    images = kind(np.array([[[[-3.0, 0.0, 3.0]]]]))
    normalization = Normalization((0.5,), 0.5)
    np.testing.assert_array_equal(np.asarray(normalization.decode(images)).ravel(), [-1.0, 0.5, 2.0])
    np.testing.assert_array_equal(np.asarray(normalization.decode(images, clip=True)).ravel(), [0.0, 0.5, 1.0])


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_inputs_are_left_as_they_are(kind):
    pixels = kind(random_pixels().astype(np.float32) / 255)
    images = COLORS.encode(pixels)
    copies = np.asarray(pixels).copy(), np.asarray(images).copy()
    COLORS.encode(pixels)
    COLORS.decode(images, clip=True)
    np.testing.assert_array_equal(pixels, copies[0])
    np.testing.assert_array_equal(images, copies[1])


def test_a_normalization_survives_json():
    assert Normalization.from_dict(json.loads(json.dumps(COLORS.to_dict()))) == COLORS


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (np.full((1, 3, 2, 2), 2.0), r"pixels must lie in \[0, 1\] .* got values between 2.0 and 2.0. Divide"),
        (np.full((1, 3, 2, 2), np.nan), r"pixels must lie in \[0, 1\]"),
        (np.zeros((1, 3, 2, 2), dtype=np.int64), "pixels must be uint8 .* got int64"),
        (torch.zeros(1, 3, 2, 2, dtype=torch.int64), "pixels must be uint8 .* got torch.int64"),
        (
            np.zeros((1, 2, 2, 3), dtype=np.uint8),
            r"shape \(…, 3, H, W\), with a channel for each mean; got \(1, 2, 2, 3\)",
        ),
    ],
)
def test_pixels_that_are_none_are_refused_with_a_sentence(pixels, sentence):
    with pytest.raises(ValueError, match=sentence):
        COLORS.encode(pixels)


def test_bytes_are_not_decoded():
    with pytest.raises(ValueError, match="images must be floating"):
        COLORS.decode(random_pixels())


@pytest.mark.parametrize("deviation", [0.0, -1.0, float("nan"), float("inf")])
def test_the_deviation_is_positive_and_finite(deviation):
    with pytest.raises(ValueError, match="deviation must be positive and finite"):
        Normalization((0.5,), deviation)


@pytest.mark.parametrize("mean", [(), (float("nan"),)])
def test_the_mean_is_finite_and_not_empty(mean):
    with pytest.raises(ValueError, match="mean must be finite numbers"):
        Normalization(mean, 0.5)


def test_other_dictionaries_are_refused():
    with pytest.raises(ValueError, match="'mean' and 'deviation'; got \\['mean', 'std'\\]"):
        Normalization.from_dict({"mean": [0.5], "std": 0.5})


@pytest.mark.usefixtures("unchecked")
def test_a_number_is_a_mean_for_all_channels():
    assert Normalization(0.5, 0.25) == Normalization((0.5,), 0.25)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("mean", "deviation", "name"),
    [
        ("ab", 1, "mean"),
        ("12", 1, "mean"),
        (b"12", 1, "mean"),
        (("a",), 1, "mean"),
        (("1",), 1, "mean"),
        (None, 1, "mean"),
        (([0.5], 0.5), 1, "mean"),
        ((0.5,), None, "deviation"),
        ((0.5,), "a", "deviation"),
        ((0.5,), "1", "deviation"),
        ((0.5,), (0.5, 0.5), "deviation"),
    ],
)
def test_what_is_no_number_is_named(mean, deviation, name):
    with pytest.raises(ValueError, match=f"^{name} must be .*finite.*; got"):
        Normalization(mean, deviation)
