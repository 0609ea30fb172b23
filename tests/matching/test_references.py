"""Reference-batch targets: unbiased for every size of the set, and less noisy (THEORY §3.8, App. A3)."""

import itertools

import pytest
import torch

from carre.manifolds import FiniteSet
from carre.matching import perturb_among
from carre.matching.perturbation import source_posterior


def atoms():
    return torch.tensor([[0.0, 0.0], [1.0, 0.2], [0.3, 1.1], [-0.8, 0.5]], dtype=torch.float64)


def test_with_the_whole_dataset_the_mean_target_is_the_exact_posterior_mean(rng):
    references, sigma = atoms(), 0.6
    source = torch.tensor([0, 1, 2, 3, 0])
    batch = perturb_among(references, source, torch.full((5,), sigma, dtype=torch.float64), n_draws=1, generator=rng)
    torch.testing.assert_close(batch.mean_target, FiniteSet(references).posterior(batch.points, sigma).mean)


def test_draws_average_to_the_exact_uncentered_metric(rng):
    references, sigma, n = atoms(), 0.6, 200_000
    batch = perturb_among(
        references, torch.tensor([1]), torch.tensor([sigma], dtype=torch.float64), n_draws=n, generator=rng
    )
    exact = FiniteSet(references).posterior(batch.points, sigma)
    centered = batch.centered(exact.mean).displacement[0]
    torch.testing.assert_close(centered.mT @ centered / n, exact.metric.dense()[0], atol=0.02, rtol=0)


def test_targets_from_any_subset_that_holds_the_source_are_unbiased():
    """By exact enumeration: the source is drawn from p(x | y), the others from p; the mean target averages to m(y)."""
    data, sigma = atoms(), 0.7
    point = torch.tensor([[0.4, 0.3]], dtype=torch.float64)
    exact = FiniteSet(data).posterior(point, sigma).mean[0]
    posterior = source_posterior(point, data, torch.tensor([sigma], dtype=torch.float64))[0]
    expectation = torch.zeros(2, dtype=torch.float64)
    for source, *others in itertools.product(range(4), repeat=3):
        references = data[[source, *others]]
        weights = source_posterior(point, references, torch.tensor([sigma], dtype=torch.float64))[0]
        expectation += posterior[source] / 16 * (weights @ references)
    torch.testing.assert_close(expectation, exact)


def test_far_from_all_others_the_target_is_the_plain_one(rng):
    references = 100 * atoms()
    batch = perturb_among(
        references, torch.tensor([0, 2]), torch.full((2,), 0.1, dtype=torch.float64), n_draws=3, generator=rng
    )
    torch.testing.assert_close(batch.mean_target, references[[0, 2]])
    own = (references[[0, 2]] - batch.points) / 0.1
    torch.testing.assert_close(batch.displacement, own[:, None].expand(2, 3, 2))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_posterior_weights_are_accurate_in_float32_far_from_the_origin_and_at_small_bandwidths(device, rng):
    """Squares of points cancel at an offset of 100; TF32 would lose the exponents at σ = 0.01."""
    angle = torch.rand(500, generator=rng) * 6.28
    data = 100.0 + torch.stack([angle.cos(), angle.sin()], 1)
    for sigma in (0.01, 0.1):
        points = data[:20] + sigma * torch.randn(20, 2, generator=rng)
        squares = (data.double()[None] - points.double()[:, None]).square().sum(2)
        expected = torch.softmax(-squares / (2 * sigma**2), 1)
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        weights = source_posterior(points.to(device), data.to(device), torch.full((20,), sigma, device=device))
        torch.set_float32_matmul_precision(before)
        # The data themselves are rounded to 7.6e-6 at this offset, which moves exponents by about 7.6e-6·3/σ.
        torch.testing.assert_close(weights.cpu().double(), expected, atol=0.01, rtol=0)
