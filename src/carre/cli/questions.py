"""Questions at points: ``carre dimension``, ``tangent``, ``denoise`` and ``gradient``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carre.cli import inputs
from carre.cli.options import AsJson, Columns, Data, Device, Model, Sigma, check_positive, listed
from carre.cli.output import show
from carre.cli.wording import counted, naming

if TYPE_CHECKING:
    import numpy as np

Out = Annotated[Path, typer.Option(help="File to write: csv, tsv, parquet, json, npz or npy.")]


def dimension(
    model: Model,
    data: Data,
    sigma: Sigma = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the dimension at each point: csv, tsv, parquet, json, npz or npy.")
    ] = None,
    columns: Columns = None,
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
    from carre.data.writing import check_output  # noqa: PLC0415

    check_positive("--sigma", sigma)
    if out is not None:
        check_output(out)
    geometry = inputs.load_model(model, device)
    points = inputs.load_data(geometry, data, columns=listed(columns))
    estimate = geometry.estimate_dimension(points.values, sigma)
    if out is not None:
        more = {"dimension_low": estimate.low, "dimension_high": estimate.high}
        inputs.write_answer(out, "dimension", estimate.local, points, more=more)
    (low, high), error = estimate.interval, estimate.standard_error
    facts = {
        "dimension": f"{estimate.value} ({low} to {high} as σ varies by √2)",
        "mean": f"{estimate.mean:.2f}" + (f" ± {error:.2f}" if math.isfinite(error) else ""),
        "points": ", ".join(f"{share:.0%} have {kind}" for kind, share in _largest(estimate.shares)),
        "scale σ": f"{estimate.bandwidth:.4g}",
    }
    facts |= {"estimated": estimate.source} if estimate.source else {}
    names = ("value", "interval", "mean", "standard_error", "shares", "bandwidth", "source")
    results = {name: getattr(estimate, name) for name in names} | {"n": len(points.values)}
    _show(facts, results, out, as_json)


def tangent(
    model: Model,
    data: Data,
    out: Out,
    dim: Annotated[int, typer.Option(help="How many directions, the leading ones first.")],
    sigma: Sigma = None,
    columns: Columns = None,
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
    check_positive("--sigma", sigma)
    geometry = inputs.load_model(model, device)
    inputs.check_vectors_output(out, geometry)
    most = min(geometry.rank_, geometry.n_features_in_)
    if not 1 <= dim <= most:
        raise ValueError(f"--dim must lie between 1 and {most}, the rank of MODEL or its columns; got {dim}")
    points = inputs.load_data(geometry, data, columns=listed(columns))
    basis = geometry.tangent_basis(points.values, dim, sigma)
    inputs.write_answer(out, "tangent", basis, points, prefix="tangent")
    facts = {"tangent spaces": f"{counted(dim, 'direction')} at {counted(len(basis), 'point')}"}
    _show(facts, {"n": len(basis), "dim": dim, "shape": basis.shape}, out, as_json)


def denoise(
    model: Model,
    data: Data,
    out: Out,
    sigma: Sigma = None,
    columns: Columns = None,
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
    check_positive("--sigma", sigma)
    geometry = inputs.load_model(model, device)
    inputs.check_vectors_output(out, geometry)
    points = inputs.load_data(geometry, data, columns=listed(columns))
    clean = geometry.denoise(points.values, sigma)
    moved = _norms(clean - points.values)
    in_pixels = points.is_images and geometry.normalization_ is not None
    inputs.write_answer(out, "denoised", geometry.to_pixels(clean) if in_pixels else clean, points)
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
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the gradient along the data of a quantity that was measured at the points of DATA.

    \b
    Examples:
      carre gradient model points.csv --of energy --out gradients.csv
      carre gradient model points.npy --values energies.npy --out gradients.npy
    """
    import numpy as np  # noqa: PLC0415

    check_positive("--sigma", sigma)
    if (of is None) == (values is None):
        raise ValueError("give either --of COLUMN or --values FILE, the quantity whose gradient is wanted")
    geometry = inputs.load_model(model, device)
    inputs.check_vectors_output(out, geometry)
    points = inputs.load_data(geometry, data, columns=listed(columns), drop=None if of is None else [of])
    measured = _column(points, of, data) if of is not None else _measured(values)
    if len(measured) != len(points.values):
        raise ValueError(
            f"--values must hold {counted(len(points.values), 'number')}, one for each row of DATA; got {len(measured)}"
        )
    with naming(values="--values" if of is None else "--of"):
        found = geometry.gradient_of_values(points.values, measured, points.values, sigma)
    inputs.write_answer(out, "gradient", np.asarray(found), points, prefix="gradient_")
    sizes = _norms(found)
    facts = {"gradient": f"of {of or values} at {len(found):,} points; its size is {sizes.mean():.4g} on average"}
    _show(facts, {"n": len(found), "mean_size": float(sizes.mean())}, out, as_json)


def _column(points: inputs.Data, name: str, data: str) -> np.ndarray:
    """Return a column of numbers by its name."""
    if name in points.names and not points.is_images:
        column: np.ndarray = points.values[:, list(points.names).index(name)]
        return column
    if name not in points.other:
        known = ", ".join([*points.names, *points.other][:12])
        raise ValueError(f"--of must be a column of {data}; there is no {name!r}. There are {known}")
    if points.other[name].dtype.kind not in "fiub":
        raise ValueError(f"--of must be a column of numbers; {name!r} of {data} holds text or has empty cells")
    return points.other[name]


def _measured(file: Any) -> np.ndarray:
    """Read one number for each row: an array with one axis, or a table of one column."""
    from carre.data import load_table  # noqa: PLC0415
    from carre.data.arrays import read_arrays  # noqa: PLC0415
    from carre.data.headers import array_shapes  # noqa: PLC0415

    # Whatever is wrong is wrong with this file, not with DATA.
    wrong = "--values must be a file with one column of numbers"
    try:
        if file.suffix.lower() == ".npy" and file.is_file() and len(array_shapes(file)[""]) == 1:
            numbers: np.ndarray = read_arrays(file)["images"]
            return numbers
        table = load_table(file)
    except (ValueError, FileNotFoundError) as error:
        said = str(error).replace("path must", "it must").replace("key must", "its key must")
        raise ValueError(f"{wrong}; {said.replace(', or leave the column out (drop)', '')}") from error
    if table.shape[1] != 1:
        raise ValueError(f"{wrong}; {file} has {table.shape[1]}")
    return table.values[:, 0]


def _norms(vectors: Any) -> np.ndarray:
    import numpy as np  # noqa: PLC0415

    norms: np.ndarray = np.linalg.norm(np.asarray(vectors).reshape(len(vectors), -1), axis=1)
    return norms


def _largest(shares: dict[int, float]) -> list[tuple[int, float]]:
    return sorted(shares.items(), key=lambda pair: -pair[1])[:4]


def _show(facts: dict[str, str], results: dict[str, Any], out: Path | None, as_json: bool) -> None:
    written = {} if out is None else {"written to": str(out)}
    show(facts | written, results | {"out": out}, as_json=as_json)
