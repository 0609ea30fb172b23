"""From (y, σ) to the posterior mean and the factor of the metric, with EDM-style preconditioning.

Everything here lives in the frame of the data: coordinates with unit root mean square.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.arguments import as_choice
from carre.backend.modes import differentiable
from carre.boundary import ArgumentError, checked_integer
from carre.matching import denoise_along
from carre.metric import AffineFrame
from carre.networks.denoisers import checked_mean
from carre.networks.film import FilmMLP, GatedBlock, PlainBlock
from carre.networks.pointwise import times
from carre.networks.unet import Convolution, UNet, UNetSettings

BLOCKS: dict[str, Callable[[int], nn.Module]] = {"gated": GatedBlock, "plain": PlainBlock}


def _scaled_input(points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]) -> Float[Tensor, "batch dim"]:
    """Bring noisy points to unit variance: c_in = 1/√(1 + σ²)."""
    return times(points, (1 + bandwidth.square()).rsqrt()[:, None])


class MeanNetwork(nn.Module):
    """The posterior mean m̂ = c_skip·y + c_out·trunk(c_in·y, σ), for data of unit variance per coordinate.

    With c_skip = 1/(1+σ²) and c_out = σ/√(1+σ²), an error of the trunk moves m̂ by at most σ times as
    much: no blow-up of (x − m̂)/σ at small σ [THEORY §3.6]. A trunk that outputs 0 is the linear
    denoiser of isotropic Gaussian data.

    Args:
        trunk: The network.
        skip: Of a map φ whose E[φ(X) | Y=y] is learned instead, φ(y) to take the place of y; of unit variance, too.

    Example:
        >>> mean = MeanNetwork(FilmMLP(3, 3, width=8, n_blocks=1))  # a head that starts at zero
        >>> mean(torch.ones(1, 3), torch.ones(1))
        tensor([[0.5000, 0.5000, 0.5000]], grad_fn=<AddBackward0>)
    """

    def __init__(self, trunk: nn.Module, skip: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.trunk, self.skip = trunk, skip

    def forward(
        self, points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch out"]:
        """Estimate E[X | Y=y]."""
        variance = (1 + bandwidth.square())[:, None]
        inner: Tensor = self.trunk(_scaled_input(points, bandwidth), bandwidth)
        start = points if self.skip is None else self.skip(points)
        return times(start, 1 / variance) + times(inner.to(points.dtype), bandwidth[:, None] * variance.rsqrt())


class FactorNetwork(nn.Module):
    """The factor F = c_G(σ)·D^(−1/2)·trunk(c_in·y, σ), with G = FᵀF.

    c_G² = s²/(s² + σ²) follows the size of G over σ, where s² = tr Σ²/tr Σ is the variance of the data
    in their own directions [THEORY §3.6].

    Args:
        trunk: The network.
        rank: The number of rows.
        spread: s.
        energy: What to divide the squares by, D by default: then rows start with norm 1.

    Example:
        >>> factor = FactorNetwork(FilmMLP(3, 2 * 3, width=8, n_blocks=1), rank=2, spread=1.0)
        >>> factor(torch.randn(5, 3), torch.full((5,), 0.1)).shape
        torch.Size([5, 2, 3])
        >>> factor.envelope(torch.tensor([1.0]))
        tensor([0.5000])
    """

    def __init__(self, trunk: nn.Module, *, rank: int, spread: float, energy: int | None = None) -> None:
        super().__init__()
        self.trunk, self.rank, self.spread, self.energy = trunk, rank, spread, energy

    def envelope(self, bandwidth: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Compute c_G², the expected size of the leading eigenvalues of G at σ."""
        envelope: Tensor = self.spread**2 / (self.spread**2 + bandwidth.square())
        return envelope

    def forward(
        self, points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch rank out"]:
        """Compute the rows of F."""
        rows: Tensor = self.trunk(_scaled_input(points, bandwidth), bandwidth).reshape(points.shape[0], self.rank, -1)
        scale = (self.envelope(bandwidth) / (self.energy or points.shape[1])).sqrt()
        return scale[:, None, None] * rows


class FrozenDenoiser(nn.Module):
    """A user's denoiser ``(y, σ) ↦ E[X | Y=y]``, in the units of the data, seen from the frame.

    A module is copied, frozen, and evaluated in the dtype of the points; any other callable is given
    float32, the dtype of training.

    Args:
        denoiser: The denoiser.
        frame: The frame.

    Example:
        >>> frame = AffineFrame(torch.tensor([10.0, 0.0]), 2.0)
        >>> nearest = FrozenDenoiser(lambda points, bandwidth: torch.ones_like(points), frame)
        >>> nearest(torch.zeros(1, 2), torch.ones(1))  # (1, 1) of the data, seen from the frame
        tensor([[-4.5000,  0.5000]])
    """

    center: Tensor
    basis: Tensor | None

    def __init__(self, denoiser: Callable[[Tensor, Tensor], Tensor], frame: AffineFrame) -> None:
        super().__init__()
        self.is_module = isinstance(denoiser, nn.Module)
        self.denoiser = copy.deepcopy(denoiser).requires_grad_(False) if isinstance(denoiser, nn.Module) else denoiser
        self.scale = frame.scale
        # Buffers travel with the model: inside a CUDA graph nothing may be copied from the host.
        self.register_buffer("center", frame.center)
        self.register_buffer("basis", frame.basis)
        self.train(False)

    def train(self, mode: bool = True) -> FrozenDenoiser:
        """Switch the mode of this wrapper only: the denoiser stays in evaluation mode."""
        super().train(mode)
        if isinstance(self.denoiser, nn.Module):
            self.denoiser.eval()
        return self

    def forward(
        self, points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch dim"]:
        """Estimate E[X | Y=y]; differentiable in the points when they ask for it."""
        dtype = points.dtype if self.is_module else torch.float32
        frame = AffineFrame(self.center, self.scale, self.basis).to(points.dtype)
        off = torch.autocast(points.device.type, enabled=False)
        with off, torch.set_grad_enabled(torch.is_grad_enabled() and points.requires_grad):
            given = frame.decode(points).to(dtype)
            with differentiable(points):
                mean = self.denoiser(given, (bandwidth * self.scale).to(dtype))
            return frame.encode(checked_mean(mean, given).to(points.dtype))


class MetricModel(nn.Module):
    """A mean network and a factor network side by side: ``model(y, σ) → (mean, factor)``.

    Two trunks, not one: a shared trunk with two heads diverged in 2 of 5 runs of the prototype. Any
    module with this signature can take its place; ``mean`` may be None (uncentered training).

    Args:
        mean: The mean network.
        factor: The factor network.
        architecture: What `rebuild_model` needs to build the same again, but for a denoiser of the user's own, as plain
            values; None where it cannot.

    Example:
        >>> factor = FactorNetwork(FilmMLP(3, 2 * 3, width=8, n_blocks=1), rank=2, spread=1.0)
        >>> mean, rows = MetricModel(None, factor)(torch.randn(5, 3), torch.full((5,), 0.1))
        >>> mean is None, rows.shape
        (True, torch.Size([5, 2, 3]))
    """

    def __init__(
        self, mean: nn.Module | None, factor: nn.Module, *, architecture: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.mean, self.factor, self.architecture = mean, factor, architecture

    def forward(
        self, points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch out"] | None, Float[Tensor, "batch rank out"]]:
        """Estimate E[X | Y=y] and the rows of F at noisy or clean points."""
        if self.mean is None:
            return None, self.factor(points, bandwidth)
        if not (points.is_cuda and torch.cuda.is_current_stream_capturing()):
            return self.mean(points, bandwidth), self.factor(points, bandwidth)
        # In a CUDA graph the two networks, and their gradients, run beside each other: each alone leaves most of
        # the GPU idle at moderate batch sizes.
        with _beside() as stream:
            mean = self.mean(points, bandwidth)
        factor = self.factor(points, bandwidth)
        torch.cuda.current_stream().wait_stream(stream)
        mean.record_stream(torch.cuda.current_stream())
        return mean, factor

    def along(
        self,
        points: Float[Tensor, "batch dim"],
        bandwidth: Float[Tensor, " batch"],
        choose: Callable[[Tensor], Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return mean, factor, vectors that are chosen when the factor is known, and what the mean's Jacobian makes of
        them, in one pass through each network; see `carre.matching.denoise_along`.
        """
        assert self.mean is not None
        factor = self.factor(points, bandwidth)
        vectors = choose(factor)
        if not (points.is_cuda and torch.cuda.is_current_stream_capturing()):
            mean, products = denoise_along(self.mean, points, bandwidth, vectors)
            return mean, factor, vectors, products
        # Beside each other are then their gradients.
        with _beside() as stream:
            mean, products = denoise_along(self.mean, points, bandwidth, vectors)
        here = torch.cuda.current_stream()
        here.wait_stream(stream)
        for result in (mean, products):
            if result is not None:
                result.record_stream(here)
        return mean, factor, vectors, products


@contextmanager
def _beside() -> Iterator[torch.cuda.Stream]:
    """Compute on another stream, which the caller has to wait for."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield stream


def build_model(
    dim: int,
    rank: int,
    *,
    width: int,
    n_blocks: int,
    spread: float,
    block: str = "gated",
    mean: nn.Module | None = None,
    with_mean: bool = True,
) -> MetricModel:
    """Build the default twin model.

    The mean head starts at zero; the factor head does not, since F = 0 is a saddle of the loss: its
    rows start with norm 1, whatever the dimension [THEORY §3.7].

    Args:
        dim: Size of a point in the frame.
        rank: Rows of the factor.
        width: Hidden width.
        n_blocks: Residual blocks per trunk.
        spread: s of `FactorNetwork`.
        block: The residual block, ``"gated"`` or ``"plain"``.
        mean: A ready mean network (a `FrozenDenoiser`) instead of a new one.
        with_mean: Whether to have a mean network at all.

    Example:
        >>> model = build_model(3, 2, width=8, n_blocks=1, spread=1.0)
        >>> mean, factor = model(torch.randn(5, 3), torch.full((5,), 0.1))
        >>> mean.shape, factor.shape
        (torch.Size([5, 3]), torch.Size([5, 2, 3]))
    """
    for name, count in (("dim", dim), ("rank", rank), ("width", width), ("n_blocks", n_blocks)):
        checked_integer(count, name=name, least=1)
    with_mean, is_known = with_mean and mean is None, mean is None or isinstance(mean, FrozenDenoiser)
    architecture: dict[str, Any] = {"kind": "mlp", "dim": dim, "rank": rank, "width": width, "n_blocks": n_blocks}
    architecture |= {"spread": spread, "block": block, "with_mean": with_mean}
    sizes: Any = {"width": width, "n_blocks": n_blocks, "block": BLOCKS[as_choice(block, tuple(BLOCKS), name="block")]}
    if with_mean:
        mean = MeanNetwork(FilmMLP(dim, dim, **sizes))
    factor = FactorNetwork(FilmMLP(dim, rank * dim, head_deviation=width**-0.5, **sizes), rank=rank, spread=spread)
    return MetricModel(mean, factor, architecture=architecture if is_known else None)


def build_image_model(
    sample_shape: tuple[int, int, int],
    rank: int,
    *,
    spread: float,
    settings: UNetSettings,
    mean: nn.Module | None = None,
    with_mean: bool = True,
) -> MetricModel:
    """Build twin U-Nets for images; see `build_model`.

    Args:
        sample_shape: Channels, height and width of an image.
        rank: Rows of the factor.
        spread: s of `FactorNetwork`.
        settings: The sizes of each U-Net.
        mean: A ready mean network (a `FrozenDenoiser`) instead of a new one.
        with_mean: Whether to have a mean network at all.

    Example:
        >>> settings = UNetSettings(channels=8, multipliers=(1, 2), n_blocks=1, attention=())
        >>> model = build_image_model((1, 8, 8), 5, spread=1.0, settings=settings)
        >>> mean, factor = model(torch.zeros(2, 64), torch.ones(2))
        >>> factor.shape
        torch.Size([2, 5, 64])
    """
    if rank < 1:
        raise ArgumentError("rank", "be a positive integer", got=rank)
    with_mean, is_known = with_mean and mean is None, mean is None or isinstance(mean, FrozenDenoiser)
    architecture: dict[str, Any] = {"kind": "unet", "sample_shape": list(sample_shape), "rank": rank, "spread": spread}
    architecture |= {"settings": settings.to_dict(), "with_mean": with_mean}
    if with_mean:
        mean = MeanNetwork(UNet(sample_shape, 1, settings))
    factor = FactorNetwork(UNet(sample_shape, rank, settings, head_deviation=1.0), rank=rank, spread=spread)
    return MetricModel(mean, factor, architecture=architecture if is_known else None)


def rebuild_model(architecture: dict[str, Any]) -> MetricModel:
    """Build a model with fresh weights from the ``architecture`` of another.

    Example:
        >>> model = build_model(3, 2, width=8, n_blocks=1, spread=1.0)
        >>> rebuild_model(model.architecture).architecture == model.architecture
        True
    """
    options = {name: value for name, value in architecture.items() if name != "kind"}
    if architecture["kind"] == "mlp":
        return build_model(options.pop("dim"), options.pop("rank"), **options)
    if architecture["kind"] == "unet":
        shape, settings = tuple(options.pop("sample_shape")), UNetSettings(**options.pop("settings"))
        return build_image_model(shape, options.pop("rank"), settings=settings, **options)
    raise ArgumentError("architecture", "be of kind 'mlp' or 'unet'", got=repr(architecture["kind"]))


def round_weights(model: nn.Module) -> None:
    """Round the matrices and filters of a frozen model to bfloat16, in place: the numbers autocast would round to.

    Of the library's own networks only. What a user's module makes of its weights is not known, nor is a denoiser
    that was given ever rounded. Biases and norms stay as they are. It is for evaluation under ``torch.autocast``.

    Example:
        >>> model = build_model(3, 2, width=8, n_blocks=1, spread=1.0).requires_grad_(False)
        >>> round_weights(model)
        >>> model.factor.trunk.head.weight.dtype
        torch.bfloat16
    """
    networks = (model.mean, model.factor) if isinstance(model, MetricModel) else ()
    for network in networks:
        if isinstance(network, MeanNetwork | FactorNetwork) and isinstance(network.trunk, FilmMLP | UNet):
            for module in network.trunk.modules():
                if isinstance(module, Convolution | nn.Linear):
                    module.weight = nn.Parameter(module.weight.to(torch.bfloat16), requires_grad=False)
