"""Watching a run: held-out losses, the gain over a linear denoiser, and divergence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend.memory import points_at_once
from carre.backend.rows import Samples
from carre.matching import BandwidthDistribution, Perturbation, perturb, predictive_loss
from carre.matching.perturbation import source_posterior
from carre.metric import LowRankMetric
from carre.sketch import Stroke, card, picture
from carre.training.objective import Objective

# Why training ended.
DONE, SPENT, TOO_HARD = "done", "budget spent", "a larger network is needed"
_VISIBLE_GAIN = 0.2
# A network that misses half a dimension of what a kernel sees has not resolved the data, however much it gains.
_MISSED_GAIN = 0.5
_KERNEL_SAMPLES = 8192
# The decomposition behind the linear denoiser costs n·D·min(n, D): of so many samples, and fewer where D is large.
_LINEAR_SAMPLES, _LARGEST_DECOMPOSITION = (4096, 6272), 4096


class TrainingDivergedError(RuntimeError):
    """A loss or a gradient was not finite. The model holds the averaged weights of the last good step.

    Attributes:
        step: The step at which it happened.
        model: The model, with its last good weights.
        field: The `NeuralField` of that model, when it was raised by a fit.

    Example:
        >>> raise TrainingDivergedError(7, 0.1, nn.Linear(1, 1))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        carre.training.monitor.TrainingDivergedError: the loss or a gradient was not finite at step 7; ...
    """

    def __init__(self, step: int, learning_rate: float, model: nn.Module) -> None:
        super().__init__(
            f"the loss or a gradient was not finite at step {step}; the last good weights are kept. "
            f"Lower learning_rate (now {learning_rate:g}), raise the smallest bandwidth, or check the "
            "samples for extreme values"
        )
        self.step, self.model = step, model
        self.field: object | None = None


class LinearPhaseWarning(UserWarning):
    """Training ended before the denoiser learned the curvature of the data [THEORY §3.9].

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", LinearPhaseWarning)  # a fit that is not done is an error in here
        ...     warnings.warn("train longer", LinearPhaseWarning)
        Traceback (most recent call last):
            ...
        carre.training.monitor.LinearPhaseWarning: train longer
    """


@dataclass(frozen=True)
class Evaluation:
    """One evaluation on the held-out samples, with the averaged weights.

    Attributes:
        step: Optimizer steps so far.
        seconds: Wall-clock time so far.
        mean_loss: Held-out denoising loss (weighted as in training).
        metric_loss: Held-out metric loss (weighted as in training). It rises while the mean improves,
            which leaves less variance to be explained: compare it at equal means only.
        predictive_loss: `carre.matching.predictive_loss`, a proper score of mean and metric together, in
            nats per sample; nan without a mean.
        gain: By how many dimensions the denoiser beats the best linear one, at each of the
            monitored bandwidths; empty without a mean of the points. Zero on curved data means that training has
            not left its linear phase [THEORY §3.9].
        drop: The largest drop between consecutive eigenvalues, on average over the pairs at the bandwidth where it is
            largest: near 1 where directions along the data and across them are told apart.
        improvement: What half more steps have brought, in nats per sample; None at first.
        noise: The standard error of that.

    Example:
        >>> Evaluation(100, 1.5, 0.9, 0.4, -0.7, gain=(0.8, 0.3)).loss
        -0.7
        >>> Evaluation(100, 1.5, 0.9, 0.4, math.nan, gain=()).loss
        0.4
    """

    step: int
    seconds: float
    mean_loss: float
    metric_loss: float
    predictive_loss: float
    gain: tuple[float, ...]
    drop: float = 0.0
    improvement: float | None = None
    noise: float | None = None

    @property
    def loss(self) -> float:
        """What early stopping watches: the predictive loss, or the metric loss where there is no mean."""
        return self.metric_loss if math.isnan(self.predictive_loss) else self.predictive_loss


@dataclass(repr=False)
class History:
    """The record of a run.

    Attributes:
        bandwidths: The monitored σ, in the units of the samples that were trained on (in ``history_`` of the
            estimator: of the data).
        kernel_gain: The gain of the plain kernel denoiser at those σ: what the samples alone can show. Empty when
            nothing was held out.
        evaluations: The evaluations on the held-out samples, in order.
        stop_reason: Why training ended.
        seconds: Wall-clock time of training.
        steps: Optimizer steps taken.
        kept: Index of the evaluation whose weights were kept: the best one.
        gained: What half more steps had brought when the learning rate began to fall to zero, in nats per sample; None
            where training was too short to say.
        gained_noise: The standard error of that.
        trains_mean: Whether the denoiser was trained, too; a frozen one is what it was.

    Example:
        >>> first = Evaluation(50, 1.0, 0.9, 0.4, -0.2, gain=(0.1,))
        >>> second = Evaluation(100, 2.0, 0.8, 0.4, -0.7, gain=(0.9,))
        >>> History(bandwidths=(0.3,), evaluations=[first, second], kept=1).gain
        array([0.9])
    """

    bandwidths: tuple[float, ...] = ()
    kernel_gain: tuple[float, ...] = ()
    evaluations: list[Evaluation] = field(default_factory=list)
    stop_reason: str = ""
    seconds: float = 0.0
    steps: int = 0
    kept: int = -1
    gained: float | None = None
    gained_noise: float | None = None
    trains_mean: bool = True

    def __repr__(self) -> str:
        return f"History({self.steps:,} steps in {self.seconds:.0f} s, ended: {self.stop_reason or 'not yet'})"

    def _repr_html_(self) -> str:
        facts = {"ended": self.stop_reason, "outlook": self.outlook}
        facts["gain"] = f"{self.gain.max():.2f} dimensions over a linear denoiser" if self.gain.size else ""
        steps, losses = [one.step for one in self.evaluations], [one.loss for one in self.evaluations]
        drawn = picture(
            "Held-out loss by step",
            [Stroke(steps, losses)],
            x_ticks={step: f"{step:,}" for step in steps[:1] + steps[-1:]},
            y_ticks={loss: f"{loss:.3g}" for loss in losses[:1] + losses[self.kept :][:1] if math.isfinite(loss)},
            mark=(steps[self.kept], "kept") if steps else None,
        )
        title = f"{self.steps:,} steps of training, {self.seconds:.0f} s"
        return card(title, facts, drawn, doubts=(linear_phase(self),))

    @property
    def outlook(self) -> str:
        """Whether training was long enough, and what more of it would bring, in a sentence.

        Example:
            >>> History(stop_reason=DONE, gained=0.03).outlook
            'Training was long enough: half more steps had brought 0.03 nats per sample, and more would bring less.'
        """
        if self.gained is None:
            return "Training was too short to say what more of it would bring."
        if self.stop_reason == DONE and self.gained <= 2 * (self.gained_noise or 0.0):
            return "Training was long enough: the loss on held-out samples fell no more than by chance."
        brought = f"half more steps had brought {self.gained:.2g} nats per sample"
        if self.stop_reason == DONE:
            return f"Training was long enough: {brought}, and more would bring less."
        if self.gained <= 0:
            return "The budget of training was spent; the loss on held-out samples no longer fell."
        return f"The budget of training was spent while it still improved: {brought}, and more may bring as much again."

    @property
    def gain(self) -> np.ndarray:
        """The gain over the linear denoiser with the weights that were kept, one value per monitored σ."""
        return np.array(self.evaluations[self.kept].gain) if self.evaluations else np.array([])


def linear_phase(history: History) -> str | None:
    """Say that training stopped in its linear phase, if it did; or that a frozen denoiser is in it.

    Until the denoiser leaves that phase, G is nearly a perfect projector on the linear hull, one or
    more dimensions too many. Flat data have no gain to be had; so the gain is held against that of
    the kernel denoiser, which needs no training: where the kernel sees curvature and the network
    less than half of it, or half a dimension less, the network is not done.

    Example:
        >>> evaluation = Evaluation(50, 1.0, 0.9, 0.4, -0.2, gain=(0.1,))
        >>> history = History(bandwidths=(0.3,), kernel_gain=(0.9,), evaluations=[evaluation], kept=0)
        >>> linear_phase(history)  # doctest: +ELLIPSIS
        'training stopped in its linear phase: at σ = 0.3 the denoiser gains 0.10 dimensions over a linear one where ...
    """
    for sigma, kernel, learned in zip(history.bandwidths, history.kernel_gain, history.gain, strict=False):
        if kernel > _VISIBLE_GAIN and learned < max(0.5 * kernel, kernel - _MISSED_GAIN):
            whose = "training stopped" if history.trains_mean else "the denoiser that was given is"
            remedy = "train longer (raise max_steps or max_seconds)"
            if not history.trains_mean:
                remedy = "no step of this fit changes that: train the denoiser longer, or fit with method='joint'"
            return (
                f"{whose} in its linear phase: at σ = {sigma:.3g} the "
                f"denoiser gains {learned:.2f} dimensions over a linear one where a kernel gains {kernel:.2f}. "
                f"Dimensions will be too high; {remedy}"
            )
    return None


class LinearDenoiser:
    """The best linear denoiser m = Σ(Σ + σ²I)⁻¹y of centered samples (Wiener)."""

    def __init__(self, samples: Samples) -> None:
        dim, (fewest, most) = samples.shape[1], _LINEAR_SAMPLES
        # With fewer samples than D the estimate of Σ is zero off their span and too large on its leading directions:
        # a weaker denoiser than the best linear one. Gains over it are too high, those of the network and of the kernel
        # by the same number: their difference, which `linear_phase` goes by, stays, but not the zero of the gain.
        n_rows = min(max(8 * dim, fewest), most if dim <= _LARGEST_DECOMPOSITION else _LARGEST_DECOMPOSITION)
        subset = samples[:n_rows]
        self.center = subset.mean(0)
        _, singular, directions = torch.linalg.svd(subset - self.center, full_matrices=False)
        self.directions: Tensor = directions
        self.variances: Tensor = singular.square() / len(subset)

    def __call__(
        self, points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch dim"]:
        """Denoise linearly."""
        shrinkage = self.variances / (self.variances + bandwidth.square()[:, None])
        return self.center + (shrinkage * ((points - self.center) @ self.directions.mT)) @ self.directions


class HeldOut:
    """A fixed set of noisy held-out pairs at a few bandwidths; the same for every evaluation."""

    def __init__(
        self,
        samples: Samples,
        training_samples: Samples,
        bandwidths: BandwidthDistribution,
        *,
        generator: torch.Generator,
        n_levels: int = 8,
        n_pairs: int = 512,
    ) -> None:
        levels = (torch.arange(n_levels, device=samples.device, dtype=samples.dtype) + 0.5) / n_levels
        self.levels = bandwidths.quantile(levels)
        few = samples[:n_pairs]
        x = few.repeat(-(-n_pairs // len(few)), 1)[:n_pairs]
        self.pairs = [perturb(x, sigma.expand(len(x)), generator=generator) for sigma in self.levels]
        linear = LinearDenoiser(training_samples)
        self.linear_errors = [_errors(pair, linear(pair.points, pair.bandwidth)).mean() for pair in self.pairs]
        self.kernel_gain: tuple[float, ...] = ()
        # Of the training samples each would be its own neighbor: that says nothing about curvature.
        if samples is not training_samples:
            kernel = training_samples[:_KERNEL_SAMPLES]
            for linear_error, pair in zip(self.linear_errors, self.pairs, strict=True):
                mean = source_posterior(pair.points, kernel, pair.bandwidth) @ kernel
                self.kernel_gain += (float(linear_error - _errors(pair, mean).mean()),)

    @torch.no_grad()
    def evaluate(
        self, model: nn.Module, objective: Objective, *, step: int, seconds: float
    ) -> tuple[Evaluation, Float[Tensor, "levels pairs kinds"]]:
        """Compute the held-out losses and the gain of a model; the loss of each pair and, with a mean, its error."""
        rows, gain, drops, watched = [], [], [], []
        for pair, linear_error in zip(self.pairs, self.linear_errors, strict=True):
            size = points_at_once(model, pair.points, largest=len(pair.points))
            parts = zip(*(torch.split(tensor, size) for tensor in pair.tensors()), strict=True)
            measured = [_measure(model, objective, Perturbation(*part)) for part in parts]
            drop, *values = (torch.cat(part) for part in zip(*measured, strict=True))
            drops.append(float(drop.mean()))
            watched.append(torch.stack([values[min(2, len(values) - 1)], *values[3:]], 1))
            averages = [part.mean() for part in values]
            rows.append([*map(float, averages[:3]), math.nan][:3])
            gain += [float(linear_error - error) for error in averages[3:]]
        mean_loss, metric_loss, predictive = np.mean(rows, axis=0).tolist()
        found = Evaluation(step, seconds, mean_loss, metric_loss, predictive, tuple(gain), drop=max(drops))
        return found, torch.stack(watched)


def _measure(model: nn.Module, objective: Objective, pair: Perturbation) -> list[Float[Tensor, " batch"]]:
    """Compute drops of eigenvalues, both losses; with a mean the predictive loss, with one of the points its error."""
    mean, factor = model(pair.points, pair.bandwidth)
    values = [_drops(factor), *objective.losses(mean, factor, pair)]
    if mean is not None:
        seen = objective.image(pair)
        residual = seen.centered(mean).displacement[:, 0]
        metric, floor = objective.above_floor(factor, pair.bandwidth)
        values.append(predictive_loss(metric, residual, seen.displacement[:, 0], floor=floor))
        if objective.function is None:
            values.append(_errors(pair, mean))
    return values


def _drops(factor: Float[Tensor, "batch rank dim"]) -> Float[Tensor, " batch"]:
    """Compute the largest drop between consecutive eigenvalues of G; what a rank below D leaves out is not seen."""
    values = LowRankMetric(factor).eigenvalues().clamp(0, 1)
    # In one dimension there is nothing across the data.
    return (values[:, :-1] - values[:, 1:]).amax(1) if values.shape[1] > 1 else torch.ones_like(values[:, 0])


def _errors(pair: Perturbation, mean: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
    """Compute |x − m̂(y)|²/σ², on average the number of directions in which the noise was not removed."""
    return (pair.mean_target - mean).square().sum(1) / pair.bandwidth.square()
