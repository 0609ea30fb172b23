"""Fewer rows, the same metric."""

import torch

from carre.fields._compression import compress, iterate_subspace


def test_subspace_iteration_finds_the_leading_eigenvectors(rng):
    """Its error is at most about (λ₃₃/λ₈)¹⁶ = 0.25¹⁶ ~ 2e-10; vanishing eigenvalues do no harm."""
    vectors = torch.linalg.qr(torch.randn(5, 64, 64, generator=rng, dtype=torch.float64))[0]
    tail = torch.linspace(0.18, 0, 56, dtype=torch.float64)
    for values in (torch.cat([torch.linspace(1, 0.4, 8).double(), tail]), torch.eye(64).double()[:8].sum(0)):
        found = iterate_subspace(vectors * values @ vectors.mT, 8)
        leading = vectors[..., :8]
        torch.testing.assert_close(found @ found.mT, leading @ leading.mT, atol=1e-8, rtol=0)


def test_compression_keeps_the_sum_of_outer_products_also_when_it_is_singular(rng):
    rows = torch.randn(4, 50, 2, generator=rng, dtype=torch.float64) @ torch.randn(2, 6, generator=rng).double()
    for given in (rows, torch.zeros_like(rows)):
        factor = compress([given[:, :20], given[:, 20:]], 50)
        assert factor.shape == (4, 6, 6)
        torch.testing.assert_close(factor.mT @ factor, given.mT @ given, atol=1e-11, rtol=0)


def test_subspace_iteration_survives_vanishing_and_rank_one_matrices(rng):
    """Kernel weights far below the distance between samples: one neighbor counts, all others have denormal weights."""
    unit = torch.nn.functional.normalize(torch.randn(40, 1, generator=rng), dim=0)
    one = unit @ unit.mT
    graded = torch.diag(10.0 ** torch.linspace(0, -44, 40))
    matrices = torch.stack([one, 1e-30 * one, 1e-42 * one, torch.zeros(40, 40), graded, one + 1e-7 * graded])
    directions = iterate_subspace(matrices, 8)
    assert torch.isfinite(directions).all()
    for k in (0, 1, 5):
        assert abs(float((directions[k, :, :1].mT @ unit).abs()) - 1) < 1e-5
    torch.testing.assert_close(directions[4, :2, :2].abs(), torch.eye(2), atol=1e-5, rtol=0)
