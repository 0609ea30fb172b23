"""The toolkit as methods: each places points where the fit computes, calls one function, and brings the answer back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from carre import toolkit
from carre.estimator.conversion import as_batch, brought_back, converted, of_arrays, of_images
from carre.estimator.queries import QueryMethods
from carre.toolkit import (
    DimensionEstimate,
    LocalScales,
    Minimum,
    Path,
    RankAdvice,
    SampleGraph,
    ScaleProfile,
    Validity,
)
from carre.toolkit.batches import Progress
from carre.training import History, linear_phase

_BAR_AFTER_SECONDS = 2.0


class ToolMethods(QueryMethods):
    """The tools of `MetricMatching`: functions of `carre.toolkit` at the fitted field and its default scale.

    Everywhere, ``bandwidth=None`` takes ``bandwidth_``, and ``dim=None`` the eigenvalues above ⅓ at each point, which
    also counts the direction across an edge. Answers carry no autograd graph; the functions of the toolkit do.

    Where X is given as images, the caller's functions see images, and points and vectors come back as images; bases,
    what refers to them, and the nodes of paths stay flat (`to_images` unfolds nodes).
    """

    scale_profile_: ScaleProfile | None
    landmarks_: Tensor
    history_: History
    verbose: bool

    def estimate_dimension(self, X: Any, bandwidth: float | None = None) -> DimensionEstimate:
        """Estimate the dimension at each point and on the whole, with its uncertainty.

        Where training ended before the network saw what a kernel sees (`LinearPhaseWarning`), and no bandwidth is
        given, the kernel answers instead, and ``source`` says so.
        """
        placed = self._validated(X).tensor.detach().to(self.device_)
        with self._bar("dimension") as progress:
            if bandwidth is None and linear_phase(self.history_) is not None:
                choice = toolkit.choose_kernel(self.landmarks_.to(placed))
                found = toolkit.estimate_dimension(choice.field, placed, choice.bandwidth, progress=progress)
                source = "by a kernel on the landmarks, since the network has not resolved the data; train longer"
                return dataclasses.replace(found, source=source)
            sigma = self.bandwidth_ if bandwidth is None else bandwidth
            return toolkit.estimate_dimension(
                self.field_, placed, sigma, bandwidth_range=self.bandwidth_range_, progress=progress
            )

    def local_bandwidths(self, X: Any) -> LocalScales:
        """Choose a scale for each point; needs a fit that chose its own (``bandwidth=None``)."""
        points = self._validated(X)
        if self.scale_profile_ is None:
            raise ValueError(
                "bandwidth must be None at the fit to choose local ones; it was given, so nothing was compared"
            )
        with self._bar("scales") as progress:
            placed = points.tensor.detach().to(self.device_)
            return toolkit.choose_local_bandwidths(self.field_, placed, self.scale_profile_, progress=progress)

    def recommend_rank(self, X: Any) -> RankAdvice:
        """Recommend a rank for the next fit, from the local dimensions at samples."""
        counts = np.asarray(torch.as_tensor(self.dimension(X)).cpu())
        return toolkit.recommend_rank(counts, self.rank_, self.field_.frame.dim)

    def project(self, X: Any, vectors: Any, bandwidth: Any = None, *, dim: int | None = None) -> Any:
        """Project a vector at each point onto the data; of a Euclidean gradient, this is the intrinsic one."""
        return self._at(toolkit.project, X, bandwidth, dim=dim, partner=("vectors", vectors), vectors=True)

    def tangent_angles(self, X: Any, others: Any, *, dim: int, bandwidth: Any = None) -> Any:
        """Return the principal angles between the tangent spaces at pairs of points, in radians."""
        return self._at(toolkit.tangent_angles, X, bandwidth, dim=dim, partner=("others", others))

    def gradient(self, function: Callable[[Tensor], Tensor], X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the intrinsic gradient of a torch function at each point (`carre.toolkit.gradient`)."""
        return self._at(toolkit.gradient, X, bandwidth, function, vectors=True, **options)

    def gradient_of_values(self, samples: Any, values: Any, X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the intrinsic gradient of a quantity that is known at samples (`carre.toolkit.gradient_of_values`)."""
        known = self._validated(samples, name="samples").tensor.detach().to(self.device_)
        return self._at(toolkit.gradient_of_values, X, bandwidth, known, values, vectors=True, **options)

    def carre_du_champ_of(self, left: Any, right: Any, X: Any, bandwidth: Any = None) -> Any:
        """Return Γ(f, h) = ½⟨∇f, ∇h⟩ of torch functions or maps at each point (`carre.toolkit.carre_du_champ`)."""
        return self._at(toolkit.carre_du_champ, X, bandwidth, left, right)

    def laplacian(self, function: Callable[[Tensor], Tensor], X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the Laplace–Beltrami operator of a torch function at each point (`carre.toolkit.laplacian`)."""
        return self._at(toolkit.laplacian, X, bandwidth, function, **options)

    def divergence(
        self, vector_field: Callable[[Tensor], Tensor], X: Any, bandwidth: Any = None, **options: Any
    ) -> Any:
        """Return the divergence along the data of a torch vector field (`carre.toolkit.divergence`)."""
        return self._at(toolkit.divergence, X, bandwidth, vector_field, **options)

    def hessian(self, function: Callable[[Tensor], Tensor], X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the Hessian along the data in a tangent basis, and that basis (`carre.toolkit.hessian`)."""
        return self._at(toolkit.hessian, X, bandwidth, function, **options)

    def second_fundamental_form(self, X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return how the data bend, and the basis it refers to (`carre.toolkit.second_fundamental_form`)."""
        return self._at(toolkit.second_fundamental_form, X, bandwidth, **options)

    def mean_curvature(self, X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the mean curvature vector at each point (`carre.toolkit.mean_curvature`)."""
        return self._at(toolkit.mean_curvature, X, bandwidth, vectors=True, **options)

    def scalar_curvature(self, X: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the scalar curvature at each point (`carre.toolkit.scalar_curvature`)."""
        return self._at(toolkit.scalar_curvature, X, bandwidth, **options)

    def minimize(
        self,
        function: Callable[[Any], Any],
        starts: Any,
        bandwidth: Any = None,
        *,
        gradient: Any = None,
        **options: Any,
    ) -> Minimum:
        """Minimize a function along the data, from many starts at once (`carre.toolkit.minimize`)."""
        function, gradient = of_arrays(function, gradient, starts)
        minimum: Minimum = self._at(toolkit.minimize, starts, bandwidth, function, gradient=gradient, **options)
        return minimum

    def gradient_flow(
        self,
        function: Callable[[Any], Any],
        starts: Any,
        bandwidth: Any = None,
        *,
        gradient: Any = None,
        **options: Any,
    ) -> Any:
        """Follow the gradient of a function along the data by fixed steps (`carre.toolkit.gradient_flow`)."""
        function, gradient = of_arrays(function, gradient, starts)
        return self._at(toolkit.gradient_flow, starts, bandwidth, function, gradient=gradient, vectors=True, **options)

    def interpolate(self, start: Any, end: Any, bandwidth: Any = None, **options: Any) -> Path:
        """Flow from start to end along the data, as in the paper (`carre.toolkit.interpolate`)."""
        return self._between(toolkit.interpolate, start, end, bandwidth, **options)

    def geodesic(self, start: Any, end: Any, bandwidth: Any = None, **options: Any) -> Path:
        """Find the shortest path along the data, by way of the landmarks (`carre.toolkit.geodesic`)."""
        return self._between(toolkit.geodesic, start, end, bandwidth, **self._by_graph(bandwidth, options))

    def thread(self, start: Any, end: Any, bandwidth: Any = None, **options: Any) -> Path:
        """Draw a thread between points through the data, for images and other rough data (`carre.toolkit.thread`).

        ``finest`` is the smallest trained σ unless it is given.
        """

        def thread(field: Any, first: Tensor, last: Tensor, scale: Any, **more: Any) -> Path:
            finest = torch.as_tensor(scale).clamp(max=self.bandwidth_range_[0])
            return toolkit.thread(field, first, last, scale, **{"finest": finest, **more})

        return self._between(thread, start, end, bandwidth, **options)

    def geodesic_distances(self, X: Any, others: Any = None, bandwidth: Any = None, **options: Any) -> Any:
        """Return the lengths of geodesics from every point to every other one, shape (n, m)."""

        def geodesic_distances(field: Any, points: Tensor, *rest: Any, **more: Any) -> Any:
            # Without others each pair is asked for once.
            return toolkit.geodesic_distances(field, points, *(rest if len(rest) == 2 else (None, *rest)), **more)

        return self._at(
            geodesic_distances, X, bandwidth, partner=("others", others), **self._by_graph(bandwidth, options)
        )

    def exponential(self, X: Any, velocities: Any, bandwidth: Any = None, **options: Any) -> Path:
        """Leave each point along the data with a velocity, for unit time (`carre.toolkit.exponential`)."""
        path: Path = self._at(toolkit.exponential, X, bandwidth, partner=("velocities", velocities), **options)
        return path

    def logarithm(self, X: Any, others: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the velocities with which geodesics leave X to be at the others after unit time."""
        by_graph = self._by_graph(bandwidth, options)
        return self._at(toolkit.logarithm, X, bandwidth, partner=("others", others), vectors=True, **by_graph)

    def parallel_transport(self, path: Path, vectors: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Carry vectors along paths (`carre.toolkit.parallel_transport`)."""
        points = self._validated(vectors, name="vectors")
        placed = converted(path, lambda _, tensor: tensor.to(self.device_))
        sigma = self.bandwidth_ if bandwidth is None else bandwidth
        with self._bar("transport") as progress:
            carried = toolkit.parallel_transport(
                self.field_, placed, points.tensor.to(placed.nodes), sigma, progress=progress, **options
            )
        return points.restore_vectors(carried)

    def check(self, X: Any, bandwidth: Any = None, **options: Any) -> Validity:
        """Check whether the geometry can be relied on at points (`carre.toolkit.check`)."""
        validity: Validity = self._at(toolkit.check, X, bandwidth, **self._by_landmarks(options))
        return validity

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

    def __getstate__(self) -> Any:
        # The graph is made again when it is needed.
        return {name: value for name, value in super().__getstate__().items() if name != "_graph"}  # type: ignore[attr-defined]

    @contextmanager
    def _bar(self, task: str) -> Iterator[Progress]:
        """Draw a progress bar on a terminal, for work that takes more than a moment."""
        disable = None if self.verbose else True
        with tqdm(total=100, desc=task, unit="%", delay=_BAR_AFTER_SECONDS, disable=disable) as bar:
            yield lambda fraction: bar.update(int(100 * fraction) - bar.n)
