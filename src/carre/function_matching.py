"""The carré du champ of given functions, learned from samples without learning the metric first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, NeuralField
from carre.fitting import choose_device
from carre.matching import LogUniform, perturb
from carre.metric import AffineFrame
from carre.networks import FactorNetwork, FilmMLP, MeanNetwork, MetricModel
from carre.toolkit.batches import in_parts
from carre.toolkit.calculus import paired_rows
from carre.toolkit.derivatives import check_callable
from carre.toolkit.maps import Map, checked_values
from carre.training import History, Objective, Progress, TrainingConfig, train
from carre.training.defaults import DataScale

_N_BLOCKS = 2
# The functions are standardized on this many samples, and tried at as many noisy points.
_N_TRIED = 20_000
_HELD_OUT_SHARE, _FEWEST_HELD_OUT, _MOST_HELD_OUT = 0.1, 8, 2048


class LearnedCarreDuChamp:
    """A learned Γ(f, h): call it with points and a bandwidth.

    Attributes:
        bandwidth_range: The scales it was trained on.
        history: The training record.

    Example:
        >>> angle = torch.linspace(0, 6.28, 500)
        >>> circle = torch.stack([angle.cos(), angle.sin()], 1)
        >>> options = {"bandwidth_range": (0.1, 0.5), "max_steps": 2, "width": 8, "device": "cpu"}
        >>> gamma = learn_carre_du_champ(circle, lambda y: y, **options)  # of both coordinates
        >>> matrices = gamma(circle[:3], 0.2)
        >>> bool((matrices == matrices.mT).all() and (matrices.diagonal(dim1=1, dim2=2) >= 0).all())
        True
        >>> gamma.bandwidth_range
        (0.1, 0.5)
    """

    def __init__(
        self,
        rows: NeuralField,
        frame: AffineFrame,
        units: Float[Tensor, " k"],
        columns: tuple[int | slice, int | slice],
        bandwidth_range: tuple[float, float],
        history: History,
    ) -> None:
        self._rows, self._frame, self._units, self._columns = rows, frame, units, columns
        self.bandwidth_range, self.history = bandwidth_range, history

    def __call__(self, points: Any, bandwidth: Bandwidth) -> Any:
        """Compute Γ(f, h), of shape (n,), or with an axis for each map to several functions.

        Args:
            points: Points, shape (n, D).
            bandwidth: σ, one number or one per point, best inside the trained range.
        """
        given = as_points(points, dim=len(self._frame.center))
        sigma = as_bandwidth(bandwidth, given.tensor)
        frame = self._frame.to(given.tensor.device, given.tensor.dtype)

        def part(y: Tensor, s: Tensor) -> Tensor:
            rows = self._rows.metric(frame.encode(y), s / frame.scale).factor
            rows = rows * (self._units.to(rows) / frame.scale)
            left, right = (rows[..., columns] for columns in self._columns)
            return paired_rows(left, right)

        numbers = 64 * (len(frame.center) + len(self._units)) + len(self._units) ** 2
        return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=numbers))


def learn_carre_du_champ(
    samples: Any,
    left: Map,
    right: Map | None = None,
    *,
    bandwidth_range: Sequence[float] | None = None,
    centered: bool = True,
    max_steps: int = 1000,
    width: int = 64,
    seed: int = 0,
    device: str | torch.device | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> LearnedCarreDuChamp:
    """Learn the carré du champ Γ(f, h) of functions of the data by its definition [RMM, Alg. 1].

    Metric matching with the values of the functions in place of the points: a network regresses on products of
    differences of f and h between samples and noisy points. What comes out differs by O(σ²) from the chain rule
    ½∂fᵀG∂h of `carre_du_champ`, which uses derivatives of f and h at a point; here they need no derivatives, and σ
    says over which distance they are compared.

    Args:
        samples: The data, shape (n, D).
        left: f, a torch function of points, (n, D) → (n,) or (n, k), that treats them one by one. It is evaluated at
            samples and near them, in the dtype of the samples, on the device of the training.
        right: h, likewise; None for f again.
        bandwidth_range: The smallest and the largest σ to learn; by default from the data.
        centered: Learn Cov[f(X), h(X) | Y=y]/2σ². False: the paper's E[(f(X) − f(y))(h(X) − h(y)) | Y=y]/2σ², which off
            the data also holds how f and h change across them: it needs a narrow bandwidth_range and several times
            the steps to be learned as well [THEORY §3.6].
        max_steps: Optimizer steps.
        width: Hidden width of the networks.
        seed: Of everything random.
        device: Where to train; a GPU if there is one.
        callback: Told of the progress.

    Example:
        >>> angle = torch.linspace(0, 6.28, 500)
        >>> circle = torch.stack([angle.cos(), angle.sin()], 1)
        >>> learned = learn_carre_du_champ(circle, lambda y: y[:, 0], max_steps=2, width=8, device="cpu")
        >>> learned(circle[:3], 0.2).shape
        torch.Size([3])
    """
    for name, count in (("width", width), ("max_steps", max_steps)):
        if not (isinstance(count, (int, np.integer)) and not isinstance(count, bool) and count >= 1):
            raise ValueError(f"{name} must be a positive integer; got {count!r}")
    check_callable(left, "left")
    if right is not None:
        check_callable(right, "right")
    if bandwidth_range is not None:
        bandwidth_range = _checked_range(bandwidth_range)
    points = as_points(samples, name="samples").tensor.detach()
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed)).to(points.device)
    points = points[order].to(choose_device(device, points))
    # Uncentered targets depend on f at noisy points: there noise must leave the linear hull, as queries may.
    frame = AffineFrame.of(points, reduce=centered)
    inside = frame.to(points.device, points.dtype).encode(points).float()
    scale = DataScale.of(inside)
    low, high = (frame.scale * edge for edge in scale.bandwidth_range()) if bandwidth_range is None else bandwidth_range
    bandwidths = LogUniform(low / frame.scale, high / frame.scale)
    functions, columns = _standardize(left, right, points, frame, clamped=centered)
    functions.check(inside, bandwidths.high)

    n_held_out = min(int(_HELD_OUT_SHARE * len(inside)), _MOST_HELD_OUT)
    n_held_out = n_held_out if n_held_out >= _FEWEST_HELD_OUT else 0
    training = inside[n_held_out:]
    held_out = inside[:n_held_out] if n_held_out else training
    batch_size = scale.batch_size(points.device)
    config = TrainingConfig(
        max_steps=max_steps,
        batch_size=batch_size,
        learning_rate=scale.learning_rate(width, batch_size),
        n_references=scale.n_references(frame.dim),
        # The Jacobian of E[φ(X) | Y=y] is the covariance of φ(X) with X, not with itself: no target here.
        jacobian_weight=0.0,
        # A user's functions are called in every step: nothing can be said of what a graph may record of them.
        cuda_graph=False,
        seed=seed,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = _model(functions, frame.dim, scale.rank(frame.dim), width, centered=centered).to(points.device)
        objective = Objective(train_mean=centered, centered=centered, function=functions)
        history = train(model, training, held_out, bandwidths, objective, config, callback=callback)
    history = replace(history, bandwidths=tuple(frame.scale * sigma for sigma in history.bandwidths))
    # Only the factor is kept: the mean has served its purpose, and holds the user's functions.
    rows = NeuralField(MetricModel(None, model.factor).cpu(), AffineFrame(torch.zeros(frame.dim), 1.0))
    return LearnedCarreDuChamp(rows, frame.to("cpu"), functions.units.cpu(), columns, (low, high), history)


def _checked_range(bandwidth_range: Any) -> tuple[float, float]:
    """Check a pair of scales, in the units of the data."""
    edges = np.asarray(bandwidth_range).ravel().tolist()
    if len(edges) != 2 or not all(isinstance(edge, Real) for edge in edges):
        raise ValueError(f"bandwidth_range must be a pair (low, high); got {bandwidth_range!r}")
    checked = LogUniform(*map(float, edges))
    return checked.low, checked.high


@dataclass(frozen=True, eq=False)
class _Standardized:
    """Functions side by side, of points in the frame, with mean 0 and deviation 1 over the samples.

    Attributes:
        parts: The user's functions.
        frame: The frame, in the dtype that they are given.
        center: Their means.
        units: Their deviations; where one is constant, 0.
        bounds: Between which values off the data are kept: E[f(X) | Y=y] lies there, f(y) may not. None for the truth.
    """

    parts: tuple[Map, ...]
    frame: AffineFrame
    center: Float[Tensor, " k"]
    units: Float[Tensor, " k"]
    bounds: tuple[Float[Tensor, " k"], Float[Tensor, " k"]] | None

    def __call__(self, points: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        """Evaluate the functions at points of the frame."""
        values = _side_by_side(self.parts, self.frame.decode(points.to(self.frame.center.dtype)))
        if self.bounds is not None:
            values = values.clamp(*self.bounds)
        return ((values - self.center) / torch.where(self.units > 0, self.units, 1.0)).to(points.dtype)

    def check(self, samples: Float[Tensor, "n dim"], bandwidth: float) -> None:
        """Try the functions at noisy points at the largest scale."""
        generator = torch.Generator(samples.device).manual_seed(0)
        tried = samples[:_N_TRIED]
        noisy = perturb(tried, torch.full_like(tried[:, 0], bandwidth), generator=generator).points
        with torch.no_grad():
            if not bool(torch.isfinite(self(noisy)).all()):
                raise ValueError(
                    "left and right must be finite also near the samples, where they are evaluated; got NaN or "
                    f"infinity under noise of deviation {bandwidth * self.frame.scale:.3g}. Lower bandwidth_range"
                )


def _standardize(
    left: Map, right: Map | None, points: Float[Tensor, "n ambient"], frame: AffineFrame, *, clamped: bool
) -> tuple[_Standardized, tuple[int | slice, int | slice]]:
    """Put the functions side by side; return also which columns are f's and which are h's."""
    tried = points[:_N_TRIED]
    parts = (left,) if right is None else (left, right)
    with torch.no_grad():
        first = checked_values(left(tried), tried, name="left")
        second = first if right is None else checked_values(right(tried), tried, name="right")
        values = _side_by_side(parts, tried)
    if not bool(torch.isfinite(values).all()):
        raise ValueError("left and right must be finite at the samples; got NaN or infinity")
    n_left = first[0].numel()
    f_columns = 0 if first.ndim == 1 else slice(0, n_left)
    h_columns = f_columns if right is None else (n_left if second.ndim == 1 else slice(n_left, values.shape[1]))
    bounds = (values.amin(0), values.amax(0)) if clamped else None
    local = frame.to(points.device, points.dtype)
    return _Standardized(parts, local, values.mean(0), values.std(0), bounds), (f_columns, h_columns)


def _side_by_side(parts: Sequence[Map], points: Float[Tensor, "n ambient"]) -> Float[Tensor, "n k"]:
    return torch.cat([part(points).reshape(len(points), -1) for part in parts], 1).to(points)


def _model(functions: _Standardized, dim: int, rank: int, width: int, *, centered: bool) -> MetricModel:
    """Build the networks of E[φ(X) | Y=y] and of the factor.

    Where f has a critical point, Γ(f, f) has a zero, of which only a factor with several rows has a smooth root: as
    many rows as the metric itself would have.
    """
    k = len(functions.units)
    trunk = FilmMLP(dim, rank * k, width=width, n_blocks=_N_BLOCKS, head_deviation=width**-0.5)
    factor = FactorNetwork(trunk, rank=rank, spread=1.0, energy=rank)
    if not centered:
        return MetricModel(None, factor)
    return MetricModel(MeanNetwork(FilmMLP(dim, k, width=width, n_blocks=_N_BLOCKS), skip=functions), factor)
