"""Eigenvalues and eigenvectors of a batch of metrics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

# cuSOLVER's batched eigh fails with an internal error from 65,536 matrices on, whatever their size.
_EIGH_CHUNK = 32_768


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The leading eigenpairs of a batch of metrics, and the floor under the rest.

    Attributes:
        values: Eigenvalues, descending. A tangent direction has one near 1, a normal direction near 0.
        vectors: Orthonormal eigenvectors, as columns.
        floor: The eigenvalue of every direction that is not listed (the metric's ridge).

    Example:
        >>> spectrum = Spectrum(torch.tensor([1.2, 0.9, 0.1]), torch.eye(3))
        >>> spectrum.clipped()
        tensor([1.0000, 0.9000, 0.1000])
        >>> spectrum.basis(1)
        tensor([[1.],
                [0.],
                [0.]])
    """

    values: Float[Tensor, "*batch leading"]
    vectors: Float[Tensor, "*batch dim leading"]
    floor: float = 0.0

    def clipped(self) -> Float[Tensor, "*batch leading"]:
        """Clip the eigenvalues to [0, 1]: for counting and reporting only.

        Off the data and between modes eigenvalues above 1 are right (THEORY: G → Dπ(y)), but they mean
        one dimension, not more.
        """
        return self.values.clamp(0.0, 1.0)

    def basis(self, dim: int) -> Float[Tensor, "*batch ambient dim"]:
        """Return the ``dim`` leading eigenvectors."""
        if not 1 <= dim <= self.values.shape[-1]:
            raise ValueError(f"dim must lie between 1 and {self.values.shape[-1]}; got {dim}")
        return self.vectors[..., :dim]


def batched_eigh(
    matrices: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n n"]]:
    """Decompose symmetric matrices, eigenvalues ascending, in chunks that every backend accepts.

    Each matrix is first divided by its largest entry, and entries that are next to nothing beside it become zero:
    LAPACK fails to converge on some matrices with denormal entries, such as vanishing kernel weights give.

    Example:
        >>> batched_eigh(torch.tensor([[[2.0, 1.0], [1.0, 2.0]]]))[0]
        tensor([[1., 3.]])
    """
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    limits = torch.finfo(flat.dtype)
    size = flat.detach().abs().amax((1, 2), keepdim=True).clamp_min(limits.tiny)
    scaled = torch.nn.functional.hardshrink(flat / size, limits.eps**2)
    parts = [_decompose(chunk) for chunk in torch.split(scaled, _EIGH_CHUNK)]
    values = torch.cat([part[0] for part in parts]) * size[:, 0]
    vectors = torch.cat([part[1] for part in parts])
    return values.reshape(matrices.shape[:-1]), vectors.reshape(matrices.shape)


def _decompose(matrices: Float[Tensor, "batch n n"]) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch n n"]]:
    """Decompose one chunk; where the backend gives up, once more in float64 by LAPACK."""
    try:
        values, vectors = torch.linalg.eigh(matrices)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = (part.to(matrices) for part in torch.linalg.eigh(matrices.double().cpu()))
    return values, vectors
