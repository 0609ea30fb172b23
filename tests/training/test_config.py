"""Defaults from the data: numbers that were measured stay what they are."""

import pytest
import torch

from carre.training import ImageScale

SCALE = ImageScale(spread=1.0, neighbor_distance=0.5, dimension=12.0, n_samples=60_000)


@pytest.mark.parametrize(("device", "batch_size", "rate"), [("cpu", 32, 1e-3), ("cuda", 512, 1e-3)])
def test_images_have_batches_and_rates_for_each_kind_of_device(device, batch_size, rate):
    assert SCALE.batch_size(torch.device(device)) == batch_size
    assert SCALE.learning_rate(64, SCALE.batch_size(torch.device(device))) == pytest.approx(rate)
