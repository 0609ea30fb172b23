"""Hostile files of other formats: Parquet, AnnData, images, and the datasets that people download."""

import gzip
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

from carre.data import load_cifar10, load_images, load_samples, load_table, read_idx
from tests.attack import bombs
from tests.attack.files import MOST_BYTES, accept, refuse
from tests.attack.kit import Verdict, isolated

anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
Image = pytest.importorskip("PIL.Image")
SPECIAL = (bombs.sparse, bombs.pipe, bombs.device, bombs.socket_file)


def as_parquet(columns, **options):
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


def many_groups(file, n_groups=16):
    """A column of zeros, of which a million rows take a few bytes."""
    group = pa.table({"x": np.zeros(10**6)})
    with parquet.ParquetWriter(file, group.schema) as writer:
        for _ in range(n_groups):
            writer.write_table(group)


GOOD_PARQUET = as_parquet({"x": [1.0, 2.0], "y": [3, 4], "kind": ["a", None]})


def bad_parquet():
    yield from (b"", b"PAR1", b"PAR1" * 5, b"no parquet", *(GOOD_PARQUET[:size] for size in (4, 100, -1, -8)))
    yield from (
        b"\xff" * 2 + GOOD_PARQUET,
        GOOD_PARQUET + b"junk",
        GOOD_PARQUET[4:],
        b"PAR1" + bytes(40) + b"\x10\0\0\0PAR1",
    )
    yield as_parquet({"x": pa.array([], pa.float64())})
    yield as_parquet({"kind": ["a", "b"]})
    yield as_parquet({"x": [1.0, None]})
    yield as_parquet({"x": [[1.0], [2.0, 3.0]]})
    yield as_parquet({"x": pa.array([10**15, 2**53], pa.timestamp("ms")), "y": [1.0, 2.0]})
    twice = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["x", "x"]), twice)
    yield twice.getvalue()
    yield from (*SPECIAL, many_groups)
    yield lambda file: bombs.sparse(file, b"PAR1", b"\xff\xff\xff\x7fPAR1")
    yield lambda file: bombs.sparse(file, GOOD_PARQUET, GOOD_PARQUET[-8:])
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(300_000, np.int32)), pa.array(["a" * 10**6]))
    yield lambda file: parquet.write_table(pa.table({"x": np.arange(300_000.0), "note": text}), file)
    yield lambda file: parquet.write_table(pa.table({"x": np.arange(3.0), "y": [[0.0] * 10**7, [1.0], []]}), file)


def test_parquet(ledger, tmp_path):
    refuse(ledger, tmp_path, [("data.parquet", content) for content in bad_parquet()])
    truth = np.array([[1, 3], [2, 4]])
    accept(ledger, tmp_path, [("data.pq", GOOD_PARQUET, truth)])
    ledger.check(least=25)


def good_h5ad():
    """The file of a small AnnData, open to be made hostile."""
    annotated = anndata.AnnData(np.eye(3), obsm={"X_pca": np.eye(3)[:, :2]}, layers={"raw": np.eye(3)})
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as content:
        anndata.io.write_elem(content, "/", annotated)
    return buffer


def changed(change):
    """Write a good file, and change it."""

    def write(file):
        file.write_bytes(good_h5ad().getvalue())
        with h5py.File(file, "r+") as content:
            change(content)

    return write


def replaced(name, *arguments, **options):
    def change(content):
        del content[name]
        content.create_dataset(name, *arguments, **options)

    return changed(change)


def linked(name, link):
    def change(content):
        del content[name]
        content[name] = link

    return changed(change)


def sparse_matrix(content):
    del content["X"]
    group = content.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": (3, 2**40)})
    for name, values in (("data", np.zeros(0)), ("indices", np.zeros(0, int)), ("indptr", np.zeros(4, int))):
        group.create_dataset(name, data=values)


def many_roads(content):
    """Groups of groups, each twice in the one above: a million million arrays in a few kilobytes."""
    above = content["uns"]
    for level in range(40):
        below = content.create_group(f"level{level}")
        below.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
        above["a"] = above["b"] = below
        above = below


