"""Files that are far larger inside than outside, made in a moment, and files that are no files."""

from __future__ import annotations

import gzip
import io
import os
import socket
import stat
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

MB = 2**20


def repeated(block: bytes, times: int) -> bytes:
    """Compress a block many times in a row, by deflate, and compress it only once."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    once = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return once * times + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def gzip_bomb(file: Path, block: bytes = bytes(MB), times: int = 3000, begin: bytes = b"") -> Path:
    """Write a file of gzip that unpacks to a block many times; its checksum, at the end, is wrong."""
    head = gzip.compress(begin) if begin else b""
    file.write_bytes(head + b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + repeated(block, times) + bytes(8))
    return file


def npy_header(shape: tuple[int, ...], descr: str = "<f8", begin: str = "", version: int = 1) -> bytes:
    """Write the header of an npy, which may claim anything."""
    text = (begin or f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}").encode()
    text += b" " * (64 - (len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


def zip_of(file: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    """Write an archive of members by name."""
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


def npz_bomb(file: Path, megabytes: int = 3000) -> Path:
    """Write an npz of three megabytes with an array of three thousand: its directory says so, and it is true."""
    header = npy_header((megabytes * MB // 8 - 8, 1))
    content = header + bytes(64 - len(header) % 64)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH) + repeated(bytes(MB), megabytes)
    size = len(content) + megabytes * MB
    name = b"points.npy"
    fields = (20, 0, 8, 0, 0, 0, len(packed), size, len(name), 0)
    local = b"PK\x03\x04" + struct.pack("<5H3I2H", *fields) + name + packed
    central = b"PK\x01\x02" + struct.pack("<6H3I5H2I", 20, *fields, 0, 0, 0, 0, 0) + name
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, len(central), len(local), 0)
    file.write_bytes(local + central + end)
    return file


def sparse(file: Path, begin: bytes = b"", end: bytes = b"", size: int = 6 * 2**30) -> Path:
    """Write a file of six gigabytes that take no room."""
    file.write_bytes(begin)
    os.truncate(file, size)
    with file.open("rb+") as stream:
        stream.seek(size - len(end))
        stream.write(end)
    return file


def pipe(file: Path) -> Path:
    """Make a pipe into which nobody writes."""
    os.mkfifo(file)
    return file


def device(file: Path, target: str = "/dev/zero") -> Path:
    """Call a device by the name of a file."""
    file.symlink_to(target)
    return file


def socket_file(file: Path) -> Path:
    """Make a socket."""
    # The path of a socket may have a hundred letters: it is made where we are, and moved.
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(short := f".s{os.getpid()}")
    os.rename(short, file)
    assert stat.S_ISSOCK(file.stat().st_mode)
    return file


def png(width: int, height: int, data: bytes, *, depth: int = 8, color: int = 2) -> bytes:
    """Write a PNG of any size around packed rows."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">2I5B", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def png_bomb(side: int = 12_000) -> bytes:
    """Write a PNG of a square of zeros, a thousandth of its size."""
    return png(side, side, b"\x78\xda" + repeated(bytes(3 * side + 1), side) + bytes(4))


def tar_with(members: dict[str, tarfile.TarInfo | bytes]) -> bytes:
    """Write an archive of members by name; a member of its own kind is what it says."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, member in members.items():
            about = tarfile.TarInfo(name) if isinstance(member, bytes) else member
            about.size = len(member) if isinstance(member, bytes) else about.size
            archive.addfile(about, io.BytesIO(member) if isinstance(member, bytes) else None)
    return buffer.getvalue()


def wide_text(n_columns: int, n_rows: int = 20) -> tuple[str, np.ndarray]:
    """Write a table of many columns, with its header; return also its values."""
    values = np.random.default_rng(0).normal(size=(n_rows, n_columns)).round(3)
    rows = [",".join(f"gene{i}" for i in range(n_columns)), *(",".join(map(repr, row)) for row in values.tolist())]
    return "\n".join(rows), values
