"""Pieces: rows that lie together, and can be read without the others, in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from carre.boundary import ArgumentError, listed
from carre.data.arrays import array_shapes, mapped_array
from carre.files import DamagedFileError

# Of one block: small beside any memory, and large beside the cost of asking for it.
_NUMBERS_AT_ONCE, _ROWS_AT_ONCE = 2**20, 2**16
# Told which columns to read beside the coordinates, it yields blocks of both.
Reader: TypeAlias = Callable[[tuple[str, ...]], Iterator[tuple[Any, Mapping[str, np.ndarray]]]]


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that lie together.

    Attributes:
        shard: The file that they are of, or the name of what they are of.
        first: The number of the first one there, from 0.
        n_rows: How many they are.
        read: Reads them in blocks, with some of the other columns.
    """

    shard: str
    first: int
    n_rows: int
    read: Reader


def rows_at_once(dim: int) -> int:
    """Say how many rows make a block.

    Example:
        >>> rows_at_once(50), rows_at_once(200_000)
        (20971, 5)
    """
    return max(1, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // max(dim, 1)))


def pieces_of_array(
    read: Callable[[slice], Any],
    n_rows: int,
    shard: str,
    *,
    at_most: int,
    other: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> tuple[Piece, ...]:
    """Cut the rows of something that is read by slices, with columns that are held beside it.

    Example:
        >>> [piece.n_rows for piece in pieces_of_array(lambda some: np.zeros(5)[some], 5, "zeros", at_most=2)]
        [2, 2, 1]
    """

    def reader(some: slice) -> Reader:
        def read_piece(keep: tuple[str, ...]) -> Iterator[tuple[Any, Mapping[str, np.ndarray]]]:
            lost = [name for name in keep if name not in other]
            if lost:
                known = f"; there are {listed([*other])}" if other else ""
                must = f"be columns of {shard} beside its coordinates; there is no {listed(lost)}{known}"
                raise ArgumentError("keep", must)
            yield read(some), {name: other[name][some] for name in keep}

        return read_piece

    starts = range(0, n_rows, at_most)
    sizes = [min(at_most, n_rows - start) for start in starts]
    parts = zip(starts, sizes, strict=True)
    return tuple(Piece(shard, start, size, reader(slice(start, start + size))) for start, size in parts)


def pieces_of_npy(files: Sequence[Path], root: Path) -> tuple[tuple[Piece, ...], tuple[int, ...]]:
    """Cut files of NumPy, whose names are told relative to a folder; return the pieces, and the shape of a row."""
    shape, found = array_shapes(files[0])[""][1:], list[Piece]()
    for file in files:
        there = array_shapes(file)[""]
        if len(there) < 2 or there[1:] != shape or 0 in shape:
            must = f"hold rows of shape {shape}, like {files[0].name}" if shape else "hold rows"
            raise DamagedFileError(f"{file} must {must}; it has shape {there}")
        name = relative_name(file, root)
        found += pieces_of_array(_mapped_reader(file), there[0], name, at_most=rows_at_once(math.prod(shape)))
    return tuple(found), shape


def _mapped_reader(file: Path) -> Callable[[slice], np.ndarray]:
    # Mapped while it is read: thousands of files cannot all stay open.
    return lambda some: np.array(mapped_array(file)[some])


def relative_name(file: Path, root: Path) -> str:
    """Name a file as it is found from a folder."""
    return file.relative_to(root).as_posix() if file != root else file.name
