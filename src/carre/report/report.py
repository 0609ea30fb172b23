"""The report: one file in which a person can look around in a fitted geometry."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from carre.report.content import ReportContent
from carre.report.explorer import explorer
from carre.report.inputs import as_count, as_destination, as_input, as_positive
from carre.report.markup import document, write_whole
from carre.report.measuring import measure
from carre.report.packing import as_json, numbers_of, pack_points
from carre.report.sections import directions, hero, origin, paths, training, validity

_SCRIPTS = ("unpacking.js", "colors.js", "drawing.js", "map.js", "explorer.js")
_CONTENTS = (
    ("explorer", "Scales and map"),
    ("directions", "Directions"),
    ("paths", "Paths"),
    ("validity", "Validity"),
    ("training", "Training"),
    ("origin", "How this was made"),
)


def write_report(
    geometry: Any,
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
        geometry: A fitted `carre.MetricMatching`.
        X: Points or images of the kind that it was fitted on; an `carre.data.ImageDataset`, too.
        path: Where to write; its folder must exist.
        labels: One class or number per point, to color by; missing ones may be None or NaN.
        columns: Further columns, as a mapping from names to one value per point, to color by and to read.
        pairs: Rows (i, j) to join by paths; None chooses two pairs, 0 leaves paths out.
        image_shape: (H, W) or (C, H, W) where the rows of a table are pictures.
        embedding: Coordinates of your own for the map, shape (n, 2); None takes two columns, or principal axes.
        bandwidth: The scale σ to report on; None takes that of the fit.
        title: The title of the page.
        max_points: How many points to show at most.
        seconds: About how long it may take: what is expensive is measured at fewer points, and the page says so.
        command: How the report was called, to be written into it.
        progress: Told how far the work is, between 0 and 1.

    Returns:
        Where it was written.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from carre import MetricMatching
        >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 60)
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> geometry = MetricMatching(max_steps=20, width=16, bandwidth=0.2, random_state=0).fit(circle)
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
    content = measure(
        geometry,
        given,
        bandwidth=None if bandwidth is None else as_positive(bandwidth, name="bandwidth"),
        max_points=as_count(max_points, name="max_points"),
        seconds=as_positive(seconds, name="seconds"),
        command=command,
        progress=progress,
    )
    write_whole(destination, render(content))
    if progress is not None:
        progress(1.0)
    return destination


def render(content: ReportContent) -> str:
    """Write everything that was measured as a page."""
    links = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in _CONTENTS)
    body = "\n".join(
        [
            '<a class="skip" href="#main">Skip to the report</a>',
            '<main id="main" tabindex="-1">',
            hero(content),
            f'<nav aria-label="Contents"><ul>{links}</ul></nav>',
            explorer(content),
            directions(content),
            paths(content),
            validity(content),
            training(content),
            origin(content, as_json(numbers_of(content), indent=1)),
            "</main>",
            f'<script type="application/json" id="data">{as_json(pack_points(content))}</script>',
        ]
    )
    return document(content.title, body, styles=("page.css", "report.css"), scripts=_SCRIPTS)
