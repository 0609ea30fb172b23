"""Answers inside of somebody else's engine: a callable that adds them to batches, as Ray Data and Spark hand them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from carre.arguments import as_device, check_arguments, shown
from carre.boundary import ArgumentError, as_array, as_dense, listed
from carre.files import AnyPath, is_path
from carre.geometry import Geometry
from carre.mapping.answers import Asked, as_columns, rows_per_batch, steady
from carre.storage import load


@check_arguments
class RowMapper:
    """Adds answers to batches of rows: of Ray Data's ``map_batches``, of Spark's ``mapInPandas``, or of a loop.

    The model is loaded when the first batch comes, once in each process, on a GPU if there is one.

    Args:
        model: A geometry, or the folder of one that every process can read, or a shipped name.
        what: What to answer: ``"dimension"``, ``"eigenvalues"``, ``"tangent"``, ``"denoised"``, from one forward pass.
        bandwidth: σ; None takes the default scale.
        dimension: How many tangent directions.
        columns: The coordinates: the names of columns, or of one that holds vectors. None takes those of the fit; where
            it had no names, the only column of vectors.
        device: Where to compute; None takes a GPU if there is one.

    Example:
        >>> import carre
        >>> X = np.random.default_rng(0).uniform(size=(200, 2))
        >>> geometry = carre.fit(X, max_steps=20, width=16, bandwidth=0.1, random_state=0)
        >>> mapper = carre.RowMapper(geometry, what=("dimension", "denoised"))
        >>> {name: column.shape for name, column in mapper({"id": np.arange(5), "point": X[:5]}).items()}
        {'id': (5,), 'point': (5, 2), 'dimension': (5,), 'denoised': (5, 2)}
        >>> mapper = carre.RowMapper(geometry, what=("denoised",), columns=("u", "v"))
        >>> list(mapper({"u": X[:5, 0], "v": X[:5, 1]}))
        ['u', 'v', 'denoised_u', 'denoised_v']
    """

    def __init__(
        self,
        model: Geometry | AnyPath,
        *,
        what: Sequence[str] = ("dimension",),
        bandwidth: float | None = None,
        dimension: int | None = None,
        columns: Sequence[str] | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.model, self.what, self.bandwidth, self.dimension = model, what, bandwidth, dimension
        self.columns, self.device = columns, device
        if device is not None:
            as_device(device)
        if isinstance(model, Geometry):
            _ = self._asked
        elif not is_path(model):
            raise ArgumentError("model", "be a geometry, or the folder of one", got=shown(model))

    @cached_property
    def _geometry(self) -> Geometry:
        if not isinstance(self.model, Geometry):
            return steady(load(self.model, device=self.device))
        return steady(self.model if self.device is None else self.model.to(self.device))

    @cached_property
    def _asked(self) -> Asked:
        return Asked.of(self._geometry, self.what, self.bandwidth, self.dimension)

    def __call__(self, batch: Any) -> Any:
        """Return a batch with the answers added: a dictionary of arrays, or a data frame of pandas, as it came.

        Rows that stand in columns get columns of numbers, those that are vectors get arrays.
        """
        values, names = self._rows_of(batch)
        size = rows_per_batch(self._geometry)
        starts = range(0, max(1, len(values)), size)
        found = [self._at(values[start : start + size]) for start in starts]
        answers = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
        columns = answers if names is None else as_columns(answers, names)
        if isinstance(batch, Mapping):
            return {**batch, **columns}
        return batch.assign(**columns)

    def _at(self, values: np.ndarray) -> dict[str, np.ndarray]:
        if len(values):
            return self._asked.at(self._geometry, values)
        # Engines hand out batches without rows, to learn of the columns.
        known = self._asked.at(self._geometry, self._geometry.landmarks[:1].cpu().numpy())
        return {name: answer[:0] for name, answer in known.items()}

    def _rows_of(self, batch: Any) -> tuple[np.ndarray, Sequence[str] | None]:
        """Take the coordinates out of a batch, with their names where each is a column of its own."""
        if not isinstance(batch, Mapping) and not (hasattr(batch, "columns") and hasattr(batch, "assign")):
            must, remedy = "be a dictionary of arrays or a data frame of pandas", "Ask for one by batch_format='numpy'"
            raise ArgumentError("batch", must, got=f"a {type(batch).__name__}", remedy=remedy)
        every = list(batch) if isinstance(batch, Mapping) else list(batch.columns)
        wanted = self.columns or self._geometry.feature_names
        if wanted is None:
            wanted = [name for name in every if _is_of_vectors(batch[name])]
            if len(wanted) != 1:
                must = "be given where the fit had no names, and there is no single column of vectors"
                raise ArgumentError("columns", must, got=f"a batch of {listed([str(name) for name in every])}")
        lost = [name for name in wanted if name not in every]
        if lost:
            must = f"be columns of the batch, {listed([str(name) for name in every])}"
            raise ArgumentError("columns", must, got=f"{listed(lost)}, which are not")
        if len(wanted) == 1 and (self._geometry.dim > 1 or _is_of_vectors(batch[wanted[0]])):
            vectors = batch[wanted[0]]
            return _array(np.stack(list(vectors)) if _is_object(vectors) else vectors, wanted[0]), None
        return np.stack([_array(batch[name], name) for name in wanted], axis=1), list(wanted)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_geometry", "_asked")}


def _is_object(column: Any) -> bool:
    return getattr(getattr(column, "dtype", None), "kind", "") == "O"


def _is_of_vectors(column: Any) -> bool:
    if _is_object(column):
        return len(column) > 0 and np.ndim(next(iter(column))) > 0
    return np.ndim(column) > 1


def _array(column: Any, name: str) -> np.ndarray:
    array = as_array(as_dense(column, name), name)
    return array.reshape(len(array), -1) if array.ndim > 2 else array
