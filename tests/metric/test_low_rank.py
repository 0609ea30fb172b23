"""Every method of LowRankMetric against its dense twin."""

import numpy as np
import pytest
import torch

from carre.metric import LowRankMetric, projector_distance

RIDGES = [0.0, 0.3]


def random_metric(rng, *, batch=(5,), rank=3, dim=7, ridge=0.0, dtype=torch.float64):
    return LowRankMetric(torch.randn(*batch, rank, dim, generator=rng, dtype=dtype), ridge)


@pytest.fixture(params=[((5,), 3, 7), ((7,), 3, 7), ((3,), 3, 7), ((2, 4), 6, 4), ((1,), 1, 1)], ids=str)
def shape(request):
    """Batches that equal the dimension or the rank, more rows than columns, and two batch axes."""
    return dict(zip(("batch", "rank", "dim"), request.param, strict=True))


@pytest.mark.parametrize("ridge", RIDGES)
def test_every_product_equals_that_of_the_dense_matrix(rng, shape, ridge):
    metric = random_metric(rng, **shape, ridge=ridge)
    dense = metric.factor.mT @ metric.factor + ridge * torch.eye(metric.dim, dtype=torch.float64)
    v, w = (torch.randn(*shape["batch"], shape["dim"], generator=rng, dtype=torch.float64) for _ in range(2))
    torch.testing.assert_close(metric.dense(), dense)
    torch.testing.assert_close(metric.apply(v), torch.einsum("...ij,...j->...i", dense, v))
    torch.testing.assert_close(metric.inner_product(v, w), torch.einsum("...i,...ij,...j->...", v, dense, w))
    torch.testing.assert_close(metric.quadratic_form(v), torch.einsum("...i,...ij,...j->...", v, dense, v))
    torch.testing.assert_close(metric.trace(), dense.diagonal(dim1=-2, dim2=-1).sum(-1))
    torch.testing.assert_close(metric.squared_norm(), dense.square().sum((-2, -1)))
    torch.testing.assert_close(metric.scaled(0.5).dense(), dense / 2)


@pytest.mark.parametrize("ridge", RIDGES)
def test_frobenius_product_equals_the_trace_of_the_dense_product(rng, ridge):
    left, right = random_metric(rng, ridge=ridge), random_metric(rng, rank=2, ridge=0.7)
    expected = (left.dense() * right.dense()).sum((-2, -1))
    torch.testing.assert_close(left.frobenius_product(right), expected)


def test_solve_inverts_apply(rng, shape):
    metric = random_metric(rng, **shape, ridge=0.3)
    v = torch.randn(*shape["batch"], shape["dim"], generator=rng, dtype=torch.float64)
    torch.testing.assert_close(metric.solve(metric.apply(v)), v)


def test_solve_without_ridge_names_the_remedy(rng):
    metric = random_metric(rng)
    with pytest.raises(ValueError, match="with_ridge"):
        metric.solve(torch.zeros(5, 7, dtype=torch.float64))


@pytest.mark.parametrize("ridge", RIDGES)
def test_spectrum_is_that_of_the_dense_matrix(rng, shape, ridge):
    metric = random_metric(rng, **shape, ridge=ridge)
    spectrum = metric.spectrum()
    leading = min(metric.rank, metric.dim)
    expected = torch.linalg.eigvalsh(metric.dense()).flip(-1)[..., :leading]
    torch.testing.assert_close(spectrum.values, expected)
    torch.testing.assert_close(metric.eigenvalues(), expected)
    rebuilt = spectrum.vectors @ torch.diag_embed(spectrum.values) @ spectrum.vectors.mT
    rest = torch.eye(metric.dim, dtype=torch.float64) - spectrum.vectors @ spectrum.vectors.mT
    torch.testing.assert_close(rebuilt + spectrum.floor * rest, metric.dense())


def exact_factor(rng, values, dim, dtype):
    """Build a factor with given eigenvalues, and its true eigenvectors."""
    basis = torch.linalg.qr(torch.randn(dim, len(values), generator=rng, dtype=torch.float64))[0]
    mix = torch.linalg.qr(torch.randn(len(values), len(values), generator=rng, dtype=torch.float64))[0]
    factor = mix @ torch.diag(torch.tensor(values, dtype=torch.float64).sqrt()) @ basis.mT
    return LowRankMetric(factor[None].to(dtype)), basis[None].to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "values", [(1.0, 1.0, 1.0, 0.0), (1.0, 1e-4, 1e-8, 0.0), (0.0, 0.0, 0.0, 0.0), (1e6, 1e6, 1.0, 1.0)], ids=str
)
def test_bases_stay_orthonormal_where_eigenvalues_vanish_or_coincide(rng, values, dtype):
    metric, _ = exact_factor(rng, values, 9, dtype)
    tolerance = 100 * torch.finfo(dtype).eps
    for dim in (1, 2, 3, 4):
        for basis in (metric.tangent_basis(dim), metric.spectrum().basis(dim)):
            identity = torch.eye(dim, dtype=dtype)[None]
            torch.testing.assert_close(basis.mT @ basis, identity, rtol=0, atol=tolerance)


