"""What a fit is told, and whether that makes sense."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from carre.arguments import as_choice, as_device, check_arguments
from carre.boundary import ArgumentError
from carre.fields.neural import LEAST_SCALE
from carre.matching import LogUniform
from carre.networks import UNetSettings
from carre.networks.model import BLOCKS
from carre.toolkit.noise import noise_setting

Shape = tuple[int, int, int]

# Options of the network for tables, and what there is instead for images.
_OF_TABLES = {
    "width": "Give its sizes instead, with network=UNetSettings(channels=...)",
    "n_blocks": "Give its sizes instead, with network=UNetSettings(n_blocks=...)",
    "block": "Leave it out; what can be chosen there is given with network=UNetSettings(...)",
}
# Eigenvalues along the data are 1: in float32, beside more than that they are nothing.
MOST_RIDGE = 1e12
METHODS = ("joint", "two-stage", "uncentered")


@check_arguments
@dataclass(frozen=True, eq=False)
class FitSettings:
    """What a fit is told; the meaning of each is documented in `carre.fit`. None: from the data.

    Example:
        >>> FitSettings(max_steps=500, bandwidth_range=[0.1, 1.0]).bandwidth_range
        (0.1, 1.0)
        >>> FitSettings(ridge=-1.0)
        Traceback (most recent call last):
            ...
        carre.boundary.ArgumentError: ridge must be a number from 0 to 1e+12; got -1.0
    """

    rank: int | None = None
    bandwidth: float | None = None
    bandwidth_range: Sequence[float] | None = None
    method: str = "joint"
    denoiser: Callable[[Tensor, Tensor], Tensor] | None = None
    network: nn.Module | UNetSettings | None = None
    width: int | None = None
    n_blocks: int = 3
    block: str = "gated"
    ridge: float = 0.0
    noise: str | float = "auto"
    reduce: bool = True
    max_steps: int | None = None
    max_seconds: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    validation_fraction: float = 0.1
    mixed_precision: bool | None = None
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        if self.own_network is not None and self.method == "two-stage":
            raise ArgumentError("network", "be None with method='two-stage', which builds its own around the denoiser")
        if self.own_network is not None and self.rank is not None:
            raise ArgumentError("rank", "be None with a network of your own, which has its own")
        for name in ("rank", "width", "n_blocks", "max_steps", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ArgumentError(name, "be a positive integer", got=value)
        as_choice(self.method, METHODS, name="method")
        as_choice(self.block, BLOCKS, name="block")
        if (self.method == "two-stage") != (self.denoiser is not None):
            raise ArgumentError("denoiser", "be given with method='two-stage', and only then")
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ArgumentError("bandwidth", "be positive (it is a standard deviation)", got=self.bandwidth)
        if not 0 <= self.validation_fraction < 1:
            raise ArgumentError("validation_fraction", "lie in [0, 1)", got=self.validation_fraction)
        if not 0 <= self.ridge <= MOST_RIDGE:
            raise ArgumentError("ridge", f"be a number from 0 to {MOST_RIDGE:g}", got=self.ridge)
        object.__setattr__(self, "ridge", float(self.ridge))
        object.__setattr__(self, "noise", noise_setting(self.noise))
        if self.noise not in ("auto", 0.0):
            self._check_noise(float(self.noise))
        if self.bandwidth_range is not None:
            if len(self.bandwidth_range) != 2:
                raise ArgumentError("bandwidth_range", "be a pair (low, high)", got=self.bandwidth_range)
            LogUniform(*self.bandwidth_range)

    def _check_noise(self, noise: float) -> None:
        """Refuse what does not go with noise that is known."""
        if self.ridge > 0:
            raise ArgumentError("ridge", "be 0 where noise is given, which is one at every scale", got=self.ridge)
        if self.method == "uncentered":
            raise ArgumentError("noise", "be 'auto' or 0 with method='uncentered', which has no mean", got=noise)
        if self.bandwidth is not None and self.bandwidth < LEAST_SCALE * noise:
            must = f"be at least {LEAST_SCALE * noise:.3g}, 1.22 times the noise: below, samples show noise alone"
            raise ArgumentError("bandwidth", must, got=self.bandwidth)

    @property
    def own_network(self) -> nn.Module | None:
        """The user's own network, if there is one."""
        return None if isinstance(self.network, UNetSettings) else self.network

    @property
    def is_default(self) -> bool:
        """Whether all networks are ours; a user's network or denoiser is shown all coordinates."""
        return self.own_network is None and self.denoiser is None

    def unet(self, sample_shape: tuple[int, int, int] | None) -> UNetSettings | None:
        """Return the sizes of the U-Net for images of a shape; None for tables, and with a network of one's own.

        Example:
            >>> FitSettings().unet((1, 8, 8)) == UNetSettings.for_shape((1, 8, 8))
            True
        """
        if sample_shape is None:
            if isinstance(self.network, UNetSettings):
                must = "be None or a module for samples of shape (n, D): a U-Net needs images"
                remedy = "Fit on images of shape (n, channels, height, width)"
                raise ArgumentError("network", must, remedy=remedy)
            return None
        if self.own_network is not None:
            return None
        for name, remedy in _OF_TABLES.items():
            given, wanted = getattr(self, name), getattr(FitSettings, name)
            if given != wanted:
                raise ArgumentError(
                    name, f"be {wanted!r} for images, which a U-Net learns", got=repr(given), remedy=remedy
                )
        return self.network if isinstance(self.network, UNetSettings) else UNetSettings.for_shape(sample_shape)


def choose_device(asked: str | torch.device | None, samples: Tensor) -> torch.device:
    """Take the device that was asked for, else the samples' GPU, else any GPU, else the CPU.

    Example:
        >>> choose_device("cpu", torch.zeros(3, 2))
        device(type='cpu')
    """
    if asked is None:
        cuda = samples.device if samples.is_cuda else torch.device("cuda")
        return cuda if torch.cuda.is_available() else torch.device("cpu")
    return as_device(asked)
