import gzip
import hashlib
import struct

import numpy as np
import pytest

from carre.data import DamagedFileError, load_mnist, mnist, read_idx

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (5, 4, 3), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5], dtype=np.uint8)


def as_idx(array, code=8):
    return struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape) + array.tobytes()


def write_split(folder, prefix="train", dot="-", packed=False, images=IMAGES, labels=LABELS):
    folder.mkdir(parents=True, exist_ok=True)
    for part, array, axes in (("images", images, 3), ("labels", labels, 1)):
        content = as_idx(array)
        name = f"{prefix}-{part}{dot}idx{axes}-ubyte" + (".gz" if packed else "")
        (folder / name).write_bytes(gzip.compress(content) if packed else content)
    return folder


@pytest.fixture
def checksums(monkeypatch):
    """Let the small files of these tests be the real ones."""
    for part, array in (("images", IMAGES), ("labels", LABELS)):
        monkeypatch.setitem(mnist._CHECKSUMS, ("train", part), hashlib.md5(as_idx(array)).hexdigest())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", ["-", "."])
@pytest.mark.parametrize("subfolder", ["", "MNIST/raw"])
@pytest.mark.usefixtures("checksums")
def test_both_spellings_are_read_plain_and_packed(tmp_path, packed, dot, subfolder):
    write_split(tmp_path / subfolder, dot=dot, packed=packed)
    digits = load_mnist(tmp_path)
    np.testing.assert_array_equal(digits.pixels, IMAGES[:, None])
    np.testing.assert_array_equal(digits.labels, LABELS)
    assert digits.name == "MNIST train"


@pytest.mark.parametrize("give_file", [False, True])
@pytest.mark.usefixtures("checksums")
def test_the_archive_of_keras_has_the_checksums_of_the_idx_files(tmp_path, give_file):
    np.savez(tmp_path / "mnist.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS)
    digits = load_mnist(tmp_path / "mnist.npz" if give_file else tmp_path)
    np.testing.assert_array_equal(digits.pixels, IMAGES[:, None])
    np.testing.assert_array_equal(digits.labels, LABELS)


def test_the_test_split_has_its_own_files(tmp_path):
    write_split(tmp_path)
    write_split(tmp_path, prefix="t10k", images=IMAGES[:2], labels=LABELS[:2])
    assert len(load_mnist(tmp_path, "test", verify=False)) == 2


def test_pixels_are_normalized_as_is_customary(tmp_path):
    digits = load_mnist(write_split(tmp_path), verify=False)
    expected = (IMAGES[:, None] / 255 - 0.1307) / 0.3081
    # Rounding in float32 of numbers up to 3.
    np.testing.assert_allclose(digits.images, expected, atol=1e-6, rtol=0)


@pytest.mark.usefixtures("checksums")
@pytest.mark.parametrize("part", ["images", "labels"])
def test_one_wrong_byte_is_noticed_unless_look_alikes_are_welcome(tmp_path, part):
    changed = {"images": IMAGES.copy(), "labels": LABELS.copy()}
    changed[part].ravel()[-1] ^= 1
    write_split(tmp_path, **changed)
    with pytest.raises(DamagedFileError, match=rf"does not hold the {part} of MNIST \(train\).*verify=False"):
        load_mnist(tmp_path)
    look_alike = load_mnist(tmp_path, verify=False)
    assert look_alike.name == f"{tmp_path.name} train"


def test_the_published_checksums_are_those_that_are_compared(tmp_path):
    with pytest.raises(DamagedFileError, match="its checksum differs"):
        load_mnist(write_split(tmp_path))


def test_images_and_labels_of_different_lengths_are_refused(tmp_path):
    with pytest.raises(DamagedFileError, match="5 images but 4 labels for 'train'"):
        load_mnist(write_split(tmp_path, labels=LABELS[:4]), verify=False)


def test_images_where_labels_should_be_are_refused(tmp_path):
    with pytest.raises(DamagedFileError, match="must hold uint8 images of shape"):
        load_mnist(write_split(tmp_path, labels=IMAGES), verify=False)


def test_a_missing_file_is_named_with_its_spellings_and_the_remedy(tmp_path):
    write_split(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"train-labels-idx1-ubyte \(or train-labels.idx1-ubyte.*Download the four idx files"
    ):
        load_mnist(tmp_path, verify=False)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*nowhere. Download the four idx files"):
        load_mnist(tmp_path / "nowhere")


def test_an_archive_of_other_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "mnist.npz", images=IMAGES)
    with pytest.raises(DamagedFileError, match="there is no x_train"):
        load_mnist(tmp_path)


def test_an_unknown_split_is_refused(tmp_path):
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'; got 'valid'"):
        load_mnist(tmp_path, "valid")


@pytest.mark.parametrize(("code", "dtype"), [(8, "u1"), (9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")])
def test_idx_files_of_every_type_are_read_in_native_order(tmp_path, code, dtype):
    array = RANDOM.normal(size=(3, 2)).astype(dtype)
    (tmp_path / "array").write_bytes(as_idx(array, code))
    read = read_idx(tmp_path / "array")
    np.testing.assert_array_equal(read, array)
    assert read.dtype.isnative


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\x89PNG....", as_idx(IMAGES, code=7), b"\0\0\x08\0"])
def test_a_file_with_another_beginning_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DamagedFileError, match="file is no idx file, or is damaged; download it again"):
        read_idx(tmp_path / "file")


@pytest.mark.parametrize("content", [as_idx(IMAGES)[:-1], as_idx(IMAGES) + b"\0", as_idx(IMAGES)[:9]])
def test_a_file_of_another_length_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DamagedFileError, match=rf"there are {len(content)}; download it again"):
        read_idx(tmp_path / "file")


@pytest.mark.parametrize("damage", [lambda packed: packed[:-9], lambda packed: packed[:12] + b"\xff" * 9 + packed[21:]])
def test_a_packed_file_that_is_damaged_is_refused(tmp_path, damage):
    (tmp_path / "file.gz").write_bytes(damage(gzip.compress(as_idx(IMAGES))))
    with pytest.raises(DamagedFileError, match=r"file.gz cannot be unpacked"):
        read_idx(tmp_path / "file.gz")


def test_a_folder_is_no_idx_file(tmp_path):
    with pytest.raises(ValueError, match=r"path must be a file; .* is a folder. Give the path of an idx file"):
        read_idx(tmp_path)


def test_a_file_that_is_not_an_npz_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no digits")
    with pytest.raises(ValueError, match=r"folder must be that of the idx files, or .*mnist.npz; got the file .*notes"):
        load_mnist(tmp_path / "notes.txt")
