"""Models and data as commands name them, and answers as files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carre.cli.wording import counted, naming

if TYPE_CHECKING:
    import numpy as np

    from carre import MetricMatching

_NAMED = (".csv", ".tsv", ".txt", ".gz", ".parquet", ".pq")
_OF_ARRAYS = (".npy", ".npz")


@dataclass(frozen=True, eq=False)
class Data:
    """Samples as a geometry takes them, with what to write beside answers.

    Attributes:
        values: Points (n, D), in the order of the columns of the fit, or images (n, C, H, W).
        names: What to call the coordinates.
        other: The other columns.
        name: What to call it.
    """

    values: np.ndarray
    names: Sequence[str]
    other: Mapping[str, np.ndarray]
    name: str

    @property
    def is_images(self) -> bool:
        """Say whether there are images, not points."""
        return self.values.ndim > 2


def load_model(model: str, device: str | None) -> MetricMatching:
    """Load a geometry from a folder, or one that ships with the library."""
    from carre import LoadError, MetricMatching  # noqa: PLC0415

    if not model.strip():
        raise ValueError("MODEL must not be empty; give the folder of a geometry, or a shipped name such as mnist")
    try:
        geometry = MetricMatching.from_pretrained(Path(model).expanduser() if "~" in model else model, device=device)
    except LoadError as error:
        unfinished = not Path(model).exists() and checkpoint_of(Path(model)).exists()
        hint = ". Its fit is unfinished: go on with carre fit … --resume" if unfinished else ""
        raise LoadError(str(error).replace("name_or_folder", "MODEL") + hint) from error
    geometry.verbose = True
    return geometry


def checkpoint_of(model: Path) -> Path:
    """Return where an unfinished fit is kept."""
    return model.with_name(f"{model.name}.checkpoint")


def load_data(
    geometry: MetricMatching, path: str, *, columns: Sequence[str] | None = None, drop: Sequence[str] | None = None
) -> Data:
    """Load data for a geometry: columns of its names in its order, images of its size and normalization.

    Args:
        geometry: The geometry.
        path: A table or images.
        columns: The coordinates; by default those of the fit, if it had names, else all columns of numbers.
        drop: Columns that are no coordinates, for geometries without names.
    """
    import numpy as np  # noqa: PLC0415

    from carre.data import Table, load_samples  # noqa: PLC0415

    known: Sequence[str] | None = getattr(geometry, "feature_names_in_", None)
    if columns is None and known is not None and path.lower().endswith(_NAMED):
        columns = [str(name) for name in known]
    shape = geometry.sample_shape_
    size = shape[1] if shape is not None and shape[1] == shape[2] else None
    # Only a fit has --drop.
    with naming({"leave the column out (drop)": "choose others by --columns"}, folder="DATA"):
        samples = load_samples(path, columns=columns, drop=None if columns is not None else drop, size=size)
    if isinstance(samples, Table):
        n_columns = samples.shape[1]
        if n_columns != geometry.n_features_in_:
            found = "" if samples.names is None else f" ({', '.join(samples.names[:8])})"
            raise ValueError(
                f"DATA must have {_expected(geometry)}, like the samples of MODEL; {path} has {n_columns}{found}. "
                "Choose with --columns"
            )
        names = samples.names or [f"x{i}" for i in range(n_columns)]
        return Data(samples.values, names, samples.other, samples.name)
    if shape is None:
        raise ValueError(
            f"DATA must be a table of {counted(geometry.n_features_in_, 'column')}, like that of MODEL; {path} holds "
            "images"
        )
    if geometry.normalization_ is not None:
        samples = dataclasses.replace(samples, normalization=geometry.normalization_)
    labels = {} if samples.labels is None else {"label": samples.labels}
    if samples.labels is not None and samples.class_names:
        labels = {"label": np.array(samples.class_names)[samples.labels]}
    return Data(samples.images, [f"x{i}" for i in range(geometry.n_features_in_)], labels, samples.name)


def _expected(geometry: MetricMatching) -> str:
    """Say what the samples of a geometry have."""
    columns = f"{counted(geometry.n_features_in_, 'column')} of numbers"
    shape = geometry.sample_shape_
    if shape is None:
        return columns
    return f"images of shape {' × '.join(map(str, shape[shape[0] == 1 :]))}, or {columns}"


def check_vectors_output(out: Path, geometry: MetricMatching) -> Path:
    """Refuse, before any work, an output that cannot hold points or vectors: images go into arrays only."""
    from carre.data.writing import check_output  # noqa: PLC0415

    return check_output(out, _OF_ARRAYS if geometry.sample_shape_ is not None else None)


def write_answer(
    out: Path,
    name: str,
    answer: np.ndarray,
    data: Data,
    *,
    prefix: str = "",
    more: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write an answer at each point, with the other columns of the data beside it where the format can hold them.

    Args:
        out: The file.
        name: What to call the answer.
        answer: One number, a vector (n, D) or several (n, D, k) at each point, or images.
        data: Where it was asked.
        prefix: Of the columns of vectors, before the names of the coordinates.
        more: Further columns.
    """
    from carre.data import write_table  # noqa: PLC0415

    for column in (answer, *(more or {}).values()):
        _check_finite(column)
    suffix = out.suffix.lower()
    if suffix == ".npy":
        write_table(out, {name: answer})
        return
    columns: dict[str, Any] = {name: answer}
    if answer.ndim == 2 and suffix != ".npz":
        columns = {f"{prefix}{called}": answer[:, i] for i, called in enumerate(data.names)}
    elif answer.ndim == 3 and suffix != ".npz":
        columns = {
            f"{prefix}{k + 1}_{called}": answer[:, i, k]
            for k in range(answer.shape[2])
            for i, called in enumerate(data.names)
        }
    columns |= more or {}
    write_table(out, columns | {called: column for called, column in data.other.items() if called not in columns})


def _check_finite(answer: np.ndarray) -> None:
    import numpy as np  # noqa: PLC0415

    is_finite = np.isfinite(answer).reshape(len(answer), -1).all(axis=1)
    if not is_finite.all():
        raise ValueError(
            "DATA must lie nearer to what MODEL has learned: the answer is not finite at row "
            f"{int(is_finite.argmin())} (from 0)"
        )
