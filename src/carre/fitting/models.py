"""The network of a fit: ours for tables, ours for images, or the user's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.fitting.settings import FitSettings
from carre.metric import AffineFrame
from carre.networks import FrozenDenoiser, build_image_model, build_model
from carre.training.defaults import DataScale

Denoiser = Callable[[Tensor, Tensor], Tensor]
Shape = tuple[int, int, int]


def build(
    settings: FitSettings,
    sample_shape: Shape | None,
    frame: AffineFrame,
    scale: DataScale,
    seed: int,
    device: torch.device,
) -> nn.Module:
    """Build the network, or take the user's (a copy: parameters of an estimator are not changed by a fit)."""
    if settings.own_network is not None:
        return copy.deepcopy(settings.own_network).to(device, torch.float32)
    unet = settings.unet(sample_shape)
    rank = settings.rank or scale.rank(frame.dim)
    mean: nn.Module | None = None
    if settings.denoiser is not None:
        mean = FrozenDenoiser(of_flat_points(settings.denoiser, sample_shape), frame)
    with_mean = settings.method != "uncentered"
    with seeded(seed):
        model = (
            build_model(
                frame.dim,
                rank,
                width=settings.width or scale.width(device),
                n_blocks=settings.n_blocks,
                spread=scale.spread,
                block=settings.block,
                mean=mean,
                with_mean=with_mean,
            )
            if unet is None or sample_shape is None
            else build_image_model(
                sample_shape, rank, spread=scale.spread, settings=unet, mean=mean, with_mean=with_mean
            )
        )
    return model.to(device, torch.float32)


def check_output(
    model: nn.Module, settings: FitSettings, points: Float[Tensor, "two dim"], edges: tuple[float, float]
) -> int:
    """Try a model once before it is trained: shapes that are wrong could broadcast silently. Return its rank."""
    n, dim = points.shape
    with torch.no_grad():
        mean, factor = copy.deepcopy(model).eval()(points, points.new_full((n,), (edges[0] * edges[1]) ** 0.5))
    if mean is None and settings.method == "joint":
        raise ValueError("network must return a mean with method='joint'; got None. Fit with method='uncentered'")
    if mean is not None and mean.shape != points.shape:
        raise ValueError(f"network must return a mean of shape (batch, {dim}); got {tuple(mean.shape)} for batch {n}")
    if factor.ndim != 3 or factor.shape[::2] != (n, dim):
        raise ValueError(f"network must return a factor of shape (batch, rank, {dim}); got {tuple(factor.shape)}")
    return int(factor.shape[1])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generator of the CPU for a while: initialization, and dropout of a user's network."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


class ImageDenoiser(nn.Module):
    """A user's denoiser of images, as one of flat points."""

    def __init__(self, denoiser: nn.Module, sample_shape: Shape) -> None:
        super().__init__()
        self.denoiser, self.sample_shape = denoiser, sample_shape

    def forward(self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"]) -> Tensor:
        """Estimate E[X | Y=y]."""
        return _denoise_images(self.denoiser, self.sample_shape, points, bandwidth)


def of_flat_points(denoiser: Denoiser, sample_shape: Shape | None) -> Denoiser:
    """Let a user's denoiser see images where the samples are images.

    Example:
        >>> upside_down = of_flat_points(lambda images, bandwidth: images.flip(2), (1, 2, 1))
        >>> upside_down(torch.tensor([[1.0, 2.0]]), torch.ones(1))
        tensor([[2., 1.]])
    """
    if sample_shape is None:
        return denoiser
    if isinstance(denoiser, nn.Module):
        return ImageDenoiser(denoiser, sample_shape)
    return partial(_denoise_images, denoiser, sample_shape)


def _denoise_images(denoiser: Denoiser, shape: Shape, points: Tensor, bandwidth: Tensor) -> Tensor:
    return denoiser(points.reshape(-1, *shape), bandwidth).flatten(1)
