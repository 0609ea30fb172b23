"""The learned metric."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.backend.memory import points_at_once
from carre.backend.modes import fused_operations, is_transformed, untransformed
from carre.boundary import ArgumentError
from carre.fields.field import Field, NoDenoiserError
from carre.metric import AffineFrame, LowRankMetric
from carre.networks import FilmMLP, MetricModel, UNet
from carre.networks.model import round_weights
from carre.networks.pointwise import is_one_value

# In units of the noise: below, σ is less than 0.7 of it, and there is nothing to be learned but noise [THEORY §11].
LEAST_SCALE = 1.5**0.5
# Points at a time: as many as keep a device busy. Of images fewer, as many as fit into the working memory.
_CHUNK = {"cpu": 16_384, "cuda": 65_536}

# More points keep a GPU busy by themselves; every recording holds the memory of its intermediate results.
_MOST_POINTS, _MOST_RECORDINGS = 8, 8
_WARMUP = 3


class NeuralField(Field):
    """A trained model, seen from the data's space.

    The model works in the frame of the data; the field brings points and σ into it and carries means
    and metrics out. It is evaluated in the dtype and on the device of the points.

    Args:
        model: ``model(y, σ) → (mean, factor)`` in the coordinates of the frame; mean may be None. It is copied.
        frame: The frame.
        ridge: λ of G = FᵀF + λI.
        noise: τ of the samples that the model was trained on, in the units of the data. The field is then that of the
            clean data: at the scale s the model is asked at σ = √(s² − τ²), its factor is that of the clean data, and
            its mean is carried over [THEORY §11]. Scales below 1.22τ are within the noise: there the metric stays what
            it is at 1.22τ, and the mean is continued linearly in s², as curvature displaces it.
        mixed_precision: Whether the network's products are rounded to bfloat16, which on a GPU is several times as
            fast; see `with_mixed_precision`.
        chunk: Points computed at once; fewer need less memory. None takes as many as keep a device busy, of images as
            many as fit into the working memory.

    Example:
        >>> class Shrink(nn.Module):  # exact for a standard Gaussian in the frame
        ...     def forward(self, points, bandwidth):
        ...         gain = 1 / (1 + bandwidth.square())
        ...         return gain[:, None] * points, gain.sqrt()[:, None, None] * torch.eye(2)
        >>> field = NeuralField(Shrink(), AffineFrame(torch.zeros(2), scale=2.0))  # a variance of 4
        >>> field.metric(torch.zeros(1, 2), 2.0).eigenvalues()  # 4/(4 + σ²)
        tensor([[0.5000, 0.5000]])
        >>> field.denoise(torch.tensor([[2.0, 6.0]]), 2.0)
        tensor([[1., 3.]])
    """

    def __init__(
        self,
        model: nn.Module,
        frame: AffineFrame,
        *,
        ridge: float = 0.0,
        noise: float = 0.0,
        mixed_precision: bool = False,
        chunk: int | None = None,
    ) -> None:
        if chunk is not None and chunk < 1:
            raise ArgumentError("chunk", "be at least 1, or None", got=chunk)
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.dim = len(frame.center)
        self.frame, self.ridge, self.noise = frame, ridge, noise
        self.mixed_precision, self.chunk = mixed_precision, chunk
        self._copies: dict[tuple[torch.device, torch.dtype], tuple[nn.Module, AffineFrame]] = {}
        self._replays = Replays()

    def with_mixed_precision(self) -> NeuralField:
        """Return the same field with the network's products in bfloat16: faster on a GPU, less exact.

        Measured in experiments/sphere: about five times as fast, with up to a fifth more tangent error where that is
        smallest. Points in float64 are answered in float64, without rounding.
        """
        options: Any = {"ridge": self.ridge, "noise": self.noise, "chunk": self.chunk}
        return NeuralField(self.model, self.frame, mixed_precision=True, **options)

    def points_at_once(self, points: Float[Tensor, "n dim"]) -> int:
        """Return how many points to ask for at once: as many as keep a device busy, of images as many as fit."""
        largest = _CHUNK.get(points.device.type, _CHUNK["cpu"])
        return self.chunk or points_at_once(self.model, points, largest=largest)

    def _metric(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> LowRankMetric:
        """Compute G = FᵀF + λI at any point and any σ, best inside the trained range."""
        return LowRankMetric(self._evaluate(points, bandwidth, "factor"), self.ridge)

    def _denoise(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Float[Tensor, "n dim"]:
        mean, least = self._evaluate(points, bandwidth, "mean"), LEAST_SCALE * self.noise
        if self.noise == 0.0 or not (_is_differentiated(bandwidth) or bool((bandwidth < least).any())):
            return mean
        farther = self._evaluate(points, torch.full_like(bandwidth, 2**0.5 * least), "mean")
        # Linear in s², from what is known at the least scale and at √2 times it.
        share = (bandwidth.square() / least**2 - 1).clamp_max(0)
        return mean + share[:, None] * (farther - mean)

    @property
    def observed(self) -> NeuralField:
        """The model asked as it was trained, at σ of the samples with their noise: its mean is theirs."""
        same = copy.copy(self)
        same.noise, same._replays = 0.0, Replays()
        return same

    @contextmanager
    def _precision(self, points: Tensor, sigma: Tensor) -> Iterator[None]:
        """Round products; where nothing is differentiated, also fuse pointwise steps."""
        is_plain = not (_is_differentiated(points) or _is_differentiated(sigma))
        fused = fused_operations(points.device) if is_plain else nullcontext()
        with torch.autocast(points.device.type, torch.bfloat16), fused:
            yield

    def _at(self, points: Tensor) -> tuple[nn.Module, AffineFrame]:
        """Return the model and the frame in the dtype and on the device of the points."""
        key = (points.device, points.dtype)
        if key not in self._copies:
            with untransformed():
                model = copy.deepcopy(self.model).to(points.device, points.dtype)
                if self.mixed_precision and points.dtype == torch.float32:
                    round_weights(model)
                self._copies[key] = (model, self.frame.to(points.device, points.dtype))
        return self._copies[key]

    def _evaluate(self, points: Tensor, sigma: Tensor, want: str) -> Tensor:
        """Evaluate the model in the frame and carry the result out; a few points on a GPU by a replay."""
        model, _ = self._at(points)
        is_plain = not (_is_differentiated(points) or _is_differentiated(sigma))
        if is_plain and self._replays.can_replay(points) and is_ours(model, want):
            one = is_one_value(sigma)
            evaluate = partial(self._compute, want=want, is_one=one)
            return self._replays((want, one), evaluate, points, sigma[:1] if one else sigma)
        return self._compute(points, sigma, want=want)

    def _compute(self, points: Tensor, sigma: Tensor, *, want: str, is_one: bool = False) -> Tensor:
        model, frame = self._at(points)
        if is_one:
            sigma = sigma.expand(len(points))
        # A single σ stays one, which the network embeds only once.
        scaled = sigma[:1] / frame.scale if is_one_value(sigma) else sigma / frame.scale
        asked, stretch = observed_scale(scaled, self.noise / frame.scale)
        inside = frame.encode(points)
        with self._precision(points, sigma) if self.mixed_precision else nullcontext():
            result = _answer(model, inside, asked.expand(len(sigma)), want)
        if result is None:
            raise NoDenoiserError("this field was trained uncentered and has no denoiser; fit with method='joint'")
        # Only the network is rounded; the way out is not.
        result = result.to(points.dtype)
        if want == "mean" and self.noise > 0:
            result = inside + stretch[:, None] * (result - inside)
        return frame.decode(result) if want == "mean" else frame.lift(result)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copies": {}}


def observed_scale(bandwidth: Float[Tensor, " n"], noise: float) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return σ = √(s² − τ²), at which noisy samples show what the clean data are at s, and s²/σ².

    Example:
        >>> sigma, stretch = observed_scale(torch.tensor([5.0]), 3.0)
        >>> sigma, stretch.round(decimals=2)
        (tensor([4.]), tensor([1.5600]))
    """
    if noise == 0.0:
        return bandwidth, torch.ones_like(bandwidth)
    square = bandwidth.square().clamp_min((LEAST_SCALE * noise) ** 2)
    return (square - noise**2).sqrt(), square / (square - noise**2)


