"""What a fitted geometry is made of."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from carre.data import Normalization
from carre.fields import NeuralField
from carre.toolkit import ScaleProfile
from carre.training import History


@dataclass(frozen=True, eq=False)
class GeometryState:
    """All that is stored of a fitted geometry: the fitted attributes of `MetricMatching`, without their underscores.

    Attributes:
        field: The learned field.
        bandwidth: Its default scale σ.
        bandwidth_range: The scales it was trained on.
        supported_from: The σ below which samples have hardly any neighbors.
        is_centered: Whether G is the centered metric.
        rank: Rows of the factor of G.
        n_features_in: Columns of the samples.
        landmarks: Some of the samples, flat.
        history: The training record.
        scale_profile: What the default scale was chosen from; None when it was given.
        feature_names_in: Names of the columns, where there were any.
        sample_shape: Channels, height and width of a sample that is an image.
        normalization: How raw values became those that were trained on.
        parameters: Constructor parameters of the estimator; those that are not plain values are left out.

    Example:
        >>> import torch
        >>> from carre.metric import AffineFrame
        >>> from carre.networks import build_model
        >>> model = build_model(3, 2, width=8, n_blocks=1, spread=1.0)
        >>> learned = NeuralField(model, AffineFrame(torch.zeros(3), 1.0))
        >>> state = GeometryState(
        ...     learned, 0.1, (0.01, 1.0), 0.05, is_centered=True, rank=2, n_features_in=3, landmarks=torch.randn(5, 3)
        ... )
        >>> state.field.dim
        3
    """

    field: NeuralField
    bandwidth: float
    bandwidth_range: tuple[float, float]
    supported_from: float
    is_centered: bool
    rank: int
    n_features_in: int
    landmarks: Float[Tensor, "n dim"]
    history: History = dataclasses.field(default_factory=History)
    scale_profile: ScaleProfile | None = None
    feature_names_in: np.ndarray | None = None
    sample_shape: tuple[int, int, int] | None = None
    normalization: Normalization | None = None
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
