"""Hostile images: only formats that are named are opened, none is decoded before its size is known."""

import io
import os
import struct

import numpy as np
import pytest

from carre.boundary import ArgumentError
from carre.data import DamagedFileError, load_image_folder
from tests.attack import bombs
from tests.attack.files import accept, refuse
from tests.attack.kit import isolated

Image = pytest.importorskip("PIL.Image")
GRAY = np.random.default_rng(0).integers(0, 256, (6, 5), dtype=np.uint8)
COLOR = np.random.default_rng(1).integers(0, 256, (6, 5, 3), dtype=np.uint8)
OTHERS = (
    "DDS",
    "EPS",
    "ICO",
    "ICNS",
    "IM",
    "JPEG2000",
    "MSP",
    "PCX",
    "PDF",
    "PALM",
    "SGI",
    "SPIDER",
    "TGA",
    "XBM",
    "AVIF",
    "QOI",
)


def encoded(array, kind, mode=None, **options):
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    buffer = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(buffer, kind, **options)
    return buffer.getvalue()


def turned():
    """A picture that its camera held on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(np.rot90(COLOR), "PNG", exif=exif)


def planes(array):
    """Bring a picture to shape (1, C, H, W)."""
    return (array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0))[None]


def odd_images():
    color, gray = planes(COLOR), planes(GRAY)
    black = planes((GRAY > 127).astype(np.uint8) * 255)
    yield from ((f"a.{kind.lower()}", encoded(COLOR, kind), color) for kind in ("PNG", "BMP", "TIFF", "PPM"))
    yield from ((f"a.{kind.lower()}", encoded(GRAY, kind), gray) for kind in ("PNG", "BMP", "TIFF"))
    yield "a.gif", encoded(GRAY, "GIF"), planes(np.stack([GRAY] * 3, -1))
    yield "a.webp", encoded(COLOR, "WEBP", lossless=True), color
    yield "a.jpg", encoded(COLOR, "PNG"), color
    yield "a.pgm", encoded(GRAY, "PPM"), gray
    yield (
        "alpha.png",
        encoded(Image.merge("RGBA", [*Image.fromarray(COLOR).split(), Image.fromarray(GRAY)]), "PNG"),
        color,
    )
    yield "alpha.png", encoded(Image.merge("LA", [Image.fromarray(GRAY), Image.fromarray(GRAY)]), "PNG"), gray
    yield "palette.png", encoded(GRAY, "PNG", "P"), planes(np.stack([GRAY] * 3, -1))
    yield "bits.png", encoded(Image.fromarray(GRAY).point(lambda x: 255 * (x > 127)), "PNG", "1"), black
    yield "turned.png", turned(), color
    frames = [Image.fromarray(GRAY), Image.fromarray(255 - GRAY)]
    yield (
        "animated.gif",
        encoded(frames[0], "GIF", save_all=True, append_images=frames[1:] * 50),
        planes(np.stack([GRAY] * 3, -1)),
    )
    yield "pages.tif", encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:]), gray
    yield "animated.png", encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]), gray
    cmyk = Image.fromarray(COLOR).convert("CMYK")
    yield "inks.tif", encoded(cmyk, "TIFF"), planes(np.asarray(cmyk.convert("RGB")))


def bad_images():
    good = {kind: encoded(COLOR, kind) for kind in ("PNG", "BMP", "TIFF", "PPM", "GIF", "JPEG", "WEBP")}
    yield from ((f"a.{kind.lower()}", content[:size]) for kind, content in good.items() for size in (0, 3, 20, 60))
    yield "a.png", good["PNG"][: len(good["PNG"]) // 2]
    yield from (
        ("a.png", content)
        for content in (b"no image", b"<svg/>", b"GIF89a", b"P6 2 2 255 ", b"\xff\xd8\xff\xe0", bytes(900))
    )
    yield from (("a.png", bombs.png(*size, b"")) for size in ((0, 0), (0, 5), (5, 0), (2**31 - 1,) * 2, (3, 3)))
    yield from (("a.png", bombs.png(9, 9, b"", depth=depth, color=color)) for depth, color in ((16, 7), (3, 3), (8, 9)))
    yield "a.png", encoded(np.zeros((4, 4), np.uint16), "PNG")
    yield from (("a.tif", encoded(np.zeros((4, 4), kind), "TIFF")) for kind in (np.uint16, np.int32, np.float32))
    yield "a.png", lambda file: file.write_bytes(bombs.png_bomb())
    yield "a.ppm", b"P6 99999 99999 255\n"
    yield "a.ppm", lambda file: file.write_bytes(b"P6 9000 9000 255\n" + bytes(100))
    yield (
        "a.bmp",
        lambda file: file.write_bytes(good["BMP"][:18] + struct.pack("<2i", 12_000, 12_000) + good["BMP"][26:]),
    )
    yield (
        "a.gif",
        lambda file: file.write_bytes(good["GIF"][:6] + struct.pack("<2H", 65_535, 65_535) + good["GIF"][10:]),
    )
    yield (
        "a.tif",
        lambda file: file.write_bytes(encoded(Image.new("1", (13_000, 13_000)), "TIFF", compression="group4")),
    )
    yield "a.webp", lambda file: file.write_bytes(encoded(Image.new("RGB", (9_000, 4_500)), "WEBP", method=0))
    for kind in ("PNG", "GIF", "BMP", "TIFF", "WEBP", "JPEG"):
        yield f"a.{kind.lower()}", lambda file, kind=kind: bombs.sparse(file, good[kind])
    chunk = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 2**31 - 1) + b"iCCP"
    yield "a.png", lambda file: bombs.sparse(file, chunk)
    yield from (("a.png", write) for write in (bombs.pipe, bombs.device, bombs.socket_file, os.mkdir))
    for kind in OTHERS:
        try:
            yield "a.png", encoded(Image.new("1" if kind in ("MSP", "XBM", "PALM") else "RGB", (32, 32)), kind)
        except (OSError, KeyError, ValueError):
            continue


def test_odd_and_good_images(ledger, tmp_path):
    accept(ledger, tmp_path, odd_images(), load_image_folder, of_folder=True)
    ledger.check(least=20)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_hostile_images(ledger, tmp_path):
    refuse(ledger, tmp_path, bad_images(), load_image_folder, of_folder=True)
    ledger.check(least=60)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "tif"])
def test_postscript_is_not_handed_to_its_interpreter(tmp_path, monkeypatch, suffix):
    """Whatever it is called: Pillow would run a program called gs on it."""
    tools, folder = tmp_path / "tools", tmp_path / "images"
    tools.mkdir()
    folder.mkdir()
    (tools / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    (tools / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (folder / f"a.{suffix}").write_bytes(encoded(COLOR, "EPS"))
    with pytest.raises(DamagedFileError, match="cannot be decoded as an image"):
        load_image_folder(folder)
    assert not (tmp_path / "was-run").exists()


def test_more_images_than_memory_are_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded(COLOR, "PNG"))
    for number in range(1000):
        os.link(tmp_path / "a.png", tmp_path / f"{number}.png")
    with pytest.raises(ArgumentError, match=r"images must fit in memory; got .* Give a smaller size, or a limit"):
        load_image_folder(tmp_path, size=16_384, mode="RGB")


def test_damaged_copies_of_good_images(ledger, tmp_path, dose):
    """Cut anywhere, or with a byte changed: a picture or a sentence, whatever Pillow makes of it."""
    random = np.random.default_rng(0)
    for kind in ("PNG", "BMP", "TIFF", "PPM", "GIF", "JPEG", "WEBP"):
        good, file = encoded(COLOR, kind), tmp_path / kind / f"a.{kind.lower()}"
        file.parent.mkdir()
        for number in range(dose(4, 150)):
            content = bytearray(good)
            if number % 3 == 0:
                del content[random.integers(len(content)) :]
            else:
                content[random.integers(len(content))] = random.integers(256)
            file.write_bytes(content)
            outcome = isolated(lambda file=file: len(load_image_folder(file.parent)), names=(str(tmp_path),))
            ledger.take(f"{kind} {number}", outcome, most_bytes=200e6)
    ledger.check()
