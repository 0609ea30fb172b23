"""Questions to a model: ``carre dimension``, ``tangent``, ``denoise``, ``gradient`` and ``path``."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import carre
from carre.cli import _inputs as inputs
from carre.cli._inputs import AsJson, Columns, Data, Device, DropMissing, Ids, Model, Rows, Sigma
from carre.cli._output import counted, in_options, naming, progress, show

if TYPE_CHECKING:
    import numpy as np

Out = Annotated[Path, typer.Option(help="File to write: csv, tsv, parquet, json, npz or npy.")]
_MOST_NODES = 10_000


class Method(StrEnum):
    """How a path is found."""

    geodesic = "geodesic"
    flow = "flow"
    thread = "thread"
    straight = "straight"


def dimension(
    model: Model,
    data: Data,
    sigma: Sigma = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the dimension at each point: csv, tsv, parquet, json, npz or npy.")
    ] = None,
    columns: Columns = None,
    drop_missing: DropMissing = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the intrinsic dimension at the points of DATA, and on the whole.

    The interval is how far the dimension moves as the scale σ varies by √2 either way.

    \b
    Examples:
      carre dimension model points.csv
      carre dimension model points.csv --out dimensions.csv
      carre dimension mnist digits/ --sigma 2 --json
    """
    if out is not None:
        inputs.check_output(out, data)
    geometry = inputs.load_model(model, device)
    rows = inputs.load_data(geometry, data, columns=columns, drop_missing=drop_missing)
    with progress("dimension") as tell:
        estimate = geometry.estimate_dimension(rows.values, sigma, progress=tell)
    if out is not None:
        more = {"dimension_low": estimate.low, "dimension_high": estimate.high}
        inputs.write_answer(out, "dimension", estimate.local, rows, more=more)
    (low, high), error = estimate.interval, estimate.standard_error
    most_frequent = sorted(estimate.shares.items(), key=lambda pair: -pair[1])[:4]
    facts = {
        "dimension": f"{estimate.value} ({low} to {high} as σ varies by √2): {estimate.verdict}",
        "mean": f"{estimate.mean:.2f}" + (f" ± {error:.2f}" if math.isfinite(error) else ""),
        "points": ", ".join(f"{share:.0%} have {kind}" for kind, share in most_frequent),
        "scale σ": f"{estimate.bandwidth:.4g}",
    }
    facts |= {"estimated": estimate.source} if estimate.source else {}
    facts |= {"doubt": estimate.doubt} if estimate.doubt else {}
    facts |= {"counted": estimate.counted.removeprefix("counted ")} if estimate.counted else {}
    names = ["value", "interval", "verdict", "mean", "standard_error", "shares", "bandwidth", "source", "counted"]
    results = {name: getattr(estimate, name) for name in [*names, "doubt"]} | {"n": len(rows)}
    _show(facts, results, out, as_json)


