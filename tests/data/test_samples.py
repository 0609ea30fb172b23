import numpy as np
import pytest

from carre import data
from carre.data import DamagedFileError, load_images
from tests.data.test_cifar import write_archive, write_batches
from tests.data.test_faces import write_celeba, write_ffhq
from tests.data.test_image_folders import draw
from tests.data.test_mnist import IMAGES, LABELS, write_split


def save_npy(folder):
    np.save(folder / "squares.npy", IMAGES)
    return folder / "squares.npy"


def save_mnist_npz(folder):
    np.savez(folder / "mnist.npz", x_train=IMAGES, y_train=LABELS)
    return folder / "mnist.npz"


def draw_one(folder):
    draw(folder / "pictures" / "1.png")
    return folder / "pictures"


@pytest.mark.parametrize(
    ("write", "options", "name"),
    [
        (save_npy, {}, "squares"),
        (save_mnist_npz, {"verify": False}, "mnist.npz train"),
        (lambda folder: write_split(folder / "digits"), {"verify": False}, "digits train"),
        (lambda folder: write_split(folder / "t", "t10k"), {"verify": False, "split": "test"}, "t test"),
        (lambda folder: write_batches(folder / "photographs"), {"verify": False, "split": "test"}, "photographs test"),
        (
            lambda folder: write_archive(folder / "c.tar.gz", write_batches(folder / "b")),
            {"verify": False},
            "c.tar.gz train",
        ),
        (write_celeba, {"crop": 8, "split": "test"}, "CelebA test"),
        (write_ffhq, {}, "FFHQ"),
        (draw_one, {"size": 2}, "pictures"),
    ],
)
def test_every_format_finds_its_reader(tmp_path, write, options, name):
    assert load_images(write(tmp_path), **options).name == name


def test_what_is_recognized_is_verified(tmp_path):
    with pytest.raises(DamagedFileError, match="does not hold the images of MNIST"):
        load_images(write_split(tmp_path))


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(ValueError, match=r"path must be a folder, or a file that ends in .npy, .npz or .tar.gz; got"):
        load_images(tmp_path / "notes.txt")


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*nowhere. Give a folder of images"):
        load_images(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (draw_one, "load_image_folder reads .* its options are size, crop, mode, limit, normalization; got True"),
        (save_npy, "load_arrays reads .* its options are normalization; got True"),
    ],
)
def test_options_that_the_reader_does_not_have_are_named(tmp_path, write, sentence):
    with pytest.raises(ValueError, match=f"verify must be left out: {sentence}"):
        load_images(write(tmp_path), verify=True)


def test_a_dataset_that_is_recognized_has_no_options_of_folders(tmp_path):
    with pytest.raises(ValueError, match=r"crop must be left out: load_mnist reads .* split, verify; got 3"):
        load_images(write_split(tmp_path / "digits"), crop=3)


READERS = {
    "load_anndata": "path",
    "load_arrays": "path",
    "load_celeba": "folder",
    "load_cifar10": "folder",
    "load_ffhq": "folder",
    "load_image_folder": "folder",
    "load_images": "path",
    "load_mnist": "folder",
    "load_samples": "path",
    "load_table": "path",
    "read_idx": "path",
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("value", [3, None, ["data"], b"data"], ids=repr)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_path_is_refused(reader, value):
    with pytest.raises(ValueError, match=f"^{READERS[reader]} must be a path; got ") as caught:
        getattr(data, reader)(value)
    assert f"; got {value!r}. " in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_an_empty_string_is_not_the_working_directory(reader):
    with pytest.raises(ValueError, match=f"^{READERS[reader]} must be a path; got an empty string"):
        getattr(data, reader)("")


def test_every_reader_is_listed():
    assert {name for name in data.__all__ if name.startswith(("load_", "read_"))} == set(READERS)