def _is_differentiated(tensor: Tensor) -> bool:
    """Say whether a derivative in a tensor is taken: backward, forward, or by a transformation."""
    return (torch.is_grad_enabled() and tensor.requires_grad) or is_transformed(tensor)


def is_ours(model: nn.Module, want: str) -> bool:
    """Say whether a network is one of the library's: what a user's own does when it is called is not known."""
    network = getattr(model, want, None) if isinstance(model, MetricModel) else None
    return isinstance(getattr(network, "trunk", None), FilmMLP | UNet)


def _answer(model: nn.Module, points: Tensor, bandwidth: Tensor, want: str) -> Tensor | None:
    """Ask for the mean or the factor; the default model has two networks side by side, of which one is enough."""
    answer: Tensor | None
    if not isinstance(model, MetricModel):
        answer = model(points, bandwidth)[0 if want == "mean" else 1]
    elif want == "factor":
        answer = model.factor(points, bandwidth)
    else:
        answer = None if model.mean is None else model.mean(points, bandwidth)
    return answer


@dataclass(eq=False)
class _Recording:
    """A captured evaluation, with the memory that its inputs and its output have."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Tensor


class Replays:
    """Recordings of pure functions of tensors on a GPU, one for each shape that they were asked with.

    An evaluation at a few points is bound by its hundreds of launches, not by their arithmetic; a CUDA graph launches
    them as one.

    Example:
        >>> replays = Replays()
        >>> replays.can_replay(torch.zeros(1, 3))  # on a CPU there is nothing to gain
        False
    """

    def __init__(self) -> None:
        self._recordings: OrderedDict[Hashable, _Recording] = OrderedDict()
        self._lock = threading.Lock()
        self._done: torch.cuda.Event | None = None

    def can_replay(self, points: Tensor) -> bool:
        """Say whether an evaluation at so few points is to be replayed; not while something else is recorded."""
        if not points.is_cuda or len(points) > _MOST_POINTS or torch.compiler.is_compiling():
            return False
        return not torch.cuda.is_current_stream_capturing()

    def __call__(self, name: Hashable, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Evaluate a function that is always the same under a name, by a replay; recorded at the first time."""
        modes = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        key = name, modes, *((tuple(each.shape), each.dtype, each.device) for each in inputs)
        with self._lock, torch.cuda.device(inputs[0].device), torch.no_grad():
            if key not in self._recordings:
                self._recordings[key] = _record(function, inputs)
                if len(self._recordings) > _MOST_RECORDINGS:
                    self._recordings.popitem(last=False)
            self._recordings.move_to_end(key)
            recording, stream = self._recordings[key], torch.cuda.current_stream()
            # A replay on another stream may still be reading what this one writes.
            if self._done is not None:
                stream.wait_event(self._done)
            for mine, given in zip(recording.inputs, inputs, strict=True):
                mine.copy_(given)
            recording.graph.replay()
            result = recording.output.clone()
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._done.record(stream)
            return result

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


def _record(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> _Recording:
    """Capture an evaluation; what it needs to have been called before, it is called for on a stream of its own."""
    kept = tuple(each.detach().clone() for each in inputs)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARMUP):
            function(*kept)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        output = function(*kept)
    return _Recording(graph, kept, output)
