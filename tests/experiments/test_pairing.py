"""Paired differences, against shifts whose distribution is known."""

import math

import pytest
import torch
from scipy import stats

from experiments.measures import Stability, compare_stability


def stability(values, radii=None, images=None):
    """Shifts of shape (radii, images), as if there had been one draw at each image."""
    shifts = torch.as_tensor(values, dtype=torch.float64)[:, :, None]
    radii = tuple(float(1 + i) for i in range(len(shifts))) if radii is None else radii
    return Stability(radii, shifts, tuple(f"image {i}" for i in range(shifts.shape[1])) if images is None else images)


def test_the_interval_is_that_of_the_paired_t_test(rng):
    first, second = torch.randn(2, 1, 12, generator=rng, dtype=torch.float64)
    compared = compare_stability(stability(first), stability(second), level=0.9)
    expected = stats.ttest_rel(first[0].numpy(), second[0].numpy()).confidence_interval(0.9)
    assert float(compared.low) == pytest.approx(expected.low)
    assert float(compared.high) == pytest.approx(expected.high)
    assert float(compared.difference) == pytest.approx(float((first - second).mean()))


@pytest.mark.parametrize("n_radii", [1, 3])
def test_intervals_of_all_radii_hold_together_as_often_as_they_should(rng, n_radii):
    """For independent radii they hold with probability (1 − (1 − level)/k)ᵏ ≥ level, up to four deviations."""
    n, level, truth = 1000, 0.8, -0.3
    common = torch.randn(n, 1, 6, generator=rng, dtype=torch.float64)
    noise = torch.randn(n, n_radii, 6, generator=rng, dtype=torch.float64)
    held = 0
    for shared, own in zip(common, noise, strict=True):
        compared = compare_stability(stability(shared + truth + own), stability(shared.expand_as(own)), level=level)
        held += bool(((compared.low < truth) & (truth < compared.high)).all())
    expected = (1 - (1 - level) / n_radii) ** n_radii
    assert held / n == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / n))


def test_what_images_have_in_common_drops_out(rng):
    """Images differ a hundred times as much as the two metrics do, and the better one still wins."""
    hard = 100 * torch.rand(1, 10, generator=rng, dtype=torch.float64)
    noise = 0.1 * torch.randn(1, 10, generator=rng, dtype=torch.float64)
    compared = compare_stability(stability(hard - 1 + noise), stability(hard))
    assert compared.wins.all()
    assert not compared.loses.any()
    assert float(compared.high) < -0.5


def test_more_radii_make_each_interval_wider(rng):
    first, second = torch.randn(2, 1, 10, generator=rng, dtype=torch.float64)
    one = compare_stability(stability(first), stability(second))
    five = compare_stability(stability(first.expand(5, 10)), stability(second.expand(5, 10)))
    quantiles = [stats.t.ppf(1 - 0.05 / (2 * k), 9) for k in (1, 5)]
    assert float((five.high - five.low)[0] / (one.high - one.low)[0]) == pytest.approx(quantiles[1] / quantiles[0])
    torch.testing.assert_close(five.difference, one.difference.expand(5))


def test_a_win_seen_from_the_other_side_is_a_loss(rng):
    first = stability([[1.0, 2.0, 3.0, 4.0], [2.1, 2.9, 4.0, 5.1], [9.0, 1.0, 5.0, 3.0]])
    second = stability([[2.1, 3.0, 3.9, 5.0], [1.0, 2.0, 3.0, 4.0], [1.0, 8.0, 4.0, 6.0]])
    there, back = compare_stability(first, second), compare_stability(second, first)
    assert there.wins.tolist() == back.loses.tolist() == [True, False, False]
    assert there.loses.tolist() == back.wins.tolist() == [False, True, False]
    torch.testing.assert_close(there.low, -back.high)
    torch.testing.assert_close(there.ratio, 1 / back.ratio)
    assert there.share.tolist() == [1.0, 0.0, 0.5]


def test_draws_are_averaged_before_images_are_compared():
    """Ten draws at each of three images are three cases, not thirty."""
    means = torch.tensor([[1.0], [2.0], [4.0]])
    draws = (means + torch.linspace(-0.5, 0.5, 10)).double()[None]
    images = ("a", "b", "c")
    zeros = Stability((1.0,), torch.zeros_like(draws), images)
    many = compare_stability(Stability((1.0,), draws, images), zeros)
    once = compare_stability(stability(means.mT, (1.0,), images), zeros)
    torch.testing.assert_close(many.high, once.high)
    torch.testing.assert_close(many.difference, once.difference)


def test_images_are_paired_by_name_and_those_that_only_one_has_seen_are_left_out():
    first = stability([[1.0, 2.0, 3.0, 100.0]], images=("a", "b", "c", "only first"))
    second = stability([[7.0, 4.0, 2.0, 500.0]], images=("c", "b", "a", "only second"))
    compared = compare_stability(first, second)
    assert compared.n_images == 3
    assert float(compared.difference) == pytest.approx((1 - 2 + 2 - 4 + 3 - 7) / 3)
    assert float(compared.ratio) == pytest.approx((1 + 2 + 3) / (2 + 4 + 7))


def test_a_metric_neither_beats_nor_loses_to_itself(rng):
    same = stability(torch.rand(3, 5, generator=rng))
    compared = compare_stability(same, same)
    assert not compared.wins.any()
    assert not compared.loses.any()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("second", "level", "message"),
    [
        (stability([[1.0, 2.0]], radii=(2.0,)), 0.95, r"second must have the radii of first, \[1.0\]; got \[2.0\]"),
        (stability([[1.0], [2.0]]), 0.95, "second must have the radii of first"),
        (stability([[1.0, 2.0]], images=("x", "image 1")), 0.95, "it has seen 1. Measure both on the same images"),
        (stability([[1.0, 2.0]]), 1.0, "level must lie between 0 and 1; got 1.0"),
        (stability([[1.0, 2.0]]), 0.0, "level must lie between 0 and 1; got 0.0"),
        (stability([[1.0, 2.0]]), "high", "level must lie between 0 and 1; got 'high'"),
        (stability([[1.0, 2.0]]), float("nan"), "level must lie between 0 and 1; got nan"),
    ],
)
def test_bad_input_is_named(second, level, message):
    with pytest.raises(ValueError, match=message):
        compare_stability(stability([[1.0, 2.0]]), second, level=level)
