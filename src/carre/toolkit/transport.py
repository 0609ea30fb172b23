"""Parallel transport: tangent vectors carried along a curve."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carre.boundary import as_bandwidth, as_points
from carre.fields import Bandwidth, MetricField
from carre.toolkit.batches import Progress, in_parts
from carre.toolkit.path import Path
from carre.toolkit.tangent import TANGENT_ABOVE

# Directions of two tangent spaces that are at right angles have nothing in common.
_RIGHT_ANGLE = 1e-6


@torch.no_grad()
def parallel_transport(
    field: MetricField,
    path: Path,
    vectors: Any,
    bandwidth: Bandwidth,
    *,
    dim: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Carry tangent vectors along curves without turning them; their lengths and angles stay.

    From one node to the next, the tangent space is turned by the rotation nearest to its projection onto the next one,
    the polar factor of U₂ᵀU₁. Plain projection would shorten vectors. The error is of second order in the distance
    of the nodes.

    Args:
        field: The field.
        path: The curves, on the data.
        vectors: One vector at the start of each curve, shape (paths, D); its tangent part is carried.
        bandwidth: σ, one number or one per curve.
        dim: Dimension of the tangent spaces; None counts the eigenvalues above ⅓ along each curve.
        progress: Told how far the work is.

    Returns:
        The vector at every node, shape (paths, nodes, D); at the end of the curves it is ``[:, -1]``.

    Example:
        >>> from carre.fields import ExactField
        >>> from carre.manifolds import Sphere
        >>> angle = torch.linspace(0, torch.pi / 2, 20, dtype=torch.float64)
        >>> quarter = Path.through(torch.stack([angle.cos(), angle.sin()], 1))
        >>> carried = parallel_transport(ExactField(Sphere(1)), quarter, [[0.0, 1.0]], 0.1, dim=1)
        >>> carried[0, -1].round(decimals=6)
        array([-1.,  0.])
    """
    _check_path(path, field.dim)
    given = as_points(vectors, dim=field.dim, name="vectors")
    if len(given.tensor) != len(path):
        raise ValueError(f"vectors must be one per path, {len(path)}; got {len(given.tensor)}")
    sigma = as_bandwidth(bandwidth, path.nodes[:, 0])

    def part(nodes: Tensor, v: Tensor, s: Tensor) -> Tensor:
        bases = bases_along(field, nodes, s, dim)
        turns = polar_factor(bases[:, 1:].mT @ bases[:, :-1])
        coordinates = [torch.einsum("pda,pd->pa", bases[:, 0], v)]
        for turn in turns.unbind(1):
            coordinates.append(torch.einsum("pab,pb->pa", turn, coordinates[-1]))
        return torch.einsum("pnda,pna->pnd", bases, torch.stack(coordinates, 1))

    start = given.tensor.to(path.nodes)
    numbers = 64 * field.dim * path.n_nodes
    return given.restore(in_parts(part, path.nodes, start, sigma, numbers_per_item=numbers, progress=progress))


def bases_along(
    field: MetricField,
    nodes: Float[Tensor, "p n dim"],
    bandwidth: Float[Tensor, " p"],
    dim: int | Int[Tensor, " p"] | None,
) -> Float[Tensor, "p n dim d"]:
    """Compute the tangent basis at every node of curves, of one dimension for each curve.

    Where the dimension is not given, the eigenvalues above ⅓, averaged along the curve, are counted: at an edge of the
    data the one across it falls to 1 − 2/π, which is no reason for a curve to stop there. Curves of lower
    dimension than others have columns of zeros.
    """
    metric = field.metric(nodes.flatten(0, 1), bandwidth.repeat_interleave(nodes.shape[1]))
    if not (dim is None or isinstance(dim, Tensor)):
        return metric.tangent_basis(dim).reshape(*nodes.shape, -1)
    spectrum = metric.spectrum()
    if dim is None:
        dim = (spectrum.values.reshape(*nodes.shape[:2], -1).mean(1) > TANGENT_ABOVE).sum(-1)
    width = max(1, int(dim.max()))
    is_tangent = torch.arange(width, device=nodes.device) < dim[:, None]
    return spectrum.vectors[..., :width].reshape(*nodes.shape, -1) * is_tangent[:, None, None]


def _check_path(path: Any, dim: int) -> None:
    if not isinstance(path, Path):
        raise ValueError(f"path must be a Path; got {type(path).__name__}. Path.through(nodes) makes one")
    if path.dim != dim:
        raise ValueError(f"path must run in the field's space, dimension {dim}; got {path.dim}")


def polar_factor(matrices: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """Compute the orthogonal matrix nearest to each; directions that a matrix sends to zero stay there.

    Example:
        >>> polar_factor(torch.tensor([[2.0, 0.0], [0.0, 0.5]]))
        tensor([[1., 0.],
                [0., 1.]])
    """
    left, values, right = torch.linalg.svd(matrices)
    rotations: Tensor = (left * (values > _RIGHT_ANGLE)[..., None, :]) @ right
    return rotations
