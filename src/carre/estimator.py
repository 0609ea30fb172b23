"""MetricMatching: the scikit-learn face of the library."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from carre.boundary import ArgumentError, as_dense, as_points
from carre.data import Table
from carre.data.frames import is_frame, read_frame
from carre.data.image_dataset import is_dataset
from carre.fitting import fit
from carre.geometry import Geometry
from carre.networks import UNetSettings
from carre.training import Checkpoint


class MetricMatching(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn the Riemannian geometry of a dataset, in a pipeline or a search over parameters.

    The same as `carre.fit`, whose arguments are the parameters here; ``geometry_`` is what it returns, and answers all
    questions. `score` serves model selection; `transform` gives harmonic coordinates to the next step of a pipeline.

    Attributes:
        geometry_: The `carre.Geometry`.
        n_features_in_: Columns of the samples, D; of images all their values, C·H·W.
        feature_names_in_: Names of the columns, where there were any.

    Example:
        >>> import numpy as np
        >>> from carre import MetricMatching
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> square = np.random.default_rng(0).uniform(size=(200, 2))
        >>> pipeline = make_pipeline(StandardScaler(), MetricMatching(max_steps=20, width=16, random_state=0))
        >>> pipeline.fit(square)[-1].geometry_.dimension(square[:2]).shape
        (2,)
    """

    def __init__(
        self,
        *,
        n_components: int = 2,
        rank: int | None = None,
        bandwidth: float | None = None,
        bandwidth_range: Sequence[float] | None = None,
        method: str = "joint",
        denoiser: Callable[[Tensor, Tensor], Tensor] | None = None,
        network: nn.Module | UNetSettings | None = None,
        width: int | None = None,
        n_blocks: int = 3,
        block: str = "gated",
        ridge: float = 0.0,
        noise: str | float = "auto",
        scale: str = "none",
        reduce: bool = True,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation_fraction: float = 0.1,
        mixed_precision: bool | None = None,
        cuda_graph: bool = True,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        device: str | torch.device | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = True,
    ) -> None:
        # Every parameter is an attribute of its name, which is all that scikit-learn wants of a constructor.
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})

    def fit(self, X: Any, y: Any = None) -> MetricMatching:
        """Learn the geometry of the samples.

        Args:
            X: Samples, as `carre.fit` takes them.
            y: Ignored.
        """
        before = dict(self.__dict__)
        try:
            self.__dict__.pop("feature_names_in_", None)
            samples = self._validated(X, reset=True)
            options = {name: value for name, value in self.get_params(deep=False).items() if name != "n_components"}
            self.geometry_: Geometry = fit(samples, **options)
        except BaseException:
            # A fit that fails or is interrupted leaves the estimator as it was, with the earlier fit if there was one.
            self.__dict__ = before
            raise
        self.n_features_in_ = self.geometry_.dim
        if self.geometry_.feature_names is not None:
            self.feature_names_in_ = np.array(self.geometry_.feature_names, dtype=object)
        return self

    def transform(self, X: Any) -> Any:
        """Compute ``n_components`` harmonic coordinates of samples, also new ones (`carre.Geometry.coordinates`).

        Args:
            X: Samples.

        Example:
            >>> import numpy as np
            >>> from carre import MetricMatching
            >>> square = np.random.default_rng(0).uniform(size=(200, 2))
            >>> estimator = MetricMatching(max_steps=20, width=16, bandwidth=0.1, random_state=0).fit(square)
            >>> estimator.transform(square[:3]).shape, estimator.get_feature_names_out().tolist()
            ((3, 2), ['metricmatching0', 'metricmatching1'])
        """
        check_is_fitted(self, "geometry_")
        return self.geometry_.coordinates(self._validated(X, reset=False), self.n_components)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)

    def score(self, X: Any, y: Any = None) -> float:
        """Score held-out samples; higher is better (`carre.Geometry.score`).

        Args:
            X: Samples that took no part in the fit.
            y: Ignored.

        Example:
            >>> import numpy as np
            >>> from carre import MetricMatching
            >>> square = np.random.default_rng(0).uniform(size=(120, 2))
            >>> estimator = MetricMatching(max_steps=20, width=16, bandwidth=0.1, random_state=0).fit(square[:100])
            >>> estimator.score(square[100:]) > estimator.score(square[100:] + 5.0)  # those are off the data
            True
        """
        check_is_fitted(self, "geometry_")
        return self.geometry_.score(self._validated(X, reset=False))

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Check tables as scikit-learn does; what it does not know, tensors and images, is left to the geometry."""
        is_ours = isinstance(X, (Tensor, Table)) or is_dataset(X) or hasattr(X, "obsm")
        if is_ours:
            return X
        # Values are checked as everywhere: scikit-learn takes text and dates for numbers, and shows what masks hide.
        values = read_frame(X, None, name="X")[0] if is_frame(X) else as_dense(X, "X")
        if values.ndim > 2:
            return values
        if values.ndim == 1:
            remedy = "Reshape your data: X[None, :] is a single sample"
            raise ArgumentError("X", "have two axes", got=f"shape {values.shape}", remedy=remedy)
        values = as_points(values, name="X").tensor.numpy()
        validate_data(self, X if is_frame(X) else values, reset=reset, skip_check_array=True)
        names = getattr(self, "feature_names_in_", None) if reset else None
        return values if names is None else Table(values, tuple(map(str, names)))
