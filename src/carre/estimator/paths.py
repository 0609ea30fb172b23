"""Paths along the data, as methods."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from carre import toolkit
from carre.estimator.calls import ToolCalls
from carre.estimator.conversion import converted
from carre.toolkit import Path


class PathMethods(ToolCalls):
    """The methods of `MetricMatching` that go from point to point along the data.

    In the examples ``geometry`` was fitted on the 360 points X of a circle (`QueryMethods`).
    """

    def interpolate(self, start: Any, end: Any, bandwidth: Any = None, **options: Any) -> Path:
        """Flow from start to end along the data, as in the paper (`carre.toolkit.interpolate`).

        Example:
            >>> path = geometry.interpolate(X[0], X[115])  # 2 radians apart, 1.7 across the circle
            >>> round(float(path.length()), 1)
            2.0
        """
        return self._between(toolkit.interpolate, start, end, bandwidth, **options)

    def geodesic(self, start: Any, end: Any, bandwidth: Any = None, **options: Any) -> Path:
        """Find the shortest path along the data, by way of the landmarks (`carre.toolkit.geodesic`).

        Example:
            >>> path = geometry.geodesic(X[0], X[115])  # 2 radians apart, 1.7 across the circle
            >>> round(float(path.length()), 1), path.connected.tolist()
            (2.0, [True])
        """
        return self._between(toolkit.geodesic, start, end, bandwidth, **self._by_graph(bandwidth, options))

    def thread(self, start: Any, end: Any, bandwidth: Any = None, **options: Any) -> Path:
        """Draw a thread between points through the data, for images and other rough data (`carre.toolkit.thread`).

        ``finest`` is the smallest trained σ unless it is given.

        Example:
            >>> path = geometry.thread(X[0], X[115], n_nodes=9)
            >>> bool(np.allclose(path.nodes.norm(dim=-1), 1.0, atol=0.1))  # all nodes are on the circle
            True
        """

        def thread(field: Any, first: Tensor, last: Tensor, scale: Any, **more: Any) -> Path:
            finest = torch.as_tensor(scale).clamp(max=self.bandwidth_range_[0])
            return toolkit.thread(field, first, last, scale, **{"finest": finest, **more})

        return self._between(thread, start, end, bandwidth, **options)

    def geodesic_distances(self, X: Any, others: Any = None, bandwidth: Any = None, **options: Any) -> Any:
        """Return the lengths of geodesics from every point to every other one, shape (n, m).

        Example:
            >>> geometry.geodesic_distances(X[[0, 57]], X[[115]]).round(1)  # 57 degrees are a radian
            array([[2.],
                   [1.]])
        """

        def geodesic_distances(field: Any, points: Tensor, *rest: Any, **more: Any) -> Any:
            # Without others each pair is asked for once.
            return toolkit.geodesic_distances(field, points, *(rest if len(rest) == 2 else (None, *rest)), **more)

        return self._at(
            geodesic_distances, X, bandwidth, partner=("others", others), **self._by_graph(bandwidth, options)
        )

    def exponential(self, X: Any, velocities: Any, bandwidth: Any = None, **options: Any) -> Path:
        """Leave each point along the data with a velocity, for unit time (`carre.toolkit.exponential`).

        Example:
            >>> path = geometry.exponential(X[:1], [[0.0, np.pi / 2]], n_steps=12)
            >>> bool(np.allclose(path.numpy()[0, -1], [0.0, 1.0], atol=0.1))  # a quarter of the circle
            True
        """
        path: Path = self._at(toolkit.exponential, X, bandwidth, partner=("velocities", velocities), **options)
        return path

    def logarithm(self, X: Any, others: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Return the velocities with which geodesics leave X to be at the others after unit time.

        Example:
            >>> velocity = geometry.logarithm(X[:1], X[90:91])
            >>> bool(np.allclose(velocity, [[0.0, np.pi / 2]], atol=0.1))
            True
        """
        by_graph = self._by_graph(bandwidth, options)
        return self._at(toolkit.logarithm, X, bandwidth, partner=("others", others), vectors=True, **by_graph)

    def parallel_transport(self, path: Path, vectors: Any, bandwidth: Any = None, **options: Any) -> Any:
        """Carry vectors along paths (`carre.toolkit.parallel_transport`).

        Example:
            >>> quarter = geometry.geodesic(X[0], X[90])
            >>> carried = geometry.parallel_transport(quarter, [[0.0, 1.0]])
            >>> bool(np.allclose(carried[0, -1], [-1.0, 0.0], atol=0.1))  # it stays tangent
            True
        """
        points = self._validated(vectors, name="vectors")
        placed = converted(path, lambda _, tensor: tensor.to(self.device_))
        sigma = self.bandwidth_ if bandwidth is None else bandwidth
        with self._bar("transport") as progress:
            carried = toolkit.parallel_transport(
                self.field_, placed, points.tensor.to(placed.nodes), sigma, progress=progress, **options
            )
        return points.restore_vectors(carried)
