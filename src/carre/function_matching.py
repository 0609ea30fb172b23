"""The carré du champ of given functions, learned from samples without learning the metric first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from carre.arguments import check_arguments
from carre.backend.memory import in_parts
from carre.backend.surroundings import DrawingFrom, plain_surroundings
from carre.boundary import ArgumentError, as_bandwidth, as_points
from carre.fields import Bandwidth, NeuralField, trusted
from carre.fitting import FitPlan, FitSettings, choose_device, make_plan
from carre.matching import LogUniform, perturb
from carre.metric import AffineFrame, LowRankMetric
from carre.networks import FactorNetwork, FilmMLP, MeanNetwork, MetricModel
from carre.toolkit.derivatives import Map, checked_values
from carre.training import History, Objective, Progress, train

_N_BLOCKS = 2
# The functions are asked at so many samples at once, and tried at as many noisy points.
_N_TRIED = 20_000


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
            metric = trusted(self._rows).metric(frame.encode(y), s / frame.scale)
            assert isinstance(metric, LowRankMetric)
            rows = metric.factor * (self._units.to(metric.factor) / frame.scale)
            # ½AᵀB of the rows of A = F J_fᵀ and B = F J_hᵀ; a scalar function has no axis for itself.
            left, right = (rows[..., columns] for columns in self._columns)
            a, b = "a" * (left.ndim - 2), "b" * (right.ndim - 2)
            return 0.5 * torch.einsum(f"nr{a},nr{b}->n{a}{b}", left, right)

        numbers = 64 * (len(frame.center) + len(self._units)) + len(self._units) ** 2
        return given.restore(in_parts(part, given.tensor, sigma, numbers_per_item=numbers))


@check_arguments
@plain_surroundings()
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
    points = as_points(samples, name="samples").tensor.detach()
    points = points.to(choose_device(device, points))
    settings = FitSettings(
        bandwidth_range=bandwidth_range,
        method="joint" if centered else "uncentered",
        width=width,
        max_steps=max_steps,
        noise=0.0,
        # Uncentered targets depend on f at noisy points: there noise must leave the linear hull, as queries may.
        reduce=centered,
        # A user's functions are called in every step: nothing can be said of what a graph may record of them.
        cuda_graph=False,
    )
    plan = make_plan(points, settings, seed=seed, device=points.device)
    frame, (low, high) = plan.frame, plan.bandwidth_range
    bandwidths = LogUniform(low / frame.scale, high / frame.scale)
    functions, columns = _standardize(left, right, points, frame, clamped=centered)
    functions.check(plan.training[:_N_TRIED], bandwidths.high)
    # The Jacobian of E[φ(X) | Y=y] is the covariance of φ(X) with X, not with itself: no target here.
    config = replace(plan.config, jacobian_weight=0.0, mixed_precision=False, until_done=False)
    with DrawingFrom(torch.Generator().manual_seed(seed)):
        model = _model(functions, plan, centered=centered).to(points.device)
    objective = Objective(train_mean=centered, centered=centered, function=functions)
    history = train(model, plan.training, plan.held_out, bandwidths, objective, config, callback=callback)
    history = replace(history, bandwidths=tuple(frame.scale * sigma for sigma in history.bandwidths))
    # Only the factor is kept: the mean has served its purpose, and holds the user's functions.
    rows = NeuralField(MetricModel(None, model.factor).cpu(), AffineFrame(torch.zeros(frame.hull_dim), 1.0))
    return LearnedCarreDuChamp(rows, frame.to("cpu"), functions.units.cpu(), columns, (low, high), history)


@dataclass(frozen=True, eq=False)
class _Standardized:
    """Functions side by side, of points in the frame, with mean 0 and deviation 1 over the samples."""

    parts: tuple[Map, ...]
    # In the dtype that the functions are given.
    frame: AffineFrame
    # The means of the functions and their deviations; where one is constant, 0.
    center: Float[Tensor, " k"]
    units: Float[Tensor, " k"]
    # Between which values off the data are kept: E[f(X) | Y=y] lies there, f(y) may not. None for the truth.
    bounds: tuple[Float[Tensor, " k"], Float[Tensor, " k"]] | None

    def __call__(self, points: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        """Evaluate the functions at points of the frame."""
        ambient = self.frame.decode(points.to(self.frame.center.dtype))
        values = _side_by_side(part(ambient) for part in self.parts).to(ambient)
        if self.bounds is not None:
            values = values.clamp(*self.bounds)
        return ((values - self.center) / torch.where(self.units > 0, self.units, 1.0)).to(points.dtype)

    def check(self, samples: Float[Tensor, "n dim"], bandwidth: float) -> None:
        """Try the functions at noisy points at the largest scale."""
        generator = torch.Generator(samples.device).manual_seed(0)
        noisy = perturb(samples, torch.full_like(samples[:, 0], bandwidth), generator=generator).points
        with torch.no_grad():
            if not bool(torch.isfinite(self(noisy)).all()):
                must = "be finite also near the samples, where they are evaluated"
                got = f"NaN or infinity under noise of deviation {bandwidth * self.frame.scale:.3g}"
                raise ArgumentError("left and right", must, got=got, remedy="Lower bandwidth_range")


def _standardize(
    left: Map, right: Map | None, points: Float[Tensor, "n ambient"], frame: AffineFrame, *, clamped: bool
) -> tuple[_Standardized, tuple[int | slice, int | slice]]:
    """Put the functions side by side; return also which columns are f's and which are h's."""
    parts = {"left": left} if right is None else {"left": left, "right": right}
    with torch.no_grad():
        # Of all samples: bounds of the first ones would cut off what the others have.
        found = [
            torch.cat([checked_values(part(some), some, name=name) for some in torch.split(points, _N_TRIED)])
            for name, part in parts.items()
        ]
    values = _side_by_side(found).to(points)
    if not bool(torch.isfinite(values).all()):
        raise ArgumentError("left and right", "be finite at the samples", got="NaN or infinity")
    # The columns of f are the first, those of h the last. A scalar function has no axis for its column.
    f_columns = 0 if found[0].ndim == 1 else slice(found[0].shape[1])
    h_columns = -1 if found[-1].ndim == 1 else slice(-found[-1].shape[1], None)
    bounds = (values.amin(0), values.amax(0)) if clamped else None
    local = frame.to(points.device, points.dtype)
    functions = _Standardized(tuple(parts.values()), local, values.mean(0), values.std(0), bounds)
    return functions, (f_columns, h_columns)


def _side_by_side(values: Iterable[Float[Tensor, "n ..."]]) -> Float[Tensor, "n k"]:
    return torch.cat([part.reshape(len(part), -1) for part in values], 1)


def _model(functions: _Standardized, plan: FitPlan, *, centered: bool) -> MetricModel:
    """Build the networks of E[φ(X) | Y=y] and of the factor.

    Where f has a critical point, Γ(f, f) has a zero, of which only a factor with several rows has a smooth root: as
    many rows as the metric itself would have.
    """
    k, dim, rank, width = len(functions.units), plan.frame.hull_dim, plan.rank, plan.width
    trunk = FilmMLP(dim, rank * k, width=width, n_blocks=_N_BLOCKS, head_deviation=width**-0.5)
    factor = FactorNetwork(trunk, rank=rank, spread=1.0, energy=rank)
    if not centered:
        return MetricModel(None, factor)
    return MetricModel(MeanNetwork(FilmMLP(dim, k, width=width, n_blocks=_N_BLOCKS), skip=functions), factor)
