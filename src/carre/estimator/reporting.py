"""The report as a method."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carre.estimator.calls import ToolCalls


class ReportMethods(ToolCalls):
    """What `MetricMatching` says about itself to people."""

    def report(
        self,
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
    ) -> Path:
        """Write a report: one HTML file to look around in, which needs no other and no network.

        It says how many dimensions the data have and how sure that is, shows them on a map that follows a slider over
        scales, in which directions they can move, paths between them, where all this is valid, and how it was made.
        Needs matplotlib (``pip install 'carre[plots]'``).

        Args:
            X: Points or images of the kind of the fit; an `carre.data.ImageDataset`, too.
            path: Where to write; its folder must exist.
            labels: One class or number per point, to color by; missing ones may be None or NaN.
            columns: Further columns, as a mapping from names to one value per point, to color by and to read.
            pairs: Rows (i, j) to join by paths; None chooses two pairs, 0 leaves paths out.
            image_shape: (H, W) or (C, H, W) where the rows of a table are pictures.
            embedding: Coordinates of your own for the map, shape (n, 2); None takes two columns, or principal axes.
            bandwidth: The scale σ to report on; None takes ``bandwidth_``.
            title: The title of the page.
            max_points: How many points to show at most.
            seconds: About how long it may take: what is expensive is measured at fewer points, and the page says so.
            command: How the report was called, to be written into it.

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
            ...     geometry.report(circle, folder + "/circle.html", labels=angle > 3, pairs=0, seconds=1.0).name
            'circle.html'
        """
        from carre.report import write_report  # noqa: PLC0415  # matplotlib takes a second

        self._check_fitted()
        with self._bar("report") as progress:
            return write_report(
                self,
                X,
                path,
                labels=labels,
                columns=columns,
                pairs=pairs,
                image_shape=image_shape,
                embedding=embedding,
                bandwidth=bandwidth,
                title=title,
                max_points=max_points,
                seconds=seconds,
                command=command,
                progress=progress,
            )
