"""A function to minimize, and its slope: from autograd, from differences, or as given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from carre.toolkit.batches import in_parts
from carre.toolkit.derivatives import check_callable, euclidean_gradient, values_of

DIFFERENCES = "differences"
# In σ. The error of a central difference is h²f‴/6: this is far below what σ resolves, and far above rounding.
_SPACING = 0.1


@dataclass(frozen=True)
class Objective:
    """A scalar function of points with its gradient along the data.

    Attributes:
        function: (n, D) → (n,).
        gradient: None for autograd, "differences", or a function (n, D) → (n, D).
        spacing: Half the distance between the two points of a difference, in σ.
        wants_arrays: Whether a black box is given NumPy arrays.
    """

    function: Callable[[Any], Any]
    gradient: Any = None
    spacing: float = _SPACING
    wants_arrays: bool = False

    def __post_init__(self) -> None:
        check_callable(self.function, "function")
        if self.gradient is not None and self.gradient != DIFFERENCES and not callable(self.gradient):
            raise ValueError(
                f"gradient must be None (autograd), {DIFFERENCES!r}, or a function of points; got {self.gradient!r}"
            )
        if not self.spacing > 0:
            raise ValueError(f"spacing must be positive; got {self.spacing}")

    def values(self, points: Float[Tensor, "n dim"]) -> Float[Tensor, " n"]:
        """Evaluate the function."""
        if self.gradient is None:
            return values_of(self.function, points).to(points)
        return self._asked(self.function, points, (len(points),), "function")

    def slopes(
        self, points: Float[Tensor, "n dim"], bandwidth: Float[Tensor, " n"], basis: Float[Tensor, "n dim d"]
    ) -> Float[Tensor, "n dim"]:
        """Compute ∂f, or from differences its part in the span of a basis."""
        if self.gradient is None:
            return euclidean_gradient(self.function, points, finite=False)[1].to(points)
        if self.gradient != DIFFERENCES:
            return self._asked(self.gradient, points, tuple(points.shape), "gradient")
        d = basis.shape[-1]
        slopes: Tensor = in_parts(self._differences, points, bandwidth, basis, numbers_per_item=4 * points.shape[1] * d)
        return slopes

    def _differences(self, points: Tensor, bandwidth: Tensor, basis: Tensor) -> Tensor:
        """Compute Σ_a u_a (f(x + hu_a) − f(x − hu_a))/2h with all evaluations in one batch."""
        n, dim, d = basis.shape
        shift = (self.spacing * bandwidth)[:, None, None] * basis.mT
        around = torch.stack([points[:, None] + shift, points[:, None] - shift])
        ahead, behind = self.values(around.reshape(-1, dim)).reshape(2, n, d)
        slope = (ahead - behind) / (2 * self.spacing * bandwidth)[:, None]
        return torch.einsum("nda,na->nd", basis, slope)

    def _asked(self, function: Callable[[Any], Any], points: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
        """Ask a black box in its own kind of array, and check the shape of the answer."""
        answer = function(points.cpu().numpy() if self.wants_arrays else points)
        if not isinstance(answer, Tensor):
            array = np.asarray(answer)
            if array.dtype.kind not in "fiub":
                raise ValueError(f"{name} must return real numbers; got {type(answer).__name__} of dtype {array.dtype}")
            # A copy: answers may be read-only arrays.
            answer = torch.tensor(array)
        tensor = answer.detach().to(points)
        if tensor.shape == (*shape, 1):
            tensor = tensor[..., 0]
        if tensor.shape != shape:
            raise ValueError(
                f"{name} must map points of shape {tuple(points.shape)} to shape {shape}; got {tuple(tensor.shape)}"
            )
        return tensor