def tangent(
    model: Model,
    data: Data,
    out: Out,
    dim: Annotated[int, typer.Option(help="How many directions, the leading ones first.")],
    sigma: Sigma = None,
    columns: Columns = None,
    drop_missing: DropMissing = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Write an orthonormal basis of the tangent space at each point of DATA.

    An npy or npz has shape (points, coordinates, directions); other files have a column for each number.

    \b
    Examples:
      carre tangent model points.csv --dim 2 --out tangents.npy
      carre tangent model points.csv --dim 2 --out tangents.csv
    """
    geometry = inputs.load_model(model, device)
    inputs.check_output(out, data, geometry)
    most = min(geometry.rank, geometry.dim)
    if not 1 <= dim <= most:
        raise ValueError(f"--dim must lie between 1 and {most}, the rank of MODEL or its columns; got {dim}")
    rows = inputs.load_data(geometry, data, columns=columns, drop_missing=drop_missing)
    with progress("tangent") as tell:
        basis = geometry.tangent_basis(rows.values, dim, sigma, progress=tell)
    inputs.write_answer(out, "tangent", basis, rows, prefix="tangent")
    facts = {"tangent spaces": f"{counted(dim, 'direction')} at {counted(len(basis), 'point')}"}
    _show(facts, {"n": len(basis), "dim": dim, "shape": basis.shape}, out, as_json)


def denoise(
    model: Model,
    data: Data,
    out: Out,
    sigma: Sigma = None,
    columns: Columns = None,
    drop_missing: DropMissing = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Pull the points of DATA back onto the data that MODEL has learned.

    With noise of deviation σ in the points, give that as --sigma. Images become an npy or npz of pixels in [0, 1].

    \b
    Examples:
      carre denoise model noisy.csv --out clean.csv
      carre denoise mnist digits.npy --sigma 0.5 --out clean.npy
    """
    geometry = inputs.load_model(model, device)
    inputs.check_output(out, data, geometry)
    rows = inputs.load_data(geometry, data, columns=columns, drop_missing=drop_missing)
    clean = geometry.denoise(rows.values, sigma)
    moved = _norms((clean - rows.values) / _units(geometry))
    in_pixels = rows.is_images and geometry.normalization is not None
    inputs.write_answer(out, "denoised", geometry.to_pixels(clean) if in_pixels else clean, rows)
    facts = {"denoised": f"{counted(len(clean), 'point')}, moved by {moved.mean():.4g} on average"}
    _show(facts, {"n": len(clean), "mean_distance": float(moved.mean())}, out, as_json)


def gradient(
    model: Model,
    data: Data,
    out: Out,
    of: Annotated[str | None, typer.Option(help="Column of DATA whose gradient is wanted.")] = None,
    values: Annotated[
        Path | None, typer.Option(help="File with a number for each row of DATA, instead of --of.")
    ] = None,
    sigma: Sigma = None,
    columns: Columns = None,
    drop_missing: DropMissing = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the gradient along the data of a quantity that was measured at the points of DATA.

    \b
    Examples:
      carre gradient model points.csv --of energy --out gradients.csv
      carre gradient model points.npy --values energies.npy --out gradients.npy
    """
    if (of is None) == (values is None):
        raise ValueError("give either --of COLUMN or --values FILE, the quantity whose gradient is wanted")
    geometry = inputs.load_model(model, device)
    inputs.check_output(out, data, geometry)
    drop = None if of is None else [of]
    rows = inputs.load_data(geometry, data, columns=columns, drop=drop, drop_missing=drop_missing)
    measured = _column(rows, of, data) if of is not None else _measured(values)
    if len(measured) != len(rows):
        numbers = counted(len(rows), "number")
        raise ValueError(f"--values must hold {numbers}, one for each row of DATA; got {len(measured)}")
    with naming({"values": "--values" if of is None else "--of"}), progress("gradient") as tell:
        found = geometry.gradient_of_values(rows.values, measured, rows.values, sigma, progress=tell)
    inputs.write_answer(out, "gradient", found, rows, prefix="gradient_")
    sizes = _norms(found / _units(geometry))
    facts = {"gradient": f"of {of or values} at {len(found):,} points; its size is {sizes.mean():.4g} on average"}
    _show(facts, {"n": len(found), "mean_size": float(sizes.mean())}, out, as_json)


def _units(geometry: carre.Geometry) -> Any:
    """Return what columns were divided by, to measure vectors as the geometry does."""
    return 1.0 if geometry.units is None else geometry.units.numpy()


def _column(rows: Rows, name: str, data: str) -> np.ndarray:
    """Return a column of numbers by its name."""
    if name in rows.names and not rows.is_images:
        column: np.ndarray = rows.values[:, list(rows.names).index(name)]
        return column
    if name not in rows.other:
        known = ", ".join([*rows.names, *rows.other][:12])
        raise ValueError(f"--of must be a column of {data}; there is no {name!r}. There are {known}")
    if rows.other[name].dtype.kind not in "fiub":
        raise ValueError(f"--of must be a column of numbers; {name!r} of {data} holds text or has empty cells")
    return rows.other[name]


def _measured(file: Any) -> np.ndarray:
    """Read one number for each row: an array with one axis, or a table of one column."""
    from carre.data.arrays import array_shapes, read_arrays  # noqa: PLC0415

    # Whatever is wrong is wrong with this file, not with DATA.
    wrong = "--values must be a file with one column of numbers"
    try:
        if file.suffix.lower() == ".npy" and file.is_file() and len(array_shapes(file)[""]) == 1:
            numbers: np.ndarray = read_arrays(file)["images"]
            return numbers
        table = carre.load_table(file)
    except carre.data.CellError as error:
        raise ValueError(f"{wrong}; {error.cell}") from error
    except carre.ArgumentError as error:
        raise ValueError(f"{wrong}; {error.worded('its key' if error.argument == 'key' else 'it')}") from error
    except (ValueError, FileNotFoundError) as error:
        raise ValueError(f"{wrong}; {error}") from error
    if table.shape[1] != 1:
        raise ValueError(f"{wrong}; {file} has {table.shape[1]}")
    return table.values[:, 0]


def path(
    model: Model,
    start: Annotated[
        str, typer.Argument(metavar="A", help="Row of --data, its number or id; or coordinates like 0.1,0.2.")
    ],
    end: Annotated[str, typer.Argument(metavar="B", help="The same for the end.")],
    out: Annotated[Path, typer.Option(help="File for the nodes: csv, tsv, parquet, json, npz or npy.")],
    data: Annotated[str | None, typer.Option(metavar="DATA", help="Table or images that A and B are rows of.")] = None,
    method: Annotated[
        Method, typer.Option(help="The shortest path, the flow of the paper, a thread (for images), a straight line.")
    ] = Method.geodesic,
    nodes: Annotated[int, typer.Option(help="How many nodes, with the start and the end.")] = 33,
    ids: Ids = None,
    sigma: Sigma = None,
    columns: Columns = None,
    drop_missing: DropMissing = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Find a path along the data from A to B; the shortest one runs between their foot points on the data.

    Rows have ids where a column of text has a different one in each; --id says which column, and may name numbers.
    Write -- before coordinates that begin with a minus. Paths of images are written as npy or npz, in pixels in [0, 1].

    \b
    Examples:
      carre path model 0 17 --data points.csv --out path.csv
      carre path model ann bob --data people.csv --id name --out path.csv
      carre path model --out path.csv -- -0.5,0.1,2 0.3,-0.2,1.5
      carre path mnist 3 8 --data digits/ --method thread --nodes 9 --out path.npy
    """
    if nodes > _MOST_NODES:
        raise ValueError(f"--nodes must be at most {_MOST_NODES:,}; got {nodes:,}")
    geometry = inputs.load_model(model, device)
    inputs.check_output(out, data, geometry)
    if ids is not None and data is None:
        raise ValueError(f"--data must be given, of which {ids!r} is a column")
    drop, rows = [ids] if ids is not None else None, None
    if data is not None:
        rows = inputs.load_data(geometry, data, columns=columns, drop=drop, drop_missing=drop_missing)
    (first, a), (last, b) = (_point(text, name, rows, geometry, ids) for text, name in ((start, "A"), (end, "B")))
    if first.ravel().tolist() == last.ravel().tolist():
        raise ValueError("A and B must be different points: there is no way to go between a point and itself")
    with progress("path") as tell:
        found = geometry.path(first, last, sigma, method=method.value, n_nodes=nodes, progress=tell)
    _write_nodes(out, found, geometry, rows)
    length, strayed, reason = float(found.length()), float(found.strayed), in_options(found.reasons[0])
    off, kept = found.ends_off[0].tolist(), "begins and ends where they are"
    if method is Method.geodesic:
        kept = "runs between their foot points"
    facts = {
        "from": f"{a} to {b}",
        "length": f"{length:.6g}, over {found.n_nodes} nodes",
        "on the data": f"yes, within {strayed:.2g} σ of them" if found.connected else f"no, up to {strayed:.2g} σ away",
        "ends": f"A is {off[0]:.2g} σ and B {off[1]:.2g} σ from the data; the path {kept}",
        "arrived": "yes" if found.arrived else "no",
    }
    facts |= {"note": reason} if reason else {}
    results: dict[str, Any] = {"length": length, "n_nodes": found.n_nodes, "connected": bool(found.connected)}
    results |= {"arrived": bool(found.arrived), "strayed": strayed, "ends_off": off, "reason": reason}
    _show(facts, results, out, as_json)


def _point(
    text: str, argument: str, rows: Rows | None, geometry: carre.Geometry, ids: str | None
) -> tuple[np.ndarray, str]:
    """Read the number or the id of a row, or coordinates, and say what was read."""
    import numpy as np  # noqa: PLC0415

    is_row, parts = ids is not None or text.strip().isdecimal(), text.split(",")
    try:
        coordinates = np.array([] if is_row else [float(part) for part in parts])
    except ValueError:
        is_row = True
    if is_row or (rows is not None and len(parts) < min(2, geometry.dim)):
        if rows is None:
            raise ValueError(f"--data must be given, for {argument} to be row {text} of it; or write coordinates")
        row = rows.row_of(text, argument, ids)
        number = row if rows.numbers is None else int(rows.numbers[row])
        return rows.values[row], f"row {number}" + f" ({text.strip()})" * (text.strip() != str(number))
    if len(coordinates) != geometry.dim:
        wanted = counted(geometry.dim, "coordinate")
        raise ValueError(f"{argument} must have {wanted}, like the samples of MODEL; got {len(coordinates)}")
    if not np.isfinite(coordinates).all():
        raise ValueError(f"{argument} must be finite coordinates like 0.1,0.2; got {text!r}")
    return coordinates, text


def _write_nodes(out: Path, found: carre.Path, geometry: carre.Geometry, rows: Rows | None) -> None:
    """Write the nodes with the share of the way that lies behind each; of images, the pictures."""
    nodes, time = found.numpy()[0], found.times()[0].numpy()
    if geometry.sample_shape is not None:
        pictures = geometry.to_images(nodes) if geometry.normalization is None else geometry.to_pixels(nodes)
        inputs.write_answer(out, "nodes", pictures, Rows(pictures, (), {}))
        return
    names = rows.names if rows is not None else geometry.feature_names or inputs.numbered(nodes.shape[1])
    called = "time_along" if "time" in names else "time"
    inputs.write_answer(out, "nodes", nodes, Rows(nodes, names, {}), more={called: time})


def _norms(vectors: Any) -> np.ndarray:
    import numpy as np  # noqa: PLC0415

    norms: np.ndarray = np.linalg.norm(np.asarray(vectors).reshape(len(vectors), -1), axis=1)
    return norms


def _show(facts: dict[str, str], results: dict[str, Any], out: Path | None, as_json: bool) -> None:
    written = {} if out is None else {"written to": str(out)}
    show(facts | written, results | {"out": out}, as_json=as_json)
