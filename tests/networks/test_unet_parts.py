"""The parts of a U-Net do what their formulas say."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from carre.networks import UNetSettings, build_image_model
from carre.networks.convolution import Convolution, ConvolutionBlock, SpatialAttention
from carre.networks.pointwise import modulated_activation
from tests.networks.unets import Held, model_of, numel


@pytest.mark.parametrize("channels", [64, 96, 128, 129, 192, 200, 256, 384, 512])
def test_attention_has_a_head_for_every_64_channels_where_they_divide(channels):
    heads = SpatialAttention(channels).n_heads
    assert heads == {129: 1, 200: 2}.get(channels, channels // 64)
    assert channels % heads == 0


def test_attention_takes_channels_that_64_does_not_divide(rng):
    image = torch.randn(2, 200, 3, 2, generator=rng)
    torch.testing.assert_close(SpatialAttention(200)(image), image, msg="a residual, which starts at zero")


@pytest.mark.parametrize(
    ("sample_shape", "rank", "settings"),
    [
        ((1, 28, 28), 1, UNetSettings.for_shape((1, 28, 28))),
        ((1, 28, 28), 100, UNetSettings.for_shape((1, 28, 28))),
        ((3, 16, 16), 2, UNetSettings(16, (1, 4), 1, (1,))),
        ((3, 16, 16), 2, UNetSettings(32, (2, 1, 1), 1, ())),
        ((1, 16, 16), 4, UNetSettings(16, (1, 2), 2, (0,))),
        ((1, 29, 30), 7, UNetSettings(16, (1, 2, 2), 3, (2,), 2)),
        ((1, 16, 16), 40, UNetSettings(8, (1,), 1, ())),
    ],
    ids=str,
)
def test_no_more_numbers_are_held_than_is_said(sample_shape, rank, settings):
    """Beside the tensors, whose number is exact to a quarter, memory for scratch and fragments is granted."""
    model = build_image_model(sample_shape, rank, spread=1.0, settings=settings).factor
    points, bandwidth = torch.randn(4, numel(sample_shape)), torch.rand(4) + 0.1
    with torch.no_grad(), Held([points, bandwidth, *model.parameters()]) as held:
        model(points, bandwidth)
    said = 4 * 4 * model.trunk.numbers_per_point
    assert 0.35 * said < held.most < 0.46 * said


def test_the_bandwidth_is_seen(rng):
    network = model_of().factor.trunk
    points = torch.randn(2, 36, generator=rng).double()
    low, high = (network(points, torch.full((2,), sigma).double()) for sigma in (0.01, 1.0))
    assert (low - high).abs().max() > 1e-2


def normed_by_hand(values):
    """Over the last axis, with the constant that keeps zeros finite."""
    centered = values - values.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def test_modulation_scales_and_shifts_the_normed_channels_of_each_pixel(rng):
    image = torch.randn(2, 3, 4, 5, generator=rng).double()
    scale, shift = torch.randn(2, 2, 3, generator=rng).double()
    inner = normed_by_hand(image.movedim(1, 3)) * (1 + scale[:, None, None]) + shift[:, None, None]
    expected = (inner / (1 + (-inner).exp())).movedim(3, 1)
    found, same = modulated_activation(image, torch.cat([scale, shift], 1))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert same is image


@pytest.mark.parametrize(("sample_shape", "padded"), [((2, 5, 7), (2, 8, 8)), ((1, 4, 5), (1, 4, 8))], ids=str)
def test_an_image_is_padded_below_and_on_the_right(sample_shape, padded, rng):
    settings = UNetSettings(4, (1, 2), 1, (1,), patch=2)
    network, larger = (model_of(settings, shape).factor.trunk for shape in (sample_shape, padded))
    larger.load_state_dict(network.state_dict())
    (channels, height, width), (_, rows, columns) = sample_shape, padded
    image = torch.randn(2, *sample_shape, generator=rng).double()
    by_hand = torch.zeros(2, *padded, dtype=torch.float64)
    by_hand[:, :, :height, :width] = image
    sigma = torch.tensor([0.2, 0.7]).double()
    expected = larger(by_hand.flatten(1), sigma).reshape(2, 2 * channels, rows, columns)[..., :height, :width]
    torch.testing.assert_close(network(image.flatten(1), sigma), expected.flatten(1), rtol=1e-12, atol=1e-12)


def blocks_up(network):
    return [stage[0] for stage in network.up if not isinstance(stage, Convolution)]


def test_the_way_up_is_given_what_was_kept_on_the_way_down(rng):
    """The latest first, behind the channels that come from below."""
    network, kept, given = model_of().factor.trunk, [], []
    for part in (network.inlet, *(stage if isinstance(stage, Convolution) else stage[-1] for stage in network.down)):
        part.register_forward_hook(lambda _module, _inputs, output: kept.append(output))
    for block in blocks_up(network):
        block.register_forward_pre_hook(lambda _module, inputs: given.append(inputs[0]))
    network(torch.randn(2, 36, generator=rng).double(), torch.full((2,), 0.3).double())
    assert len(given) == len(kept) == 4
    for joined, image in zip(given, reversed(kept), strict=True):
        torch.testing.assert_close(joined[:, -image.shape[1] :], image, rtol=0, atol=0)


@pytest.mark.parametrize(("place", "width"), [(0, 8), (1, 4), (2, 4), (3, 4)])
def test_the_answer_depends_on_all_that_was_kept(place, width, rng):
    network = model_of().factor.trunk
    points, sigma = torch.randn(2, 36, generator=rng).double(), torch.full((2,), 0.3).double()
    whole = network(points, sigma)

    def forget(_module, inputs):
        return torch.cat([inputs[0][:, :-width], torch.zeros_like(inputs[0][:, -width:])], 1), inputs[1]

    blocks_up(network)[place].register_forward_pre_hook(forget)
    assert (network(points, sigma) - whole).abs().max() > 1e-3 * whole.abs().max()


def test_the_bias_of_the_head_is_added_to_each_channel(rng):
    network = model_of(sample_shape=(2, 6, 6)).factor.trunk
    points, sigma = torch.randn(3, 72, generator=rng).double(), torch.full((3,), 0.3).double()
    bias = torch.randn(4, generator=rng).double()
    answers = []
    for value in (torch.zeros(4).double(), bias):
        network.head.bias.data.copy_(value)
        answers.append(network(points, sigma).reshape(3, 4, 36))
    torch.testing.assert_close(answers[1] - answers[0], bias[:, None].expand(3, 4, 36), rtol=1e-12, atol=1e-10)


def test_a_block_adds_an_update_whose_norms_are_modulated_one_after_the_other(rng):
    """The first half of the modulation belongs to the first norm, each a scale and a shift."""
    block = ConvolutionBlock(2, 3).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    image, modulation = torch.randn(2, 2, 4, 4, generator=rng).double(), torch.randn(2, 10, generator=rng).double()
    hidden = image
    for convolution, part in ((block.rise, modulation[:, :4]), (block.fall, modulation[:, 4:])):
        scale, shift = (half[:, None, None] for half in part.chunk(2, 1))
        inner = normed_by_hand(hidden.movedim(1, 3)) * (1 + scale) + shift
        weight = convolution.weight.permute(0, 3, 1, 2)
        hidden = functional.conv2d((inner / (1 + (-inner).exp())).movedim(3, 1), weight, padding=1)
    straight = torch.einsum("oc,nchw->nohw", block.skip.weight[:, 0, 0], image)
    torch.testing.assert_close(block(image, modulation), straight + hidden, rtol=1e-10, atol=1e-10)