def test_small_eigenvalues_keep_their_eigenvectors_in_float32(rng):
    """The Gram route alone loses the direction of λ = 1e-6 (THEORY §4.1); the tangent basis must not."""
    metric, truth = exact_factor(rng, (1.0, 1e-3, 1e-6), 9, torch.float32)
    for dim in (1, 2, 3):
        assert projector_distance(metric.tangent_basis(dim), truth[..., :dim]).item() < 1e-3


def test_tangent_basis_beyond_the_rank_names_the_remedy(rng):
    with pytest.raises(ValueError, match="larger rank"):
        random_metric(rng).tangent_basis(4)


def test_tangent_bases_are_the_leading_eigenvectors_for_every_rank(rng, shape):
    metric = random_metric(rng, **shape)
    for dim in range(1, min(metric.rank, metric.dim) + 1):
        truth = torch.linalg.eigh(metric.dense())[1][..., -dim:]
        assert projector_distance(metric.tangent_basis(dim), truth).max() < 1e-6


def test_numpy_sees_the_dense_matrices_and_repr_is_short(rng):
    metric = random_metric(rng, ridge=0.3)
    np.testing.assert_array_equal(np.asarray(metric), metric.dense().numpy())
    assert repr(metric) == "LowRankMetric(batch=(5,), rank=3, dim=7, ridge=0.3)"


def test_indices_select_points_not_rows(rng):
    with pytest.raises(IndexError, match="index must select points"):
        random_metric(rng)[:, 0]


def test_samples_have_covariance_g(rng):
    metric, n = random_metric(rng, batch=(2,), dim=3, ridge=0.5), 100_000
    draws = metric.sample(n, generator=rng)
    covariance = torch.einsum("nbi,nbj->bij", draws, draws) / n
    size = metric.dense().abs().amax()
    torch.testing.assert_close(covariance, metric.dense(), rtol=0, atol=float(5 * size * (2 / n) ** 0.5))


def test_indexing_and_moving_keep_the_ridge(rng):
    metric = random_metric(rng, ridge=0.2)
    assert len(metric) == 5
    torch.testing.assert_close(metric[1:3].dense(), metric.dense()[1:3])
    torch.testing.assert_close(metric[2].dense(), metric.dense()[2])
    moved = metric.to(torch.float32)
    assert moved.factor.dtype == torch.float32
    assert moved.ridge == metric.ridge


@pytest.mark.parametrize(("ridge", "scale"), [(-0.1, 1.0), (float("nan"), 1.0), (0.0, -1.0)])
def test_a_metric_that_would_not_be_positive_is_refused(rng, ridge, scale):
    with pytest.raises(ValueError, match=r"must be (at least 0|a finite number)"):
        random_metric(rng, ridge=ridge).scaled(scale)


def test_eigenvalues_of_more_matrices_than_a_backend_takes_at_once(monkeypatch, rng):
    monkeypatch.setattr("carre.metric.spectrum._EIGH_CHUNK", 4)
    metric = random_metric(rng, batch=(11,))
    torch.testing.assert_close(metric.eigenvalues(), torch.linalg.eigvalsh(metric.dense()).flip(-1)[:, :3])


@pytest.mark.gpu
def test_tangent_bases_of_two_hundred_thousand_points_on_a_gpu():
    """cuSOLVER's batched eigh fails from 65,536 matrices on."""
    factor = torch.randn(200_000, 4, 8, device="cuda")
    basis = LowRankMetric(factor).tangent_basis(2)
    identity = torch.eye(2, device="cuda").expand(len(factor), 2, 2)
    torch.testing.assert_close(basis.mT @ basis, identity, rtol=0, atol=1e-4)


def test_where_single_precision_gives_up_double_precision_answers(monkeypatch, rng):
    real = torch.linalg.eigh

    def stubborn(matrices):
        if matrices.dtype == torch.float32:
            raise torch.linalg.LinAlgError("failed to converge")
        return real(matrices)

    factor = torch.randn(5, 3, 6, generator=rng)
    expected = LowRankMetric(factor).eigenvalues()
    monkeypatch.setattr(torch.linalg, "eigh", stubborn)
    values = LowRankMetric(factor).eigenvalues()
    assert values.dtype == torch.float32
    torch.testing.assert_close(values, expected)


@pytest.mark.parametrize("rank", [2, 5, 7])
def test_the_log_determinant_is_that_of_the_dense_matrix(rank, rng):
    metric = LowRankMetric(torch.randn(3, rank, 5, dtype=torch.float64, generator=rng), 0.1)
    torch.testing.assert_close(metric.log_determinant(), torch.linalg.slogdet(metric.dense()).logabsdet)


def test_a_determinant_needs_a_ridge_where_the_rank_is_small(rng):
    with pytest.raises(ValueError, match="ridge must be positive"):
        LowRankMetric(torch.randn(3, 2, 5, generator=rng)).log_determinant()
