"""Defaults from the data: numbers that were measured stay what they are."""

import pytest
import torch

from carre.training import ImageScale

SCALE = ImageScale(spread=1.0, neighbor_distance=0.5, dimension=12.0, n_samples=60_000)


@pytest.mark.parametrize(("batch_size", "rate"), [(1, 1e-3), (32, 1e-3), (128, 1e-3), (512, 2e-3), (8192, 2e-3)])
@pytest.mark.parametrize("width", [64, 1024])
def test_the_rate_for_images_grows_with_the_batch_up_to_twice(batch_size, rate, width):
    """By its root from 128 on, and whatever the width."""
    assert SCALE.learning_rate(width, batch_size) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(("device", "batch_size", "rate"), [("cpu", 32, 1e-3), ("cuda", 512, 2e-3)])
def test_images_have_batches_and_rates_for_each_kind_of_device(device, batch_size, rate):
    assert SCALE.batch_size(torch.device(device)) == batch_size
    assert SCALE.learning_rate(64, SCALE.batch_size(torch.device(device))) == pytest.approx(rate)
