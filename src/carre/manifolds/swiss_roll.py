"""The Swiss roll."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from carre.manifolds.arguments import checked_positive
from carre.manifolds.curve import Curve
from carre.manifolds.embedded import Embedded
from carre.manifolds.interval import Interval
from carre.manifolds.product import Product


class SwissRoll(Embedded):
    """The area-uniform Swiss roll (t cos t, h, t sin t), flat and with a boundary.

    It is the product of a spiral and an interval, so its posterior is exact. The defaults are
    scikit-learn's, which however samples t, and so not the area, uniformly.

    Args:
        start: The first angle t.
        end: The last angle t.
        height: The range [0, height] of h.
        n_nodes: The number of quadrature nodes along the spiral.

    Example:
        >>> roll, between = SwissRoll(), torch.tensor([[3 * math.pi, 10.0, 0.0]])
        >>> roll.distance(between).round(decimals=1)  # turns are 2π apart
        tensor([3.1000])
    """

    def __init__(
        self,
        *,
        start: float = 1.5 * math.pi,
        end: float = 4.5 * math.pi,
        height: float = 21.0,
        n_nodes: int = 8192,
    ) -> None:
        if not 0.0 <= start < end:
            raise ValueError(f"end must be larger than start, and start at least 0; got start={start}, end={end}")
        spiral = Curve(_spiral, start, end, n_nodes=n_nodes)
        flat = Product([spiral, Interval(0.0, checked_positive("height", height))])
        # The spiral lies in the first and third coordinates, the height in the second.
        super().__init__(flat, torch.eye(3, dtype=torch.float64)[:, [0, 2, 1]])


def _spiral(angle: Tensor) -> Tensor:
    return torch.stack([angle * angle.cos(), angle * angle.sin()], dim=-1)
