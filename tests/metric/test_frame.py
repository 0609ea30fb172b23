import pytest
import torch

from carre.backend.rows import in_blocks
from carre.fields import ExactField
from carre.manifolds import FiniteSet
from carre.metric import AffineFrame, LowRankMetric


def flat_samples(rng, n=50, dim=6, hull=3):
    basis = torch.linalg.qr(torch.randn(dim, hull, generator=rng, dtype=torch.float64))[0]
    return 5.0 + torch.randn(n, hull, generator=rng, dtype=torch.float64) @ basis.mT


def test_a_frame_finds_the_hull_and_loses_nothing(rng):
    samples = flat_samples(rng)
    frame = AffineFrame.of(samples)
    assert frame.hull_dim == 3
    coordinates = frame.encode(samples)
    torch.testing.assert_close(frame.decode(coordinates), samples)
    torch.testing.assert_close(coordinates.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    assert coordinates.square().mean().item() == pytest.approx(1.0)
    lengths = (samples[1:] - samples[:-1]).norm(dim=1)
    torch.testing.assert_close(frame.scale * (coordinates[1:] - coordinates[:-1]).norm(dim=1), lengths)


def test_the_metric_of_a_dataset_is_the_lifted_metric_of_its_coordinates(rng):
    """The posterior depends on y only through the hull: also at points outside of it (THEORY §2d)."""
    samples = flat_samples(rng)
    frame = AffineFrame.of(samples)
    points = samples[:5] + torch.randn(5, 6, generator=rng, dtype=torch.float64)
    inside = ExactField(FiniteSet(frame.encode(samples)))
    outside = ExactField(FiniteSet(samples))
    lifted = LowRankMetric(frame.lift(inside.metric(frame.encode(points), 0.7 / frame.scale).factor))
    torch.testing.assert_close(lifted.dense(), outside.metric(points, 0.7).dense(), atol=1e-10, rtol=0)
    mean = frame.decode(inside.denoise(frame.encode(points), 0.7 / frame.scale))
    torch.testing.assert_close(mean, outside.denoise(points, 0.7))


def test_full_dimensional_data_keep_their_coordinates(rng):
    samples = torch.randn(50, 4, generator=rng, dtype=torch.float64)
    frame = AffineFrame.of(samples)
    assert frame.basis is None
    factor = torch.randn(2, 3, 4, generator=rng, dtype=torch.float64)
    assert frame.lift(factor) is factor


def test_fewer_samples_than_columns_span_at_most_n_minus_one(rng):
    samples = torch.randn(5, 40, generator=rng)
    assert AffineFrame.of(samples).hull_dim == 4


def test_rounding_of_float32_is_not_mistaken_for_a_dimension(rng):
    samples = (1000.0 + flat_samples(rng, n=500)).to(torch.float32)
    assert AffineFrame.of(samples).hull_dim == 3


def test_a_small_true_dimension_is_kept(rng):
    samples = torch.randn(500, 3, generator=rng, dtype=torch.float64) * torch.tensor([1.0, 1.0, 1e-3])
    assert AffineFrame.of(samples).hull_dim == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_in_very_different_units_are_all_kept(rng, dtype):
    samples = torch.randn(500, 3, generator=rng, dtype=torch.float64) * torch.tensor([2e5, 1.0, 3.0]).double()
    assert AffineFrame.of(samples.to(dtype)).hull_dim == 3


def test_one_repeated_point_has_no_geometry():
    with pytest.raises(ValueError, match="same point"):
        AffineFrame.of(torch.ones(10, 3))


@pytest.mark.parametrize("n", [50, 5], ids=["many samples", "fewer samples than columns"])
def test_a_frame_is_the_same_from_a_few_rows_at_a_time(n, monkeypatch, rng):
    """Memory for twelve numbers: two rows of six columns."""
    samples = flat_samples(rng, n=n)
    whole = AffineFrame.of(samples)
    for name in ("carre.backend.rows.LARGE", "carre.metric.frame.LARGE"):
        monkeypatch.setattr(name, 0)
    monkeypatch.setattr("carre.backend.rows._NUMBERS_AT_ONCE", 12)
    assert {len(part) for part in in_blocks(samples)} <= {1, 2}
    parts = AffineFrame.of(samples)
    assert parts.scale == pytest.approx(whole.scale, rel=1e-14)
    torch.testing.assert_close(parts.basis @ parts.basis.mT, whole.basis @ whole.basis.mT, rtol=0, atol=1e-12)
