"""What a field says at some points, from one forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.arguments import check_arguments
from carre.boundary import ArgumentError, Points
from carre.fields import MetricField
from carre.fields.field import denoised_in_parts, metric_in_parts
from carre.metric import LowRankMetric, Metric
from carre.sketch import card
from carre.toolkit import tangent_frame
from carre.toolkit.derivatives import euclidean_gradient
from carre.toolkit.edges import count_directions


@check_arguments
class Local:
    """What a geometry says at some points, each network asked once, when first needed.

    Attributes:
        field: The field that is asked.
        points: The points, as tensors, in the units that the field is asked in.
        bandwidth: σ at each point.

    Example:
        >>> import carre, numpy as np
        >>> X = np.random.default_rng(0).uniform(size=(200, 2))  # a square
        >>> geometry = carre.fit(X, max_steps=20, width=16, bandwidth=0.1, random_state=0)
        >>> local = geometry.at(X[:5])
        >>> local
        Local(5 points, σ = 0.1)
        >>> local.metric
        LowRankMetric(batch=(5,), rank=4, dim=2, ridge=0)
        >>> torch.allclose(2 * local.gamma().trace(), local.metric.trace())  # the paper's Γ = G/2
        True
        >>> local.denoised.shape, local.tangent_basis(1).shape, local.gradient(lambda x: x[:, 0]).shape
        ((5, 2), (5, 2, 1), (5, 2))
        >>> local.column_shares(2).round(2)[0]  # a square has both directions everywhere
        array([1., 1.])
    """

    def __init__(self, field: MetricField, given: Points, bandwidth: Float[Tensor, " n"], device: torch.device) -> None:
        self.field, self.points, self.bandwidth = field, given.tensor, bandwidth
        self._given, self._device = given, device

    def __repr__(self) -> str:
        low, high = float(self.bandwidth.min()), float(self.bandwidth.max())
        scale = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        return f"Local({len(self.points)} points, σ = {scale})"

    def _repr_html_(self) -> str:
        """Show what was asked already; nothing is asked for this."""
        known = [name for name in ("metric", "eigenvalues", "dimension") if name in self.__dict__]
        return card(repr(self), {"known": ", ".join(known) or "nothing yet: each answer is computed when asked for"})

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def _placed(self) -> tuple[Tensor, Tensor]:
        return self.points.to(self._device), self.bandwidth.to(self._device)

    def _without_graph(self) -> Any:
        return torch.set_grad_enabled(torch.is_grad_enabled() and self.points.requires_grad)

    @cached_property
    def metric(self) -> Metric:
        """The metric G at each point, low-rank, never formed; ``numpy.asarray`` makes it dense."""
        with self._without_graph():
            found = metric_in_parts(self.field, *self._placed)
        return found if found.device == self.points.device else found.to(self.points.device)

    @cached_property
    def _mean(self) -> Float[Tensor, "n dim"]:
        with self._without_graph():
            return denoised_in_parts(self.field, *self._placed).to(self.points.device)

    @property
    def denoised(self) -> Any:
        """E[X | Y=y] at each point: the pull back onto the data, in the shape of the points."""
        return self._given.restore_vectors(self._mean)

    @cached_property
    def eigenvalues(self) -> Any:
        """The leading eigenvalues of G, descending, shape (n, min(rank, D)): near 1 along the data, near 0 across."""
        return self._given.restore(self.metric.eigenvalues())

    @cached_property
    def dimension(self) -> Any:
        """The local intrinsic dimension, also at edges of the data (`carre.toolkit.local_dimension`)."""
        with self._without_graph():
            points, sigma = self._placed
            if getattr(self.field, "noise", 0.0) > 0:
                # Where samples are noisy, the data are where they are denoised to.
                points = self._mean.to(self._device)
                metric: Metric = metric_in_parts(self.field, points, sigma)
            else:
                metric = self.metric
            counts = count_directions(metric, points, sigma, partial(denoised_in_parts, self.field))
        return self._given.restore(counts.to(self.points.device))

    def gamma(self, *, centered: bool = True) -> Metric:
        """Return the paper's Γ = G/2; uncentered, Γ + (m−y)(m−y)ᵀ/2σ² with m = E[X | Y=y] [RMM, Eq. 5, 6].

        Args:
            centered: Whether to subtract the mean. Of a field that was fitted uncentered G/2 itself is uncentered.
        """
        if centered:
            return self.metric.scaled(0.5)
        if not isinstance(self.metric, LowRankMetric):
            raise ArgumentError("centered", "be True for a metric that is not of low rank")
        row = ((self._mean - self.points) / self.bandwidth[:, None])[:, None, :]
        return LowRankMetric(torch.cat([self.metric.factor, row], 1), self.metric.ridge).scaled(0.5)

    def tangent_basis(self, dimension: int) -> Any:
        """Return orthonormal bases of the tangent spaces, shape (n, D, dimension), leading direction first."""
        return self._given.restore_bases(self.metric.tangent_basis(dimension), by_name=True)

    def column_shares(self, dimension: int) -> Any:
        """Return which share of each column lies in the tangent space at each point: squared loadings, shape (n, D).

        That is (UUᵀ)_cc, the squared cosine between the axis of column c and the tangent space: 1 for a column that can
        change freely, 0 for one that cannot change at all. Over the columns they sum to the dimension. They have no
        sign, and do not depend on the basis, so that they can be averaged over points. Scaled columns count as scaled.
        """
        shares = self.metric.tangent_basis(dimension).square().sum(-1)
        return replace(self._given, units=None).restore_vectors(shares)

    def gradient(self, function: Callable[[Tensor], Tensor], *, dimension: int | None = None) -> Any:
        """Return the gradient of a torch function along the data at each point (`carre.toolkit.gradient`).

        Args:
            function: A torch function of points, (n, D) → (n,), that treats them one by one.
            dimension: Dimension of the data; None counts the eigenvalues above ⅓ at each point.
        """
        slope = euclidean_gradient(self._given.seen_by(function), self.points)[1]
        return self._given.restore_vectors(tangent_frame(self.metric, dimension).project(slope))
