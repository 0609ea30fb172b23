"""MetricMatching: the scikit-learn face of the library."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import Tensor, nn
from tqdm import tqdm

from carre.estimator.images import ImageMethods
from carre.estimator.reporting import ReportMethods
from carre.estimator.saving import SavingMethods
from carre.estimator.tools import ToolMethods
from carre.fitting import FitSettings, choose_device, fit_field
from carre.networks import UNetSettings
from carre.toolkit import predictive_score, rank_cuts_off
from carre.training import Checkpoint, LinearPhaseWarning, Progress, linear_phase

# Parts of the same size whatever is free: the noise of a score is drawn part by part, and should not change.
_SCORED_SCALES, _SCORED_BYTES = 6, 2**27
_FEW_SAMPLES = 20
_MOST_LANDMARKS = 5000


class MetricMatching(ToolMethods, ImageMethods, ReportMethods, SavingMethods, BaseEstimator):  # type: ignore[misc]
    """Learn the Riemannian geometry of a dataset from samples.

    Trains a network that outputs, at any point and any scale σ, the low-rank metric
    G = Cov[X | Y=y]/σ², whose leading eigenvectors are the directions the data can move in: its
    eigenvalues are near 1 along the data and near 0 across them. What is not given is chosen from
    the data. Samples are rows of a table, shape (n, D), which an MLP learns, or images, shape (n, C, H, W), which a
    U-Net learns; after a fit on images, points are images or flat, and come back as they were given.

    Args:
        rank: Rows of the factor of G; at least 2d−1 for data of dimension d.
        bandwidth: The default scale σ of all queries, a standard deviation in the units of the data.
            None chooses it after training, without labels.
        bandwidth_range: The scales (low, high) to train on.
        method: ``"joint"`` (one stage, centered), ``"two-stage"`` (with ``denoiser``) or
            ``"uncentered"`` (the main text of the paper).
        denoiser: For the two-stage method, a callable ``(y, σ) ↦ E[X | Y=y]`` on tensors, in the units
            and the shape of the data.
        network: A module ``(y, σ) ↦ (mean, factor)`` to train instead of the default one. It sees
            centered points in isotropic units, flat also if they are images. Or, for images, a
            `carre.networks.UNetSettings` with the sizes of the U-Net.
        width: Hidden width of the default network for tables.
        n_blocks: Residual blocks per trunk of the default network for tables.
        block: ``"gated"``, or ``"plain"`` as in the paper; of the default network for tables.
        ridge: λ ≥ 0 of G = FᵀF + λI.
        reduce: Whether to work in the linear hull of the samples where that is a proper subspace
            (constant or dependent columns, fewer samples than columns). Nothing is lost inside the hull; what
            new points have outside of it is taken for noise. Ignored for images: a U-Net needs all pixels.
        max_steps: Optimizer steps.
        max_seconds: Wall-clock budget instead of, or beside, the steps.
        batch_size: Noisy points per step.
        learning_rate: Its peak.
        validation_fraction: Share of the samples held out to watch training and to choose the scale.
        patience: Stop after so many of the ten looks at the held-out samples (four for images on a CPU) without
            improvement. The weights of the best look are kept in any case.
        mixed_precision: Whether to multiply matrices in bfloat16 while training; by default on a GPU, for wide networks
            and U-Nets.
        cuda_graph: Whether to replay training steps as a CUDA graph; switch it off for a network or denoiser
            that cannot be captured.
        checkpoint: A file to keep training in, so that an interrupted fit can go on. It is written at every look at the
            held-out samples, at least about every minute, and when Ctrl-C is pressed; `fit` with the same samples, seed
            and settings goes on from it, and removes it when it is done.
        device: Where to compute; None takes a GPU if there is one.
        random_state: Seed or generator of NumPy. A seed makes a fit on a CPU reproducible.
        verbose: Whether to draw a progress bar (on a terminal only).

    Attributes:
        field_: The learned `NeuralField`.
        bandwidth_: The default scale.
        bandwidth_range_: The scales that were trained on.
        supported_from_: The σ below which samples have hardly any neighbors, so that a geometry at smaller
            scales is the network's extrapolation.
        rank_: The rank.
        scale_profile_: What the default scale was chosen from; None when it was given.
        is_centered_: Whether G is the centered metric, with a denoiser beside it.
        history_: Held-out losses, and the gain over a linear denoiser, during training.
        landmarks_: Up to 5,000 of the samples, between which paths find their way.
        n_features_in_: Columns of the samples, D; of images all their values, C·H·W.
        sample_shape_: (C, H, W) of images; None for tables.
        normalization_: That of the `carre.data.ImageDataset` of the fit; None for anything else.

    Example:
        >>> import numpy as np
        >>> from carre import MetricMatching
        >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 400)
        >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> geometry = MetricMatching(max_steps=50, width=32, random_state=0).fit(circle)
        >>> geometry.tangent_basis(np.array([[1.0, 0.0]]), dim=1).shape
        (1, 2, 1)
    """

    def __init__(
        self,
        *,
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
        reduce: bool = True,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation_fraction: float = 0.1,
        patience: int | None = None,
        mixed_precision: bool | None = None,
        cuda_graph: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
        device: str | torch.device | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = True,
    ) -> None:
        self.rank = rank
        self.bandwidth = bandwidth
        self.bandwidth_range = bandwidth_range
        self.method = method
        self.denoiser = denoiser
        self.network = network
        self.width = width
        self.n_blocks = n_blocks
        self.block = block
        self.ridge = ridge
        self.reduce = reduce
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.mixed_precision = mixed_precision
        self.cuda_graph = cuda_graph
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> MetricMatching:
        """Learn the geometry of the samples.

        Args:
            X: Samples, shape (n, D), or images, shape (n, C, H, W): an array, a tensor, or anything like one; or a
                dataset of images. Whole numbers are taken as they are: of uint8 images, σ is in steps of 0 to 255.
            y: Ignored.

        Raises:
            TrainingDivergedError: A loss or gradient was not finite; the last good field is in it.
            CheckpointError: The checkpoint is of other samples or settings, or damaged.

        Example:
            >>> import numpy as np
            >>> from carre import MetricMatching
            >>> square = np.random.default_rng(0).uniform(size=(200, 2))
            >>> geometry = MetricMatching(max_steps=20, width=16, bandwidth=0.1, random_state=0).fit(square)
            >>> geometry.n_features_in_, geometry.history_.steps
            (2, 20)
        """
        before = dict(self.__dict__)
        try:
            return self._fit(X)
        except BaseException:
            # A fit that fails or is interrupted leaves the estimator as it was, with the earlier fit if there was one.
            self.__dict__ = before
            raise

    def _fit(self, X: Any) -> MetricMatching:
        points = self._first_validated(X)
        if len(points.tensor) < 2:
            raise ValueError(f"X must have at least 2 samples; got {len(points.tensor)} sample (n_samples = 1)")
        settings = FitSettings(**{name: getattr(self, name) for name in FitSettings.__dataclass_fields__})
        self.device_ = choose_device(self.device, points.tensor)
        checkpoint = None if self.checkpoint is None else Checkpoint(self.checkpoint)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if checkpoint is not None and self.random_state is None:
            # Any seed will do: also that of the fit that was interrupted.
            stored = checkpoint.seed()
            seed = seed if stored is None else stored
        with tqdm(total=100, desc="fit", unit="%", disable=None if self.verbose else True) as bar:
            fit = fit_field(
                points.tensor.detach(),
                settings,
                seed=seed,
                device=self.device_,
                sample_shape=points.sample_shape,
                callback=lambda progress: _draw(bar, progress),
                checkpoint=checkpoint,
            )
        self.field_, self.history_, self.scale_profile_ = fit.field, fit.history, fit.profile
        self.bandwidth_, self.bandwidth_range_ = fit.bandwidth, fit.bandwidth_range
        self.supported_from_ = fit.supported_from
        self.is_centered_ = settings.method != "uncentered"
        self.rank_ = fit.rank
        chosen = np.random.default_rng(seed).permutation(len(points.tensor))[:_MOST_LANDMARKS]
        self.landmarks_ = points.tensor.detach()[torch.from_numpy(chosen)].cpu()
        self._forget()
        self._warn(len(points.tensor))
        return self

    def _warn(self, n_samples: int) -> None:
        """Warn of a fit that is not to be trusted: few samples, too little training, or too small a rank."""
        few = f"X has only {n_samples} samples: too few to tell a geometry from chance. Collect more"
        profile, hull = self.scale_profile_, self.field_.frame.dim
        for message, category in (
            (few if n_samples < _FEW_SAMPLES else None, UserWarning),
            (linear_phase(self.history_), LinearPhaseWarning),
            (None if profile is None else rank_cuts_off(profile, hull), UserWarning),
        ):
            if message:
                warnings.warn(message, category, stacklevel=4)

    def score(self, X: Any, y: Any = None) -> float:
        """Score held-out samples; higher is better, zero is a field that has learned nothing.

        The mean of `carre.toolkit.predictive_score` over trained scales from ``supported_from_`` up, in nats
        per sample; the noise in it is the same at every call. Compare fits with the same
        ``bandwidth_range`` only.

        Example:
            >>> import numpy as np
            >>> from carre import MetricMatching
            >>> square = np.random.default_rng(0).uniform(size=(120, 2))
            >>> geometry = MetricMatching(max_steps=20, width=16, bandwidth=0.1, random_state=0).fit(square[:100])
            >>> geometry.score(square[100:]) > geometry.score(square[100:] + 5.0)  # those are off the data
            True
        """
        points = self._validated(X)
        if not self.is_centered_:
            raise ValueError("score needs a denoiser; fit with method='joint' or 'two-stage'")
        generator = torch.Generator(self.device_).manual_seed(0)
        samples = points.tensor.to(self.device_)
        low, high = self.bandwidth_range_
        low = max(low, min(self.supported_from_, high))
        with torch.no_grad():
            scores = [
                float(predictive_score(self.field_, part, sigma, generator=generator).sum())
                for sigma in np.geomspace(low, high, _SCORED_SCALES).tolist()
                for part in torch.split(samples, self._points_at_once(samples, _SCORED_BYTES))
            ]
        return sum(scores) / (_SCORED_SCALES * len(samples))


def _draw(bar: tqdm[Any], progress: Progress) -> None:
    """Move the progress bar, and show the latest held-out loss and gain."""
    percent = int(100 * progress.fraction)
    if percent <= bar.n:
        return
    bar.update(percent - bar.n)
    if progress.evaluation is not None:
        gain = max(progress.evaluation.gain, default=float("nan"))
        bar.set_postfix(loss=f"{progress.evaluation.loss:.3f}", gain=f"{gain:.2f}")
