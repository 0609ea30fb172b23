"""The page: everything that was measured, through the templates, into one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from carre.backend.surroundings import plain_surroundings
from carre.boundary import as_count
from carre.files import alone, write_whole
from carre.geometry import Geometry
from carre.report._charts import curve_axes, gain_curves, histogram_axes, spectrum_axes
from carre.report._content import ReportContent
from carre.report._inputs import as_destination, as_input, as_positive
from carre.report._measuring import measure
from carre.report._packing import as_json, numbers_of, pack_points
from carre.report._pictures import path_picture, tangent_picture
from carre.text import visible
from carre.toolkit.question import telling
from carre.training import linear_phase

_STYLES = ("page.css", "report.css")
# They see one another, in this order.
_SCRIPTS = ("unpacking.js", "colors.js", "drawing.js", "map.js", "explorer.js")


@plain_surroundings()
def write_report(
    geometry: Geometry,
    X: Any,
    path: str | os.PathLike[str] = "report.html",
    *,
    labels: Any = None,
    columns: Any = None,
    pairs: Any = None,
    image_shape: Sequence[int] | None = None,
    embedding: Any = None,
    bandwidth: float | None = None,
    title: str | None = None,
    max_points: int = 10_000,
    seconds: float = 40.0,
    command: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Path:
    """Write a report on a fitted geometry: one HTML file to look around in, which needs no other and no network.

    It says how many dimensions the data have and how sure that is, shows them on a map that follows a slider over
    scales, in which directions they can move, paths between them, where all this is valid, and how it was made. The
    file appears complete or not at all; an older one stays until then.

    Args:
        geometry: The geometry, as `carre.fit` returns it.
        X: Points or images of the kind that it was fitted on; an `carre.data.ImageDataset`, too.
        path: Where to write; its folder must exist.
        labels: One class or number per point, to color by, or the name of one of ``columns``; missing ones may be None
            or NaN.
        columns: Further columns, as a mapping from names to one value per point, to color by and to read. Those that
            only name or number the rows are read, not colored by.
        pairs: Rows (i, j) to join by paths; None chooses two pairs, 0 leaves paths out.
        image_shape: (H, W) or (C, H, W) where the rows of a table are pictures.
        embedding: Coordinates of your own for the map, shape (n, 2); None takes two columns, or principal axes.
        bandwidth: The scale σ to report on; None takes that of the fit.
        title: The title of the page.
        max_points: How many points to show at most.
        seconds: About how long it may take: what is expensive is measured at fewer points, and the page says so.
        command: How the report was called, to be written into it.
        progress: Told how far the work is, between 0 and 1; None draws a bar, unless the geometry is not verbose.

    Returns:
        Where it was written.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import carre
        >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 60)
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> geometry = carre.fit(circle, max_steps=20, width=16, bandwidth=0.2, random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report(geometry, circle, folder + "/circle.html", pairs=0, seconds=1.0).name
        'circle.html'
    """
    destination = as_destination(path)
    given = as_input(
        geometry,
        X,
        labels=labels,
        columns=columns,
        pairs=pairs,
        image_shape=image_shape,
        embedding=embedding,
        title=title,
    )
    sigma = None if bandwidth is None else as_positive(bandwidth, name="bandwidth")
    count, limit = as_count(max_points, name="max_points"), as_positive(seconds, name="seconds")
    with alone(destination, "path"), telling(geometry, progress, "report") as told:
        content = measure(
            geometry, given, bandwidth=sigma, max_points=count, seconds=limit, command=command, progress=told
        )
        write_whole(destination, render(content))
        if told is not None:
            told(1.0)
    return destination


def render(content: ReportContent) -> str:
    """Write everything that was measured as a page."""
    page = templates().get_template("page.html")
    # Text is escaped by the templates, what scripts read by `as_json`.
    return page.render(
        content=content,
        points=Markup(as_json(pack_points(content))),
        numbers=Markup(as_json(numbers_of(content), indent=1)),
        styles=_STYLES,
        scripts=_SCRIPTS,
    )


@cache
def templates() -> Environment:
    """Prepare the templates: what they may call, and how they write numbers. They escape all text."""
    made = Environment(
        loader=PackageLoader("carre.report"),
        autoescape=True,
        undefined=StrictUndefined,
        # Markup is ours; text may come from names of columns.
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    called = (curve_axes, gain_curves, histogram_axes, linear_phase, path_picture, spectrum_axes, tangent_picture)
    made.globals.update({function.__name__: function for function in called}, asset=_asset)
    made.filters.update(number=format, median=np.median)
    return made


def _asset(name: str) -> Markup:
    """Read a style sheet or a script of this folder."""
    return Markup(files("carre.report").joinpath(name).read_text(encoding="utf-8"))
