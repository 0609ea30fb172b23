import numpy as np
import pytest

from carre.data import DamagedFileError, Normalization, load_arrays

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3, 6, 5), dtype=np.uint8)


def saved(folder, images, **others):
    np.savez(folder / "data.npz", images=images, **others)
    return folder / "data.npz"


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (PIXELS, PIXELS),
        (PIXELS.transpose(0, 2, 3, 1), PIXELS),
        (PIXELS[:, 0], PIXELS[:, :1]),
        (PIXELS[:, 0, :, :, None], PIXELS[:, :1]),
        # One or three columns: axis 1 is the channels all the same.
        (PIXELS[:, :, :, :3], PIXELS[:, :, :, :3]),
        (PIXELS / 255, PIXELS),
        ((PIXELS / 255).astype(np.float32), PIXELS),
    ],
)
def test_every_layout_and_scale_gives_the_same_pixels(tmp_path, images, expected):
    np.save(tmp_path / "data.npy", images)
    dataset = load_arrays(tmp_path / "data.npy")
    np.testing.assert_array_equal(dataset.pixels, expected)
    assert dataset.labels is None
    assert dataset.name == "data"


@pytest.mark.parametrize("key", ["labels", "y"])
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_labels_come_from_their_key(tmp_path, key, shape):
    dataset = load_arrays(saved(tmp_path, PIXELS, **{key: np.array([3, 1, 2, 0]).reshape(shape)}))
    np.testing.assert_array_equal(dataset.labels, [3, 1, 2, 0])


def test_a_single_array_needs_no_name(tmp_path):
    np.savez(tmp_path / "data.npz", PIXELS, y=np.arange(4))
    np.testing.assert_array_equal(load_arrays(tmp_path / "data.npz").pixels, PIXELS)


def test_the_normalization_is_the_one_that_was_given(tmp_path):
    normalization = Normalization((0.2,), 3.0)
    assert load_arrays(saved(tmp_path, PIXELS), normalization=normalization).normalization is normalization


def test_two_arrays_without_a_known_name_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", first=PIXELS, second=PIXELS)
    with pytest.raises(ValueError, match=r"data.npz has first, second. Save them by numpy.savez"):
        load_arrays(tmp_path / "data.npz")


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (PIXELS.astype(np.int32), "those of .* are int32. Convert"),
        (PIXELS.astype(float), r"floating ones in \[0, 1\]; those of .* lie between"),
        (np.full((2, 4, 4), np.nan), r"floating ones in \[0, 1\]"),
        (np.zeros((2, 28, 28, 4), dtype=np.uint8), r"1 or 3 channels C; .* has shape \(2, 28, 28, 4\)"),
        (np.zeros((2, 28), dtype=np.uint8), r"has shape \(2, 28\)"),
        (np.zeros((0, 28, 28), dtype=np.uint8), r"has shape \(0, 1, 28, 28\)"),
    ],
)
def test_what_is_no_image_is_refused_with_a_sentence(tmp_path, images, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_arrays(saved(tmp_path, images))


def test_images_and_labels_of_different_lengths_are_refused(tmp_path):
    with pytest.raises(DamagedFileError, match="4 images but 3 labels"):
        load_arrays(saved(tmp_path, PIXELS, labels=np.arange(3)))


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    file = saved(tmp_path, PIXELS)
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(DamagedFileError, match=r"data.npz cannot be read as arrays of numbers"):
        load_arrays(file)


def test_an_array_that_was_cut_off_is_refused(tmp_path):
    np.save(tmp_path / "data.npy", PIXELS)
    (tmp_path / "data.npy").write_bytes((tmp_path / "data.npy").read_bytes()[:-1])
    with pytest.raises(DamagedFileError, match=r"data.npy cannot be read as arrays of numbers"):
        load_arrays(tmp_path / "data.npy")


def test_pickled_objects_are_not_loaded(tmp_path):
    np.save(tmp_path / "data.npy", np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(DamagedFileError, match=r"data.npy cannot be read as arrays of numbers \(it holds objects"):
        load_arrays(tmp_path / "data.npy")


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00\xff\xff" + bytes(70_000)])
def test_the_advice_of_numpy_is_not_passed_on(tmp_path, content):
    (tmp_path / "notes.txt").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"is no file of NumPy|cannot be read as arrays of numbers") as caught:
        load_arrays(tmp_path / "notes.txt")
    assert "pickle" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).lower().endswith("save it again with numpy.save or numpy.savez")


def test_a_folder_is_no_array(tmp_path):
    with pytest.raises(ValueError, match=r"path must be a file; .* is a folder. Give a file that numpy.save"):
        load_arrays(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*none.npy"):
        load_arrays(tmp_path / "none.npy")
