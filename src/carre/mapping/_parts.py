"""Parts: the files that answers go to, each made by itself, and the page that says what all of them answer."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np
import torch

from carre.boundary import ArgumentError, listed
from carre.data import Block, Source
from carre.files import BusyError, damage, write_whole, writing
from carre.geometry import Geometry
from carre.storage.tensors import learned_field, pack

# A file of more rows is cut into parts of at most so many.
_MOST_ROWS = 2_000_000
PAGE, _FORMAT, _LARGEST_PAGE = "carre-map.json", "carre map 1", 2**28
_PATIENCE, _PAUSE = 30.0, 0.05
_Item = TypeVar("_Item")


@dataclass(frozen=True, eq=False)
class Part:
    """Rows whose answers go to a file of their own.

    Attributes:
        name: The file, relative to the folder of all.
        source: The rows.
        n_rows: How many there are.
    """

    name: str
    source: Source
    n_rows: int


def parts_of(source: Source) -> list[Part]:
    """Make a part of every file, and several of one with very many rows.

    Example:
        >>> from carre.data import open_source
        >>> [(part.name, part.n_rows) for part in parts_of(open_source(np.zeros((5, 2))))]
        [('array.parquet', 5)]
    """
    if source.stream is not None:
        must = "be rows that lie somewhere, in an order of their own"
        remedy = "Answer at each batch of it with carre.RowMapper"
        raise ArgumentError("X", must, got=f"a stream, {source.name}", remedy=remedy)
    cuts: dict[str, list[list[Any]]] = {}
    for piece in source.pieces:
        groups = cuts.setdefault(piece.shard, [[]])
        # No more rows than a part should have, but a piece at least.
        if groups[-1] and sum(one.n_rows for one in groups[-1]) + piece.n_rows > _MOST_ROWS:
            groups.append([])
        groups[-1].append(piece)
    found: dict[str, Part] = {}
    for file, groups in cuts.items():
        path = PurePosixPath(file)
        stem = str(path.with_name(path.stem or path.name))
        for i, group in enumerate(groups):
            name = f"{stem}.parquet" if len(groups) == 1 else f"{stem}-{i:05}.parquet"
            if name in found:
                must = "have names that differ in more than their endings"
                raise ArgumentError("X", must, got=f"two files whose answers would be {name}", remedy="Rename one")
            n_rows = sum(piece.n_rows for piece in group)
            found[name] = Part(name, replace(source, pieces=tuple(group), n_rows=n_rows), n_rows)
    return list(found.values())


def batches_of(source: Source, size: int, keep: Sequence[str]) -> Iterator[Block]:
    """Read rows in batches of one size, however they lie in their file; the last one holds what is left."""
    waiting: list[Block] = []
    for block in source.blocks(keep=keep):
        waiting.append(block)
        n_waiting = sum(len(one.rows) for one in waiting)
        if n_waiting >= size:
            whole, n_left = _joined(waiting), n_waiting % size
            for start in range(0, n_waiting - n_left, size):
                yield _some(whole, slice(start, start + size))
            waiting = [_some(whole, slice(n_waiting - n_left, None))] if n_left else []
    if waiting:
        yield _joined(waiting)


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    other = {name: np.concatenate([block.other[name] for block in blocks]) for name in blocks[0].other}
    values = np.concatenate([block.values for block in blocks])
    return Block(values, blocks[0].shard, np.concatenate([block.rows for block in blocks]), other)


def _some(block: Block, rows: slice) -> Block:
    other = {name: column[rows] for name, column in block.other.items()}
    return Block(block.values[rows], block.shard, block.rows[rows], other)


def read_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Read the next item while the last one is worked on."""
    with ThreadPoolExecutor(1, "carre-reader") as reader:
        coming = reader.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = reader.submit(next, items, None)
            yield item


def write_page(folder: Path, said: dict[str, Any]) -> None:
    """Say in a folder what its files answer, or refuse one that holds something else.

    Several machines may begin at once: whoever comes second reads what the first one has written.
    """
    deadline = time.monotonic() + _PATIENCE
    while not (folder / PAGE).is_file():
        check_page(folder, said)
        with writing(folder, "out"):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            write_whole(folder / PAGE, json.dumps({"format": _FORMAT, **said}, indent=1) + "\n")
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
    check_page(folder, said)


def check_page(folder: Path, said: dict[str, Any]) -> None:
    """Refuse a folder that holds something else, or answers of other models, to other questions or at other data."""
    found = read_page(folder)
    if not found:
        others = (
            sorted(file.name for file in folder.iterdir() if not file.name.startswith(".")) if folder.exists() else []
        )
        if others and PAGE not in others:
            must = "be a new folder, or one that holds answers to the same question"
            raise ArgumentError("out", must, got=f"{str(folder)!r}, which holds {listed(others, 3)}")
        return
    other = [name for name, value in said.items() if found.get(name) != value]
    if other:
        differ = "; ".join(f"{name} was {_short(found.get(name))}, now {_short(said[name])}" for name in other)
        remedy = "Choose another folder, or replace those answers with overwrite=True"
        raise ArgumentError("out", f"hold answers to the same question; in {folder} {differ}", remedy=remedy)


def read_page(folder: Path) -> dict[str, Any]:
    """Read what the files of a folder answer; nothing where no page says so."""
    page = folder / PAGE
    if not page.is_file():
        return {}
    with damage(f"{page} cannot be read", "Answer anew, in another folder"):
        if page.stat().st_size > _LARGEST_PAGE:
            raise ValueError("it is too large")
        found = json.loads(page.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("format") != _FORMAT or not isinstance(found.get("parts"), dict):
            raise ValueError(f"it is none of {_FORMAT!r}")
    return found


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return f"{len(value):,} files of {sum(count for count in value.values() if isinstance(count, int)):,} rows"
    return repr(value) if len(repr(value)) < 80 else "another list"


def clear(folder: Path) -> None:
    """Remove the answers that a page speaks of, and then that page."""
    found = read_page(folder)
    with writing(folder, "out"):
        for name in found.get("parts", {}):
            target = (folder / name).resolve()
            if target.is_relative_to(folder.resolve()) and target.suffix == ".parquet":
                target.unlink(missing_ok=True)
                _remove_empty(target.parent, folder.resolve())
        (folder / PAGE).unlink(missing_ok=True)


def _remove_empty(folder: Path, above: Path) -> None:
    """Remove a folder that nothing is left in, and those around it, up to one that stays."""
    with suppress(OSError):
        while folder != above:
            folder.rmdir()
            folder = folder.parent


def digest_of(geometry: Geometry) -> str:
    """Sum up by what a model is known again: its tensors, and the numbers beside them."""
    field = learned_field(geometry)
    numbers = (field.frame.scale, field.ridge, field.noise, field.mixed_precision, geometry.normalization)
    found = hashlib.sha256(repr(numbers).encode())
    for name, tensor in sorted(pack(geometry, dtype=None, n_landmarks=1).items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
