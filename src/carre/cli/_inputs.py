"""What commands are given: their common options, models, data; and the files that answers go to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

import carre
from carre.cli._output import counted, naming, say, worded
from carre.text import like

if TYPE_CHECKING:
    import numpy as np

_COUNT = r"(\d+\.?\d*|\.\d+)"
# Hours, minutes and seconds.
_BUDGET = re.compile(f"(?:{_COUNT}h)?(?:{_COUNT}m(?:in)?)?(?:{_COUNT}s?)?")
_SIZE = re.compile(rf"{_COUNT}([kmgt]?)(i?)b?")
# Files whose columns have names.
_TEXT = (".csv", ".tsv", ".txt", ".gz")
_NAMED = (*_TEXT, ".parquet", ".pq")
_OF_ARRAYS = (".npy", ".npz")
_MOST_NAMES = 8


# What a fit is made of.
Samples: TypeAlias = "carre.Table | carre.ImageDataset | carre.data.Source"


def positive(text: str) -> Any:
    """Describe an option whose number has to be above zero; another one is refused as soon as it is read."""

    def check(_: Any, option: Any, value: int | float | None) -> int | float | None:
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{option.opts[0]} must be a positive number; got {value:g}")
        return value

    return typer.Option(callback=check, help=text)


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of a fitted geometry, or a shipped name such as mnist.")
]
Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="Table (csv, tsv, txt, parquet, npy, npz, h5ad::key), or a folder of images."),
]
Columns = Annotated[
    str | None, typer.Option(help="Columns that are coordinates, by name or number from 0, separated by commas.")
]
Sigma = Annotated[float | None, positive("Scale σ, in the units of the data; that of the model by default.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one by default.")]
DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave rows out of which a coordinate is missing; else they are refused.")
]
Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory to take at most, like 2GB: DATA are read in blocks, and never held."),
]
Ids = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="Column of DATA that names rows.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print neither progress nor a summary.")]


def seconds_of(budget: str | None) -> float | None:
    """Read a span of time: 90s, 2m, 1h30m, 0.5h, or plain seconds.

    Example:
        >>> seconds_of("1h30m"), seconds_of("0.5h"), seconds_of("90")
        (5400.0, 1800.0, 90.0)
    """
    if budget is None:
        return None
    found = _BUDGET.fullmatch(budget.replace(" ", "").lower())
    counts = found.groups(default="0") if found else ()
    total = sum(seconds * float(count) for seconds, count in zip((3600, 60, 1), counts, strict=False))
    if total <= 0:
        raise ValueError(f"--budget must be a span of time like 90s, 2m, 1h30m or 0.5h; got {budget!r}")
    return total


def bytes_of(size: str | None) -> int | None:
    """Read an amount of memory: 2GB, 800MB, 1.5 GiB, or plain bytes.

    Example:
        >>> bytes_of("2GB"), bytes_of("1.5 MiB"), bytes_of("800")
        (2000000000, 1572864, 800)
    """
    if size is None:
        return None
    found = _SIZE.fullmatch(size.replace(" ", "").lower())
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"--memory must be a size like 2GB or 800MB; got {size!r}")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2] or " "))


def listed(text: str | None) -> list[str] | None:
    """Read names or numbers that are separated by commas.

    Example:
        >>> listed("height, weight")
        ['height', 'weight']
    """
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def some_of(names: Sequence[str]) -> str:
    """Write the first few of many names, and how many there are.

    Example:
        >>> some_of(["a", "b"]), some_of([str(i) for i in range(20)])
        ('a, b', '0, 1, 2, 3, 4, 5, 6, 7, … (20)')
    """
    return ", ".join(names[:_MOST_NAMES]) + (f", … ({len(names)})" if len(names) > _MOST_NAMES else "")


def pair_of(option: str, text: str, rows: Rows, ids: str | None) -> tuple[int, int]:
    """Read a pair of rows, like 3,17 or ann,bob."""
    parts = text.split(",")
    if len(parts) != 2:
        raise ValueError(f"{option} must be two rows like 3,17 or ann,bob; got {text!r}")
    return rows.row_of(parts[0], option, ids), rows.row_of(parts[1], option, ids)


def load_model(model: str, device: str | None) -> carre.Geometry:
    """Load a geometry from a folder, or one that ships with the library."""
    if not model.strip():
        raise ValueError("MODEL must not be empty; give the folder of a geometry, or a shipped name such as mnist")
    try:
        # A path never goes to the hub, and a word that is misspelled should not.
        return carre.load(model if model in carre.pretrained_models() else Path(model), device=device)
    except carre.LoadError as error:
        if Path(model).exists() or not checkpoint_of(Path(model)).exists():
            raise
        hint = "Its fit is unfinished: go on with carre fit … --resume"
        raise carre.LoadError(f"{worded(error)}. {hint}") from error


def checkpoint_of(model: Path) -> Path:
    """Return where an unfinished fit is kept."""
    return model.with_name(f"{model.name}.checkpoint")


def load_samples(
    path: str,
    *,
    otherwise: str,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    size: int | None = None,
    drop_missing: bool = False,
) -> carre.Table | carre.ImageDataset:
    """Read DATA, a table or images; ``otherwise`` says what to do where cells of a column cannot be used."""
    try:
        with naming({"folder": "DATA", "drop_missing": "--drop-missing"}):
            samples = carre.data.load_samples(path, columns=columns, drop=drop, size=size, drop_missing=drop_missing)
    except carre.data.CellError as error:
        raise ValueError(error.worded(otherwise, rows="--drop-missing")) from error
    if isinstance(samples, carre.Table) and samples.dropped:
        say(f"{rows_left_out(samples)} of {path} {'was' if len(samples.dropped) == 1 else 'were'} left out")
    return samples


def open_samples(
    path: str,
    memory: str | None,
    *,
    otherwise: str,
    columns: Sequence[str] | None,
    drop: Sequence[str] | None,
    size: int | None,
    drop_missing: bool,
) -> Samples:
    """Read DATA, or open them to be read in blocks: shards and zarr, and whatever comes with a bound of memory."""
    options: dict[str, Any] = {"columns": columns, "drop": drop, "size": size, "drop_missing": drop_missing}
    if memory is None and not carre.data.sources.is_in_parts(path.partition("::")[0]):
        return load_samples(path, otherwise=otherwise, **options)
    with naming({"folder": "DATA", "drop_missing": "--drop-missing"}):
        return carre.data.open_source(path, **options)


def rows_left_out(table: carre.Table) -> str:
    """Count the rows of a table that were left out, and name them."""
    places = "line" if table.path.name.lower().endswith(_TEXT) else "number"
    places += "s" * (len(table.dropped) > 1) + " from 0," * (places == "number")
    return (
        f"{counted(len(table.dropped), 'row')} with missing cells ({places} {some_of(list(map(str, table.dropped)))})"
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """DATA as a geometry takes them, with what to write beside answers.

    Attributes:
        values: Points (n, D), in the order of the columns of the fit, or images (n, C, H, W).
        names: What to call the coordinates.
        other: The other columns.
        numbers: The numbers of the rows in the file, from 0, where some were left out.
        n_rows: How many there are in the file; None for as many as there are here.
    """

    values: np.ndarray
    names: Sequence[str]
    other: Mapping[str, np.ndarray]
    numbers: np.ndarray | None = None
    n_rows: int | None = None

    @property
    def is_images(self) -> bool:
        """Say whether there are images, not points."""
        return self.values.ndim > 2

    def __len__(self) -> int:
        return len(self.values)

    def row_of(self, text: str, argument: str, ids: str | None = None) -> int:
        """Return where the row of a number in the file is, or of an id.

        Ids are in a column that is named, or else in any column of text in which no two rows are alike.
        """
        text = text.strip()
        if ids is None and text.isdecimal():
            return self._place_of(int(text), argument)
        known = self._ids(ids)
        hits = {name: [i for i, cell in enumerate(cells) if cell == text] for name, cells in known.items()}
        found = {i for places in hits.values() for i in places}
        if len(found) == 1:
            return found.pop()
        if found:
            where = " and ".join(f"{counted(len(hits[name]), 'row')} of {name!r}" for name in hits if hits[name])
            remedy = "Say by --id in which column" if ids is None else "Leave --id out, and give a row number"
            raise ValueError(f"{argument} must name one row; {text!r} is in {where}. {remedy}")
        near = like(text, [cell for cells in known.values() for cell in cells], 3)
        kinds = f"an id in {' or '.join(map(repr, known))}" if known else "coordinates like 0.1,0.2"
        kinds = f"a row number, or {kinds}" if ids is None else kinds
        hint = f". Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"{argument} must be {kinds}; got {text!r}{hint}")

    def _ids(self, column: str | None) -> dict[str, list[str]]:
        """Return the cells of the columns that ids may be in, as text; where some are missing, numbers are floating."""
        if column is not None and column not in self.other:
            known = some_of(list(self.other)) or "there is none"
            raise ValueError(f"--id must be a column of DATA that is no coordinate ({known}); got {column!r}")
        names = [name for name in self.other if name == column or self.other[name].dtype.kind not in "fiub"]
        cells = {name: [str(cell).removesuffix(".0") for cell in self.other[name].tolist()] for name in names}
        if column is not None:
            return {column: cells[column]}
        return {name: own for name, own in cells.items() if len(set(own)) == len(own)}

    def _place_of(self, number: int, argument: str) -> int:
        """Return where the row of a number in the file is, of which rows may have been left out."""
        last = (len(self) if self.n_rows is None else self.n_rows) - 1
        if number > last:
            raise ValueError(f"{argument} must be row numbers from 0 to {last}; got {number}")
        if self.numbers is None:
            return number
        place = int(self.numbers.searchsorted(number))
        if place == len(self) or self.numbers[place] != number:
            raise ValueError(f"{argument} must be rows without missing cells; row {number} was left out")
        return place


def load_data(
    geometry: carre.Geometry,
    path: str,
    *,
    columns: str | None = None,
    drop: Sequence[str] | None = None,
    drop_missing: bool = False,
) -> Rows:
    """Load data for a geometry: columns of its names in its order, images of its size and normalization.

    A geometry without names takes all columns of numbers but those to ``drop``, where columns have names.
    """
    import numpy as np  # noqa: PLC0415

    from carre.data.frames import columns_of  # noqa: PLC0415

    chosen, known, shape = listed(columns), geometry.feature_names, geometry.sample_shape
    if chosen is None and known is not None and path.lower().endswith(_NAMED):
        chosen = list(known)
    samples = load_samples(
        path,
        # Only a fit has --drop.
        otherwise="choose others by --columns",
        columns=chosen,
        drop=drop if chosen is None and path.lower().endswith(_NAMED) else None,
        size=shape[1] if shape is not None and shape[1] == shape[2] else None,
        drop_missing=drop_missing,
    )
    if isinstance(samples, carre.Table):
        if columns is None and known is not None and samples.names is not None:
            samples = dataclasses.replace(samples, values=columns_of(samples, known, "DATA"), names=tuple(known))
        n_columns = samples.shape[1]
        if n_columns != geometry.dim:
            found = "" if samples.names is None else f" ({', '.join(samples.names[:8])})"
            file = path.partition("::")[0]
            remedy = f"a matrix by {file}::key" if file.lower().endswith(".h5ad") else "with --columns"
            raise ValueError(
                f"DATA must have {_expected(geometry)}, like the samples of MODEL; {path} has {n_columns}{found}. "
                f"Choose {remedy}"
            )
        names, n_rows = samples.names or numbered(n_columns), len(samples) + len(samples.dropped)
        return Rows(samples.values, names, samples.other, samples.numbers, n_rows)
    if shape is None:
        columns_of_model = counted(geometry.dim, "column")
        raise ValueError(f"DATA must be a table of {columns_of_model}, like that of MODEL; {path} holds images")
    if geometry.normalization is not None:
        samples = dataclasses.replace(samples, normalization=geometry.normalization)
    labels = samples.labels
    if labels is not None and samples.class_names:
        labels = np.array(samples.class_names)[labels]
    return Rows(samples.images, numbered(geometry.dim), {} if labels is None else {"label": labels})


def numbered(n_columns: int) -> list[str]:
    """Name coordinates that have no names."""
    return [f"x{i}" for i in range(n_columns)]


def _expected(geometry: carre.Geometry) -> str:
    """Say what the samples of a geometry have."""
    columns = f"{counted(geometry.dim, 'column')} of numbers"
    shape = geometry.sample_shape
    if shape is None:
        return columns
    return f"images of shape {' × '.join(map(str, shape[shape[0] == 1 :]))}, or {columns}"


def check_output(out: Path, data: str | None, geometry: carre.Geometry | None = None) -> None:
    """Refuse, before any work, to write over DATA, or a file that cannot hold points and vectors that are images."""
    from carre import files  # noqa: PLC0415
    from carre.data.table import WRITTEN  # noqa: PLC0415

    if data is not None and Path(data).is_file() and out.exists() and out.samefile(data):
        raise ValueError(f"--out must not be DATA, which would be lost; got {out}")
    is_images = geometry is not None and geometry.sample_shape is not None
    files.check_output(out, _OF_ARRAYS if is_images else WRITTEN)


@contextmanager
def folder_for(file: Path) -> Iterator[None]:
    """Make the folder that something goes into; where the work fails, remove it again."""
    made = [folder for folder in file.absolute().parents if not folder.exists()]
    file.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


def write_answer(
    out: Path,
    name: str,
    answer: np.ndarray,
    rows: Rows,
    *,
    prefix: str = "",
    more: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write an answer at each point, with the other columns of the data beside it where the format can hold them.

    It is a number, a vector (n, D), several of them (n, D, k), or an image. In tables, vectors are a column for each
    coordinate, whose name follows the prefix.
    """
    import numpy as np  # noqa: PLC0415

    for column in (answer, *(more or {}).values()):
        is_finite = np.isfinite(column).reshape(len(column), -1).all(axis=1)
        if not is_finite.all():
            far = f"the answer is not finite at row {int(is_finite.argmin())} (from 0)"
            raise ValueError(f"DATA must lie nearer to what MODEL has learned: {far}")
    suffix = out.suffix.lower()
    if suffix == ".npy":
        carre.data.write_table(out, {name: answer})
        return
    columns: dict[str, Any] = {name: answer}
    if answer.ndim == 2 and suffix != ".npz":
        columns = {f"{prefix}{called}": answer[:, i] for i, called in enumerate(rows.names)}
    elif answer.ndim == 3 and suffix != ".npz":
        columns = {
            f"{prefix}{k + 1}_{called}": answer[:, i, k]
            for k in range(answer.shape[2])
            for i, called in enumerate(rows.names)
        }
    columns |= more or {}
    other = {called: column for called, column in rows.other.items() if called not in columns}
    carre.data.write_table(out, columns | other)
