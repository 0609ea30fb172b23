"""The manifolds that the laws of this folder are checked on, small and all different."""

import math

import torch
from torch import Tensor

from carre.manifolds import (
    Box,
    CliffordTorus,
    ClosedCurve,
    Cylinder,
    FiniteSet,
    Gaussian,
    Manifold,
    SpecialOrthogonal3,
    Sphere,
    SubspaceGaussian,
    SwissRoll,
    TorusOfRevolution,
    Union,
    gaussian_mixture,
)


def _trefoil(t: Tensor) -> Tensor:
    return torch.stack([t.sin() + 2 * (2 * t).sin(), t.cos() - 2 * (2 * t).cos(), -(3 * t).sin()], dim=-1)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _random_gaussian() -> Gaussian:
    root = torch.randn(3, 3, generator=_seeded(1), dtype=torch.float64)
    return Gaussian(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), root @ root.mT)


def _plane_gaussian() -> SubspaceGaussian:
    basis, _ = torch.linalg.qr(torch.randn(4, 2, generator=_seeded(2), dtype=torch.float64))
    return SubspaceGaussian(basis, torch.tensor([0.5, 2.0], dtype=torch.float64))


def _mixture() -> Union:
    means = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    covariances = torch.stack([0.2 * torch.eye(2), torch.diag(torch.tensor([1.0, 0.0]))]).double()
    return gaussian_mixture(means, covariances, [0.3, 0.7])


def _circle_and_sphere() -> Union:
    circle = Sphere(1).embed(5, generator=_seeded(3))
    sphere = Sphere(3, 1.2).embed(5, generator=_seeded(4), shift=1.0)
    return Union([circle, sphere], [1.0, 2.0])


# Everything with a posterior and a tangent space.
SMOOTH: dict[str, Manifold] = {
    "circle": Sphere(1),
    "sphere": Sphere(2, 1.5),
    "rotated_sphere": Sphere(8).embed(12, generator=_seeded(0), shift=1.0),
    "gaussian": _random_gaussian(),
    "subspace_gaussian": _plane_gaussian(),
    "gaussian_mixture": _mixture(),
    "box": Box([0.0, -1.0], [1.0, 1.0]),
    "clifford_torus": CliffordTorus([1.0, 0.6]),
    "cylinder": Cylinder(1.0, 0.5),
    "union": _circle_and_sphere(),
    "noisy_sphere": Sphere(2).noisy(0.2),
    "swiss_roll": SwissRoll(start=math.pi, end=2 * math.pi, height=2.0, n_nodes=1024),
    "torus": TorusOfRevolution(n_nodes=192),
    "closed_curve": ClosedCurve(_trefoil, n_nodes=1200),
}

# Everything with a posterior.
POSTERIORS: dict[str, Manifold] = {
    **SMOOTH,
    "few_atoms": FiniteSet(torch.randn(3, 5, generator=_seeded(5), dtype=torch.float64)),
    "many_atoms": FiniteSet(
        torch.randn(20, 3, generator=_seeded(6), dtype=torch.float64),
        torch.rand(20, generator=_seeded(7), dtype=torch.float64) + 0.1,
    ),
}

# Everything with a tangent space at its own samples.
TANGENTS: dict[str, Manifold] = {
    **{name: manifold for name, manifold in SMOOTH.items() if name != "noisy_sphere"},
    "rotations": SpecialOrthogonal3(),
}


def noisy_points(manifold: Manifold, n: int, sigma: float, rng: torch.Generator) -> Tensor:
    """Draw samples of a manifold and move them by noise of size σ."""
    points = manifold.sample(n, generator=rng)
    return points + sigma * torch.randn(points.shape, generator=rng, dtype=points.dtype)


def jacobian(outputs: Tensor, points: Tensor) -> Tensor:
    """Compute ∂outputs/∂points of a batch, where no output depends on another row's point."""
    if not outputs.requires_grad:  # the metric of a Gaussian is constant
        return outputs.new_zeros(*outputs.shape, points.shape[-1])
    flat = outputs.reshape(len(outputs), -1)
    columns = [torch.autograd.grad(column.sum(), points, retain_graph=True)[0] for column in flat.unbind(1)]
    return torch.stack(columns, dim=1).reshape(*outputs.shape, points.shape[-1])
