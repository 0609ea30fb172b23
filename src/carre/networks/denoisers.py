"""Denoisers from elsewhere: diffusion models of every convention as E[X | Y=y], and what any of them is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.arguments import as_choice
from carre.boundary import ArgumentError, is_integer

Denoise = Callable[[Tensor, Tensor], Tensor]

# What a network tells of x_t = α_t x + s_t ε: the noise ε, x, v = α_t ε − s_t x, or, where α + s = 1, ε − x.
PREDICTIONS = ("epsilon", "sample", "v_prediction", "flow_prediction")
# Rounding at the ends of a schedule.
_SLACK = 1e-4


class DiffusionDenoiser(nn.Module):
    """A diffusion model, as of ``diffusers``, as a denoiser (y, σ) ↦ E[X | Y=y] in the units that it was trained in.

    A model of x_t = α_t x + s_t ε, with variance α_t² + s_t² = 1 or α_t + s_t = 1, is one at y = x_t/α_t and
    σ = s_t/α_t. Between the steps of a schedule the time goes linearly with log σ. It is taken by
    ``carre.fit(X, method="two-stage", denoiser=...)``, `carre.ScoreField` and `carre.SteinField` alike.

    Args:
        network: ``network(x, t, **conditions)``, which returns a tensor, or something that has it as ``sample`` or as
            its first item. Where it has twice the channels, the second half (a variance) is left out.
        schedule: A scheduler of ``diffusers``, for its noise and its prediction; or the ᾱ_t = α_t² of all steps.
        prediction: What the network predicts: ``"epsilon"``, ``"sample"`` (x), ``"v_prediction"`` or
            ``"flow_prediction"``. None asks the scheduler.
        sample_shape: The shape of one sample, such as (channels, height, width). None asks the network's ``config``.
        conditions: What else the network is called with, by name; tensors for one sample, with a leading axis of 1.
        whole_steps: Whether to round times to whole steps, for networks that look them up in a table.

    Attributes:
        bandwidth_range: The σ of the schedule; beyond, the network has seen nothing.

    Example:
        >>> kept = torch.linspace(0.9999, 0.01, 1000)  # ᾱ
        >>> def noise(x, t):  # exact for data that are one point, 0: all of x is noise
        ...     return x / (1 - kept[t.round().long()]).sqrt()[:, None]
        >>> denoiser = DiffusionDenoiser(noise, kept, sample_shape=(2,))
        >>> bool((denoiser(torch.ones(1, 2), torch.tensor([1.0])).abs() < 1e-2).all())
        True
    """

    levels: Tensor | None

    def __init__(
        self,
        network: Callable[..., Any],
        schedule: Any,
        *,
        prediction: str | None = None,
        sample_shape: tuple[int, ...] | None = None,
        conditions: Mapping[str, Any] | None = None,
        whole_steps: bool = False,
    ) -> None:
        super().__init__()
        if not callable(network):
            raise ArgumentError("network", "be a module or a function (x, t) → prediction", got=type(network).__name__)
        self.network, self.whole_steps = network, whole_steps
        self.sample_shape = _shape_of(network) if sample_shape is None else checked_shape(sample_shape)
        self._read(schedule, prediction)
        self.conditions = dict(conditions or {})
        for name, value in self.conditions.items():
            if isinstance(value, Tensor):
                if value.ndim == 0 or len(value) != 1:
                    must = "be for one sample, with a leading axis of 1: all points are asked under the same"
                    raise ArgumentError(f"conditions[{name!r}]", must, got=tuple(value.shape))
                # As a buffer it goes where the network goes.
                self.register_buffer(f"condition_{name}", value)

    def forward(self, points: Float[Tensor, "n ..."], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n ..."]:
        """Estimate E[X | Y=y] for points of the sample's shape."""
        self._check(points, bandwidth)
        sigma = bandwidth.reshape(-1, *[1] * (points.ndim - 1))
        inlet, skip, out = self._coefficients(sigma)
        given = {name: self._condition(name, len(points)) for name in self.conditions}
        inside = (inlet * points).to(self._dtype(points))
        answer = self.network(inside, self._time(bandwidth), **given)
        if not isinstance(answer, Tensor):
            answer = answer.sample if hasattr(answer, "sample") else answer[0]
        if answer.ndim > 1 and answer.shape[1] == 2 * points.shape[1]:
            answer = answer[:, : points.shape[1]]
        if answer.shape != points.shape:
            must = f"return predictions in the shape of its input, {tuple(points.shape)}"
            raise ArgumentError("network", must, got=tuple(answer.shape))
        mean: Tensor = skip * points + out * answer.to(points.dtype)
        return mean

    def _check(self, points: Tensor, bandwidth: Tensor) -> None:
        """Refuse points of another shape, and σ that the network has never seen."""
        if points.shape[1:] != self.sample_shape:
            must = f"have shape (n, {', '.join(map(str, self.sample_shape))}), that of the network's samples"
            raise ArgumentError("points", must, got=tuple(points.shape))
        if points.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        low, high = self.bandwidth_range
        if bool(((bandwidth < low * (1 - _SLACK)) | (bandwidth > high * (1 + _SLACK))).any()):
            must = f"lie in [{low:.3g}, {high:.3g}], the noise that the diffusion model was trained on"
            got = f"{float(bandwidth.min()):.3g} to {float(bandwidth.max()):.3g}"
            raise ArgumentError("bandwidth", must, got=got, remedy="It is in the units of the network's samples")

    def _dtype(self, points: Tensor) -> torch.dtype:
        """Return the dtype of the weights, such as half precision; the points' own where there are none."""
        weights = self.network.parameters() if isinstance(self.network, nn.Module) else ()
        return next((one.dtype for one in weights if one.is_floating_point()), points.dtype)

    def _condition(self, name: str, count: int) -> Any:
        value = getattr(self, f"condition_{name}", self.conditions[name])
        return value.expand(count, *value.shape[1:]) if isinstance(value, Tensor) else value

    def _read(self, schedule: Any, prediction: str | None) -> None:
        """Find out by which convention a network was trained, and under which noise."""
        config: Any = getattr(schedule, "config", {})
        is_flow = type(schedule).__name__.startswith("FlowMatch") or config.get("use_flow_sigmas")
        known = "flow_prediction" if is_flow else config.get("prediction_type", "epsilon")
        self.prediction: str = as_choice(prediction or known, PREDICTIONS, name="prediction")
        # The deviation of the data that Karras and others' EDM reckons with, and times that are no steps.
        self.own: float | None = None
        self.time_of: Callable[[Tensor], Tensor] | None = None
        self.n_steps, levels = int(config.get("num_train_timesteps", 1000)), None
        if self.prediction == "flow_prediction":
            self.bandwidth_range = (1 / self.n_steps, float(self.n_steps))
        elif hasattr(schedule, "precondition_noise"):
            as_choice(self.prediction, ("epsilon", "v_prediction"), name="prediction")
            self.own, self.time_of = float(config.sigma_data), schedule.precondition_noise
            self.bandwidth_range = (float(config.sigma_min), float(config.sigma_max))
        else:
            levels = _levels(getattr(schedule, "alphas_cumprod", None if config else schedule))
            self.bandwidth_range = (math.exp(levels[0]), math.exp(levels[-1]))
            self.time_of = _quarter_of_log if config.get("timestep_type") == "continuous" else None
        self.register_buffer("levels", levels)

    def _coefficients(self, sigma: Tensor) -> tuple[Tensor, Tensor | float, Tensor | float]:
        """Return what y is multiplied by on its way in, and what y and the answer are on their way out."""
        if self.own is not None:
            total = (sigma.square() + self.own**2).rsqrt()
            sign = 1 if self.prediction == "epsilon" else -1
            return total, (self.own * total) ** 2, sign * self.own * sigma * total
        if self.prediction == "flow_prediction":
            alpha = 1 / (1 + sigma)
            return alpha, alpha, -sigma * alpha
        alpha = (1 + sigma.square()).rsqrt()
        ways: dict[str, tuple[Any, Any]] = {
            "epsilon": (1.0, -sigma),
            "sample": (0.0, 1.0),
            "v_prediction": (alpha.square(), -sigma * alpha),
        }
        return alpha, *ways[self.prediction]

    def _time(self, bandwidth: Float[Tensor, " n"]) -> Tensor:
        """Return when a network is asked: between two steps linearly in log σ."""
        if self.time_of is not None:
            return self.time_of(bandwidth)
        if self.levels is None:
            return self.n_steps * bandwidth / (1 + bandwidth)
        log, levels = bandwidth.log(), self.levels.to(bandwidth)
        after = torch.searchsorted(levels, log.detach().contiguous()).clamp(1, len(levels) - 1)
        share = (log - levels[after - 1]) / (levels[after] - levels[after - 1])
        steps = (after - 1 + share).clamp(0, len(levels) - 1)
        return steps.round().long() if self.whole_steps else steps


