"""One evaluation holds little more than its answer."""

import pytest
import torch

from carre.fields import NeuralField
from carre.metric import AffineFrame
from carre.networks import UNetSettings, build_image_model
from experiments.measures import peak_memory
from tests.networks.unets import Held, numel


def field_of(sample_shape, rank, settings):
    model = build_image_model(sample_shape, rank, spread=1.0, settings=settings)
    return NeuralField(model, AffineFrame(torch.zeros(numel(sample_shape)), 1.0))


@pytest.mark.parametrize("patch", [1, 2])
def test_a_factor_is_held_no_more_than_twice(patch, rng):
    """Once as the image that the network puts out, once as rows; of the network little is left by then."""
    shape, rank, channels = (1, 16, 16), 64, 4
    field = field_of(shape, rank, UNetSettings(channels, (1,), 1, (), patch))
    points = torch.randn(1, numel(shape), generator=rng)
    field.metric(points, 0.3)
    model = next(iter(field._copies.values()))[0]
    with torch.no_grad(), Held([points, *model.parameters(), *model.buffers()]) as held:
        factor = field.metric(points, 0.3).factor
    answer, image = 4 * rank * 256, 4 * channels * 256
    assert held.most < 2 * answer + 4 * image
    assert factor.untyped_storage().nbytes() == answer, "not a part of something larger"


@pytest.mark.gpu
@pytest.mark.parametrize(("mixed_precision", "times"), [(False, 2.4), (True, 1.8)])
def test_on_a_gpu_large_images_take_little_more_than_their_factor(mixed_precision, times):
    """In float32 two factors, in bfloat16 one and a half; and a little for the last image of the network."""
    field = field_of((3, 256, 256), 64, UNetSettings(16, (1, 2, 2, 4), 1, (3,)))
    field = field.with_mixed_precision() if mixed_precision else field
    points = torch.randn(1, 3 * 256**2, device="cuda")
    with torch.no_grad():
        peak = peak_memory(lambda y: field.metric(y, 0.3).factor, points)
    assert peak < times * 4 * 64 * 3 * 256**2


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("mixed_precision", [False, True])
def test_on_a_gpu_the_papers_largest_network_takes_at_most_600_megabytes(mixed_precision):
    field = field_of((3, 256, 256), 256, UNetSettings.of_paper("ffhq"))
    field = field.with_mixed_precision() if mixed_precision else field
    points = torch.randn(1, 3 * 256**2, device="cuda")
    with torch.no_grad():
        assert peak_memory(lambda y: field.metric(y, 0.3).factor, points) < 0.6e9
