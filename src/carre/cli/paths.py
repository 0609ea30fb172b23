"""``carre path``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carre.cli import inputs
from carre.cli.options import AsJson, Columns, Device, Model, Sigma, check_positive, listed
from carre.cli.output import show
from carre.cli.wording import counted

if TYPE_CHECKING:
    import numpy as np

    from carre import MetricMatching

_MOST_NODES = 10_000


class Method(StrEnum):
    """How a path is found."""

    geodesic = "geodesic"
    flow = "flow"
    thread = "thread"


def path(
    model: Model,
    start: Annotated[str, typer.Argument(metavar="A", help="Row of --data, from 0, or coordinates like 0.1,0.2.")],
    end: Annotated[str, typer.Argument(metavar="B", help="The same for the end.")],
    out: Annotated[Path, typer.Option(help="File for the nodes: csv, tsv, parquet, json, npz or npy.")],
    data: Annotated[str | None, typer.Option(metavar="DATA", help="Table or images that A and B are rows of.")] = None,
    method: Annotated[
        Method, typer.Option(help="The shortest path, the flow of the paper, or a thread (for images).")
    ] = Method.geodesic,
    nodes: Annotated[int, typer.Option(help="How many nodes, with the start and the end.")] = 33,
    sigma: Sigma = None,
    columns: Columns = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Find a path along the data from A to B.

    Write -- before coordinates that begin with a minus. Paths of images are written as npy or npz, in pixels in [0, 1].

    \b
    Examples:
      carre path model 0 17 --data points.csv --out path.csv
      carre path model --out path.csv -- -0.5,0.1,2 0.3,-0.2,1.5
      carre path mnist 3 8 --data digits/ --method thread --nodes 9 --out path.npy
    """
    check_positive("--sigma", sigma)
    if nodes < 2:
        raise ValueError(f"--nodes must be at least 2, the start and the end; got {nodes}")
    if nodes > _MOST_NODES:
        raise ValueError(f"--nodes must be at most {_MOST_NODES:,}; got {nodes:,}")
    geometry = inputs.load_model(model, device)
    inputs.check_vectors_output(out, geometry)
    points = None if data is None else inputs.load_data(geometry, data, columns=listed(columns))
    first, last = (_point(text, argument, points, geometry) for text, argument in ((start, "A"), (end, "B")))
    if first.ravel().tolist() == last.ravel().tolist():
        raise ValueError("A and B must be different points: there is no way to go between a point and itself")
    construct = {"geodesic": geometry.geodesic, "flow": geometry.interpolate, "thread": geometry.thread}[method.value]
    found = construct(first, last, sigma, n_nodes=nodes)
    _write(out, found.numpy()[0], geometry, points)
    length, strayed = float(found.length()), float(found.strayed)
    facts = {
        "length": f"{length:.6g}, over {found.n_nodes} nodes",
        "on the data": f"{'yes' if bool(found.connected) else 'no'}; it strays by {strayed:.2g} σ at most",
        "arrived": "yes" if bool(found.arrived) else "no",
        **({"note": found.reasons[0]} if found.reasons[0] else {}),
        "written to": str(out),
    }
    results = {
        "length": length,
        "n_nodes": found.n_nodes,
        "connected": bool(found.connected),
        "arrived": bool(found.arrived),
        "strayed": strayed,
        "reason": found.reasons[0],
        "out": out,
    }
    show(facts, results, as_json=as_json)


def _point(text: str, argument: str, points: inputs.Data | None, geometry: MetricMatching) -> np.ndarray:
    """Read a row number, or coordinates."""
    import numpy as np  # noqa: PLC0415

    if text.strip().isdecimal():
        if points is None:
            raise ValueError(f"--data must be given, for {argument} to be row {text} of it; or write coordinates")
        if int(text) >= len(points.values):
            raise ValueError(f"{argument} must be a row from 0 to {len(points.values) - 1}; got {text}")
        row: np.ndarray = points.values[int(text)]
        return row
    try:
        coordinates = np.array([float(part) for part in text.split(",")])
    except ValueError as error:
        raise ValueError(f"{argument} must be a row number, or coordinates like 0.1,0.2; got {text!r}") from error
    n_wanted, n_found = geometry.n_features_in_, len(coordinates)
    if n_found != n_wanted:
        raise ValueError(
            f"{argument} must have {counted(n_wanted, 'coordinate')}, like the samples of MODEL; got {n_found}"
        )
    if not np.isfinite(coordinates).all():
        raise ValueError(f"{argument} must be finite coordinates like 0.1,0.2; got {text!r}")
    return coordinates


def _write(out: Path, nodes: np.ndarray, geometry: MetricMatching, points: inputs.Data | None) -> None:
    """Write the nodes with the share of the way that lies behind each; of images, the pictures."""
    import numpy as np  # noqa: PLC0415

    if geometry.sample_shape_ is not None:
        pictures = geometry.to_images(nodes) if geometry.normalization_ is None else geometry.to_pixels(nodes)
        inputs.write_answer(out, "nodes", pictures, inputs.Data(pictures, (), {}, "path"))
        return
    steps = np.linalg.norm(np.diff(nodes, axis=0), axis=1)
    time = np.concatenate([[0.0], np.cumsum(steps) / max(float(steps.sum()), np.finfo(float).tiny)])
    known = getattr(geometry, "feature_names_in_", None)
    names = [f"x{i}" for i in range(nodes.shape[1])] if known is None else [str(name) for name in known]
    called = names if points is None else points.names
    inputs.write_answer(out, "nodes", nodes, inputs.Data(nodes, called, {}, "path"), more={"time": time})