def _quarter_of_log(bandwidth: Tensor) -> Tensor:
    return bandwidth.log() / 4


def _levels(kept: Any) -> Float[Tensor, " steps"]:
    """Compute log σ of the steps from their ᾱ."""
    must = "be a scheduler with alphas_cumprod, of EDM or of flow matching, or ᾱ_t: one per step, falling, in (0, 1)"
    remedy = "A network (y, σ) ↦ E[X | Y=y] is a denoiser as it is"
    try:
        kept = torch.as_tensor(kept, device="cpu").detach().to(torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError("schedule", must, got=repr(kept), remedy=remedy) from error
    if kept.ndim != 1 or len(kept) < 2 or not bool(((kept >= 0) & (kept < 1)).all() and (kept.diff() < 0).all()):
        raise ArgumentError("schedule", must, got=f"values of shape {tuple(kept.shape)}", remedy=remedy)
    # Where nothing is left of x there is no finite σ.
    levels: Tensor = ((1 - kept) / kept).log()[kept > 0] / 2
    return levels


def _shape_of(network: Any) -> tuple[int, ...]:
    """Read the shape of a sample from the configuration of a network of diffusers."""
    config = getattr(network, "config", None)
    channels, size = getattr(config, "in_channels", None), getattr(config, "sample_size", None)
    if channels is None or size is None:
        must = "be the shape of one sample, such as (3, 64, 64): this network does not tell it"
        raise ArgumentError("sample_shape", must, got="None")
    return (channels, *((size, size) if isinstance(size, int) else size))


class _Shaped(nn.Module):
    """A module that denoises samples of some shape, as a denoiser of flat points."""

    def __init__(self, denoiser: nn.Module, sample_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.denoiser, self.sample_shape = denoiser, sample_shape

    def forward(self, points: Tensor, bandwidth: Tensor) -> Tensor:
        return _denoise_samples(self.denoiser, self.sample_shape, points, bandwidth)


def of_flat_points(denoiser: Denoise, sample_shape: tuple[int, ...] | None, dim: int) -> Denoise:
    """Let a denoiser see samples of their shape: the one that it has itself, or that of the data.

    Args:
        denoiser: The denoiser; one with a ``sample_shape`` of its own is shown that.
        sample_shape: The shape of the samples, if they have one.
        dim: Their number of coordinates.

    Example:
        >>> upside_down = of_flat_points(lambda images, bandwidth: images.flip(2), (1, 2, 1), 2)
        >>> upside_down(torch.tensor([[1.0, 2.0]]), torch.ones(1))
        tensor([[2., 1.]])
    """
    given = None if sample_shape is None else checked_shape(sample_shape)
    own = getattr(denoiser, "sample_shape", None)
    if given is not None and math.prod(given) != dim:
        raise ArgumentError("sample_shape", f"have {dim} numbers in all, as points have", got=given)
    shape = tuple(own or given or (dim,))
    if math.prod(shape) != dim or given not in (None, shape):
        data = f"points of {dim} coordinates" if given is None else f"of shape {given}"
        must = f"take what it is shown, which is {data}"
        raise ArgumentError("denoiser", must, got=f"one of samples of shape {shape}")
    if shape == (dim,):
        return denoiser
    if isinstance(denoiser, nn.Module):
        return _Shaped(denoiser, shape)
    return partial(_denoise_samples, denoiser, shape)


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Accept the shape of a sample."""
    found = tuple(shape)
    if not found or not all(is_integer(size) and size > 0 for size in found):
        must = "be positive whole numbers, such as (3, 64, 64) for images of 3 channels"
        raise ArgumentError("sample_shape", must, got=found)
    return tuple(map(int, found))


def _denoise_samples(denoiser: Denoise, shape: tuple[int, ...], points: Tensor, bandwidth: Tensor) -> Tensor:
    samples = points.reshape(-1, *shape)
    return checked_mean(denoiser(samples, bandwidth), samples).flatten(1)


def checked_mean(mean: Any, points: Tensor) -> Tensor:
    """Refuse an answer of a denoiser that is not one point per input."""
    if not isinstance(mean, Tensor) or mean.shape != points.shape:
        got = tuple(mean.shape) if isinstance(mean, Tensor) else type(mean).__name__
        must = f"return one point per input, a tensor of shape {tuple(points.shape)}"
        raise ArgumentError("denoiser", must, got=got)
    return mean
