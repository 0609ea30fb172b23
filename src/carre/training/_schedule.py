"""How long to train, and at which rate: until the held-out evidence says that it is done, within a budget."""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from carre.training.config import TrainingConfig

# Evaluations are this far apart: a ninth of the steps so far, and at first as `evaluations` says.
_SPACING = 1 / 9
# What was gained since this share of the steps so far says whether to go on.
_LOOK_BACK = 0.67
# A gain is one if it is beyond so many of its standard errors.
_STANDARD_ERRORS = 2.0
# Learning lasts so many of the first rounds at least.
_FEWEST_ROUNDS, _FEWEST_POLISH = 3, 150
# Of the fits of experiments/dimension, eight in ten learned for no more rounds than this; where data fill their hull,
# nearly all for no more than that, and a few did not need all of the decay.
_USUAL_ROUNDS, _ROUNDS_IF_FLAT, _CUT_SHORT = 14.0, 4.0, 0.7
# Worse by so many times what would be worth going on is worse by far.
_FAR_WORSE = 10.0
# After so many steps, easy data gain far less than this.
_TRIED, _HARD = 1500, 1.0
# Eigenvalues are told apart by a drop of this size, on average; where they are not, learning lasts so many rounds at
# least, and as long as half more steps remove the noise from so many more directions at some scale.
CLEAR_DROP, _LONGEST_PLATEAU, _WORTHWHILE_DIRECTIONS = 0.5, 15, 0.02


