import hashlib
import os
import pickle
import struct
import subprocess
import tarfile

import numpy as np
import pytest

from carre.data import DamagedFileError, cifar, load_cifar10

RANDOM = np.random.default_rng(0)
BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
RECORDS = {
    batch: np.column_stack([RANDOM.integers(0, 10, 3), RANDOM.integers(0, 256, (3, 3072))]).astype(np.uint8)
    for batch in BATCHES
}
TRAINING = np.concatenate([RECORDS[batch] for batch in BATCHES[:5]])


def string(text: bytes) -> bytes:
    """A string as Python 2 pickled it."""
    return b"T" + struct.pack("<I", len(text)) + text


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def as_python_2(records) -> bytes:
    """The pickle that Python 2 and the NumPy of its time made of a batch, instruction by instruction."""
    data = np.ascontiguousarray(records[:, 1:])
    empty = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        + b"cnumpy\nndarray\n"
        + integer(0)
        + b"\x85"
        + string(b"b")
        + b"\x87R"
    )
    dtype = b"cnumpy\ndtype\n" + string(b"u1") + integer(0) + integer(1) + b"\x87R"
    dtype += b"(" + integer(3) + string(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
    state = (
        b"("
        + integer(1)
        + integer(len(data))
        + integer(3072)
        + b"\x86"
        + dtype
        + b"\x89"
        + string(data.tobytes())
        + b"t"
    )
    labels = b"](" + b"".join(integer(int(label)) for label in records[:, 0]) + b"e"
    return b"\x80\x02}(" + string(b"data") + empty + state + b"b" + string(b"labels") + labels + b"u."


def as_python_3(records, protocol) -> bytes:
    return pickle.dumps({"data": records[:, 1:].copy(), "labels": records[:, 0].tolist()}, protocol=protocol)


def as_binary(records) -> bytes:
    return records.tobytes()


WRITERS = {
    "Python 2": (as_python_2, ""),
    "Python 3, protocol 2": (lambda records: as_python_3(records, 2), ""),
    "Python 3, protocol 5": (lambda records: as_python_3(records, 5), ""),
    "binary": (as_binary, ".bin"),
}


def write_batches(folder, kind="binary"):
    write, suffix = WRITERS[kind]
    folder.mkdir(parents=True, exist_ok=True)
    for batch in BATCHES:
        (folder / f"{batch}{suffix}").write_bytes(write(RECORDS[batch]))
    return folder


def write_archive(file, folder):
    with tarfile.open(file, "w:gz") as archive:
        archive.add(folder, folder.name)
    return file


@pytest.fixture
def checksums(monkeypatch):
    """Let the small files of these tests be the real ones."""
    for batch, records in RECORDS.items():
        monkeypatch.setitem(cifar._CHECKSUMS, batch, hashlib.sha1(records.tobytes()).hexdigest())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("subfolder", ["", "cifar-10-batches-py", "cifar-10-batches-bin"])
@pytest.mark.usefixtures("checksums")
def test_every_version_holds_the_same_images_in_the_same_order(tmp_path, kind, subfolder):
    write_batches(tmp_path / subfolder, kind)
    photographs = load_cifar10(tmp_path)
    np.testing.assert_array_equal(photographs.pixels.reshape(-1, 3072), TRAINING[:, 1:])
    np.testing.assert_array_equal(photographs.labels, TRAINING[:, 0])
    assert photographs.name == "CIFAR-10 train"
    assert photographs.sample_shape == (3, 32, 32)
    np.testing.assert_array_equal(load_cifar10(tmp_path, "test").labels, RECORDS["test_batch"][:, 0])


@pytest.mark.parametrize("kind", ["Python 2", "binary"])
@pytest.mark.parametrize("give_file", [False, True])
@pytest.mark.usefixtures("checksums")
def test_the_archive_is_read_without_unpacking(tmp_path, kind, give_file):
    folder = write_batches(tmp_path / "elsewhere" / "batches", kind)
    archive = write_archive(tmp_path / "cifar-10-python.tar.gz", folder)
    photographs = load_cifar10(archive if give_file else tmp_path)
    np.testing.assert_array_equal(photographs.pixels.reshape(-1, 3072), TRAINING[:, 1:])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cifar-10-python.tar.gz", "elsewhere"]


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("dtype", ["<i8", ">i4", "u1"])
def test_arrays_of_any_integers_and_in_any_order_are_restored(tmp_path, protocol, dtype):
    records = RECORDS["test_batch"]
    batch = {"data": np.asfortranarray(records[:, 1:]), "labels": records[:, 0].astype(dtype)}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=protocol))
    photographs = load_cifar10(tmp_path, "test", verify=False)
    np.testing.assert_array_equal(photographs.pixels.reshape(-1, 3072), records[:, 1:])
    np.testing.assert_array_equal(photographs.labels, records[:, 0])


def test_pixels_lie_between_minus_one_and_one(tmp_path):
    images = load_cifar10(write_batches(tmp_path), verify=False).images
    np.testing.assert_allclose(images, TRAINING[:, 1:].reshape(-1, 3, 32, 32) / 127.5 - 1, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["Python 2", "binary"])
