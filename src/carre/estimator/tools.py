"""The toolkit as methods: each places points where the fit computes, calls one function, and brings the answer back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from carre import toolkit
from carre.estimator.calculus import CalculusMethods
from carre.estimator.conversion import of_arrays
from carre.estimator.paths import PathMethods
from carre.toolkit import DimensionEstimate, LocalScales, Minimum, RankAdvice, ScaleProfile, Validity
from carre.training import History, linear_phase


class ToolMethods(CalculusMethods, PathMethods):
    """The tools of `MetricMatching`: functions of `carre.toolkit` at the fitted field and its default scale.

    Everywhere, ``bandwidth=None`` takes ``bandwidth_``, and ``dim=None`` the eigenvalues above ⅓ at each point, which
    also counts the direction across an edge. Answers carry no autograd graph; the functions of the toolkit do.

    Where X is given as images, the caller's functions see images, and points and vectors come back as images; bases,
    what refers to them, and the nodes of paths stay flat (`to_images` unfolds nodes).

    In the examples ``geometry`` was fitted on the 360 points X of a circle (`QueryMethods`).
    """

    scale_profile_: ScaleProfile | None
    history_: History

    def estimate_dimension(self, X: Any, bandwidth: float | None = None) -> DimensionEstimate:
        """Estimate the dimension at each point and on the whole, with its uncertainty.

        Where training ended before the network saw what a kernel sees (`LinearPhaseWarning`), and no bandwidth is
        given, the kernel answers instead, and ``source`` says so.

        Example:
            >>> estimate = geometry.estimate_dimension(X)
            >>> estimate.value, estimate.interval, estimate.shares
            (1, (1, 1), {1: 1.0})
        """
        points = self._validated(X)
        placed = points.tensor.detach().to(self.device_)
        if bandwidth is not None:
            self._sigma(points, bandwidth)
        with self._bar("dimension") as progress:
            if bandwidth is None and linear_phase(self.history_) is not None:
                choice = self._kernel_of(placed)
                found = toolkit.estimate_dimension(choice.field, placed, choice.bandwidth, progress=progress)
                source = "by a kernel on the landmarks, since the network has not resolved the data; train longer"
                return dataclasses.replace(found, source=source)
            sigma = self.bandwidth_ if bandwidth is None else bandwidth
            return toolkit.estimate_dimension(
                self.field_, placed, sigma, bandwidth_range=self.bandwidth_range_, progress=progress
            )

    def local_bandwidths(self, X: Any) -> LocalScales:
        """Choose a scale for each point; needs a fit that chose its own (``bandwidth=None``).

        Example:
            >>> scales = geometry.local_bandwidths(X)
            >>> bool((scales.bandwidth == geometry.bandwidth_).all())  # all points of a circle are alike
            True
        """
        points = self._validated(X)
        if self.scale_profile_ is None:
            raise ValueError(
                "bandwidth must be None at the fit to choose local ones; it was given, so nothing was compared"
            )
        with self._bar("scales") as progress:
            placed = points.tensor.detach().to(self.device_)
            return toolkit.choose_local_bandwidths(self.field_, placed, self.scale_profile_, progress=progress)

    def recommend_rank(self, X: Any) -> RankAdvice:
        """Recommend a rank for the next fit, from the local dimensions at samples.

        Example:
            >>> advice = geometry.recommend_rank(X)
            >>> advice.rank, advice.reason
            (4, '2d + 2 for data of dimension up to 1')
        """
        counts = np.asarray(torch.as_tensor(self.dimension(X)).cpu())
        return toolkit.recommend_rank(counts, self.rank_, self.field_.frame.dim)

    def project(self, X: Any, vectors: Any, bandwidth: Any = None, *, dim: int | None = None) -> Any:
        """Project a vector at each point onto the data; of a Euclidean gradient, this is the intrinsic one.

        Example:
            >>> np.abs(geometry.project(X[:1], [[1.0, 1.0]])).round(1)
            array([[0., 1.]])
        """
        return self._at(toolkit.project, X, bandwidth, dim=dim, partner=("vectors", vectors), vectors=True)

    def tangent_angles(self, X: Any, others: Any, *, dim: int, bandwidth: Any = None) -> Any:
        """Return the principal angles between the tangent spaces at pairs of points, in radians.

        Example:
            >>> geometry.tangent_angles(X[:1], X[40:41], dim=1).round(1)  # 40 degrees are 0.7
            array([[0.7]])
        """
        return self._at(toolkit.tangent_angles, X, bandwidth, dim=dim, partner=("others", others))

    def minimize(
        self,
        function: Callable[[Any], Any],
        starts: Any,
        bandwidth: Any = None,
        *,
        gradient: Any = None,
        **options: Any,
    ) -> Minimum:
        """Minimize a function along the data, from many starts at once (`carre.toolkit.minimize`).

        Example:
            >>> lowest = geometry.minimize(lambda x: x[:, 1], X[::90], tolerance=0.01)
            >>> round(float(lowest.values[lowest.best]), 1)
            -1.0
        """
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
        """Follow the gradient of a function along the data by fixed steps (`carre.toolkit.gradient_flow`).

        Example:
            >>> flow = geometry.gradient_flow(lambda x: x[:, 1], X[:1], step=0.2, n_steps=20)
            >>> bool(np.allclose(flow[0, -1], [0.0, -1.0], atol=0.1))  # downhill, from (1, 0)
            True
        """
        function, gradient = of_arrays(function, gradient, starts)
        return self._at(toolkit.gradient_flow, starts, bandwidth, function, gradient=gradient, vectors=True, **options)

    def check(self, X: Any, bandwidth: Any = None, **options: Any) -> Validity:
        """Check whether the geometry can be relied on at points (`carre.toolkit.check`).

        Example:
            >>> geometry.check([[1.0, 0.0], [2.0, 0.0]]).valid
            array([ True, False])
        """
        validity: Validity = self._at(toolkit.check, X, bandwidth, **self._by_landmarks(options))
        return validity