class Schedule:
    """The course of a run, in shares of its budget: learning at a constant rate, a decay to zero, and a polish.

    The rate can be extended: nothing before the decay depends on when it begins. That is when the evidence says that
    more learning brings nothing, or when what is left of the budget is needed for decay and polish. Both last as long,
    measured by what went before, however early that was. A decay in which all gets worse is cut short: few samples are
    being learned by heart.
    """

    def __init__(self, config: TrainingConfig, *, polishes: bool) -> None:
        self.config = config
        # Of few steps none is spent on it; the decay is longer then.
        self._polish = config.polish if polishes and config.polish * config.max_steps >= _FEWEST_POLISH else 0.0
        self._decay = config.decay + config.polish - self._polish
        self.settled: float | None = None
        self.worsened: float | None = None

    def spent(self, steps: int, seconds: float) -> float:
        """Compute the share of the budget that is spent, by steps or by seconds."""
        return min(max(steps / self.config.max_steps, seconds / self.config.seconds), 1.0)

    def likely(self, steps: int, seconds: float, per_step: float) -> tuple[float, float]:
        """Say between which times the run will probably end; while it settles, when it will."""
        spent = self.spent(steps, seconds)
        if spent >= self.decay_from:
            return (seconds * self.end / spent,) * 2
        bounds = likely_steps(self.config)
        # Learning that is not over by now takes a run that much longer.
        counts = [max(count, min(steps / (1 - self._decay - self._polish), self.config.max_steps)) for count in bounds]
        least, most = (min(seconds + (count - steps) * per_step, self.config.seconds) for count in counts)
        return least, most

    @property
    def decay_from(self) -> float:
        """Where the rate begins to fall."""
        return 1 - self._decay - self._polish if self.settled is None else self.settled

    @property
    def polish_from(self) -> float:
        """Where the mean is done."""
        learning = 1 - self._decay - self._polish
        return self.decay_from * (1 - self._polish) / learning if self.worsened is None else self.worsened

    @property
    def end(self) -> float:
        """The share of the budget that the whole run takes, as far as is known."""
        return self.polish_from / (1 - self._polish)

    def has_cooled(self, spent: float) -> bool:
        """Say whether the decay is half over: what still gets worse then does not because the rate is high."""
        return spent >= (self.decay_from + self.polish_from) / 2

    def rate(self, step: int, spent: float) -> float:
        """Return the learning rate: a linear warm-up, nearly constant at first and ever lower, and a decay to zero."""
        config = self.config
        warmup = min(config.warmup, max(config.max_steps // 10, 1))
        left = (self.polish_from - spent) / max(self.polish_from - self.decay_from, 1e-12)
        cooled = 1 / math.sqrt(1 + step / config.cooling)
        return config.learning_rate * cooled * min((step + 1) / warmup, 1.0, max(left, 0.0))

    def polish_rate(self, spent: float) -> float:
        """Return the learning rate of the polish: a short rise, and a cosine to zero."""
        done = min(max((spent - self.polish_from) / max(self.end - self.polish_from, 1e-12), 0.0), 1.0)
        return self.config.learning_rate * min(done / 0.05 + 0.02, 1.0) * 0.5 * (1 + math.cos(math.pi * done))

    def evaluates(self, steps: int, latest: int, spent: float) -> bool:
        """Say whether an evaluation is due; not shortly before the one at the end of learning."""
        first = max(self.config.max_steps // self.config.evaluations, 1)
        is_due = steps - latest >= max(min(first, self.config.round_steps), int(_SPACING * steps))
        return is_due and spent < (1 - 0.5 * _SPACING) * self.polish_from


def likely_steps(config: TrainingConfig) -> tuple[float, float]:
    """Say how many steps a run will probably take, the least and the most: data differ by that much.

    Learning lasts three rounds at least, and of most data no more than fourteen; decay and polish last in proportion.
    Data that fill their hull have nothing to learn beyond what is seen at once.

    Example:
        >>> likely_steps(TrainingConfig(max_steps=6000, round_steps=100))
        (1000.0, 4667.0)
        >>> likely_steps(TrainingConfig(max_steps=500)), likely_steps(TrainingConfig(until_done=False))
        ((500.0, 500.0), (4000.0, 4000.0))
    """
    per_round = config.round_steps / (1 - config.decay - config.polish)
    rounds = (_CUT_SHORT * _FEWEST_ROUNDS, _ROUNDS_IF_FLAT) if config.fills_hull else (_FEWEST_ROUNDS, _USUAL_ROUNDS)
    counts = [round(count * per_round, 0) if config.until_done else math.inf for count in rounds]
    least, most = (float(min(count, config.max_steps)) for count in counts)
    return least, most


class Gain(NamedTuple):
    """What half more steps have brought on the held-out pairs.

    Attributes:
        value: Nats per sample.
        noise: The standard error of that.
        directions: In how many more directions the noise is removed than before, beyond chance, at the scale where that
            has grown most; 0 where there is no mean.

    Example:
        >>> Gain(0.1, 0.02, 0.3).directions
        0.3
    """

    value: float
    noise: float
    directions: float = 0.0


class Evidence:
    """What the held-out pairs say at each evaluation, kept to tell a gain from chance.

    The pairs are the same every time, so that their differences have far less noise than their values.
    """

    def __init__(self) -> None:
        self.values: dict[int, Float[Tensor, "levels pairs kinds"]] = {}

    def add(self, step: int, values: Float[Tensor, "levels pairs kinds"]) -> Gain | None:
        """Note an evaluation: the loss of every pair at every scale and, with a mean, its error; return the gain."""
        earlier = [past for past in self.values if past <= _LOOK_BACK * step]
        self.values[step] = values.detach().cpu()
        if not earlier:
            return None
        # Older ones are not needed any more.
        self.values = {past: value for past, value in self.values.items() if past >= earlier[-1]}
        # Per half more steps, however far back that was.
        share = math.log(1.5) / math.log(step / earlier[-1])
        difference = share * (self.values[earlier[-1]] - self.values[step])
        losses = difference[..., 0].flatten()
        gain, noise = float(losses.mean()), float(losses.std() / math.sqrt(len(losses)))
        if difference.shape[-1] == 1:
            return Gain(gain, noise)
        errors = difference[..., 1]
        certain = errors.mean(1) - _STANDARD_ERRORS * errors.std(1) / math.sqrt(errors.shape[1])
        return Gain(gain, noise, float(certain.max()))


def is_done(config: TrainingConfig, steps: int, gain: Gain, *, is_clear: bool) -> bool:
    """Say whether a gain on the held-out pairs is none, or less than it would have to be to go on.

    Where directions along the data and across them are not told apart yet, at no scale, little is gained for long while
    a curved shape still looks flat [THEORY §3.9], or is found at the smallest scale alone, where all of it is some
    hundredths of a nat: there, learning goes on while any direction is found, and for many rounds in any case; not
    where samples are being learned by heart.

    Example:
        >>> config = TrainingConfig(worth=0.04, round_steps=100)
        >>> [is_done(config, 1000, Gain(gain, 0.001), is_clear=True) for gain in (0.3, 0.03)]
        [False, True]
        >>> [is_done(config, steps, Gain(0.0, 0.001), is_clear=False) for steps in (1000, 2000)]
        [False, True]
        >>> is_done(config, 4000, Gain(0.01, 0.001, directions=0.1), is_clear=False)
        False
    """
    if not _is_tried(config, steps) or gain.value >= max(_STANDARD_ERRORS * gain.noise, config.worth):
        return False
    if is_clear or is_worse(config, steps, gain):
        return True
    return steps >= _LONGEST_PLATEAU * config.round_steps and gain.directions < _WORTHWHILE_DIRECTIONS


def is_worse(config: TrainingConfig, steps: int, gain: Gain) -> bool:
    """Say whether the held-out pairs are predicted worse than they were: beyond chance, or by far.

    What is learned by heart costs a few pairs very much, so that the standard error is large.

    Example:
        >>> config = TrainingConfig(worth=0.04)
        >>> [is_worse(config, 1000, Gain(*found)) for found in ((-0.3, 0.01), (-0.01, 0.01), (-7.0, 5.0))]
        [True, False, True]
    """
    return _is_tried(config, steps) and gain.value < -min(_STANDARD_ERRORS * gain.noise, _FAR_WORSE * config.worth)


def _is_tried(config: TrainingConfig, steps: int) -> bool:
    """Say whether there were enough steps for the evidence to mean something."""
    return steps >= _FEWEST_ROUNDS * config.round_steps


def is_hard(steps: int, gain: float) -> bool:
    """Say whether so much is still to be gained after the first steps that a larger network would be far better.

    Example:
        >>> is_hard(2000, 5.0), is_hard(2000, 0.2), is_hard(100, 5.0)
        (True, False, False)
    """
    return steps >= _TRIED and gain > _HARD
