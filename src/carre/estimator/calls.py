"""How a tool is called: points are placed where the fit computes, and the answer is brought back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor
from tqdm import tqdm

from carre import toolkit
from carre.estimator.conversion import as_batch, brought_back, converted, of_images
from carre.estimator.queries import QueryMethods
from carre.toolkit import KernelChoice, Path, SampleGraph
from carre.toolkit.batches import Progress

_BAR_AFTER_SECONDS = 2.0
# Kept for the next call, and made again where they are missing.
_REMADE = ("_graph", "_kernel")


class ToolCalls(QueryMethods):
    """What the methods that are functions of `carre.toolkit` share: the call, the landmarks and a progress bar."""

    landmarks_: Tensor
    verbose: bool

    def _at(
        self,
        function: Callable[..., Any],
        X: Any,
        bandwidth: Any,
        *before: Any,
        partner: tuple[str, Any] = ("", None),
        vectors: bool = False,
        **options: Any,
    ) -> Any:
        """Call ``function(field, *before, points, [partner,] bandwidth)`` where the fit computes.

        Args:
            function: The tool.
            X: The points.
            bandwidth: σ, one number or one per point.
            before: What the tool takes before the points; functions of points see what the caller gave.
            partner: Other points, or vectors, and what errors call them.
            vectors: Whether the answer is points or vectors.
            options: Of the tool.
        """
        points = self._validated(X)
        sigma = self._sigma(points, bandwidth).to(self.device_)
        given = points.tensor.detach().to(self.device_)
        name, other = partner
        beside = [] if other is None else [self._validated(other, name=name).tensor.detach().to(given)]
        before = tuple(of_images(argument, points.sample_shape) for argument in before)
        if "gradient" in options:
            options["gradient"] = of_images(options["gradient"], points.sample_shape)
        with self._bar(function.__name__) as progress:
            # A single σ is passed as one: for some tools there are not as many as points.
            scale = float(sigma[0]) if np.ndim(bandwidth) == 0 else sigma
            result = function(self.field_, *before, given, *beside, scale, progress=progress, **options)
        return brought_back(result, points, vectors=vectors)

    def _between(self, function: Callable[..., Path], start: Any, end: Any, bandwidth: Any, **options: Any) -> Path:
        """Call a construction of paths; a single point may be given as a vector, or as one image."""
        self._check_fitted()
        ends = {"start": start, "end": end}
        first, last = (self._validated(as_batch(x, self.sample_shape_), name=name) for name, x in ends.items())
        # One point may be given for all on either side.
        sigma = self._sigma(max(first, last, key=lambda points: len(points.tensor)), bandwidth)
        placed = first.tensor.detach().to(self.device_)
        with self._bar(function.__name__) as progress:
            scale = float(sigma[0]) if np.ndim(bandwidth) == 0 else sigma.to(self.device_)
            path = function(self.field_, placed, last.tensor.detach().to(placed), scale, progress=progress, **options)
        home: Path = converted(path, lambda _, tensor: tensor.to(first.tensor.device))
        return home

    def _by_landmarks(self, options: dict[str, Any]) -> dict[str, Any]:
        """Let a tool use the landmarks as samples, unless the caller has others."""
        return {"samples": self.landmarks_.to(self.device_), **options}

    def _by_graph(self, bandwidth: Any, options: dict[str, Any]) -> dict[str, Any]:
        """Let paths find their way over the landmarks; the graph of the latest scale is kept for the next call."""
        if "samples" in options or np.ndim(bandwidth) > 0:
            return self._by_landmarks(options)
        sigma = float(self.bandwidth_ if bandwidth is None else bandwidth)
        known: tuple[float, SampleGraph] | None = self.__dict__.get("_graph")
        if known is None or known[0] != sigma:
            with self._bar("graph of landmarks") as progress:
                graph = toolkit.sample_graph(self.field_, self.landmarks_.to(self.device_), sigma, progress=progress)
            self._graph = known = (sigma, graph)
        return {"samples": known[1], **options}

    def _kernel_of(self, points: Tensor) -> KernelChoice:
        """Choose a kernel on the landmarks, in the precision of points; it is kept for the next call."""
        known: KernelChoice | None = self.__dict__.get("_kernel")
        if known is None or known.field.samples.dtype != points.dtype:
            self._kernel = known = toolkit.choose_kernel(self.landmarks_.to(points))
        return known

    def _forget(self) -> None:
        for name in _REMADE:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> Any:
        return {name: value for name, value in super().__getstate__().items() if name not in _REMADE}  # type: ignore[attr-defined]

    @contextmanager
    def _bar(self, task: str) -> Iterator[Progress]:
        """Draw a progress bar on a terminal, for work that takes more than a moment."""
        disable = None if self.verbose else True
        with tqdm(total=100, desc=task, unit="%", delay=_BAR_AFTER_SECONDS, disable=disable) as bar:
            yield lambda fraction: bar.update(int(100 * fraction) - bar.n)
