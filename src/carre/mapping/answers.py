"""What is asked at every row, and the arrays and columns that the answers are."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from carre.arguments import as_choice
from carre.boundary import ArgumentError, as_bandwidth, checked_integer
from carre.geometry import Geometry
from carre.local import Local
from carre.storage.tensors import learned_field

WHAT = ("dimension", "eigenvalues", "tangent", "denoised")
# Rows that are asked at together. In the last digits an answer depends on how many they are: so this follows from the
# model and the kind of device alone, never from the memory that happens to be free.
_MOST_ROWS = {"cpu": 2**12, "cuda": 2**16}
_BYTES = {"cpu": 2**28, "cuda": 2**32}
# Numbers that are held for each row: of factors, and of the activations of a network.
_FACTORS, _ACTIVATIONS, _BYTES_PER_NUMBER = 4, 2**12, 8


@dataclass(frozen=True)
class Asked:
    """What is asked at every row.

    Attributes:
        what: Some of `WHAT`.
        bandwidth: σ.
        n_directions: How many tangent directions; 0 where none are asked for.

    Example:
        >>> Asked(("dimension", "denoised"), 0.1)
        Asked(what=('dimension', 'denoised'), bandwidth=0.1, n_directions=0)
    """

    what: tuple[str, ...]
    bandwidth: float
    n_directions: int = 0

    @classmethod
    def of(
        cls, geometry: Geometry, what: Sequence[str], bandwidth: float | None = None, dimension: int | None = None
    ) -> Asked:
        """Check what a geometry is asked, and take its own scale where none is given."""
        wanted = tuple(what)
        for name in wanted:
            as_choice(name, WHAT, name="what")
        if not wanted or len(set(wanted)) < len(wanted):
            raise ArgumentError("what", f"be some of {', '.join(WHAT)}, each once", got=", ".join(wanted) or "none")
        sigma = geometry.bandwidth if bandwidth is None else bandwidth
        as_bandwidth(sigma, geometry.landmarks[:1])
        if ("tangent" in wanted) != (dimension is not None):
            must = "say how many tangent directions are wanted" if dimension is None else "be None without 'tangent'"
            raise ArgumentError("dimension", must, got=dimension)
        most = min(geometry.rank, geometry.dim)
        count = 0 if dimension is None else checked_integer(dimension, name="dimension", least=1, most=most)
        return cls(wanted, float(sigma), count)

    def at(self, geometry: Geometry, values: np.ndarray) -> dict[str, np.ndarray]:
        """Answer at some rows, from one forward pass: arrays by name, with as many items as there are rows."""
        with torch.no_grad():
            local = geometry.at(values, self.bandwidth)
            return {name: self._answer(name, geometry, local) for name in self.what}

    def _answer(self, name: str, geometry: Geometry, local: Local) -> np.ndarray:
        answer: np.ndarray = local.tangent_basis(self.n_directions) if name == "tangent" else getattr(local, name)
        if name == "denoised" and geometry.normalization is not None:
            answer = geometry.to_pixels(answer).reshape(len(local), -1)
        return answer.astype(np.int32) if name == "dimension" else answer


def as_columns(answers: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Write answers as columns of numbers, of vectors one for each coordinate.

    Example:
        >>> answers = {"dimension": np.array([1]), "denoised": np.zeros((1, 2)), "tangent": np.eye(2)[None]}
        >>> list(as_columns(answers, ["x", "y"]))
        ['dimension', 'denoised_x', 'denoised_y', 'tangent1_x', 'tangent1_y', 'tangent2_x', 'tangent2_y']
    """
    found: dict[str, np.ndarray] = {}
    for name, answer in answers.items():
        if answer.ndim == 1:
            found[name] = answer
        elif answer.ndim == 3:
            pairs = [(k, i) for k in range(answer.shape[2]) for i in range(answer.shape[1])]
            found |= {f"{name}{k + 1}_{names[i]}": answer[:, i, k] for k, i in pairs}
        elif name == "eigenvalues":
            found |= {f"eigenvalue{k + 1}": answer[:, k] for k in range(answer.shape[1])}
        else:
            found |= {f"{name}_{called}": answer[:, i] for i, called in enumerate(names)}
    return found


def steady(geometry: Geometry) -> Geometry:
    """Return the same geometry, silent, whose passes are of one size whatever memory is free."""
    field = copy.copy(learned_field(geometry))
    field.chunk = rows_per_batch(geometry)
    return dataclasses.replace(geometry, field=field, verbose=False)


def rows_per_batch(geometry: Geometry) -> int:
    """Say at how many rows a geometry is asked together."""
    device = geometry.device.type
    bytes_per_row = _BYTES_PER_NUMBER * _numbers_per_row(geometry)
    most = min(_MOST_ROWS.get(device, _MOST_ROWS["cpu"]), _BYTES.get(device, _BYTES["cpu"]) // bytes_per_row)
    return 1 << max(0, most.bit_length() - 1)


def bytes_per_batch(geometry: Geometry) -> int:
    """Say how many bytes an answer takes while it is computed, at most."""
    return rows_per_batch(geometry) * _BYTES_PER_NUMBER * _numbers_per_row(geometry)


def _numbers_per_row(geometry: Geometry) -> int:
    model: Any = learned_field(geometry).model
    of_images = max((int(getattr(part, "numbers_per_point", 0)) for part in model.modules()), default=0)
    return max(of_images, _FACTORS * geometry.rank * geometry.dim + _ACTIVATIONS)
