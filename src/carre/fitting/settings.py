"""What a fit is told, and whether that makes sense."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from torch import Tensor, nn

from carre.boundary import is_integer
from carre.matching import LogUniform
from carre.networks import UNetSettings
from carre.networks.model import BLOCKS

# Options of the network for tables, and what there is instead for images.
_OF_TABLES = {
    "width": "Give its sizes instead, with network=UNetSettings(channels=...)",
    "n_blocks": "Give its sizes instead, with network=UNetSettings(n_blocks=...)",
    "block": "Leave it out; what can be chosen there is given with network=UNetSettings(...)",
}
METHODS = ("joint", "two-stage", "uncentered")


@dataclass(frozen=True, eq=False)
class FitSettings:
    """What a fit is told; the meaning of each is documented in `MetricMatching`. None: from the data.

    Example:
        >>> FitSettings(max_steps=500, bandwidth_range=[0.1, 1.0]).bandwidth_range
        (0.1, 1.0)
        >>> FitSettings(ridge=-1.0)
        Traceback (most recent call last):
            ...
        ValueError: ridge must be at least 0; got -1.0
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
    reduce: bool = True
    max_steps: int | None = None
    max_seconds: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    validation_fraction: float = 0.1
    patience: int | None = None
    mixed_precision: bool | None = None
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        self._check_network()
        for name in ("rank", "width", "n_blocks", "max_steps", "batch_size"):
            value = getattr(self, name)
            if value is not None and not (is_integer(value) and value >= 1):
                raise ValueError(f"{name} must be a positive integer; got {value!r}")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")
        if self.block not in BLOCKS:
            raise ValueError(f"block must be one of {', '.join(BLOCKS)}; got {self.block!r}")
        if (self.method == "two-stage") != (self.denoiser is not None):
            raise ValueError("denoiser must be given with method='two-stage', and only then")
        if self.bandwidth is not None and not (isinstance(self.bandwidth, Real) and 0 < self.bandwidth < math.inf):
            raise ValueError(f"bandwidth must be positive (it is a standard deviation); got {self.bandwidth!r}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie in [0, 1); got {self.validation_fraction}")
        if not 0 <= self.ridge < math.inf:
            raise ValueError(f"ridge must be at least 0; got {self.ridge}")
        if self.bandwidth_range is not None:
            edges = tuple(np.asarray(self.bandwidth_range).ravel().tolist())
            if len(edges) != 2 or not all(isinstance(edge, Real) for edge in edges):
                raise ValueError(f"bandwidth_range must be a pair (low, high); got {self.bandwidth_range!r}")
            LogUniform(*edges)
            object.__setattr__(self, "bandwidth_range", edges)

    def _check_network(self) -> None:
        """Refuse what is no network, and what does not go with one."""
        if self.network is not None and not isinstance(self.network, (nn.Module, UNetSettings)):
            raise ValueError(f"network must be a torch module or UNetSettings(...); got {self.network!r}")
        if self.own_network is not None and self.method == "two-stage":
            raise ValueError("network must be None with method='two-stage', which builds its own around the denoiser")
        if self.own_network is not None and self.rank is not None:
            raise ValueError("rank must be None with a network of your own, which has its own")

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
                raise ValueError(
                    "network must be None or a module for samples of shape (n, D): a U-Net needs images. "
                    "Fit on images of shape (n, channels, height, width)"
                )
            return None
        if self.own_network is not None:
            return None
        for name, remedy in _OF_TABLES.items():
            given, wanted = getattr(self, name), getattr(FitSettings, name)
            if given != wanted:
                raise ValueError(f"{name} must be {wanted!r} for images, which a U-Net learns; got {given!r}. {remedy}")
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
    try:
        device = torch.device(asked)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be one of torch's, like 'cpu' or 'cuda'; got {asked!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device must be 'cpu' or None: there is no CUDA device here")
    computes = {"mps": torch.backends.mps.is_available(), "xpu": torch.xpu.is_available(), "cpu": True, "cuda": True}
    if not computes.get(device.type, False):
        raise ValueError(f"device must be one that computes here, 'cpu' or 'cuda', or None to choose; got {asked!r}")
    return device
