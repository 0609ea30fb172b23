import math

import pytest
import scipy.linalg
import torch

from carre.metric import principal_angles, projector_distance
from carre.metric.spectrum import count_above


def random_basis(rng, dim, k, n=6, dtype=torch.float64):
    return torch.linalg.qr(torch.randn(n, dim, k, generator=rng, dtype=dtype))[0]


@pytest.mark.parametrize(("k", "m"), [(2, 2), (3, 1), (1, 3), (4, 4)])
def test_projector_distance_is_the_norm_of_the_difference_of_projectors(rng, k, m):
    left, right = random_basis(rng, 7, k), random_basis(rng, 7, m)
    expected = (left @ left.mT - right @ right.mT).norm(dim=(1, 2))
    torch.testing.assert_close(projector_distance(left, right), expected)


@pytest.mark.parametrize(("k", "m"), [(2, 2), (3, 1), (1, 3)])
def test_principal_angles_are_those_of_scipy(rng, k, m):
    left, right = random_basis(rng, 7, k), random_basis(rng, 7, m)
    expected = [sorted(scipy.linalg.subspace_angles(a, b)) for a, b in zip(left.numpy(), right.numpy(), strict=True)]
    torch.testing.assert_close(principal_angles(left, right), torch.tensor(expected, dtype=torch.float64))


def test_distance_is_the_norm_of_the_sines_of_the_angles(rng):
    left, right = random_basis(rng, 7, 3), random_basis(rng, 7, 3)
    sines = principal_angles(left, right).sin()
    torch.testing.assert_close(projector_distance(left, right), math.sqrt(2) * sines.norm(dim=1))


def test_small_distances_are_accurate_in_float32():
    """An angle of 1e-4: the expanded form 2d − 2‖UᵀV‖² would round it to about 1e-3."""
    angle = 1e-4
    left = torch.tensor([[1.0], [0.0]])
    right = torch.tensor([[math.cos(angle)], [math.sin(angle)]])
    assert projector_distance(left, right).item() == pytest.approx(math.sqrt(2) * angle, rel=1e-3)
    assert principal_angles(left, right).item() == pytest.approx(angle, rel=1e-3)


def test_random_subspaces_are_as_far_apart_as_theory_says(rng):
    """√(2d(1 − d/D)) on average (THEORY §5): 3.742 for d = 8 in D = 64."""
    left, right = random_basis(rng, 64, 8, n=200), random_basis(rng, 64, 8, n=200)
    assert projector_distance(left, right).mean().item() == pytest.approx(math.sqrt(2 * 8 * (1 - 8 / 64)), rel=0.01)


@pytest.mark.parametrize("rank", [1, 2, 7, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eigenvalues_are_counted_without_computing_them(rng, rank, dtype):
    """By the law of inertia; where elimination grows, as beside a pivot of zero, nothing is claimed."""
    factor = torch.rand(500, rank, 1, generator=rng) * torch.randn(500, rank, 40, generator=rng) / 5
    gram = (factor @ factor.mT).to(dtype)
    exact = (torch.linalg.eigvalsh(gram.double()) > 0.5).sum(-1)
    counts, is_sure = count_above(gram, 0.5)
    assert torch.equal(counts[is_sure], exact[is_sure])
    assert is_sure.float().mean() > 0.8
    assert gram.equal((factor @ factor.mT).to(dtype)), "what is given stays as it is"
    swap = torch.tensor([[[0.5, 1.0], [1.0, 0.5]]], dtype=dtype)  # A − ½I has the pivots 0 and −∞
    assert not count_above(swap, 0.5)[1]
    assert not count_above(torch.full((1, 2, 2), torch.nan, dtype=dtype), 0.5)[1]
