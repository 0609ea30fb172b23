"""Every method of ComplementMetric against its dense twin, and against the LowRankMetric of its factor."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from carre.metric import ComplementMetric, LowRankMetric, projector_distance


def random_complement(rng, *, batch=(5,), k=2, dim=7, level=1.3, ridge=0.0, dtype=torch.float64, share=0.9):
    """Rows whose largest squared singular value is a share of the level."""
    rows = torch.randn(*batch, k, dim, generator=rng, dtype=torch.float64)
    norms = torch.linalg.matrix_norm(rows, ord=2, keepdim=True)
    return ComplementMetric((rows / norms * (share * level) ** 0.5).to(dtype), level, ridge)


@pytest.fixture(params=[((5,), 1, 7), ((7,), 3, 7), ((2, 4), 4, 4), ((1,), 1, 1), ((3,), 2, 3)], ids=str)
def shape(request):
    """Batches that equal the dimension or the number of rows, as many rows as columns, and two batch axes."""
    batch, k, dim = request.param
    return {"batch": batch, "k": k, "dim": dim}


@pytest.fixture(params=[0.0, 0.3])
def metric(request, rng, shape):
    return random_complement(rng, **shape, ridge=request.param)


def random_vectors(rng, metric):
    return torch.randn(*metric.removed.shape[:-2], metric.dim, generator=rng, dtype=torch.float64)


def test_dense_is_the_definition(metric):
    identity = torch.eye(metric.dim, dtype=torch.float64)
    expected = (metric.level + metric.ridge) * identity - metric.removed.mT @ metric.removed
    torch.testing.assert_close(metric.dense(), expected)
    np.testing.assert_array_equal(np.asarray(metric), metric.dense().numpy())


def test_forms_and_traces_are_those_of_the_dense_matrix(rng, metric):
    dense, v, w = metric.dense(), random_vectors(rng, metric), random_vectors(rng, metric)
    torch.testing.assert_close(metric.apply(v), (dense @ v.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(metric.inner_product(v, w), torch.einsum("...i,...ij,...j->...", v, dense, w))
    torch.testing.assert_close(metric.quadratic_form(v), torch.einsum("...i,...ij,...j->...", v, dense, v))
    torch.testing.assert_close(metric.trace(), dense.diagonal(dim1=-2, dim2=-1).sum(-1))
    torch.testing.assert_close(metric.squared_norm(), dense.square().sum((-2, -1)))
    torch.testing.assert_close(metric.solve(metric.apply(v)), v)


def test_frobenius_products_with_either_kind_are_traces_of_dense_products(rng, metric):
    batch, dim = metric.removed.shape[:-2], metric.dim
    plain = LowRankMetric(torch.randn(*batch, 2, dim, generator=rng, dtype=torch.float64), 0.4)
    other = random_complement(rng, batch=batch, k=1, dim=dim, level=0.7, ridge=0.2)
    for left, right in ((metric, plain), (plain, metric), (metric, other), (other, metric)):
        expected = (left.dense() * right.dense()).sum((-2, -1))
        torch.testing.assert_close(left.frobenius_product(right), expected)


def test_the_log_determinant_is_that_of_the_dense_matrix(metric):
    torch.testing.assert_close(metric.log_determinant(), torch.linalg.slogdet(metric.dense()).logabsdet)


def test_the_spectrum_is_that_of_the_dense_matrix(metric):
    spectrum = metric.spectrum()
    expected = torch.linalg.eigvalsh(metric.dense()).flip(-1)
    torch.testing.assert_close(metric.eigenvalues(), expected)
    torch.testing.assert_close(spectrum.values, expected)
    rebuilt = spectrum.vectors @ torch.diag_embed(spectrum.values) @ spectrum.vectors.mT
    torch.testing.assert_close(rebuilt, metric.dense())


def test_its_sibling_of_full_rank_says_the_same(rng, metric):
    """Every answer is that of the LowRankMetric whose factor is the square root of cI − HᵀH."""
    values, vectors = torch.linalg.eigh(metric.with_ridge(0.0).dense())
    twin = LowRankMetric(values.clamp_min(0).sqrt().unsqueeze(-1) * vectors.mT, metric.ridge)
    assert (metric.rank, metric.dim) == (twin.rank, twin.dim)
    assert not isinstance(metric, LowRankMetric)
    torch.testing.assert_close(twin.dense(), metric.dense())
    torch.testing.assert_close(metric.with_ridge(0.8).dense(), twin.with_ridge(0.8).dense())
    torch.testing.assert_close(metric.scaled(0.5).dense(), twin.scaled(0.5).dense())
    rows = torch.randn(*metric.removed.shape[:-2], 3, metric.dim, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(metric.congruence(rows, rows[..., :2, :]), twin.congruence(rows, rows[..., :2, :]))
    torch.testing.assert_close(metric.with_ridge(0.5).solve(rows), twin.with_ridge(0.5).solve(rows))
    torch.testing.assert_close(twin.frobenius_product(metric), metric.frobenius_product(twin))


def test_samples_have_covariance_g(rng):
    metric, n = random_complement(rng, batch=(2,), dim=3, ridge=0.5), 100_000
    draws = metric.sample(n, generator=rng)
    covariance = torch.einsum("nbi,nbj->bij", draws, draws) / n
    size = float(metric.dense().abs().amax())
    torch.testing.assert_close(covariance, metric.dense(), rtol=0, atol=5 * size * (2 / n) ** 0.5)


def test_sampling_one_removed_direction_is_the_closed_form(rng):
    """√G = I − cŝŝᵀ with c = 1 − √(1 − |h|²) (THEORY §5)."""
    metric = random_complement(rng, k=1, level=1.0)
    norm = torch.linalg.vector_norm(metric.removed, dim=-1, keepdim=True)
    unit, c = metric.removed / norm, 1 - (1 - norm.square()).sqrt()
    expected = torch.eye(7, dtype=torch.float64) - c * unit.mT @ unit
    noise = torch.randn(4, 5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    draws = metric.sample(4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(draws, torch.einsum("bde,nbe->nbd", expected, noise))


def test_leading_directions_are_given_where_they_lead_and_refused_where_not(rng):
    metric = random_complement(rng, k=2, dim=5)
    for dim in (3, 4, 5):
        truth = torch.linalg.eigh(metric.dense())[1][..., -dim:]
        assert projector_distance(metric.tangent_basis(dim), truth).max() < 1e-6
    for dim in (0, 1, 2, 6):
        with pytest.raises(ValueError, match=r"dimension must lie between 3 and 5 \(the first 3 eigenvalues"):
            metric.tangent_basis(dim)


def test_nothing_removed_is_a_multiple_of_the_identity_and_can_be_differentiated():
    rows = torch.zeros(2, 1, 4, dtype=torch.float64, requires_grad=True)
    metric = ComplementMetric(rows, 0.25)
    torch.testing.assert_close(metric.dense(), 0.25 * torch.eye(4, dtype=torch.float64).expand(2, 4, 4))
    torch.testing.assert_close(metric.spectrum().vectors.mT @ metric.spectrum().vectors, 4 * metric.dense())
    (metric.sample(3).sum() + metric.trace().sum()).backward()
    assert torch.isfinite(rows.grad).all()


def test_a_direction_that_is_removed_completely_cannot_be_inverted_without_a_ridge():
    metric = ComplementMetric(torch.eye(3, dtype=torch.float64)[None, :1])
    with pytest.raises(ValueError, match="with_ridge"):
        metric.solve(torch.ones(1, 3, dtype=torch.float64))
    ridged, ones = metric.with_ridge(0.1), torch.ones(1, 3, dtype=torch.float64)
    torch.testing.assert_close(ridged.solve(ridged.apply(ones)), ones)


def test_indexing_moving_and_detaching_keep_what_it_is(rng):
    metric = random_complement(rng, ridge=0.2)
    assert len(metric) == 5
    torch.testing.assert_close(metric[1:3].dense(), metric.dense()[1:3])
    torch.testing.assert_close(metric[2].dense(), metric.dense()[2])
    assert len(metric[torch.zeros(5, dtype=torch.bool)]) == 0
    moved = metric.to(torch.float32)
    assert isinstance(moved, ComplementMetric)
    assert moved.removed.dtype == moved.dtype == torch.float32
    assert (moved.level, moved.ridge) == (metric.level, metric.ridge)
    attached = ComplementMetric(metric.removed.clone().requires_grad_(), metric.level)
    assert attached.trace().requires_grad
    assert not attached.detach().trace().requires_grad
    assert repr(metric) == "ComplementMetric(batch=(5,), removed=2, dim=7, level=1.3, ridge=0.2)"
    with pytest.raises(IndexError, match="index must select points"):
        metric[:, 0]


def test_it_cannot_be_changed(rng):
    with pytest.raises(FrozenInstanceError, match="level"):
        random_complement(rng).level = 2.0


@pytest.mark.parametrize(
    ("removed", "level", "ridge", "message"),
    [
        (torch.ones(3), 1.0, 0.0, "removed must be a tensor of numbers of shape"),
        (torch.zeros(1, 3, 2), 1.0, 0.0, "k between 1 and dim"),
        (torch.zeros(1, 0, 2), 1.0, 0.0, "k between 1 and dim"),
        (torch.tensor([[1.0, 1.0]]), 1.0, 0.0, "removed must have a squared norm of at most level, 1"),
        (torch.full((2, 2), float("nan")), 1.0, 0.0, "removed must have a squared norm"),
        (torch.zeros(1, 2), -1.0, 0.0, "level and ridge must be at least 0"),
        (torch.zeros(1, 2), 1.0, float("nan"), "ridge must be a finite number"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_metric_that_would_not_be_positive_is_refused(removed, level, ridge, message):
    with pytest.raises(ValueError, match=message):
        ComplementMetric(removed, level, ridge)


def test_a_negative_scale_is_refused(rng):
    with pytest.raises(ValueError, match="scale must be at least 0"):
        random_complement(rng).scaled(-1.0)
    torch.testing.assert_close(random_complement(rng).scaled(0.0).dense(), torch.zeros(5, 7, 7).double())
