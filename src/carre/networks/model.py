"""From (y, σ) to the posterior mean and the factor of the metric, with EDM-style preconditioning.

Everything here lives in the frame of the data: coordinates with unit root mean square.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carre.geometry import AffineFrame
from carre.networks.film import FilmMLP, GatedBlock


def _scaled_input(points: Float[Tensor, "batch dim"], bandwidth: Float[Tensor, " batch"]) -> Float[Tensor, "batch dim"]:
    """Bring noisy points to unit variance: c_in = 1/√(1 + σ²)."""
    return points / (1 + bandwidth.square()).sqrt()[:, None]


class MeanNetwork(nn.Module):
    """The posterior mean m̂ = c_skip·y + c_out·trunk(c_in·y, σ), for data of unit variance per coordinate.

    With c_skip = 1/(1+σ²) and c_out = σ/√(1+σ²), an error of the trunk moves m̂ by at most σ times as
    much: no blow-up of (x − m̂)/σ at small σ [THEORY §3.6]. A trunk that outputs 0 is the linear
    denoiser of isotropic Gaussian data.

    Args:
        trunk: The network.
        skip: Of a map φ whose E[φ(X) | Y=y] is learned instead, φ(y) to take the place of y; of unit variance, too.
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
        return torch.addcmul(start / variance, bandwidth[:, None] / variance.sqrt(), inner.to(points.dtype))


class FactorNetwork(nn.Module):
    """The factor F = c_G(σ)·D^(−1/2)·trunk(c_in·y, σ), with G = FᵀF.

    c_G² = s²/(s² + σ²) follows the size of G over σ, where s² = tr Σ²/tr Σ is the variance of the data
    in their own directions [THEORY §3.6].

    Args:
        trunk: The network.
        rank: The number of rows.
        spread: s.
        energy: What to divide the squares by, D by default: then rows start with norm 1.
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
        rows: Tensor = self.trunk(_scaled_input(points, bandwidth), bandwidth).reshape(len(points), self.rank, -1)
        scale = (self.envelope(bandwidth) / (self.energy or points.shape[1])).sqrt()
        return scale[:, None, None] * rows


class FrozenDenoiser(nn.Module):
    """A user's denoiser ``(y, σ) ↦ E[X | Y=y]``, in the units of the data, seen from the frame.

    A module is copied, frozen, and evaluated in the dtype of the points; any other callable is given
    float32, the dtype of training.
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
            mean = self.denoiser(frame.decode(points).to(dtype), (bandwidth * self.scale).to(dtype))
            if mean.shape != (len(points), len(self.center)):
                raise ValueError(
                    f"denoiser must return one point per input, of shape {(len(points), len(self.center))}; "
                    f"got {tuple(mean.shape)}"
                )
            return frame.encode(mean.to(points.dtype))


class MetricModel(nn.Module):
    """A mean network and a factor network side by side: ``model(y, σ) → (mean, factor)``.

    Two trunks, not one: a shared trunk with two heads diverged in 2 of 5 runs of the prototype. Any
    module with this signature can take its place; ``mean`` may be None (uncentered training).
    """

    def __init__(self, mean: nn.Module | None, factor: nn.Module) -> None:
        super().__init__()
        self.mean, self.factor = mean, factor

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
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            mean = self.mean(points, bandwidth)
        factor = self.factor(points, bandwidth)
        here.wait_stream(beside)
        mean.record_stream(here)
        return mean, factor


def build_model(
    dim: int,
    rank: int,
    *,
    width: int,
    n_blocks: int,
    spread: float,
    block: Callable[[int], nn.Module] = GatedBlock,
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
        block: The residual block.
        mean: A ready mean network (a `FrozenDenoiser`) instead of a new one.
        with_mean: Whether to have a mean network at all.
    """
    if mean is None and with_mean:
        mean = MeanNetwork(FilmMLP(dim, dim, width=width, n_blocks=n_blocks, block=block))
    trunk = FilmMLP(dim, rank * dim, width=width, n_blocks=n_blocks, block=block, head_deviation=width**-0.5)
    return MetricModel(mean, FactorNetwork(trunk, rank=rank, spread=spread))
