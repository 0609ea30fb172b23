"""Samples that several processes have parts of: some rows of all of them, the same ones whoever has which."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.backend.processes import together
from carre.backend.rows import in_blocks, row_hashes
from carre.boundary import ArgumentError, Points
from carre.data.columns import column_units
from carre.training.checkpoint import digest

# Of all rows so many are enough to make a plan from, and of long ones so many numbers.
_MOST_ROWS, _MOST_NUMBERS = 2**17, 2**24
_HASHES = 2**64


class Pool(NamedTuple):
    """What several processes have together.

    Attributes:
        some: Rows of all of them, the same in each process.
        own: Those of this process; units of columns are the same everywhere.
        n_samples: How many rows all processes have.
        digest: Of all rows, whoever has which.
    """

    some: Points
    own: Points
    n_samples: int
    digest: str


def pooled(points: Points, names: tuple[str, ...] | None, scale: str) -> Pool | None:
    """Pool points of which each process has some; None where all have the same, or there is one process.

    Which rows are taken depends on the rows alone, not on how they are divided: those whose hashes are the smallest.

    Args:
        points: What this process was given.
        names: Names of the columns.
        scale: How columns are scaled, as in `fit`.
    """
    everyone = together()
    if everyone.size == 1 or len(set(everyone.gather(digest(points.tensor)))) == 1:
        return None
    kind = f"{points.tensor.shape[1]} columns of {points.tensor.dtype}, images {points.sample_shape}, names {names}"
    kinds = set(everyone.gather(kind))
    if len(kinds) > 1:
        must = "have the same columns, shape of images and dtype in all processes that train together"
        raise ArgumentError("X", must, got="; ".join(sorted(kinds)))
    some, total = _some_of_all(points.tensor.detach())
    own = dataclasses.replace(points, units=column_units(some, scale))
    n_samples = sum(everyone.gather(len(points.tensor)))
    told = digest(f"{n_samples} rows, {sum(everyone.gather(total)) % _HASHES:x}, {kind}")
    return Pool(dataclasses.replace(own, tensor=some), own, n_samples, told)


def _some_of_all(table: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "m dim"], int]:
    """Gather the rows with the smallest hashes of all processes, in their order; return the sum of its own hashes."""
    everyone = together()
    most = max(2, min(_MOST_ROWS, _MOST_NUMBERS // table.shape[1]))
    hashes, places, total = _smallest(table, most)
    known = torch.cat(everyone.gather(hashes.cpu())).sort().values[:most]
    is_among = hashes <= known[-1].to(hashes)
    parts = everyone.gather((hashes[is_among].cpu(), table[places[is_among]].cpu()))
    order = torch.cat([part for part, _ in parts]).sort(stable=True).indices[:most]
    return torch.cat([rows for _, rows in parts])[order].to(table.device), total


def _smallest(table: Float[Tensor, "n dim"], count: int) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"], int]:
    """Find the smallest hashes of rows, and where they are; and add all of them up."""
    hashes = places = torch.zeros(0, dtype=torch.int64, device=table.device)
    start = total = 0
    for part in in_blocks(table):
        found = row_hashes(part)
        total += int(found.sum())
        hashes = torch.cat([hashes, found])
        places = torch.cat([places, torch.arange(start, start + len(part), device=table.device)])
        start += len(part)
        kept = hashes.sort(stable=True).indices[:count]
        hashes, places = hashes[kept], places[kept]
    return hashes, places, total
