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
