import math

import pytest
import torch

from carre.matching import LogNormal, LogUniform, Uniform
from carre.matching.bandwidths import stratified_levels


@pytest.mark.parametrize("distribution", [Uniform(0.1, 2.0), LogUniform(0.1, 2.0), LogNormal(0.1, 2.0)], ids=str)
def test_draws_stay_in_range_and_quantiles_increase(distribution):
    sigma = distribution.quantile(torch.linspace(1e-6, 1 - 1e-6, 101))
    assert sigma.min() >= 0.1 - 1e-6
    assert sigma.max() <= 2.0 + 1e-6
    assert (sigma.diff() >= 0).all()


def test_log_normal_has_the_papers_median_and_spread():
    """log σ ~ N(−1.2, 1.2²), clamped [RMM, App. E.1]."""
    levels = torch.tensor([0.5, 0.8413447])
    torch.testing.assert_close(
        LogNormal(1e-4, 16.0).quantile(levels).log(), torch.tensor([-1.2, 0.0]), atol=1e-5, rtol=0
    )
    clamped = LogNormal(0.25, 0.35).quantile(torch.tensor([0.01, 0.5, 0.99]))
    torch.testing.assert_close(clamped, torch.tensor([0.25, math.exp(-1.2), 0.35]))


def test_stratified_levels_put_one_draw_in_each_slice(rng):
    levels = stratified_levels(50, generator=rng)
    assert (levels * 50).long().tolist() == list(range(50))


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, math.inf), (math.nan, 1.0)]
)
@pytest.mark.parametrize("kind", [Uniform, LogUniform, LogNormal])
def test_a_range_that_is_none_is_refused(kind, low, high):
    with pytest.raises(ValueError, match=r"0 < low < high|must be a finite number"):
        kind(low, high)
