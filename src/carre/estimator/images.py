"""What a geometry that was fitted on images answers in pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from carre.boundary import is_integer
from carre.estimator.queries import QueryMethods
from carre.toolkit import Path


class ImageMethods(QueryMethods):
    """The methods of `MetricMatching` that need a fit on images."""

    def tangent_images(self, X: Any, n_directions: int, bandwidth: Any = None) -> Any:
        """Return the leading tangent directions as images, shape (n, n_directions, C, H, W), leading first.

        They are unit vectors, each up to its sign; what `eigenvalues` returns are theirs, in the same order.

        Args:
            X: Images, shape (n, C, H, W), or flat points.
            n_directions: How many directions, at most the rank.
            bandwidth: σ, one number or one per image; None takes ``bandwidth_``.

        Example:
            >>> from carre import MetricMatching
            >>> geometry = MetricMatching.from_pretrained("mnist")
            >>> directions = geometry.tangent_images(geometry.landmarks_[:1], 3)
            >>> directions.shape
            torch.Size([1, 3, 1, 28, 28])
            >>> bool(torch.allclose(directions.flatten(2).norm(dim=2), torch.ones(1, 3)))
            True
        """
        points = self._validated(X)
        shape = self._image_shape("tangent_images")
        most = min(self.rank_, self.n_features_in_)
        if not is_integer(n_directions) or not 1 <= n_directions <= most:
            raise ValueError(
                f"n_directions must be an integer between 1 and {most}, the rank; got {n_directions!r}. "
                "Fit with a larger rank to ask for more"
            )

        def directions(y: Tensor, s: Tensor) -> Tensor:
            return self.field_.metric(y, s).tangent_basis(n_directions).mT

        found = self._compute(points, bandwidth, directions)
        return points.restore(found.reshape(*found.shape[:2], *shape))

    def to_images(self, X: Any) -> Any:
        """See flat points or vectors as images: (..., D) becomes (..., C, H, W). Images stay as they are.

        Args:
            X: An array or a tensor with any axes before the last; or a `Path`, whose nodes are returned as a tensor of
                shape (paths, nodes, C, H, W).

        Example:
            >>> from carre import MetricMatching
            >>> geometry = MetricMatching.from_pretrained("mnist")
            >>> geometry.to_images(geometry.landmarks_[:5]).shape
            torch.Size([5, 1, 28, 28])
        """
        shape = self._image_shape("to_images")
        values = X.nodes if isinstance(X, Path) else X if isinstance(X, Tensor) else np.asarray(X)
        if tuple(values.shape[-3:]) == shape:
            return values
        if values.ndim == 0 or values.shape[-1] != self.n_features_in_:
            raise ValueError(
                f"X must end with the axes {shape} of an image, or {self.n_features_in_} flat ones; "
                f"got shape {tuple(values.shape)}"
            )
        return values.reshape(*values.shape[:-1], *shape)

    def to_pixels(self, X: Any) -> Any:
        """Return pictures with values in [0, 1], by the normalization that the dataset of the fit brought along.

        What lies outside, as on the way between images, is clipped.

        Args:
            X: What `to_images` takes.

        Example:
            >>> from carre import MetricMatching
            >>> geometry = MetricMatching.from_pretrained("mnist")
            >>> pixels = geometry.to_pixels(geometry.landmarks_[:5])  # black is 0, white is 1
            >>> float(pixels.min()), float(pixels.max())
            (0.0, 1.0)
        """
        images = self.to_images(X)
        if self.normalization_ is None:
            raise ValueError(
                "to_pixels needs to know how the images were normalized, and the fit was not told. Fit on a "
                "carre.data.ImageDataset, or undo your own normalization on what to_images returns"
            )
        return self.normalization_.decode(images, clip=True)

    def _image_shape(self, asked: str) -> tuple[int, int, int]:
        self._check_fitted()
        if self.sample_shape_ is None:
            raise ValueError(f"{asked} needs a fit on images of shape (n, channels, height, width); this one was not")
        return self.sample_shape_