def bad_h5ad():
    good = good_h5ad().getvalue()
    yield from (b"", b"\x89HDF\r\n\x1a\n", b"no h5", *(good[:size] for size in (8, 100, 2000, len(good) // 2, -1)))
    yield from SPECIAL
    yield lambda file: bombs.sparse(file, good[:2000])
    for name in ("X", "obsm/X_pca", "layers/raw"):
        yield linked(name, h5py.ExternalLink("/etc/passwd", "/x"))
        yield linked(name, h5py.ExternalLink("other.h5", "/x"))
        yield linked(name, h5py.SoftLink("/nowhere"))
        yield linked(name, h5py.SoftLink(f"/{name}"))
        yield replaced(name, (10**6, 10**6), "f8")
        yield replaced(name, (10**5, 10**5), "f8", chunks=(1000, 1000), compression="gzip", fillvalue=1.0)
        yield replaced(name, (3, 3), "f8", external=[("/etc/passwd", 0, 72)])
    for values in (np.zeros(3), np.zeros((2, 3)), np.full((3, 3), np.nan), np.zeros((3, 3), "c16")):
        yield replaced("X", data=values)
    yield replaced("X", data=np.full((3, 3), b"text"))
    yield from (changed(sparse_matrix), changed(many_roads))
    yield changed(lambda content: content["uns"].__setitem__("round", content["uns"]))
    yield changed(lambda content: content.__delitem__("obs"))


@pytest.mark.filterwarnings("ignore")
def test_h5ad(ledger, tmp_path):
    refuse(ledger, tmp_path, [("cells.h5ad", content) for content in bad_h5ad()])
    accept(ledger, tmp_path, [("cells.h5ad", good_h5ad().getvalue(), np.eye(3))], load_samples)
    accept(
        ledger,
        tmp_path / "bad0",
        [("cells.h5ad", good_h5ad().getvalue(), np.eye(3)[:, :2])],
        lambda file: load_samples(f"{file}::X_pca"),
    )
    ledger.check(least=40)


def idx(shape, kind=8, content=b""):
    return bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + content


def test_idx(ledger, tmp_path):
    good = idx((2, 3), content=bytes(range(6)))
    cases = [("digits", content) for content in (b"", b"\0\0\x08", good[:-1], good + b"1", good[:6], b"junk" * 9)]
    cases += [("digits", idx(shape)) for shape in ((2**32 - 1,) * 3, (2**31,), (2**32 - 1,) * 255, ())]
    cases += [("digits", idx((3,), kind, bytes(3))) for kind in (0, 7, 10, 12, 14, 255)]
    cases += [("digits.gz", gzip.compress(content)) for content in (b"", good[:-1], idx((2**32 - 1,) * 3))]
    cases += [("digits.gz", gzip.compress(good)[:-3]), ("digits.gz", gzip.compress(good) + b"junk")]
    cases += [("digits", write) for write in SPECIAL]
    cases += [("digits", lambda file: bombs.sparse(file, idx((60_000, 28, 28))))]
    header = idx((3000, 1024, 1024))
    cases += [("digits.gz", lambda file: bombs.gzip_bomb(file, begin=header))]
    refuse(ledger, tmp_path, cases, read_idx)
    ledger.ask("good", lambda: read_idx(tmp_path / "good"), names=("good",))
    (tmp_path / "good").write_bytes(gzip.compress(good))
    ledger.ask(
        "packed",
        lambda: read_idx(tmp_path / "good"),
        verdict=lambda found: Verdict.RIGHT if found.sum() == 15 else Verdict.WRONG,
    )
    ledger.check(least=20)


def pickled(code):
    """A pickle of a batch whose labels are made by opcodes."""
    return b"\x80\x02}(U\x04data" + pickle.dumps(np.zeros((1, 3072), np.uint8), 2)[2:-1] + b"U\x06labels" + code + b"u."


class Runs:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def bad_batches(mark):
    for protocol in (0, 2, 5):
        yield pickle.dumps({"data": Runs(os.system, f"touch {mark}"), "labels": []}, protocol)
        yield pickle.dumps({"data": np.zeros(3, object), "labels": [3]}, protocol)
    yield from (
        b"",
        b".",
        b"\x80\x02]q\0" + b"h\0a" * 9 + b".",
        pickled(b"N"),
        pickled(b"U\x03abc"),
        pickled(b"]K\x01aG?\xf8\0\0\0\0\0\0a"),
    )
    yield lambda file: file.write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    yield lambda file: file.write_bytes(pickled(b"]q\0" + b"".join(b"]q%c(h%ch%ce" % (i + 1, i, i) for i in range(60))))
    deep = b"K\x01K\x02\x86q\0" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))
    yield lambda file: file.write_bytes(pickled(b"}" + deep + b"K\x01s"))
    yield lambda file: file.write_bytes(pickled(b"(" + deep + b"K\x01d"))
    yield lambda file: file.write_bytes(b"\x80\x04\x8f(" + deep + b"\x90.")
    yield lambda file: file.write_bytes(b"\x80\x05\x96\0\0\0\0\0\1\0\0.")
    yield lambda file: file.write_bytes(b"\x80\x05\x8e\0\0\0\0\0\1\0\0.")
    yield lambda file: file.write_bytes(pickled(b"(" * 10**6 + b"]" * 10**6))
    yield from SPECIAL[:1]


def test_cifar_batches(ledger, tmp_path):
    mark = tmp_path / "was-run"

    def read(folder):
        return load_cifar10(folder, "test", verify=False)

    refuse(ledger, tmp_path, [("test_batch", content) for content in bad_batches(mark)], read, of_folder=True)
    assert not mark.exists()
    ledger.check(least=18)


def longest_name(file):
    """An archive whose first member has a name of four gigabytes, and a file that is large enough."""
    about = tarfile.TarInfo("name")
    about.type, about.size = tarfile.GNUTYPE_LONGNAME, 4 * 2**30
    bombs.sparse(file, about.tobuf(tarfile.GNU_FORMAT))


def bad_tars():
    zeros = tarfile.TarInfo("test_batch")
    link, pipe = tarfile.TarInfo("test_batch"), tarfile.TarInfo("test_batch.bin")
    link.type, link.linkname, pipe.type = tarfile.SYMTYPE, "/dev/zero", tarfile.FIFOTYPE
    zeros.size = 3000 * 2**20
    yield from (
        b"",
        b"junk" * 300,
        gzip.compress(b""),
        bombs.tar_with({"test_batch": link}),
        bombs.tar_with({"t": pipe}),
    )
    yield gzip.compress(bombs.tar_with({"../../test_batch.bin": bytes(5)}))
    yield lambda file: bombs.gzip_bomb(file, begin=zeros.tobuf())
    yield lambda file: bombs.sparse(file, zeros.tobuf())
    yield from (longest_name, *SPECIAL)


def test_cifar_archives(ledger, tmp_path):
    cases = [("cifar-10-python.tar.gz", content) for content in bad_tars()]
    refuse(ledger, tmp_path, cases, lambda file: load_images(file, split="test", verify=False))
    ledger.check(least=10)


@pytest.mark.parametrize("name", ["list_eval_partition.txt"])
def test_lists_of_images(ledger, tmp_path, name):
    """CelebA says in a file which image belongs to which part."""
    contents = (b"", b"000001.jpg 7\n", b"junk\n", b"\xff" * 2000, b"a" * 10**6, bombs.sparse)
    for number, content in enumerate(contents):
        folder = tmp_path / str(number)
        (folder / "img_align_celeba").mkdir(parents=True)
        Image.new("RGB", (178, 218)).save(folder / "img_align_celeba" / "000001.jpg")
        content(folder / name) if callable(content) else (folder / name).write_bytes(content)
        outcome = isolated(lambda folder=folder: load_images(folder), names=(str(folder),))
        ledger.take(f"{number}", outcome, most_bytes=MOST_BYTES, must_refuse=True)
    ledger.check()


def test_damaged_copies_of_good_files(ledger, tmp_path, dose):
    """Cut anywhere, or with a byte changed: an answer or a sentence, whatever pyarrow and h5py make of it."""
    random = np.random.default_rng(0)
    goods = {"data.parquet": (GOOD_PARQUET, load_table), "cells.h5ad": (good_h5ad().getvalue(), load_samples)}
    goods["digits"] = gzip.compress(idx((2, 3), content=bytes(6))), read_idx
    for name, (good, read) in goods.items():
        for number in range(dose(5, 150)):
            content = bytearray(good)
            if number % 3 == 0:
                del content[random.integers(len(content)) :]
            else:
                content[random.integers(len(content))] = random.integers(256)
            (tmp_path / name).write_bytes(content)
            outcome = isolated(lambda file=tmp_path / name, read=read: read(file) is None, names=(name,))
            ledger.take(f"{name} {number}", outcome)
    ledger.check()
