"""What a fitted geometry answers at given points: the metric and what is read off it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from carre.boundary import Points, as_bandwidth, as_images, as_points
from carre.data import Table
from carre.estimator.conversion import coordinates, is_dataset, is_whole, shape_of
from carre.fields import NeuralField
from carre.metric import LowRankMetric
from carre.neighbors.memory import working_memory
from carre.toolkit import count_dimension, local_dimension

# Points at a time, at most, and what is held of each: so many factors.
_CHUNK, _COPIES = 16_384, 4
# Pixels are taken for not normalized where black would be a number below this.
_BLACK = -0.1
# Squares of larger samples, summed over columns, do not fit into float32.
_LARGEST = 1e17
# What is given beside points, and is not points: nothing is known of its values.
_VECTORS = ("vectors", "velocities")


class QueryMethods:
    """The questions of `MetricMatching` that need a fitted field, a default scale and a device, and nothing else.

    Points are of shape (n, D). After a fit on images they are images (n, C, H, W), or flat; points and vectors come
    back in the shape that was given, while bases and factors stay flat.

    In the examples of all methods, ``geometry`` was fitted on the points X of a circle, one per degree::

        import numpy as np
        import torch
        from carre import MetricMatching

        angle = np.radians(np.arange(360))
        X = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        geometry = MetricMatching(bandwidth_range=(0.05, 0.5), max_steps=200, width=32, random_state=0).fit(X)
    """

    field_: NeuralField
    rank_: int
    sample_shape_: tuple[int, int, int] | None
    normalization_: Any
    bandwidth_: float
    bandwidth_range_: tuple[float, float]
    device_: torch.device
    is_centered_: bool
    n_features_in_: int

    def metric(self, X: Any, bandwidth: Any = None) -> LowRankMetric:
        """Return the metric G at each point, as a `LowRankMetric` of tensors: n·rank·D numbers, with D flat.

        Args:
            X: Points, shape (n, D) or (n, C, H, W).
            bandwidth: σ, one number or one per point; None takes ``bandwidth_``.

        Example:
            >>> metric = geometry.metric(X[:1])
            >>> metric
            LowRankMetric(batch=(1,), rank=4, dim=2, ridge=0)
            >>> np.abs(metric).round(1)  # at (1, 0) the circle goes up
            array([[[0., 0.],
                    [0., 1.]]])
        """
        points = self._validated(X)
        factor = self._compute(points, bandwidth, lambda y, s: self.field_.metric(y, s).factor)
        return LowRankMetric(factor.to(points.tensor.device), self.field_.ridge)

    def carre_du_champ(self, X: Any, bandwidth: Any = None, *, centered: bool = True) -> LowRankMetric:
        """Return the paper's Γ = G/2; uncentered, Γ + (m−y)(m−y)ᵀ/2σ² with m = E[X | Y=y] [RMM, Eq. 5, 6].

        Example:
            >>> gamma = geometry.carre_du_champ(X[:1])
            >>> round(float(gamma.trace()), 1)  # half the dimension
            0.5
        """
        metric = self.metric(X, bandwidth)
        if not self.is_centered_:
            if centered:
                raise ValueError("centered must be False: this geometry was fitted with method='uncentered'")
            return metric.scaled(0.5)
        if not centered:
            points = self._validated(X)
            sigma = self._sigma(points, bandwidth)[:, None]
            mean = self._compute(points, bandwidth, self.field_.denoise).to(points.tensor.device)
            row = ((mean - points.tensor) / sigma)[:, None, :]
            metric = LowRankMetric(torch.cat([metric.factor, row], 1), metric.ridge)
        return metric.scaled(0.5)

    def tangent_basis(self, X: Any, dim: int, bandwidth: Any = None) -> Any:
        """Return orthonormal bases of the tangent spaces, shape (n, D, dim), leading direction first.

        Flat also for images: `tangent_images` returns the directions as images.

        Example:
            >>> np.abs(geometry.tangent_basis(X[:1], dim=1)).round(1)
            array([[[0.],
                    [1.]]])
        """
        points = self._validated(X)
        return points.restore(
            self._compute(points, bandwidth, lambda y, s: self.field_.metric(y, s).tangent_basis(dim))
        )

    def dimension(self, X: Any, bandwidth: Any = None, *, threshold: float | None = None) -> Any:
        """Return the local intrinsic dimension at each point.

        Args:
            X: Points, shape (n, D) or (n, C, H, W).
            bandwidth: σ, one number or one per point; None takes ``bandwidth_``.
            threshold: Count the eigenvalues of G above it. By default those above ½, and at edges of the data also the
                direction in which they end (`carre.toolkit.local_dimension`).

        Example:
            >>> geometry.dimension(X[::90])
            array([1, 1, 1, 1])
        """

        def count(y: Tensor, s: Tensor) -> Tensor:
            if threshold is not None:
                return count_dimension(self.field_.metric(y, s), threshold=threshold)
            result: Tensor = local_dimension(self.field_, y, s)
            return result

        points = self._validated(X)
        return points.restore(self._compute(points, bandwidth, count))

    def eigenvalues(self, X: Any, bandwidth: Any = None) -> Any:
        """Return the leading eigenvalues of G at each point, descending, shape (n, min(rank, D)).

        Example:
            >>> geometry.eigenvalues(X[:1]).round(1)  # along the circle, and across
            array([[1., 0.]])
        """
        points = self._validated(X)
        return points.restore(self._compute(points, bandwidth, lambda y, s: self.field_.metric(y, s).eigenvalues()))

    def denoise(self, X: Any, bandwidth: Any = None) -> Any:
        """Return E[X | Y=x] at each point: the pull back onto the data, in the shape of X.

        Example:
            >>> radius = np.linalg.norm(geometry.denoise(1.2 * X), axis=1)
            >>> round(float(radius.mean()), 1)
            1.0
        """
        points = self._validated(X)
        return points.restore_vectors(self._compute(points, bandwidth, self.field_.denoise))

    def _compute(self, points: Points, bandwidth: Any, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Apply a function of (points, σ) part by part on the device of the fit."""
        sigma = self._sigma(points, bandwidth).to(self.device_)
        tensor = points.tensor.to(self.device_)
        size = self._points_at_once(tensor)
        with torch.set_grad_enabled(torch.is_grad_enabled() and tensor.requires_grad):
            pairs = zip(torch.split(tensor, size), torch.split(sigma, size), strict=True)
            return torch.cat([function(y, s) for y, s in pairs])

    def _points_at_once(self, points: Tensor, memory: int | None = None) -> int:
        """Return at how many points factors, and a few copies of them, fit into given bytes or the working memory."""
        numbers = _COPIES * self.rank_ * self.field_.dim
        return max(1, min(_CHUNK, working_memory(points.device, memory) // (points.element_size() * numbers)))

    def _sigma(self, points: Points, bandwidth: Any) -> Tensor:
        sigma = as_bandwidth(self.bandwidth_ if bandwidth is None else bandwidth, points.tensor)
        low, high = self.bandwidth_range_
        if bool(((sigma < 0.99 * low) | (sigma > 1.01 * high)).any()):
            message = f"bandwidth lies outside the range ({low:.3g}, {high:.3g}) that was trained on; the answer is an "
            warnings.warn(message + "extrapolation. Fit with a wider bandwidth_range", UserWarning, stacklevel=4)
        return sigma

    def _check_fitted(self) -> None:
        check_is_fitted(self, "field_")

    def _validated(self, X: Any, *, name: str = "X") -> Points:
        """Check points: images and tensors here, everything else by scikit-learn, which also knows column names."""
        self._check_fitted()
        if isinstance(X, Table):
            values = coordinates(X, getattr(self, "feature_names_in_", None), name)
            self._check_normalized(values, name)
            return as_points(values, dim=self.n_features_in_, name=name)
        if is_dataset(X):
            X = self._images_of(X, name)
        elif name not in _VECTORS:
            self._check_normalized(X, name)
        shape = shape_of(X)
        if len(shape) < 2 and self.sample_shape_ is not None:
            raise ValueError(
                f"{name} must have shape (n, {', '.join(map(str, self.sample_shape_))}) or (n, {self.n_features_in_}); "
                f"got {shape}. Give a single image as {name}[None]"
            )
        if len(shape) > 2 and self.sample_shape_ is not None:
            return as_images(X, sample_shape=self.sample_shape_, name=name)
        if len(shape) > 2:
            raise ValueError(
                f"{name} must have shape (n, {self.n_features_in_}), like the samples of the fit; got {shape}. "
                f"Expected <= 2 axes: flatten with {name}.reshape(len({name}), -1)"
            )
        if isinstance(X, Tensor):
            return as_points(X, dim=self.field_.dim, name=name)
        return as_points(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]), name=name)

    def _images_of(self, dataset: Any, name: str) -> Any:
        """Return the images of a dataset, if they are normalized like the samples of the fit."""
        if dataset.normalization == self.normalization_:
            return dataset.images
        if self.normalization_ is None:
            raise ValueError(
                f"{name} must be an array or a tensor, like the samples of the fit, which had no normalization; got a "
                f"dataset with {dataset.normalization}. Fit on a dataset, or give {name}.images if you normalized alike"
            )
        raise ValueError(
            f"{name} must be normalized like the samples of the fit, by {self.normalization_}; got "
            f"{dataset.normalization}. Make a dataset with that normalization, or give its images"
        )

    def _check_normalized(self, X: Any, name: str) -> None:
        """Refuse whole numbers, and warn of numbers in [0, 1], where the samples of the fit were normalized pixels."""
        if self.normalization_ is None or self.sample_shape_ is None:
            return
        values: Any = X if isinstance(X, Tensor) else np.asarray(X)
        must = f"{name} must be normalized like the samples of the fit; got"
        remedy = f"Use geometry.normalization_.encode({name})"
        if is_whole(values):
            raise ValueError(f"{must} whole numbers. {remedy}")
        is_real = not values.is_complex() if isinstance(values, Tensor) else values.dtype.kind == "f"
        if not is_real or 0 in values.shape or not (values.min() >= 0 and values.max() <= 1):
            return
        if self.normalization_.encode(np.zeros((self.sample_shape_[0], 1, 1))).max() < _BLACK:
            warnings.warn(f"{must} pixels in [0, 1]. {remedy}", UserWarning, stacklevel=4)

    def _first_validated(self, X: Any) -> Points:
        """Check the samples of a fit, and note what they are: tables with or without column names, or images."""
        self.normalization_ = X.normalization if is_dataset(X) else None
        if not is_dataset(X):
            _warn_of_last_channels(X)
        names = X.names if isinstance(X, Table) else None
        X = X.images if is_dataset(X) else X.values if isinstance(X, Table) else X
        is_table = len(shape_of(X)) <= 2
        if is_table and not isinstance(X, Tensor):
            points = as_points(validate_data(self, X, reset=True, dtype=[np.float64, np.float32]), name="X")
        else:
            points = as_points(X, name="X") if is_table else as_images(X, name="X")
            self.n_features_in_ = points.tensor.shape[1]
            self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        if float(points.tensor.detach().abs().amax()) > _LARGEST:
            raise ValueError(f"X must lie within ±{_LARGEST:g}: squares would overflow. Divide it by a constant")
        self.sample_shape_ = points.sample_shape
        return points


def _warn_of_last_channels(X: Any) -> None:
    """Warn of images that seem to have their channels on the last axis: a U-Net would take rows for channels."""
    shape, usual = shape_of(X), (1, 3)
    if len(shape) == 4 and shape[3] in usual and shape[1] not in usual:
        remedy = f"X.{'permute' if isinstance(X, Tensor) else 'transpose'}(0, 3, 1, 2)"
        warnings.warn(
            f"X must have shape (n, channels, height, width); got {shape}, with the channels last, it seems. "
            f"If so, fit on {remedy}",
            UserWarning,
            stacklevel=5,
        )