def test_other_contents_are_noticed_unless_they_are_welcome(tmp_path, kind):
    write_batches(tmp_path, kind)
    with pytest.raises(
        DamagedFileError, match=r"data_batch_1.* does not hold the data_batch_1 of CIFAR-10.*verify=False"
    ):
        load_cifar10(tmp_path)
    assert load_cifar10(tmp_path, verify=False).name == f"{tmp_path.name} train"


class Runs:
    """Pickles to a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (Runs(os.mkdir, "made-by-a-pickle"), r"\w+.mkdir"),
        (Runs(eval, "1"), r"\w+.eval"),
        (Runs(getattr, "text", "format"), r"\w+.getattr"),
        (Runs(subprocess.Popen, "true"), r"\w+.Popen"),
        (Runs(np.load, "file"), "numpy.*load"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_that_would_run_something_is_not_loaded(tmp_path, monkeypatch, content, name, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": content, "labels": []}, protocol=protocol))
    with pytest.raises(DamagedFileError, match=f"test_batch was not loaded: it asks for {name}, which"):
        load_cifar10(tmp_path, "test")
    assert not (tmp_path / "made-by-a-pickle").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        as_python_2(RECORDS["test_batch"])[:-500],
        b"no pickle at all",
        b"\x80\x02]R.",
        b"\x80\x02cnumpy\ndtype\n" + string(b"nonsense") + b"\x85R.",
        b"\x80\x02cnumpy\nndarray\n" + integer(3) + b"\x85R.",
    ],
)
def test_a_damaged_pickle_is_refused(tmp_path, content):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DamagedFileError, match="test_batch cannot be read as a pickled batch"):
        load_cifar10(tmp_path, "test")


DATA = RECORDS["test_batch"][:, 1:].copy()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1, 2], "cannot be read as a pickled batch .*list"),
        ({"data": DATA}, r"cannot be read as a pickled batch \(KeyError\('labels'\)\)"),
        ({"data": DATA, "labels": "abc"}, "cannot be read as a pickled batch .*'str' object"),
        ({"data": DATA, "labels": [[1], [2, 3]]}, "cannot be read as a pickled batch .*'list' object"),
        ({"data": DATA[:, :5], "labels": [1, 2, 3]}, r"must hold data .* got uint8, \(3, 5\)"),
        (
            {"data": DATA.astype(float), "labels": [1, 2, 3]},
            "cannot be read as a pickled batch .*an array is of float64",
        ),
        ({"data": DATA, "labels": [1, 2]}, "has 3 images but 2 labels"),
        ({"data": DATA, "labels": [1, 2, 10]}, "labels must lie between 0 and 9; got 10"),
        ({"data": DATA, "labels": [1, 2, 256]}, "labels must lie between 0 and 9; got 255"),
        ({"data": DATA, "labels": [1, 2, -1]}, "labels must lie between 0 and 9; got 255"),
    ],
)
def test_a_pickle_of_something_else_is_refused(tmp_path, content, sentence):
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content))
    with pytest.raises(DamagedFileError, match=sentence):
        load_cifar10(tmp_path, "test", verify=False)


@pytest.mark.parametrize("content", [b"", as_binary(RECORDS["test_batch"])[:-1]])
def test_a_binary_batch_that_was_cut_off_is_refused(tmp_path, content):
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(DamagedFileError, match=f"records of 3073 bytes; got {len(content)} bytes"):
        load_cifar10(tmp_path, "test", verify=False)


def test_a_damaged_archive_is_refused(tmp_path):
    archive = write_archive(tmp_path / "cifar-10-binary.tar.gz", write_batches(tmp_path / "batches"))
    archive.write_bytes(archive.read_bytes()[:-5000])
    with pytest.raises(DamagedFileError, match=r"cifar-10-binary.tar.gz cannot be unpacked"):
        load_cifar10(archive, "test")


def test_an_archive_without_the_batches_is_refused(tmp_path):
    folder = write_batches(tmp_path / "batches")
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(DamagedFileError, match="does not hold data_batch_3 of CIFAR-10"):
        load_cifar10(write_archive(tmp_path / "cifar-10-binary.tar.gz", folder))


def test_a_missing_batch_is_named_with_the_remedy(tmp_path):
    (write_batches(tmp_path) / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"must hold data_batch_4 or data_batch_4.bin.*Download CIFAR-10"):
        load_cifar10(tmp_path)


def test_an_unknown_split_is_refused(tmp_path):
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'; got 'validation'"):
        load_cifar10(tmp_path, "validation")


def test_a_file_that_is_no_archive_is_refused_in_one_line(tmp_path):
    (tmp_path / "notes.txt").write_text("no archive")
    with pytest.raises(DamagedFileError, match=r"notes.txt cannot be unpacked \(.*\). Download CIFAR-10") as caught:
        load_cifar10(tmp_path / "notes.txt")
    assert "\n" not in str(caught.value)
