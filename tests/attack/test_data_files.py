"""Hostile data files: each is read rightly, or refused by a sentence that names it, soon and in little memory."""

import bz2
import gzip
import io
import lzma
import zipfile

import numpy as np
import pytest

from carre.data import load_samples, load_table
from tests.attack import bombs
from tests.attack.files import accept, refuse
from tests.attack.kit import Verdict, isolated

VALUES = np.array([[1.5, -2.0], [3.25, 4e-3], [5.0, 6e6]])
TEXT = "x,y\n1.5,-2\n3.25,0.004\n5,6e6\n"


def saved(array, name="a.npy", **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options) if name.endswith("npy") else np.savez(buffer, points=array)
    return buffer.getvalue()


ODD_TEXTS = [
    TEXT.encode("utf-8-sig"),
    TEXT.replace("\n", "\r\n").encode(),
    TEXT.replace("\n", "\r").encode(),
    TEXT.replace("\n", "\r\n", 2).encode(),
    TEXT.rstrip().encode(),
    b"\n\n" + TEXT.encode() + b"\n\r\n\n",
    TEXT.replace(",", "\t").encode(),
    TEXT.replace(",", ";").encode(),
    TEXT.replace(",", "|").encode(),
    TEXT.replace(",", "    ").encode(),
    TEXT.replace(",", " , ").encode(),
    b'"x","y"\n"1.5","-2"\n"3.25","4e-3"\n5.0,"+6E6"\n',
    TEXT.split("\n", 1)[1].encode(),
    "x,y\n１.5,-2\n٣.25,0.004\n5,6e6\n".encode(),
    b"x,y,note\n1.5,-2," + b"a" * 130_000 + b"\n3.25,0.004,\n5,6e6,c\n",
    b'x,y,note\n1.5,-2,"a\nb"\n3.25,0.004,"=1\r\n"\n5,6e6,"""q"""\n',
    "x,y,né\n1.5,-2,\u202e\n3.25,0.004,\u0000b\n5,6e6,c\n".replace("\0", "").encode(),
    b"a" * 100_000 + b",y\n1.5,-2\n3.25,.004\n5,6e6\n",
]


def test_odd_and_good_texts(ledger, tmp_path):
    cases = [("data.csv", text, VALUES) for text in ODD_TEXTS]
    cases += [(name, TEXT.replace(",", "\t").encode(), VALUES) for name in ("data.txt", "data.TSV", "data.tsv")]
    cases += [("data.csv.gz", gzip.compress(text), VALUES) for text in ODD_TEXTS[:3]]
    cases.append(("many.csv.gz", gzip.compress(TEXT.encode()) * 1 + gzip.compress(b"7,8\n"), np.r_[VALUES, [[7, 8]]]))
    for n_columns in (7_000, 20_000):
        text, values = bombs.wide_text(n_columns)
        assert min(map(len, text.splitlines())) > 40_000
        cases.append(("wide.csv", text.encode(), values))
    accept(ledger, tmp_path, cases)
    ledger.check(least=25)


