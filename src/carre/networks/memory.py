"""How many points a network can be shown at once."""

from __future__ import annotations

from torch import Tensor, nn

from carre.neighbors.memory import working_memory
from carre.networks.unet import UNet


def points_at_once(network: nn.Module | None, points: Tensor, *, largest: int) -> int:
    """Return how many points to evaluate at once: a U-Net holds hundreds of thousands of numbers for each.

    Args:
        network: What will be evaluated; its U-Nets one after the other.
        points: The points, for their device and dtype.
        largest: The answer where memory is no concern: without a U-Net, or with small ones.

    Example:
        >>> import torch
        >>> points_at_once(nn.Linear(3, 3), torch.zeros(5, 3), largest=1000)
        1000
    """
    parts = network.modules() if network is not None else ()
    numbers = max((part.numbers_per_point for part in parts if isinstance(part, UNet)), default=0)
    if numbers == 0:
        return largest
    return max(1, min(largest, working_memory(points.device) // (points.element_size() * numbers)))