BAD_TEXTS = {
    "data.csv": [
        *(b"", b"\n\n\n", bytes(10_000), b"x,y\n1,2\n3,\x004\n", b"x,y\n1,2\nab\0,4\n", b"\xef\xbb\xbf"),
        *(TEXT.encode(encoding) for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037")),
        *("né,y\n1,2\n".encode(encoding) for encoding in ("latin-1", "cp1252", "mac-roman")),
        *(np.random.default_rng(0).bytes(5000), b"\xff" * 5000, b"PK\x03\x04" + bytes(range(256)), b"%PDF-1.4\n"),
        *(
            b'x,y\n1,"2\n3,4\n',
            b'"x,y\n1,2\n',
            b'x,y\n1,2\n3,"4',
            b'x,y\n1,2"3"\n3,"4"5\n',
            b'x,y\n"' + b"1,2\n" * 90_000,
        ),
        *(b"x,y\n1," + b"2" * 140_000 + b"\n", b"x,y\n1,2\n" + b"1," * 70_000 + b"\n", b"x" * 140_000, b"1" * 140_000),
        *(b"x,y\n", b"x,y\n1,2\n3\n", b"x,y\n1,2\n3,4,5\n", b"x,x\n1,2\n", b"a,b\nc,d\n", b"x,y\n1,2,3\n4,5,6\n"),
        *(b"x,y\n1,inf\n2,3\n4,5\n", b"x,y\n1,1e999\n2,3\n4,5\n", b"x,y\n1,-Infinity\n2,3\n4,5\n"),
        *(
            b"x,y\n1,nan\n2,3\n",
            b"x,y\n1,\n2,3\n",
            b"x;y\n1,5;2,5\n",
            b"x,y\n1,1_000\n2,3\n4,5\n",
            b"x,y\n1,0x1F\n2,3\n4,5\n",
        ),
        *(b"x,y\n1,=1+1\n2,3\n4,5\n", b"x,y\n1,\xe2\x88\x922\n2,3\n4,5\n", b'x,y\n1,"1,000"\n2,3\n4,5\n', b"<html>\n"),
        *(
            bombs.sparse,
            lambda file: bombs.sparse(file, b"x,y\n1,2\n"),
            lambda file: file.write_bytes(b"1" * 40_000_000),
        ),
        *(
            bombs.pipe,
            bombs.device,
            lambda file: bombs.device(file, "/dev/random"),
            bombs.socket_file,
            lambda file: file.mkdir(),
        ),
    ],
    "data.csv.gz": [
        *(b"", TEXT.encode(), gzip.compress(TEXT.encode())[:-9], gzip.compress(TEXT.encode())[:12], b"\x1f\x8b" * 9),
        *(gzip.compress(TEXT.encode()) + b"junk", gzip.compress(b""), gzip.compress(gzip.compress(TEXT.encode()))),
        *(
            bombs.gzip_bomb,
            lambda file: bombs.gzip_bomb(file, b"1,2\n" * 2**18, begin=b"x,y\n"),
            bombs.sparse,
            bombs.pipe,
        ),
        *(lambda file: bombs.gzip_bomb(file, b"x" * 2**20), bombs.device),
    ],
    "data.csv.bz2": [bz2.compress(TEXT.encode()), bz2.compress(bytes(10**6))],
    "data.csv.xz": [lzma.compress(bytes(10**6))],
    "data.csv.zip": [b"PK\x03\x04", bombs.pipe],
    "data.tsv": [bombs.sparse, bombs.pipe, b"x\ty\n1\t2\n3\n"],
    "data.txt": [bombs.sparse, bombs.device, b"just some words\nin lines\n"],
    "data": [TEXT.encode(), bombs.pipe, bombs.device],
}


def test_hostile_texts(ledger, tmp_path):
    refuse(ledger, tmp_path, [(name, content) for name, contents in BAD_TEXTS.items() for content in contents])
    ledger.check(least=75)


def test_odd_and_good_arrays(ledger, tmp_path):
    kinds = ("<f8", ">f8", "<f4", ">f4", "<f2", "<i8", ">i4", "i1", "u1", "<u8", "?", "g")
    small = np.array([[1, 0], [1, 1], [0, 1]])
    cases = [("data.npy", saved(small.astype(kind)), small) for kind in kinds]
    cases += [
        ("data.npy", saved(np.asfortranarray(VALUES)), VALUES),
        ("data.npy", saved(VALUES[::2, ::-1]), VALUES[::2, ::-1]),
    ]
    cases += [("data.npy", saved(VALUES) + b"something else", VALUES)]
    cases += [
        ("data.npz", saved(array, "npz"), VALUES) for array in (VALUES, np.asfortranarray(VALUES), VALUES.astype(">f8"))
    ]
    packers = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    for kind in packers:
        file = bombs.zip_of(tmp_path / "packed.npz", {"a.npy": saved(VALUES)}, kind)
        cases.append(("packed.npz", file.read_bytes(), VALUES))
    accept(ledger, tmp_path, cases)
    ledger.check(least=20)


HEADERS = [
    *((10**12, 8), (2**40, 2**40), (-3, 2), (3, -2), (2**63, 1), (1, 2**63), (3, 3), (10**9,), ()),
]
TEXTS_OF_HEADERS = [
    "[" * 5000,
    "(" * 200,
    "-" * 9000 + "1",
    "{'descr': '<f8'}",
    "{1: 2}",
    "x",
    "'" * 7,
    "{'a': " * 900,
    "\x00",
]


def bad_arrays():
    """Yield the contents of npy files that hold no table, or less than they claim."""
    yield from (bombs.npy_header(shape) + bytes(48) for shape in HEADERS)
    yield from (bombs.npy_header((3, 2), begin=text) + bytes(48) for text in TEXTS_OF_HEADERS)
    yield from (
        bombs.npy_header((3, 2), descr) + bytes(48)
        for descr in ("|O", "<U9999", "|V0", "M8[s]", "<c16", "f99", "", "|S")
    )
    yield bombs.npy_header((3, 2), version=2)[:9]
    yield from (
        b"\x93NUMPY" + version + bytes(90)
        for version in (b"\x01\x00", b"\x03\x00", b"\x09\x09", b"\x02\x00\xff\xff\xff\x7f")
    )
    odd = [
        np.zeros((2, 2), "c16"),
        np.zeros((2, 2), "M8[s]"),
        np.zeros((2, 2), "m8[s]"),
        np.full((2, 2), "a"),
        np.full((2, 2), b"a"),
    ]
    odd += [
        np.zeros(3, [("x", "f8"), ("y", "f8")]),
        np.zeros((2, 2), "V8"),
        np.float64(3),
        np.zeros(4),
        np.zeros((0, 3)),
    ]
    odd += [np.zeros((3, 0)), np.zeros((2, 2, 2, 2, 2)), np.array([[1, np.nan]]), np.array([[np.inf, 1]])]
    yield from map(saved, odd)
    yield saved(np.array([[{}, 1]], dtype=object), allow_pickle=True)
    yield from (saved(VALUES)[:size] for size in (0, 5, 6, 9, 40, 130, -1))
    yield from (bombs.sparse, bombs.pipe, bombs.device, bombs.socket_file)
    yield lambda file: bombs.sparse(file, b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
    yield lambda file: bombs.sparse(file, bombs.npy_header((10**10, 2**10)))


def bad_archives():
    """Yield functions that write npz files."""
    good = saved(VALUES)
    yield from (
        bombs.npz_bomb,
        lambda file: bombs.npz_bomb(file, 100_000 // 33),
        bombs.sparse,
        bombs.pipe,
        bombs.device,
    )
    yield lambda file: bombs.sparse(file, saved(VALUES, "npz"))
    for members in (
        *(
            {},
            {"a.npy": good[:-1]},
            {"a.npy": b""},
            {"a.npy": b"no array"},
            {"a": good, "b": good},
            {"a.npy": saved(VALUES[0])},
        ),
        *({"a.npy": bombs.npy_header((10**12, 8))}, {f"{i}.npy": b"" for i in range(10_001)}),
        {"a.npy": saved(np.array([[{}, 1]], dtype=object), allow_pickle=True)},
    ):
        yield lambda file, members=members: bombs.zip_of(file, members)
    yield from (saved(VALUES, "npz")[:size] for size in (0, 2, 30, 200, -1, -22))
    yield saved(VALUES, "npz").replace(b"\x00\x00\x00\x00\x00\x00\xf8\x3f", b"\x00\x00\x00\x00\x00\x00\xf8\x40")
    locked = bytearray(saved(VALUES, "npz"))
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    yield bytes(locked)


def test_hostile_arrays(ledger, tmp_path):
    refuse(ledger, tmp_path, [("data.npy", content) for content in bad_arrays()])
    ledger.check(least=55)


def test_hostile_archives(ledger, tmp_path):
    refuse(ledger, tmp_path, [("data.npz", content) for content in bad_archives()])
    ledger.check(least=20)


@pytest.mark.parametrize("n_columns", [100_000])
@pytest.mark.slow
def test_tables_of_many_columns_are_read_in_linear_time(ledger, tmp_path, n_columns, dose):
    for count in (n_columns // 4, n_columns, *dose((), (10 * n_columns,))):
        text, values = bombs.wide_text(count)
        (tmp_path / "wide.csv").write_text(text)
        outcome = isolated(
            lambda values=values: bool((load_table(tmp_path / "wide.csv").values == values).all()), seconds=200
        )
        ledger.note(f"{count} columns", outcome.verdict if outcome.answer else Verdict.WRONG, outcome.said)
        ledger.measure(f"seconds, {count:,} columns", outcome.seconds)
    ledger.check()


def test_damaged_copies_of_good_files(ledger, tmp_path, dose):
    """Cut anywhere, or with a byte changed: an answer or a sentence, whatever pyarrow, h5py or Pillow make of it."""
    random = np.random.default_rng(0)
    goods = {"data.csv": TEXT.encode() * 1, "data.csv.gz": gzip.compress(TEXT.encode()), "data.npy": saved(VALUES)}
    goods |= {"data.npz": saved(VALUES, "npz")}
    for name, good in goods.items():
        for number in range(dose(10, 300)):
            content = bytearray(good)
            if number % 3 == 0:
                del content[random.integers(len(content)) :]
            else:
                content[random.integers(len(content))] = random.integers(256)
            (tmp_path / name).write_bytes(content)
            ledger.ask(f"{name} {number}", lambda file=tmp_path / name: load_samples(file), names=(name, "key"))
    ledger.check()
